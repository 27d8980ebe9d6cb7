"""Random objects of the wire's vocabulary, made from the types of their fields."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from inspect import isclass
from random import Random
from types import NoneType, UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from domains.errors import HeadraceError
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import BIGINT, DOUBLE, TEXT
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import LinkUpdate, link_between
from worker.wire.vocabulary import ERRORS, EXPRESSIONS, details_of, sent_fields

TEXTS = ("", "a", "votes@3", "žluťoučký", "\ud800 alone", "\x00", "x" * 300)
INTEGERS = (0, 1, -1, 7, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 10**40, -(10**40))
DECIMALS = ("0", "-0.00", "1.50", "1E+3", "-123456789012345678901234567890.123", "0E-30")
LEAVES: dict[type, Callable[[Random], Any]] = {
    NoneType: lambda random: None,
    bool: lambda random: random.random() < 0.5,
    int: lambda random: random.choice(INTEGERS),
    float: lambda random: random.choice((0.0, 1.5, -1e300, 5e-324, random.random())),
    str: lambda random: random.choice(TEXTS),
    bytes: lambda random: random.choice((b"", b"\x00\xff", random.randbytes(40))),
    Decimal: lambda random: Decimal(random.choice(DECIMALS)),
    timedelta: lambda random: timedelta(microseconds=random.randrange(-(10**13), 10**13)),
}


def value(random: Random, hint: Any, depth: int = 0) -> Any:
    """Anything that a field of this type may hold. Containers get smaller with depth."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if hint is Any:
        return _json(random, depth)
    if hint in LEAVES:
        return LEAVES[hint](random)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if set(arguments) >= set(EXPRESSIONS):
            return None if NoneType in arguments and random.random() < 0.3 else expression(random)
        return value(random, random.choice(arguments), depth + 1)
    count = random.choice((0, 1, 1, 2, 3)[: max(1, 5 - depth)])
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(value(random, argument, depth + 1) for argument in arguments)
    if origin in (tuple, list, frozenset):
        return origin(value(random, arguments[0], depth + 1) for _ in range(count))
    if origin is dict:
        return {value(random, arguments[0], depth + 1): value(random, arguments[1], depth + 1) for _ in range(count)}
    assert isclass(hint), hint
    if issubclass(hint, Enum):
        return random.choice(list(hint))
    return error(random) if issubclass(hint, HeadraceError) else instance(random, hint, depth)


def instance(random: Random, kind: type, depth: int = 0) -> Any:
    """An object of a class of the vocabulary."""
    hints = get_type_hints(kind)
    return kind(**{field.name: value(random, hints[field.name], depth + 1) for field in sent_fields(kind)})


def expression(random: Random, depth: int = 0) -> Expression:
    if depth < 4 and random.random() < 0.5:
        arguments = tuple(expression(random, depth + 1) for _ in range(random.randrange(4)))
        return Call(random.choice(TEXTS), arguments, BIGINT)
    if random.random() < 0.5:
        return Field(random.randrange(9), random.choice((BIGINT, TEXT, DOUBLE)))
    return Constant(LEAVES[random.choice((NoneType, int, str, float, bytes, Decimal))](random), TEXT)


def error(random: Random, kind: type[HeadraceError] | None = None) -> HeadraceError:
    kind = kind or random.choice(list(ERRORS.values()))
    hint = random.choice((None, "do something else"))
    made = kind(random.choice(TEXTS), hint=hint)
    for name in details_of(kind):
        setattr(made, name, random.choice((None, 3, True)))
    return made


def plain(thing: Any) -> Any:
    """To compare by: errors have no equality, and 1, 1.0, True and Decimal(1) are equal and not the same."""
    if isinstance(thing, HeadraceError):
        return (type(thing), thing.message, thing.hint, [getattr(thing, name) for name in details_of(type(thing))])
    if isinstance(thing, tuple | list):
        return (type(thing), [plain(each) for each in thing])
    if isinstance(thing, frozenset):
        return (frozenset, thing)
    if isinstance(thing, dict):
        return (dict, [(plain(name), plain(each)) for name, each in thing.items()])
    if type(thing) in LEAVES or isinstance(thing, Enum):
        return (type(thing), str(thing) if isinstance(thing, Decimal) else thing)
    return (type(thing), [plain(getattr(thing, field.name)) for field in sent_fields(type(thing))])


def update(sequence: int, text: str = "", sender: int = 1, receiver: int = 2) -> LinkUpdate:
    """The packet number ``sequence`` of a link."""
    link = link_between(DomainIndex(sender), DomainIndex(receiver))
    rows = (((sequence, text), 1),)
    return LinkUpdate(link, sequence, 1, {"votes@1": sequence}, (), ((NodeIndex(4), rows),))


def _json(random: Random, depth: int) -> Any:
    kind = random.choice((list, dict, None, None)) if depth < 4 else None
    if kind is list:
        return [_json(random, depth + 1) for _ in range(random.randrange(3))]
    if kind is dict:
        return {random.choice(TEXTS): _json(random, depth + 1) for _ in range(random.randrange(3))}
    return LEAVES[random.choice((NoneType, bool, int, float, str))](random)
