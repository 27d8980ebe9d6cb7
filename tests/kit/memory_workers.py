"""Workers in memory: the production hosts on a loop with virtual time, linked by queues, with tables in dicts.

What a leader is told about them is what a real one would tell; what happens to them (killed, hung, cut off, started
anew, a store that cannot be opened) is done by name. Nothing is left to chance: the same test does the same every time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from controller.cluster.leader.building import BulkSettings
from controller.cluster.leader.fleet import Timing, WorkerGone
from controller.cluster.leader.leader import Leader, LeaderSettings
from controller.cluster.state import ClusterState
from domains.engine.invariants import check_domain, check_links
from domains.errors import HeadraceError, StorageFailure
from domains.language.types import Row
from domains.plan.graph import DomainIndex
from domains.plan.packets import Failed
from domains.store.memory_store import MemoryStore
from migrations.flow.plan import State
from migrations.flow.routing import split
from migrations.recipe import RecipeEntry
from migrations.statements.interpret import interpret_one
from migrations.statements.interpret import split as split_text
from migrations.statements.statement import WriteStatement
from tests.cluster_simulation.loop import VirtualLoop
from tests.kit.hosted_site import Found, HostedSite, never_refused
from tests.kit.memory_archive import MemoryArchive
from tests.shard_of_key import shard_of_key
from worker.adhoc.cut import samples_of
from worker.archive.cut_tables import copies_asked
from worker.dataflow.batch import Batch, LinkPacket, Look
from worker.dataflow.domain_host import DomainHost
from worker.protocol.messages import (
    CloseDomain,
    ConnectionLost,
    Done,
    NotHere,
    OpenDomain,
    Perform,
    Ping,
    Placed,
    Pong,
    Positions,
    Reconfigure,
    Report,
    RowCounts,
    RowsRequest,
    SamplesRequest,
    Status,
    StatusDocument,
    version_of,
)
from worker.protocol.operations import (
    ArchivedShardRequest,
    ArchiveRequest,
    FlushDomain,
    Heard,
    HeardRequest,
    LeaveCopies,
    LogRelease,
    RebuildShard,
)
from worker.service.status import heard_at_last, link_positions, worker_report
from zookeeper.memory import MemoryAuthority, MemoryZooKeeper
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor

TRAVEL = 0.001
"""Seconds that anything is on its way."""
OPENING = 0.05
"""Seconds that a shard takes to open."""


class Line:
    """Things that are on their way for a moment, and arrive in order. (Timers of one time have none.)"""

    def __init__(self) -> None:
        self._items: deque[Callable[[], object]] = deque()

    def put(self, arrive: Callable[[], object]) -> None:
        self._items.append(arrive)
        asyncio.get_running_loop().call_later(TRAVEL, lambda: self._items.popleft()())


class MemoryWorker(HostedSite):
    """One process of a worker."""

    def __init__(self, cluster: MemoryCluster, descriptor: WorkerDescriptor, authority: MemoryAuthority) -> None:
        super().__init__()
        self.cluster, self.descriptor, self.authority = cluster, descriptor, authority
        self.placement: dict[DomainIndex, Placed] = {}
        self.dead = False
        self.awake = asyncio.Event()
        """Cleared: the process is stopped, and goes on later."""
        self.awake.set()
        self.reachable = True
        """For controllers; its links go on."""
        self.handles: list[MemoryHandle] = []
        self.asked: list[Any] = []
        self.refuses: set[DomainIndex] = set()
        """Domains whose storage cannot be opened here."""
        self.late: list[tuple[Placed, LinkPacket]] | None = None
        """A list: what it sends stays on its way, until ``deliver``."""
        self._unaddressed: list[tuple[DomainIndex, LinkPacket]] = []
        self._line = Line()
        self._opening: set[asyncio.Task[None]] = set()

    def act(self, do: Callable[[DomainHost, Batch], Found]) -> Found:
        """One batch: done, and all that it orders to be done outside done too."""
        batch = Batch()
        try:
            return self.begin(do, batch)
        finally:
            for receiver, packet in self.flush(batch):
                self._send(receiver, packet)

    def _send(self, receiver: DomainIndex, packet: LinkPacket) -> None:
        placed = self.placement.get(receiver)
        if placed is None:
            self._unaddressed.append((receiver, packet))
            return
        if self.late is not None:
            self.late.append((placed, packet))
        else:
            self._line.put(lambda: self.cluster.arrive(placed, packet))

    def deliver(self, to: str = "") -> None:
        """What was late arrives: all of it, or what goes to the worker of this name."""
        late, self.late = self.late or [], None
        if to:
            self.late = [each for each in late if each[0].worker != to]
            late = [each for each in late if each[0].worker == to]
        for placed, packet in late:
            self._line.put(lambda placed=placed, packet=packet: self.cluster.arrive(placed, packet))

    def take(self, packet: LinkPacket) -> None:
        if not self.dead:
            self.act(lambda hosted, batch: hosted.receive([packet], batch, never_refused))

    async def handle(self, message: Any) -> Any:
        self.asked.append(message)
        if hasattr(message, "epoch"):
            self.hosted.fence(message.epoch)
        match message:
            case Ping():
                return Pong(self.descriptor.name, self.descriptor.incarnation)
            case OpenDomain():
                opening = asyncio.create_task(self._open(message))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)
                await opening
                return Done()
            case FlushDomain():
                return Done()
            case CloseDomain(domain=domain):
                self.act(lambda hosted, batch: hosted.close(domain, batch))
                return Done()
            case Perform(domain=domain, command=command):
                return self.act(lambda hosted, batch: hosted.perform(domain, command, batch))
            case Reconfigure():
                self._reconfigure(message)
                return Done()
            case Report():
                if self._opening:  # As in ``WorkerServer``: what was begun before is in it.
                    await asyncio.wait(self._opening)
                return worker_report(self.hosted, self.descriptor.name)
            case Positions():
                return link_positions(self.hosted)
            case SamplesRequest(domain=domain, tables=tables):
                return samples_of(self.hosted, domain, tables)
            case RowsRequest(domain=domain):
                store = self.hosted.hosts[domain].domain.store
                return RowCounts({each.name: store.table(each.name).row_count for each in store.tables()})
            case Status():
                return StatusDocument({"health": "ok", "memory": {"accounted": 1}, "peers": {"out": {}}})
            case ArchiveRequest():
                return self.cluster.archive.archived_now(self.hosted)
            case LogRelease():
                return Done()
            case HeardRequest():
                return Heard(heard_at_last(self.hosted, message.given_up))
            case ArchivedShardRequest():
                return self.cluster.archive.archived(message)
            case LeaveCopies():
                copies_asked(self.hosted, message)
                self.cluster.archive.left.append((message.domain, message.lost))
                return Done()
            case RebuildShard():
                return self.cluster.archive.rebuild(self.cluster.disks, self.descriptor.data, message)
        raise AssertionError(message)

    async def _open(self, message: OpenDomain) -> None:
        await asyncio.sleep(OPENING)
        if message.domain in self.refuses:
            raise StorageFailure(f"the disk of shard {message.shard} cannot be read")
        self.hosted.check(message.epoch)
        self.act(lambda hosted, batch: hosted.close(message.domain, batch))
        if message.kept and (self.descriptor.data, message.shard) not in self.cluster.disks:
            raise StorageFailure(f"shard {message.shard} is missing")
        store = self.cluster.disks.setdefault((self.descriptor.data, message.shard), MemoryStore())
        self.hosted.open(
            message.domain, store, incarnation=message.incarnation, shard=message.shard, shards=message.shards
        )

    def _reconfigure(self, message: Reconfigure) -> None:
        self.placement = message.placement
        unaddressed, self._unaddressed = self._unaddressed, []
        incarnations = {domain: placed.incarnation for domain, placed in message.placement.items()}
        self.act(lambda hosted, batch: hosted.reconfigure(incarnations, message.removals, batch))
        for receiver, packet in unaddressed:
            self._send(receiver, packet)

    def die(self) -> None:
        """As by a signal that cannot be caught: its connections break at once, its session ends in its time."""
        self.dead = True
        self.authority.cut()
        self.break_connections()

    def break_connections(self) -> None:
        for handle in self.handles:
            handle.break_off()

    async def leave(self) -> None:
        """As by a clean stop."""
        await self.authority.close()
        self.dead = True
        self.break_connections()


class MemoryHandle:
    """See ``controller.cluster.leader.fleet.WorkerHandle``."""

    def __init__(self, worker: MemoryWorker) -> None:
        self._worker = worker
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._line = Line()
        self._lost = asyncio.Event()
        worker.handles.append(self)

    @property
    def descriptor(self) -> WorkerDescriptor:
        return self._worker.descriptor

    @property
    def lost(self) -> asyncio.Event:
        return self._lost

    async def ask(self, message: Any) -> Any:
        if self._lost.is_set():
            raise ConnectionLost("the connection is gone")
        self._worker.cluster.count(message)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting[id(answer)] = answer
        self._line.put(lambda: loop.create_task(self._carry(message, answer)))
        try:
            return await answer
        finally:
            self._waiting.pop(id(answer), None)

    async def _carry(self, message: Any, answer: asyncio.Future[Any]) -> None:
        worker = self._worker
        if self._lost.is_set() or not worker.reachable:
            return
        await worker.awake.wait()
        if worker.dead:
            return
        try:
            outcome, error = await worker.handle(message), None
        except HeadraceError as raised:
            outcome, error = None, raised
        await asyncio.sleep(TRAVEL)
        if not answer.done() and not self._lost.is_set() and worker.reachable:
            if error is None:
                answer.set_result(outcome)
            else:
                answer.set_exception(error)

    def break_off(self) -> None:
        self._lost.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection broke", sent=True))

    async def close(self) -> None:
        self.break_off()


class MemoryCluster:
    def __init__(self, *, shards: int = 4, quorum: int = 1, timing: Timing | None = None) -> None:
        self.shards, self.quorum = shards, quorum
        self.timing = timing or Timing()
        self.zookeeper = MemoryZooKeeper(delay=TRAVEL)
        self.disks: dict[tuple[str, int], MemoryStore] = {}
        self.archive = MemoryArchive(shards)
        self.bulk = BulkSettings()
        """Of leaders that are elected from now on."""
        self.workers: dict[str, MemoryWorker] = {}
        self.controllers: dict[str, tuple[MemoryAuthority, asyncio.Task[None]]] = {}
        self.leader: Leader | None = None
        self.leaders: list[Leader] = []
        self.broken: asyncio.Task[None] | None = None
        """What was done at the message that was named, once it came."""
        self._authorities: list[MemoryAuthority] = []
        self._state: State | None = None
        self._decided: ClusterState | None = None
        self._incarnations = 0
        self._messages = 0
        self._at: tuple[int, Callable[[MemoryCluster], Coroutine[Any, Any, None]]] | None = None

    def at_message(self, number: int, act: Callable[[MemoryCluster], Any]) -> None:
        """Have something done when a leader sends its n-th message but heartbeats from now on."""
        self._messages = 0
        self._at = (number, act)

    def count(self, message: Any) -> None:
        if isinstance(message, Ping):
            return
        self._messages += 1
        if self._at is not None and self._messages == self._at[0]:
            self.broken = asyncio.get_running_loop().create_task(self._at[1](self))

    # --- processes ------------------------------------------------------------------------------------------------

    async def _authority(self) -> MemoryAuthority:
        authority = self.zookeeper.authority()
        self._authorities.append(authority)
        await authority.start(create=True)
        return authority

    async def start_worker(self, name: str, data: str = "/data") -> MemoryWorker:
        self._incarnations += 1
        authority = await self._authority()
        descriptor = WorkerDescriptor(name, "host", 1, self._incarnations, self._incarnations, data)
        worker = self.workers[name] = MemoryWorker(self, descriptor, authority)
        await authority.register_worker(descriptor)
        return worker

    async def connect(self, descriptor: WorkerDescriptor) -> MemoryHandle:
        await asyncio.sleep(TRAVEL)
        worker = self.workers.get(descriptor.name)
        if worker is None or worker.dead or worker.descriptor != descriptor:
            raise WorkerGone("nobody listens there")
        if not worker.reachable:
            await asyncio.sleep(3.0)
            raise ConnectionLost("no answer in time")
        await worker.awake.wait()
        return MemoryHandle(worker)

    def arrive(self, placed: Placed, packet: LinkPacket) -> None:
        worker = self.workers.get(placed.worker)
        if worker is not None and worker.descriptor.incarnation == placed.process:
            worker.take(packet)

    async def start_controller(self, name: str) -> None:
        authority = await self._authority()
        self.controllers[name] = (authority, asyncio.create_task(self._control(name, authority)))

    async def _control(self, name: str, authority: MemoryAuthority) -> None:
        while True:
            election = authority.candidate(ControllerDescriptor(name, "host", 2, 2))
            await election.elected()
            settings = LeaderSettings(
                name, self.shards, self.quorum, self.timing, term=len(self.leaders), bulk=self.bulk
            )
            leader = self.leader = Leader(authority, self.connect, settings)
            self.leaders.append(leader)
            await leader.lead(election.lost)
            await election.resign()

    def kill_controller(self, name: str) -> None:
        """Nothing of it runs any more; its session ends when it has timed out."""
        authority, task = self.controllers.pop(name)
        authority.cut()
        leader = self.leader
        assert leader is not None
        for member in leader.fleet.members.values():
            member.handle.break_off()  # type: ignore[attr-defined]
        task.cancel()

    async def close(self) -> None:
        for _, task in self.controllers.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self.controllers.values()), return_exceptions=True)
        for authority in self._authorities:
            await authority.close()

    # --- waiting --------------------------------------------------------------------------------------------------

    async def until(self, what: Callable[[], object], seconds: float = 30.0) -> float:
        """Wait for a condition; answers how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not what():
            assert loop.time() < began + seconds, f"not within {seconds} s: {self.leader and self.leader.trouble}"
            await asyncio.sleep(0.005)
        return loop.time() - began

    async def calm(self, seconds: float = 30.0) -> float:
        return await self.until(lambda: self.leader is not None and self.leader.calm, seconds)

    # --- clients --------------------------------------------------------------------------------------------------

    @property
    def led(self) -> Leader:
        assert self.leader is not None
        return self.leader

    @property
    def state(self) -> State:
        """As a directory has it: what was decided last, as far as is known."""
        if self.led.migrator is not None:
            self._state = self.led.migrator.state
        assert self._state is not None
        return self._state

    @property
    def decided(self) -> ClusterState:
        self._decided = self.led.ledger.state or self._decided
        assert self._decided is not None
        return self._decided

    async def migrate(self, sql: str) -> None:
        await self.led.serving().run(RecipeEntry((sql,)), sql)

    def host(self, domain: DomainIndex) -> MemoryWorker:
        """As a directory has it: the state's word."""
        worker = self.workers[self.decided.placement[domain].worker]
        if worker.dead or not worker.awake.is_set():
            raise NotHere("it does not answer")
        return worker

    async def write(self, sql: str) -> int:
        """Rows affected. Tried again for as long as nothing was done."""
        (parsed,) = split_text(sql)
        statement = interpret_one(parsed, self.state.catalog, (), "2026-01-01 00:00:00")
        assert isinstance(statement, WriteStatement)
        assert statement.operation is not None
        schema = self.state.catalog.table(statement.operation.table)
        affected = 0
        for shard, part in split(statement.operation, schema, self.shards):
            outcome = await self._ask(
                DomainIndex(shard),
                lambda worker, answer, at=shard, one=part: worker.act(
                    lambda hosted, batch: hosted.write(DomainIndex(at), one, answer, batch, version_of(schema))
                ),
            )
            affected += outcome.rows_affected
        return affected

    async def read(self, view: str, *key: Any) -> list[Row]:
        """The rows of a view at a key, sorted; waits until they are known."""
        node = self.state.flow.readers[view.lower()]
        domain = DomainIndex(shard_of_key(self.state.flow, node, key))
        found: list[Row] = []

        def ask(worker: MemoryWorker, answer: Callable[[Any], None]) -> None:
            if (domain, node) not in worker.hosted.layouts:
                raise NotHere("the reader is not here")
            layout = worker.hosted.layouts[domain, node]

            def look() -> None:
                rows = worker.shown[layout.reader_id][key]
                found[:] = [row for row, weight in rows.items() for _ in range(weight)]

            reading = Look(look)
            worker.act(lambda hosted, batch: hosted.read(domain, node, (key,), reading, answer, batch))

        await self._ask(domain, ask)
        return sorted(found, key=repr)

    async def _ask(self, domain: DomainIndex, ask: Callable[[MemoryWorker, Callable[[Any], None]], None]) -> Any:
        loop = asyncio.get_running_loop()
        while True:
            future: asyncio.Future[Any] = loop.create_future()

            def answer(outcome: Any, future: asyncio.Future[Any] = future) -> None:
                if not future.done():
                    future.set_result(outcome)

            try:
                worker = self.host(domain)
                ask(worker, answer)
            except NotHere:
                await asyncio.sleep(0.02)
                continue
            while not future.done() and not worker.dead:
                await asyncio.wait([future], timeout=0.02)
            if not future.done():
                continue  # Reads only: no test kills a worker that has a write of its own to answer.
            outcome = future.result()
            if not isinstance(outcome, Failed):
                return outcome
            if not isinstance(outcome.error, NotHere):
                raise outcome.error
            await asyncio.sleep(0.02)

    # --- the oracle -----------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """At rest, every entry of every domain is what follows from the tables; raises AssertionError."""
        await asyncio.sleep(1.0)
        decided = self.led.ledger.decided
        domains = []
        for index, given in sorted(decided.placement.items()):
            worker = self.workers[given.worker]
            host = worker.hosted.hosts[index]
            assert host.linked
            assert host.domain.incarnation == given.incarnation
            assert not host.held
            assert not host.domain.held
            assert host.domain.backfill is None
            check_domain(host.domain, lambda node, key, w=worker, d=index: w.rows(d, node, key))  # type: ignore[misc]
            domains.append(host.domain)
        check_links(domains)
        for worker in self.workers.values():
            if not worker.dead and worker.awake.is_set():
                strange = [d for d in worker.hosted.hosts if decided.placement[d].worker != worker.descriptor.name]
                assert not strange, f"{worker.descriptor.name} has {strange} still"


def simulated(scenario: Coroutine[Any, Any, None]) -> None:
    """Run to the end in virtual time; nothing that failed unseen is passed over."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.close()
    assert not loop.faults, loop.faults
