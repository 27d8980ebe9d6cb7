"""A row's values as the table takes them, by the rules by which the server takes them; else why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from domains.coercion import coercer
from domains.types import Kind
from headrace.errors import TypeViolation
from headrace.loading.chunks import Checked, Ready, Reject, SourceRow
from headrace.loading.options import Options
from headrace.loading.table import LoadedColumn, LoadedTable

BOOLEANS = {"true": 1, "false": 0}
"""What a BOOL is in text, in any case, beside 1 and 0."""

Check = Callable[[Any], Any]


class Checker:
    """Compiled once for a table. Text for a BLOB is base64, as in the server's JSON."""

    def __init__(self, table: LoadedTable, options: Options) -> None:
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

    def chunk(self, rows: Iterable[SourceRow]) -> Checked:
        """Of a chunk, the rows that fit and those that do not."""
        checked = Checked([], [])
        for row in rows:
            if row.problem is not None:
                checked.rejects.append(Reject(row, row.problem))
                continue
            try:
                checked.ready.append(Ready(row, self.check(row.values)))
            except TypeViolation as error:
                checked.rejects.append(Reject(row, error.message))
        return checked


def _check(column: LoadedColumn, options: Options) -> Check:
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
