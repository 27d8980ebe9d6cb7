"""``encode`` and ``decode``: an object of the vocabulary as msgpack, and back.

A class is packed as a tuple of its name and its fields, by a generated function; the functions for packets of every
step are written by hand. Decimals, TIMEs and integers beyond 64 bits are msgpack extensions. Text may hold half a
surrogate pair, as Python's may.

Figures on one core, to encode and to decode: a LinkUpdate with one row of three values 0.8 and 2.4 µs, each further row
0.15 and 0.2 µs; with a Fill of one row instead 1.3 and 3.6 µs; an Upquery 0.5 and 1.9 µs; a Write of one row 1.0 and
2.5 µs. A third of the decoding is the check of all that is received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from threading import local
from types import NoneType
from typing import Any, get_type_hints

import msgpack

from domains.errors import HeadraceError, LimitExceeded
from domains.language.durations import micros_of, of_micros
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import SqlType
from domains.plan.graph import NodeIndex
from domains.plan.packets import Fill, LinkId, LinkUpdate, Pattern, Unfilled
from worker.protocol.messages import ProtocolError
from worker.wire.coders import LEAVES, Coder, Coders, Misfit, Unpack
from worker.wire.vocabulary import CLASSES, ERRORS, EXPRESSIONS, details_of, sent_fields

# ``LinkUpdate`` and the ``Fill`` in it are packed and checked by hand, in plain loops: every step sends an update over
# each of the domain's links, and a shuffle has many. The generated functions take twice as long, since they call one
# function a field and three a row.

VALUES = LEAVES - {bool}
"""The types of a row's values."""
_INTEGERS = frozenset((int,))


def link_update_coder(fill: Coder, pattern: Coder, unfilled: Coder) -> Coder:
    pack_fill, unpack_fill, pack_pattern, unpack_pattern = fill.pack, fill.unpack, pattern.pack, pattern.unpack
    pack_unfilled, unpack_unfilled = unfilled.pack, unfilled.unpack
    assert pack_fill is not None
    assert pack_pattern is not None
    assert pack_unfilled is not None

    def pack(o: LinkUpdate) -> Any:
        evictions: Any = [(node, pack_pattern(each)) for node, each in o.evictions] if o.evictions else ()
        fills: Any = [pack_fill(each) for each in o.fills] if o.fills else ()
        failed: Any = [pack_unfilled(each) for each in o.unfilled] if o.unfilled else ()
        return ("LinkUpdate", o.link, o.sequence, o.epoch, o.clock, evictions, o.deltas, fills, o.ended, failed)

    def unpack(packed: Any) -> LinkUpdate:
        _, link, sequence, epoch, clock, evictions, deltas, fills, ended, failed = packed
        if type(link) is not int or type(sequence) is not int or type(epoch) is not int or type(clock) is not dict:
            raise Misfit
        for base, position in clock.items():
            if type(base) is not str or type(position) is not int:
                raise Misfit
        if not (type(evictions) is type(deltas) is type(fills) is type(ended) is type(failed) is tuple):
            raise Misfit
        for node, rows in deltas:
            if type(node) is not int:
                raise Misfit
            check_deltas(rows)
        if evictions:
            evictions = tuple([(_integer(node), unpack_pattern(each)) for node, each in evictions])
        if fills:
            fills = tuple([unpack_fill(each) for each in fills])
        if ended:
            ended = tuple(map(_integer, ended))
        if failed:
            failed = tuple([unpack_unfilled(each) for each in failed])
        return LinkUpdate(LinkId(link), sequence, epoch, clock, evictions, deltas, fills, ended, failed)

    return Coder(unpack, pack)


def fill_coder() -> Coder:
    def pack(o: Fill) -> Any:
        return ("Fill", o.node, o.columns, o.key, o.rows)

    def unpack(packed: Any) -> Fill:
        tag, node, columns, key, rows = packed
        if tag != "Fill" or type(node) is not int or not (type(columns) is type(key) is tuple):
            raise Misfit
        if not (_INTEGERS.issuperset(map(type, columns)) and VALUES.issuperset(map(type, key))):
            raise Misfit
        check_deltas(rows)
        return Fill(NodeIndex(node), columns, key, rows)

    return Coder(unpack, pack)


def check_deltas(deltas: Any) -> None:
    """Each a row of values and a weight: 0.1 µs a row of three. (The set of a run's types takes longer to make.)"""
    if type(deltas) is not tuple:
        raise Misfit
    for row, weight in deltas:
        if type(row) is not tuple or type(weight) is not int:
            raise Misfit
        for value in row:
            if type(value) not in VALUES:
                raise Misfit


def _integer(value: Any) -> Any:
    if type(value) is not int:
        raise Misfit
    return value


# Errors on the wire: class, text and details, so that a caller meets the same error as in one process.

FAULT = "HeadraceError"


def error_coder(
    known: Mapping[str, type[HeadraceError]], details: Callable[[type[HeadraceError]], tuple[str, ...]]
) -> Coder:
    """``(TAG, code, message, hint, detail …)``; an error of a class that is not ``known`` is sent as its nearest base.

    Attributes are set without the constructor, which may have added to the message already. An unknown code is read as
    a plain ``HeadraceError``: with such an error a process of another version says why it refuses this one.
    """
    names = {kind: details(kind) for kind in known.values()}
    codes = {kind: code for code, kind in known.items()}

    def pack(error: HeadraceError) -> Any:
        kind = next(each for each in type(error).__mro__ if each in names)
        return (FAULT, codes[kind], error.message, error.hint, *(getattr(error, name) for name in names[kind]))

    def unpack(packed: Any) -> HeadraceError:
        _, code, message, hint, *found = packed
        if type(code) is not str or type(message) is not str or type(hint) not in (str, NoneType):
            raise Misfit
        if not LEAVES.issuperset(map(type, found)):
            raise Misfit
        kind = known.get(code, HeadraceError)
        error = kind.__new__(kind)
        HeadraceError.__init__(error, message, hint=hint)
        if code in known:
            for name, value in zip(names[kind], found, strict=True):
                setattr(error, name, value)
        return error

    return Coder(unpack, pack)


# Expressions on the wire: one flat tuple in postfix order, whatever their depth.
#
# A chain of a thousand ORs is a thousand Calls deep. msgpack nests 500 deep and Python's stack not much deeper, so an
# expression is taken apart and put together with a stack of its own::
#
#     Call("add", (Field(0, BIGINT), Constant(1, BIGINT)), BIGINT)
#     ("Expression", (0, BIGINT), (None, 1, BIGINT), ("add", 2, BIGINT))        a Field is a pair

TAG = "Expression"


def expression_coder(types: Coder) -> Coder:
    """``types`` packs a ``SqlType``."""
    pack_type, unpack_type = types.pack, types.unpack
    assert pack_type is not None

    def pack(expression: Expression) -> Any:
        packed: list[Any] = []
        waiting: list[Expression] = [expression]
        # A call before its arguments, and those from the right; reversed at the end.
        while waiting:
            at = waiting.pop()
            match at:
                case Field():
                    packed.append((at.position, pack_type(at.type)))
                case Constant():
                    packed.append((None, at.value, pack_type(at.type)))
                case Call():
                    packed.append((at.function, len(at.arguments), pack_type(at.type)))
                    waiting.extend(at.arguments)
        packed.append(TAG)
        packed.reverse()
        return packed

    def unpack(packed: Any) -> Expression:
        done: list[Expression] = []
        for item in packed[1:]:
            if type(item) is not tuple:
                raise Misfit
            done.append(_pair(item) if len(item) == 2 else _triple(item, done))
        (expression,) = done
        return expression

    def _pair(item: Any) -> Field:
        if type(item[0]) is not int:
            raise Misfit
        return Field(item[0], unpack_type(item[1]))

    def _triple(item: Any, done: list[Expression]) -> Expression:
        function, value, type_ = item
        if function is None:
            if type(value) not in LEAVES:
                raise Misfit
            return Constant(value, unpack_type(type_))
        if type(function) is not str or type(value) is not int or not 0 <= value <= len(done):
            raise Misfit
        place = len(done) - value
        arguments = tuple(done[place:])
        del done[place:]
        return Call(function, arguments, unpack_type(type_))

    return Coder(unpack, pack)


DECIMAL = 1
"""Extension: a Decimal's text."""
BIG_INTEGER = 2
"""Extension: an integer beyond 64 bits, two's complement, most significant byte first."""
TIME = 3
"""Extension: the microseconds of a TIME, like those integers."""

NUMBER_BYTES_MAX = 1000
"""Bytes of such a number: DECIMAL has 65 digits, and sums and products of it some more."""
DIGITS_MAX = 1000
"""Digits before or after the point. Whoever prints Decimal("1E+999999999") or makes an integer of it takes a gigabyte.
"""

SMALL_BYTES = 4096
"""A message of so many bytes is decoded as it is: its objects take 400 kB at most. Most messages are smaller."""
MAPS_FREE = 1000
BYTES_A_MAP = 16
"""A larger message may have this many maps, and another one for so many bytes. An empty map is one byte, and a dict of
64; the JSON documents that are sent have 20 bytes and more for each map."""

_MISTAKES = (
    Misfit,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    msgpack.UnpackException,
)
"""The errors that foreign bytes can raise."""

_CODERS: dict[type, Coder] = {}
_UNPACK: dict[str, Unpack] = {}
"""The unpackers by name."""


def encode(message: object) -> bytes:
    """The bytes of an object of the vocabulary. LimitExceeded where it nests deeper than msgpack goes."""
    return pack(pack_object(message))


def decode(data: bytes) -> Any:
    """The object of bytes that ``encode`` made. ProtocolError for any other bytes."""
    return unpack_object(unpack(data))


def pack_object(message: object) -> Any:
    """The tuple for msgpack. An object that is not of the vocabulary is a bug of the caller."""
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
    code = BIG_INTEGER
    if type(value) is timedelta:
        code, value = TIME, micros_of(value)
    assert type(value) is int, f"no way to send a {type(value).__name__}"
    return msgpack.ExtType(code, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _extended(code: int, data: bytes) -> Any:
    if len(data) > NUMBER_BYTES_MAX:
        raise Misfit
    if code == DECIMAL:
        number = Decimal(data.decode("ascii"))
        if not number.is_finite() or abs(number.adjusted()) > DIGITS_MAX:
            raise Misfit
        return number
    if code == BIG_INTEGER:
        return int.from_bytes(data, "big", signed=True)
    if code == TIME:
        return of_micros(int.from_bytes(data, "big", signed=True))
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
        # Half a surrogate pair. With this option always on, each text would cost a call of Python's encoder.
        return msgpack.packb(packed, default=_extend, unicode_errors="surrogatepass")  # type: ignore[no-any-return]
    except ValueError as error:
        raise LimitExceeded("a message nests too deep to be sent", hint="split the statement") from error


def unpack(data: bytes) -> Any:
    """Raises ProtocolError if it is not msgpack, or would take far more memory than its bytes."""
    try:
        if len(data) > SMALL_BYTES:
            return _unpack_large(data)
        return msgpack.unpackb(
            data, use_list=False, strict_map_key=False, ext_hook=_extended, unicode_errors="surrogatepass"
        )
    except _MISTAKES as error:
        raise ProtocolError("the received bytes are not msgpack") from error


def _unpack_large(data: bytes) -> Any:
    """A walk over all of it comes first, which makes nothing and takes a tenth of the time: so no room is made for
    items that are announced and do not come. Then tuples take some 35 times their bytes, as those of rows do, and maps,
    which take 80 times, are counted."""
    walk = msgpack.Unpacker(max_buffer_size=len(data))
    walk.feed(data)
    walk.skip()
    left = MAPS_FREE + len(data) // BYTES_A_MAP

    def counted(made: dict[Any, Any]) -> dict[Any, Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise Misfit
        return made

    return msgpack.unpackb(
        data,
        use_list=False,
        strict_map_key=False,
        ext_hook=_extended,
        unicode_errors="surrogatepass",
        object_hook=counted,
    )


# --- the table of classes ---------------------------------------------------------------------------------------


def _one_of(classes: frozenset[type]) -> Coder:
    """The coder of a field that holds one of these classes."""
    names = {_name(each) for each in classes}

    def unpack_member(packed: Any) -> Any:
        if type(packed) is not tuple or packed[0] not in names:
            raise Misfit
        return _UNPACK[packed[0]](packed)

    return Coder(unpack_member, pack_object)


def _name(kind: type) -> str:
    return TAG if kind in EXPRESSIONS else kind.__name__


def _of_class(kind: type, coders: Coders) -> Coder:
    """Two functions generated from the class's fields, with the checks of plain fields inline.

    They run for every packet, and a loop with a call for each field takes twice as long.
    """
    hints = get_type_hints(kind)
    names: dict[str, Any] = {"kind": kind, "Misfit": Misfit}
    packs, given, checks, values = [f'"{kind.__name__}"'], ["_"], [], []
    for name in (field.name for field in sent_fields(kind)):
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
