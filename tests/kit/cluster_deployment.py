"""A cluster in one process: ZooKeeper's twin, two workers with their own dataflow threads, real TCP, and a leader that
plans, opens and performs, and recovers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.cluster.leader.performing import Reached, all_lanes
from controller.cluster.serving.connections import ReaderMaps, no_leader
from controller.cluster.serving.deployment import ClusterDeployment
from controller.cluster.state import Assignment, AutomaticList, ClusterState
from controller.deployment import MigrationStatus
from domains.errors import HeadraceError, NotFound
from domains.plan.graph import DomainIndex
from domains.plan.packets import Insert
from headrace.settings import Settings
from migrations.change import change_of, entries_of
from migrations.flow.plan import PlanStep, State, one_domain, plan_start
from migrations.recipe import RecipeEntry
from tests.kit.leading import Leading
from worker.protocol.messages import CloseDomain, OpenDomain, Perform, Placed, Positions, Reconfigure, Role
from worker.reader_map import ReaderClient
from worker.service.process import Worker, running
from worker.wire.connection import Connection, connect, greeting
from zookeeper.authority import ClusterAuthority, Election
from zookeeper.memory import MemoryAuthority, MemoryZooKeeper
from zookeeper.registration import ControllerDescriptor
from zookeeper.secret import Secret

SHARDS = 3
WORKERS = 2


class PlainLeader:
    """See ``LeaderDoor``. ``away`` makes as if no controller led."""

    def __init__(self, authority: ClusterAuthority, workers: list[Worker]) -> None:
        self.away = False
        self.closed: dict[str, str] = {}
        """What it tells of domains that nobody can open."""
        self.epoch = 1
        self.state = State(shards=SHARDS)
        self.decided: ClusterState
        self.candidacy: Election
        self._authority = authority
        self._workers = workers
        self._connections: dict[str, Connection] = {}
        self._version = 0
        self._migrations: dict[str, MigrationStatus] = {}
        self._turn = asyncio.Lock()

    async def first_start(self) -> None:
        self.candidacy = self._authority.candidate(ControllerDescriptor("leader", "127.0.0.1", 1, 1))
        await self.candidacy.elected()
        names = [worker.descriptor.name for worker in self._workers]
        hello = greeting(self._authority.deployment, Role.CONTROLLER, "leader", 1)
        for worker in self._workers:
            at = worker.descriptor
            self._connections[at.name] = await connect(at.host, at.port, hello, secret=self._authority.secret)
        placement = {DomainIndex(shard): Assignment(names[shard % len(names)], self.epoch) for shard in range(SHARDS)}
        self.decided = ClusterState(self._authority.deployment, SHARDS, len(names), self.epoch, placement)
        await self._decide(self.decided)
        for domain in placement:
            await self.open(domain)
        await self.reconfigure()

    async def _decide(self, decided: ClusterState) -> None:
        self._version = await self._authority.write(decided.encode(), self._version)
        self.decided = decided

    async def open(self, domain: DomainIndex) -> None:
        given = self.decided.placement[domain]
        await self._ask(domain, OpenDomain(self.epoch, domain, given.incarnation, int(domain), SHARDS))

    async def reconfigure(self) -> None:
        addresses = {worker.descriptor.name: worker.descriptor for worker in self._workers}
        placed = {}
        for domain, given in self.decided.placement.items():
            at = addresses[given.worker]
            placed[domain] = Placed(at.name, at.host, at.port, given.incarnation, at.incarnation)
        for connection in self._connections.values():
            await connection.ask(Reconfigure(self.epoch, placed))

    async def move(self, domain: DomainIndex, worker: str, *, lost: bool = False) -> None:
        """Give a domain to another worker; ``lost``: the one before is not told."""
        before = self.decided.placement[domain]
        self.epoch += 1
        placement = {**self.decided.placement, domain: Assignment(worker, self.epoch)}
        await self._decide(replace(self.decided, epoch=self.epoch, placement=placement))
        if lost:
            del self._connections[before.worker]
        else:
            await self._connections[before.worker].ask(CloseDomain(self.epoch, domain))
        await self.open(domain)
        await self._perform(tuple(step for step in plan_start(self.state.flow).steps if step.domain == domain))
        await self.reconfigure()

    async def _ask(self, domain: DomainIndex, message: Any) -> Any:
        return await self._connections[self.decided.placement[domain].worker].ask(message)

    async def _perform(self, steps: tuple[PlanStep, ...]) -> None:
        for step in steps:
            if step.text.endswith("activate"):
                await all_lanes(self._look, 0.002)
            while True:
                progress = await self._ask(step.domain, Perform(self.epoch, step.domain, step.command))
                if progress.finished or not step.sliced:
                    break

    async def _look(self) -> Reached:
        told = [await each.ask(Positions(self.epoch)) for each in self._connections.values()]
        return Reached(
            {link: at for each in told for link, at in each.sent.items()},
            {link: at for each in told for link, at in each.received.items()},
        )

    # --- LeaderDoor ---------------------------------------------------------------------------------------------

    async def run(self, entry: RecipeEntry, sql: str, rows: Insert | None = None) -> None:
        assert rows is None, "the real leader fills tables"
        if self.away:
            raise no_leader("it is away")
        async with self._turn:
            for part in entries_of(entry):
                await self._carry_out(part)

    async def _carry_out(self, entry: RecipeEntry) -> None:
        change = change_of(self.state, entry, one_domain)
        if not change.tables:
            await self._perform(change.views.steps)
        recipe = self.decided.recipe.with_entry(change.entry)
        await self._decide(replace(self.decided, recipe=recipe))
        self.state = change.state
        await self._perform((*change.tables, *change.removal.steps, *change.drops))

    async def start(self, sql: str) -> MigrationStatus:
        id = str(len(self._migrations))
        change_of(self.state, RecipeEntry((sql,)), one_domain)
        await self.run(RecipeEntry((sql,)), sql)
        self._migrations[id] = MigrationStatus(id, sql, "done", "", 1.0, ("all of it",))
        return self._migrations[id]

    async def migrations(self) -> list[MigrationStatus]:
        return list(reversed(self._migrations.values()))

    async def migration(self, id: str) -> MigrationStatus:
        if self.away:
            raise no_leader("it is away")
        if id not in self._migrations:
            raise NotFound(f'no migration "{id}"')
        return self._migrations[id]

    async def cancel(self, id: str) -> MigrationStatus:
        return await self.migration(id)

    async def keep(self, sql: str, lately: int) -> AutomaticList:
        raise no_leader("it keeps no automatic views")

    async def automatic(self, used: Mapping[str, int], written: Mapping[str, int]) -> AutomaticList:
        raise no_leader("it keeps no automatic views")

    async def status(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "closed": self.closed}

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
            await connection.closed.wait()


class InProcess(ClusterDeployment):
    """What the tests reach behind the deployment for."""

    zookeeper: MemoryZooKeeper
    workers: list[Worker]
    authorities: list[MemoryAuthority]
    """Of the workers."""
    leader: PlainLeader
    leading: Leading
    around: AsyncExitStack

    attach: Callable[[str], ReaderClient]

    async def another(self, name: str, incarnation: int) -> ClusterDeployment:
        """Another api process; the caller closes it."""
        authority = self.zookeeper.authority()
        await authority.start()
        self.around.push_async_callback(authority.close)
        return await ClusterDeployment.open(
            authority,
            greeting("main", Role.API, name, incarnation),
            lambda directory: self.leader,
            read_timeout=self.read_timeout,
            maps=ReaderMaps(self.attach),
        )

    async def close(self) -> None:
        await super().close()
        await self.around.aclose()


async def open_cluster(
    path: Path, *, maps: bool = True, read_timeout: float = 60.0, plain: bool = True, archive: str | None = None
) -> InProcess:
    """``maps``: whether the api process reads the workers' reader maps, as it does on their host. ``plain``: a leader
    that the test leads itself, instead of the real one."""
    zookeeper, around = MemoryZooKeeper(), AsyncExitStack()
    zookeeper.secret = Secret(None, ("of a deployment in one process",))
    first = zookeeper.authority()
    await first.start(create=True)
    around.push_async_callback(first.close)
    workers: list[Worker] = []
    authorities: list[MemoryAuthority] = []
    for number in range(WORKERS):
        authority = zookeeper.authority()
        await authority.start()
        around.push_async_callback(authority.close)
        settings = Settings(
            name=f"w{number}", data=path, worker_port=0, memory_limit=32_000_000, archive=archive, archive_interval=3600
        )
        authorities.append(authority)
        workers.append(await around.enter_async_context(running(settings, authority)))
    leader = PlainLeader(first, workers)
    leading = Leading(first, SHARDS, WORKERS)
    if plain:
        await leader.first_start()
    else:
        await leading.begin(around)
    authority = zookeeper.authority()
    await authority.start()
    around.push_async_callback(authority.close)

    def attach(place: str) -> ReaderClient:
        """A process may open a map only once, and here the workers have."""
        for worker in workers:
            if maps and worker.descriptor.reader_map == place:
                return worker.dataflow.client()
        raise NoMap(f"no map in {place}")

    deployment = await InProcess.open(
        authority,
        greeting("main", Role.API, "api", 1),
        lambda directory: leader if plain else leading.door(directory),
        read_timeout=read_timeout,
        maps=ReaderMaps(attach),
    )
    assert isinstance(deployment, InProcess)
    deployment.zookeeper, deployment.workers, deployment.authorities = zookeeper, workers, authorities
    deployment.leader, deployment.leading, deployment.around = leader, leading, around
    deployment.attach = attach
    return deployment


class NoMap(HeadraceError):
    pass
