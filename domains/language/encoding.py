"""Keys as bytes: an encoding whose byte order is the order of the values.

Storage and reader maps know only byte strings in lexicographic order. A tuple of values becomes the concatenation of
its values' encodings, and each of those says by itself where it ends, so that tuples compare as their values do, a
prefix of the columns is a prefix of the bytes, and anything may follow.

=========  =====================================================================================================
value      bytes
=========  =====================================================================================================
NULL       ``01``: before everything
int        ``11`` and 8 bytes, offset by 2^63; beyond 64 bits ``10``/``12``, length and magnitude (complemented if < 0)
float      ``20`` and 8 bytes: IEEE 754 with the sign bit flipped, or all bits where it is negative
Decimal    ``31`` for zero; ``32`` exponent, significant digits, ``00``; ``30`` and the complement of that if negative
str        ``40``, UTF-8 with ``00`` written ``00 ff``, then ``00 01``; so the order is by code point.
           Where a column has a collation the text's key is encoded, as bytes
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
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal

from domains.language.collating.collation import keyed
from domains.language.compiled import compiled
from domains.language.durations import micros_of, of_micros
from domains.language.exact import rounded
from domains.language.types import Kind, Row, SqlType, Value

Encoder = Callable[[Row], bytes]

NULL_BYTES = b"\x01"
COMPLEMENT = bytes(255 - byte for byte in range(256))

_NEGATIVE, _INTEGER, _POSITIVE = 0x10, 0x11, 0x12
_DOUBLE = 0x20
_DECIMAL_NEGATIVE, _DECIMAL_ZERO, _DECIMAL_POSITIVE = 0x30, 0x31, 0x32
_TEXT, _BLOB = b"\x40", b"\x48"
_END = b"\x00\x01"
_OFFSET = 1 << 63
_ALL_BITS = (1 << 64) - 1
_EXPONENT_OFFSET = 1 << 31

_pack_tagged = struct.Struct(">BQ").pack
_pack_double = struct.Struct(">d").pack
_pack_length = struct.Struct(">I").pack


# --- one value --------------------------------------------------------------------------------------------------


def _encode_null(_: None) -> bytes:
    return NULL_BYTES


def _encode_integer(value: int) -> bytes:
    try:
        return _pack_tagged(_INTEGER, value + _OFFSET)
    except struct.error:
        magnitude = abs(value)
        size = (magnitude.bit_length() + 7) // 8
        body = _pack_length(size) + magnitude.to_bytes(size, "big")
        if value < 0:
            return bytes((_NEGATIVE,)) + body.translate(COMPLEMENT)
        return bytes((_POSITIVE,)) + body


def _encode_double(value: float) -> bytes:
    bits = int.from_bytes(_pack_double(value + 0.0), "big")  # adding 0.0 makes 0.0 of -0.0
    return _pack_tagged(_DOUBLE, bits ^ _ALL_BITS if bits & _OFFSET else bits | _OFFSET)


def _encode_decimal(value: Decimal) -> bytes:
    if value.is_zero():  # not truth: None, which must fail here, is false too
        return bytes((_DECIMAL_ZERO,))
    digits = "".join(map(str, value.as_tuple().digits)).lstrip("0").rstrip("0")
    body = _pack_length(value.adjusted() + _EXPONENT_OFFSET) + digits.encode() + b"\x00"
    if value < 0:
        return bytes((_DECIMAL_NEGATIVE,)) + body.translate(COMPLEMENT)
    return bytes((_DECIMAL_POSITIVE,)) + body


def _encode_text(value: str) -> bytes:
    try:
        body = value.encode()
    except UnicodeEncodeError:  # a lone surrogate; it keeps its place in code point order
        body = value.encode("utf-8", "surrogatepass")
    if b"\x00" in body:
        body = body.replace(b"\x00", b"\x00\xff")
    return _TEXT + body + _END


def _encode_blob(value: bytes) -> bytes:
    return _BLOB + value.replace(b"\x00", b"\x00\xff") + _END


def _encode_time(value: timedelta) -> bytes:
    return _encode_integer(micros_of(value))


_BY_PYTHON_TYPE: dict[type, Callable[..., bytes]] = {
    type(None): _encode_null,
    int: _encode_integer,
    bool: _encode_integer,
    float: _encode_double,
    Decimal: _encode_decimal,
    str: _encode_text,
    bytes: _encode_blob,
    timedelta: _encode_time,
}


def encode_value(value: Value) -> bytes:
    """The bytes of one value. TypeError where it is none of :data:`domains.language.types.Value`."""
    encode = _BY_PYTHON_TYPE.get(type(value))
    if encode is None:
        raise TypeError(f"no key encoding for {type(value).__name__}")
    return encode(value)


def value_end(encoded: bytes, start: int) -> int:
    """The end of the (ascending) value that begins at ``start``: its bytes are ``encoded[start:value_end(…)]``."""
    tag = encoded[start]
    if tag in (_INTEGER, _DOUBLE):
        return start + 9
    if tag in (NULL_BYTES[0], _DECIMAL_ZERO):
        return start + 1
    if tag in (_TEXT[0], _BLOB[0]):
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


# --- tuples -----------------------------------------------------------------------------------------------------


def encode_key(values: Row) -> bytes:
    """The bytes of a tuple; works for any values. Where the types are known, :func:`key_encoder` is faster."""
    return b"".join([_BY_PYTHON_TYPE[type(value)](value) for value in values])


def encode_order(values: Row, descending: Sequence[bool]) -> bytes:
    """The bytes by which ORDER BY sorts: like :func:`encode_key`, each descending value complemented."""
    return b"".join(
        [
            encode_value(value).translate(COMPLEMENT) if down else encode_value(value)
            for value, down in zip(values, descending, strict=True)
        ]
    )


def key_encoder(types: Sequence[SqlType]) -> Encoder:
    """:func:`encode_key` made for tuples of these types."""
    return row_encoder(range(len(types)), types)


_BY_KIND: dict[Kind, Callable[..., bytes]] = {
    Kind.DOUBLE: _encode_double,
    Kind.DECIMAL: _encode_decimal,
    Kind.TEXT: _encode_text,
    Kind.BLOB: _encode_blob,
    Kind.DATE: _encode_text,
    Kind.DATETIME: _encode_text,
    Kind.TIME: _encode_time,
    Kind.JSON: _encode_text,
}


def _encoder_of(type: SqlType) -> Callable[..., bytes]:
    if type.collation is None:
        return _BY_KIND.get(type.kind, encode_value)
    key = keyed(type.collation)
    return lambda value: _encode_blob(key(value))


def row_encoder(
    positions: Sequence[int], types: Sequence[SqlType], descending: Sequence[bool] | None = None
) -> Encoder:
    """``encode_order`` of the values at ``positions`` of a row, whose types are ``types`` (one a position).

    This runs once or more a row, so it is generated: 0.1 µs for one INTEGER against 0.3 µs for the general loop.
    Runs of INTEGER are one ``struct`` call. What the fast code does not take (NULL, more than 64 bits, a value of
    another kind) makes it fail, and the general loop answers.
    """
    flags = tuple(descending) if descending is not None else (False,) * len(positions)
    if not positions:
        return lambda _row: b""
    pieces: list[str] = []
    scope: dict[str, object] = {"error": struct.error, "COMPLEMENT": COMPLEMENT}
    run: list[tuple[int, bool]] = []

    def close_run() -> None:
        if run:
            scope[f"pack{len(pieces)}"] = struct.Struct(">" + "BQ" * len(run)).pack
            arguments = ", ".join(
                f"{255 - _INTEGER}, {_OFFSET - 1} - row[{at}]" if down else f"{_INTEGER}, row[{at}] + {_OFFSET}"
                for at, down in run
            )
            pieces.append(f"pack{len(pieces)}({arguments})")
            run.clear()

    for at, type_, down in zip(positions, types, flags, strict=True):
        if type_.kind is Kind.INTEGER:
            run.append((at, down))
            continue
        close_run()
        scope[f"encode{len(pieces)}"] = _encoder_of(type_)
        pieces.append(f"encode{len(pieces)}(row[{at}])" + (".translate(COMPLEMENT)" if down else ""))
    close_run()
    keys = [None if type_.collation is None else keyed(type_.collation) for type_ in types]
    taken = tuple(zip(positions, keys, strict=True))
    scope["slow"] = lambda row: encode_order(
        tuple(row[at] if key is None else key(row[at]) for at, key in taken), flags
    )
    source = (
        "def encode(row):\n"
        "    try:\n"
        f"        return {' + '.join(pieces)}\n"
        "    except (TypeError, AttributeError, error):\n"
        "        return slow(row)\n"
    )
    exec(compiled(source, "<key encoder>"), scope)
    encode: Encoder = scope["encode"]  # type: ignore[assignment]
    return encode


# Keys out of their bytes: the inverse of ``encoding.py``, for whoever shows what storage or a reader map holds.

_SIGN = 1 << 63


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
        number = int.from_bytes(rest, "big") - _SIGN
        return of_micros(number) if type.kind is Kind.TIME else number
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
    return plain if tag == _BLOB[0] else plain.decode("utf-8", "surrogatepass")


def _decimal(tag: int, rest: bytes, type: SqlType) -> Decimal:
    if tag == 0x31:
        return rounded(0, type.scale)
    body = rest.translate(COMPLEMENT) if tag == 0x30 else rest
    exponent = int.from_bytes(body[:4], "big") - _EXPONENT_OFFSET
    digits = tuple(int(chr(digit)) for digit in body[4:-1])
    return rounded(Decimal((int(tag == 0x30), digits, exponent - len(digits) + 1)), type.scale)
