"""Cuts of the simulated shards, each at a moment of its own, while transactions are committed over them.

What a cut comes to is a read of all keys in the history: it has to be one that serial transactions could have given,
those that write something (``domains/archive/transactions.py`` says why not those that only read).
And all that was answered before the cut was asked for is in it. Nothing is told twice for ever: what a cut has settled
is forgotten, by some shards sooner than by others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from domains.archive.transactions import (
    ArchivedPart,
    PartPlace,
    WholeCut,
    known_parts,
    missing_parts,
    part_of,
    parts_told,
    whole,
)
from domains.language.types import Delta
from domains.plan.deltas import Entry, add_row
from domains.plan.packets import Clock
from tests.controller.transactions.over_shards import CLIENTS, Chances, Shard, Sharded
from tests.histories.events import Event
from tests.histories.workload import Recorder, Workload, client

CUT_SECONDS = 0.3
"""Between two cuts, on the average."""
SLOW_SECONDS = 0.4
"""A shard may be cut so much later than the cut was asked for."""


@dataclass
class ShardCut:
    position: int
    log: list[tuple[int, list[Delta]]]
    told: list[ArchivedPart]


@dataclass
class Cutting:
    """Cuts of a system, and what they have shown."""

    system: Sharded
    cuts: int = 0
    completed: int = 0
    """Parts that were added, since they were prepared only."""
    went_back: int = 0
    """Shards whose positions are before those of their cut."""
    promised: set[tuple[int, int]] = field(default_factory=set)
    """Keys with values that were written, and answered."""

    async def _cut(self, shard: Shard) -> ShardCut:
        random, loop = self.system.random, self.system.loop
        await asyncio.sleep(random.choice((0.0, random.uniform(0.0, SLOW_SECONDS))))
        while loop.time() < shard.down_until:
            await asyncio.sleep(0.1)
        domain, store = shard.domain, shard.store
        prepared = {id: own.prepared for id, own in domain.transactions.prepared.items() if own.prepared is not None}
        schemas = {"t": (domain.base_name(self.system.schema), self.system.schema)}
        last, position, log = domain.transactions.order, store.position("t"), store.log("t", 0, 1_000_000)
        store.sync()
        await asyncio.sleep(random.choice((0.0, 0.05)))
        told = parts_told(shard.number, last, prepared, store.parts(), schemas)
        return ShardCut(position, log, list(map(part_of, told)))

    async def _lost(self, parts: list[ArchivedPart]) -> set[PartPlace]:
        """Those of the missing parts that their shards do not have even now."""
        lost: set[PartPlace] = set()
        for id, number in sorted(missing_parts(parts)):
            shard = self.system.shards[number]
            while self.system.loop.time() < shard.down_until:
                await asyncio.sleep(0.1)
            if id not in known_parts(shard.store):
                lost.add((id, number))
        return lost

    async def cut(self) -> dict[int, Any]:
        """What each key has."""
        promised = set(self.promised)
        cuts = await asyncio.gather(*map(self._cut, self.system.shards))
        parts = [part for each in cuts for part in each.told]
        bases = [shard.domain.base_name(self.system.schema) for shard in self.system.shards]
        positions = {base: each.position for base, each in zip(bases, cuts, strict=True)}
        found = whole(positions, parts, await self._lost(parts))
        self.cuts += 1
        self.went_back += sum(found.positions[base] < at for base, at in positions.items())
        rows: Entry = {}
        for base, each in zip(bases, cuts, strict=True):
            for sequence, deltas in each.log:
                _add(rows, deltas if sequence <= found.positions[base] else [])
            self._complete(rows, base, each, found)
        assert all(weight == 1 for weight in rows.values()), "what is taken away is there"
        by_key = {row[0]: row[2] for row in rows}
        assert len(by_key) == len(rows), "a key is there once"
        for key, value in promised:
            assert str(value) in by_key.get(key, "").split(","), f"{value} of {key} was answered before the cut"
        for shard in self.system.shards:
            if self.system.random.random() < 0.7:
                shard.store.forget_parts(found.settled)
        return by_key

    def _complete(self, rows: Entry, base: str, cut: ShardCut, found: WholeCut) -> None:
        for part in found.lacking:
            if base in part.changes:
                _add(rows, part.changes[base].deltas)
                self.completed += 1
            elif base in (part.committed or {}):
                written: Clock = part.committed or {}
                (deltas,) = [deltas for sequence, deltas in cut.log if sequence == written[base]]
                _add(rows, deltas)
                self.completed += 1


def _add(rows: Entry, deltas: Any) -> None:
    for row, weight in deltas:
        add_row(rows, row, weight)


@dataclass
class CutRun:
    events: list[Event]
    cutting: Cutting
    left: int
    """Parts that are told still, after a last cut of all."""

    def judged(self) -> list[Event]:
        """The cuts, and what has written something."""
        kept, open = list[Event](), dict[int, Event]()
        for event in self.events:
            if event["type"] == "invoke":
                open[event["process"]] = event
            elif event["process"] == CLIENTS or any(what != "r" for what, *_ in event["value"]):
                kept += [open.pop(event["process"]), event]
        return sorted(kept, key=lambda each: each["index"])


def ran_with_cuts(seed: int, *, lists: bool = True, transactions: int = 120, chances: Chances | None = None) -> CutRun:
    """A run with cuts, to its end.

    :raises AssertionError: a cut shows what it must not, or lacks what was answered."""
    from random import Random

    from tests.cluster_simulation.loop import Condition, VirtualLoop

    loop, random = VirtualLoop(), Random(seed)
    asyncio.set_event_loop(loop)
    workload = Workload(seed, lists=lists, keys=6, most=transactions, plain=0.5 if not lists else 0.0)
    system = Sharded(loop, random, chances or Chances(), lists=lists)
    cutting, events = Cutting(system), list[Event]()
    record = Recorder(_noting(events, cutting, lists=lists), CLIENTS + 1)

    async def cut_now_and_then() -> None:
        while True:
            await asyncio.sleep(random.expovariate(1.0 / CUT_SECONDS))
            await one_cut()

    async def one_cut() -> None:
        keys = range((workload.block + 3) * 6)
        record(CLIENTS, "invoke", [["r", key, None] for key in keys])
        found = await cutting.cut()
        record(CLIENTS, "ok", [["r", key, _value(found.get(key), lists=lists)] for key in keys])

    async def run() -> None:
        failing = asyncio.create_task(system.fail_now_and_then())
        cutter = asyncio.create_task(cut_now_and_then())
        await asyncio.gather(*(client(number, system, workload, record) for number in range(CLIENTS)))
        failing.cancel()
        cutter.cancel()
        await asyncio.gather(cutter, return_exceptions=True)
        if cutter.done() and not cutter.cancelled() and cutter.exception() is not None:
            raise cutter.exception()  # type: ignore[misc]
        system.chances = Chances(0.0, 0.0, 0.0)
        until = loop.time() + 120.0
        while any(each.domain.transactions.prepared or each.domain.transactions.decided for each in system.shards):
            assert loop.time() < until, "something stays prepared, or decided"
            system.in_doubt.look()
            await asyncio.sleep(1.0)
        await system.in_doubt.close()
        while any(loop.time() < shard.down_until for shard in system.shards):
            await asyncio.sleep(1.0)
        for _ in range(20):
            await cutting.cut()

    try:
        loop.run_until_complete(run())
    finally:
        for process in loop.processes:
            process.condition = Condition.DEAD
        loop.close()
    assert not loop.faults, loop.faults
    return CutRun(events, cutting, sum(len(shard.store.parts()) for shard in system.shards))


def _noting(events: list[Event], cutting: Cutting, *, lists: bool) -> Any:
    def give(event: Event) -> None:
        events.append(event)
        if lists and event["type"] == "ok":
            cutting.promised |= {(key, value) for what, key, value in event["value"] if what == "append"}

    return give


def _value(row: Any, *, lists: bool) -> Any:
    if lists:
        return [] if row is None else list(map(int, row.split(",")))
    return row
