"""The interface of a target for a workload: look-ups, writes, and a way to fill it.

A page is written once, against these, and runs on Headrace, a database, a cache before one, or nothing at all.

* A *look-up* names a query and the values of its ``?``, of which an IN list is a list.
* A *change* is a row to insert, or columns to set (or add to) where a key matches.
* A page *reads* several look-ups at once: a value may stand for values in the answer of an earlier one (``first``,
  ``all_of``), and a target may ask those together that do not depend on one another. The changes of one ``write``
  belong together: where there are transactions, they are one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

# An error of a whole load run is raised; an error of one request is counted.


class LoadRunError(Exception):
    """The run cannot begin or go on. ``hint`` says what to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RequestFailed(Exception):
    """One page was not answered as it should be. Counted by its text, so the text has no keys in it."""


class NotSent(RequestFailed):
    """Nobody could be reached: the request was surely not done."""


class Lost(RequestFailed):
    """The connection ended, or the time, before the answer came: nobody knows whether it was done."""


Progress = Callable[[str, int, int], None]
"""A table that is loaded, rows so far, rows in all."""


@dataclass(frozen=True, slots=True)
class Query:
    """A named SELECT. Headrace has it as a view, the others are sent its text."""

    name: str
    sql: str
    """The query with ``?`` for each parameter, ``IN (?)`` for a list."""
    lists: tuple[bool, ...]
    """Whether each parameter is an IN list."""

    @classmethod
    def parse(cls, name: str, sql: str) -> Query:
        kinds = re.findall(r"(\bIN\s*\(\s*)?\?", sql, re.IGNORECASE)
        return cls(name, sql.strip(), tuple(bool(each) for each in kinds))


def parse_queries(text: str) -> dict[str, Query]:
    """All ``CREATE EXT VIEW name AS …;`` of a file by their names, in its order."""
    bare = re.sub(r"--.*", "", text)
    found = re.findall(r"CREATE EXT VIEW (\w+) AS\s+(.*?);", bare, re.DOTALL)
    return {name: Query.parse(name, sql) for name, sql in found}


class Lookup(NamedTuple):
    """A tuple, since a page makes fourteen of them, and a frozen dataclass takes four times as long."""

    query: Query
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertRow:
    table: str
    rows: Sequence[Mapping[str, Any]]
    about: Mapping[str, Any] = field(default_factory=dict)
    """The page's knowledge of the rows beside their columns. Only a cache that must be told makes use of it."""


@dataclass(frozen=True, slots=True)
class UpdateRow:
    table: str
    key: Mapping[str, Any]
    set: Mapping[str, Any] = field(default_factory=dict)
    add: Mapping[str, Any] = field(default_factory=dict)
    """Columns to change by an amount."""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteRow:
    table: str
    key: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows to insert, or, where one with that unique key is there, to set ``set`` of."""

    table: str
    rows: Sequence[Mapping[str, Any]]
    key: tuple[str, ...]
    set: tuple[str, ...]


Change = InsertRow | Upsert | UpdateRow | DeleteRow


class Conflict(RequestFailed):
    """A row with such a key is there already: somebody else was faster."""


class Answer(Protocol):
    def rows(self) -> list[dict[str, Any]]:
        """Parsed when asked for: most answers of a page only have to arrive."""
        ...

    def column(self, name: str) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class RowsAnswer:
    """Rows as a driver gives them, each by column name."""

    given: Sequence[Any]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.given]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.given]


class PeerSession(ABC):
    """One request's way to the target; used by one page at a time."""

    async def read(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        """One answer for each, in their order; values may be references. Raises RequestFailed."""
        return await in_rounds(self.ask, lookups)

    @abstractmethod
    async def ask(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        """The answers to look-ups without references: one round of a read."""

    @abstractmethod
    async def write(self, changes: Sequence[Change]) -> int:
        """How many rows changed. Raises RequestFailed, and Conflict where a row with such a key is there already."""

    async def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Program:
    """The objects that a workload needs in a target, beside rows."""

    name: str
    variant: str
    schema: str
    """``CREATE TABLE`` statements in MySQL's SQL."""
    views: str
    """``CREATE VIEW`` statements that the queries are built on; may be empty."""
    queries: Mapping[str, Query]
    query_text: str
    """The queries as ``CREATE EXT VIEW`` statements."""
    indexes: str = ""
    """``CREATE INDEX`` statements that a database needs for the queries, and Headrace does not."""
    tables: tuple[str, ...] = ()
    fill: str = ""
    """Statements that a database runs after its rows are loaded."""
    touched: Callable[[Change], Iterable[str]] | None = None
    """Which entries of a cache a change makes wrong, as far as the application knows."""


@dataclass(frozen=True, slots=True)
class PeerServer:
    """A server's address and a word of its command line, by which its processes are found."""

    host: str
    port: int
    word: str


Rows = Iterable[tuple[str, list[dict[str, Any]]]]
"""Batches of rows to load, each with its table."""


class Target(ABC):
    """Something to put load on: Headrace, or a system to compare it with."""

    name: str
    servers: Sequence[PeerServer] = ()

    @abstractmethod
    async def describe(self) -> dict[str, str]:
        """Version and settings that matter, for the report. Raises LoadRunError when it cannot be reached."""

    @abstractmethod
    async def session(self) -> PeerSession:
        """Raises LoadRunError when the target cannot be reached."""

    async def check(self, program: Program, probe: Lookup | None) -> None:
        """Raises LoadRunError when the program is not there, or ``probe`` has no rows."""
        return

    async def prime(self, program: Program, batches: Rows, total: int, tell: Progress) -> None:
        """Make the program and load the rows. Raises LoadRunError when something is in the way."""
        return

    def notes(self) -> dict[str, Any]:
        """The target's counters since the last call, such as a cache's stale reads."""
        return {}

    async def close(self) -> None:
        return None


# Look-ups of one read that need one another's answers, and how they are asked by whoever cannot say so.
#
# A value of a look-up may stand for values in the answer of one before it in the same read. Headrace takes it so, and
# the read is one request. A database, or a cache before one, is asked in *rounds*, by the application that would have
# to do it: first what needs nothing, then what needs only that, and so on.
#
# ::
#
#     [stories, votes of all stories' id, names of all voters]   ─►  round 1: stories   round 2: votes   round 3: names

Reference = dict[str, tuple[int, str]]
"""A reference as Headrace takes it: the kind, then the place of the look-up, from 0 on, and a column."""
Taken = dict[tuple[str, tuple[int, str]], Any]
"""The values of references."""


def first(place: int, column: str) -> Reference:
    """The value in the first row of that look-up's answer."""
    return {"first": (place, column)}


def all_of(place: int, column: str) -> Reference:
    """The values in all its rows, each once, for an IN list."""
    return {"all": (place, column)}


_NOTHING = RowsAnswer(())
"""The answer to a look-up that was not asked, as it has no value to ask for."""


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
    """The reference's value; None or an empty list if there is none. ``taken`` has the values found before."""
    ((kind, named),) = reference.items()
    if (kind, named) not in taken:
        answer = answers[named[0]]
        assert answer is not None
        values = answer.column(named[1])
        distinct = dict.fromkeys(values)
        distinct.pop(None, None)
        taken[kind, named] = list(distinct) if kind == "all" else next(iter(values), None)
    return taken[kind, named]
