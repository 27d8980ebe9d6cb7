"""SQL expressions to typed expressions over one row.

One table from sqlglot's node classes to functions of ``domains/functions`` does most of it. What depends on where the
expression stands is asked of the caller through :class:`Setting`: what a ``?`` is, what an aggregate or a subquery
has become, what time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from domains.errors import SqlError, Unsupported
from domains.language import functions
from domains.language.expressions import Call, Constant, Expression
from domains.language.rewriting import fold
from domains.language.types import BIGINT, DATETIME, DOUBLE, TEXT, Kind, SqlType, decimal_type
from migrations.parse.policies import is_claim
from migrations.parse.reading import exp, position, text_of
from migrations.query.expressions import calls, documents, literals
from migrations.query.expressions.drawing import drawn_name
from migrations.query.expressions.literals import call, precise
from migrations.query.expressions.scope import Scope


@dataclass(frozen=True, slots=True)
class Setting:
    """The surroundings of an expression, besides columns and constants."""

    replace: Callable[[exp.Expr], Expression | None] | None = None
    """Asked first, at every node: what the node has already become (a group's column, an aggregate, a subquery)."""
    placeholder: Callable[[exp.Placeholder], Expression] | None = None
    """The value of a ``?``; without it a ``?`` is refused."""
    now: str | None = None
    """The time that NOW() gives, ``2026-01-31 08:00:00``."""
    moment: Callable[[], Expression] | None = None
    """What NOW() is where the time is that of a request to come; without this and ``now`` it is refused."""
    claim: Callable[[exp.Expr], Expression] | None = None
    """What CURRENT_CLAIM() is, given the call; without it that is refused."""
    drawn: Callable[[str, SqlType], Expression] | None = None
    """What RAND() and UUID() are, by the name of the call; without it they are refused."""
    place: str = "this place"
    """Named in errors: ``?`` in the SELECT list."""


PLAIN = Setting()

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.IntDiv: "int_divide",
    exp.Mod: "modulo",
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "null_safe_eq",
    exp.Xor: "xor",
    exp.RegexpLike: "regexp",
    exp.BitwiseAnd: "bit_and",
    exp.BitwiseOr: "bit_or",
    exp.BitwiseXor: "bit_xor",
    exp.BitwiseLeftShift: "shift_left",
    exp.BitwiseRightShift: "shift_right",
}
_UNARY: dict[type[exp.Expr], str] = {exp.Not: "not", exp.Neg: "negate", exp.BitwiseNot: "bit_not"}
_NUMBERS = frozenset((Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE))
_ARITHMETIC = frozenset(("add", "subtract", "multiply", "divide", "int_divide", "modulo"))
_ROW_COMPARISONS = {"eq": "and", "ne": "or", "null_safe_eq": "and"}
_STRICT = {"lt": "lt", "le": "lt", "gt": "gt", "ge": "gt"}
"""How rows are compared by all columns but the last."""

_REFUSED: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.Parameter: ("user variables (@name)", "use a parameter: ?; a request's statements may read what it SET before"),
    exp.SessionParameter: ("session variables (@@name)", None),
    exp.Window: (
        "a window function outside of the SELECT list and ORDER BY",
        "compute it in a subquery, and put the condition around that",
    ),
    exp.Interval: ("INTERVAL outside of date arithmetic", None),
}


def scalar(node: exp.Expr, scope: Scope, setting: Setting = PLAIN) -> Expression:
    """The typed expression that ``node`` means over ``scope``'s row.

    :raises UnknownName: a column is not there.
    :raises SqlError: the text is wrong.
    :raises Unsupported: a construct that is not done; named, with a hint.
    """
    if setting.replace is not None:
        known = setting.replace(node)
        if known is not None:
            return known
    if isinstance(node, (exp.Paren, exp.Alias)):
        return scalar(node.this, scope, setting)
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return scope.resolve(node)
    constant = literals.literal(node)
    if constant is not None:
        return constant
    name = _BINARY.get(type(node))
    if name is not None:
        return _binary(name, node, scope, setting)
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(node, scope, setting)
    raise _refusal(node)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that AND joins, from left to right."""
    return _operands(node, exp.And)


def _operands(node: exp.Expr, connective: type[exp.Expr]) -> Iterator[exp.Expr]:
    pending = [node]
    while pending:
        part = pending.pop()
        while isinstance(part, exp.Paren):
            part = part.this
        if isinstance(part, connective):
            pending.extend((part.args["expression"], part.this))
        else:
            yield part


def _connective(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    name = "and" if isinstance(node, exp.And) else "or"
    return call(name, *(scalar(part, scope, setting) for part in _operands(node, type(node))))


def _binary(name: str, node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    left, right = node.this, node.args["expression"]
    if name in ("add", "subtract") and (isinstance(left, exp.Interval) or isinstance(right, exp.Interval)):
        moment, interval = (right, left) if isinstance(left, exp.Interval) else (left, right)
        if name == "subtract" and interval is left:
            raise SqlError("an INTERVAL has nothing to be subtracted from")
        value = scalar(moment, scope, setting)
        return calls.shifted(value, _amount(interval, scope, setting), interval, back=name == "subtract")
    ours, theirs = _row(left), _row(right)
    if ours is None and theirs is None:
        return call(name, *_operands_of(name, (left, right), scope, setting))
    if ours is None or theirs is None or len(ours) != len(theirs):
        raise SqlError("a row is compared with a row of another length")
    pairs = [(scalar(a, scope, setting), scalar(b, scope, setting)) for a, b in zip(ours, theirs, strict=True)]
    return compared_rows(name, pairs)


def compared_rows(name: str, pairs: Sequence[tuple[Expression, Expression]]) -> Expression:
    """A comparison of two rows, column by column."""
    if name in _ROW_COMPARISONS:
        return call(_ROW_COMPARISONS[name], *(call(name, a, b) for a, b in pairs))
    if name not in _STRICT:
        raise SqlError("a row of values can only be compared with a row")
    return _lexicographic(name, pairs)


def _lexicographic(name: str, pairs: Sequence[tuple[Expression, Expression]]) -> Expression:
    """``(a, b) <= (c, d)`` is ``a < c OR a = c AND b <= d``, as MySQL's manual has it."""
    (first, other), rest = pairs[0], pairs[1:]
    if not rest:
        return call(name, first, other)
    later = call("and", call("eq", first, other), _lexicographic(name, rest))
    return call("or", call(_STRICT[name], first, other), later)


def _operands_of(name: str, nodes: Sequence[exp.Expr], scope: Scope, setting: Setting) -> list[Expression]:
    """The operands' expressions; a hexadecimal literal is a number in arithmetic, and where it meets a number."""
    found = [scalar(node, scope, setting) for node in nodes]
    if name not in _ARITHMETIC and all(e.type.kind not in _NUMBERS for e in found):
        return found
    pairs = zip(nodes, found, strict=True)
    return [literals.among_numbers(e) if isinstance(node, exp.HexString) else e for node, e in pairs]


def _row(node: exp.Expr) -> list[exp.Expr] | None:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "row":
        return list(node.expressions)
    return None


def _unary(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    argument = scalar(node.this, scope, setting)
    if isinstance(node, exp.Neg) and isinstance(argument, Constant) and argument.type.kind is Kind.DECIMAL:
        value = argument.value
        if argument.type.scale == 0 and isinstance(value, Decimal):
            return literals.integer(-int(value))  # -9223372036854775808 is a BIGINT, without its sign it is none.
    if isinstance(argument, Call) and isinstance(node, exp.Not) and argument.function == "is_null":
        return call("is_not_null", *argument.arguments)
    return call(_UNARY[type(node)], argument)


def _is(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    argument, what = scalar(node.this, scope, setting), node.args["expression"]
    if isinstance(what, exp.Boolean):
        return call("is_true" if what.this else "is_false", argument)
    if isinstance(what, exp.Not) and isinstance(what.this, (exp.Null, exp.Boolean)):
        return call("not", _is(exp.Is(this=node.this, expression=what.this), scope, setting))
    if not isinstance(what, exp.Null):
        raise SqlError("IS wants NULL, TRUE, FALSE or UNKNOWN")
    return call("is_null", argument)


def _in(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    if node.args.get("query") is not None:
        raise Unsupported(f"IN (SELECT …) in {setting.place}", hint="join with the subquery")
    if not node.expressions:
        raise SqlError("IN wants a list in parentheses, or a SELECT")
    row = _row(node.this)
    if row is None:
        return call("in", *_operands_of("in", (node.this, *node.expressions), scope, setting))
    return call("or", *(scalar(exp.EQ(this=node.this, expression=v), scope, setting) for v in node.expressions))


def _between(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    """A text that has a text and a number as its bounds is compared with two numbers, so that ``'10' BETWEEN '9' AND
    11`` is true."""
    value, *bounds = _operands_of("between", (node.this, node.args["low"], node.args["high"]), scope, setting)
    if value.type.kind is Kind.TEXT and any(bound.type.kind in _NUMBERS for bound in bounds):
        number = decimal_type(literals.LARGEST_SCALE)
        bounds = [functions.call("cast", b, type=number) if b.type.kind is Kind.TEXT else b for b in bounds]
    return call("between", value, *bounds)


def _like(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    escape = []
    if isinstance(node, exp.Escape):
        escape = [scalar(node.args["expression"], scope, setting)]
        node = node.this
    if type(node) is not exp.Like:
        raise _refusal(node)
    matched = call("like", scalar(node.this, scope, setting), scalar(node.args["expression"], scope, setting), *escape)
    return call("not", matched) if node.args.get("negate") else matched


def _member_of(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    value, array = (scalar(part, scope, setting) for part in (node.this, node.args["expression"]))
    return call("json_member_of", *documents.prepared("json_member_of", [value, array]))


def _case(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    arguments: list[Expression] = []
    base = scalar(node.this, scope, setting) if node.this is not None else None
    for branch in node.args["ifs"]:
        condition = scalar(branch.this, scope, setting)
        if base is None:
            arguments.append(condition)
        elif base.type.kind is Kind.JSON and condition.type.kind is Kind.TEXT:
            # As MySQL does behind CASE, and nowhere else: the document's text, in which a JSON null is 'null'.
            arguments.append(call("eq", functions.call("cast", base, type=TEXT), condition))
        else:
            arguments.append(call("eq", base, condition))
        arguments.append(scalar(branch.args["true"], scope, setting))
    default = node.args.get("default")
    arguments.append(literals.NOTHING if default is None else scalar(default, scope, setting))
    return call("case", *arguments)


def _if(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    otherwise = node.args.get("false")
    if otherwise is None:
        raise SqlError("IF wants three arguments")
    return call("if", *(scalar(part, scope, setting) for part in (node.this, node.args["true"], otherwise)))


def _coalesce(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    parts = [part for part in (node.this, *node.expressions) if part is not None]
    return call("coalesce", *(scalar(part, scope, setting) for part in parts))


def _cast(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    target = literals.cast_target(node.args["to"])
    argument = scalar(node.this, scope, setting)
    if target.kind is Kind.JSON:
        return documents.as_json(argument)
    if target.kind in _NUMBERS:
        argument = literals.among_numbers(argument) if isinstance(node.this, exp.HexString) else precise(argument)
    return functions.call("cast", argument, type=target)


def _json_value(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    """The values of ON EMPTY and ON ERROR say the type."""
    returning = node.args.get("returning")
    type = TEXT if returning is None else literals.cast_target(returning)
    fallbacks = documents.conditions(node, type, "JSON_VALUE", lambda part: scalar(part, scope, setting))
    arguments = documents.prepared(
        "json_value", [scalar(node.this, scope, setting), scalar(node.args["path"], scope, setting)]
    )
    return call("json_value_as", *arguments, *(Constant(value, type) for value in fallbacks))


def _function(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    name, parts = calls.spelled(node)
    if isinstance(node, exp.Anonymous) and node.name.lower() in calls.OPERATORS - calls.AGGREGATES:
        raise Unsupported(f"function {node.name.upper()}", hint="write the operator")
    if name == "values":
        raise Unsupported("VALUES(column) outside of ON DUPLICATE KEY UPDATE")
    if calls.asks_time(node):
        return _now(name, parts, setting)
    if setting.claim is not None and is_claim(node):
        return setting.claim(node)
    if name in calls.DRAWN and setting.drawn is not None:
        seed = seed_of(name, parts)
        return setting.drawn(drawn_name(name, position(node), seed), DOUBLE if name == "rand" else TEXT)
    if name in calls.AGGREGATES:
        raise _misplaced(node, setting)
    if name == "interval":
        return _place_among(node, [scalar(part, scope, setting) for part in parts])
    calls.check(name)
    if name in calls.SHIFTS:
        if len(parts) != 2:
            raise SqlError(
                f"{name.upper()} takes 2 arguments, not {len(parts)}", hint=f"{name.upper()}(date, INTERVAL 1 DAY)"
            )
        value, by = scalar(parts[0], scope, setting), parts[1]
        return calls.shifted(value, _amount(by, scope, setting), by, back=calls.SHIFTS[name])
    unit = calls.leading_unit(name, parts)
    arguments = [scalar(part, scope, setting) for part in (parts if unit is None else parts[1:])]
    if len(arguments) == _WITH_FLAGS.get(name):
        arguments = _with_flags(node, arguments)
    name, arguments = calls.ordered(name, unit, arguments)
    return call(name, *documents.prepared(name, arguments))


def _place_among(node: exp.Expr, arguments: Sequence[Expression]) -> Expression:
    """``INTERVAL(n, a, b)``: how many of the numbers, which ascend, n has reached; -1 for NULL."""
    if len(arguments) < 2:
        raise SqlError(f"{text_of(node)}: a number and those that it is compared with are wanted")
    numbers = [a if a.type.kind in _NUMBERS else functions.call("cast", a, type=DOUBLE) for a in arguments]
    number, bounds = numbers[0], numbers[1:]
    branches = [call("is_null", number), literals.integer(-1)]
    for place, bound in enumerate(bounds):
        branches += [call("lt", number, bound), literals.integer(place)]
    return call("case", *branches, literals.integer(len(bounds)))


_FLAGS = {"i": "(?i)", "c": "", "m": "(?m)", "n": "(?s)"}
"""What the letters behind a regular expression are before it."""
_WITH_FLAGS = {"regexp": 3, "regexp_instr": 6, "regexp_substr": 5, "regexp_replace": 6}
"""Arguments of a function whose last one is such letters."""


def _with_flags(node: exp.Expr, arguments: Sequence[Expression]) -> list[Expression]:
    text, pattern, *others, letters = arguments
    name = node.name.upper()
    if not isinstance(letters, Constant) or not isinstance(letters.value, str):
        raise Unsupported(f"{name} with flags that are no text of their own", hint="write them: 'i'")
    if not set(letters.value) <= _FLAGS.keys():
        raise Unsupported(f"the flags {letters.value!r} of {name}", hint="c, i, m and n are there")
    cases = [letter for letter in letters.value if letter in "ci"][-1:]
    found = [_FLAGS[letter] for letter in (*cases, *sorted(set(letters.value) - {"c", "i"}))]
    prefix = "".join(found)
    return [text, call("concat", literals.text(prefix), pattern) if prefix else pattern, *others]


def _amount(by: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    amount = by.this if isinstance(by, exp.Interval) else by
    return scalar(amount, scope, setting)


def _now(name: str, parts: list[exp.Expr], setting: Setting) -> Expression:
    if any(not isinstance(part, exp.Literal) for part in parts):
        raise SqlError(f"{name.upper()}() takes a number of digits at most")
    if setting.now is not None:
        return fold(calls.clock(name, Constant(setting.now, DATETIME)))
    if setting.moment is None:
        raise Unsupported(
            f"{name.upper()}() in {setting.place}: its value would change without a write",
            hint="in WHERE and the SELECT list of a view it is the time of the request; or compare with a parameter, "
            "and give the time when reading",
        )
    return calls.clock(name, setting.moment())


def seed_of(name: str, parts: Sequence[exp.Expr]) -> int | None:
    """The n in RAND(n); None without one."""
    seed: int | None = None
    if len(parts) > (name == "rand"):
        raise SqlError(f"{name.upper()} takes {'one argument at most' if name == 'rand' else 'no arguments'}")
    if parts:
        given = None if any(isinstance(part, (exp.Column, exp.Query)) for part in parts[0].walk()) else parts[0]
        value = None if given is None else fold(functions.call("cast", scalar(given, Scope(())), type=BIGINT))
        if not isinstance(value, Constant):
            raise Unsupported("RAND of a seed that is no constant", hint="RAND(7), or RAND()")
        seed = value.value if isinstance(value.value, int) else 0
    return seed


def _placeholder(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    assert isinstance(node, exp.Placeholder)
    if setting.placeholder is None:
        raise Unsupported(
            f"a parameter in {setting.place}",
            hint="write parameters in WHERE, joined by AND, as column = ?, column IN (?), column < ? and the like",
        )
    return setting.placeholder(node)


def _subquery(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    raise Unsupported(f"a subquery in {setting.place}", hint="move it into FROM or WHERE")


def _concatenation(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    return call("concat", *(scalar(part, scope, setting) for part in node.expressions))


def _aggregate(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    raise _misplaced(node, setting)


def _collate(node: exp.Expr, scope: Scope, setting: Setting) -> Expression:
    name = node.args["expression"].name
    text = scalar(node.this, scope, setting)
    if text.type.kind not in (Kind.TEXT, Kind.NULL):
        if name.lower() == "binary" or name.lower().endswith("_bin"):
            return text
        text = functions.call("cast", text, type=TEXT)
    collation = None if name.lower() == "binary" else literals.collation_named(name)
    return Call("collate", (text,), replace(TEXT if text.type.members else text.type, collation=collation))


def _misplaced(node: exp.Expr, setting: Setting) -> SqlError:
    return SqlError(f"the aggregate {text_of(node)} cannot stand in {setting.place}")


def _refusal(node: exp.Expr) -> SqlError | Unsupported:
    if isinstance(node, exp.Tuple):
        return SqlError("a row of values can only be compared with a row")
    if isinstance(node, (exp.Star, exp.Column)):
        return SqlError("* is only allowed in the SELECT list and in COUNT(*)")
    construct, hint = _REFUSED.get(type(node), (f'"{text_of(node)[:60]}"', None))
    return Unsupported(construct, hint=hint)


_HANDLERS: dict[type[exp.Expr], Callable[[exp.Expr, Scope, Setting], Expression]] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys((exp.And, exp.Or), _connective),
    **dict.fromkeys((exp.Like, exp.Escape), _like),
    **dict.fromkeys(calls.NODES, _function),
    **dict.fromkeys((exp.Subquery, exp.Exists, exp.Select, exp.Union, exp.Intersect, exp.Except), _subquery),
    **dict.fromkeys((exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.GroupConcat), _aggregate),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.JSONArrayContains: _member_of,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Cast: _cast,
    exp.JSONValue: _json_value,
    exp.Concat: _concatenation,
    exp.Collate: _collate,
    exp.Placeholder: _placeholder,
}
