"""A tree of a query as SQL text that reads back as the same tree.

The recipe keeps text, and an ad-hoc SELECT has none of its own once its constants have become parameters. sqlglot's
generator is not used: it translates (a FULL JOIN becomes a UNION, TRY_CAST a CAST), and the text would mean something
else than the tree. This writes down what stands in the tree and nothing else: parentheses are nodes, so the order of
operators is kept without knowing it. What ``grammar.py`` does not list as an expression or a query is not written.

``parse.faithful`` reads the text again and compares with :func:`same_tree`. No text is kept whose plan would not be
that of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from domains.errors import LimitExceeded, Unsupported
from migrations.parse.grammar import words
from migrations.parse.syntax import exp


def text_of(node: exp.Expr) -> str:
    """An expression or a query as MySQL reads it; also the name of a column that has none."""
    try:
        return _text(node)
    except RecursionError:  # Writing goes deeper than parsing.
        raise too_deep() from None


def too_deep() -> LimitExceeded:
    return LimitExceeded("the statement nests too deep", hint="split it into several views")


def quote(name: str) -> str:
    """A name as MySQL reads it back, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def quoted_text(value: str) -> str:
    """A text as MySQL reads it back."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def same_tree(one: object, other: object) -> bool:
    """Whether two trees are the same in all that they hold. Words of SQL, and no names or texts, have no case."""
    pending: list[tuple[object, object]] = [(one, other)]
    while pending:
        a, b = pending.pop()
        if type(a) is not type(b):
            return False
        if isinstance(a, exp.Expr) and isinstance(b, exp.Expr):
            ours, theirs = _held(a), _held(b)
            if ours.keys() != theirs.keys():
                return False
            exact = isinstance(a, (exp.Literal, exp.Identifier))
            for key, value in ours.items():
                if type(value) is str and not exact and type(theirs[key]) is str:
                    if value.upper() != theirs[key].upper():  # type: ignore[attr-defined]
                        return False
                else:
                    pending.append((value, theirs[key]))
        elif isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif a != b:
            return False
    return True


def _held(node: exp.Expr) -> dict[str, object]:
    """The contents of a node. Whether a name stood in backquotes does not matter."""
    ignored = ("quoted", "nulls_first") if isinstance(node, (exp.Identifier, exp.Ordered)) else ()
    return {
        key: value
        for key, value in node.args.items()
        if value is not None and value is not False and value != [] and key not in ignored
    }


# --- writing ------------------------------------------------------------------------------------------------------


def _text(node: exp.Expr) -> str:
    operator = _BINARY.get(type(node))
    if operator is not None:
        return f"{_text(node.this)} {operator} {_text(node.args['expression'])}"
    writer = _WRITERS.get(type(node))
    if writer is None:
        raise Unsupported(words(node))
    return writer(node)


def _list(nodes: Iterable[exp.Expr]) -> str:
    return ", ".join([_text(node) for node in nodes])


def _call(name: str, arguments: Iterable[exp.Expr | None]) -> str:
    return f"{name}({_list(part for part in arguments if part is not None)})"


_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "DIV",
    exp.Mod: "%",
    exp.And: "AND",
    exp.Or: "OR",
    exp.Xor: "XOR",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.Is: "IS",
    exp.RegexpLike: "RLIKE",
    exp.Escape: "ESCAPE",
    exp.Collate: "COLLATE",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}


def _literal(node: exp.Expr) -> str:
    return quoted_text(node.this) if node.is_string else str(node.this)


def _identifier(node: exp.Expr) -> str:
    name = str(node.this)
    plain = not node.args.get("quoted") and exp.SAFE_IDENTIFIER_RE.match(name)
    return name if plain else quote(name)


def _column(node: exp.Expr) -> str:
    name = _text(node.this)
    return f"{_text(node.args['table'])}.{name}" if node.args.get("table") is not None else name


def _in_parentheses(query: exp.Expr) -> str:
    return _text(query) if isinstance(query, exp.Subquery) else f"({_text(query)})"


def _in(node: exp.Expr) -> str:
    query = node.args.get("query")
    if query is not None:
        return f"{_text(node.this)} IN {_in_parentheses(query)}"
    return f"{_text(node.this)} IN ({_list(node.expressions)})"


def _like(node: exp.Expr) -> str:
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    return f"{_text(node.this)} {word} {_text(node.args['expression'])}"


def _case(node: exp.Expr) -> str:
    parts = ["CASE"] if node.this is None else [f"CASE {_text(node.this)}"]
    parts += [f"WHEN {_text(branch.this)} THEN {_text(branch.args['true'])}" for branch in node.args["ifs"]]
    default = node.args.get("default")
    return " ".join([*parts, *([] if default is None else [f"ELSE {_text(default)}"]), "END"])


def _anonymous(node: exp.Expr) -> str:
    name = node.this
    return _call(_text(name) if isinstance(name, exp.Expr) else str(name).upper(), node.expressions)


def _aggregate(node: exp.Expr) -> str:
    return _call(node.key.upper(), [node.this, *node.expressions])


def _distinct(node: exp.Expr) -> str:
    return f"DISTINCT {_list(node.expressions)}"


def _group_concat(node: exp.Expr) -> str:
    separator = node.args.get("separator")
    tail = "" if separator is None else f" SEPARATOR {_text(separator)}"
    return f"GROUP_CONCAT({_text(node.this)}{tail})"


def _window(node: exp.Expr) -> str:
    """A function with OVER, or a name with its definition in the WINDOW clause."""
    alias, order, spec = (node.args.get(key) for key in ("alias", "order", "spec"))
    partition = node.args.get("partition_by") or ()
    parts = [_text(part) for part in (alias,) if part is not None]
    parts += [f"PARTITION BY {_list(partition)}"] if partition else []
    parts += [_text(part) for part in (order, spec) if part is not None]
    if node.args.get("over") is None:
        return f"{_text(node.this)} AS ({' '.join(parts)})"
    is_name = alias is not None and len(parts) == 1
    return f"{_text(node.this)} OVER {parts[0] if is_name else '(' + ' '.join(parts) + ')'}"


def _window_spec(node: exp.Expr) -> str:
    start, end = (
        " ".join([each if isinstance(each, str) else _text(each), *([side] if side else [])])
        for each, side in ((node.args.get(key) or "", node.args.get(f"{key}_side")) for key in ("start", "end"))
    )
    return f"{node.args['kind']} BETWEEN {start} AND {end}" if end else f"{node.args['kind']} {start}"


def _trim(node: exp.Expr) -> str:
    position, what = node.args.get("position"), node.args.get("expression")
    if position is None and what is None:
        return f"TRIM({_text(node.this)})"
    words = [str(position).upper() if position is not None else "", "" if what is None else _text(what), "FROM"]
    return f"TRIM({' '.join(word for word in words if word)} {_text(node.this)})"


def _cast(node: exp.Expr) -> str:
    target = node.args["to"]
    if target.this == exp.DType.CHARACTER_SET:
        return f"CONVERT({_text(node.this)} USING {_text(target.args['kind'])})"
    return f"CAST({_text(node.this)} AS {_cast_type(target)})"


_CAST_TYPES = {
    **dict.fromkeys(("BIGINT", "INT", "SMALLINT", "TINYINT", "MEDIUMINT"), "SIGNED"),
    **dict.fromkeys(("UBIGINT", "UINT", "USMALLINT", "UTINYINT", "UMEDIUMINT"), "UNSIGNED"),
}


def _cast_type(node: exp.Expr) -> str:
    name = node.this.name if isinstance(node.this, exp.DType) else str(node.this)
    sizes = f"({_list(node.expressions)})" if node.expressions else ""
    return _CAST_TYPES.get(name, name) + sizes


def _interval(node: exp.Expr) -> str:
    amount, unit = node.this, node.args.get("unit")
    shown = amount.name if amount.is_string and amount.name.lstrip("-").isdigit() else _text(amount)
    return f"INTERVAL {shown}" + ("" if unit is None else f" {_text(unit)}")


_CLOCKS: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "CURRENT_TIMESTAMP",
    exp.CurrentDate: "CURRENT_DATE",
    exp.CurrentTime: "CURRENT_TIME",
    exp.CurrentUser: "CURRENT_USER",
    exp.Localtime: "LOCALTIME",
    exp.Localtimestamp: "LOCALTIMESTAMP",
}


def _clock(node: exp.Expr) -> str:
    name = _CLOCKS[type(node)]
    return name if node.args.get("this") is None else _call(name, [node.this])


# --- queries ------------------------------------------------------------------------------------------------------


def _select(node: exp.Expr) -> str:
    arguments = node.args
    words = [_with(node), "SELECT"]
    if arguments.get("hint") is not None:
        words.append(_text(arguments["hint"]))
    if arguments.get("distinct") is not None:
        words.append("DISTINCT")
    words += [each.name for each in arguments.get("operation_modifiers") or ()]
    words.append(_list(node.expressions))
    if arguments.get("from_") is not None:
        words.append(f"FROM {_text(arguments['from_'].this)}{_joins(node)}")
    words += [f"{word} {_text(arguments[key].this)}" for key, word in (("where", "WHERE"),) if arguments.get(key)]
    if arguments.get("group") is not None:
        words.append(_text(arguments["group"]))
    if arguments.get("having") is not None:
        words.append(f"HAVING {_text(arguments['having'].this)}")
    if arguments.get("windows"):
        words.append(f"WINDOW {_list(arguments['windows'])}")
    return " ".join(word for word in (*words, _tail(node)) if word)


def _union(node: exp.Expr) -> str:
    word = type(node).__name__.upper() + ("" if node.args.get("distinct") else " ALL")
    parts = (_with(node), _text(node.this), word, _text(node.args["expression"]), _tail(node))
    return " ".join(part for part in parts if part)


def _subquery(node: exp.Expr) -> str:
    parts = (_with(node), f"({_text(node.this)})")
    alias = node.args.get("alias")
    named = "" if alias is None else f"AS {_text(alias)}"
    return " ".join(part for part in (*parts, named, _tail(node)) if part) + _joins(node)


def _lateral(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    word = "" if isinstance(node.this, exp.JSONTable) else "LATERAL "
    return f"{word}{_text(node.this)}" + ("" if alias is None else f" AS {_text(alias)}")


def _json_table(node: exp.Expr) -> str:
    return f"JSON_TABLE({_text(node.this)}, {_text(node.args['path'])} {_text(node.args['schema'])})"


def _json_value(node: exp.Expr) -> str:
    returning, conditions = node.args.get("returning"), node.args.get("on_condition")
    type = "" if returning is None else f" RETURNING {_cast_type(returning)}"
    tail = "" if conditions is None else _text(conditions)
    return f"JSON_VALUE({_text(node.this)}, {_text(node.args['path'])}{type}{tail})"


def _json_column(node: exp.Expr) -> str:
    arguments = node.args
    if arguments.get("nested_schema") is not None:
        return f"NESTED PATH {_text(arguments['path'])} {_text(arguments['nested_schema'])}"
    if arguments.get("ordinality"):
        return f"{_text(node.this)} FOR ORDINALITY"
    word, conditions = "EXISTS PATH" if arguments.get("exists") else "PATH", arguments.get("on_condition")
    tail = "" if conditions is None else _text(conditions)
    return f"{_text(node.this)} {_declared_type(arguments['kind'])} {word} {_text(arguments['path'])}{tail}"


def _declared_type(node: exp.Expr) -> str:
    """A type as a column has it, where ``CAST`` has few."""
    name = node.this.name if isinstance(node.this, exp.DType) else str(node.this)
    sizes = f"({_list(node.expressions)})" if node.expressions else ""
    is_unsigned = name[:1] == "U" and name != "UUID"
    return f"{name[1:]}{sizes} UNSIGNED" if is_unsigned else name + sizes


def _json_conditions(node: exp.Expr) -> str:
    """Of each what it is then: NULL, an error, or a value."""
    found = [(word, node.args.get(word.lower())) for word in ("EMPTY", "ERROR")]
    return "".join(
        f" {'' if isinstance(value, (exp.Null, exp.Var)) else 'DEFAULT '}{_text(value)} ON {word}"
        for word, value in found
        if value is not None
    )


def _with(node: exp.Expr) -> str:
    clause = node.args.get("with_")
    if clause is None:
        return ""
    return ("WITH RECURSIVE " if clause.args.get("recursive") else "WITH ") + ", ".join(
        f"{_text(cte.args['alias'])} AS ({_text(cte.this)})" for cte in clause.expressions
    )


def _tail(node: exp.Expr) -> str:
    """ORDER BY, LIMIT and OFFSET."""
    found = [node.args.get(key) for key in ("order", "limit", "offset")]
    return " ".join(_text(clause) for clause in found if clause is not None)


def _joins(node: exp.Expr) -> str:
    return "".join(_text(join) for join in node.args.get("joins") or ())


def _join(node: exp.Expr) -> str:
    arguments = node.args
    parts = [str(arguments[key]).upper() for key in ("method", "side", "kind") if arguments.get(key)]
    source, on, using = _text(node.this), arguments.get("on"), arguments.get("using")
    if not parts and on is None and not using:
        return f", {source}"
    verb = " ".join(parts if "STRAIGHT_JOIN" in parts else [*parts, "JOIN"])
    tail = f" ON {_text(on)}" if on is not None else f" USING ({_list(using)})" if using else ""
    return f" {verb} {source}{tail}"


def _table(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    hints = "".join(f" {_text(hint)}" for hint in node.args.get("hints") or ())
    name = _text(node.this) if node.args.get("db") is None else f"{_text(node.args['db'])}.{_text(node.this)}"
    return name + ("" if alias is None else f" AS {_text(alias)}") + hints + _joins(node)


def _table_alias(node: exp.Expr) -> str:
    columns = node.args.get("columns") or ()
    return _text(node.this) + (f" ({_list(columns)})" if columns else "")


def _char(node: exp.Expr) -> str:
    charset = node.args.get("charset") or None
    return f"CHAR({_list(node.expressions)}{'' if charset is None else f' USING {_text(charset)}'})"


def _group(node: exp.Expr) -> str:
    suffix = " WITH ROLLUP" if node.args.get("rollup") else " WITH CUBE" if node.args.get("cube") else ""
    return f"GROUP BY {_list(node.expressions)}{suffix}"


def _order(node: exp.Expr) -> str:
    before = "" if node.args.get("this") is None else f"{_text(node.this)} "
    return f"{before}ORDER BY {_list(node.expressions)}"


def _hint(node: exp.Expr) -> str:
    return f"/*+ {', '.join(each if isinstance(each, str) else _text(each) for each in node.expressions)} */"


def _index_hint(node: exp.Expr) -> str:
    target = f" FOR {node.args['target']}" if node.args.get("target") else ""
    return f"{str(node.this).upper()} INDEX{target} ({_list(node.expressions)})"


_WRITERS: dict[type[exp.Expr], Callable[[exp.Expr], str]] = {
    exp.Literal: _literal,
    exp.Identifier: _identifier,
    exp.Column: _column,
    exp.Star: lambda node: "*",
    exp.Var: lambda node: str(node.this),
    exp.Parameter: lambda node: f"@{_text(node.this)}",
    exp.SessionParameter: lambda node: "@@" + ".".join([*filter(None, [node.args.get("kind")]), _text(node.this)]),
    exp.Null: lambda node: "NULL",
    exp.Boolean: lambda node: "TRUE" if node.this else "FALSE",
    exp.Placeholder: lambda node: f":{node.this}" if node.this else "?",
    exp.HexString: lambda node: f"x'{node.this}'",
    exp.BitString: lambda node: f"b'{node.this}'",
    exp.National: lambda node: "N" + quoted_text(str(node.this)),
    exp.Introducer: lambda node: f"{node.this} {_text(node.args['expression'])}",
    exp.Paren: lambda node: f"({_text(node.this)})",
    exp.Not: lambda node: f"NOT {_text(node.this)}",
    exp.Neg: lambda node: f"-{' ' if isinstance(node.this, exp.Neg) else ''}{_text(node.this)}",
    exp.BitwiseNot: lambda node: f"~{_text(node.this)}",
    exp.Alias: lambda node: f"{_text(node.this)} AS {_text(node.args['alias'])}",
    exp.Tuple: lambda node: f"({_list(node.expressions)})",
    exp.Between: lambda node: f"{_text(node.this)} BETWEEN {_text(node.args['low'])} AND {_text(node.args['high'])}",
    exp.In: _in,
    exp.Like: _like,
    exp.JSONArrayContains: lambda node: f"{_text(node.this)} MEMBER OF ({_text(node.args['expression'])})",
    exp.Exists: lambda node: f"EXISTS({_text(node.this)})",
    exp.Any: lambda node: f"ANY {_in_parentheses(node.this)}",
    exp.All: lambda node: f"ALL {_in_parentheses(node.this)}",
    exp.Case: _case,
    exp.If: lambda node: _call("IF", [node.this, node.args["true"], node.args.get("false")]),
    exp.Cast: _cast,
    exp.DataType: _cast_type,
    exp.DataTypeParam: lambda node: _text(node.this),
    exp.Interval: _interval,
    exp.Anonymous: _anonymous,
    exp.Chr: _char,
    exp.Coalesce: lambda node: _call("COALESCE", [node.this, *node.expressions]),
    exp.Concat: lambda node: (", " if node.args.get("safe") else " ").join(map(_text, node.expressions)),
    exp.Substring: lambda node: _call("SUBSTRING", [node.this, node.args.get("start"), node.args.get("length")]),
    exp.StrPosition: lambda node: _call("POSITION", [node.args["substr"], node.this, node.args.get("position")]),
    exp.Trim: _trim,
    exp.Extract: lambda node: f"EXTRACT({_text(node.this)} FROM {_text(node.args['expression'])})",
    **dict.fromkeys(_CLOCKS, _clock),
    **dict.fromkeys((exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Soundex), _aggregate),
    exp.Distinct: _distinct,
    exp.GroupConcat: _group_concat,
    exp.Window: _window,
    exp.WindowSpec: _window_spec,
    exp.RespectNulls: lambda node: f"{_text(node.this)} RESPECT NULLS",
    exp.Select: _select,
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _union),
    exp.Lateral: _lateral,
    exp.JSONValue: _json_value,
    exp.JSONTable: _json_table,
    exp.JSONSchema: lambda node: f"COLUMNS ({_list(node.expressions)})",
    exp.JSONColumnDef: _json_column,
    exp.OnCondition: _json_conditions,
    exp.Subquery: _subquery,
    exp.Join: _join,
    exp.Table: _table,
    exp.TableAlias: _table_alias,
    exp.Group: _group,
    exp.Order: _order,
    exp.Ordered: lambda node: _text(node.this) + (" DESC" if node.args.get("desc") else ""),
    exp.Limit: lambda node: f"LIMIT {_text(node.args['expression'])}",
    exp.Offset: lambda node: f"OFFSET {_text(node.args['expression'])}",
    exp.Hint: _hint,
    exp.IndexTableHint: _index_hint,
}
