"""The table that is loaded into, as its server tells of it, with types that check values as the server does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from headrace_client.connection import Connection
from headrace_client.results import Record

from domains.types import SqlType
from headrace.errors import NotFound
from migrations.change import change_of
from migrations.plan import State, one_domain
from migrations.recipe import Entry


@dataclass(frozen=True, slots=True)
class LoadedColumn:
    name: str
    type: SqlType
    nullable: bool
    auto_increment: bool
    optional: bool
    """It may be left out: it can be NULL, has a default, or counts by itself."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    name: str
    columns: tuple[LoadedColumn, ...]

    def column(self, name: str) -> LoadedColumn | None:
        """By name, in any case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "columns": [{**asdict(column), "type": column.type.name} for column in self.columns]}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> LoadedTable:
        types = _types([column["type"] for column in document["columns"]])
        columns = zip(document["columns"], types, strict=True)
        return cls(document["name"], tuple(LoadedColumn(**{**column, "type": type}) for column, type in columns))

    def hint(self, name: str) -> str:
        """What may have been meant, or what there is."""
        names = {column.name.lower(): column.name for column in self.columns}
        near = get_close_matches(name.lower(), names, n=1)
        if near:
            return f'did you mean "{names[near[0]]}"?'
        return f"its columns are {', '.join(column.name for column in self.columns)}"


def read_table(connection: Connection, name: str) -> LoadedTable:
    """:raises NotFound: with the nearest name."""
    tables = {each["name"].lower(): each for each in connection.tables()}
    found = tables.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), tables, n=1)
        raise NotFound(f'no table "{name}"', hint=f'did you mean "{tables[near[0]]["name"]}"?' if near else None)
    types = _types([column["type"] for column in found["columns"]])
    return LoadedTable(found["name"], tuple(map(_column, found["columns"], types)))


def _column(found: Record, type: SqlType) -> LoadedColumn:
    auto = bool(found["auto_increment"])
    optional = found["nullable"] or auto or found["default"] is not None
    return LoadedColumn(found["name"], type, found["nullable"], auto, optional)


def _types(names: Sequence[str]) -> list[SqlType]:
    """The types of these names, as a table that is made of them has them."""
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(names))
    state = change_of(State(), Entry((f"CREATE TABLE t ({columns})",)), one_domain).state
    return [column.type for column in state.catalog.tables["t"].columns]
