"""A controller process. STAND-IN until the leader is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controller.cluster import barrier, placing, reconcile
from controller.cluster.ledger import Ledger
from controller.cluster.replica import Replica
from controller.cluster.state import Assignment, ClusterState
from domains.commands import Activate, Feed
from domains.graph import DomainIndex
from migrations.change import change_of
from migrations.plan import one_domain
from tests.cluster_simulation.loop import Process
from worker.messages import (
    OpenDomain,
    Perform,
    Ping,
    Placed,
    Positions,
    Reconfigure,
    Report,
    Role,
)
from worker.wire import connect, greeting

if TYPE_CHECKING:
    from tests.cluster_simulation.cluster import Cluster


class SimulatedController:
    def __init__(self, cluster: Cluster, process: Process, name: str) -> None:
        self.cluster, self.process, self.name = cluster, process, name
        self.leader: Any = None

    async def run(self) -> None:
        from zookeeper.descriptors import ControllerDescriptor

        self.authority = await self.cluster.joined(self.process, create=True)
        election = self.authority.candidate(ControllerDescriptor(self.name, "host", 1, 1))
        await election.elected()
        self.ledger = Ledger(self.authority)
        await self.ledger.load()
        shards, quorum = self.cluster.shards, self.cluster.quorum
        await self.ledger.change(
            lambda old: ClusterState("main", shards, quorum, 1) if old is None else old.next_epoch(), patience=5.0
        )
        while len(await self.authority.workers()) < len(self.cluster.workers):
            await asyncio.sleep(0.1)
        self.workers = dict(await self.authority.workers())
        self.handles = {
            name: await connect(w.host, w.port, greeting("main", Role.CONTROLLER, self.name, 1))
            for name, w in self.workers.items()
        }
        for name in self.handles:
            await self.ask(name, Ping(self.epoch))
        self.replica = Replica(shards)
        await self.recover()
        self.leader = self

    @property
    def epoch(self) -> int:
        return self.ledger.decided.epoch

    async def ask(self, worker: str, message: Any) -> Any:
        return await self.handles[worker].request(message)

    async def recover(self) -> None:
        state = await self.replica.follow(self.ledger.decided.recipe)
        reports = {name: await self.ask(name, Report(self.epoch)) for name in self.handles}
        homeless = reconcile.homeless(self.ledger.decided, reports)
        places = placing.place(homeless, dict.fromkeys(self.handles, "/data"), self.ledger.decided.placement)

        def decide(old: ClusterState | None) -> ClusterState:
            assert old is not None
            given = {d: Assignment(name, old.epoch + 1, "/data") for d, name in places.items()}
            return old.next_epoch({**old.placement, **given})

        decided = await self.ledger.change(decide, patience=5.0)
        for domain, name in places.items():
            shards = decided.shards
            await self.ask(name, OpenDomain(self.epoch, domain, decided.placement[domain].incarnation, domain, shards))
        reports = {name: await self.ask(name, Report(self.epoch)) for name in self.handles}
        survivors = {
            d: reports[given.worker].domains[d] for d, given in decided.placement.items() if d not in homeless
        }
        repair = reconcile.repair(state, survivors, homeless)
        for domain in homeless:
            await self.perform(reconcile.table_steps(state, domain, reports[decided.placement[domain].worker].domains[domain]))
        await self.perform(repair.fresh)
        placed = {
            d: Placed(a.worker, self.workers[a.worker].host, self.workers[a.worker].port, a.incarnation,
                      self.workers[a.worker].incarnation)
            for d, a in decided.placement.items()
        }
        for name in self.handles:
            await self.ask(name, Reconfigure(self.epoch, placed, {}))
        await self.perform((*repair.again, *repair.indexes, *repair.feeds))
        await barrier.all_lanes(self.look, 0.01)
        await self.perform(repair.activations)

    async def look(self) -> barrier.Reached:
        sent: dict[Any, Any] = {}
        received: dict[Any, Any] = {}
        for name in self.handles:
            positions = await self.ask(name, Positions(self.epoch))
            sent.update(positions.sent)
            received.update(positions.received)
        return barrier.Reached(sent, received)

    async def perform(self, steps: Any) -> None:
        done = False
        for step in steps:
            if isinstance(step.command, Activate) and not done:
                await barrier.all_lanes(self.look, 0.01)
                done = True
            while True:
                worker = self.ledger.decided.placement[DomainIndex(step.domain)].worker
                progress = await self.ask(worker, Perform(self.epoch, step.domain, step.command))
                if progress.finished or not (step.sliced or isinstance(step.command, Feed)):
                    break

    async def change(self, entry: Any, sql: str) -> None:
        from dataclasses import replace

        change = change_of(self.replica.state, entry, one_domain)
        await self.perform(change.steps)
        decided = await self.ledger.change(
            lambda old: replace(old, recipe=old.recipe.with_entry(change.entry)), patience=5.0  # type: ignore[type-var]
        )
        self.replica.adopt(decided.recipe, change.state)

    def busy(self) -> str:
        return ""

    async def drain(self, name: str) -> None:
        return None
