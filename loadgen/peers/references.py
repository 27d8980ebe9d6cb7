"""Look-ups of one read that need one another's answers, and how they are asked by whoever cannot say so.

A value of a look-up may stand for values in the answer of one before it in the same read. Headrace is told so, and the
read is one request. A database, or a cache before one, is asked in *rounds*, by the application that would have to do
it: first what needs nothing, then what needs only that, and so on.

::

    [stories, votes of all stories' id, names of all voters]   ─►  round 1: stories   round 2: votes   round 3: names
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from loadgen.peers.store import Answer, Lookup

Reference = dict[str, tuple[int, str]]
"""As Headrace takes it: the kind, then the place of the look-up, from 0 on, and a column."""
Taken = dict[tuple[str, tuple[int, str]], Any]
"""What references stood for."""


def first(place: int, column: str) -> Reference:
    """The value in the first row of that look-up's answer."""
    return {"first": (place, column)}


def all_of(place: int, column: str) -> Reference:
    """The values in all its rows, each once, for an IN list."""
    return {"all": (place, column)}


class Nothing:
    """The answer to a look-up that was not asked, as it has no value to ask for."""

    def rows(self) -> list[dict[str, Any]]:
        return []

    def column(self, name: str) -> list[Any]:
        return []


_NOTHING = Nothing()


async def in_rounds(
    ask: Callable[[Sequence[Lookup]], Awaitable[Sequence[Answer]]], lookups: Sequence[Lookup]
) -> Sequence[Answer]:
    """The answers in the order of the look-ups, each of which ``ask`` gets once, with its values written out.

    What refers to an answer without rows is not asked.
    """
    answers: list[Answer | None] = [None] * len(lookups)
    taken: Taken = {}
    pending = list(range(len(lookups)))
    while pending:
        asked, places, later = [], [], []
        for place in pending:
            query, values = lookups[place]
            if dict not in map(type, values):
                asked.append(lookups[place])
                places.append(place)
            elif any(type(value) is dict and answers[_source(value)] is None for value in values):
                later.append(place)
            else:
                given = tuple([_taken(value, answers, taken) if type(value) is dict else value for value in values])
                if None in given or [] in given:
                    answers[place] = _NOTHING
                else:
                    asked.append(Lookup(query, given))
                    places.append(place)
        if asked:
            for place, answer in zip(places, await ask(asked), strict=True):
                answers[place] = answer
        assert len(later) < len(pending), "a reference leads forward"
        pending = later
    return cast(list[Answer], answers)


def _source(reference: Reference) -> int:
    ((place, _),) = reference.values()
    return place


def _taken(reference: Reference, answers: Sequence[Answer | None], taken: Taken) -> Any:
    """What it stands for: None or an empty list where there is nothing. ``taken`` is what was taken before."""
    ((kind, named),) = reference.items()
    if (kind, named) not in taken:
        answer = answers[named[0]]
        assert answer is not None
        values = answer.column(named[1])
        distinct = dict.fromkeys(values)
        distinct.pop(None, None)
        taken[kind, named] = list(distinct) if kind == "all" else next(iter(values), None)
    return taken[kind, named]
