"""The domains of the embedded deployment: all of them on the dataflow thread of this process, with one reader map."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from controller.hosts import Asked, LockWait, PartWatcher, ReaderShard, SchemaChanged, ShardWatch, TableTarget
from domains.engine.evaluation import RowsExceeded
from domains.engine.transactions.locks import HeldByLocks
from domains.errors import Locked
from domains.language.types import Row, TableSchema
from domains.plan.estimates import Statistics
from domains.plan.graph import DomainIndex, Node
from domains.plan.packets import (
    Clock,
    Evicted,
    InTransaction,
    Once,
    Operation,
    Outcome,
    Refused,
    TransactionAct,
    Within,
    Written,
)
from worker.adhoc.answer import Question, Rows
from worker.adhoc.cut import Asking, EvaluationCut, answered_here, cut, shards_of, statistics_of, take_snapshot
from worker.adhoc.pool import Budget, EvaluatorPool
from worker.dataflow.batch import Watch, WatchedReader
from worker.dataflow.group_commit import LoopCompletions
from worker.dataflow.reading_together import WantedKeys
from worker.dataflow.thread import DataflowThread
from worker.dataflow.watches import Mailbox
from worker.protocol.messages import KeptSnapshots, KnownTransaction, NotHere, Streams
from worker.reader_map import BoundLookup, Parts, ReaderClient, ReaderLayout
from worker.reader_map.merging import HeldRow
from worker.service.holds import Holds
from worker.service.status import kept_snapshots, known_transactions, streams_of

Found = TypeVar("Found")


class LocalHosts:
    """See :class:`controller.hosts.Hosts`, which it implements. All its methods run on one event loop."""

    def __init__(self, dataflow: DataflowThread) -> None:
        self._dataflow = dataflow
        self._client = dataflow.client()
        self._loop = asyncio.get_running_loop()
        self._progress = asyncio.Event()
        self._waiting = 0
        """Callers that wait for progress; without any, the group commit need not tell of it."""
        self._answers = LoopCompletions(self._loop)
        self._holds = Holds(dataflow)
        self._watched = LocalWatches(dataflow, self._loop)
        self.evaluators = EvaluatorPool()
        self.on_locked: Callable[[], None] = lambda: None

    async def close(self) -> None:
        """Nothing is evaluated any more."""
        self.evaluators.close()

    def reader(self, node: Node, domain: DomainIndex, bases: frozenset[str]) -> ReaderShard:
        return ReaderShard(domain, node.index, self._dataflow.layouts[domain, node.index], self._client, bases)

    # --- reads ----------------------------------------------------------------------------------------------

    def has_reached(self, shard: ReaderShard, token: Clock) -> bool:
        """Links inside a process are drained with every batch, so what is published is what every reader reflects."""
        if not token:
            return True
        published = self._dataflow.published
        reached: Clock = {base: at for clock in published.values() for base, at in clock.items()}
        return all(reached.get(base, 0) >= position for base, position in token.items())

    async def pages(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[bytes | None]:
        return await self._read(shard, lookups, token, deadline, BoundLookup.page)

    async def parts(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[Parts | None]:
        return await self._read(shard, lookups, token, deadline, BoundLookup.parts)

    async def _read(
        self,
        shard: ReaderShard,
        lookups: Sequence[BoundLookup],
        token: Clock,
        deadline: float,
        find: Callable[[BoundLookup, ReaderClient, ReaderLayout], Found | None],
    ) -> list[Found | None]:
        """All keys are named, not only the holes: what is a hit now may be evicted before the others are filled."""
        client, layout = self._client, shard.layout
        keys = lookups[0].keys if len(lookups) == 1 else _keys(lookups)
        async with asyncio.timeout_at(deadline):
            if token:
                await self._reached(shard, token)
            future = self._dataflow.read(
                shard.domain, shard.node, keys, lambda: [find(each, client, layout) for each in lookups]
            )
            return await asyncio.wrap_future(future)

    async def pages_together(self, wanted: Sequence[Asked], deadline: float) -> list[list[bytes | None]]:
        client = self._client

        def finder(layout: ReaderLayout, lookups: Sequence[BoundLookup]) -> Callable[[], list[bytes | None]]:
            return lambda: [each.page(client, layout) for each in lookups]

        reads = [
            WantedKeys(shard.domain, shard.node, _keys(lookups), finder(shard.layout, lookups))
            for shard, lookups in wanted
        ]
        async with asyncio.timeout_at(deadline):
            return await asyncio.wrap_future(self._dataflow.read_together(reads))

    async def _reached(self, shard: ReaderShard, token: Clock) -> None:
        if not self._waiting:
            self._dataflow.listeners.append(self._progressed)
        self._waiting += 1  # Before the first look, so that no progress after it goes unheard.
        try:
            while not self.has_reached(shard, token):
                if (failure := self._dataflow.failure) is not None:
                    raise failure
                self._progress.clear()
                await self._progress.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._dataflow.listeners.remove(self._progressed)

    def _progressed(self) -> None:
        """Called by the flusher's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._progress.set)

    async def held(self, shard: ReaderShard) -> AsyncIterator[Clock | HeldRow]:
        hold = await self._holds.take(shard.domain, shard.node)
        try:
            yield hold.clock
            while rows := self._holds.next(hold.number).rows:
                for row in rows:
                    yield row
                await asyncio.sleep(0)  # Others have their turn: it may be a million rows.
        finally:
            self._holds.release(hold.number)

    def watch(self, shard: ReaderShard, lookup: BoundLookup, watcher: PartWatcher) -> ShardWatch:
        return self._watched.begin(shard, lookup, watcher)

    def catch_up(self) -> None:
        self._watched.show()

    def touch(self, shard: ReaderShard, keys: tuple[Row, ...]) -> None:
        self._dataflow.touch(shard.domain, shard.node, keys)

    async def evict(self, shard: ReaderShard, keys: tuple[Row, ...]) -> int:
        outcome = await asyncio.wrap_future(self._dataflow.evict(shard.domain, shard.node, keys))
        assert isinstance(outcome, Evicted)
        return outcome.count

    # --- SELECTs that no view answers -----------------------------------------------------------------------

    async def evaluate(
        self, bases: Sequence[DomainIndex], question: Question, budget: Budget, within: Asking = ()
    ) -> tuple[Rows, Clock]:
        """Few rows are read where the tables are, between two steps; for many, a process reads a cut."""
        try:
            try:
                at_once = self._dataflow.between(lambda hosted: answered_here(hosted, bases, question, within))
                if at_once is not None:
                    await asyncio.sleep(0)  # Others have their turn: whoever asks on and on waits for nothing else.
                    return at_once
                done = self._dataflow.control(lambda hosted, _: answered_here(hosted, bases, question, within))
                found: tuple[Rows, Clock] = await asyncio.wrap_future(done)
                return found
            except RowsExceeded:
                shards = shards_of(question.plan.tables, len(bases))
                made = self._dataflow.control(lambda hosted, _: cut(hosted, bases[: len(shards)], shards, within))
            shown: EvaluationCut = await asyncio.wrap_future(made)
        except NotHere as error:
            raise SchemaChanged(", ".join(table.name for table in question.plan.tables)) from error
        return await self.evaluators.answer(question, shown, budget), shown.clock

    async def statistics(self, bases: Sequence[DomainIndex], tables: Sequence[TableSchema]) -> Statistics:
        done = self._dataflow.control(lambda hosted, _: statistics_of(hosted, bases, tables), at_once=True)
        try:
            found: Statistics = await asyncio.wrap_future(done)
        except NotHere as error:
            raise SchemaChanged(", ".join(table.name for table in tables)) from error
        return found

    # --- writes ---------------------------------------------------------------------------------------------

    async def write(self, domain: DomainIndex, operation: Operation, table: TableTarget) -> Written:
        outcome = await self._written(domain, operation, table, None)
        assert isinstance(outcome, Written)
        return outcome

    async def write_once(
        self, domain: DomainIndex, operation: Operation, table: TableTarget, once: Once
    ) -> Written | Refused:
        outcome = await self._written(domain, operation, table, once)
        assert isinstance(outcome, (Written, Refused))
        return outcome

    async def transact(self, act: TransactionAct, within: InTransaction, table: TableTarget | None) -> Written:
        outcome = await self._written(within.domain, act, table, within)
        assert isinstance(outcome, Written)
        return outcome

    async def take_snapshot(self, within: Sequence[InTransaction]) -> bool:
        if self._dataflow.between(lambda hosted: take_snapshot(hosted, within)) is None:
            taken = self._dataflow.control(lambda hosted, _: take_snapshot(hosted, within), at_once=True)
            await asyncio.wrap_future(taken)
        return True

    async def known_transactions(self, domain: DomainIndex) -> tuple[KnownTransaction, ...]:
        found = self._dataflow.control(lambda hosted, _: known_transactions(hosted, domain))
        known: tuple[KnownTransaction, ...] = await asyncio.wrap_future(found)
        return known

    async def snapshots(self, domain: DomainIndex, of: str = "") -> KeptSnapshots:
        found = self._dataflow.control(lambda hosted, _: kept_snapshots(hosted, domain, of))
        kept: KeptSnapshots = await asyncio.wrap_future(found)
        return kept

    async def _written(
        self, domain: DomainIndex, act: TransactionAct, table: TableTarget | None, within: Within
    ) -> Outcome:
        wait: LockWait | None = None
        while True:
            waiting, answer = self._answers.new()
            try:
                self._dataflow.write_for(answer, domain, act, None if table is None else table.version, within)
                return await waiting
            except NotHere as error:
                if table is None:
                    raise
                raise SchemaChanged(", ".join(each.name for each in table.schemas)) from error
            except Locked as error:
                if isinstance(within, InTransaction) or (within is None and isinstance(error, HeldByLocks)):
                    raise  # It has its own patience.
                self.on_locked()
                wait = wait or LockWait()
                await wait.again(error)

    async def streams(self, domain: DomainIndex, table: str) -> dict[str, int]:
        found = self._dataflow.control(lambda hosted, _: streams_of(hosted, domain, table))
        streams: Streams = await asyncio.wrap_future(found)
        return streams.numbers


@dataclass(eq=False, slots=True)
class LocalWatch:
    """See :class:`controller.hosts.ShardWatch`, which it implements."""

    watches: LocalWatches
    watch: Watch
    watcher: PartWatcher

    def clock(self) -> Clock:
        return self.watches.clocks.get(self.watch.reader, {})

    def end(self) -> None:
        self.watches.end(self)


class LocalWatches:
    """What is watched here, on its way from the flusher's thread to the loop's."""

    def __init__(self, dataflow: DataflowThread, loop: asyncio.AbstractEventLoop) -> None:
        self._dataflow = dataflow
        self._loop = loop
        self._mailbox = Mailbox(self._wake)
        self._watches: dict[Watch, LocalWatch] = {}
        self.clocks: dict[WatchedReader, Clock] = {}
        """What the readers reflect, as of what was shown last."""

    def begin(self, shard: ReaderShard, lookup: BoundLookup, watcher: PartWatcher) -> ShardWatch:
        watch = Watch((shard.domain, shard.node), shard.layout, lookup, self._mailbox)
        found = self._watches[watch] = LocalWatch(self, watch, watcher)

        self._dataflow.watches.begin(watch)
        return found

    def end(self, own: LocalWatch) -> None:
        if self._watches.pop(own.watch, None) is not None:
            self._dataflow.watches.end(own.watch)

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.show)

    def show(self) -> None:
        seen, clocks = self._mailbox.take()
        self.clocks.update(clocks)
        shown = [(self._watches[watch].watcher, rows) for watch, rows in seen.items() if watch in self._watches]
        for watcher, rows in shown:
            watcher.show(rows)
        for watcher, _ in shown:
            watcher.settle()


def _keys(lookups: Sequence[BoundLookup]) -> tuple[Row, ...]:
    return tuple(dict.fromkeys(key for each in lookups for key in each.keys))
