"""Tables and views as MySQL 8 writes them in SHOW CREATE, to the byte: clients take these texts apart line by line.

The text makes the same table here. What MySQL has no words for stands in ``/*H! … */``, a comment to all but us: it
says by which column a table is sharded, and that a view is EXT.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from domains.language.collating.collation import BINARY, Collation
from domains.language.durations import text_of_time
from domains.language.functions.conversion import text_of as shown
from domains.language.types import Kind, TableColumn, TableSchema
from migrations.catalog import Catalog, ViewDefinition
from migrations.information.column_types import FRACTION_DIGITS, type_words
from migrations.information.visible import Visible, key_part, keys_of
from migrations.parse.namespaces import tables_read, without_database
from migrations.parse.reading import exp, parse_select, quote, same_tree, text_of
from migrations.parse.temporary import is_hidden
from migrations.parse.writing import quoted_text
from migrations.statements.definitions.foreign_keys import foreign_key_text

_WITHOUT_DEFAULT = ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob")
"""Types behind which MySQL does not write DEFAULT NULL."""
_NOW = f"CURRENT_TIMESTAMP({FRACTION_DIGITS})"


def default_text(column: TableColumn) -> str | None:
    """COLUMN_DEFAULT."""
    if column.default_now:
        return _NOW
    value = column.default if column.has_default else None
    if isinstance(value, bytes):
        return f"0x{value.hex().upper()}"
    if isinstance(value, timedelta):
        return text_of_time(value)
    return None if value is None else str(shown(value))


def table_layout(table: TableSchema, seen: Visible) -> str:
    lines = [*_columns(table), *_keys(table)]
    schema, name = seen.placed(table.title)
    for key, parent in seen.foreign_keys(table):
        theirs, title = seen.placed(parent)
        before = "" if theirs == schema else f"{quote(theirs)}."
        lines.append(foreign_key_text(table, key, before + quote(title)))
    lines += [f"CONSTRAINT {quote(each.name)} CHECK ({expression_text(each.condition.sql)})" for each in table.checks]
    sharding = "" if table.shard_by is None else f" /*H! SHARD BY ({quote(table.columns[table.shard_by].name)})"
    sharding += "" if not sharding else f" SHARDS {table.shards} */" if table.shards else " */"
    comment = f" COMMENT={_comment(table.comment)}" if table.comment else ""
    options = f"ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={table.collation or BINARY}{comment}{sharding}"
    temporary = "TEMPORARY " if is_hidden(table.title) else ""
    return f"CREATE {temporary}TABLE {quote(name)} (\n  " + ",\n  ".join(lines) + f"\n) {options}"


def _columns(table: TableSchema) -> Iterator[str]:
    for at in table.live():
        column = table.columns[at]
        words = [quote(column.name), type_words(column.type).column_type]
        if column.type.kind is Kind.TEXT:
            collation = str(column.type.collation or BINARY)
            differs = column.type.collation != table.collation
            words += ["CHARACTER SET utf8mb4"] if differs else []
            words += [f"COLLATE {collation}"] if differs or collation != Collation.UCA_0900_AI_CI else []
        if column.generated is not None:
            kind = "VIRTUAL" if column.virtual else "STORED"
            words.append(f"GENERATED ALWAYS AS ({expression_text(column.generated.sql)}) {kind}")
        yield " ".join([*words, *_default(column)])


def _default(column: TableColumn) -> Iterator[str]:
    if not column.nullable:
        yield "NOT NULL"
    elif column.type.name == "TIMESTAMP":
        yield "NULL"
    if column.generated is None and not column.auto_increment:
        value = default_text(column)
        if column.default_now:
            yield f"DEFAULT {_NOW}"
        elif isinstance(column.default, bytes) and column.has_default:
            yield f"DEFAULT x'{column.default.hex()}'"
        elif value is not None:
            yield f"DEFAULT {quoted_text(value)}"
        elif column.nullable and type_words(column.type).data_type not in _WITHOUT_DEFAULT:
            yield "DEFAULT NULL"
    if column.on_update_now:
        yield f"ON UPDATE {_NOW}"
    if column.auto_increment:
        yield "AUTO_INCREMENT"
    if column.comment:
        yield f"COMMENT {_comment(column.comment)}"


def _comment(text: str) -> str:
    """On one line, as clients read these."""
    return quoted_text(text).replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")


def _keys(table: TableSchema) -> Iterator[str]:
    for key in keys_of(table):
        parts = ",".join(_part(table, at) for at in key.places)
        if key.name == "PRIMARY" and key.is_unique:
            yield f"PRIMARY KEY ({parts})"
        else:
            yield f"{'UNIQUE ' if key.is_unique else ''}KEY {quote(key.name)} ({parts})"


def _part(table: TableSchema, at: int) -> str:
    part = key_part(table, at)
    if part.column is None:
        return f"({expression_text(part.expression or '')})"
    return quote(part.column) + ("" if part.characters is None else f"({part.characters})")


def view_layout(view: ViewDefinition, catalog: Catalog) -> str:
    external = "/*H! EXT */ " if view.external else ""
    columns = f" ({','.join(map(quote, view.columns))})" if view.columns else ""
    schema, name = catalog.placed(view.name)
    head = "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER"
    return f"{head} {external}VIEW {quote(name)}{columns} AS {_query_in(view, schema, catalog)}"


def _query_in(view: ViewDefinition, schema: str, catalog: Catalog) -> str:
    """The text as it was written, unless it says ``*`` or NATURAL: its tables may have other columns by now. Tables of
    the view's own database have no other before them, as in MySQL: so a dump can be loaded into another one."""
    written = parse_select(view.sql)
    if same_tree(written, view.relation):
        return without_database(view.sql, written, schema)
    tree = view.relation.copy()
    for table in tables_read(tree):
        theirs, name = catalog.placed(table.name)
        if name != table.name:
            table.set("this", exp.to_identifier(name, quoted=True))
            table.set("db", None if theirs == schema else exp.to_identifier(theirs, quoted=True))
            table.set("alias", None if table.alias == name else table.args.get("alias"))
    return text_of(tree)


# Expressions as MySQL writes them down: names in backquotes, functions in lower case, each operator in parentheses.

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "DIV",
    exp.Mod: "%",
    exp.And: "and",
    exp.Or: "or",
    exp.Xor: "xor",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}


def expression_text(sql: str) -> str:
    return _written(parse_select(f"SELECT {sql}").expressions[0])


def _written(node: exp.Expr) -> str:
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return f"({_written(node.this)} {operator} {_written(node.args['expression'])})"
    match node:
        case exp.Paren():
            return _written(node.this)
        case exp.Column() if not node.args.get("table"):
            return quote(node.name)
        case exp.Not() if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            return f"({_written(node.this.this)} is not null)"
        case exp.Not():
            return f"(not({_written(node.this)}))"
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"({_written(node.this)} is null)"
        case exp.In() if node.expressions:
            return f"({_written(node.this)} in ({_listed(node.expressions)}))"
        case exp.Between():
            low, high = _written(node.args["low"]), _written(node.args["high"])
            return f"({_written(node.this)} between {low} and {high})"
        case exp.Like():
            word = "not like" if node.args.get("negate") else "like"
            return f"({_written(node.this)} {word} {_written(node.expression)})"
        case exp.Anonymous() if isinstance(node.this, str):
            return f"{node.this.lower()}({_listed(node.expressions)})"
        case exp.Coalesce():
            return f"coalesce({_listed([node.this, *node.expressions])})"
        case other:
            return text_of(other)


def _listed(parts: list[exp.Expr]) -> str:
    return ",".join(map(_written, parts))
