"""The common part of both deployments: statements, look-ups, writes, and listings.

::

    Serving ──► Statements, Selects ──► run: a migration                  (the migrator here, or the leader)
       │  └────► look-ups, kept by view ──► reader maps: a hit
       └───────► Hosts: a miss, a write, an eviction ──► one domain       (here, or at the worker that hosts it)
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from controller.access.keeper import Keeper
from controller.access.session import ANONYMOUS, OPEN, Caller
from controller.deployment import (
    ArchivedPositions,
    Missed,
    PreparedLookup,
    QueryText,
    SelectPage,
    StatementResult,
    StatementText,
    ViewInfo,
)
from controller.hosts import Asked, Hosts, SchemaChanged, TableTarget
from controller.live.live_views import LiveViews
from controller.lookups.binding import Binding, RequestMoment
from controller.lookups.view_dump import held_lines
from controller.lookups.view_lookup import ShardedLookup, ViewLookup, finished, reads_of
from controller.statement_lists import QueryInfo, RunningInfo
from controller.statements.evaluating import Elsewhere, evaluate, lineage, within
from controller.statements.followed import FollowedSelects
from controller.statements.listing import info_of, view_of
from controller.statements.selects import Selects
from controller.statements.sequence import Statements
from controller.statements.shapes import AdHocMode, AskedShapes
from controller.statements.short_reads import ShortReads
from controller.statements.texts import Texts
from controller.transactions.in_doubt import InDoubt
from controller.transactions.limits import Isolation
from controller.transactions.reading import pages_in
from controller.transactions.sessions import Sessions
from controller.transactions.snapshots import SnapshotReads, Snapshots
from controller.transactions.temporary import TemporaryTables
from controller.transactions.transaction import Transaction
from controller.upstreams.following import FollowedUpstreams
from controller.upstreams.passing_on import PassingOn
from controller.writing import Writing
from domains.errors import BadRequest, Conflict, Locked, ReadTimeout
from domains.language.types import Column, TableSchema
from domains.plan.estimates import Statistics
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, Insert, InTransaction, Operation, TransactionAct, Written
from domains.plan.sharding import physical
from domains.plan.traits import is_reader
from migrations.change import BASES
from migrations.flow.explain import explain
from migrations.flow.plan import State
from migrations.parse.measure import SqlLimits
from migrations.parse.reading import Parsed
from migrations.parse.temporary import is_hidden
from migrations.recipe import RecipeEntry
from migrations.statements.definitions.written import schema_text
from worker.adhoc.answer import Question, Rows
from worker.adhoc.pool import Budget
from worker.protocol.messages import KeptSnapshots, KnownTransaction
from worker.reader_map import BoundLookup, in_one_state
from worker.service.child_pool import ChildPool

Answer = TypeVar("Answer")
GivenRows = Sequence[Mapping[str, Any]]

BUDGET = Budget()


def _own(missed: Missed) -> ViewLookup:
    assert isinstance(missed.lookup, ViewLookup)
    return missed.lookup


class Serving(Writing):
    """The base of all deployments (see :class:`controller.deployment.Deployment`). It lives on one event loop."""

    def __init__(
        self, hosts: Hosts, read_timeout: float, ad_hoc: AdHocMode = AdHocMode.KEEP, budget: Budget = BUDGET
    ) -> None:
        super().__init__(hosts, read_timeout)
        self.accounts: Keeper | None = None
        self._lookups: dict[str, ViewLookup] = {}
        self._retired = [0, 0]
        """Hits and misses of retired look-ups."""
        self.budget = budget
        self.beside: ChildPool | None = None
        self.selects = Selects(self, AskedShapes(ad_hoc), Texts())
        self._statements = Statements(self, self.selects)
        self._short_reads = ShortReads(self, self.selects)
        self.passing_on = PassingOn(self, self._statements, self.selects)
        self.lists = self._statements.lists
        in_shards = self._known_transactions, self._kept_snapshots, self._bases
        self.in_doubt = InDoubt(self._transact, *in_shards)
        self.snapshots = Snapshots(self._transact, *in_shards, self.in_doubt.look)
        self.hosts.on_locked = self.in_doubt.look
        self.temporary = TemporaryTables(self)
        self.sessions = Sessions(self._transact, self.in_doubt.look, self.take_snapshot, self.temporary)
        self.upstreams = FollowedUpstreams(self)
        self.live = LiveViews(self, FollowedSelects(self, self._statements, self.selects))

    @abstractmethod
    async def run(
        self, entry: RecipeEntry, sql: str, parsed: Sequence[Parsed] | None = None, rows: Insert | None = None
    ) -> None:
        """Run a migration, and return when ``state`` shows it; raises the error that made it fail. ``parsed`` are the
        entry's statements, if the caller has parsed them, and ``rows`` those of the table that it creates."""

    @abstractmethod
    async def archive(self) -> ArchivedPositions:
        """See :class:`controller.deployment.Deployment`."""

    def read_within(self, limits: SqlLimits, beside: ChildPool) -> None:
        self.beside = beside
        self._statements.texts.read_within(limits, beside)

    def count_outside(self, size: int) -> None:
        self.outside = size + self.snapshots.answers.bytes

    async def check_text(self, sql: str, session: Caller = OPEN) -> None:
        await self._statements.check(sql, session)

    async def divided(self, sql: str) -> list[StatementText]:
        return [StatementText(each.parsed.sql, each.parameters) for each in await self.selects.texts.statements(sql)]

    async def described(self, sql: str, session: Caller) -> tuple[Column, ...]:
        return await self._statements.described(sql, session)

    async def execute(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        token: Clock | None = None,
        session: Caller = OPEN,
        atomic: bool = False,
    ) -> tuple[list[StatementResult], Clock]:
        return await self._statements.execute(sql, params, token, session, atomic=atomic)

    def try_select(self, sql: str, params: Sequence[Any], token: Clock, session: Caller) -> SelectPage | None:
        return self._short_reads.answer(sql, params, token, session)

    async def evaluate(
        self,
        question: Question,
        token: Clock,
        elsewhere: Elsewhere | None = None,
        transaction: Transaction | SnapshotReads | None = None,
    ) -> tuple[Rows, Clock]:
        """The answer to a SELECT that no view answers, as of now: at least as of the token.

        Where it reads more rows than a server is to read by itself, it is asked ``elsewhere``, if that is given. In a
        transaction it is of the rows as the transaction sees them, or as a snapshot in its place has them.

        :raises LimitExceeded: it exceeds its budget. :raises ReadTimeout: the token takes too long.
        """
        wanted = self._checked(token)
        if transaction is not None:
            bases = self._bases()
            answer = partial(self.hosts.evaluate, bases, question, self.budget)
            return await transaction.read(bases, answer, self._take_snapshot)
        return await evaluate(self.hosts, self._bases(), question, wanted, self.budget, self.read_timeout, elsewhere)

    async def _transact(self, act: TransactionAct, within: InTransaction, table: TableTarget | None) -> Written:
        return await self.hosts.transact(act, within, table)

    async def in_line(self, shard: int, operation: Operation, table: TableTarget, asker: Caller) -> Written:
        wait = self.sessions.limits.lock_wait if asker.session is None else asker.session.lock_wait
        try:
            return await self.sessions.transaction(Isolation.READ_COMMITTED, wait).write_alone(shard, operation, table)
        except Conflict as error:  # It held nothing that others could change or wait for.
            raise SchemaChanged(table.schema.name) from error

    async def take_snapshot(self, transaction: Transaction) -> None:
        await transaction.take_snapshot(self._bases(), self._take_snapshot)

    async def _take_snapshot(self, within: Sequence[InTransaction]) -> None:
        """Where others commit all the while, they wait until it is taken."""
        if not await self.hosts.take_snapshot(within):
            async with self.snapshots.standing_still(within[0].id):
                if not await self.hosts.take_snapshot(within):
                    raise Locked("no snapshot was taken: a transaction is still being committed", hint="try again")

    async def _known_transactions(self, base: DomainIndex) -> tuple[KnownTransaction, ...]:
        return await self.hosts.known_transactions(base)

    async def _kept_snapshots(self, base: DomainIndex, of: str = "") -> KeptSnapshots:
        return await self.hosts.snapshots(base, of)

    def _bases(self) -> list[DomainIndex]:
        shards = self.state.shards
        return [physical(BASES, shard, shards) for shard in range(shards)]

    def writes(self, tables: Collection[str]) -> int:
        """See :class:`controller.statements.planning.StatementPort`."""
        return 0

    def automatic_bytes(self) -> int:
        """See :class:`controller.statements.planning.StatementPort`."""
        return 0

    async def lineage(self, view: str, key: Any, place: int, session: Caller = OPEN) -> Rows:
        async with within(self.budget):
            return await lineage(self, view, key, place, session)

    async def statistics(self, tables: Sequence[TableSchema]) -> Statistics:
        return await self.hosts.statistics(self._bases(), tables)

    # --- look-ups -----------------------------------------------------------------------------------------------

    def prepare(self, view: str) -> ViewLookup:
        lower = view.lower()
        lookup = self._lookups.get(lower)
        if lookup is None:
            lookup = self._lookups[lower] = self._prepared(view)
        return lookup

    def _prepared(self, view: str) -> ViewLookup:
        state = self.state
        planned = view_of(state, view)
        info = info_of(state, view.lower())
        index = state.flow.readers.get(view.lower())
        if index is None or self.is_unbuilt(index):
            return ViewLookup(info, Binding.of(planned, lambda: self.now()), (), self.hosts)
        node, sharding = state.flow.node(index), state.flow.sharding[index]
        assert is_reader(node.operator)
        binding = Binding.of(planned, lambda: self.now(), node.operator)
        numbers = zip(state.flow.places(index), sharding.numbers, strict=True)
        shards = tuple(self.hosts.reader(node, at, state.flow.bases_of(index, number)) for at, number in numbers)
        if len(shards) == 1:
            return ViewLookup(info, binding, shards, self.hosts)
        decides = next(at for at, column in enumerate(node.operator.key) if column in sharding.columns)
        return ShardedLookup(info, binding, shards, self.hosts, decides)

    def is_unbuilt(self, reader: NodeIndex) -> bool:
        """Whether a planned reader is not built yet."""
        return False

    async def until_built(self, reader: NodeIndex, view: str) -> None:
        """Returns when the reader is built. Raises Unavailable if that takes long."""
        raise AssertionError(f'the reader of view "{view}" is built')

    def changed(self, before: State, after: State) -> None:
        """Retire the look-ups of views that were dropped or replaced, or got a reader."""
        self._targets.clear()
        for name in list(self._lookups):
            gone = after.planned.get(name) is not before.planned.get(name)
            if gone or after.flow.readers.get(name) != before.flow.readers.get(name):
                self.retire(name)

    def retire(self, name: str) -> None:
        """Mark the view's look-up as stale, so that its users prepare another one."""
        lookup = self._lookups.pop(name)
        lookup.stale = True
        self._retired[0] += lookup.hits
        self._retired[1] += lookup.misses

    def retire_all(self) -> None:
        self._targets.clear()
        for name in list(self._lookups):
            self.retire(name)

    def counted(self) -> tuple[int, int]:
        """Hits and misses of all look-ups so far."""
        hits = self._retired[0] + sum(lookup.hits for lookup in self._lookups.values())
        misses = self._retired[1] + sum(lookup.misses for lookup in self._lookups.values())
        return hits, misses

    def with_reads(self, views: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Add to each view its hits and misses in this process since its look-up was prepared, and the ``seconds`` that
        filling its holes took."""
        return {name: {**told, **reads_of(self._lookups.get(name.lower()))} for name, told in views.items()}

    async def page(
        self, view: str, text: QueryText, *, token: Clock | None = None, moment: RequestMoment | None = None
    ) -> bytes:
        asked = moment or RequestMoment()
        if asked.asker.transaction is not None:
            (page,) = await pages_in(self, view, lambda binding: [binding.from_text(text, asked)], asked)
            return page
        return await self.read(view, lambda binding: binding.from_text(text, asked), token)

    async def pages(
        self, view: str, keys: Sequence[Any], *, token: Clock | None = None, moment: RequestMoment | None = None
    ) -> list[bytes]:
        moment = asked = moment or RequestMoment()
        if asked.asker.transaction is not None:
            return await pages_in(self, view, lambda binding: binding.all_of(keys, asked), asked)
        lookup = await self.ready(view)
        bounds = lookup.binding.all_of(keys, moment)
        if token and not lookup.has_reached(self._checked(token), bounds):
            return await self._filled_keys(Missed(lookup, keys, bounds, moment), token)
        found, holes = in_one_state(lambda reading: lookup.read_all(bounds, reading))
        if holes:
            missed = [key for key, page in zip(keys, found, strict=True) if page is None]
            filled = iter(await self._filled_keys(Missed(lookup, missed, holes, moment), token))
            found = [next(filled) if page is None else page for page in found]
        return [page for page in found if page is not None]

    async def fill(self, wanted: Sequence[Missed]) -> list[list[bytes]]:
        deadline = self._loop.time() + self.read_timeout
        asked: dict[int, Asked] = {}
        for place, missed in enumerate(wanted):
            lookup = _own(missed)
            if len(lookup.shards) == 1 and not lookup.stale:
                asked[place] = lookup.shards[0], [bound.sent for bound in missed.bounds]
        found: dict[int, list[bytes | None]] = {}
        if asked:
            began = self._loop.time()
            try:
                pages = await self.hosts.pages_together(list(asked.values()), deadline)
            except TimeoutError as error:
                first = next(iter(asked))
                raise self._late(_own(wanted[first]), asked[first][1], {}) from error
            found = {place: page for place, page in zip(asked, pages, strict=True) if None not in page}
            for place, filled_ones in found.items():
                lookup = _own(wanted[place])
                if lookup.binding.finish is not None:
                    found[place] = await finished(self.beside, wanted[place].bounds, filled_ones)
                lookup.misses += len(filled_ones)
                lookup.seconds += (self._loop.time() - began) / len(found)  # They were filled as one.
        # Readers in several shards, and those that were replaced meanwhile, are asked one by one.
        others = [place for place in range(len(wanted)) if place not in found]
        filled = await asyncio.gather(*(self._filled_keys(wanted[place]) for place in others))
        answers: dict[int, Sequence[bytes | None]] = {**found, **dict(zip(others, filled, strict=True))}
        return [[page for page in answers[place] if page is not None] for place in range(len(wanted))]

    def _filled_keys(self, missed: Missed, token: Clock | None = None) -> Awaitable[list[bytes]]:
        def bind(binding: Binding) -> list[BoundLookup]:
            return binding.all_of(missed.keys, missed.moment)

        return self._filled(missed.lookup.info.name, bind, token, (_own(missed), missed.bounds))

    async def fill_page(
        self, lookup: PreparedLookup, missed: BoundLookup, text: QueryText, asker: Caller = ANONYMOUS
    ) -> bytes:
        assert isinstance(lookup, ViewLookup)
        name = lookup.info.name
        (page,) = await self._filled(
            name, lambda binding: [binding.from_text(text, RequestMoment(asker=asker))], None, (lookup, [missed])
        )
        return page

    async def read(self, view: str, bind: Callable[[Binding], BoundLookup], token: Clock | None = None) -> bytes:
        """One look-up: waits for the token, fills holes. Raises ReadTimeout after ``read_timeout``."""
        lookup = await self.ready(view)
        bound = bind(lookup.binding)
        page = None
        if not token or lookup.has_reached(self._checked(token), [bound]):
            page = in_one_state(lambda reading: lookup.read(bound, reading))
        if page is None:
            (page,) = await self._filled(view, lambda binding: [bind(binding)], token, (lookup, [bound]))
        return page

    def _checked(self, token: Clock) -> Clock:
        """The token, if by its form it may be of this deployment: tokens of one shard and of several look different."""
        if self.state.shards > 1 and not all("@" in base for base in token):
            raise BadRequest("the token is of another deployment", hint='send the "token" of a write to this one')
        return token

    async def ready(self, view: str) -> ViewLookup:
        """A view's look-up. A view without a reader gets one first, and one that is being built is waited for."""
        while not (lookup := self.prepare(view)).shards:
            reader = self.state.flow.readers.get(view.lower())
            if reader is None:
                await self.run(RecipeEntry(readers=(view.lower(),)), f"reader of {lookup.info.name}")
            else:
                await self.until_built(reader, lookup.info.name)
        return lookup

    async def _filled(
        self,
        view: str,
        bind: Callable[[Binding], Sequence[BoundLookup]],
        token: Clock | None,
        bound: tuple[ViewLookup, Sequence[BoundLookup]] | None = None,
    ) -> list[bytes]:
        """Fill keys, and answer their pages; repeated only if the reader was replaced meanwhile. ``bound``: a look-up
        and the keys bound to it, if the caller has them already."""
        deadline = self._loop.time() + self.read_timeout
        while True:
            if bound is None or bound[0].stale or not bound[0].shards:
                lookup = await self.ready(view)
                bound = lookup, bind(lookup.binding)
            lookup, bounds = bound
            bound, began = None, self._loop.time()
            try:
                pages = await lookup.fill(bounds, token or {}, deadline)
            except TimeoutError as error:
                raise self._late(lookup, bounds, token or {}) from error
            if lookup.binding.finish is not None:
                pages = await finished(self.beside, bounds, pages)
            if None not in pages:
                lookup.misses += len(pages)
                lookup.seconds += self._loop.time() - began
                return pages  # type: ignore[return-value]
            if self._loop.time() >= deadline:
                raise self._late(lookup, bounds, token or {})

    def _late(self, lookup: ViewLookup, bounds: Sequence[BoundLookup], token: Clock) -> ReadTimeout:
        done = "could not be filled" if lookup.has_reached(token, bounds) else "did not reach the token"
        return ReadTimeout(
            f'view "{lookup.info.name}" {done} within {self.read_timeout:g} s',
            hint="try again, or raise --read-timeout",
        )

    async def held(self, view: str) -> AsyncIterator[bytes]:
        has_reader = view.lower() in self.state.flow.readers
        lookup = await self.ready(view) if has_reader else self.prepare(view)
        async for line in held_lines(self.state, view, lookup.shards, self.hosts):
            yield line

    def policed(self, name: str) -> Sequence[str]:
        return self.state.catalog.policed([name])

    async def evict(self, view: str, keys: Sequence[Any], moment: RequestMoment | None = None) -> int:
        lookup = self.prepare(view)
        if not lookup.shards:
            return 0
        if not lookup.binding.reader.key:
            raise BadRequest(
                f'view "{lookup.info.name}" is full and has nothing to evict', hint="EXPLAIN says why it is full"
            )
        by_shard = lookup.by_shard({key: None for each in keys for key in lookup.binding.from_json(each, moment).keys})
        counts = await asyncio.gather(*(self.hosts.evict(shard, own) for shard, own in by_shard.items()))
        return sum(counts)

    # --- what there is ------------------------------------------------------------------------------------------

    def tables(self) -> list[TableSchema]:
        return [each for each in self.state.catalog.tables.values() if not is_hidden(each.title)]

    def views(self) -> list[ViewInfo]:
        return [info_of(self.state, name) for name in self.state.catalog.views]

    def queries(self) -> list[QueryInfo]:
        return self.lists.own_queries()

    def running(self) -> list[RunningInfo]:
        return self.lists.own_running()

    def schema(self) -> str:
        return schema_text(self.state.catalog)

    def explain(self, view: str) -> str:
        name = view_of(self.state, view).name
        reader = self.state.flow.readers.get(view.lower())
        if reader is None:
            return f'view "{name}" is internal: its reader is built when it is first read'
        finish = self.state.planned[view.lower()].finish
        steps = [] if finish is None else [f"when it is read: {step}" for step in finish.described()]
        return "\n".join([*steps, explain(self.state.flow, reader)])
