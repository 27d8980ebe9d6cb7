"""What goes wrong with disks and the archive: shards that cannot be opened, directories that are gone for good."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex
from tests.failing_store import CALLS

if TYPE_CHECKING:
    from tests.cluster_simulation.checks import Ledger
    from tests.cluster_simulation.client import Client
    from tests.cluster_simulation.cluster import Cluster

REBUILD_SECONDS = 10.0


class DiskFaults:
    """A part of ``faults.Faults``."""

    cluster: Cluster
    random: Random
    calls: Random
    """What decides which calls fail."""

    def _start_the_dead(self) -> None:
        raise NotImplementedError

    def _pause(self) -> float:
        return self.random.choice((0.05, 0.5, 1.0, 3.0, 5.0)) * self.random.random()

    async def _disk(self) -> None:
        """Some shards cannot be opened for a while; those that are open go on."""
        refused = {DomainIndex(shard) for shard in range(self.cluster.shards) if self.random.random() < 0.5}
        self.cluster.say(f"shards {sorted(refused)} cannot be opened")
        self.cluster.disks.refused |= refused
        await asyncio.sleep(self._pause())
        self.cluster.disks.refused -= refused

    async def _failing_calls(self) -> None:
        """Calls of the shards' stores fail, one at a time: any, or one kind of them that else would seldom."""
        fuse, random = self.cluster.disks.fuse, self.calls
        for _ in range(random.choice((1, 3, 10, 30))):
            fuse.left, fuse.only = (
                random.choice((1, 1, 2, 5, 20)),
                random.choice(("", "find_many", "find_many", *CALLS)),
            )
            await asyncio.sleep(random.choice((0.05, 0.3, 1.0)))
            self._start_the_dead()
        fuse.left = 0

    async def _archive_away(self) -> None:
        archive = self.cluster.archive
        if archive is not None:
            self.cluster.say("the archive cannot be reached")
            archive.reachable = False
            await asyncio.sleep(self._pause())
            archive.reachable = True

    async def _lose_disk(self) -> None:
        """A machine burns down: its data directory is gone, what was not archived too. An operator has the shards
        rebuilt soon or late."""
        data = self._some_disk()
        if data is not None:
            await self._burn(data)

    async def _late_loss(self) -> None:
        """The same, and what the machine has sent to others is on its way for a while yet: so survivors hear of its
        shards when they have been asked how far they have heard."""
        cluster, data = self.cluster, self._some_disk()
        if data is None:
            return
        late = self.random.choice((1.0, 2.0, 4.0))
        cluster.say(f"what the workers of {data} send to others takes {late} s longer")
        own = [worker.process for worker in cluster.workers.values() if worker.data == data]
        others = [worker.process for worker in cluster.workers.values() if worker.data != data]
        cluster.network.late.update({(one, other): late for one in own for other in others})
        await asyncio.sleep(self.random.random())
        await self._burn(data)
        for pair in [pair for pair in cluster.network.late if pair[0] in own]:
            del cluster.network.late[pair]

    def _some_disk(self) -> str | None:
        cluster = self.cluster
        directories = sorted({place[0] for place in cluster.disks.disks})
        if cluster.archive is None or not directories or not cluster.losses.attended:
            return None
        return self.random.choice(directories)

    async def _burn(self, data: str) -> None:
        cluster = self.cluster
        assert cluster.archive is not None
        if not all(cluster.archive.of_shard(shard) for own, shard in cluster.disks.disks if own == data):
            return  # Something of it was never archived: nobody could bring it back.
        names = [name for name, worker in cluster.workers.items() if worker.data == data]
        cluster.lose(data)
        for name in names:
            await asyncio.sleep(self.random.random() * 0.3)
            if cluster.workers[name].process.is_dead:
                cluster.start_worker(name)


class Operator:
    """Has what is lost rebuilt after a while, and asks again where that fails. Tells the judge what may be missing."""

    def __init__(self, cluster: Cluster, clients: list[Client], ledger: Ledger) -> None:
        self.cluster, self.clients, self.ledger = cluster, clients, ledger

    async def run(self) -> None:
        random = self.cluster.random
        self.cluster.losses.attended = True
        while True:
            await asyncio.sleep(0.1 + random.random())
            controller = self.cluster.leader()
            if not self.cluster.losses.disks or controller is None:
                continue
            await asyncio.sleep(random.choice((0.0, 0.5, 3.0)) * random.random())
            known = dict(random.choice(self.clients).token) if random.random() < 0.5 else {}
            self._begin_streams()
            try:
                await self.cluster.at(
                    controller.process, lambda c=controller, known=known: c.rebuild(known), REBUILD_SECONDS
                )
            except (HeadraceError, TimeoutError) as error:
                self.cluster.say(f"nothing is rebuilt yet: {error or 'no answer'}")

    def _begin_streams(self) -> None:
        """What shards remember of numbered writes is gone with them."""
        for client in self.clients:
            given_up = client.begin_stream()
            if given_up is not None:
                self.ledger.twice.update(int(row[0]) for row in given_up.rows)  # type: ignore[arg-type]
