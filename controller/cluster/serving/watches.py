"""What this process watches at the workers: one request is always on its way to each that hosts some of it.

A worker that is gone, or has lost a reader, ends the watches there; whoever has them asks the directory and begins them
anew, at another host.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from secrets import randbits

from controller.cluster.serving.connections import Connections
from controller.hosts import PartWatcher, ReaderShard
from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock
from worker.dataflow.batch import Ended
from worker.protocol.operations import BeginWatch, EndWatch, Shown, ShowRequest
from worker.reader_map import BoundLookup
from worker.wire.connection import Connection
from zookeeper.registration import WorkerDescriptor

WITHIN_SECONDS = 0.5
"""After so long without rows a worker tells its clocks: how far what is watched has come."""
ANSWER_SECONDS = 5.0
"""Beyond that, a worker that does not answer counts as gone."""


class RemoteWatch:
    """See :class:`controller.hosts.ShardWatch`, which it implements."""

    def __init__(self, shard: ReaderShard, watcher: PartWatcher) -> None:
        self.place = (shard.domain, shard.node)
        self.watcher = watcher
        self.session: WatchedWorker | None = None
        self.number = 0

    def clock(self) -> Clock:
        return {} if self.session is None else self.session.clocks.get(self.place, {})

    def end(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.forget(self.number)


class WatchedWorker:
    """All that is watched at one worker."""

    def __init__(self, worker: WorkerDescriptor, connections: Connections, over: Callable[[], None]) -> None:
        self.clocks: dict[tuple[DomainIndex, NodeIndex], Clock] = {}
        """What the readers reflect, as of what was shown last."""
        self._worker = worker
        self._connections = connections
        self._over = over
        self._number = randbits(62)
        self._numbers = itertools.count(1)
        self._watches: dict[int, RemoteWatch] = {}
        self._waiting: list[BeginWatch] = []
        """Before there is a connection."""
        self._connection: Connection | None = None
        self._task = asyncio.create_task(self._run())

    def begin(self, watch: RemoteWatch, lookup: BoundLookup) -> None:
        watch.session, watch.number = self, next(self._numbers)
        self._watches[watch.number] = watch
        asked = BeginWatch(self._number, watch.number, *watch.place, lookup)
        if self._connection is None:
            self._waiting.append(asked)
        else:
            self._connection.tell(asked)

    def forget(self, number: int) -> None:
        if self._watches.pop(number, None) is not None and self._connection is not None:
            self._connection.tell(EndWatch(self._number, number))

    async def _run(self) -> None:
        try:
            self._connection = await self._connections.to(self._worker)
            for asked in self._waiting:
                self._connection.tell(asked)
            while self._watches:
                async with asyncio.timeout(WITHIN_SECONDS + ANSWER_SECONDS):
                    shown = await self._connection.ask(ShowRequest(self._number, WITHIN_SECONDS))
                self._show(shown)
        except (HeadraceError, TimeoutError):
            pass  # The worker is gone, or the way to it: as the watches are told.
        finally:
            self._over()
            left, self._watches = list(self._watches.values()), {}
            for watch in left:
                watch.watcher.show(Ended.GONE)

    def _show(self, shown: Shown) -> None:
        for domain, reader, clock in shown.clocks:
            self.clocks[domain, reader] = clock
        told: list[PartWatcher] = []
        for number, rows in (
            *shown.rows,
            *((number, None) for number in shown.holes),
            *((number, Ended(why)) for number, why in shown.ended),
        ):
            watch = self._watches.get(number)
            if watch is not None:
                watch.watcher.show(rows)
                told.append(watch.watcher)
        for watcher in told:
            watcher.settle()

    def close(self) -> None:
        self._task.cancel()


class ClusterWatches:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._workers: dict[WorkerDescriptor, WatchedWorker] = {}

    def begin(
        self, owner: WorkerDescriptor | None, shard: ReaderShard, lookup: BoundLookup, watcher: PartWatcher
    ) -> RemoteWatch:
        watch = RemoteWatch(shard, watcher)
        if owner is None:
            asyncio.get_running_loop().call_soon(watcher.show, Ended.GONE)
            return watch
        worker = self._workers.get(owner)
        if worker is None:
            worker = WatchedWorker(owner, self._connections, lambda: self._end(owner, worker))
            self._workers[owner] = worker
        worker.begin(watch, lookup)
        return watch

    def _end(self, owner: WorkerDescriptor, worker: WatchedWorker | None) -> None:
        if self._workers.get(owner) is worker:
            del self._workers[owner]

    def close(self) -> None:
        for worker in list(self._workers.values()):
            worker.close()
