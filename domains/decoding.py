"""Keys out of their bytes: the inverse of ``encoding.py``, for whoever shows what storage or a reader map holds."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal

from domains.encoding import COMPLEMENT, value_end
from domains.functions.exact import rounded
from domains.types import Kind, Row, SqlType, Value

_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1
_EXPONENT_OFFSET = 1 << 31


def decode_key(encoded: bytes, types: Sequence[SqlType]) -> Row:
    """The first values of an ascending key, one for each type; what follows them may be anything."""
    values: list[Value] = []
    start = 0
    for type in types:
        end = value_end(encoded, start)
        values.append(_value(encoded[start:end], type))
        start = end
    return tuple(values)


def _value(body: bytes, type: SqlType) -> Value:
    tag, rest = body[0], body[1:]
    if tag == 0x01:
        return None
    if tag == 0x11:
        return int.from_bytes(rest, "big") - _SIGN
    if tag in (0x10, 0x12):
        magnitude = int.from_bytes((rest.translate(COMPLEMENT) if tag == 0x10 else rest)[4:], "big")
        return -magnitude if tag == 0x10 else magnitude
    if tag == 0x20:
        bits = int.from_bytes(rest, "big")
        found: float = struct.unpack(">d", (bits ^ (_SIGN if bits & _SIGN else _ALL_BITS)).to_bytes(8, "big"))[0]
        return found
    if tag in (0x30, 0x31, 0x32):
        return _decimal(tag, rest, type)
    plain = rest[:-2].replace(b"\x00\xff", b"\x00")
    return plain if type.kind is Kind.BLOB else plain.decode("utf-8", "surrogatepass")


def _decimal(tag: int, rest: bytes, type: SqlType) -> Decimal:
    if tag == 0x31:
        return rounded(0, type.scale)
    body = rest.translate(COMPLEMENT) if tag == 0x30 else rest
    exponent = int.from_bytes(body[:4], "big") - _EXPONENT_OFFSET
    digits = tuple(int(chr(digit)) for digit in body[4:-1])
    return rounded(Decimal((int(tag == 0x30), digits, exponent - len(digits) + 1)), type.scale)
