"""Workers in this process, on real ports, and somebody who leads them by hand over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.cluster.state import ClusterState
from domains.language.types import Row
from domains.plan.commands import CreateTable
from domains.plan.graph import Base, DomainIndex, NodeIndex
from domains.plan.packets import Clock, Operation, Written
from domains.plan.sharding import physical
from migrations.change import change_of, entries_of
from migrations.flow.plan import State, plan_start
from migrations.flow.routing import split
from migrations.recipe import RecipeEntry
from tests.shard_of_key import shard_of_key
from worker.protocol.messages import (
    Done,
    LinkPositions,
    OpenDomain,
    Pages,
    Perform,
    Placed,
    Positions,
    ReadRequest,
    Reconfigure,
    Report,
    Role,
    WriteRequest,
    version_of,
)
from worker.reader_map import BoundLookup
from worker.service.process import Worker, running
from worker.wire.connection import Connection, connect, greeting
from zookeeper.authority import ClusterAuthority
from zookeeper.memory import MemoryZooKeeper
from zookeeper.registration import WorkerDescriptor
from zookeeper.secret import Secret


@dataclass(frozen=True)
class Told:
    """See ``worker.service.process.WorkerSettings``."""

    name: str
    data: Path
    memory_limit: int = 2**30
    disk_reserve: int = 0
    max_evaluation_size: int = 2**30
    max_automatic_size: int = 2**26
    host: str = "127.0.0.1"
    worker_port: int = 0
    advertise: str | None = None
    zookeeper: str | None = None
    zookeeper_auth: str | None = None
    secret_file: Path | None = None
    deployment: str = "main"
    session_timeout: float = 1.5
    archive: str | None = None
    archive_interval: float = 60.0
    archive_retention: float = 86_400.0
    archive_segment_rows: int = 1_000_000


SECRET = Secret(None, ("of a deployment that is led by hand",))
EPOCHS = 1_000_000
"""The epoch of the state in ZooKeeper: who leads by hand decides nothing there, and counts up to this."""


async def let_lead(authority: ClusterAuthority) -> None:
    """Have the state of a deployment say that any epoch up to ``EPOCHS`` was decided."""
    state, version = await authority.read()
    if state is None:
        await authority.write(ClusterState(authority.deployment, 1, 1, EPOCHS).encode(), version)


@dataclass
class Led:
    """Some workers and their graph. ``homes`` says where each domain is to be."""

    data: Path
    state: State
    workers: dict[str, WorkerDescriptor] = field(default_factory=dict)
    own: dict[str, Worker] = field(default_factory=dict)
    """Those of the workers that are in this process."""
    controls: dict[str, Connection] = field(default_factory=dict)
    apis: dict[str, Connection] = field(default_factory=dict)
    homes: dict[DomainIndex, tuple[str, int]] = field(default_factory=dict)
    epoch: int = 1

    async def enter(self, name: str, opened: AsyncExitStack, zookeeper: MemoryZooKeeper) -> None:
        """A worker in this process."""
        authority = zookeeper.authority("main")
        await authority.start(create=True)
        opened.push_async_callback(authority.close)
        await let_lead(authority)
        self.own[name] = await opened.enter_async_context(running(Told(name, self.data), authority))
        await self.join(self.own[name].descriptor, opened)

    async def join(self, descriptor: WorkerDescriptor, opened: AsyncExitStack) -> None:
        """A worker, wherever it is."""
        self.workers[descriptor.name] = descriptor
        for role, into in ((Role.CONTROLLER, self.controls), (Role.API, self.apis)):
            hello = greeting("main", role, f"test {role}", 1)
            into[descriptor.name] = await connect("127.0.0.1", descriptor.port, hello, secret=SECRET)
            opened.callback(into[descriptor.name].close)

    async def ask(self, name: str, message: Any) -> Any:
        return await self.controls[name].ask(message)

    async def place(self, homes: dict[DomainIndex, str]) -> None:
        """Open domains anew at these workers, with their tables and nodes, and let all workers know."""
        self.epoch += 1
        for index, name in homes.items():
            self.homes[index] = (name, self.epoch)
            shards = self.state.shards
            message = OpenDomain(self.epoch, index, self.epoch, index % shards, shards)
            assert await self.ask(name, message) == Done()
            await self._build(index, name)
        others = [name for name in self.workers if name not in homes.values()]
        for name in (*others, *dict.fromkeys(homes.values())):
            await self.ask(name, Reconfigure(self.epoch, self.placement()))

    async def _build(self, index: DomainIndex, name: str) -> None:
        report = await self.ask(name, Report(self.epoch))
        stored = {schema.name for schema in report.domains[index].tables}
        for schema in self.state.catalog.tables.values():
            if schema.name not in stored and index < (schema.shards or self.state.shards):
                await self.ask(name, Perform(self.epoch, index, CreateTable(schema)))
        for step in plan_start(self.state.flow).steps:
            if step.domain == index:
                while not (await self.ask(name, Perform(self.epoch, index, step.command))).finished:
                    pass

    def placement(self) -> dict[DomainIndex, Placed]:
        return {
            index: Placed(
                name,
                "127.0.0.1",
                self.workers[name].port,
                incarnation,
                self.workers[name].incarnation,
            )
            for index, (name, incarnation) in self.homes.items()
        }

    # --- what an api process does ---------------------------------------------------------------------------------

    async def write(self, operation: Operation) -> Clock:
        """To all shards that it concerns; the token."""
        token: Clock = {}
        schema = self.state.catalog.table(operation.table)
        for shard, part in split(operation, schema, self.state.shards):
            index = physical(DomainIndex(0), shard, self.state.shards)
            written = await self.apis[self.homes[index][0]].ask(WriteRequest(index, part, version_of(schema)))
            assert isinstance(written, Written)
            token |= written.clock
        return token

    def reader(self, view: str, key: Row) -> tuple[DomainIndex, NodeIndex]:
        node = self.state.flow.readers[view.lower()]
        shard = shard_of_key(self.state.flow, node, key)
        return physical(self.state.flow.node(node).domain, shard, self.state.shards), node

    async def page(self, view: str, key: Row, token: Clock | None = None, within: float = 60.0) -> bytes:
        index, node = self.reader(view, key)
        request = ReadRequest(index, node, (BoundLookup((key,)),), token or {}, within)
        answer = await self.apis[self.homes[index][0]].ask(request)
        assert isinstance(answer, Pages)
        return answer.pages[0]

    async def positions(self) -> LinkPositions:
        found = LinkPositions({}, {})
        for name in self.workers:
            answer = await self.ask(name, Positions(self.epoch))
            found.sent.update(answer.sent)
            found.received.update(answer.received)
        return found

    async def quiet(self) -> None:
        """Wait until whatever was sent over links has been processed, and nothing comes of it."""
        async with asyncio.timeout(60):
            before: LinkPositions | None = None
            while True:
                now = await self.positions()
                if now == before and all(now.received.get(link) == at for link, at in now.sent.items() if at[1]):
                    return
                before = now


def planned(sql: str, shards: int, groups: int) -> State:
    """Bases in group 0; all else by turns in the others."""

    def place(node: Any) -> DomainIndex:
        return DomainIndex(0 if isinstance(node.operator, Base) or groups == 1 else 1 + node.index % (groups - 1))

    state = State(shards=shards)
    for entry in entries_of(RecipeEntry((sql,))):
        state = change_of(state, entry, place).state
    return state


@asynccontextmanager
async def leading(data: Path, sql: str, *, names: Sequence[str], shards: int, groups: int) -> AsyncIterator[Led]:
    """Workers with the graph of ``sql``, its domains dealt out to them in turn."""
    led = Led(data, planned(sql, shards, groups))
    zookeeper = MemoryZooKeeper()
    zookeeper.secret = SECRET
    async with AsyncExitStack() as opened:
        for name in names:
            await led.enter(name, opened, zookeeper)
        domains = [physical(DomainIndex(group), shard, shards) for group in range(groups) for shard in range(shards)]
        await led.place({index: names[number % len(names)] for number, index in enumerate(domains)})
        yield led
