"""The simulated shards, of which some lose their disks: what others have kept of their transactions brings these back.

Each shard is archived now and then, at moments of its own, and from time to time all that is archived is recorded as a
cut, of which some shards hear. A shard whose disk is lost is made again as ``worker/archive/lost_shard.py`` does it.
Transactions append a number of their own to lists in several shards: in the end each number is in all of its lists, or
in none; and in all if its commit was answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from domains.archive.redo import KeptTransaction, kept_from_json, kept_to_json, kept_with, redo
from domains.archive.transactions import ArchivedPart, WholeCut, known_parts, missing_parts, part_of, parts_told, whole
from domains.engine.transactions.parts import OtherShards
from domains.errors import HeadraceError
from domains.language.types import Delta, TableSchema
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from tests.cluster_simulation.loop import Condition, VirtualLoop
from tests.cluster_simulation.storage import CrashStore
from tests.controller.transactions.over_shards import SHARDS, Chances, Shard, Sharded, ShardedSession
from tests.histories.system import Aborted, Unknown

WRITERS, KEYS = 6, 4
"""Clients; keys of a shard, so that many meet."""


@dataclass(frozen=True)
class Archived:
    """Of one shard, synced, at one moment."""

    rows: list[Delta]
    position: int
    transactions: frozenset[str]
    told: list[ArchivedPart]


def archived_of(shard: LosableShard) -> Archived:
    shard.store.sync()
    store, domain = shard.store, shard.domain
    position, base = store.position("t"), domain.base_name(shard.schema)
    prepared = {id: own.prepared for id, own in domain.transactions.prepared.items() if own.prepared is not None}
    told = parts_told(shard.number, domain.transactions.order, prepared, store.parts(), {"t": (base, shard.schema)})
    here = frozenset(id for id, part in store.parts().items() if part.committed.get(base, position + 1) <= position)
    return Archived(list(store.table("t").find((), ())), position, here, list(map(part_of, told)))


class LosableShard(Shard):
    def __init__(self, number: int, random: Random, schema: TableSchema, decided: dict[int, int]) -> None:
        self.schema = schema
        self.decided = decided
        """The incarnations that a leader has decided."""
        self.heard: dict[int, int] = {}
        """Those that this shard's worker has heard of."""
        self.losses = 0
        self.is_lost = False
        super().__init__(number, random, schema)
        self.archived = archived_of(self)

    def _open(self) -> None:
        self.incarnation = self.decided[self.number] = max(self.decided.values(), default=0) + 1
        self.heard = dict(self.decided)
        index = DomainIndex(self.number)
        super()._open_at(self.incarnation)
        since: Callable[[DomainIndex], int] = lambda shard: self.heard.get(shard, 0)
        self.domain.transactions.parts.others = OtherShards(index, self.incarnation, since)

    def crash(self, until: float) -> None:
        if not self.is_lost:
            super().crash(until)

    def make_again(self, kept: list[KeptTransaction], settled: frozenset[str]) -> int:
        """From what is archived. Answers how many transactions were brought back."""
        known, archived = self.store.position("t"), self.archived
        self.store = CrashStore()
        self.store.create_table(self.schema)
        self.store.table("t").stage(archived.rows)
        self.store.commit([("t", known, [])] if known else ())
        left = [each for each in kept if each.id not in settled]
        done = redo(self.store, DomainIndex(self.number), SHARDS, left, {"t": archived.transactions})
        self.store.sync()
        self._open()
        self.losses += 1
        return done.transactions


@dataclass
class Losing:
    """A run's shards, archive and losses."""

    system: Sharded
    shards: list[LosableShard]
    cut: WholeCut = field(default_factory=lambda: WholeCut({}))
    brought_back: int = 0
    cuts: int = 0

    async def archive_now_and_then(self) -> None:
        random = self.system.random
        while True:
            await asyncio.sleep(random.expovariate(4.0))
            shard = random.choice(self.shards)
            if not self._is_down(shard):
                shard.archived = archived_of(shard)

    async def record_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.system.random.expovariate(1.0))
            await self._record()

    async def _record(self) -> None:
        random, losses = self.system.random, [shard.losses for shard in self.shards]
        taken: list[Archived] = []
        for shard in random.sample(self.shards, SHARDS):
            await asyncio.sleep(random.choice((0.0, 0.2)))
            await self._back(shard)
            shard.archived = archived_of(shard)
            taken.append(shard.archived)
        parts = [part for each in taken for part in each.told]
        lost = {(id, at) for id, at in missing_parts(parts) if id not in known_parts(self.shards[at].store)}
        if [shard.losses for shard in self.shards] != losses:
            return  # A shard that is made again is archived anew.
        positions: Clock = {}
        for shard in self.shards:
            positions[shard.domain.base_name(shard.schema)] = shard.archived.position
        self.cut = whole(positions, parts, lost)
        self.cuts += 1
        for shard in self.shards:
            if random.random() < 0.7:
                shard.store.forget_parts(self.cut.settled)

    async def lose_now_and_then(self) -> None:
        random = self.system.random
        while True:
            await asyncio.sleep(random.expovariate(0.5))
            await self.lose(random.choice(self.shards))

    async def lose(self, lost: LosableShard) -> None:
        loop, random = self.system.loop, self.system.random
        lost.is_lost, lost.down_until = True, loop.time() + 1e9
        lost.incarnation += 1  # What it had under way is not answered.
        await asyncio.sleep(random.choice((0.0, 0.5)))
        incarnation = lost.decided[lost.number] = max(lost.decided.values()) + 1
        kept: list[KeptTransaction] = []
        for other in random.sample(self.shards, SHARDS):
            if other is lost:
                continue
            await asyncio.sleep(random.choice((0.0, random.uniform(0.0, 0.3))))
            await self._back(other)
            kept += kept_from_json(self._left(other, lost, incarnation), "kept")
        await asyncio.sleep(random.choice((0.0, 0.3)))
        self.brought_back += lost.make_again(kept, frozenset(self.cut.settled))
        lost.archived = archived_of(lost)
        lost.is_lost, lost.down_until = False, loop.time()

    def _left(self, other: LosableShard, lost: LosableShard, incarnation: int) -> bytes:
        """As ``LeaveCopies`` has it."""
        other.heard[lost.number] = incarnation
        here, there = DomainIndex(other.number), DomainIndex(lost.number)
        found = kept_to_json(kept_with(other.store, here, other.incarnation, there))
        other.store.sync()
        return found

    async def _back(self, shard: LosableShard) -> None:
        while self._is_down(shard):
            await asyncio.sleep(0.1)

    def _is_down(self, shard: LosableShard) -> bool:
        return self.system.loop.time() < shard.down_until


@dataclass
class Appended:
    keys: tuple[int, ...]
    is_answered: bool = False


async def append(number: int, system: Sharded, random: Random) -> Appended:
    shards = random.sample(range(SHARDS), random.choice((1, 2, 2, 3)))
    done = Appended(tuple(shard + SHARDS * random.randrange(KEYS) for shard in shards))
    session = ShardedSession(system)
    try:
        await session.begin()
        for key in done.keys:
            await session.write(key, number)
        if len(shards) < SHARDS and random.random() < 0.5:
            await session.read([next(each for each in range(SHARDS) if each not in shards)], "key")
        await session.commit()
        done.is_answered = True
    except Aborted:
        done.keys = ()
        await session.rollback()
    except (Unknown, HeadraceError, TimeoutError):
        pass  # It is done or not.
    return done


@dataclass
class LossRun:
    losing: Losing
    appended: dict[int, Appended]

    def halves(self) -> list[str]:
        """What is not as it should be, of transactions over several shards."""
        lists = {
            row[0]: set(map(int, row[2].split(",")))
            for shard in self.losing.shards
            for row, _ in shard.store.table("t").find((), ())
        }
        found = []
        for number, done in self.appended.items():
            here = [key for key in done.keys if number in lists.get(key, ())]
            if len(done.keys) > 1 and here and len(here) < len(done.keys):
                found.append(f"{number} is in {here} of {done.keys}")
            if len(done.keys) > 1 and done.is_answered and not here:
                found.append(f"{number} was answered, and is in none of {done.keys}")
        return found


def ran_with_losses(seed: int, *, transactions: int = 150, chances: Chances | None = None) -> LossRun:
    """One run, to its end: all that was left is settled then."""
    loop, random = VirtualLoop(), Random(seed)
    asyncio.set_event_loop(loop)
    system = Sharded(loop, random, chances or Chances(), lists=True)
    decided: dict[int, int] = {}
    shards = [LosableShard(number, random, system.schema, decided) for number in range(SHARDS)]
    system.shards = list(shards)
    done = LossRun(Losing(system, shards), {})
    numbers = iter(range(1, transactions + 1))

    async def write() -> None:
        for number in numbers:
            done.appended[number] = Appended(())
            done.appended[number] = await append(number, system, random)
            await asyncio.sleep(random.uniform(0.0, 0.1))

    async def run() -> None:
        losing = done.losing
        failing = [losing.archive_now_and_then(), losing.record_now_and_then(), system.fail_now_and_then()]
        others = [asyncio.create_task(each) for each in failing]
        losses = asyncio.create_task(losing.lose_now_and_then())
        await asyncio.gather(*(write() for _ in range(WRITERS)))
        for task in others:
            task.cancel()
        while any(shard.is_lost for shard in shards):
            await asyncio.sleep(0.1)  # It is made again first.
        losses.cancel()
        for ended in await asyncio.gather(*others, losses, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        system.chances = Chances(0.0, 0.0, 0.0)
        until = loop.time() + 120.0
        while any(shard.domain.transactions.prepared or shard.domain.transactions.decided for shard in shards):
            assert loop.time() < until, "something stays prepared, or decided"
            system.in_doubt.look()
            await asyncio.sleep(1.0)
        await system.in_doubt.close()

    try:
        loop.run_until_complete(run())
    finally:
        for process in loop.processes:
            process.condition = Condition.DEAD
        loop.close()
    assert not loop.faults, loop.faults
    return done
