"""References between the look-ups of one request: a value that is to be taken from another one's answer.

::

    lookups[0]   {"view": "StoryByName", "keys": [["abc"]]}                       → one row with "id": 7
    lookups[1]   {"view": "Comments", "keys": [[{"first": [0, "id"]}]]}           as if it said [[7]]
    lookups[2]   {"view": "UsersById", "keys": [[{"all": [1, "user_id"]}]]}       as if it said [[[3, 5, 8]]]

A reference stands where a value of a key may stand, and names a look-up that comes *before* its own by its place in the
request, from 0 on, and a column of that one's view:

``first``  the value in the first row of the answer; NULL where there is none, as of a subquery in SQL
``all``    the list of the values in all rows, each once, for a parameter that takes a list (IN)
``each``   makes a key for each row of the answer; several in a key are of the same row, and equal keys count once

NULL is left out by ``all`` and ``each``. What ``all`` leaves empty is NULL: nothing is IN it.

So each look-up means what it would mean with the values written out, and that is how it is carried out, and kept:
what it reads depends on nothing but its own text and the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

import orjson

from api.encoding import parse, serialize
from controller.deployment import ViewInfo
from controller.lookups.binding import KEYS_PER_LOOKUP
from domains.errors import BadRequest, LimitExceeded
from domains.language.coercion import named_value
from domains.language.types import Column, Kind
from domains.plan.graph import ParameterKind

EXAMPLE = 'for example {"first": [0, "id"]}, {"all": [0, "id"]} or {"each": [0, "id"]}'
KINDS = ("first", "all", "each")


class Take(NamedTuple):
    """A reference's columns; several only by ``each``."""

    kind: str
    columns: tuple[str, ...]


class Reference(NamedTuple):
    place: int
    """The number of the look-up whose answer it is."""
    take: Take


class Values(NamedTuple):
    """The value of a reference: a value, a list of them, or a list of rows, by its kind."""

    given: Any
    text: bytes
    """The same as JSON."""


class Blank(NamedTuple):
    """The place in a text where a key is filled in."""

    at: int | str
    reference: int
    """Which one of the look-up's."""
    column: int
    """Which one of the reference's."""


class KeyForm(NamedTuple):
    key: list[Any] | dict[str, Any]
    blanks: Sequence[Blank]
    each: int | None
    """The reference that makes several keys of it."""


@dataclass(slots=True)
class LookupText:
    """One look-up as it was asked for."""

    view: str
    keys: list[Any]
    references: Sequence[Reference] = ()
    forms: Sequence[KeyForm] = ()
    """The form of each key, where there are references."""
    checked: ViewInfo | None = field(default=None, compare=False)
    """The view that the references were found to suit."""

    def filled(self, values: Sequence[Values], made: int = 0) -> list[Any]:
        """The keys with what the references stand for; ``made``: of other look-ups of the request. Raises
        LimitExceeded, before more are made."""
        keys: list[Any] = []
        for form in self.forms:
            rows = ((),) if form.each is None else values[form.each].given
            if made + len(keys) + len(rows) > KEYS_PER_LOOKUP:
                raise LimitExceeded(
                    f"references make more than {KEYS_PER_LOOKUP} keys in one request", hint="send several"
                )
            for row in rows:
                key: Any = form.key.copy()
                for at, number, column in form.blanks:
                    key[at] = row[column] if number == form.each else values[number].given
                keys.append(key)
        return keys

    def check_lists(self, info: ViewInfo) -> None:
        """Raises BadRequest where ``all`` stands for a parameter that takes one value, however many there are now."""
        if self.checked is info:
            return
        kinds = {each.name.lower(): each.kind for each in info.parameters}
        by_place = list(kinds.values())
        for form in self.forms:
            for at, number, _ in form.blanks:
                if self.references[number].take.kind != "all":
                    continue
                kind = kinds.get(at.lower()) if isinstance(at, str) else by_place[at] if at < len(by_place) else None
                if kind is not None and kind is not ParameterKind.IN:
                    raise BadRequest(
                        f'"all" is a list, and a parameter of view "{info.name}" that is compared by {kind.value} '
                        "takes one value",
                        hint='"first" is one value, and "each" makes a key for each',
                    )
        self.checked = info


def wanted_of(view: str, keys: list[Any]) -> LookupText:
    """Finds the references in the keys. Raises BadRequest."""
    if not any(_has_blanks(key) for key in keys):
        return LookupText(view, keys)
    references: list[Reference] = []
    forms = [_form_of(key, references) for key in keys]
    return LookupText(view, keys, references, forms) if references else LookupText(view, keys)


def _has_blanks(key: Any) -> bool:
    values = key.values() if type(key) is dict else key if type(key) is list else ()
    return dict in map(type, values)


def _form_of(key: Any, references: list[Reference]) -> KeyForm:
    if type(key) not in (list, dict):
        raise BadRequest("a key is a list or an object")
    blanks: list[Blank] = []
    rows: list[tuple[int | str, int, str]] = []
    for at, value in key.items() if type(key) is dict else enumerate(key):
        if type(value) is not dict or named_value(value) is not None:
            continue
        kind, place, column = _named(value)
        if kind == "each":
            rows.append((at, place, column))
        else:
            blanks.append(Blank(at, len(references), 0))
            references.append(Reference(place, Take(kind, (column,))))
    if not rows:
        return KeyForm(key, blanks, None)
    places = {place for _, place, _ in rows}
    if len(places) > 1:
        raise BadRequest(
            f'"each" in one key is of the rows of one look-up, not of {len(places)}', hint="ask for more of them by all"
        )
    blanks += [Blank(at, len(references), column) for column, (at, _, _) in enumerate(rows)]
    references.append(Reference(places.pop(), Take("each", tuple(column for _, _, column in rows))))
    return KeyForm(key, blanks, len(references) - 1)


def _named(value: dict[str, Any]) -> tuple[str, int, str]:
    """Kind, place and column of what must be a reference."""
    named: Any
    kind, named = next(iter(value.items()), ("", None))
    well = len(value) == 1 and kind in KINDS and type(named) is list and len(named) == 2
    if not well or type(named[0]) is not int or named[0] < 0 or type(named[1]) is not str:
        raise BadRequest("an object in a key must be a reference to another look-up's answer", hint=EXAMPLE)
    return kind, named[0], named[1]


def not_earlier(reference: Reference, place: int) -> BadRequest:
    """The reference of the look-up at this place leads to itself or onwards."""
    return BadRequest(
        f"lookups[{place}] refers to lookups[{reference.place}], which does not come before it",
        hint="look-ups count from 0",
    )


def values_of(take: Take, answer: bytes, info: ViewInfo) -> Values:
    """Columns' values from the answer ``[[row, …], …]`` of a view. Raises BadRequest where it has no such column."""
    columns = [_taken(answer, _column(info, named)) for named in take.columns]
    given: Any
    if take.kind == "first":
        given = columns[0][0] if columns[0] else None
    elif take.kind == "all":
        given = [value for value in dict.fromkeys(columns[0]) if value is not None] or None
    else:
        given = [row for row in dict.fromkeys(zip(*columns, strict=True)) if None not in row]
    return Values(given, serialize(given))


def _taken(answer: bytes, column: Column) -> list[Any]:
    """The column's values, row by row."""
    values = [row[column.name] for page in orjson.loads(answer) for row in page]
    if column.type.kind is Kind.INTEGER and float in map(type, values):  # One is beyond 64 bits (``encoding.py``).
        return [row[column.name] for page in parse(answer) for row in page]
    return values


def _column(info: ViewInfo, named: str) -> Column:
    """Raises BadRequest."""
    lower = named.lower()
    for column in info.columns:
        if column.name.lower() == lower:
            return column
    names = {column.name.lower(): column.name for column in info.columns}
    near = get_close_matches(lower, list(names), n=1)
    hint = f'did you mean "{names[near[0]]}"?' if near else "its columns are " + ", ".join(names.values())
    raise BadRequest(f'view "{info.name}" has no column "{named}"', hint=hint)
