"""What one client may see of a deployment: the tables and views that it has any right on, and their keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from domains.language.types import ForeignKey, TableSchema
from migrations.access.rights import Privilege
from migrations.catalog import Catalog, Namespace, ViewDefinition
from migrations.parse.temporary import is_hidden
from migrations.query.view import PlannedView
from migrations.statements.sessions.session_values import NO_SESSION, SessionValues

_PREFIX = re.compile(r"`(?P<name>(?:[^`]|``)+)`\((?P<size>\d+)\)|(?P<bare>\w+)\((?P<length>\d+)\)")


class KeyPart(NamedTuple):
    """One part of a key: a column, the first characters of one, or an expression."""

    column: str | None
    characters: int | None
    expression: str | None
    nullable: bool


class TableKey(NamedTuple):
    name: str
    is_unique: bool
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Visible:
    catalog: Catalog
    planned: Mapping[str, PlannedView]
    """The views' columns, by lower-case name."""
    session: SessionValues = field(default=NO_SESSION)
    may: Callable[[Privilege | None, str], bool] = lambda privilege, on: True
    """Whether who asks has a right (None: any) on a table or view."""
    running: Sequence[tuple[Any, ...]] = ()
    """Rows of PROCESSLIST, for who may see them."""
    own: Collection[str] = ()
    """The session's temporary tables, where they are asked for by name; no list has them."""

    def tables(self) -> Iterator[TableSchema]:
        """By name, as MySQL lists them."""
        for table in sorted(self.catalog.tables.values(), key=lambda table: table.title.lower()):
            is_listed = not is_hidden(table.title) or table.title.lower() in self.own
            if is_listed and not table.filling and self.may(None, table.title):
                yield table

    def namespaces(self) -> Iterator[Namespace]:
        """The databases beside the first that one has a right on, or on something in them."""
        for lower, namespace in self.catalog.namespaces.items():
            if any(
                self.may(None, name) for name in (f"{lower}.*", *(each.title for each in self.catalog.within(lower)))
            ):
                yield namespace

    def placed(self, title: str) -> tuple[str, str]:
        return self.catalog.placed(title)

    def views(self) -> Iterator[ViewDefinition]:
        for view in sorted(self.catalog.views.values(), key=lambda view: view.name.lower()):
            if not view.ad_hoc and self.may(None, view.name):
                yield view

    def foreign_keys(self, table: TableSchema) -> Iterator[tuple[ForeignKey, str]]:
        """By name, as in MySQL, with the name of the table that each refers to. A key to a table that may not be
        seen is not there."""
        for key in sorted(table.foreign_keys, key=lambda key: key.name):
            parent = self.catalog.tables.get(key.parent.lower()) if key.enforced else None
            title = key.parent if parent is None else parent.title
            if self.may(None, title):
                yield key, title

    def key_referred_to(self, key: ForeignKey) -> str | None:
        """The name of the unique key of the parent that a foreign key names."""
        parent = self.catalog.tables.get(key.parent.lower())
        if parent is None:
            return None
        places = {parent.position(name) for name in key.key}
        same = (each.name for each in keys_of(parent) if each.is_unique and set(each.places) == places)
        return next(same, None)


def keys_of(table: TableSchema) -> list[TableKey]:
    """The PRIMARY KEY, the unique keys and the indexes, as SHOW INDEX lists them."""
    found = [TableKey("PRIMARY", True, table.shown_key)] if table.shown_key else []
    unique = list(zip(table.unique_names, table.unique, strict=True))[table.late_primary :]
    found += [TableKey(name, True, places) for name, places in unique]
    return found + [TableKey(n, False, p) for n, p in zip(table.index_names, table.indexes, strict=True)]


def key_part(table: TableSchema, at: int) -> KeyPart:
    column = table.columns[at]
    if not column.hidden or column.generated is None:
        return KeyPart(column.name, None, None, column.nullable)
    prefix = _PREFIX.fullmatch(column.generated.sql)
    if prefix is None:
        return KeyPart(None, None, column.generated.sql, True)
    name = (prefix["name"] or prefix["bare"]).replace("``", "`")
    place = table.position(name)
    return KeyPart(name, int(prefix["size"] or prefix["length"]), None, place is None or table.columns[place].nullable)


def key_mark(table: TableSchema, at: int) -> str:
    """PRI, UNI, MUL or nothing, as DESCRIBE has it: where there is no PRIMARY KEY, the first unique one without NULLs
    is taken for it."""
    keys = keys_of(table)
    unique = [key for key in keys if key.is_unique]
    never_null = (key for key in unique if not any(table.columns[place].nullable for place in key.places))
    primary = table.shown_key or next((key.places for key in never_null), ())
    if at in primary:
        return "PRI"
    if any(key.places == (at,) for key in unique):
        return "UNI"
    return "MUL" if any(key.places[0] == at for key in keys) else ""
