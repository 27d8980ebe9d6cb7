"""One open transaction of a shard: what it has staged, what it has reserved, and what it is shown."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from domains.engine.transactions.look_ups import WHOLE, LookUp, TableLookUps
from domains.engine.transactions.staged import StagedTable, StagedTables
from domains.engine.writing.written import WrittenTables
from domains.errors import Conflict, LimitExceeded
from domains.language.types import Delta, Row, TableSchema, collations_of
from domains.operators.state import row_bytes
from domains.plan.deltas import Entry, add_row, key_function
from domains.plan.graph import Columns
from domains.store.storage import TableStore, TransactionRecord
from domains.store.walking import Interval


@dataclass(frozen=True, slots=True)
class StagedThen:
    """What was staged at a savepoint."""

    name: str
    staged: Mapping[str, Entry]
    bytes: int
    affected: int


class Snapshot:
    """The tables at one moment: the stored rows, and back from them what others have changed since."""

    def __init__(self, most: int, order: int) -> None:
        """``most``: bytes that it may take; 0: as many as there are. ``order``: of what was prepared last."""
        self.order = order
        self.is_of_now = True
        """Nobody has committed anything since."""
        self._most = most
        self._bytes = 0
        self._back: dict[str, Entry] = {}
        self._altered: set[str] = set()

    def changed(self, tables: Mapping[str, Sequence[Delta]]) -> None:
        """Others have committed this."""
        self.is_of_now = self.is_of_now and not tables
        for name, deltas in tables.items():
            back = self._back.setdefault(name, {})
            for row, weight in deltas:
                add_row(back, row, -weight)
                self._bytes += row_bytes(row)
        if self._is_lost:
            self._back.clear()

    def altered(self, name: str) -> None:
        self.is_of_now = False
        self._altered.add(name)
        self._back.pop(name, None)

    @property
    def _is_lost(self) -> bool:
        return 0 < self._most < self._bytes

    def back(self, schema: TableSchema) -> Entry:
        """:raises Conflict: the table was another then. :raises LimitExceeded: too much was changed since."""
        if schema.name in self._altered:
            raise Conflict(
                f'table "{schema.title}" was altered since the transaction\'s snapshot', hint="begin it again"
            )
        if self._is_lost:
            error = LimitExceeded(
                f'others have changed more than "max_transaction_size", {self._most} bytes, since the snapshot',
                hint="it was rolled back: commit earlier, or raise the limit",
            )
            error.ends_transaction = True
            raise error
        return self._back.get(schema.name, {})


@dataclass(slots=True)
class ReservedRows:
    """What was read FOR UPDATE."""

    rows: dict[str, StagedTable] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    """Tables in which nobody else is to look anything up."""


@dataclass(slots=True)
class OpenTransaction:
    id: str
    tables: StagedTables
    conflict: str | None = None
    """What of that which it has read others have changed."""
    savepoints: list[StagedThen] = field(default_factory=list)
    bytes: int = 0
    """Of what is staged, about."""
    counted: int = 0
    """The same with its look-ups, when that was last counted."""
    affected: int = 0
    before: StagedThen | None = None
    """What was staged before the last operation. One can be undone, once."""
    preparing: TransactionRecord | None = None
    prepared: TransactionRecord | None = None
    """The same once it is stored."""
    locks: bool = False
    """Whether its look-ups are locks, and its plain reads none."""
    reserved: ReservedRows = field(default_factory=ReservedRows)
    snapshot: Snapshot | None = None
    reading: StatementTables | None = None
    """What a read FOR UPDATE, or FOR SHARE, has come to that has no locks yet."""

    def staged_now(self, name: str) -> StagedThen:
        staged = {table: dict(deltas) for table, deltas in self.tables.staged_deltas().items()}
        return StagedThen(name, staged, self.bytes, self.affected)

    def go_back(self, then: StagedThen) -> None:
        self.bytes, self.affected, self.before = then.bytes, then.affected, None
        self.tables.go_back(then.staged)

    def taken(self, name: str) -> Iterator[StagedTable]:
        """The rows of a table that nobody else is to change, or to look up to write."""
        if (table := self.tables.get(name)) is not None:
            yield cast(StagedTable, table.stored)
        if (rows := self.reserved.rows.get(name)) is not None:
            yield rows

    def has_taken(self, name: str, look_up: LookUp) -> bool:
        """Whether one of them is surely found by this look-up."""
        columns, key = look_up
        if name in self.reserved.whole:
            return True
        if key is None:
            return not columns and any(each.deltas for each in self.taken(name))
        return any(each.own(columns).get(key) for each in self.taken(name) if each.deltas)

    def reserve(self, read: StatementTables) -> None:
        for name, table in read.items():
            found = cast(StagedTable, table.stored)
            if not isinstance(found, ReservingTable):
                return  # FOR SHARE
            if name not in self.reserved.rows:
                self.reserved.rows[name] = StagedTable(found.stored, TableLookUps(found.schema), self.id)
            rows = self.reserved.rows[name]
            rows.change((row, 1) for row in found.found if row not in rows.deltas)
            if WHOLE in read.look_ups[name].of(self.id):
                self.reserved.whole.add(name)


class StatementTables(StagedTables):
    """The tables as one statement sees them that is to take locks. Its look-ups are apart until it has them."""

    def __init__(
        self, own: OpenTransaction, committed: WrittenTables, *, reserves: bool = False, free: IsFree | None = None
    ) -> None:
        """``free``: whether a row is; those that are not are left out."""
        self.look_ups: dict[str, TableLookUps] = {}
        super().__init__(committed, self.look_ups, own.id)
        self._of = own
        self._reserves = reserves
        self.free = free

    def seen(self, stored: TableStore, looked_up: TableLookUps) -> StagedTable:
        table: StagedTable
        if self.free is not None:
            table = SkippingTable(stored, looked_up, self._of.id, self.free, reserves=self._reserves)
        else:
            kind = ReservingTable if self._reserves else StagedTable
            table = kind(stored, looked_up, self._of.id)
        own = self._of.tables.get(stored.schema.name)
        if own is not None:
            table.see(cast(StagedTable, own.stored))
        return table

    def anew(self) -> StatementTables:
        """The same look-ups as of now."""
        tables = StatementTables(self._of, self._committed, reserves=self._reserves)
        for name, looked_up in self.look_ups.items():
            table = tables.staged(name)
            tables.look_ups[name].take(looked_up, self._of.id)
            for columns, key in looked_up.of(self._of.id):
                if columns and key is not None:
                    table.find(columns, key)
        return tables

    def found(self) -> dict[str, list[Delta]]:
        """The rows that it has found and is to reserve, by table."""
        tables = {name: cast(StagedTable, table.stored) for name, table in self.items()}
        return {name: list(each.found.items()) for name, each in tables.items() if isinstance(each, ReservingTable)}


class ReservingTable(StagedTable):
    """A table that remembers the rows which are found in it."""

    def __init__(self, stored: TableStore, looked_up: TableLookUps, transaction: str) -> None:
        super().__init__(stored, looked_up, transaction)
        self.found: Entry = {}

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        found = super().find_many(columns, keys)
        for rows in found:
            self.found.update(rows)
        return found

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        return self._noted(super().slices(limit))

    def walk(
        self, order: Columns, interval: Interval, first: int, most: int, *, descending: bool = False
    ) -> Iterator[list[Delta]]:
        return self._noted(super().walk(order, interval, first, most, descending=descending))

    def _noted(self, parts: Iterable[list[Delta]]) -> Iterator[list[Delta]]:
        for part in parts:
            self.found.update(part)
            yield part


IsFree = Callable[[str, Row], bool]


class SkippingTable(ReservingTable):
    """A table without the rows that others hold. It is not held what was looked up, but each row behind which another
    one was asked for: these go out one by one, and whoever has enough has seen one that it does not take."""

    def __init__(
        self, stored: TableStore, looked_up: TableLookUps, transaction: str, free: IsFree, *, reserves: bool
    ) -> None:
        super().__init__(stored, TableLookUps(stored.schema), transaction)
        self._held, self._free, self._reserves = looked_up, free, reserves
        self._columns = self.schema.primary_key or tuple(range(len(self.schema.columns)))
        self._key_of = key_function(self._columns, collations_of(self.schema.columns))

    def read_whole(self) -> list[Delta]:
        raise LimitExceeded("SKIP LOCKED looks at too many rows", hint="use an index, and a LIMIT")

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        found = StagedTable.find_many(self, columns, keys)
        return [[each for (each,) in self._noted([rows])] for rows in found]

    def _noted(self, parts: Iterable[list[Delta]]) -> Iterator[list[Delta]]:
        for row, weight in (each for part in parts for each in part):
            if self._free(self.schema.name, row):
                yield [(row, weight)]
                self._held.keys(self._columns, [self._key_of(row)], self._transaction)
                if self._reserves:
                    self.found[row] = weight


class ShownTables(StagedTables):
    """The tables as a plain read sees them: as of a snapshot, but for the rows that the transaction itself has
    written, which are as it wrote them. Nothing is remembered of what is looked up."""

    def __init__(self, own: OpenTransaction, committed: WrittenTables, snapshot: Snapshot) -> None:
        super().__init__(committed, {}, own.id)
        self._of = own
        self._snapshot = snapshot

    def seen(self, stored: TableStore, looked_up: TableLookUps) -> StagedTable:
        schema = stored.schema
        table, back = StagedTable(stored, looked_up, self._of.id), self._snapshot.back(schema)
        own = self._of.tables.get(schema.name)
        written = cast(StagedTable, own.stored).deltas if own is not None else {}
        if not written or not back:
            table.deltas = dict(written or back)
        elif schema.primary_key:
            key_of = key_function(schema.primary_key, collations_of(schema.columns))
            keys = set(map(key_of, written))
            table.deltas = {row: weight for row, weight in back.items() if key_of(row) not in keys} | written
        else:
            table.deltas = dict(written)  # Which of equal rows it has written nobody can tell: all are of now.
        return table


class PreparedOnes(Protocol):
    """The transactions of a domain, as far as a snapshot has to know them."""

    prepared: dict[str, OpenTransaction]

    @property
    def order(self) -> int: ...


def begun_snapshot(of: PreparedOnes, most: int, decided: Container[str]) -> Snapshot:
    """Of now. What is prepared here and was committed by its decider is in it: it is going to be done here."""
    snapshot = Snapshot(most, of.order)
    for id, other in of.prepared.items():
        if id in decided:
            undone = {
                name: [(row, -weight) for row, weight in deltas.items()]
                for name, deltas in other.tables.staged_deltas().items()
            }
            snapshot.changed(undone)
    snapshot.is_of_now = True
    return snapshot
