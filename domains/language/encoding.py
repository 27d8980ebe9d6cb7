"""Keys as bytes: an encoding whose byte order is the order of the values.

Storage and reader maps know only byte strings in lexicographic order. A tuple of values becomes the concatenation of
its values' encodings (``ordered.py``), and each of those says by itself where it ends, so that tuples compare as their
values do, a prefix of the columns is a prefix of the bytes, and anything may follow. Where a column's equality is not
that of its values (a collation's, that of documents), a value's key is encoded in its place, as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal

from domains.language.collating.collation import keyed
from domains.language.compiled import compiled
from domains.language.durations import of_micros
from domains.language.exact import rounded
from domains.language.ordered import (
    ALL_BITS,
    BLOB_TAG,
    BY_PYTHON_TYPE,
    COMPLEMENT,
    EXPONENT_OFFSET,
    INTEGER,
    OFFSET,
    encode_blob,
    encode_decimal,
    encode_double,
    encode_text,
    encode_time,
    encode_value,
    value_end,
)
from domains.language.types import Kind, Row, SqlType, Value

Encoder = Callable[[Row], bytes]


def encode_key(values: Row) -> bytes:
    """The bytes of a tuple; works for any values. Where the types are known, :func:`key_encoder` is faster."""
    return b"".join([BY_PYTHON_TYPE[type(value)](value) for value in values])


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
    Kind.DOUBLE: encode_double,
    Kind.DECIMAL: encode_decimal,
    Kind.TEXT: encode_text,
    Kind.BLOB: encode_blob,
    Kind.DATE: encode_text,
    Kind.DATETIME: encode_text,
    Kind.TIME: encode_time,
}


def _encoder_of(type: SqlType) -> Callable[..., bytes]:
    if type.equality is None:
        return _BY_KIND.get(type.kind, encode_value)
    key = keyed(type.equality)
    return lambda value: encode_blob(key(value))


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
                f"{255 - INTEGER}, {OFFSET - 1} - row[{at}]" if down else f"{INTEGER}, row[{at}] + {OFFSET}"
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
    keys = [None if type_.equality is None else keyed(type_.equality) for type_ in types]
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
        number = int.from_bytes(rest, "big") - OFFSET
        return of_micros(number) if type.kind is Kind.TIME else number
    if tag in (0x10, 0x12):
        magnitude = int.from_bytes((rest.translate(COMPLEMENT) if tag == 0x10 else rest)[4:], "big")
        return -magnitude if tag == 0x10 else magnitude
    if tag == 0x20:
        bits = int.from_bytes(rest, "big")
        found: float = struct.unpack(">d", (bits ^ (OFFSET if bits & OFFSET else ALL_BITS)).to_bytes(8, "big"))[0]
        return found
    if tag in (0x30, 0x31, 0x32):
        return _decimal(tag, rest, type)
    plain = rest[:-2].replace(b"\x00\xff", b"\x00")
    return plain if tag == BLOB_TAG[0] else plain.decode("utf-8", "surrogatepass")


def _decimal(tag: int, rest: bytes, type: SqlType) -> Decimal:
    if tag == 0x31:
        return rounded(0, type.scale)
    body = rest.translate(COMPLEMENT) if tag == 0x30 else rest
    exponent = int.from_bytes(body[:4], "big") - EXPONENT_OFFSET
    digits = tuple(int(chr(digit)) for digit in body[4:-1])
    return rounded(Decimal((int(tag == 0x30), digits, exponent - len(digits) + 1)), type.scale)
