"""Rows as bytes.

A row is ``marshal`` of its tuple: 0.06 µs for two integers. Version 2 of the format is pinned: it has no references and
so is a function of the content alone (what version 3 and later write depends on who else holds an object), which lets a
bag find a row by its bytes; and it takes half the time of version 4. What marshal cannot hold, Decimal, is its text.
The bytes come from a checksummed store of our own, so that marshal's trust in its input is no risk.

Rows may be shorter than the table is wide: a column that was appended later is left out while it (and all after it)
has the value that ALTER TABLE gave to the rows of that time. So old and new rows of equal content have equal bytes.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from domains.language.types import Delta, Kind, Row, TableSchema, Value

MARSHAL_VERSION = 2

RowEncoder = Callable[[Row], bytes]
RowDecoder = Callable[[bytes], Row]


class RowCodec:
    """Encodes the rows of one table; made anew when the table is altered.

    ``pads`` are the values of the appended columns in rows that were stored before them.
    """

    def __init__(self, schema: TableSchema, pads: tuple[Value, ...]) -> None:
        self.width = len(schema.columns)
        self._pads = pads
        self._narrow = self.width - len(pads)
        self._decimals = tuple(at for at, column in enumerate(schema.columns) if column.type.kind is Kind.DECIMAL)
        self._texts: Callable[[Row], Row] = self._texts_of_any
        self._values: Callable[[Row], Row] = self._values_of_any
        if not pads:  # All rows are whole: 0.7 µs for four DECIMALs of sixteen columns, where a loop takes 1.6.
            self._texts = self._display("str({0}) if {0} else nil({0})")
            self._values = self._display("None if {0} is None else decimal({0})")
        self.encode: RowEncoder = self._encode_any if pads or self._decimals else _encode_plain
        self.decode: RowDecoder = self._decode_any if pads or self._decimals else marshal.loads

    def _display(self, of_decimal: str) -> Callable[[Row], Row]:
        """A row with each DECIMAL as that expression has it. ValueError for one of another width."""
        names = [f"v{at}" for at in range(self.width)]
        shown = [of_decimal.format(name) if at in self._decimals else name for at, name in enumerate(names)]
        given: dict[str, Any] = {"nil": _nil, "decimal": Decimal}
        exec(f"def display(row):\n    {', '.join(names)}, = row\n    return ({', '.join(shown)},)", given)
        display: Callable[[Row], Row] = given["display"]
        return display

    def encode_many(self, rows: Sequence[Row]) -> list[bytes]:
        """``encode`` of each row: 0.1 µs where it is marshal alone."""
        if self._pads or self._decimals:
            return [self._encode_any(row) for row in rows]
        dumps = marshal.dumps
        return [dumps(row, MARSHAL_VERSION) for row in rows]  # type: ignore[arg-type]  # no Decimal in it

    def encode_log(self, deltas: Sequence[Delta]) -> bytes:
        if self._decimals:
            deltas = [(self._texts(row), weight) for row, weight in deltas]
        return marshal.dumps(list(deltas), MARSHAL_VERSION)

    def decode_log(self, data: bytes) -> list[Delta]:
        deltas: list[Delta] = marshal.loads(data)
        if self._pads or self._decimals:
            return [(self._values(row), weight) for row, weight in deltas]
        return deltas

    def _encode_any(self, row: Row) -> bytes:
        width, narrow, pads = self.width, self._narrow, self._pads
        assert len(row) == width, f"a row of {len(row)} values for {width} columns"
        while width > narrow and row[width - 1] == pads[width - 1 - narrow]:
            width -= 1
        return _encode_plain(self._texts(row[:width]))

    def _decode_any(self, data: bytes) -> Row:
        return self._values(marshal.loads(data))

    def _texts_of_any(self, row: Row) -> Row:
        values = list(row)
        for at in self._decimals:
            if at < len(values) and (value := values[at]) is not None:
                assert isinstance(value, Decimal)
                values[at] = str(value) if value else _nil(value)
        return tuple(values)

    def _values_of_any(self, row: Row) -> Row:
        values = list(row)
        for at in self._decimals:
            if at < len(values) and (value := values[at]) is not None:
                values[at] = Decimal(str(value))
        if len(values) < self.width:
            values += self._pads[len(values) - self.width :]
        return tuple(values)


def _encode_plain(row: Row) -> bytes:
    return marshal.dumps(row, MARSHAL_VERSION)  # type: ignore[arg-type]  # no Decimal in it


def _nil(value: Decimal | None) -> str | None:
    """The text of zero, which has no sign, and what stands for NULL."""
    return None if value is None else str(value.copy_abs())
