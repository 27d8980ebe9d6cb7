"""The controller that leads, in the process of the test: the real one, without its HTTP."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from controller.cluster.fleet import Timing
from controller.cluster.handles import WorkerGone
from controller.cluster.leader import Leader, LeaderSettings
from controller.cluster.leader_door import NoLeader
from controller.cluster.leader_status import status_of
from controller.deployment import MigrationStatus
from migrations.recipe import Entry
from worker.messages import Role
from worker.wire import Connection, connect, greeting
from zookeeper.cluster_authority import ClusterAuthority
from zookeeper.descriptors import WorkerDescriptor

TIMING = Timing(rebalance_after=30.0)
"""As ever, but that nothing moves in the middle of a test."""


class WireHandle:
    def __init__(self, descriptor: WorkerDescriptor, connection: Connection) -> None:
        self.descriptor = descriptor
        self.lost = asyncio.Event()
        self._connection = connection
        connection.on_lost.append(lambda _: self.lost.set())

    async def ask(self, message: Any) -> Any:
        return await self._connection.request(message)

    async def close(self) -> None:
        self._connection.close()
        await self._connection.closed.wait()


async def reach(worker: WorkerDescriptor) -> WireHandle:
    connection = await connect(worker.host, worker.port, greeting("main", Role.CONTROLLER, "c1", 1))
    assert connection.peer is not None
    if connection.peer.incarnation != worker.incarnation:
        raise WorkerGone(f'another process than "{worker.name}" answers')
    return WireHandle(worker, connection)


class LeadingDoor:
    """See ``LeaderDoor``. Leads from ``begin`` until it is closed."""

    def __init__(self, authority: ClusterAuthority, shards: int, quorum: int) -> None:
        self.leader = Leader(authority, reach, LeaderSettings("c1", shards, quorum, TIMING))
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, around: AsyncExitStack) -> None:
        self._task = asyncio.create_task(self.leader.lead(self._lost))
        around.push_async_callback(self.end)
        async with asyncio.timeout(10):
            while self.leader.migrator is None:
                await asyncio.sleep(0.002)
            await self.leader.calm.wait()

    async def end(self) -> None:
        self._lost.set()
        if self._task is not None:
            await self._task

    async def run(self, entry: Entry, sql: str) -> None:
        await self._leader().serving().run(entry, sql)

    async def start(self, sql: str) -> MigrationStatus:
        return self._leader().serving().start(Entry((sql,)), sql).status()

    async def migration(self, id: str) -> MigrationStatus:
        return self._leader().serving().status(id)

    async def cancel(self, id: str) -> MigrationStatus:
        return self._leader().serving().cancel(id)

    def _leader(self) -> Leader:
        if self._lost.is_set():
            raise NoLeader("the test has ended it")
        return self.leader

    async def status(self) -> dict[str, Any]:
        return status_of(self._leader())

    async def close(self) -> None:
        """The leader outlives the api process."""
