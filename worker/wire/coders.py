"""How a field is packed and checked, by its type; ``codec.py`` makes its table of classes from these coders.

msgpack carries None, numbers, text, bytes, tuples and dicts, so most fields are packed as they are. Else a class
becomes a tuple that begins with its name, an expression a flat list in postfix order (a condition of a thousand terms
nests a thousand deep), an enum its value, a set its sorted members, an error its code and text.

Unpacking checks each value's type against the field's; the first that does not fit raises ``Misfit``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from inspect import isclass
from types import NoneType, UnionType
from typing import Any, NewType, Union, get_args, get_origin

Pack = Callable[[Any], Any]
Unpack = Callable[[Any], Any]

LEAVES: frozenset[type] = frozenset((NoneType, bool, int, float, str, bytes, Decimal, timedelta))


_NAMES = frozenset((str, int))
"""The types of names in JSON documents. (Some are numbers of domains.)"""


class Misfit(Exception):
    """A received value does not fit the type of its field."""


@dataclass(frozen=True, slots=True)
class Coder:
    unpack: Unpack
    pack: Pack | None = None
    """None: msgpack takes the value as it is."""
    leaves: frozenset[type] = frozenset()
    """The types of the values, if all are leaves: a tuple of them is checked in one go."""


class Coders:
    """Coders by type. ``one_of`` makes one for a field that holds an object of any of several ``classes``."""

    def __init__(self, classes: frozenset[type], one_of: Callable[[frozenset[type]], Coder]) -> None:
        self._classes = classes
        self._one_of = one_of
        self._made: dict[Any, Coder] = {}

    def of(self, hint: Any) -> Coder:
        while isinstance(hint, NewType):
            hint = hint.__supertype__
        made = self._made.get(hint)
        if made is None:
            made = self._made[hint] = self._make(hint)
        return made

    def _make(self, hint: Any) -> Coder:
        if hint is Any:
            return Coder(json_of)
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._union(frozenset(arguments))
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return _sequence(self.of(arguments[0]), tuple)
        if origin is tuple:
            return _fixed([self.of(argument) for argument in arguments])
        if origin in (list, frozenset):
            return _sequence(self.of(arguments[0]), origin)
        if origin is dict:
            return _mapping(self.of(arguments[0]), self.of(arguments[1]))
        if hint in LEAVES:
            return _leaf(frozenset((hint,)) if hint is not float else frozenset((int, float)))
        assert isclass(hint), f"no way to send {hint}"
        if issubclass(hint, Enum):
            return _enum(hint)
        return self._one_of(frozenset((hint,)))

    def _union(self, members: frozenset[Any]) -> Coder:
        if members <= LEAVES:
            return _leaf(members)
        if members <= self._classes:
            return self._one_of(members)
        rest = members - {NoneType}
        assert rest != members, f"no way to tell the members of {members} apart"
        return _optional(self.of(next(iter(rest))) if len(rest) == 1 else self._union(rest))


# --- values without a name --------------------------------------------------------------------------------------


def json_of(value: Any) -> Any:
    """A JSON document, with the lists that msgpack has made tuples."""
    if type(value) is tuple:
        return [json_of(each) for each in value]
    if type(value) is dict:
        if not _NAMES.issuperset(map(type, value)):
            raise Misfit
        return {name: json_of(each) for name, each in value.items()}
    if type(value) not in LEAVES:
        raise Misfit
    return value


def _leaf(types: frozenset[type]) -> Coder:
    if len(types) == 1:
        (only,) = types

        def unpack_one(value: Any) -> Any:
            if type(value) is not only:
                raise Misfit
            return value

        return Coder(unpack_one, leaves=types)

    def unpack(value: Any) -> Any:
        if type(value) not in types:
            raise Misfit
        return value

    return Coder(unpack, leaves=types)


def _enum(kind: type[Enum]) -> Coder:
    members = {member.value: member for member in kind}

    def unpack(value: Any) -> Any:
        if type(value) is not str:
            raise Misfit
        return members[value]

    return Coder(unpack, None if issubclass(kind, str) else lambda member: member.value)


def _optional(inner: Coder) -> Coder:
    unpack_inner, pack_inner = inner.unpack, inner.pack

    def unpack(value: Any) -> Any:
        return None if value is None else unpack_inner(value)

    if pack_inner is None:
        return Coder(unpack)
    return Coder(unpack, lambda value: None if value is None else pack_inner(value))


def _sequence(inner: Coder, kind: type) -> Coder:
    """Any number of values of one type. A set is sorted, so that equal sets have equal bytes."""
    unpack_inner, pack_inner, leaves = inner.unpack, inner.pack, inner.leaves

    def unpack(value: Any) -> Any:
        if type(value) is not tuple:
            raise Misfit
        if leaves:
            if not leaves.issuperset(map(type, value)):
                raise Misfit
            return value if kind is tuple else kind(value)
        return kind([unpack_inner(each) for each in value])

    if kind is frozenset:
        inner_pack = pack_inner or _itself
        return Coder(unpack, lambda value: sorted(map(inner_pack, value)))
    return Coder(unpack, None if pack_inner is None else lambda value: [pack_inner(each) for each in value])


def _itself(value: Any) -> Any:
    return value


def _fixed(inner: list[Coder]) -> Coder:
    unpacks = [coder.unpack for coder in inner]
    width = len(inner)

    def unpack(value: Any) -> Any:
        if type(value) is not tuple or len(value) != width:
            raise Misfit
        return tuple([unpack_one(each) for unpack_one, each in zip(unpacks, value, strict=True)])

    if all(coder.pack is None for coder in inner):
        return Coder(unpack)
    packs = [coder.pack or _itself for coder in inner]
    return Coder(unpack, lambda value: [pack(each) for pack, each in zip(packs, value, strict=True)])


def _mapping(keys: Coder, values: Coder) -> Coder:
    unpack_key, unpack_value = keys.unpack, values.unpack

    def unpack(value: Any) -> Any:
        if type(value) is not dict:
            raise Misfit
        return {unpack_key(key): unpack_value(each) for key, each in value.items()}

    assert keys.pack is None, "keys are packed as they are"
    pack_value = values.pack
    if pack_value is None:
        return Coder(unpack)
    return Coder(unpack, lambda value: {key: pack_value(each) for key, each in value.items()})
