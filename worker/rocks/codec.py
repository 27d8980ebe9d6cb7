"""Rows as bytes.

A row is ``marshal`` of its tuple: 0.06 µs for two integers. Version 2 of the format is pinned: it has no references and
so is a function of the content alone (what version 3 and later write depends on who else holds an object), which lets a
bag find a row by its bytes; and it takes half the time of version 4. What marshal cannot hold is something else in it:
a Decimal its text, a TIME its microseconds.
The bytes come from a checksummed store of our own, so that marshal's trust in its input is no risk.

Rows may be shorter than the table is wide: a column that was appended later is left out while it (and all after it)
has the value that ALTER TABLE gave to the rows of that time, also where that is computed of the row
(``domains/store/widening.py``). So old and new rows of equal content have equal bytes.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from domains.language.durations import micros_of, of_micros
from domains.language.types import Delta, Kind, Row, TableSchema, Value
from domains.store.widening import Widening

MARSHAL_VERSION = 2

RowEncoder = Callable[[Row], bytes]
RowDecoder = Callable[[bytes], Row]


class RowCodec:
    """Encodes the rows of one table; made anew when the table is altered.

    ``pads`` are the values of the appended columns in rows that were stored before them, NULL where they are computed.
    """

    def __init__(self, schema: TableSchema, pads: tuple[Value, ...]) -> None:
        self.width = len(schema.columns)
        self._pads = pads
        self._narrow = self.width - len(pads)
        self._widen = Widening(schema, self._narrow, pads)
        self._pad_of = self._widen.value if self._widen.computed else self._constant_pad
        kinds = [column.type.kind for column in schema.columns]
        self._replaced = {at: kind for at, kind in enumerate(kinds) if kind in _STORED}
        self._texts: Callable[[Row], Row] = self._texts_of_any
        self._values: Callable[[Row], Row] = self._values_of_any
        if not pads:  # All rows are whole: 0.28 µs for four DECIMALs of sixteen columns, where a loop takes 0.42.
            self._texts = self._display(_STORED)
            self._values = self._display(_RESTORED)
        self.encode: RowEncoder = self._encode_any if pads or self._replaced else _encode_plain
        self.decode: RowDecoder = self._decode_any if pads or self._replaced else marshal.loads

    def _display(self, of_kind: dict[Kind, str]) -> Callable[[Row], Row]:
        """A row with each DECIMAL and TIME as that expression has it. ValueError for one of another width."""
        names = [f"v{at}" for at in range(self.width)]
        shown = [
            of_kind[self._replaced[at]].format(name) if at in self._replaced else name for at, name in enumerate(names)
        ]
        given: dict[str, Any] = {"nil": _nil, "decimal": Decimal, "micros_of": micros_of, "of_micros": of_micros}
        exec(f"def display(row):\n    {', '.join(names)}, = row\n    return ({', '.join(shown)},)", given)
        display: Callable[[Row], Row] = given["display"]
        return display

    def encode_many(self, rows: Sequence[Row]) -> list[bytes]:
        """``encode`` of each row: 0.1 µs where it is marshal alone."""
        if self._pads or self._replaced:
            return [self._encode_any(row) for row in rows]
        dumps = marshal.dumps
        return [dumps(row, MARSHAL_VERSION) for row in rows]  # type: ignore[arg-type]  # nothing else in it

    def encode_log(self, deltas: Sequence[Delta]) -> bytes:
        if self._replaced:
            deltas = [(self._texts(row), weight) for row, weight in deltas]
        return marshal.dumps(list(deltas), MARSHAL_VERSION)

    def decode_log(self, data: bytes) -> list[Delta]:
        deltas: list[Delta] = marshal.loads(data)
        if self._pads or self._replaced:
            return [(self._values(row), weight) for row, weight in deltas]
        return deltas

    def _encode_any(self, row: Row) -> bytes:
        width, narrow, pad_of = self.width, self._narrow, self._pad_of
        assert len(row) == width, f"a row of {len(row)} values for {width} columns"
        while width > narrow and row[width - 1] == pad_of(row, width - 1):
            width -= 1
        return _encode_plain(self._texts(row[:width]))

    def _constant_pad(self, _row: Row, at: int) -> Value:
        return self._pads[at - self._narrow]

    def _decode_any(self, data: bytes) -> Row:
        return self._values(marshal.loads(data))

    def _texts_of_any(self, row: Row) -> Row:
        values = list(row)
        for at in self._replaced:
            if at < len(values) and (value := values[at]) is not None:
                if isinstance(value, timedelta):
                    values[at] = micros_of(value)
                    continue
                assert isinstance(value, Decimal)
                values[at] = str(value) if value else _nil(value)
        return tuple(values)

    def _values_of_any(self, row: Row) -> Row:
        values = list(row)
        for at in self._replaced:
            if at < len(values) and (value := values[at]) is not None:
                values[at] = of_micros(value) if isinstance(value, int) else Decimal(str(value))
        return self._widen(tuple(values))


_STORED = {Kind.DECIMAL: "str({0}) if {0} else nil({0})", Kind.TIME: "None if {0} is None else micros_of({0})"}
_RESTORED = {
    Kind.DECIMAL: "None if {0} is None else decimal({0})",
    Kind.TIME: "None if {0} is None else of_micros({0})",
}
"""The kinds that marshal cannot hold: what stands for a value, and the value out of it."""


def _encode_plain(row: Row) -> bytes:
    return marshal.dumps(row, MARSHAL_VERSION)  # type: ignore[arg-type]  # nothing else in it


def _nil(value: Decimal | None) -> str | None:
    """The text of zero, which has no sign, and what stands for NULL."""
    return None if value is None else str(value.copy_abs())
