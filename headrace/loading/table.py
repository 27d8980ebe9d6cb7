"""The table that is loaded into, as its server tells of it, with types that check values as the server does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from headrace_client.connection import Connection
from headrace_client.results import Record

from domains.language.coercion import coercer
from domains.language.types import Kind, SqlType
from headrace.errors import NotFound, TypeViolation
from headrace.loading.chunks import CheckedRows, FileOptions, LoadError, Ready, Reject, SourceRow
from migrations.change import change_of
from migrations.flow.plan import State, one_domain
from migrations.recipe import RecipeEntry


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
        """The column of this name, in any case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "columns": [{**asdict(column), "type": column.type.name} for column in self.columns]}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> LoadedTable:
        types = _types([column["type"] for column in document["columns"]])
        columns = zip(document["columns"], types, strict=True)
        return cls(document["name"], tuple(LoadedColumn(**{**column, "type": type}) for column, type in columns))

    def hint(self, name: str) -> str:
        """The nearest names, or all there are."""
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
    state = change_of(State(), RecipeEntry((f"CREATE TABLE t ({columns})",)), one_domain).state
    return [column.type for column in state.catalog.tables["t"].columns]


# Which column of a file is which of the table: by name, in any case, or as ``--map`` says.


class Columns:
    """The columns of one table under one mapping."""

    def __init__(self, table: LoadedTable, mapping: Mapping[str, str]) -> None:
        self._table = table
        self._mapping = {name.lower(): to for name, to in mapping.items()}
        self._known: dict[str, str | None] = {}
        for name, to in mapping.items():
            if to and table.column(to) is None:
                raise LoadError(
                    f'"{name}" is to be column "{to}", which table "{table.name}" has not', hint=table.hint(to)
                )

    def of(self, name: str) -> str | None:
        """The table's column for a file's; None where it is left out.

        :raises LoadError: the table has none.
        """
        if name not in self._known:
            to = self._mapping.get(name.lower(), name)
            column = self._table.column(to) if to else None
            if to and column is None:
                hint = f"{self._table.hint(name)}; --map {name}=COLUMN maps it, --map {name}= leaves it out"
                raise LoadError(f'table "{self._table.name}" has no column "{name}"', hint=hint)
            self._known[name] = None if column is None else column.name
        return self._known[name]

    def all_of(self, names: Sequence[str], file: str) -> list[str | None]:
        """The table's columns for all of a file's, in its order.

        :raises LoadError: it has one that the table has not, one twice, or lacks one that cannot be left out.
        """
        try:
            found = [self.of(name) for name in names]
        except LoadError as error:
            raise LoadError(f'file "{file}": {error.message}', hint=error.hint) from None
        taken = [name for name in found if name is not None]
        for name in taken:
            if taken.count(name) > 1:
                raise LoadError(f'file "{file}" has column "{name}" twice', hint="leave one of them out by --map")
        missing = self.missing(taken)
        if missing:
            hint = f"it is NOT NULL and has no default; the file's columns are {', '.join(names)}"
            raise LoadError(f'file "{file}" lacks column "{missing[0]}" of table "{self._table.name}"', hint=hint)
        if not taken:
            raise LoadError(f'file "{file}" has no column of table "{self._table.name}"', hint=self._table.hint(""))
        return found

    def missing(self, given: Sequence[str]) -> list[str]:
        """Columns that cannot be left out, and are."""
        return [column.name for column in self._table.columns if not column.optional and column.name not in given]


# A row's values as the table takes them, by the rules by which the server takes them; else why not.

BOOLEANS = {"true": 1, "false": 0}
"""Texts of a BOOL, in any case, beside 1 and 0."""

Check = Callable[[Any], Any]


class Checker:
    """Compiled once for a table. Text for a BLOB is base64, as in the server's JSON."""

    def __init__(self, table: LoadedTable, options: FileOptions) -> None:
        self._checks = {column.name: _check(column, options) for column in table.columns}
        self._required = [column.name for column in table.columns if not column.optional]

    def check(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row by the table's columns, with canonical values.

        :raises TypeViolation: a value does not fit, is NULL where it must not be, or is not there.
        """
        checks = self._checks
        checked = {name: checks[name](value) for name, value in row.items()}
        for name in self._required:
            if name not in checked:
                raise TypeViolation(f'column "{name}" is not there, and has no default')
        return checked

    def chunk(self, rows: Iterable[SourceRow]) -> CheckedRows:
        """A chunk's rows that fit, and those that do not."""
        checked = CheckedRows([], [])
        for row in rows:
            if row.problem is not None:
                checked.rejects.append(Reject(row, row.problem))
                continue
            try:
                checked.ready.append(Ready(row, self.check(row.values)))
            except TypeViolation as error:
                checked.rejects.append(Reject(row, error.message))
        return checked


def _check(column: LoadedColumn, options: FileOptions) -> Check:
    convert: Check = coercer(column.type, column=column.name, from_json=True)
    if column.type.kind is Kind.DATE and options.date_format:
        convert = _in_format(convert, column.name, options.date_format)
    if column.type.kind is Kind.DATETIME and options.datetime_format:
        convert = _in_format(convert, column.name, options.datetime_format)
    if column.type.name == "BOOL":
        convert = _boolean(convert)
    return convert if column.nullable or column.auto_increment else _not_null(convert, column.name)


def _not_null(convert: Check, name: str) -> Check:
    def check(value: Any) -> Any:
        if value is None:
            raise TypeViolation(f'column "{name}" must not be NULL')
        return convert(value)

    return check


def _in_format(convert: Check, name: str, form: str) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, str):
            return convert(value)
        try:
            return convert(datetime.strptime(value, form))
        except ValueError:
            raise TypeViolation(f'{value!r} of column "{name}" is not written as {form}') from None

    return check


def _boolean(convert: Check) -> Check:
    return lambda value: convert(BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value)
