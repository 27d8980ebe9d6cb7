"""JSON paths: ``$.key``, ``$."a key"``, ``$[0]``, ``$[last-1]``, ``$[1 to 3]``, ``.*``, ``[*]``, ``**``.

A path is a tuple of legs. What is no array is, to a leg in brackets, an array of it alone, as in MySQL: ``$[0]`` of 7
is 7. A path with ``*``, ``**`` or a range names any number of values, any other at most one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from domains.language.documents import string_text


@dataclass(frozen=True, slots=True)
class MemberLeg:
    key: str


@dataclass(frozen=True, slots=True)
class CellLeg:
    """The place of an element from the start, or, where ``from_last``, from the last one towards the start."""

    place: int
    from_last: bool = False

    def of(self, length: int) -> int:
        """The place in an array of that length; it may be outside of it."""
        return length - 1 - self.place if self.from_last else self.place


@dataclass(frozen=True, slots=True)
class CellsLeg:
    """All elements from one to another."""

    first: CellLeg
    last: CellLeg


@dataclass(frozen=True, slots=True)
class EveryMember:
    """``.*``"""


@dataclass(frozen=True, slots=True)
class Everything:
    """``**``: the value, and all that is in it."""


Leg = MemberLeg | CellLeg | CellsLeg | EveryMember | Everything
Path = tuple[Leg, ...]
Place = tuple[str | int, ...]
"""The place of a value in a document: keys of objects, and places in arrays from 0."""

_CELL = r"(last(?:\s*-\s*(\d{1,10}))?|\d{1,10})"
_LEG = re.compile(
    r'\s*(?:\.\s*(?:(?P<every>\*)|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<plain>[^\W\d][\w$]*|\$[\w$]*))'
    rf"|\[\s*(?:(?P<cells>\*)|(?P<first>{_CELL})(?:\s+to\s+(?P<last>{_CELL}))?)\s*\]|(?P<deep>\*\*))"
)
ALL_CELLS = CellsLeg(CellLeg(0), CellLeg(0, from_last=True))


@lru_cache(1024)
def path_of(text: str) -> Path | None:
    """None if the text is no path."""
    text = text.strip()
    if text[:1] != "$":
        return None
    legs: list[Leg] = []
    at = 1
    while at < len(text):
        match = _LEG.match(text, at)
        leg = None if match is None else _leg(match)
        if match is None or leg is None:
            return None
        legs.append(leg)
        at = match.end()
    return None if legs and isinstance(legs[-1], Everything) else tuple(legs)


def _leg(match: re.Match[str]) -> Leg | None:
    if match["deep"]:
        return Everything()
    if match["every"]:
        return EveryMember()
    if match["cells"]:
        return ALL_CELLS
    if match["first"]:
        first = _cell(match["first"])
        return first if match["last"] is None else CellsLeg(first, _cell(match["last"]))
    if match["plain"]:
        return MemberLeg(match["plain"])
    try:
        return MemberLeg(json.loads(match["quoted"]))
    except ValueError:
        return None


def _cell(text: str) -> CellLeg:
    if not text.startswith("last"):
        return CellLeg(int(text))
    back = text[4:].replace("-", "").strip()
    return CellLeg(int(back or 0), from_last=True)


def is_single(path: Path) -> bool:
    """Whether it names one value at most."""
    return all(isinstance(leg, (MemberLeg, CellLeg)) for leg in path)


def found(value: Any, path: Path) -> list[Any]:
    """The values that a path names, in the order of the document."""
    if is_single(path):
        for leg in path:
            step = _one(value, leg)
            if not step:
                return []
            value = step[0]
        return [value]
    return list(placed(value, path).values())


def placed(value: Any, path: Path) -> dict[Place, Any]:
    """The same by place: what two ways lead to (``**`` and then ``[0]`` of no array) is found once."""
    places: dict[Place, Any] = {(): value}
    for leg in path:
        places = {(*at, *further): each for at, held in places.items() for further, each in _steps(held, leg)}
    return places


def _one(value: Any, leg: Leg) -> list[Any]:
    return [each for _, each in _steps(value, leg)]


def _steps(value: Any, leg: Leg) -> Iterator[tuple[Place, Any]]:
    """What a leg leads to, each with where it is in the value."""
    match leg:
        case MemberLeg(key):
            if isinstance(value, dict) and key in value:
                yield (key,), value[key]
        case EveryMember():
            if isinstance(value, dict):
                yield from (((key,), each) for key, each in value.items())
        case CellLeg():
            length = len(value) if isinstance(value, list) else 1
            at = leg.of(length)
            if 0 <= at < length:
                yield ((at,), value[at]) if isinstance(value, list) else ((), value)
        case CellsLeg(first, last):
            length = len(value) if isinstance(value, list) else 1
            if isinstance(value, list):
                for at in range(max(first.of(length), 0), min(last.of(length), length - 1) + 1):
                    yield (at,), value[at]
            elif leg != ALL_CELLS and first.of(1) <= 0 <= last.of(1):
                yield (), value
        case Everything():
            yield from everything((), value)


def everything(at: Place, value: Any) -> Iterator[tuple[Place, Any]]:
    """The value at a place, and all that is in it, each with its own place."""
    yield at, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from everything((*at, key), each)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from everything((*at, place), each)


_NAME = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")


def text_of_place(place: Place) -> str:
    """The path that names what is there."""
    legs = ["$"]
    for each in place:
        if isinstance(each, int):
            legs.append(f"[{each}]")
        else:
            legs.append(f".{each}" if _NAME.fullmatch(each) else f".{string_text(each)}")
    return "".join(legs)
