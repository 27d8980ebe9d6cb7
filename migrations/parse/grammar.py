"""What of sqlglot's trees this room knows: every class of node, and every argument of it, that some pass reads.

sqlglot's trees are wider than MySQL's grammar, and a pass reads the arguments that it looks for. So a clause that no
pass looks for (TABLESAMPLE, ``* EXCEPT``, LIMIT … WITH TIES) would be ignored, and the answer be wrong without a word.
:func:`refuse_unknown` goes through a tree before anything else does, and refuses by name whatever is set and not listed
here. It holds for views, ad-hoc SELECTs, writes and definitions alike, since all of them come through ``parse``.

*Known* is what a pass consumes, what one refuses itself with a better message, and what the documentation says is
ignored. Whoever makes a pass read something new lists it here; a test shows each entry in use.
"""

from __future__ import annotations

from domains.errors import HeadraceError, SqlError, Unsupported
from migrations.parse.syntax import exp

SCHEMA = "headrace"
"""The database that is there from the beginning. It says nothing before a name."""
VIRTUAL_SCHEMAS = ("information_schema", "performance_schema")
"""The databases whose tables say what there is (``migrations/information/``)."""


def whole_name(schema: str, name: str) -> str:
    """What all beside the grammar calls a table of a database."""
    return name if schema.lower() == SCHEMA else f"{schema}.{name}"


def _same(arguments: str, *classes: type[exp.Expr]) -> dict[type[exp.Expr], frozenset[str]]:
    return dict.fromkeys(classes, frozenset(arguments.split()))


KNOWN: dict[type[exp.Expr], frozenset[str]] = {
    # --- expressions
    **_same("this expression", exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.And, exp.Or, exp.Xor),
    **_same("this expression", exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Is),
    **_same("this expression", exp.RegexpLike, exp.Escape, exp.Collate, exp.Introducer, exp.JSONArrayContains),
    **_same("this expression", exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
    **_same("this expression", exp.BitwiseLeftShift, exp.BitwiseRightShift),
    exp.Div: frozenset(("this", "expression", "safe", "typed")),
    exp.Like: frozenset(("this", "expression", "negate")),
    **_same("this", exp.Not, exp.Neg, exp.BitwiseNot, exp.Paren, exp.Boolean, exp.Placeholder, exp.Var),
    **_same("this", exp.HexString, exp.BitString, exp.National),
    exp.Null: frozenset(),
    exp.Literal: frozenset(("this", "is_string")),
    exp.Identifier: frozenset(("this", "quoted")),
    exp.Column: frozenset(("this", "table", "db")),
    exp.Star: frozenset(),
    exp.Alias: frozenset(("this", "alias")),
    exp.Between: frozenset(("this", "low", "high")),
    exp.In: frozenset(("this", "expressions", "query")),
    **_same("this", exp.Exists, exp.Any, exp.All),
    exp.Case: frozenset(("this", "ifs", "default")),
    exp.If: frozenset(("this", "true", "false")),
    exp.Tuple: frozenset(("expressions",)),
    exp.Cast: frozenset(("this", "to")),
    exp.DataType: frozenset(("this", "expressions", "nested", "kind")),
    exp.DataTypeParam: frozenset(("this",)),
    exp.Interval: frozenset(("this", "unit", "fraction_in_string")),
    # --- calls
    exp.Anonymous: frozenset(("this", "expressions")),
    exp.Chr: frozenset(("expressions", "charset")),
    exp.Coalesce: frozenset(("this", "expressions")),
    exp.Concat: frozenset(("expressions", "safe", "coalesce")),
    exp.Substring: frozenset(("this", "start", "length")),
    exp.StrPosition: frozenset(("this", "substr", "position")),
    exp.Trim: frozenset(("this", "expression", "position")),
    exp.Extract: frozenset(("this", "expression")),
    **_same("", exp.CurrentDate, exp.CurrentUser),
    **_same("this", exp.CurrentTime, exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp),
    exp.Count: frozenset(("this", "expressions", "big_int")),
    **_same("this expressions", exp.Min, exp.Max),
    **_same("this", exp.Sum, exp.Avg, exp.Soundex),
    exp.GroupConcat: frozenset(("this", "separator")),
    exp.Distinct: frozenset(("expressions",)),
    exp.Window: frozenset(("this", "partition_by", "order", "spec", "alias", "over")),
    exp.WindowSpec: frozenset(("kind", "start", "start_side", "end", "end_side")),
    exp.RespectNulls: frozenset(("this",)),
    # --- queries
    exp.Select: frozenset(
        [
            "expressions",
            "from_",
            "joins",
            "where",
            "group",
            "having",
            "order",
            "limit",
            "offset",
            "distinct",
            "with_",
            "hint",
            "operation_modifiers",
            "windows",
        ]
    ),
    **_same("this expression distinct with_ order limit offset", exp.Union, exp.Intersect, exp.Except),
    exp.Subquery: frozenset(("this", "alias", "joins", "with_", "order", "limit", "offset")),
    exp.With: frozenset(("expressions", "recursive")),
    exp.CTE: frozenset(("this", "alias")),
    exp.TableAlias: frozenset(("this", "columns")),
    **_same("this", exp.From, exp.Where, exp.Having),
    exp.Join: frozenset(("this", "on", "using", "side", "kind", "method")),
    exp.Lateral: frozenset(("this", "alias")),
    exp.JSONValue: frozenset(("this", "path", "returning", "on_condition")),
    exp.JSONTable: frozenset(("this", "path", "schema")),
    exp.JSONSchema: frozenset(("expressions",)),
    exp.JSONColumnDef: frozenset(("this", "kind", "path", "exists", "ordinality", "nested_schema", "on_condition")),
    exp.OnCondition: frozenset(("empty", "error")),
    exp.Group: frozenset(("expressions", "rollup", "cube")),
    **_same("", exp.Rollup, exp.Cube),
    exp.Order: frozenset(("this", "expressions")),
    exp.Ordered: frozenset(("this", "desc", "nulls_first")),
    exp.Limit: frozenset(("expression",)),
    exp.Offset: frozenset(("expression",)),
    exp.Hint: frozenset(("expressions",)),
    exp.IndexTableHint: frozenset(("this", "expressions", "target")),
    # --- writes
    exp.Table: frozenset(("this", "alias", "db", "hints", "joins", "partition")),
    exp.Insert: frozenset(
        ["this", "expression", "conflict", "ignore", "alternative", "returning", "partition", "with_"]
    ),
    exp.Values: frozenset(("expressions", "alias")),
    exp.OnConflict: frozenset(("duplicate", "expressions", "action")),
    exp.Update: frozenset(("this", "expressions", "where", "order", "limit", "returning", "with_")),
    exp.Delete: frozenset(("this", "where", "order", "limit", "using", "tables", "returning", "with_")),
    exp.Partition: frozenset(("expressions",)),
    exp.Returning: frozenset(("expressions",)),
    exp.TruncateTable: frozenset(("expressions",)),
    # --- definitions
    exp.Create: frozenset(("this", "kind", "expression", "exists", "replace", "properties", "unique")),
    exp.Schema: frozenset(("this", "expressions")),
    exp.ColumnDef: frozenset(("this", "kind", "constraints", "position", "exists")),
    exp.ColumnPosition: frozenset(("this", "position")),
    exp.ColumnPrefix: frozenset(("this", "expression")),
    exp.ColumnConstraint: frozenset(("this", "kind")),
    exp.NotNullColumnConstraint: frozenset(("allow_null",)),
    **_same("this", exp.DefaultColumnConstraint, exp.CommentColumnConstraint, exp.CharacterSetColumnConstraint),
    **_same("this", exp.CollateColumnConstraint, exp.CheckColumnConstraint, exp.OnUpdateColumnConstraint),
    **_same("", exp.AutoIncrementColumnConstraint, exp.PrimaryKeyColumnConstraint, exp.InvisibleColumnConstraint),
    exp.ComputedColumnConstraint: frozenset(("this", "persisted")),
    exp.UniqueColumnConstraint: frozenset(("this", "index_type", "options")),
    exp.IndexColumnConstraint: frozenset(("this", "expressions", "kind", "index_type", "options")),
    exp.IndexConstraintOption: frozenset(
        ["key_block_size", "using", "parser", "comment", "visible", "engine_attr", "secondary_engine_attr"]
    ),
    exp.PrimaryKey: frozenset(("this", "expressions", "options", "include")),
    exp.ForeignKey: frozenset(("this", "expressions", "reference", "delete", "update", "options")),
    exp.Reference: frozenset(("this", "expressions", "options")),
    exp.Constraint: frozenset(("this", "expressions")),
    exp.Index: frozenset(("this", "table", "params")),
    exp.IndexParameters: frozenset(("columns", "using")),
    exp.Drop: frozenset(("this", "tables", "kind", "exists", "cluster", "temporary", "cascade", "restrict")),
    exp.OnProperty: frozenset(("this",)),
    exp.Alter: frozenset(("this", "kind", "actions", "options")),
    exp.AddConstraint: frozenset(("expressions",)),
    exp.AlterRename: frozenset(("this",)),
    exp.RenameColumn: frozenset(("this", "to", "exists")),
    exp.RenameIndex: frozenset(("this", "to")),
    exp.ModifyColumn: frozenset(("this", "rename_from")),
    exp.AlterColumn: frozenset(("this", "default", "drop", "allow_null", "visible", "dtype", "comment")),
    exp.AlterIndex: frozenset(("this", "visible")),
    exp.DropPrimaryKey: frozenset(("exists",)),
    # --- table and view options, which say nothing here
    exp.Properties: frozenset(("expressions",)),
    **_same("this", exp.EngineProperty, exp.AutoIncrementProperty, exp.RowFormatProperty, exp.SchemaCommentProperty),
    **_same("this", exp.AlgorithmProperty, exp.DefinerProperty, exp.SqlSecurityProperty, exp.LockProperty),
    **_same("this default", exp.CharacterSetProperty, exp.CollateProperty),
    exp.Property: frozenset(("this", "value")),
    exp.TemporaryProperty: frozenset(),
    exp.LikeProperty: frozenset(("this", "expressions")),
    exp.MaterializedProperty: frozenset(("this",)),
    # --- other statements
    exp.Describe: frozenset(("this", "kind", "style", "format", "like")),
    exp.Show: frozenset(("this", "full", "target", "db", "like", "where", "global_")),
    exp.Set: frozenset(("expressions",)),
    exp.SetItem: frozenset(("this", "kind", "global_", "collate", "expressions")),
    exp.Command: frozenset(("this", "expression")),
    exp.Kill: frozenset(("this", "kind")),
    exp.Use: frozenset(("this",)),
    **_same("this", exp.Parameter, exp.SessionParameter),
    exp.SessionParameter: frozenset(("this", "kind")),
    exp.Transaction: frozenset(),
}


_REFUSED: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.Filter: ("FILTER (WHERE …) on an aggregate", "put the condition into a CASE inside the aggregate"),
    exp.MatchAgainst: ("full-text search (MATCH … AGAINST)", "use LIKE"),
    exp.PropertyEQ: ("assignment in an expression (:=)", "use a parameter: ?"),
    exp.Fetch: ("FETCH FIRST", "use LIMIT"),
    exp.GroupingSets: ("GROUPING SETS", "UNION ALL one query a level"),
    exp.TryCast: ("TRY_CAST", "use CAST"),
    exp.Unnest: ("UNNEST", None),
    exp.PartitionByRangeProperty: ("PARTITION BY", "leave it out: SHARD BY says how rows are spread"),
    exp.PartitionByListProperty: ("PARTITION BY", "leave it out: SHARD BY says how rows are spread"),
    exp.PartitionedByProperty: ("PARTITION BY", "leave it out: SHARD BY says how rows are spread"),
    exp.ZeroFillColumnConstraint: ("ZEROFILL", "pad when showing: LPAD(column, 8, '0')"),
    exp.BinaryColumnConstraint: ("the column attribute BINARY", "leave it out: all text is compared by code point"),
    exp.GeneratedAsIdentityColumnConstraint: ("IDENTITY", "use AUTO_INCREMENT"),
    exp.Opclass: ("operator classes of an index", None),
}
"""Node classes that nobody knows, in the words of whoever wrote them."""

_CLAUSES: dict[str, tuple[str, str | None]] = {
    "locks": ("FOR UPDATE in a definition", "leave it out"),
    "into": ("SELECT … INTO", "INSERT INTO table SELECT …"),
    "sample": ("TABLESAMPLE", None),
    "version": ("tables as of a time in FROM", "restore a back-up as of that time"),
    "except_": ("* EXCEPT", "name the columns"),
    "replace": ("* REPLACE", "name the columns"),
    "rename": ("* RENAME", "name the columns"),
    "exclude": ("* EXCLUDE", "name the columns"),
    "limit_options": ("LIMIT with PERCENT or TIES", "LIMIT a number of rows"),
    "symmetric": ("BETWEEN SYMMETRIC", "BETWEEN the lesser AND the greater"),
    "field": ("IN without parentheses", "IN (value, …), or IN (SELECT …)"),
    "on": ("DISTINCT ON", "GROUP BY, or DISTINCT"),
    "kind": ("SELECT AS", None),
    "by_name": ("UNION BY NAME", "give the columns of both in one order"),
    "only": ("ONLY", "leave it out: no table inherits"),
    "pivots": ("PIVOT", "use CASE in aggregates"),
    "laterals": ("LATERAL VIEW", None),
    "overwrite": ("INSERT OVERWRITE", "DELETE the rows first"),
    "catalog": ("names with a catalog", "write database.table"),
    "materialized": ("MATERIALIZED", "leave it out: every view is kept up to date"),
    "option": ("TRUNCATE … CASCADE or RESTRICT", "leave it out"),
    "identity": ("TRUNCATE … IDENTITY", "leave it out: AUTO_INCREMENT goes on"),
    "constraints": ("DROP … CASCADE CONSTRAINTS", "leave it out"),
    "purge": ("DROP … PURGE", "leave it out"),
    "clone": ("CREATE TABLE … CLONE", "write the columns out, then INSERT … SELECT"),
    "expressions": ("LIMIT … BY", "LIMIT a number of rows"),
    "where": ("an index with WHERE", "index all rows: leave it out"),
    "include": ("an index with INCLUDE", "leave it out, or name the columns in the index"),
    "concurrently": ("CONCURRENTLY", "leave it out: a definition does not stop reads and writes"),
}
"""Arguments that nobody knows, by their names."""


def refuse_unknown(tree: exp.Expr) -> list[exp.Expr]:
    """The tables and columns of the tree that are named with a database.

    :raises Unsupported, SqlError: something is set in the tree that no pass knows."""
    pending, named = [tree], list[exp.Expr]()
    while pending:
        node = pending.pop()
        kind = type(node)
        if kind is exp.Literal or kind is exp.Identifier:
            continue
        known = KNOWN.get(kind)
        if known is None:
            raise _unknown_node(node)
        if kind is exp.Join:
            _check_join(node)
        if node.args.get("db") is not None and (kind is exp.Table or kind is exp.Column):
            named.append(node)
        if kind is exp.Parameter and isinstance(node.parent, (exp.TableAlias, exp.Alias)):
            raise SqlError(f'the name "@{node.name}"', hint="a name has no @, unless it is in `backticks`")
        if kind is exp.Table and node.args.get("partition") and isinstance(node.parent, (exp.From, exp.Join)):
            raise Unsupported("PARTITION in FROM", hint="leave it out: no table has partitions")
        for name, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            if name not in known:
                raise _unknown_argument(node, name)
            if isinstance(value, exp.Expr):
                pending.append(value)
            elif type(value) is list:
                pending.extend(each for each in value if isinstance(each, exp.Expr))
    return named


def _check_join(node: exp.Expr) -> None:
    side, kind, method = (str(node.args.get(key) or "").upper() for key in ("side", "kind", "method"))
    if side == "FULL" and kind != "OUTER":
        raise Unsupported(
            "FULL JOIN", hint="FULL OUTER JOIN; to MySQL 8, `t FULL JOIN u` is an inner join of a t that is called FULL"
        )
    if kind not in ("", "INNER", "CROSS", "OUTER", "STRAIGHT_JOIN") or method not in ("", "NATURAL"):
        raise Unsupported(f"{method or kind} JOIN", hint="use IN or NOT IN (SELECT …)")


def _unknown_node(node: exp.Expr) -> HeadraceError:
    construct, hint = _REFUSED.get(type(node), (words(node), None))
    return Unsupported(construct, hint=hint)


def _unknown_argument(node: exp.Expr, name: str) -> HeadraceError:
    if isinstance(node, exp.Limit) and name == "offset":
        return SqlError("LIMIT takes one number here", hint="LIMIT number")
    if isinstance(node, exp.WindowSpec) and name == "exclude":
        return Unsupported("EXCLUDE in a frame")
    known = _CLAUSES.get(name)
    if known is None:
        return Unsupported(f"{words(node)} with {name.strip('_').replace('_', ' ').upper()}")
    return Unsupported(known[0], hint=known[1])


def words(node: exp.Expr) -> str:
    """The name that SQL has for a node: sqlglot's, where a function or a statement stands behind it."""
    if isinstance(node, exp.Func):
        return f"{node.sql_name()}()"
    name = type(node).__name__
    for ending in ("ColumnConstraint", "Property", "Table"):
        name = name.removesuffix(ending) or name
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip().upper()
