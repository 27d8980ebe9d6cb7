"""Transactions over several shards, simulated: engines and coordinators as they are, with crashes at every point.

Each message to a shard takes a time that the seed draws, and so does its answer; either may be lost. A shard crashes
with what it has not synced; a coordinator dies in the middle of a commit. What clients did and saw is a history, which
has to be strictly serializable (``tests/histories``), and in the end nothing is left prepared.

Where transactions take locks, all of their reads are FOR SHARE, so that the history has to be strictly serializable,
too; a crash loses the locks of what is not prepared, and no shard sees who waits in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any

from controller.hosts import TableTarget
from controller.transactions.deadlocks import Deadlocks
from controller.transactions.in_doubt import InDoubt
from controller.transactions.limits import Isolation
from controller.transactions.snapshots import COLLECTED_SECONDS, Snapshots
from controller.transactions.transaction import Transaction
from domains.engine.domain import Domain
from domains.engine.transactions.locks import HeldByLocks
from domains.errors import (
    Conflict,
    HeadraceError,
    Locked,
    NotFound,
    NotServed,
    OutcomeUnknown,
    SnapshotGone,
    TransactionEnded,
    Unavailable,
)
from domains.language.types import BIGINT, TEXT, SqlType, TableColumn, TableSchema
from domains.plan.graph import DomainIndex
from domains.plan.packets import (
    Clock,
    Failed,
    Insert,
    InTransaction,
    Outcome,
    Reply,
    RequestId,
    TransactionAct,
    Within,
    Write,
    Written,
    is_repeatable,
)
from migrations.flow.routing import split
from tests.cluster_simulation.loop import Condition, Process, VirtualLoop
from tests.cluster_simulation.storage import CrashStore
from tests.histories.events import Event
from tests.histories.system import Aborted, How, Unknown
from tests.histories.workload import Recorder, Workload, client
from worker.adhoc.answer import Rows
from worker.protocol.cuts import KnownWait
from worker.protocol.messages import KeptSnapshots, KnownTransaction

SHARDS, CLIENTS = 3, 6


def _table(lists: bool) -> TableSchema:
    value: SqlType = TEXT if lists else BIGINT
    columns = (TableColumn("k", BIGINT, nullable=False), TableColumn("block", BIGINT), TableColumn("v", value))
    return TableSchema("t", columns, primary_key=(0,), indexes=((1,),))


@dataclass
class Chances:
    """Of what goes wrong: for each message, for each second, for each commit."""

    lost: float = 0.01
    crash: float = 0.6
    """Crashes a second, on the average."""
    death: float = 0.1
    """That whoever commits dies meanwhile."""
    patience: float = 2.0
    """Seconds that a request is sent again for, where that is safe."""
    doubt: float = 5.0
    """Seconds after which somebody ends what another is committing."""


class Shard:
    def __init__(self, number: int, random: Random, schema: TableSchema) -> None:
        self.number, self._random = number, random
        self.store = CrashStore()
        self.store.create_table(schema)
        self.incarnation = 0
        self.down_until = 0.0
        self.crashes = 0
        self._requests = 0
        self._answers: dict[RequestId, asyncio.Future[Outcome]] = {}
        self._open()

    def _open(self) -> None:
        self.incarnation += 1
        self._open_at(self.incarnation)

    def _open_at(self, incarnation: int) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown("the shard has crashed"))
        self._answers.clear()
        index = DomainIndex(self.number)
        self.domain = Domain(index, self.store, incarnation=incarnation, shard=self.number, shards=SHARDS)

    def crash(self, until: float) -> None:
        self.store.crash(self._random)
        self._open()
        self.down_until = until
        self.crashes += 1

    async def write(self, act: TransactionAct, within: Within) -> Written:
        self._requests += 1
        request = RequestId(self._requests)
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        before = self.incarnation
        for each in self.domain.handle(Write(request, act, within)):
            if isinstance(each, Reply):
                self._answers.pop(each.request).set_result(each.outcome)
        outcome = await answer  # Others' ends let it go on, where it waits.
        await asyncio.sleep(self._random.uniform(0.0, 0.01))
        if self.incarnation != before:
            raise OutcomeUnknown("the shard has crashed")
        self.store.sync()
        if isinstance(outcome, Failed):
            error = outcome.error
            domain = {"domain": DomainIndex(self.number)} if isinstance(error, HeldByLocks) else {}
            raise type(error)(error.message, hint=error.hint, **domain)
        assert isinstance(outcome, Written)
        return outcome


class Sharded:
    """See :class:`tests.histories.system.System`, which it implements."""

    def __init__(
        self, loop: VirtualLoop, random: Random, chances: Chances, *, lists: bool, locks: bool = False
    ) -> None:
        self.loop, self.random, self.chances, self.lists = loop, random, chances, lists
        self.isolation = Isolation.READ_COMMITTED if locks else Isolation.SERIALIZABLE
        self.schema = _table(lists)
        self.target = TableTarget.of(self.schema, SHARDS)
        self.shards = [Shard(number, random, self.schema) for number in range(SHARDS)]
        self.bases = [DomainIndex(number) for number in range(SHARDS)]
        asked = self.known, self.kept, lambda: self.bases
        self.in_doubt = InDoubt(self.transact, *asked, chances.doubt)
        self.snapshots = Snapshots(self.transact, *asked, self.doubt, loop.time)
        self.deadlocks = Deadlocks(self.waits, lambda: self.bases, self.doubt) if locks else None
        self.begun = self.deaths = 0
        self._lasting = copy_context()

    async def session(self) -> ShardedSession:
        return ShardedSession(self)

    def doubt(self) -> None:
        """By a process that does not die with whoever commits."""
        self.loop.call_soon(self.in_doubt.look, context=self._lasting)

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.choice((0.0, 0.001, self.random.uniform(0.0, 0.05))))

    async def _once(self, act: TransactionAct, domain: DomainIndex, within: Within) -> Written:
        await self._pause()
        shard = self.shards[domain]
        if self.loop.time() < shard.down_until:
            raise NotServed("the shard is away")
        if self.random.random() < self.chances.lost:
            raise OutcomeUnknown("the request is lost")
        written = await shard.write(act, within)
        await self._pause()
        if self.random.random() < self.chances.lost:
            raise OutcomeUnknown("the answer is lost")
        return written

    async def send(self, act: TransactionAct, domain: DomainIndex, within: Within, *, is_safe: bool) -> Written:
        """As a cluster's router: what was surely not done is sent again, and what may be done twice."""
        until = self.loop.time() + self.chances.patience
        while True:
            try:
                return await self._once(act, domain, within)
            except Locked:
                raise
            except OutcomeUnknown:
                if not is_safe or self.loop.time() >= until:
                    raise
            except NotServed:
                if self.loop.time() >= until:
                    raise
            await asyncio.sleep(0.1)

    async def transact(self, act: TransactionAct, within: InTransaction, table: TableTarget | None) -> Written:
        return await self.send(act, within.domain, within, is_safe=is_repeatable(act))

    async def known(self, domain: DomainIndex) -> tuple[KnownTransaction, ...]:
        await self._pause()
        if self.loop.time() < self.shards[domain].down_until:
            raise NotServed("the shard is away")
        transactions = self.shards[domain].domain.transactions
        prepared = {id: own.prepared for id, own in transactions.prepared.items() if own.prepared is not None}
        records = {**transactions.decided, **prepared}
        return tuple(KnownTransaction(id, record.decider, record.others) for id, record in records.items())

    async def waits(self, domain: DomainIndex) -> tuple[KnownWait, ...]:
        await self._pause()
        shard = self.shards[domain]
        found = shard.domain.transactions.locks.known()
        return tuple(KnownWait(id, holder, number, shard.incarnation) for id, number, holder in found)

    async def kept(self, domain: DomainIndex) -> KeptSnapshots:
        await self._pause()
        if self.loop.time() < self.shards[domain].down_until:
            raise NotServed("the shard is away")
        domain_, store = self.shards[domain].domain, self.shards[domain].store
        return KeptSnapshots(tuple(store.snapshots().values()), domain_.transactions.snapshots.still)

    def rows_as_of(self, name: str) -> dict[int, Any]:
        """:raises SnapshotGone: a shard does not keep it."""
        rows = [row for shard in self.shards for row, _ in shard.store.snapshot(name).table("t").find((), ())]
        return {row[0]: [*map(int, row[2].split(","))] if self.lists else row[2] for row in rows}

    async def fail_now_and_then(self) -> None:
        while self.chances.crash:
            await asyncio.sleep(self.random.expovariate(self.chances.crash))
            self.random.choice(self.shards).crash(self.loop.time() + self.random.choice((0.0, 0.1, 3.0)))


class ShardedSession:
    """Requests of one client, whose transactions another process coordinates."""

    def __init__(self, system: Sharded) -> None:
        self.system = system
        self._transaction: Transaction

    async def begin(self) -> None:
        system = self.system
        system.begun += 1
        id = f"{int(system.loop.time() * 1000):011x}{system.begun:08x}"
        self._transaction = Transaction(
            id,
            system.transact,
            0,
            isolation=system.isolation,
            lock_wait=30.0,
            on_doubt=system.doubt,
            deadlocks=system.deadlocks,
        )

    async def read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        return await self._done(self._read(keys, how))

    async def _read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        found: dict[int, Any] = {}
        block = keys[0] // BLOCK

        async def evaluate(asking: Sequence[InTransaction]) -> tuple[Rows, Clock]:
            clock: Clock = {}
            for within in asking:
                own = [key for key in keys if key % SHARDS == within.domain]
                if not own and how != "join":
                    continue
                await self.system._pause()
                if self.system.loop.time() < self.system.shards[within.domain].down_until:
                    raise NotServed("the shard is away")
                transactions = self.system.shards[within.domain].domain.transactions
                table = transactions.reading(within).table("t")
                if how == "join":
                    rows = table.find((1,), (block,))
                else:
                    rows = [delta for part in table.find_many((0,), [(key,) for key in own]) for delta in part]
                transactions.check_read(within)
                found.update({row[0]: row[2] for row, _ in rows})
                clock[f"t@{within.domain}"] = 0
            return [], clock

        with self._transaction.reading_to_write("shared"):
            await self._transaction.read(self.system.bases, evaluate, self._no_snapshot)
        if self.system.lists:
            return {key: list(map(int, value.split(","))) for key, value in found.items()}
        return found

    @staticmethod
    async def _no_snapshot(asking: Sequence[InTransaction]) -> None:
        raise AssertionError("none of them reads plainly")

    async def write(self, key: int, value: int) -> None:
        await self._done(self._write(key, value))

    async def _write(self, key: int, value: int) -> None:
        written: Any = value
        if self.system.lists:
            before = (await self._read([key], "key")).get(key, [])
            written = ",".join(map(str, [*before, value]))
        await self._transaction.write(split(self._insert(key, written), self.system.schema, SHARDS), self.system.target)

    @staticmethod
    def _insert(key: int, value: Any) -> Insert:
        return Insert("t", ((key, key // BLOCK, value),), on_conflict="replace")

    async def write_plainly(self, key: int, value: int) -> None:
        domain = DomainIndex(key % SHARDS)
        until = self.system.loop.time() + 5.0
        while True:
            try:
                await self.system.send(self._insert(key, value), domain, None, is_safe=False)
                return
            except Locked:
                self.system.doubt()
                if self.system.loop.time() >= until:
                    raise Aborted from None
            except NotServed as error:
                raise Aborted from error
            except HeadraceError as error:
                raise Unknown from error
            await asyncio.sleep(0.01)

    async def _done(self, asked: Any) -> Any:
        try:
            return await asked
        except (Conflict, TransactionEnded) as error:
            raise Aborted from error
        except Unavailable as error:
            await self.rollback()
            raise Aborted from error

    async def commit(self) -> None:
        if self.system.random.random() < self.system.chances.death:
            process = Process(self.system.loop, "coordinator")
            process.spawn(self._commit_alone())
            await asyncio.sleep(self.system.random.uniform(0.0, 0.3))
            process.die()
            self.system.deaths += 1
            raise Unknown
        try:
            await self._transaction.commit()
        except (OutcomeUnknown, TimeoutError) as error:
            raise Unknown from error
        except (Conflict, TransactionEnded, Locked, NotServed) as error:
            await self.rollback()
            raise Aborted from error

    async def _commit_alone(self) -> None:
        try:
            await self._transaction.commit()
        except (HeadraceError, TimeoutError):
            return  # Nobody hears of it.

    async def rollback(self) -> None:
        await self._transaction.roll_back()

    async def close(self) -> None:
        """There is nothing to close."""


class SnapshotTaker:
    """Takes snapshots while others write, and records each as a transaction that reads."""

    def __init__(self, system: Sharded, workload: Workload, record: Recorder) -> None:
        self._system, self._workload, self._record = system, workload, record
        self._process = record.new_process()
        self._random = Random(workload.seed)
        self._seen: dict[str, dict[int, Any]] = {}
        self.begun = self.taken = self.read_again = 0
        self.is_over = False
        self.held: set[str] = set()
        self.leaving: set[str] = set()
        """Dropped, and some shards may keep them still."""

    async def run(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self._random.uniform(0.0, 0.4))
            if self._random.random() < self._system.chances.death:
                process = Process(self._system.loop, "taker")
                process.spawn(self._taken_alone())
                await asyncio.sleep(self._random.uniform(0.0, 0.3))
                process.die()
            else:
                await self._take()
            for name, rows in list(self._seen.items()):
                try:
                    assert self._system.rows_as_of(name) == rows, "a snapshot has changed"
                    self.read_again += 1
                except SnapshotGone:
                    assert name not in self.held, "what is held is there, whatever crashes"
                    del self._seen[name]
            if self.held and self._random.random() < 0.2:
                await self.let_go(self._random.choice(sorted(self.held)))

    def _name(self) -> str:
        self.begun += 1
        return f"snapshot {self.begun}"

    async def let_go(self, name: str) -> None:
        """Drop one that is held. A shard that is away may have it still, until it is collected."""
        self.held.discard(name)
        self._seen.pop(name, None)
        try:
            await self._system.snapshots.drop(name)
            self.leaving.discard(name)
        except NotFound:
            self.leaving.discard(name)
        except (HeadraceError, TimeoutError):
            self.leaving.add(name)  # Whoever hears that goes on asking.

    async def _taken_alone(self) -> None:
        try:
            await self._system.snapshots.take(self._name())
        except HeadraceError:
            return  # Nobody hears of it.

    async def _take(self) -> None:
        first = max(0, self._workload.block - 1) * BLOCK
        asked: list[list[Any]] = [["r", key, None] for key in range(first, (self._workload.block + 2) * BLOCK)]
        self._record(self._process, "invoke", asked)
        name, hold = self._name(), self._random.random() < 0.4
        try:
            await self._system.snapshots.take(name, hold=hold)
            if hold:
                self.held.add(name)
            rows = self._seen[name] = self._system.rows_as_of(name)
        except (HeadraceError, TimeoutError) as error:
            if isinstance(error, OutcomeUnknown):
                self.leaving.add(name)
            self._record(self._process, "fail", asked)
            return
        nothing: Any = [] if self._system.lists else None
        self._record(self._process, "ok", [["r", key, rows.get(key, nothing)] for _, key, _ in asked])
        self.taken += 1


BLOCK = 6
"""Keys of a block, as :class:`Workload` has them."""


@dataclass
class Ran:
    events: list[Event]
    system: Sharded
    taker: SnapshotTaker | None = None


def ran(
    seed: int,
    *,
    lists: bool,
    transactions: int = 150,
    chances: Chances | None = None,
    snapshots: bool = False,
    locks: bool = False,
) -> Ran:
    """One run, to its end: all that was left is settled then. With ``snapshots`` some are taken meanwhile.

    :raises AssertionError: something stays prepared, decided, or stands still."""
    loop, random = VirtualLoop(), Random(seed)
    asyncio.set_event_loop(loop)
    workload = Workload(seed, lists=lists, keys=BLOCK, most=transactions, plain=0.0 if lists else 0.5)
    system = Sharded(loop, random, chances or Chances(), lists=lists, locks=locks)
    events: list[Event] = []
    done = Ran(events, system)

    async def run() -> None:
        record = Recorder(events.append, CLIENTS)
        failing = asyncio.create_task(system.fail_now_and_then())
        taking: asyncio.Task[None] | None = None
        if snapshots:
            done.taker = SnapshotTaker(system, workload, record)
            taking = loop.create_task(done.taker.run())
        await asyncio.gather(*(client(number, system, workload, record) for number in range(CLIENTS)))
        if taking is not None and done.taker is not None:
            done.taker.is_over = True
            await taking
        failing.cancel()
        system.chances = Chances(0.0, 0.0, 0.0)
        until = loop.time() + 120.0
        while loop.time() < until:
            system.in_doubt.look()
            await asyncio.sleep(1.0)
            known = [shard.domain.transactions for shard in system.shards]
            if not any(each.prepared or each.decided or each.snapshots.still for each in known):
                break
        if done.taker is not None:
            await asyncio.sleep(COLLECTED_SECONDS)  # All shards are there again.
            for name in sorted(done.taker.leaving):
                await done.taker.let_go(name)
            name = (await system.snapshots.take("last")).name
            kept = [shard.store.snapshots() for shard in system.shards]
            is_left = done.taker.held | {name}
            assert list(map(set, kept)) == [is_left] * SHARDS, "what was given up, or is old, is collected"
        for shard in system.shards:
            assert not shard.domain.transactions.prepared, f"shard {shard.number} is left with what is prepared"
            assert not shard.domain.transactions.decided, f"shard {shard.number} is left with what it has decided"
            assert not shard.domain.transactions.snapshots.still, f"shard {shard.number} is left standing still"
            assert not shard.store.records()
        await system.in_doubt.close()

    try:
        loop.run_until_complete(run())
    finally:
        for process in loop.processes:
            process.condition = Condition.DEAD
        loop.close()
    assert not loop.faults, loop.faults
    return done
