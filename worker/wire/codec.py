"""``encode`` and ``decode``: an object of the vocabulary as msgpack, and back.

A class is packed as a tuple of its name and its fields, by a function that is generated for it; those of every step and
link are written by hand (``updates.py``). Decimals and integers beyond 64 bits are msgpack extensions. Text may hold
half a surrogate pair, as Python's may.

Figures on one core, to encode and to decode: a LinkUpdate with one row of three values 0.8 and 2.4 µs, each further row
0.15 and 0.2 µs; with a Fill of one row instead 1.3 and 3.6 µs; an Upquery 0.5 and 1.9 µs; a Write of one row 1.0 and
2.5 µs. All that is received is checked, which is a third of the decoding.
"""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from threading import local
from typing import Any, get_type_hints

import msgpack

from domains.errors import HeadraceError, LimitExceeded
from domains.packets import Fill, LinkUpdate, Pattern, Unfilled
from domains.types import SqlType
from worker.wire.coders import Coder, Coders, Misfit, Unpack
from worker.wire.errors import ProtocolError
from worker.wire.expressions import TAG, expression_coder
from worker.wire.faults import error_coder
from worker.wire.updates import fill_coder, link_update_coder
from worker.wire.vocabulary import CLASSES, ERRORS, EXPRESSIONS, details_of

DECIMAL = 1
"""Extension: a Decimal's text."""
BIG_INTEGER = 2
"""Extension: an integer beyond 64 bits, two's complement, most significant byte first."""

_MISTAKES = (
    Misfit,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    ArithmeticError,
    RecursionError,
    msgpack.UnpackException,
)
"""What reading bytes that we did not write may come to."""

_CODERS: dict[type, Coder] = {}
_UNPACK: dict[str, Unpack] = {}
"""By name."""


def encode(message: object) -> bytes:
    """The bytes of an object of the vocabulary. LimitExceeded where it nests deeper than msgpack goes."""
    return pack(pack_object(message))


def decode(data: bytes) -> Any:
    """The object that ``encode`` made the bytes from. ProtocolError for any other bytes."""
    return unpack_object(unpack(data))


def pack_object(message: object) -> Any:
    """What msgpack is to pack for an object. An object outside of the vocabulary is the caller's mistake."""
    coder = _CODERS.get(type(message))
    if coder is None:
        assert isinstance(message, HeadraceError), f"{type(message).__name__} is not of the vocabulary"
        coder = _CODERS[HeadraceError]
    assert coder.pack is not None
    return coder.pack(message)


def unpack_object(packed: Any) -> Any:
    try:
        return _unpack_any(packed)
    except _MISTAKES as error:
        raise ProtocolError(f"what was received {_described(packed)}") from error


def _described(packed: Any) -> str:
    if type(packed) is not tuple or not packed or type(packed[0]) is not str:
        return "is no message"
    return f'is no well-formed "{packed[0]}"' if packed[0] in _UNPACK else f'is an unknown message, "{packed[0][:40]}"'


def _unpack_any(packed: Any) -> Any:
    if type(packed) is not tuple or type(packed[0]) is not str:
        raise Misfit
    return _UNPACK[packed[0]](packed)


# --- msgpack ----------------------------------------------------------------------------------------------------


def _extend(value: Any) -> msgpack.ExtType:
    if type(value) is Decimal:
        return msgpack.ExtType(DECIMAL, str(value).encode())
    assert type(value) is int, f"no way to send a {type(value).__name__}"
    return msgpack.ExtType(BIG_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _extended(code: int, data: bytes) -> Any:
    if code == DECIMAL:
        return Decimal(data.decode("ascii"))
    if code == BIG_INTEGER:
        return int.from_bytes(data, "big", signed=True)
    raise Misfit


class _Packers(local):
    """A packer has one buffer, so each thread has its own."""

    def __init__(self) -> None:
        self.pack = msgpack.Packer(default=_extend).pack


_packers = _Packers()


def pack(packed: Any) -> bytes:
    try:
        return _packers.pack(packed)  # type: ignore[no-any-return]
    except UnicodeEncodeError:
        # Half a surrogate pair. Asking for this always would cost each text a call of Python's encoder.
        return msgpack.packb(packed, default=_extend, unicode_errors="surrogatepass")  # type: ignore[no-any-return]
    except ValueError as error:
        raise LimitExceeded("a message nests too deep to be sent", hint="split the statement") from error


def unpack(data: bytes) -> Any:
    """ProtocolError where it is no msgpack."""
    try:
        return msgpack.unpackb(
            data, use_list=False, strict_map_key=False, ext_hook=_extended, unicode_errors="surrogatepass"
        )
    except _MISTAKES as error:
        raise ProtocolError("what was received is not msgpack") from error


# --- the table of classes ---------------------------------------------------------------------------------------


def _one_of(classes: frozenset[type]) -> Coder:
    """For a field that holds one of these classes."""
    names = {_name(each) for each in classes}

    def unpack_member(packed: Any) -> Any:
        if type(packed) is not tuple or packed[0] not in names:
            raise Misfit
        return _UNPACK[packed[0]](packed)

    return Coder(unpack_member, pack_object)


def _name(kind: type) -> str:
    return TAG if kind in EXPRESSIONS else kind.__name__


def _of_class(kind: type, coders: Coders) -> Coder:
    """A class by its fields: two generated functions, with the checks of its plain fields in line.

    They run for every packet; with a loop over the fields and a call for each they take twice as long.
    """
    hints = get_type_hints(kind)
    names: dict[str, Any] = {"kind": kind, "Misfit": Misfit}
    packs, given, checks, values = [f'"{kind.__name__}"'], ["_"], [], []
    for name in (field.name for field in fields(kind)):
        coder = coders.of(hints[name])
        names |= {f"pack_{name}": coder.pack, f"unpack_{name}": coder.unpack, f"types_{name}": coder.leaves}
        packs.append(f"o.{name}" if coder.pack is None else f"pack_{name}(o.{name})")
        given.append(f"v_{name}")
        if coder.leaves:
            checks.append(f" if type(v_{name}) not in types_{name}: raise Misfit\n")
        values.append(f"v_{name}" if coder.leaves else f"unpack_{name}(v_{name})")
    exec(
        f"def pack(o):\n return ({', '.join(packs)},)\n"
        f"def unpack(p):\n ({', '.join(given)},) = p\n{''.join(checks)} return kind({', '.join(values)})\n",
        names,
    )
    return Coder(names["unpack"], names["pack"])


def _fill_table() -> None:
    coders = Coders(frozenset((*CLASSES, HeadraceError)), _one_of)
    table = {each: _of_class(each, coders) for each in CLASSES if each not in EXPRESSIONS}
    table |= dict.fromkeys(EXPRESSIONS, expression_coder(table[SqlType]))
    table[Fill] = fill_coder()
    table[LinkUpdate] = link_update_coder(table[Fill], table[Pattern], table[Unfilled])
    table[HeadraceError] = error_coder(ERRORS, details_of)
    _CODERS.update(table)
    _UNPACK.update({_name(each): coder.unpack for each, coder in table.items()})


_fill_table()
