"""The domains of a cluster, each at the worker that hosts it now: hits are read from reader maps on this host, and all
other requests go to the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from controller.cluster.serving.connections import Connections, ReaderGone, ReaderMaps
from controller.cluster.serving.directory import Directory
from controller.cluster.serving.domain_router import DomainRouter
from controller.cluster.serving.remote_cuts import RemoteCuts
from controller.cluster.serving.watches import ClusterWatches
from controller.hosts import Asked, LockWait, PartWatcher, ReaderShard, SchemaChanged, ShardWatch, TableTarget
from domains.engine.clock import latest
from domains.engine.transactions.locks import HeldByLocks
from domains.errors import HeadraceError, Locked, OutcomeUnknown, ReadTimeout, Unavailable
from domains.language.types import Row, TableSchema
from domains.plan.estimates import Statistics, TableStatistics
from domains.plan.graph import DomainIndex, Node, NodeIndex
from domains.plan.packets import (
    Clock,
    Evicted,
    InTransaction,
    Once,
    Operation,
    Refused,
    TransactionAct,
    Written,
    is_repeatable,
)
from domains.plan.sharding import base_shard
from domains.plan.traits import is_reader
from domains.store.storage import of_shards
from migrations.flow.plan import State
from worker.adhoc.answer import Question, Rows
from worker.adhoc.cut import Asking, EvaluationCut
from worker.adhoc.pool import Budget, EvaluatorPool
from worker.protocol.cuts import KnownWait, KnownWaits, WaitsRequest
from worker.protocol.messages import (
    EvictRequest,
    KeptSnapshots,
    KnownTransaction,
    KnownTransactions,
    Pages,
    PagesInParts,
    ReadRequest,
    SamplesRequest,
    SnapshotsRequest,
    Streams,
    StreamsRequest,
    TableSamples,
    TouchRequest,
    TransactionsRequest,
    WriteRequest,
)
from worker.protocol.operations import HeldRequest, HeldRows, Hold, HoldRequest, ReleaseRequest
from worker.reader_map import BoundLookup, Parts, ReaderLayout
from worker.reader_map.layout import reader_id
from worker.reader_map.merging import HeldRow


class AcknowledgedPositions:
    """The positions of writes that this process has seen answered, or has shown in an answer. If a shard's disk is lost
    later, other workers may not know its last writes, but the processes that wrote or read them do. So no position that
    a client may have in a token ever comes to stand for another write."""

    def __init__(self) -> None:
        self.positions: Clock = {}
        """The greatest one of each base shard."""

    def note(self, answer: Written | Refused) -> None:
        # Called for every write, whose clock has one base: a third of a microsecond.
        if isinstance(answer, Written):
            self.heard(answer.clock)

    def heard(self, clock: Clock) -> None:
        positions = self.positions
        for base, position in clock.items():
            if position > positions.get(base, 0):
                positions[base] = position

    def forget(self, state: State) -> None:
        """Forget dropped tables. (A later table of the name has other base shards; an altered table keeps its own.)"""
        there = {base_shard(schema.name, schema.generation, 0, 1) for schema in state.catalog.tables.values()}
        for base in list(self.positions):
            if (base if state.shards == 1 else base.rpartition("@")[0]) not in there:
                del self.positions[base]


ANSWER_SECONDS = 0.25
"""Seconds beyond the worker's own time limit that its answer is waited for."""

HOLD_SECONDS = 10.0
"""Seconds for a worker to take hold of a reader's state; includes a recovery of the reader's shard."""

Place = tuple[DomainIndex, NodeIndex]


class ClusterHosts:
    """See :class:`controller.hosts.Hosts`, which it implements. All its methods run on one event loop."""

    def __init__(
        self, directory: Directory, connections: Connections, maps: ReaderMaps, *, write_timeout: float
    ) -> None:
        self.write_timeout = write_timeout
        """Seconds for a write to be answered or refused; includes a recovery of its shard."""
        self._directory = directory
        self._connections = connections
        self._maps = maps
        self._asking = DomainRouter(directory, connections)
        self._layouts: dict[Place, tuple[Node, ReaderLayout]] = {}
        self._reached: dict[Place, tuple[int, Clock]] = {}
        """Positions that readers are known to reflect, and the incarnation of their domain."""
        self.acknowledged = AcknowledgedPositions()
        self.on_locked: Callable[[], None] = lambda: None
        self.on_gone: Callable[[NodeIndex], None] = lambda node: None
        """Hears of readers that are nowhere any more."""
        self._cuts = RemoteCuts(directory, connections, self._asking)
        self._evaluators = EvaluatorPool()
        self._watches = ClusterWatches(connections)
        directory.on_moved.append(self._moved)

    def _moved(self) -> None:
        workers = self._directory.workers.values()
        self._connections.keep(workers)
        self._maps.keep(workers)

    def reader(self, node: Node, domain: DomainIndex, bases: frozenset[str]) -> ReaderShard:
        owner = self._directory.owner(domain)
        client = None if owner is None else self._maps.client(owner)
        return ReaderShard(domain, node.index, self._layout(node, domain), client, bases)

    def _layout(self, node: Node, domain: DomainIndex) -> ReaderLayout:
        """Cached, since domains may move often."""
        known = self._layouts.get((domain, node.index))
        if known is not None and known[0] == node:
            return known[1]
        assert is_reader(node.operator)
        shard = domain % self._directory.state.shards
        layout = ReaderLayout(reader_id(node.index, shard), node.operator, node.columns)
        self._layouts[domain, node.index] = (node, layout)
        return layout

    async def close(self) -> None:
        self._watches.close()
        self._evaluators.close()
        await self._connections.close()
        self._maps.keep(())

    def forget(self, kept: set[NodeIndex]) -> None:
        """Forget readers that are not among these."""
        for place in [place for place in self._layouts if place[1] not in kept]:
            del self._layouts[place]
        for place in [place for place in self._reached if place[1] not in kept]:
            del self._reached[place]

    # --- reads ----------------------------------------------------------------------------------------------

    def has_reached(self, shard: ReaderShard, token: Clock) -> bool:
        if not token:
            return True
        incarnation, reached = self._reached.get((shard.domain, shard.node), (-1, {}))
        given = self._directory.assignment(shard.domain)
        if given is None or given.incarnation != incarnation:
            return False
        return all(reached.get(base, 0) >= position for base, position in token.items())

    async def pages(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[bytes | None]:
        answer = await self._read(shard, lookups, token, deadline, in_parts=False)
        return list(answer.pages) if isinstance(answer, Pages) else [None] * len(lookups)

    async def parts(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[Parts | None]:
        answer = await self._read(shard, lookups, token, deadline, in_parts=True)
        return list(answer.pages) if isinstance(answer, PagesInParts) else [None] * len(lookups)

    async def pages_together(self, wanted: Sequence[Asked], deadline: float) -> list[list[bytes | None]]:
        return list(await asyncio.gather(*(self.pages(shard, own, {}, deadline) for shard, own in wanted)))

    async def _read(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float, *, in_parts: bool
    ) -> Pages | PagesInParts | None:
        """None if the reader is gone."""
        given = self._directory.assignment(shard.domain)
        asked = tuple(lookups)
        try:
            answer: Pages | PagesInParts = await self._asking.ask(
                shard.domain,
                lambda within: ReadRequest(shard.domain, shard.node, asked, token, within, in_parts),
                deadline + ANSWER_SECONDS,
                repeatable=True,
                outdated=lambda: self._gone(shard),
            )
        except ReadTimeout as error:
            raise TimeoutError from error
        except ReaderGone:
            self.on_gone(shard.node)
            return None
        if token and given is not None and given == self._directory.assignment(shard.domain):
            self._learn(shard, given.incarnation, token)
        return answer

    def _learn(self, shard: ReaderShard, incarnation: int, token: Clock) -> None:
        place = (shard.domain, shard.node)
        before, reached = self._reached.get(place, (-1, {}))
        known = reached if before == incarnation else {}
        self._reached[place] = (incarnation, latest((known, token)))

    def _gone(self, shard: ReaderShard) -> HeadraceError | None:
        """An error if the reader is gone: then nobody must be asked for it."""
        return None if shard.node in self._directory.state.flow.nodes else ReaderGone("the reader is gone")

    async def held(self, shard: ReaderShard) -> AsyncIterator[Clock | HeldRow]:
        deadline = asyncio.get_running_loop().time() + HOLD_SECONDS
        hold: Hold = await self._asking.ask(
            shard.domain,
            lambda _: HoldRequest(shard.domain, shard.node),
            deadline,
            repeatable=True,
            outdated=lambda: self._gone(shard),
        )
        owner = self._directory.owner(shard.domain)
        connection = None if owner is None else self._connections.known(owner)
        if connection is None:
            raise Unavailable("the reader has moved meanwhile", hint="begin again")
        try:
            yield hold.clock
            while True:
                found: HeldRows = await connection.ask(HeldRequest(hold.number))
                if not found.rows:
                    return
                for row in found.rows:
                    yield row
        finally:
            connection.tell(ReleaseRequest(hold.number))

    def watch(self, shard: ReaderShard, lookup: BoundLookup, watcher: PartWatcher) -> ShardWatch:
        return self._watches.begin(self._directory.owner(shard.domain), shard, lookup, watcher)

    def catch_up(self) -> None:
        """Workers tell their clocks by themselves."""

    def touch(self, shard: ReaderShard, keys: tuple[Row, ...]) -> None:
        owner = self._directory.owner(shard.domain)
        connection = None if owner is None else self._connections.known(owner)
        if connection is not None:
            connection.tell(TouchRequest(shard.domain, shard.node, keys))

    async def evict(self, shard: ReaderShard, keys: tuple[Row, ...]) -> int:
        answer: Evicted = await self._asking.ask(
            shard.domain,
            lambda _: EvictRequest(shard.domain, shard.node, keys),
            self._deadline(),
            repeatable=True,
        )
        return answer.count

    # --- SELECTs that no view answers -----------------------------------------------------------------------

    async def evaluate(
        self, bases: Sequence[DomainIndex], question: Question, budget: Budget, within: Asking = ()
    ) -> tuple[Rows, Clock]:
        async def answer(question: Question, cut: EvaluationCut) -> Rows:
            return await self._evaluators.answer(question, cut, budget)

        asking = [
            each
            for each in within
            if isinstance(each, InTransaction) and each.reads.startswith(("exclusive", "shared"))
        ]
        if asking and await self._cuts.lock(bases, question, asking, self._deadline()):
            within = [replace(each, reads="latest", begins=False) for each in asking]
        rows, clock = await self._cuts.answer(bases, question, answer, self.write_timeout, within)
        self.acknowledged.heard(clock)
        return rows, clock

    async def statistics(self, bases: Sequence[DomainIndex], tables: Sequence[TableSchema]) -> Statistics:
        deadline = self._deadline()

        async def sampled(number: int, base: DomainIndex) -> dict[str, TableStatistics]:
            here = tuple(table for table in tables if number < (table.shards or len(bases)))
            ask = SamplesRequest(base, here)
            answer: TableSamples = await self._asking.ask(
                base,
                lambda _: ask,
                deadline,
                repeatable=True,
                outdated=lambda: next(filter(None, map(self._altered, here)), None),
            )
            return {
                table.name: TableStatistics(one.rows, dict(one.distinct))
                for table, one in zip(here, answer.tables, strict=True)
            }

        shards = await asyncio.gather(*(sampled(number, base) for number, base in enumerate(bases)))
        return {
            table.name: of_shards(table, [shard[table.name] for shard in shards if table.name in shard])
            for table in tables
        }

    # --- writes ---------------------------------------------------------------------------------------------

    async def write(self, domain: DomainIndex, operation: Operation, table: TableTarget) -> Written:
        answer: Written = await self._written(WriteRequest(domain, operation, table.version), table, repeatable=False)
        return answer

    async def _written(self, request: WriteRequest, table: TableTarget, *, repeatable: bool) -> Any:
        wait: LockWait | None = None
        while True:
            try:
                answer: Written | Refused = await self._asking.ask(
                    request.domain,
                    lambda _: request,
                    self._deadline(),
                    repeatable=repeatable,
                    outdated=lambda: next(filter(None, map(self._altered, table.schemas)), None),
                )
                self.acknowledged.note(answer)
                return answer
            except Locked as error:
                if request.within is None and isinstance(error, HeldByLocks):
                    raise  # It stands in line.
                self.on_locked()
                wait = wait or LockWait()
                await wait.again(error)

    async def transact(self, act: TransactionAct, within: InTransaction, table: TableTarget | None) -> Written:
        request = WriteRequest(within.domain, act, None if table is None else table.version, within)
        schemas = () if table is None else table.schemas
        try:
            answer: Written = await self._asking.ask(
                within.domain,
                lambda _: request,
                self._deadline() + within.patience,
                repeatable=is_repeatable(act),
                outdated=lambda: next(filter(None, map(self._altered, schemas)), None),
            )
        except TimeoutError as error:
            raise OutcomeUnknown(
                f'a shard of transaction "{within.id}" did not answer in time', hint="look before it is done again"
            ) from error
        self.acknowledged.note(answer)
        return answer

    async def take_snapshot(self, within: Sequence[InTransaction]) -> bool:
        return await self._cuts.take_snapshot(within, self.write_timeout)

    async def waits(self, domain: DomainIndex) -> tuple[KnownWait, ...]:
        """Who waits for locks in a base shard."""
        request = WaitsRequest(domain)
        answer: KnownWaits = await self._asking.ask(domain, lambda _: request, self._deadline(), repeatable=True)
        return answer.waits

    async def known_transactions(self, domain: DomainIndex) -> tuple[KnownTransaction, ...]:
        request = TransactionsRequest(domain)
        answer: KnownTransactions = await self._asking.ask(domain, lambda _: request, self._deadline(), repeatable=True)
        return answer.known

    async def snapshots(self, domain: DomainIndex, of: str = "") -> KeptSnapshots:
        request = SnapshotsRequest(domain, of)
        answer: KeptSnapshots = await self._asking.ask(domain, lambda _: request, self._deadline(), repeatable=True)
        return answer

    async def write_once(
        self, domain: DomainIndex, operation: Operation, table: TableTarget, once: Once
    ) -> Written | Refused:
        """Sent again to the domain's present host if need be, since its number lets it be done only once."""
        request = WriteRequest(domain, operation, table.version, once)
        try:
            answer: Written | Refused = await self._written(request, table, repeatable=True)
        except TimeoutError as error:
            raise OutcomeUnknown(
                f'number {once.number} of stream "{once.stream}" was not answered in time',
                hint="send it again: it is not done twice",
            ) from error
        return answer

    async def streams(self, domain: DomainIndex, table: str) -> dict[str, int]:
        request = StreamsRequest(domain, table)
        try:
            answer: Streams = await self._asking.ask(domain, lambda _: request, self._deadline(), repeatable=True)
        except TimeoutError as error:
            raise ReadTimeout(f"the worker of domain {domain} did not answer in time", hint="try again") from error
        return answer.numbers

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.write_timeout

    def _altered(self, schema: TableSchema) -> HeadraceError | None:
        """An error if the write was made for another schema than the table has. If it is the worker that is behind, the
        write waits for it."""
        now = self._directory.state.catalog.tables.get(schema.name.lower())
        return None if now == schema else SchemaChanged(schema.name)
