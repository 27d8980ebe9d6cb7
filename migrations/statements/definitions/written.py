"""Tables and views as the statements that make them: what SHOW CREATE answers, and ``headrace schema`` prints.

Made anew from this text a deployment has the same tables and views, in which later ``*`` means what it meant here. What
went is not in it (dropped columns), nor what says nothing here (engines), nor rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import assert_never

from domains.language.collating.collation import BINARY, Collation
from domains.language.durations import text_of_time
from domains.language.types import ForeignKey, Kind, TableColumn, TableSchema, Value
from migrations.catalog import Catalog, Policy, ViewDefinition
from migrations.parse.reading import faithful, parse_select, same_tree
from migrations.parse.temporary import is_hidden
from migrations.parse.writing import quote, quoted_text
from migrations.statements.definitions.foreign_keys import foreign_key_text

_EMPTY = Catalog()


def schema_text(catalog: Catalog) -> str:
    """All definitions, each after what it reads. Views of ad-hoc SELECTs come by themselves, and are none. Foreign keys
    that name a table which comes later, as ALTER TABLE may have made them, are added when all tables are there."""
    views = readers_last([view for view in catalog.views.values() if not view.ad_hoc])
    texts = [
        f"CREATE DATABASE {quote(each.name)}" + (f" COLLATE {each.collation}" if each.collation else "")
        for each in catalog.namespaces.values()
    ]
    late: list[str] = []
    known: set[str] = set()
    for table in catalog.tables.values():
        if is_hidden(table.title):
            continue
        known.add(table.name.lower())
        first = tuple(key for key in table.foreign_keys if not key.enforced or key.parent.lower() in known)
        texts.append(table_text(replace(table, foreign_keys=first), catalog))
        late += [
            f"ALTER TABLE {quote(table.title)} ADD {foreign_key_text(table, key, _parent(key, catalog))}"
            for key in table.foreign_keys
            if key not in first
        ]
    policies = [policy_text(catalog.tables[table], each) for table, those in catalog.policies.items() for each in those]
    return "\n\n".join(f"{text};" for text in (*texts, *late, *policies, *map(view_text, views)))


def policy_text(schema: TableSchema, policy: Policy) -> str:
    parts = [f"CREATE POLICY {quote(policy.name)} ON {quote(schema.title)} FOR {policy.command}"]
    parts += [f"USING ({policy.using})"] if policy.using else []
    parts += [f"WITH CHECK ({policy.check})"] if policy.check else []
    return " ".join(parts)


def policy_rows(catalog: Catalog, title: str | None) -> Iterator[tuple[str, ...]]:
    """What SHOW POLICIES shows, of one table or of all."""
    for name, policies in catalog.policies.items():
        table = catalog.tables[name]
        if title in (None, table.title):
            yield from ((each.name, table.title, each.command, each.using, each.check) for each in policies)


def definition_text(relation: TableSchema | ViewDefinition, catalog: Catalog) -> str:
    return table_text(relation, catalog) if isinstance(relation, TableSchema) else view_text(relation)


def readers_last(views: Iterable[ViewDefinition]) -> Iterator[ViewDefinition]:
    """In the order of their making, but for those that read one which was replaced since."""
    left = {view.name.lower(): view for view in views}
    while left:
        ready = next(view for view in left.values() if not view.reads & (left.keys() - {view.name.lower()}))
        yield left.pop(ready.name.lower())


def view_text(view: ViewDefinition) -> str:
    word = "CREATE EXT VIEW" if view.external else "CREATE VIEW"
    columns = f" ({_names(view.columns)})" if view.columns else ""
    # The text as it was written, unless it says ``*`` or NATURAL: its tables may have other columns by now.
    query = view.sql if same_tree(parse_select(view.sql), view.relation) else faithful(view.relation)
    return f"{word} {quote(view.name)}{columns} AS {query}"


def table_text(schema: TableSchema, catalog: Catalog = _EMPTY) -> str:
    """``catalog`` knows what the tables are called that its foreign keys name."""
    lines = [column_text(schema.columns[at], schema.collation) for at in schema.live()]

    def key(word: str, places: Iterable[int]) -> None:
        lines.append(f"{word} ({', '.join(_part(schema.columns[at]) for at in places)})")

    if schema.shown_key:
        key("PRIMARY KEY", schema.shown_key)
    for name, places in list(zip(schema.unique_names, schema.unique, strict=True))[schema.late_primary :]:
        key(f"UNIQUE KEY {quote(name)}", places)
    for name, places in zip(schema.index_names, schema.indexes, strict=True):
        key(f"KEY {quote(name)}", places)
    lines += [f"CONSTRAINT {quote(check.name)} CHECK ({check.condition.sql})" for check in schema.checks]
    lines += [foreign_key_text(schema, key, _parent(key, catalog)) for key in schema.foreign_keys]
    sharding = "" if schema.shard_by is None else f" SHARD BY ({quote(schema.columns[schema.shard_by].name)})"
    sharding += f" SHARDS {schema.shards}" if sharding and schema.shards else ""
    # Always, since the default of the server that reads the text may be another one.
    collation = f" COLLATE {schema.collation or BINARY}"
    collation += f" COMMENT={quoted_text(schema.comment)}" if schema.comment else ""
    return f"CREATE TABLE {quote(schema.title)} (\n  " + ",\n  ".join(lines) + f"\n){collation}{sharding}"


def _parent(foreign: ForeignKey, catalog: Catalog) -> str:
    """What SQL calls the table that a key refers to."""
    parent = catalog.tables.get(foreign.parent.lower()) if foreign.enforced else None
    return quote(foreign.parent if parent is None else parent.title)


def _part(column: TableColumn) -> str:
    return column.generated.sql if column.hidden and column.generated is not None else quote(column.name)


def column_text(column: TableColumn, default: Collation | None) -> str:
    """``default``: the table's collation."""
    words = [quote(column.name), column.type.name]
    if column.type.kind is Kind.TEXT and (column.type.collation is not None or default is not None):
        words.append(f"COLLATE {column.type.collation or BINARY}")
    if column.generated is not None:
        words.append(f"GENERATED ALWAYS AS ({column.generated.sql}) {'VIRTUAL' if column.virtual else 'STORED'}")
    if not column.nullable:
        words.append("NOT NULL")
    if column.auto_increment:
        words.append("AUTO_INCREMENT")
    elif column.default_now:
        words.append("DEFAULT CURRENT_TIMESTAMP")
    elif column.has_default:
        words.append(f"DEFAULT {_literal(column.default)}")
    if column.on_update_now:
        words.append("ON UPDATE CURRENT_TIMESTAMP")
    if column.comment:
        words.append(f"COMMENT {quoted_text(column.comment)}")
    return " ".join(words)


def _literal(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return quoted_text(value)
        case bytes():
            return f"x'{value.hex()}'"
        case Decimal():
            return format(value, "f")
        case timedelta():
            return quoted_text(text_of_time(value))
        case int() | float():
            return repr(value)
        case _:
            assert_never(value)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(quote, names))
