"""The reading side: look-ups that return the bytes of the response, from any thread and any process.

Each answer is the rows' JSON objects joined by commas (the caller adds the brackets), or None where the key is a hole.
A read transaction lasts for one answer, or for one :class:`ReaderSnapshot`, which is for the answers of one request:
while it is open the pages that it sees are not used again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from domains.errors import Unavailable
from domains.language.types import Row
from worker.reader_map import environment
from worker.reader_map.environment import Environment, Transaction
from worker.reader_map.layout import MANY, MANY_CUT, OPEN_BRACE, Bound, ReaderLayout, Spans, Window, count_of, windows
from worker.reader_map.merging import (
    HeldRow,
    Parts,
    answer,
    joined,
    limits,
    ranked_rows,
    sought_rows,
    spanned_rows,
    walk,
)
from worker.reader_map.seek_cache import RecentPages, SoughtRows

Answer = TypeVar("Answer")
Asked = ParamSpec("Asked")

ATTEMPTS = 8
"""Attempts of a read that the growing map interrupts. The map doubles each time, so that a second interruption is rare.
"""


class ReaderSnapshot:
    """One state of the map, for several look-ups; use it in a ``with`` statement and keep it short.

    A look-up raises ``Unavailable`` if the map grew meanwhile in this process (it doubles each time); the quick
    methods of :class:`ReaderClient` try again by themselves.
    """

    def __init__(self, transaction: Transaction, sought: dict[int, SoughtRows] | None = None) -> None:
        """``sought``: what its client remembers, by reader id, if it is for the thread that has this snapshot."""
        self._transaction = transaction
        self._sought = sought
        self.version = transaction.get
        """By a layout's ``version_key``: what changes with every publish to its reader; None before the first."""
        self.get = transaction.get
        """By a key's marker, its state; None of a hole."""

    def __enter__(self) -> ReaderSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, environment.Error):
            raise _grown() from error

    def close(self) -> None:
        self._transaction.abort()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Guard a snapshot that lasts longer than a ``with`` statement: Unavailable where the map grew meanwhile."""
        try:
            yield
        except environment.Error as error:
            raise _grown() from error

    def walk(self, layout: ReaderLayout) -> Iterator[HeldRow]:
        """All that a reader holds; see ``merging.py``."""
        return walk(self._transaction, layout)

    def page(
        self,
        layout: ReaderLayout,
        key: Row,
        seek_values: Row = (),
        low: Bound | None = None,
        high: Bound | None = None,
        limit: int | None = None,
        offset: int = 0,
        spans: Spans = (),
    ) -> bytes | None:
        """The rows of one key; None if it is a hole.

        ``seek_values`` are those of the reader's seek columns. If they are fewer, the first column without one may
        have a range, given by ``low`` and ``high`` as (value, inclusive). ``limit`` and ``offset`` replace the
        reader's own.
        """
        marker = layout.marker(key)
        state = self._transaction.get(marker)
        if state is None:
            return None
        if layout.sought and self._remembers(layout, state, seek_values, limit, offset):
            return self._sought_page(layout, marker, state, (seek_values,))
        if layout.plain and limit is None and not offset and (not state or state[0] == OPEN_BRACE):
            # The most common answer is one row or none.
            return (state.partition(b"\x00")[0] if layout.has_suffix else state) or layout.empty or b""
        limit, offset = limits(layout.reader, limit, offset)
        if spans:
            most = None if limit is None else offset + limit
            parts = windows(layout, seek_values, low, high, spans)
            return answer(layout, spanned_rows(self._transaction, layout, marker, state, parts, most), limit, offset)
        (part,) = windows(layout, seek_values, low, high, ())
        if state and state[0] == MANY and part.everything and part.ordered:
            # The common page: a walk that takes values only, 0.1 µs a row.
            cursor = self._transaction.cursor()
            cursor.set_key(marker)
            last = count_of(state) if limit is None else min(count_of(state), offset + limit)
            return b",".join(islice(cursor.iternext(False, True), 1 + offset, 1 + max(last, offset)))
        most = None if limit is None else offset + limit
        return answer(layout, ranked_rows(self._transaction, layout, marker, state, part, most), limit, offset)

    def pages(self, layout: ReaderLayout, keys: Sequence[Row]) -> list[bytes | None]:
        """``page`` of each key, in their order: 0.7 µs for a key of one row, most of it LMDB's walk down to it."""
        if not layout.plain:
            return [self.page(layout, key) for key in keys]
        states = list(map(self._transaction.get, layout.markers(keys)))
        if layout.has_suffix:
            return [
                state.partition(b"\x00")[0] if state and state[0] == OPEN_BRACE else self._other(layout, key, state)
                for key, state in zip(keys, states, strict=True)
            ]
        return [
            state if state and state[0] == OPEN_BRACE else self._other(layout, key, state)
            for key, state in zip(keys, states, strict=True)
        ]

    def integer_pages(self, layout: ReaderLayout, values: Sequence[int]) -> list[bytes | None]:
        """``pages`` of the keys ``(value,)`` of a plain reader by one INTEGER: 0.6 µs each, most of it LMDB's."""
        states = list(map(self._transaction.get, layout.integer_markers(values)))
        if layout.has_suffix:
            return [
                state.partition(b"\x00")[0]
                if state and state[0] == OPEN_BRACE
                else self._other(layout, (value,), state)
                for value, state in zip(values, states, strict=True)
            ]
        return [
            state if state and state[0] == OPEN_BRACE else self._other(layout, (value,), state)
            for value, state in zip(values, states, strict=True)
        ]

    def _other(self, layout: ReaderLayout, key: Row, state: bytes | None) -> bytes | None:
        """The answer for a plain key that has not just one row."""
        if state is None:
            return None
        return self.page(layout, key) if state else layout.empty or b""

    def rows(
        self,
        layout: ReaderLayout,
        keys: Sequence[Row],
        seeks: Sequence[Row] = ((),),
        low: Bound | None = None,
        high: Bound | None = None,
        limit: int | None = None,
        offset: int = 0,
        spans: Spans = (),
    ) -> bytes | None:
        """The rows of several keys as one answer (an IN list): order, limit and offset hold across all of them.

        ``seeks`` are seek values as :meth:`page` takes them, several where a seek column has a list. Without an order
        the keys' rows follow one another, and within a key those of each of the ``seeks``. What is named twice counts
        once. None if any of the keys is a hole (:meth:`holes` says which).
        """
        distinct = tuple(dict.fromkeys(keys))
        if layout.follows and limit is None and not offset and low is None and high is None and not spans:
            # The common IN list: 0.7 µs a key, against 4 where each row is taken with its rank.
            pages = self.pages(layout, distinct)
            return None if None in pages else b",".join([page for page in pages if page])
        if layout.sought and len(distinct) == 1:
            marker = layout.marker(distinct[0])
            state = self._transaction.get(marker)
            if state is None:
                return None
            if self._remembers(layout, state, seeks[0], limit, offset):
                return self._sought_page(layout, marker, state, seeks)
        parts = self.parts(layout, distinct, seeks, low, high, limit, offset, spans)
        return None if parts is None else joined(layout, parts, limit, offset)

    def parts(
        self,
        layout: ReaderLayout,
        keys: Sequence[Row],
        seeks: Sequence[Row] = ((),),
        low: Bound | None = None,
        high: Bound | None = None,
        limit: int | None = None,
        offset: int = 0,
        spans: Spans = (),
    ) -> Parts | None:
        """The parts for ``joined``: as many rows of each key as the whole answer can need; None if any key is a
        hole."""
        limit, offset = limits(layout.reader, limit, offset)
        most = None if limit is None else offset + limit
        wanted: list[Window] = []
        found: Parts = []
        for key in keys:
            marker = layout.marker(key)
            state = self._transaction.get(marker)
            if state is None:
                return None
            if not state:
                found.append([])  # As most keys are in which many values are sought: no window is made for nothing.
                continue
            if not wanted:
                made = (windows(layout, values, low, high, spans) for values in dict.fromkeys(seeks))
                wanted = list(chain.from_iterable(made))
            found.append(sought_rows(self._transaction, layout, marker, state, wanted, most) if wanted else [])
        return found

    def _remembers(self, layout: ReaderLayout, state: bytes, seek: Row, limit: int | None, offset: int) -> bool:
        """Whether rows of a key in this state are sought by equality alone, and may be remembered."""
        given = len(seek) == len(layout.reader.seek) and limit is None and not offset
        return given and self._sought is not None and not (state and state[0] == MANY_CUT)

    def _sought_page(self, layout: ReaderLayout, marker: bytes, state: bytes, seeks: Sequence[Row]) -> bytes:
        assert self._sought is not None
        rows = self._sought.get(layout.reader_id)
        if rows is None:
            rows = self._sought[layout.reader_id] = SoughtRows()
        return rows.page(self._transaction, marker, state, layout.seek_starts(seeks))

    def whole_page(self, layout: ReaderLayout, state: bytes) -> bytes | None:
        """The rows of a key in this state of a plain reader; None where they are not in the state, but behind it."""
        if state and state[0] != OPEN_BRACE:
            return None
        return (state.partition(b"\x00")[0] if layout.has_suffix else state) or layout.empty or b""

    def sought_page(self, layout: ReaderLayout, marker: bytes, state: bytes, seeks: Sequence[Row]) -> bytes | None:
        """The rows with these values of all seek columns, of a ``sought`` reader's key in this state. None where it is
        not known: rows of the key are cut, or this snapshot is not of the thread that remembers them."""
        if not state:
            return b""
        return (
            self._sought_page(layout, marker, state, seeks)
            if self._remembers(layout, state, seeks[0], None, 0)
            else None
        )

    def count(self, layout: ReaderLayout, key: Row) -> int:
        """How many rows a key has; 0 of a hole."""
        state = self._transaction.get(layout.marker(key))
        return 0 if not state else 1 if state[0] == OPEN_BRACE else count_of(state)

    def states(self, markers: Sequence[bytes]) -> list[bytes | None]:
        """A value for each key, by its marker, that stands as long as all of its rows do; None for a hole."""
        return list(map(self._transaction.get, markers))

    def holes(self, layout: ReaderLayout, keys: Sequence[Row]) -> list[Row]:
        """The keys that are not filled, each once."""
        return [key for key in dict.fromkeys(keys) if self._transaction.get(layout.marker(key)) is None]


def _grown() -> Unavailable:
    return Unavailable("the reader map grew during a read", hint="read again")


def _alone(
    asked: Callable[Concatenate[ReaderSnapshot, Asked], Answer],
) -> Callable[Concatenate[ReaderClient, Asked], Answer]:
    """The client's method that is a snapshot's in a transaction of its own."""

    def read(client: ReaderClient, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        return client._read(lambda snapshot: asked(snapshot, *args, **kwargs))

    return read


class ReaderClient:
    """Opens the reader map that another process writes in ``path``. Unavailable if there is none."""

    def __init__(self, path: str | Path) -> None:
        self._adopt(environment.attach(Path(path)), owned=True)

    @classmethod
    def sharing(cls, shared: Environment) -> ReaderClient:
        """A client on an environment that this process has open (see :meth:`ReaderMap.client`)."""
        client = cls.__new__(cls)
        client._adopt(shared, owned=False)
        return client

    def _adopt(self, opened: Environment, *, owned: bool) -> None:
        self._environment = opened
        self._begin: Callable[[], Transaction] = opened.begin
        self._owned = owned
        self._recent: dict[int, RecentPages] = {}
        self._sought: dict[int, SoughtRows] = {}

    def snapshot(self) -> ReaderSnapshot:
        try:
            return ReaderSnapshot(self._begin(), self._sought)
        except environment.Error:
            return self._attempt(lambda: ReaderSnapshot(self._begin(), self._sought))

    def page(
        self,
        layout: ReaderLayout,
        key: Row,
        seek_values: Row = (),
        low: Bound | None = None,
        high: Bound | None = None,
        limit: int | None = None,
        offset: int = 0,
        spans: Spans = (),
    ) -> bytes | None:
        """:meth:`ReaderSnapshot.page` in a transaction of its own: 1 µs for a key of one row."""
        if layout.plain and limit is None and not offset:
            try:
                transaction = self._begin()
                state = transaction.get(layout.marker(key))
                transaction.abort()
            except environment.Error:
                pass  # the general way below tries again, and raises what remains
            else:
                if not state:
                    return None if state is None else layout.empty or b""
                if state[0] == OPEN_BRACE:
                    return state.partition(b"\x00")[0] if layout.has_suffix else state
        return self._read(lambda snapshot: snapshot.page(layout, key, seek_values, low, high, limit, offset, spans))

    pages = _alone(ReaderSnapshot.pages)

    def integer_pages(self, layout: ReaderLayout, values: Sequence[int]) -> list[bytes | None] | None:
        """:meth:`ReaderSnapshot.integer_pages` in a transaction of its own; None if a value is beyond 64 bits.

        What was read since the reader last changed is not read again (``seek_cache.py``): 0.05 µs a key then.
        """
        return self._read(lambda snapshot: self.recent_pages(snapshot, layout, values))

    def recent_pages(
        self, snapshot: ReaderSnapshot, layout: ReaderLayout, values: Sequence[int]
    ) -> list[bytes | None] | None:
        """:meth:`integer_pages` in this snapshot, which is one of this client."""
        version = snapshot.version(layout.version_key)
        recent = self._recent.get(layout.reader_id)
        if recent is None or recent.version != version:
            recent = self._recent[layout.reader_id] = RecentPages(version)
        pages = list(map(recent.pages.get, values))
        if not all(pages) and None in pages:  # Of a thousand pages 4 µs, where the second alone takes 12.
            missing = [value for value, page in zip(values, pages, strict=True) if page is None]
            try:
                found = snapshot.integer_pages(layout, missing)
            except struct.error:
                return None
            recent.remember(missing, found)
            rest = iter(found)
            pages = [next(rest) if page is None else page for page in pages]
        return pages

    rows = _alone(ReaderSnapshot.rows)
    parts = _alone(ReaderSnapshot.parts)
    holes = _alone(ReaderSnapshot.holes)

    def _read(self, read: Callable[[ReaderSnapshot], Answer]) -> Answer:
        def once() -> Answer:
            transaction = self._begin()
            try:
                return read(ReaderSnapshot(transaction))
            finally:
                transaction.abort()

        return self._attempt(once)

    def _attempt(self, read: Callable[[], Answer]) -> Answer:
        for _ in range(ATTEMPTS):
            try:
                return read()
            except environment.Error as error:
                if not environment.again(self._environment, error):
                    raise Unavailable(f"the reader map cannot be read: {error}") from error
        raise Unavailable("the reader map is closed")

    def close(self) -> None:
        if self._owned:
            self._environment.close()


__all__ = ["ReaderClient", "ReaderSnapshot", "Window"]


# The reader maps as one request sees them: each in one state, however many look-ups the request makes.
#
# ::
#
#     request ──► in_one_state ──► Reading ── [client] ──► ReaderSnapshot       the first time; then the same one
#                      ▲                          └──► …                        (a cluster's host has several maps)
#                      └── a map grew meanwhile: all of it again
#
# Beginning a transaction takes as long as looking up two keys, and a page of a site makes a dozen look-ups. What is
# read of one map is thus of one moment: no write, and no batch of writes, is seen by one look-up and not by another
# one. Two maps are two workers', which publish each for itself.


class MapReading(dict[ReaderClient, ReaderSnapshot]):
    """``reading[client]`` is that map's state, of which there is one for each client. Keep it short: while it is open,
    pages that it sees are not used again.

    A dictionary, as it is asked for a state with each look-up of a request: 0.05 µs so, and 0.3 by a method.
    """

    def __missing__(self, client: ReaderClient) -> ReaderSnapshot:
        found = self[client] = client.snapshot()
        return found

    def close(self) -> None:
        for snapshot in self.values():
            snapshot.close()


def in_one_state(answer: Callable[[MapReading], Answer]) -> Answer:
    """The result of ``answer`` on the maps; it is called again where one of them grew meanwhile. Raises Unavailable."""
    for _ in range(ATTEMPTS):
        reading = MapReading()
        try:
            return answer(reading)
        except environment.Error as error:
            if not environment.was_interrupted(error):
                raise Unavailable(f"the reader map cannot be read: {error}") from error
        finally:
            reading.close()
    raise Unavailable("the reader map is closed")
