"""What somebody watches: after each batch, the look-ups that it may have changed are read again, on the one thread that
writes the reader map. So rows and clock are of the same moment::

    dataflow thread                                flusher
    WatchedReaders ── batch.watching, clocks ───►  Watches ── rows of what the batch touched, and clocks ──► Onlooker
                                                      └────── a hole: it is asked for again ──► inbox

A look-up's rows are read whole, since the map holds them in the order of the answer: whatever became of its keys (rows
that came and went, a fill, an eviction), what it shows now is right, and whoever watches takes the difference. A batch
pays for a dictionary's look-up of each key that it changes in a watched reader, and nothing where nobody watches.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from domains.errors import HeadraceError
from domains.language.types import Row
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock
from worker.dataflow.batch import Batch, Drop, Ended, Look, Onlooker, Seen, Watch, WatchedReader
from worker.dataflow.hosted_domain import HostedDomain
from worker.reader_map import ReaderClient

PIN_SECONDS = 1.0
"""Between two reports of all watched keys as read: what they stand on is evicted last, too."""
REFILLS_A_SECOND, REFILLS_OF_EACH, FEW_REFILLS = 2_000, 4, 200
"""Watched keys that were evicted and are asked for again: in all, and of each watch on average, from a few on. With
more the dataflow would do nothing else, so beyond it who has watched longest is told so."""

FILLS_IN_VAIN = 8
"""After so many fills of a look-up, each of which was evicted before it could be shown, the oldest watch ends."""

_log = logging.getLogger("headrace.worker")


class Mailbox:
    """A watcher that keeps of each look-up what it shows last, until that is taken: it grows with what is watched, and
    not with what is written. ``wake`` is called by the flusher's thread when there are rows again; clocks alone wait
    for somebody to look."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = Lock()
        self._seen: dict[Watch, Seen] = {}
        self._clocks: dict[WatchedReader, Clock] = {}

    def tell(self, seen: Sequence[tuple[Watch, Seen]], clocks: Mapping[WatchedReader, Clock]) -> None:
        with self._lock:
            wakes = bool(seen) and not self._seen
            self._seen.update(seen)
            self._clocks.update(clocks)
        if wakes:
            self._wake()

    def take(self) -> tuple[dict[Watch, Seen], dict[WatchedReader, Clock]]:
        """All that was told since the last time, as of one moment."""
        with self._lock:
            taken, self._seen, self._clocks = (self._seen, self._clocks), {}, {}
        return taken


class WatchedReaders:
    """The dataflow thread's part: which readers are watched, and what they reflect at the end of each batch."""

    def __init__(self) -> None:
        self.counts: dict[WatchedReader, int] = {}
        self._told: dict[WatchedReader, int] = {}
        """The version of the clocks that was last told."""

    def begin(self, watch: Watch, batch: Batch) -> None:
        self.counts[watch.reader] = self.counts.get(watch.reader, 0) + 1
        self._told.pop(watch.reader, None)
        batch.watching.append((watch, True))

    def end(self, watch: Watch, batch: Batch) -> None:
        left = self.counts.get(watch.reader, 0) - 1
        if left > 0:
            self.counts[watch.reader] = left
        else:
            self.counts.pop(watch.reader, None)
            self._told.pop(watch.reader, None)
        batch.watching.append((watch, False))

    def note(self, hosts: Mapping[DomainIndex, HostedDomain], batch: Batch) -> None:
        """The batch's last step: what its watched readers reflect then."""
        for reader in self.counts:
            host = hosts.get(reader[0])
            vertex = None if host is None else host.domain.vertices.get(reader[1])
            if host is None or vertex is None:
                continue
            clocks = host.domain.clocks
            if self._told.get(reader) != clocks.version:
                self._told[reader] = clocks.version
                batch.clocks[reader] = clocks.of(vertex) if clocks.agree(vertex) else None


class Inputs(Protocol):
    """The dataflow thread's."""

    def control(self, act: Callable[[Any, Batch], Any]) -> Future[Any]: ...

    def touch(self, domain: DomainIndex, reader: NodeIndex, keys: tuple[Row, ...]) -> None: ...


@dataclass(slots=True)
class Watches:
    """The flusher's part, and the way in for whoever watches, from any thread."""

    client: ReaderClient
    inputs: Inputs
    refills: int = 0
    """Of keys that were evicted while they were watched."""
    _by_key: dict[WatchedReader, dict[Row, dict[Watch, None]]] = field(default_factory=dict)
    _all: dict[Watch, None] = field(default_factory=dict)
    """The one that began first is the first."""
    _onlookers: Counter[Onlooker] = field(default_factory=Counter)
    _torn: dict[WatchedReader, dict[Watch, None]] = field(default_factory=dict)
    """Readers that have a part of a write only, with what is to be read once they have the rest."""
    _pinned: float = 0.0
    _second: tuple[int, int] = (0, 0)
    """A second of the clock, and the refills in it."""

    def begin(self, watch: Watch) -> None:
        """Have its onlooker told of its rows, now and whenever they change; that it ends, where they are not here."""

        def act(hosted: Any, batch: Batch) -> None:
            hosted.check_reader(*watch.reader)
            hosted.watched.begin(watch, batch)

        def begun(done: Future[Any]) -> None:
            if done.exception() is not None:
                watch.onlooker.tell([(watch, Ended.GONE)], {})

        try:
            self.inputs.control(act).add_done_callback(begun)
        except HeadraceError:  # Nothing is taken any more.
            watch.onlooker.tell([(watch, Ended.GONE)], {})

    def end(self, watch: Watch) -> None:
        with suppress(HeadraceError):  # Where nothing is taken any more, nothing is told either.
            self.inputs.control(lambda hosted, batch: hosted.watched.end(watch, batch))

    def _refill(self, watch: Watch) -> None:
        """Have what is evicted asked for at once; what it is filled with is told as any change."""

        def act(hosted: Any, batch: Batch) -> None:
            hosted.read(
                *watch.reader, watch.lookup.keys, Look(lambda: None), lambda outcome: self._filled(watch), batch
            )

        with suppress(HeadraceError):
            self.inputs.control(act)

    def step(self, batch: Batch) -> bool:
        """The batch is visible: tell whoever watches what it has changed. Whether anybody does."""
        told: dict[Onlooker, list[tuple[Watch, Seen]]] = {}
        touched = dict.fromkeys(self._touched(batch))
        for watch, begins in batch.watching:
            if begins:
                self._add(watch)
                touched[watch] = None
            else:
                self._remove(watch)
        clocks = self._settled(batch, touched)
        if touched:
            self._read(touched, told)
        for layout in [entry.layout for entry in batch.visible if isinstance(entry, Drop)]:
            for watch in [watch for watch in self._all if watch.layout is layout]:
                self._tell_end(watch, Ended.GONE, told)
        if clocks:
            for onlooker in self._onlookers:
                told.setdefault(onlooker, [])
        for onlooker, shown in told.items():
            onlooker.tell(shown, clocks)
        self._pin()
        return bool(self._all)

    def _settled(self, batch: Batch, touched: dict[Watch, None]) -> dict[WatchedReader, Clock]:
        """The new clocks. Look-ups of a reader that has a part of a write only are not read before it has the rest."""
        clocks: dict[WatchedReader, Clock] = {}
        for reader, clock in batch.clocks.items():
            if clock is None:
                self._torn.setdefault(reader, {})
            else:
                clocks[reader] = clock
                touched.update(self._torn.pop(reader, {}))
        if self._torn:
            for watch in [watch for watch in touched if watch.reader in self._torn]:
                self._torn[watch.reader][watch] = None
                del touched[watch]
        return clocks

    def _read(self, touched: dict[Watch, None], told: dict[Onlooker, list[tuple[Watch, Seen]]]) -> None:
        holes: list[Watch] = []
        with self.client.snapshot() as snapshot:
            for watch in touched:
                if watch not in self._all:
                    continue
                try:
                    seen = watch.lookup.parts(snapshot, watch.layout)
                except Exception:  # It is the watch's own; those behind it are not to suffer.
                    _log.exception("a look-up that is watched cannot be read")
                    self._tell_end(watch, Ended.GONE, told)
                    continue
                if seen is None:
                    holes.append(watch)
                else:
                    watch.in_vain = 0
                told.setdefault(watch.onlooker, []).append((watch, seen))
        for watch in holes:
            self._ask(watch, told)

    def _tell_end(self, watch: Watch, why: Ended, told: dict[Onlooker, list[tuple[Watch, Seen]]]) -> None:
        self._remove(watch)
        told.setdefault(watch.onlooker, []).append((watch, why))

    def _touched(self, batch: Batch) -> Iterator[Watch]:
        for entry in batch.visible:
            if not isinstance(entry, tuple):
                continue
            _, publish = entry
            by_key = self._by_key.get((publish.domain, publish.reader))
            if by_key is None:
                continue
            for key in publish.evicted:
                yield from by_key.get(key, ())
            for key, _ in publish.filled:
                yield from by_key.get(key, ())
            for key in {key for key, _ in publish.deltas}:
                yield from by_key.get(key, ())

    def _filled(self, watch: Watch) -> None:
        """What was asked for has come and was told with its batch, unless memory is so short that it has gone again."""
        watch.filling = False
        if watch not in self._all:
            return
        with self.client.snapshot() as snapshot:
            if watch.lookup.parts(snapshot, watch.layout) is not None:
                return
        watch.in_vain += 1
        told: dict[Onlooker, list[tuple[Watch, Seen]]] = {}
        if watch.in_vain >= FILLS_IN_VAIN:
            watch.in_vain = 0
            self._end_oldest(told)
        if watch in self._all:
            self._ask(watch, told)
        for onlooker, shown in told.items():
            onlooker.tell(shown, {})

    def _end_oldest(self, told: dict[Onlooker, list[tuple[Watch, Seen]]]) -> None:
        self._tell_end(next(iter(self._all)), Ended.EVICTED, told)

    def _ask(self, watch: Watch, told: dict[Onlooker, list[tuple[Watch, Seen]]]) -> None:
        if watch.filling:
            return
        watch.filling = True
        second, count = self._second
        now = int(time.monotonic())
        self._second = now, count + 1 if now == second else 1
        self.refills += 1
        if self._second[1] > min(REFILLS_A_SECOND, max(FEW_REFILLS, REFILLS_OF_EACH * len(self._all))):
            self._end_oldest(told)
        if watch in self._all:
            self._refill(watch)

    def _add(self, watch: Watch) -> None:
        self._all[watch] = None
        self._onlookers[watch.onlooker] += 1
        by_key = self._by_key.setdefault(watch.reader, {})
        for key in watch.lookup.keys:
            by_key.setdefault(key, {})[watch] = None

    def _remove(self, watch: Watch) -> None:
        if watch not in self._all:
            return
        del self._all[watch]
        self._onlookers[watch.onlooker] -= 1
        if not self._onlookers[watch.onlooker]:
            del self._onlookers[watch.onlooker]
        by_key = self._by_key[watch.reader]
        for key in watch.lookup.keys:
            of_key = by_key.get(key, {})
            of_key.pop(watch, None)
            if not of_key:
                by_key.pop(key, None)
        if not by_key:
            del self._by_key[watch.reader]

    def _pin(self) -> None:
        now = time.monotonic()
        if now - self._pinned >= PIN_SECONDS:
            self._pinned = now
            for reader, by_key in self._by_key.items():
                self.inputs.touch(*reader, tuple(by_key))
