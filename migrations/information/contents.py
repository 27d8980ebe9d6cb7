"""The rows of each table of ``information_schema``, made for one client when it asks.

What is not kept is NULL (when a table was made, how many rows it has): no number is made up. What there is none of,
such as triggers, has no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from domains.language.collating.collation import BINARY, Collation
from domains.language.types import Row, TableColumn, TableSchema
from migrations.access.rights import Privilege
from migrations.information.column_types import type_words
from migrations.information.definitions import virtual_tables
from migrations.information.layout import default_text, expression_text
from migrations.information.visible import Visible, key_mark, key_part, keys_of
from migrations.parse.grammar import SCHEMA

CATALOG, ENGINE, CHARSET = "def", "InnoDB", "utf8mb4"
DEFINER = "root@%"
"""Who made a view is not kept."""


def rows_of(table: str, seen: Visible) -> list[Row]:
    """``table``: in lower case."""
    made = _ROWS.get(table)
    return [] if made is None else list(made(seen))


def _virtual() -> Iterator[tuple[str, TableSchema]]:
    for schema, tables in virtual_tables().items():
        for table in tables.values():
            yield schema, table


def _tables(seen: Visible) -> Iterator[Row]:
    for table in seen.tables():
        collation = str(table.collation or BINARY)
        placed, stored = seen.placed(table.title), (ENGINE, 10, "Dynamic")
        yield _table(*placed, "BASE TABLE", stored, collation=collation, comment=table.comment)
    for view in seen.views():
        made = view.created or None
        yield _table(*seen.placed(view.name), "VIEW", (None, None, None), made=made, options=None, comment="VIEW")
    for schema, table in _virtual():
        yield _table(schema, table.name, "SYSTEM VIEW", (None, 10, None))


def _table(
    schema: str,
    name: str,
    kind: str,
    stored: Row,
    *,
    made: str | None = None,
    collation: str | None = None,
    options: str | None = "",
    comment: str = "",
) -> Row:
    sizes = (None,) * 7
    return (CATALOG, schema, name, kind, *stored, *sizes, made, None, None, collation, None, options, comment)


def _columns(seen: Visible) -> Iterator[Row]:
    for table in seen.tables():
        yield from _of_table(*seen.placed(table.title), table, _privileges(seen, table.title))
    for view in seen.views():
        rights = _privileges(seen, view.name)
        for number, column in enumerate(seen.planned[view.name.lower()].columns, 1):
            data_type, *words = type_words(column.type)
            place = (CATALOG, *seen.placed(view.name), column.name, number, None, "YES")
            yield (*place, data_type, *words, "", "", rights, "", "", None)
    for schema, table in _virtual():
        yield from _of_table(schema, table.name, table, "select")


def _of_table(schema: str, name: str, table: TableSchema, rights: str) -> Iterator[Row]:
    for number, at in enumerate(table.live(), 1):
        column = table.columns[at]
        place = (CATALOG, schema, name, column.name, number, default_text(column))
        words = ("YES" if column.nullable else "NO", *type_words(column.type), key_mark(table, at), extra(column))
        generated = "" if column.generated is None else expression_text(column.generated.sql)
        yield (*place, *words, rights, column.comment, generated, None)


def extra(column: TableColumn) -> str:
    if column.generated is not None:
        return "VIRTUAL GENERATED" if column.virtual else "STORED GENERATED"
    if column.auto_increment:
        return "auto_increment"
    words = ["DEFAULT_GENERATED"] * column.default_now
    return " ".join(words + ["on update CURRENT_TIMESTAMP(6)"] * column.on_update_now)


_RIGHTS = (Privilege.SELECT, Privilege.INSERT, Privilege.UPDATE, Privilege.REFERENCES)


def _privileges(seen: Visible, name: str) -> str:
    return ",".join(each.value.lower() for each in _RIGHTS if seen.may(each, name))


def _statistics(seen: Visible) -> Iterator[Row]:
    for table in seen.tables():
        schema, name = seen.placed(table.title)
        for key in keys_of(table):
            for number, at in enumerate(key.places, 1):
                part = key_part(table, at)
                place = (CATALOG, schema, name, int(not key.is_unique), schema, key.name, number, part.column)
                nullable = "YES" if part.nullable else ""
                expression = None if part.expression is None else expression_text(part.expression)
                yield (*place, "A", None, part.characters, None, nullable, "BTREE", "", "", "YES", expression)


def _key_columns(seen: Visible) -> Iterator[Row]:
    for table in seen.tables():
        schema, name = seen.placed(table.title)
        own = (CATALOG, schema, name)
        for key in keys_of(table):
            for number, at in enumerate(key.places, 1):
                if key.is_unique:
                    yield (CATALOG, schema, key.name, *own, key_part(table, at).column, number, None, None, None, None)
        for foreign, parent in seen.foreign_keys(table):
            for number, (at, theirs) in enumerate(zip(foreign.columns, foreign.key, strict=True), 1):
                column = table.columns[at].name
                yield (CATALOG, schema, foreign.name, *own, column, number, number, *seen.placed(parent), theirs)


def _constraints(seen: Visible) -> Iterator[Row]:
    for table in seen.tables():
        schema, title = seen.placed(table.title)
        unique = [key.name for key in keys_of(table) if key.is_unique]
        kinds = [(name, "PRIMARY KEY" if name == "PRIMARY" else "UNIQUE", "YES") for name in unique]
        kinds += [(key.name, "FOREIGN KEY", "YES" if key.enforced else "NO") for key, _ in seen.foreign_keys(table)]
        kinds += [(check.name, "CHECK", "YES") for check in table.checks]
        for name, kind, enforced in kinds:
            yield (CATALOG, schema, name, schema, title, kind, enforced)


def _references(seen: Visible) -> Iterator[Row]:
    for table in seen.tables():
        schema, name = seen.placed(table.title)
        for key, parent in seen.foreign_keys(table):
            theirs, title = seen.placed(parent)
            named = (CATALOG, schema, key.name, CATALOG, theirs, seen.key_referred_to(key), "NONE")
            yield (*named, key.on_update.value, key.on_delete.value, name, title)


def _checks(seen: Visible) -> Iterator[Row]:
    for table in seen.tables():
        for check in table.checks:
            yield (CATALOG, seen.placed(table.title)[0], check.name, expression_text(check.condition.sql))


def _views(seen: Visible) -> Iterator[Row]:
    for view in seen.views():
        text = view.sql if seen.may(Privilege.SHOW_VIEW, view.name) else ""
        yield (CATALOG, *seen.placed(view.name), text, "NONE", "NO", DEFINER, "DEFINER", CHARSET, BINARY)


def _schemata(seen: Visible) -> Iterator[Row]:
    collations = dict.fromkeys(virtual_tables(), str(Collation.GENERAL_CI)) | {SCHEMA: seen.catalog.collation or BINARY}
    collations |= {each.name: each.collation or collations[SCHEMA] for each in seen.namespaces()}
    for schema in sorted(collations):
        yield (CATALOG, schema, CHARSET, collations[schema], None, "NO")


def _engines(seen: Visible) -> Iterable[Row]:
    told = "Supports transactions, row-level locking, and foreign keys"
    return [(ENGINE, "DEFAULT", told, "YES", "NO", "YES")]


_COLLATIONS = (
    ("binary", "binary", 63, 1, "NO PAD"),
    (str(Collation.UCA_0900_AI_CI), CHARSET, 255, 0, "NO PAD"),
    (BINARY, CHARSET, 46, 1, "NO PAD"),
    (str(Collation.GENERAL_CI), CHARSET, 45, 1, "PAD SPACE"),
)
"""With MySQL's numbers."""


def _charsets(seen: Visible) -> Iterable[Row]:
    utf8 = (CHARSET, str(seen.catalog.collation or BINARY), "UTF-8 Unicode", 4)
    return [("binary", "binary", "Binary pseudo charset", 1), utf8]


def _collations(seen: Visible) -> Iterator[Row]:
    default = {"binary", str(seen.catalog.collation or BINARY)}
    for name, charset, number, length, padding in _COLLATIONS:
        yield (name, charset, number, "Yes" if name in default else "", "Yes", length, padding)


def _processes(seen: Visible) -> Iterator[Row]:
    for number, user, host, schema, command, seconds, *rest in seen.running:
        yield (number or 0, user or "", host or "", schema, command, seconds or 0, *rest)


_ROWS: dict[str, Callable[[Visible], Iterable[Row]]] = {
    "tables": _tables,
    "columns": _columns,
    "statistics": _statistics,
    "key_column_usage": _key_columns,
    "table_constraints": _constraints,
    "referential_constraints": _references,
    "check_constraints": _checks,
    "views": _views,
    "schemata": _schemata,
    "engines": _engines,
    "character_sets": _charsets,
    "collations": _collations,
    "collation_character_set_applicability": lambda seen: [(each[0], each[1]) for each in _COLLATIONS],
    "processlist": _processes,
    "session_variables": lambda seen: seen.session.all_variables(),
    "global_variables": lambda seen: seen.session.all_variables(of_all=True),
    "session_status": lambda seen: sorted(seen.session.status.items()),
    "global_status": lambda seen: sorted(seen.session.status.items()),
}
