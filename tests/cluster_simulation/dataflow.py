"""A worker's dataflow without its two threads: the same inbox, batches and flushes, each after a while.

``Dataflow``'s own code takes the inputs and ``Flusher``'s own code performs the effects; what is replaced is who calls
them, and the reader map, which is a dict here. Between a batch and its flush the process may die.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from domains.engine.invariants import check_domain
from domains.errors import StorageFailure
from domains.language.types import Delta, Row
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Publish
from tests.cluster_simulation.loop import VirtualLoop
from tests.failing_store import FailingStore, Fuse
from worker.dataflow.batch import Batch
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.group_commit import BATCHES_WAITING, Deliver, GroupCommit
from worker.dataflow.inbox import Inbox
from worker.dataflow.pacing import Paces
from worker.dataflow.thread import DataflowThread
from worker.reader_map import ReaderLayout


class NoRoom(Exception):
    """What is to be taken next has to wait."""


class Bell:
    """In place of the condition that wakes the dataflow's thread."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.notify = self.notify_all = ring

    def __enter__(self) -> Bell:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float | None = None) -> None:
        raise NoRoom


class DictMap:
    """The reader map: by reader, the rows of each key that is filled. It is its own client."""

    def __init__(self) -> None:
        self.readers: dict[int, dict[Row, Counter[Row]]] = {}
        self.concealed: set[int] = set()

    def publish(self, publications: Sequence[tuple[ReaderLayout, Publish]]) -> None:
        for layout, publish in publications:
            if layout.concealed:
                self.concealed.add(layout.reader_id)
            self._apply(layout.reader_id, publish)

    def _apply(self, id: int, publish: Publish) -> None:
        reader = self.readers.setdefault(id, {})
        name = f"reader {publish.reader} of domain {publish.domain}"
        for key in publish.evicted:
            assert key in reader, f"{name}: {key} is evicted and was not there"
            del reader[key]
        for key, rows in publish.filled:
            assert key not in reader, f"{name}: {key} is filled twice"
            reader[key] = Counter()
            for row, weight in rows:
                self._add(reader[key], row, weight, name)
        for key, (row, weight) in publish.deltas:
            assert key in reader, f"{name}: a change of {key}, which is a hole"
            self._add(reader[key], row, weight, name)

    @staticmethod
    def _add(rows: Counter[Row], row: Row, weight: int, name: str) -> None:
        rows[row] += weight
        assert rows[row] >= 0, f"{name} has a negative row {row}"
        if not rows[row]:
            del rows[row]

    def reveal(self, layout: ReaderLayout) -> None:
        layout.concealed = False
        self.concealed.discard(layout.reader_id)

    def drop(self, layout: ReaderLayout) -> None:
        self.readers.pop(layout.reader_id, None)
        self.concealed.discard(layout.reader_id)

    # --- reading ------------------------------------------------------------------------------------------------

    def rows_of(self, id: int, key: Row) -> list[Delta] | None:
        rows = self.readers.get(id, {}).get(key)
        return None if rows is None or id in self.concealed else list(rows.items())

    def page(self, layout: ReaderLayout, key: Row, *_: Any) -> bytes | None:
        return self.rows(layout, [key])

    def rows(self, layout: ReaderLayout, keys: Sequence[Row], *_: Any) -> bytes | None:
        """All rows of the keys as they are: who asked applies order and limit."""
        found: list[Delta] = []
        for key in keys:
            rows = self.rows_of(layout.reader_id, key)
            if rows is None:
                return None
            found += rows
        return marshal.dumps([(tuple(map(_plain, row)), weight) for row, weight in found])


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return ("time", value // timedelta(microseconds=1))
    return value if value is None or isinstance(value, int | float | str | bytes) else ("decimal", str(value))


class SimulatedDataflow(DataflowThread):
    """``pause()`` gives the seconds until the next batch, and again until it is flushed. ``ends(why)`` ends the
    process, as a worker does where the disk lets a sync down. ``fuse`` is that of its stores."""

    def __init__(
        self,
        loop: VirtualLoop,
        pause: Callable[[], float],
        *,
        memory_limit: int,
        deliver: Deliver,
        outbound_waiting: Callable[[], int],
        check: Callable[[], bool],
        fuse: Fuse,
        ends: Callable[[str], None],
    ) -> None:
        self.hosted = DomainHost(memory_limit=memory_limit, led=True)
        self.map = DictMap()
        self.reader_map = self.map  # type: ignore[assignment]
        self.failed = None
        self.listeners, self.failure_listeners = [], []
        self._paces = Paces(lambda: 0.0)  # How long a slice takes here is nothing that a seed decides.
        self._wanted = 0
        self._loop, self._pause, self._check = loop, pause, check
        self._fuse, self._ends = fuse, ends
        self._ended = False
        self._turning = False
        self._flushing = False
        self._batches: list[Batch] = []
        bell: Any = Bell(self._ring)
        self._inbox = Inbox(outbound_waiting, bell, loop.time)
        self.flusher = GroupCommit(self.map, deliver, [])  # type: ignore[arg-type]

    def start(self) -> None:
        """There is no thread to start."""

    def client(self) -> Any:
        return self.map

    def _ring(self) -> None:
        if not self._turning:
            self._turning = True
            self._loop.call_later(self._pause(), self._turn)

    def _turn(self) -> None:
        self._turning = False
        if self.failed is not None or self._ended or len(self._batches) >= BATCHES_WAITING:
            return
        if not self._inbox:
            return
        try:
            inputs = self._inbox.take()
        except NoRoom:
            self._ring()
            return
        batch = Batch()
        try:
            with self._fuse.live():
                for one in inputs:
                    self._take(one, batch)
                has_effects = self.hosted.finish(batch)
        except Exception as error:
            self._fail(error, inputs)
            raise
        if any(isinstance(store, FailingStore) and store.lost for store in self.stores.values()):
            self._ended = True
            self._ends("a commit was lost")
            return
        if has_effects:
            self._batches.append(batch)
            if not self._flushing:
                self._flushing = True
                self._loop.call_later(self._pause(), self._flush)
        if self._inbox:
            self._ring()

    def _flush(self) -> None:
        self._flushing = False
        if self._ended:
            return
        run, self._batches = self._batches, []
        try:
            with self._fuse.live():
                self.flusher._flush(run)
        except StorageFailure as error:
            self._ended = True
            self._ends(error.message)
            return
        if self._inbox:
            self._ring()
        if self._check():
            self.check()
        self._progressed()

    def check(self) -> None:
        """The eight rules of ``domains/`` hold wherever every input is visible."""
        if self._batches:
            return
        for index, host in self.hosted.hosts.items():
            if not host.is_broken:
                check_domain(host.domain, lambda node, key, index=index: self._rows(index, node, key))  # type: ignore[misc]

    def _rows(self, domain: DomainIndex, node: NodeIndex, key: Row) -> list[Delta] | None:
        return self.map.rows_of(self.layouts[domain, node].reader_id, key)
