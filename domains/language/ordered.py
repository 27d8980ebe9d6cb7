"""One value as bytes that sort as the values do, and say by themselves where they end.

=========  =====================================================================================================
value      bytes
=========  =====================================================================================================
NULL       ``01``: before everything
int        ``11`` and 8 bytes, offset by 2^63; beyond 64 bits ``10``/``12``, length and magnitude (complemented if < 0)
float      ``20`` and 8 bytes: IEEE 754 with the sign bit flipped, or all bits where it is negative
Decimal    ``31`` for zero; ``32`` exponent, significant digits, ``00``; ``30`` and the complement of that if negative
str        ``40``, UTF-8 with ``00`` written ``00 ff``, then ``00 01``; so the order is by code point.
bytes      ``48``, else as str
timedelta  its microseconds, as an int
=========  =====================================================================================================

Equal values have equal bytes (``1.0`` and ``1.00`` as Decimal, ``0.0`` and ``-0.0``). A descending value is the
complement of its bytes: that reverses the order and puts NULL last, as MySQL does, and it still ends by itself because
where an encoding ends is decided before its complement is taken. Values of different kinds never meet in one column,
so their mutual order means nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

from domains.language.durations import micros_of

NULL_BYTES = b"\x01"
COMPLEMENT = bytes(255 - byte for byte in range(256))

_NEGATIVE, INTEGER, _POSITIVE = 0x10, 0x11, 0x12
_DOUBLE = 0x20
_DECIMAL_NEGATIVE, _DECIMAL_ZERO, _DECIMAL_POSITIVE = 0x30, 0x31, 0x32
TEXT_TAG, BLOB_TAG = b"\x40", b"\x48"
_END = b"\x00\x01"
OFFSET = 1 << 63
ALL_BITS = (1 << 64) - 1
EXPONENT_OFFSET = 1 << 31

_pack_tagged = struct.Struct(">BQ").pack
_pack_double = struct.Struct(">d").pack
_pack_length = struct.Struct(">I").pack


def encode_null(_: None) -> bytes:
    return NULL_BYTES


def encode_integer(value: int) -> bytes:
    try:
        return _pack_tagged(INTEGER, value + OFFSET)
    except struct.error:
        magnitude = abs(value)
        size = (magnitude.bit_length() + 7) // 8
        body = _pack_length(size) + magnitude.to_bytes(size, "big")
        if value < 0:
            return bytes((_NEGATIVE,)) + body.translate(COMPLEMENT)
        return bytes((_POSITIVE,)) + body


def encode_double(value: float) -> bytes:
    bits = int.from_bytes(_pack_double(value + 0.0), "big")  # adding 0.0 makes 0.0 of -0.0
    return _pack_tagged(_DOUBLE, bits ^ ALL_BITS if bits & OFFSET else bits | OFFSET)


def encode_decimal(value: Decimal) -> bytes:
    if value.is_zero():  # not truth: None, which must fail here, is false too
        return bytes((_DECIMAL_ZERO,))
    digits = "".join(map(str, value.as_tuple().digits)).lstrip("0").rstrip("0")
    body = _pack_length(value.adjusted() + EXPONENT_OFFSET) + digits.encode() + b"\x00"
    if value < 0:
        return bytes((_DECIMAL_NEGATIVE,)) + body.translate(COMPLEMENT)
    return bytes((_DECIMAL_POSITIVE,)) + body


def encode_text(value: str) -> bytes:
    try:
        body = value.encode()
    except UnicodeEncodeError:  # a lone surrogate; it keeps its place in code point order
        body = value.encode("utf-8", "surrogatepass")
    if b"\x00" in body:
        body = body.replace(b"\x00", b"\x00\xff")
    return TEXT_TAG + body + _END


def encode_blob(value: bytes) -> bytes:
    return BLOB_TAG + value.replace(b"\x00", b"\x00\xff") + _END


def encode_time(value: timedelta) -> bytes:
    return encode_integer(micros_of(value))


BY_PYTHON_TYPE: dict[type, Callable[..., bytes]] = {
    type(None): encode_null,
    int: encode_integer,
    bool: encode_integer,
    float: encode_double,
    Decimal: encode_decimal,
    str: encode_text,
    bytes: encode_blob,
    timedelta: encode_time,
}


def encode_value(value: object) -> bytes:
    """The bytes of one value. TypeError where it is none of :data:`domains.language.types.Value`."""
    encode = BY_PYTHON_TYPE.get(type(value))
    if encode is None:
        raise TypeError(f"no key encoding for {type(value).__name__}")
    return encode(value)


def value_end(encoded: bytes, start: int) -> int:
    """The end of the (ascending) value that begins at ``start``: its bytes are ``encoded[start:value_end(…)]``."""
    tag = encoded[start]
    if tag in (INTEGER, _DOUBLE):
        return start + 9
    if tag in (NULL_BYTES[0], _DECIMAL_ZERO):
        return start + 1
    if tag in (TEXT_TAG[0], BLOB_TAG[0]):
        return encoded.index(_END, start) + 2
    if tag == _DECIMAL_POSITIVE:
        return encoded.index(b"\x00", start + 5) + 1
    if tag == _DECIMAL_NEGATIVE:
        return encoded.index(b"\xff", start + 5) + 1
    length = encoded[start + 1 : start + 5]
    assert tag in (_POSITIVE, _NEGATIVE), f"no value begins with byte {tag:#x}"
    if tag == _NEGATIVE:
        length = length.translate(COMPLEMENT)
    return start + 5 + int.from_bytes(length, "big")
