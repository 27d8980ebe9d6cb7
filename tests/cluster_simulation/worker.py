"""A worker process: registered with the authority, a port on the simulated network, and its domains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domains.errors import HeadraceError, StorageFailure
from domains.store.storage import Store
from tests.cluster_simulation.archive import SimulatedArchiver
from tests.cluster_simulation.checks import check_heard
from tests.cluster_simulation.dataflow import SimulatedDataflow
from tests.cluster_simulation.loop import Process
from tests.cluster_simulation.rebuilds import SimulatedRebuilds
from tests.kit.hosted_site import never_refused
from worker.protocol.messages import OpenDomain, Pong, Role
from worker.service.server import LeaderMessage, WorkerServer
from worker.service.waits import decided_epochs
from worker.wire.connection import greeting
from worker.wire.peers import Peers
from worker.wire.server import serve
from zookeeper.authority import ClusterAuthority
from zookeeper.errors import AuthorityError
from zookeeper.registration import WorkerDescriptor

if TYPE_CHECKING:
    from tests.cluster_simulation.cluster import Cluster

OPENING = 0.02
"""Seconds that opening a shard takes, and flushing and closing one, at most."""


class SimulatedServer(WorkerServer):
    """Only the shards' storage is another."""

    def __init__(self, worker: SimulatedWorker) -> None:
        super().__init__(
            worker.dataflow,
            worker.peers,
            worker.name,
            worker.incarnation,
            Path("data"),
            worker.archiver,  # type: ignore[arg-type]
            decided=worker.decided_epoch,
        )
        self._worker = worker
        self._rebuilds = SimulatedRebuilds(worker)

    def obey(self, message: LeaderMessage) -> Pong | Awaitable[Any]:
        answer = super().obey(message)
        if self._worker.cluster.ambushes:
            self._worker.cluster.meet(message, self._worker)
        return answer

    async def _store(self, message: OpenDomain) -> tuple[Store, Callable[[], None], Callable[[], None]]:
        worker, incarnation = self._worker, message.incarnation
        place = (worker.data, message.domain)
        disks, process = worker.cluster.disks, worker.process
        await asyncio.sleep(worker.cluster.random.random() * OPENING)
        if message.kept and place not in disks.disks:
            raise StorageFailure(f"shard {message.shard} is missing in {worker.data}")
        store = disks.open(place, process, worker.host, incarnation)
        check_heard(worker.cluster, store, message.shard, message.shards)
        return store, store.sync, lambda: disks.close(place, process, incarnation)

    async def _apart(self, act: Callable[[], None]) -> None:
        await asyncio.sleep(self._worker.cluster.random.random() * OPENING)
        with self._worker.cluster.disks.fuse.live():
            act()


class SimulatedWorker:
    """One process; ``incarnation`` grows with each start under the same name."""

    def __init__(self, cluster: Cluster, process: Process, name: str, incarnation: int, data: str) -> None:
        self.cluster, self.process = cluster, process
        self.name, self.incarnation, self.data = name, incarnation, data
        self.host = f"host{data}"
        """Workers of a host share its data directory."""
        self.dataflow: SimulatedDataflow
        self.peers: Peers
        self.archiver: SimulatedArchiver | None = None
        self.is_up = False
        self.authority: asyncio.Future[ClusterAuthority] = cluster.loop.create_future()

    async def decided_epoch(self) -> int:
        return await decided_epochs(await self.authority)()

    async def run(self) -> None:
        cluster, random = self.cluster, self.cluster.random
        self.peers = Peers(
            greeting(cluster.name, Role.WORKER, self.name, self.incarnation),
            lambda packets, processed, refused: self.dataflow.receive(packets, processed, never_refused),
            cluster.zookeeper.secret,
        )
        pace = random.choice((0.0002, 0.001, 0.001, 0.01))
        self.dataflow = SimulatedDataflow(
            cluster.loop,
            lambda: random.random() * pace,
            memory_limit=cluster.memory_limit,
            deliver=self.peers.send,
            outbound_waiting=lambda: self.peers.waiting_bytes,
            check=cluster.is_check_due,
            fuse=cluster.disks.fuse,
            ends=self._end,
        )
        if cluster.archive is not None:
            self.archiver = SimulatedArchiver(self, cluster.archive)
            self.process.spawn(self.archiver.run())
        handle = SimulatedServer(self).handle
        server = await serve(
            *(self.host, 0, cluster.name, handle),
            name=self.name,
            incarnation=self.incarnation,
            secret=cluster.zookeeper.secret,
        )
        authority = await cluster.joined(self.process)
        self.authority.set_result(authority)
        descriptor = WorkerDescriptor(self.name, self.host, server.port, self.incarnation, self.incarnation, self.data)
        self.is_up = True
        await self._until(lambda: authority.register_worker(descriptor))
        await authority.superseded.wait()
        self._end("it is superseded")

    def _end(self, why: str) -> None:
        cluster = self.cluster
        cluster.loop.call_soon(cluster.kill, self.process, why, context=cluster.network.context)

    async def _until(self, act: Callable[..., object]) -> None:
        """As a process that is started again until it succeeds."""
        while True:
            try:
                await act()  # type: ignore[misc]
                return
            except (HeadraceError, AuthorityError) as error:
                self.cluster.say(f"{self.process} goes on trying: {error}")
                await asyncio.sleep(0.5)
