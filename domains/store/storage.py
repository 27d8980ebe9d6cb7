"""Base state as the engine sees it: a synchronous storage object that the domain is given.

A worker gives RocksDB (``worker/rocks``), the simulator and Spark tasks a dict (``memory_store.py``). A step that
writes first checks its constraints by look-ups, then stages its deltas, then commits them with their log entries as
one atomic write, and only then lets the operators look up: they see the base tables as they are after the step. A
look-up between ``stage`` and ``commit`` is a mistake of the caller and is asserted against. ``commit`` writes but does
not wait for the disk: what makes a step durable, and holds its effects back until it is, is the worker's business.

::

    find … find │ stage, stage, … commit │ find … find │ (worker) sync, effects go out
     constraints │      one step's write  │  operators  │
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from domains.errors import (
    BadRequest,
    HeadraceError,
    LimitExceeded,
    OutcomeUnknown,
    OutOfOrder,
    SnapshotGone,
    StorageFailure,
)
from domains.language.types import Delta, Row, TableSchema
from domains.plan.copies import PartCopy
from domains.plan.estimates import TableStatistics
from domains.plan.graph import Columns, DomainIndex
from domains.store.widening import Widening

if TYPE_CHECKING:  # Settings are read from here by every command: they need no packets.
    from domains.plan.packets import Once
    from domains.store.walking import Interval

AUTOMATIC_BYTES = 64_000_000
"""Bytes that automatic views may hold together, unless settings say otherwise."""
DISK_RESERVE = 256 * 2**20
"""Bytes that stay free: what is in memory must find room on disk (32 MB a shard), and so must what merges files."""


class CommitLost(StorageFailure):
    """The disk failed a commit. Its step is rolled back, but may be there when the store is opened again."""


def unknown_outcome(why: HeadraceError) -> OutcomeUnknown:
    """What whoever has written hears where this came between the write and its answer."""
    return OutcomeUnknown(why.message, hint="the write may be there or not: look before it is sent again")


MALFORMED = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, struct.error)
"""What comes of a request that names what is not there, or has values of other types: no process of ours makes one."""


def refusal(raised: Exception) -> HeadraceError:
    """What whoever asked hears of what was raised before anything had changed. A bug of ours, which fails an assertion,
    is raised again: what it has left behind nobody knows."""
    if isinstance(raised, CommitLost):
        return unknown_outcome(raised)
    if isinstance(raised, HeadraceError):
        return raised
    if isinstance(raised, MALFORMED):
        what = f"{type(raised).__name__}: {raised}"
        return BadRequest(f"the request does not fit what it is for: {what[:200]}", hint="nothing was done")
    raise raised


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What a shard keeps of a transaction over several shards, until all of them are done with it.

    Of one that is *prepared* here, and is committed or not as ``decider`` says; or, where there are ``others``, of
    one that was *committed* here, which these have to hear."""

    decider: DomainIndex
    others: tuple[DomainIndex, ...] = ()
    affected: int = 0
    """Rows, in this shard."""
    read: tuple[str, ...] = ()
    """The tables in which it has looked something up."""
    changes: Mapping[str, list[Delta]] = field(default_factory=dict)
    """What it is to change, by table; nothing where it is committed."""
    since: float = 0.0
    """When it was prepared; see :class:`domains.plan.packets.Prepare`."""
    at: Mapping[str, int] = field(default_factory=dict)
    """The positions of all tables then, by base shard."""
    order: int = 0
    """Its number among what was prepared and committed in this shard."""

    @property
    def is_committed(self) -> bool:
        return bool(self.others)


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """Where what a transaction has changed in a shard stands among its other writes, by base shard: with this a cut of
    the shards has all of a transaction or nothing (``domains/archive/transactions.py``). It is kept, as the log is,
    until it is archived."""

    decider: DomainIndex
    others: tuple[DomainIndex, ...]
    """In the shard that decided: those that were prepared."""
    prepared: Mapping[str, int]
    """The positions of all tables when it was prepared."""
    before: Mapping[str, int]
    """The same before it was committed."""
    committed: Mapping[str, int]
    """The positions of its writes."""
    prepared_order: int
    order: int
    """The numbers of both among what was prepared and committed in the shard: what was only read has no position."""


PARTS_MOST = 100_000
"""Parts that a shard still has when it is opened. Older ones are of before there was an archive, and wait for one."""


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """What is told of a snapshot by a shard that keeps it."""

    name: str
    at: float
    """When it was taken, in seconds since 1970."""
    held: bool
    """Until it is dropped by name."""


def snapshot_gone(name: str) -> SnapshotGone:
    return SnapshotGone(f'snapshot "{name}" is not kept here (any more)', hint="read the latest, or take another one")


class StoredRows(Protocol):
    """Rows of one base table in stored (full) width, to be looked up."""

    schema: TableSchema

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        """The rows whose ``columns`` equal ``key`` (no NULLs in it), with weights; () finds every row.

        ``columns`` is the primary key, one of the indexes, or the first columns of one of these, else this scans.
        Weights are 1 where there is a primary key.
        """

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        """``find`` for many keys at once, in their order."""

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        """How many rows each key has, equal ones counted, but no more than ``most``: no more than that are read."""

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        """All rows, about so many at a time; equal rows of a bag may come in several."""

    @property
    def orders(self) -> tuple[Columns, ...]:
        """The columns by which rows can be walked; see :func:`domains.store.walking.orders_of`."""

    def walk(
        self, order: Columns, interval: Interval, first: int, most: int, *, descending: bool = False
    ) -> Iterator[list[Delta]]:
        """The rows whose keys by one of ``orders`` are in an interval, in that order or the other way round: ``first``
        of them, then twice as many each time, up to ``most``."""

    def has_index(self, columns: Columns) -> bool:
        """Whether ``find`` by these columns is a look-up, and stays one whichever other index is dropped: they are the
        primary key, its first columns, or an index."""

    def best_key(self, tied: Collection[int]) -> Columns:
        """Which of the columns ``tied`` (positions) ``find`` reads least by; see :func:`best_key`."""

    @property
    def row_count(self) -> int:
        """How many rows the table holds (a bag counts duplicates)."""


class TableRows(Protocol):
    """Tables to be looked up."""

    def table(self, name: str) -> StoredRows: ...


class SnapshotTables(TableRows, Protocol):
    """All tables as a snapshot has them."""

    def position(self, table: str) -> int: ...


class KeptTables(SnapshotTables, Protocol):
    def schemas(self) -> list[TableSchema]: ...


class TableStore(StoredRows, Protocol):
    """One shard of one base table: rows by primary key, secondary indexes."""

    def scan(self, after: bytes | None, limit: int) -> tuple[list[Delta], bytes | None]:
        """The next rows in storage order after the cursor, at most ``limit``, and the next cursor (None at the end)."""

    def before(self, row: Row, cursor: bytes | None) -> bool:
        """Whether ``row`` stands at or before ``cursor`` in storage order (None: everything does).

        For a bag the order is that of the row's content, so that equal rows are on one side.
        """

    def stage(self, deltas: Sequence[Delta]) -> None:
        """Put deltas into the step's write; retractions of one call are applied before its insertions.

        They are found after ``commit`` and not before it. Constraints were checked: an inserted primary key is free
        (or its row is retracted in the same step), a retracted row is stored.
        """

    def add_index(self, columns: Columns, widen: Widening | None = None) -> None:
        """Declare an index; rows staged from now on enter it. ``build_index`` brings in the older ones.

        On an empty table it is in use at once. Nothing happens if these columns have an index. Not within a step.
        ``widen`` is to a schema to come which has some of the columns first: stored rows are found by what they are to
        have in them. Such an index is the table's once it has that schema, and is gone if it is opened anew before.
        """

    def build_index(self, columns: Columns, after: bytes | None, limit: int) -> bytes | None:
        """Index the next ``limit`` rows after the cursor; the next cursor, None when it is complete and in use."""

    def drop_index(self, columns: Columns) -> None: ...

    def next_auto_increment(self, count: int) -> int:
        """Reserve ``count`` consecutive values and return the first. Durable with the step."""

    def raise_auto_increment(self, at_least: int) -> None:
        """The next reserved value will be greater than ``at_least`` (an explicit value was inserted)."""

    def last_number(self, stream: str) -> int:
        """The number that was last remembered of a stream of writes, 0 where none was (``streams.py``)."""

    def streams(self) -> Mapping[str, int]:
        """All streams that are remembered, with their last numbers."""

    def remember(self, stream: str, number: int) -> None:
        """The stream has come to this number with this step; 0 forgets it. Seen after ``commit``."""


class Store(Protocol):
    """The base shards of one domain, and their log."""

    def create_table(self, schema: TableSchema) -> TableStore: ...

    def alter_table(self, schema: TableSchema) -> TableStore:
        """The same table with columns appended or marked dropped; stored rows are widened (``widening.py``)."""

    def drop_table(self, name: str) -> None: ...

    def table(self, name: str) -> TableStore: ...

    def tables(self) -> list[TableSchema]:
        """The schemas of all tables."""

    def commit(self, log: Iterable[tuple[str, int, Sequence[Delta]]]) -> None:
        """Close the step: log entries (table, sequence, deltas) go with the staged rows into one atomic write.

        The write is seen by look-ups at once. Raises StorageFailure, and then the step is rolled back: surely, but
        where it is CommitLost.
        """

    def rollback(self) -> None:
        """Forget what was staged since the last commit."""

    def keep(self, transaction: str, record: TransactionRecord | None) -> None:
        """Have this known of a transaction, with the step's write; None: nothing any more."""

    def records(self) -> dict[str, TransactionRecord]:
        """What is kept of transactions. Rows have the table's present width; a dropped table is left out."""

    def note_part(self, transaction: str, part: TransactionPart, copies: Sequence[PartCopy] = ()) -> None:
        """Have this told to cuts of a transaction, with the step's write; and keep copies of other shards' parts."""

    def parts(self) -> dict[str, TransactionPart]:
        """What is noted of transactions, those that began first first. Any thread."""

    def part(self, transaction: str) -> TransactionPart | None:
        """The same of one. Any thread."""

    def copies_of(self, transaction: str) -> tuple[PartCopy, ...]:
        """What is kept with its part. Any thread."""

    def forget_parts(self, transactions: Iterable[str]) -> None:
        """What was noted of these is archived, with what other shards have of them. Not within a step."""

    def keep_snapshot(self, record: SnapshotRecord) -> None:
        """Keep all tables as they are between these two steps, until it is dropped or the store is closed. Nobody hears
        of it before :meth:`tell_of_snapshot`.

        :raises StorageFailure: nothing is kept, and nothing else is wrong."""

    def tell_of_snapshot(self, name: str) -> None:
        """What is kept is a snapshot. One that is held is not ended by closing the store, or by a crash, from now on.

        :raises StorageFailure: it is none."""

    def drop_snapshot(self, name: str) -> None:
        """Nothing happens if it is not kept."""

    def snapshots(self) -> dict[str, SnapshotRecord]:
        """Those that are told of."""

    def snapshot(self, name: str) -> KeptTables:
        """:raises SnapshotGone: it is not kept."""

    def position(self, table: str) -> int:
        """The sequence number of the table's last committed step (0: none)."""

    def log(self, table: str, after: int, limit: int) -> list[tuple[int, list[Delta]]]:
        """The next log entries, at most ``limit``: (sequence, deltas) with a sequence above ``after``, oldest first.

        Rows have the table's present width. What was trimmed is not there; nobody asks for it (``Domain.log_needed``).
        """

    def flush(self) -> None:
        """Write out what closing would have to write else. Any thread may call it, and steps go on meanwhile."""


def declared_indexes(schema: TableSchema) -> tuple[Columns, ...]:
    """The secondary indexes that a new table has: one for each declared index and UNIQUE that is not the primary key.

    An index answers for its columns in any order, so two declarations of the same columns are one index.
    """
    seen = {tuple(sorted(schema.primary_key))}
    indexes: list[Columns] = []
    for columns in (*schema.unique, *schema.indexes):
        if tuple(sorted(columns)) not in seen:
            seen.add(tuple(sorted(columns)))
            indexes.append(columns)
    return tuple(indexes)


def best_key(schema: TableSchema, indexes: Iterable[Columns], tied: Collection[int]) -> Columns:
    """The first columns of the primary key or of an index, all of them ``tied``: a whole unique key if there is one,
    else as many as possible; () where none begins with one of them."""
    best: Columns = ()
    for columns in (schema.primary_key, *indexes):
        run = tuple(takewhile(tied.__contains__, columns))
        if run and run == columns and (columns == schema.primary_key or columns in schema.unique):
            return run
        if len(run) > len(best):
            best = run
    return best


# Numbered streams of writes: whoever sends a write again, not knowing whether it was done, does not do it twice.
#
# ::
#
#     writer ── 1, 2, 3, 3, 4 … ──► shard    3 is done once; the second 3 is answered as done and changes nothing
#            ── 1, 2, 4 ──────────► shard    4 is refused: OutOfOrder
#
# A table's shard keeps the last number of each stream *in the same commit as the rows*, so a crash leaves both or
# neither. What holds: **a number is never done twice in a shard, and never before the one below it**, whatever
# crashes between, and however often and through whomever a write is sent. So every shard of a table takes every
# number, with no rows where it has none; the last number of all shards is the least of theirs. A write that is
# refused (a key that is taken) has not used its number up.
#
# That a number means the same rows every time is the writer's promise. Numbers are remembered until the table is
# dropped, or its stream is forgotten (number 0); they are not in the log, so a table that is made anew out of the
# log's archive knows no stream.

STREAMS_MAX = 4096
"""Remembered by a table: all are in memory, at some 200 bytes each. None is forgotten by itself, since its writes could
be done a second time then."""
NAME_MAX = 128
"""Characters of a stream's name: a digest, or what a person would call it."""


def check_name(stream: str) -> None:
    """:raises BadRequest: it is no name of a stream."""
    if not 0 < len(stream) <= NAME_MAX or not stream.isprintable() or "/" in stream:
        raise BadRequest(f"the name of a stream has 1 to {NAME_MAX} printable characters, and no /")


def is_repeated(table: TableStore, once: Once) -> bool:
    """Whether the shard has done the number already; else it is the one that comes next.

    :raises OutOfOrder: there is one between.
    :raises LimitExceeded: the table remembers too many streams to begin another.
    """
    if once.number == 0:
        return False
    last = table.last_number(once.stream)
    if once.number <= last:
        return True
    if once.number > last + 1:
        raise OutOfOrder(
            f'number {once.number} of stream "{once.stream}" skips numbers: the last of table "{table.schema.name}" is '
            f"{last}",
            hint=f"go on with number {last + 1}; a stream that is forgotten, or not known, begins with 1",
        )
    if last == 0 and len(table.streams()) >= STREAMS_MAX:
        raise LimitExceeded(
            f'table "{table.schema.name}" remembers {STREAMS_MAX} streams of numbered writes, and no more',
            hint="forget those whose writers are done: DELETE /v1/tables/{table}/streams/{stream}",
        )
    return False


# What is known of a table without reading all of it: for the order of joins.

SAMPLED_ROWS = 200
"""Whose values are counted, on the dataflow thread: one or two milliseconds."""
SAMPLED_BYTES = 2**20
"""Bytes of text after which no more rows are read."""
SAMPLED_KEYS = 16
"""Keys whose rows are counted to tell how many a key has."""
MOST_OF_A_KEY = 100
"""Rows counted of one key. A column with such keys has few values, which the sample knows."""


def sized(schema: TableSchema, rows: int) -> TableStatistics:
    """What is known of a table by its size: a unique key has a value for each row."""
    unique = (schema.primary_key, *schema.unique)
    indexes = tuple(columns for columns in dict.fromkeys((*unique, *schema.indexes)) if columns)
    return TableStatistics(rows, {columns: rows for columns in unique if columns}, indexes)


def sampled(table: StoredRows) -> TableStatistics:
    """A table's statistics from its first rows: their values, and by look-ups how many rows these have. Values of many
    rows are met more often than others: a join wants to know just that, how many matches a row finds."""
    known, rows, size = sized(table.schema, table.row_count), list[Row](), 0
    for part in table.slices(SAMPLED_ROWS // 10):
        rows += [row for row, weight in part for _ in range(weight)]
        size += sum(len(value) for row, _ in part for value in row if value.__class__ in (str, bytes))
        if len(rows) >= SAMPLED_ROWS or size > SAMPLED_BYTES:
            break
    distinct: dict[Columns, int] = {(at,): _distinct_of(at, table, rows) for at in table.schema.live()}
    return replace(known, distinct=distinct | dict(known.distinct))


def of_shards(schema: TableSchema, shards: Sequence[TableStatistics]) -> TableStatistics:
    """A table's statistics from those of its shards. A value of the column that decides the shard is in one of them;
    one of another column that stands in several rows of a shard is taken to be in all of them."""
    known = sized(schema, sum(shard.rows for shard in shards))
    distinct: dict[Columns, int] = {}
    for at in schema.live():
        counts = [(shard.distinct.get((at,), 1), shard.rows) for shard in shards if shard.rows]
        is_repeated = at != schema.shard_column and all(2 * values <= rows for values, rows in counts)
        values = [count for count, _ in counts]
        distinct[at,] = max(1, max(values, default=1) if is_repeated else sum(values))
    return replace(known, distinct=distinct | dict(known.distinct))


def _distinct_of(column: int, table: StoredRows, rows: Sequence[Row]) -> int:
    values, count = list(dict.fromkeys(row[column] for row in rows)), table.row_count
    found = max(1, len(values))
    if len(rows) < count and table.best_key((column,)):
        keys = [(value,) for value in values if value is not None][:SAMPLED_KEYS]
        counts = table.count_many((column,), keys, MOST_OF_A_KEY)
        if sum(counts) and max(counts) < MOST_OF_A_KEY:
            return max(found, round(count * len(counts) / sum(counts)))
    # Without an index: as many as the sample has, where they repeat in it; else in proportion.
    return found if 2 * found <= len(rows) or len(rows) >= count else round(found * count / len(rows))
