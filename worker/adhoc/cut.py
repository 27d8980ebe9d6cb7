"""What an evaluation reads, taken between two steps on the dataflow thread: stores as they are, or views of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

from domains.engine.evaluation import RowsExceeded
from domains.engine.transactions.transactions import Transactions
from domains.errors import HeadraceError, NotFound, SnapshotGone, Unavailable
from domains.language.types import Delta, TableSchema
from domains.plan.estimates import Statistics
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, InTransaction
from domains.plan.snapshots import InSnapshot
from domains.store.storage import SnapshotTables, Store, StoredRows, TableRows, sampled
from worker.adhoc.answer import Question, Rows, ShardedRows, answered, part_of
from worker.adhoc.shard_view import ShardView
from worker.dataflow.domain_host import DomainHost
from worker.protocol.cuts import (
    KnownWait,
    KnownWaits,
    OfTransactions,
    ReadSnapshotTaken,
    TakeLocks,
    TakeReadSnapshot,
    WaitsRequest,
)
from worker.protocol.messages import Done, NotHere, SampledTable, TableSamples
from worker.rocks.stored_table import StoreView

FEW_ROWS = 1_000
"""Read or made at a node by an evaluation on the dataflow thread, where all else waits for it: some 5 ms."""


@runtime_checkable
class ViewableStore(Protocol):
    def view(self, tables: Sequence[str]) -> ShardView:
        """Tables as they are now, to be looked up while steps go on: all of them through one view."""


@dataclass(frozen=True, slots=True)
class EvaluationCut:
    """Views of base shards that were made between the same two steps, and the positions that they show."""

    views: Sequence[ShardView]
    clock: Clock
    parts: Mapping[NodeIndex, Question] = field(default_factory=dict)
    """The parts of the question that are evaluated where the views are."""
    changes: Mapping[str, Sequence[Delta]] = field(default_factory=dict)
    """Staged changes of tables, which count as done."""

    def close(self) -> None:
        for view in self.views:
            view.close()


Shards = Sequence[tuple[TableSchema, ...]]
"""The tables that are read of each base shard, by its number."""

Asking = Sequence[InTransaction | InSnapshot]
"""The transaction that asks each base shard, or the snapshot that it is asked for; none: the tables are read as they
are."""


def shards_of(tables: Sequence[TableSchema], shards: int) -> Shards:
    """The shards that are read, of a deployment of so many."""
    read = max((schema.shards or shards for schema in tables), default=0)
    return [tuple(schema for schema in tables if number < (schema.shards or shards)) for number in range(read)]


def answered_here(
    hosted: DomainHost, bases: Sequence[DomainIndex], question: Question, within: Asking = ()
) -> tuple[Rows, Clock]:
    """``bases``: all that have a shard of its tables. In a transaction what is read is remembered, and the positions
    are those of shards in which something was.

    :raises RowsExceeded: these are not few rows.
    """
    shards = shards_of(question.plan.tables, len(bases))
    stores = _shown(hosted, bases[: len(shards)], within)
    tables: TableRows = ShardedTables(stores, question.plan.tables, partial(_check_shown, within=within))
    entered: list[tuple[Transactions, InTransaction]] = []
    try:
        asking = [each for each in within if isinstance(each, InTransaction)]
        if asking:
            entered += [(hosted.hosts[each.domain].domain.transactions, each) for each in asking[: len(shards)]]
            done = decided(hosted)
            staged = [transactions.reading(each, done) for transactions, each in entered]
            tables = ShardedTables(staged, question.plan.tables)
        rows = [row for part in answered(question, tables, most=FEW_ROWS) for row in part]
        for transactions, each in entered:
            transactions.check_read(each)
    except HeadraceError:
        raise
    except Exception as error:  # It is the question's own: whoever else waits for this thread is not to suffer.
        raise Unavailable(f"the query cannot be evaluated: {type(error).__name__}: {error}") from error
    finally:
        came = [bool(transactions.leave(each.id)) for transactions, each in entered]
    if entered:
        shards = [tables if came[number] else () for number, tables in enumerate(shards)]
    return rows, _clock(hosted, bases[: len(shards)], stores, shards)


def cut(hosted: DomainHost, bases: Sequence[DomainIndex], shards: Shards, within: Asking = ()) -> EvaluationCut:
    """A cut of some base shards, which may be any. In a transaction what reads it is not told row by row: all of these
    tables are read.

    :raises NotHere: a table is another by now. :raises SnapshotGone: it was another then, or the snapshot is not here.
    """
    views: list[ShardView] = []
    stores = _shown(hosted, bases, within)
    for store, tables in zip(stores, shards, strict=True):
        for schema in tables:
            _check_shown(store, schema, within)
        names = [schema.name for schema in tables]
        if isinstance(store, StoreView):
            views.append(store.of(names))
        else:
            assert isinstance(store, ViewableStore), "what is evaluated beside is on a disk"
            views.append(store.view(names))
    changes: dict[str, list[Delta]] = {}
    for asking, tables in zip(within, shards, strict=False):
        if isinstance(asking, InTransaction):
            transactions = hosted.hosts[asking.domain].domain.transactions
            staged = transactions.reading(asking, decided(hosted))
            for schema in tables:
                changes.setdefault(schema.name, []).extend(staged.staged(schema.name).read_whole())
            transactions.check_read(asking)
    return EvaluationCut(views, _clock(hosted, bases, stores, shards), changes=changes)


def take_snapshot(
    hosted: DomainHost, within: Sequence[InTransaction], elsewhere: Collection[str] = ()
) -> tuple[bool, frozenset[str]]:
    """Have a transaction's plain reads be of now in these shards. Whether they were, in all of them; and what was
    decided here. ``elsewhere``: what was decided there.

    :raises NotHere."""
    _stores(hosted, [each.domain for each in within])
    here = decided(hosted)
    done = here.union(elsewhere)
    were = [hosted.hosts[each.domain].domain.transactions.take_snapshot(each, done) for each in within]
    return all(were), here


def asked_of_transactions(hosted: DomainHost, message: OfTransactions) -> ReadSnapshotTaken | KnownWaits | Done:
    """:raises NotHere. :raises HeldByLocks: others have what a read looks up to write."""
    match message:
        case TakeReadSnapshot(within=within, decided=elsewhere):
            were, here = take_snapshot(hosted, within, elsewhere)
            return ReadSnapshotTaken(were, tuple(here))
        case WaitsRequest(domain=domain):
            _stores(hosted, [domain])
            asked = hosted.hosts[domain].domain
            found = asked.transactions.locks.known()
            return KnownWaits(tuple(KnownWait(id, holder, n, asked.incarnation) for id, n, holder in found))
        case TakeLocks(within=within, parts=parts):
            _take_locks(hosted, within, parts)
            return Done()


def _take_locks(hosted: DomainHost, within: InTransaction, parts: Sequence[Question]) -> None:
    (store,) = _stores(hosted, [within.domain])
    for schema in (schema for part in parts for schema in part.plan.tables):
        check_schema(store, schema)
    transactions = hosted.hosts[within.domain].domain.transactions
    tables = transactions.reading(within)
    for part in parts:
        try:
            for _ in part_of(part, tables, most=FEW_ROWS):
                pass
        except RowsExceeded:
            for schema in part.plan.tables:
                tables.staged(schema.name).read_whole()
    transactions.check_read(within)


def decided(hosted: DomainHost) -> frozenset[str]:
    """The transactions that shards which are here have committed, and that others may have yet to commit."""
    known = [host.domain.transactions for host in hosted.hosts.values()]
    prepared = {id for each in known for id in each.prepared}
    done = (id for id in prepared if any(each.has_committed(id) for each in known))
    return frozenset(done).union(*(each.decided for each in known))


def statistics_of(hosted: DomainHost, bases: Sequence[DomainIndex], tables: Sequence[TableSchema]) -> Statistics:
    """Statistics from a sample of each table, over all shards."""
    stored = ShardedTables(_stores(hosted, bases), tables)
    return {schema.name: sampled(stored.table(schema.name)) for schema in tables}


def samples_of(hosted: DomainHost, domain: DomainIndex, tables: Sequence[TableSchema]) -> TableSamples:
    """The same of one shard, to go over the wire."""
    found = statistics_of(hosted, [domain], tables)
    return TableSamples(
        tuple(SampledTable(found[each.name].rows, tuple(found[each.name].distinct.items())) for each in tables)
    )


def _stores(hosted: DomainHost, bases: Sequence[DomainIndex]) -> list[Store]:
    absent = [base for base in bases if base not in hosted.hosts]
    if absent:
        raise NotHere(
            f"domain {absent[0]} is not hosted here", hint="look it up again", epoch=hosted.epoch, unlinked=True
        )
    return [hosted.hosts[base].domain.store for base in bases]


def _shown(hosted: DomainHost, bases: Sequence[DomainIndex], within: Asking) -> Sequence[SnapshotTables]:
    """:raises SnapshotGone: the snapshot is not kept here."""
    stores = _stores(hosted, bases)
    if within and isinstance(of := within[0], InSnapshot):
        return [store.snapshot(of.snapshot) for store in stores]
    return stores


def _check_shown(store: TableRows, schema: TableSchema, within: Asking) -> None:
    """:raises NotHere: the table is another by now. :raises SnapshotGone: it was another then."""
    try:
        check_schema(store, schema)
    except NotHere:
        if within and isinstance(of := within[0], InSnapshot):
            raise SnapshotGone(
                f'snapshot "{of.snapshot}" has not table "{schema.title}" as it is now: it was made or altered since',
                hint="read the latest snapshot, or take another one",
            ) from None
        raise


def _clock(hosted: DomainHost, bases: Sequence[DomainIndex], stores: Sequence[SnapshotTables], shards: Shards) -> Clock:
    domains = [hosted.hosts[base].domain for base in bases]
    return {
        domain.base_name(schema): store.position(schema.name)
        for domain, store, tables in zip(domains, stores, shards, strict=True)
        for schema in tables
    }


def check_schema(store: TableRows, wanted: TableSchema) -> None:
    """:raises NotHere: the table is gone, or another by now."""
    try:
        if store.table(wanted.name).schema == wanted:
            return
    except NotFound:
        pass
    raise NotHere(f'table "{wanted.name}" was altered meanwhile', hint="try again")


class ShardedTables:
    """The tables that a plan reads, out of the stores of all base shards.

    :raises NotHere: one of them is another than when the plan was made.
    """

    def __init__(
        self,
        stores: Sequence[TableRows],
        wanted: Sequence[TableSchema],
        check: Callable[[TableRows, TableSchema], None] = check_schema,
    ) -> None:
        self._tables: dict[str, StoredRows] = {}
        for schema in wanted:
            shards: list[StoredRows] = []
            for store in stores[: schema.shards or len(stores)]:
                check(store, schema)
                shards.append(store.table(schema.name))
            self._tables[schema.name] = shards[0] if len(shards) == 1 else ShardedRows(shards)

    def table(self, name: str) -> StoredRows:
        return self._tables[name]
