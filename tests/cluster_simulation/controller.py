"""A controller process: it stands for leader, leads, and stands again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controller.cluster.leader.draining import drain
from controller.cluster.leader.fleet import Timing, Wire
from controller.cluster.leader.leader import Leader, LeaderSettings
from domains.errors import Unavailable
from domains.plan.packets import Clock
from migrations.recipe import RecipeEntry
from tests.cluster_simulation.loop import Process
from zookeeper.registration import ControllerDescriptor

if TYPE_CHECKING:
    from tests.cluster_simulation.cluster import Cluster


TIMING = Timing(trust_after=2.0)
"""A seed lasts some ten seconds, and is to have domains that go back to who was lost."""


class SimulatedController:
    def __init__(self, cluster: Cluster, process: Process, name: str, incarnation: int) -> None:
        self.cluster, self.process, self.name, self.incarnation = cluster, process, name, incarnation
        self.leader: Leader | None = None
        """While it leads, or believes that it does."""

    async def run(self) -> None:
        cluster = self.cluster
        authority = await cluster.joined(self.process, create=True)
        term = 0
        while True:
            election = authority.candidate(ControllerDescriptor(self.name, "host", 1, self.incarnation))
            await election.elected()
            cluster.say(f"{self.process} is elected")
            term += 1
            settings = LeaderSettings(
                self.name, cluster.shards, cluster.quorum, TIMING, self.incarnation, term, cluster.bulk
            )
            wire = Wire(cluster.name, self.name, self.incarnation, authority.secret)
            self.leader = Leader(authority, wire, settings)
            try:
                await self.leader.lead(election.lost)
            finally:
                cluster.losses.refilled += self.leader.rebuilds.refills.built
                self.leader = None
            cluster.say(f"{self.process} leads no more")
            await election.resign()

    async def change(self, entry: RecipeEntry, sql: str) -> None:
        """Raises Unavailable where it does not lead, or not yet."""
        if self.leader is None:
            raise Unavailable("this controller does not lead")
        await self.leader.serving().run(entry, sql)

    def cancel_all(self) -> None:
        """Give up every migration that has not ended."""
        if self.leader is not None and self.leader.migrator is not None:
            for id, migration in list(self.leader.migrator._migrations.items()):
                if not migration.ended.is_set():
                    self.cluster.say(f"migration {id} is cancelled")
                    self.leader.migrator.cancel(id)

    async def rebuild(self, known: Clock) -> None:
        """What ``headrace rebuild --lost`` asks. Raises HeadraceError where it cannot be, or not yet."""
        if self.leader is None:
            raise Unavailable("this controller does not lead")
        random, operations = self.cluster.random, self.leader.rebuild_operations
        one = operations.start((), known, random.choice(("auto", "auto", "spark", "worker")))
        if random.random() < 0.15:
            later = random.random() * random.choice((0.01, 0.1, 1.0))
            asyncio.get_running_loop().call_later(later, operations.cancel, one.id)
        await one.ended.wait()
        if one.error is not None:
            raise one.error

    async def drain(self, name: str) -> None:
        if self.leader is not None:
            await drain(self.leader, name)

    def busy(self) -> str:
        """Why the cluster is not as it was decided, if it is not."""
        leader = self.leader
        if leader is None or leader.migrator is None:
            return "nobody has taken over"
        if not leader.calm:
            return f"the leader is not calm: {leader.trouble}"
        if leader._uneven:
            return "domains may have to be moved"
        return "a migration goes on" if leader.migrator.busy else ""
