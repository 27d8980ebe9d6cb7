"""The open transactions of a domain, and what it does for them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from domains.engine.transactions.locks import Locks, Waits, deadlock, held, in_line
from domains.engine.transactions.look_ups import LOOK_UP_BYTES, TableLookUps
from domains.engine.transactions.open_transaction import (
    OpenTransaction,
    ReservedRows,
    ShownTables,
    StagedThen,
    StatementTables,
    begun_snapshot,
)
from domains.engine.transactions.parts import Parts
from domains.engine.transactions.snapshots import StandingStill
from domains.engine.transactions.staged import StagedTables
from domains.engine.writing.foreign_keys import change_related
from domains.engine.writing.write import NOTHING, Changes, change_table
from domains.engine.writing.written import WrittenTables
from domains.errors import Conflict, HeadraceError, LimitExceeded, Locked, NotFound, TransactionEnded
from domains.language.types import Delta, TableSchema
from domains.plan.packets import (
    SKIPPING,
    Amend,
    AwaitLocks,
    Commit,
    Delete,
    ForgetDecision,
    Insert,
    InTransaction,
    Operation,
    Prepare,
    Release,
    RollBack,
    RollBackTo,
    Savepoint,
    StopWaiting,
    TransactionAct,
    Undo,
    Update,
    Validate,
    Within,
    Write,
    Written,
    written_tables,
)
from domains.plan.snapshots import SnapshotAct
from domains.store.storage import Store, TransactionRecord

TOGETHER = 8
"""Times what one may take is what all may take."""
REMEMBERED = 1_000
"""Transactions that have ended, whose end is remembered: a commit that is sent again is answered as it was."""

HELD_SHOWN = 8
"""Keys, ranges and tables that are told of what one holds."""


class Transactions:
    """See the package. All of it is of one domain, between two steps or within one."""

    def __init__(self, written: WrittenTables, store: Store) -> None:
        self._written = written
        self._store = store
        self._look_ups: dict[str, TableLookUps] = {}
        self.open: dict[str, OpenTransaction] = {}
        self._ended: dict[str, Written | HeadraceError] = {}
        self._bytes = 0
        self.prepared: dict[str, OpenTransaction] = {}
        """Those of the open ones that hold what they have looked up."""
        self.decided: dict[str, TransactionRecord] = {}
        """Those that were committed here, and perhaps not yet in other shards."""
        self.locks = Locks(self._look_ups)
        self.parts = Parts(written, store, self.decided, self._look_ups)
        self.snapshots = StandingStill(store)
        self._restore()

    @property
    def order(self) -> int:
        return self.parts.order

    def _restore(self) -> None:
        """Have what is stored: after a crash all that is known. A prepared one holds the tables that it has read whole
        then, since what it looked up in them is not stored."""
        for id, record in self._store.records().items():
            if record.is_committed:
                self.decided[id] = record
                continue
            tables = StagedTables(self._written, self._look_ups, id)
            own = self.open[id] = self.prepared[id] = OpenTransaction(id, tables, affected=record.affected)
            self.locks.holders[id] = own
            own.prepared = record
            for name in record.read:
                tables.staged(name).read_whole()
            for name, deltas in record.changes.items():
                tables.staged(name).change(deltas)

    def entered(self, within: InTransaction) -> OpenTransaction:
        """The transaction, which is begun if this says so. Raises Conflict, TransactionEnded."""
        id = within.id
        if within.begins and id not in self.open and id not in self._ended:
            begun = self.open[id] = OpenTransaction(id, StagedTables(self._written, self._look_ups, id))
            begun.locks = within.locks
            begun.savepoints = [StagedThen(name, {}, 0, 0) for name in within.savepoints]
        return self._found(id)

    def leave(self, id: str) -> bool:
        """Whether it has come to anything here; if not it is not open here any more."""
        own = self.open.get(id)
        if own is None or own.snapshot is not None or own.reading is not None or own.tables.staged_deltas():
            return True
        if any(each.have(id) for each in self._look_ups.values()):
            return True
        del self.open[id]
        return False

    def _found(self, id: str) -> OpenTransaction:
        transaction = self.open.get(id)
        if transaction is None:
            ended = self._ended.get(id)
            if isinstance(ended, HeadraceError):
                raise type(ended)(ended.message, hint=ended.hint)
            raise TransactionEnded(f'transaction "{id}" is not open here', hint="begin another one")
        if transaction.conflict is not None:
            raise self._lost(transaction)
        return transaction

    def take(self, act: TransactionAct, within: InTransaction) -> Changes:
        """Do what a transaction wants. What has changes then is a commit, which the domain is to make: it says
        :meth:`done` or :meth:`failed`. An operation that is refused leaves the transaction open, as it was.

        :raises HeadraceError: an operation's, Conflict, TransactionEnded, LimitExceeded. :raises Waits: for a lock.
        """
        id = within.id
        if isinstance(act, StopWaiting):
            self.locks.stop(id)
            return NOTHING
        if isinstance(act, SnapshotAct):
            self.snapshots.take(act, id)
            return NOTHING
        ended = self._ended.get(id)
        if isinstance(act, Commit) and isinstance(ended, Written):
            return Changes({}, ended.rows_affected)
        if isinstance(act, (Commit, RollBack, ForgetDecision)) and id in self.decided:
            if isinstance(act, ForgetDecision):
                self._store.keep(id, None)
            return Changes({}, self.decided[id].affected if isinstance(act, Commit) else 1)
        if isinstance(act, (Commit, RollBack)) and ended is None and id not in self.open and self._store.part(id):
            return Changes({}, int(isinstance(act, RollBack)))  # It was committed, and is known by its part alone.
        if isinstance(act, (RollBack, ForgetDecision)):
            if id in self.prepared:
                self._store.keep(id, None)
            return Changes({}, 1) if isinstance(ended, Written) else NOTHING
        if isinstance(act, Commit) and act.decided and id not in self.prepared:
            return NOTHING
        own = self.entered(within)
        match act:
            case Savepoint(name=name):
                own.savepoints = [each for each in own.savepoints if each.name.lower() != name.lower()]
                own.savepoints.append(own.staged_now(name))
            case RollBackTo(name=name):
                del own.savepoints[_place_of(own, name) + 1 :]
                own.go_back(own.savepoints[-1])
            case Release(name=name):
                del own.savepoints[_place_of(own, name) :]
            case Undo():
                if own.before is not None:
                    own.go_back(own.before)
            case AwaitLocks():
                self._await(own, within)
            case Validate():
                self._check_locks(own, waits=True)
            case Prepare():
                return self._prepare(own, act)
            case Commit(others=others):
                if own.prepared is None:
                    self._check_locks(own, waits=not others)
                self.parts.check(own, act)
                if own.prepared is not None or others:
                    self._store.keep(id, TransactionRecord(within.domain, others, own.affected) if others else None)
                changes = own.tables.changes()
                if own.prepared is not None or others or len(changes) > 1:
                    self.parts.note(own, act, within.domain, changes)
                return Changes(changes, own.affected)
            case Insert() | Update() | Delete() | Amend():
                return self._stage(own, act, within)
            case _:
                assert_never(act)
        return NOTHING

    def _changed_by(self, tables: StagedTables, operation: Operation) -> Changes:
        known = tables.known(operation.table)
        if known.is_related or (isinstance(operation, Amend) and operation.also):
            return change_related(tables, operation)
        return change_table(known, operation)

    def _stage(self, own: OpenTransaction, operation: Operation, within: InTransaction) -> Changes:
        own.before = own.staged_now("") if within.undoable else None
        if own.locks:
            done = self._locked(own, operation, within)
        else:
            done = self._changed_by(own.tables, operation)
        own.bytes += own.tables.stage(done.tables)
        own.affected += done.affected
        self.check_size(own, within.most)
        return replace(done, tables={})

    # --- locks ----------------------------------------------------------------------------------------------------

    def _locked(self, own: OpenTransaction, operation: Operation, within: InTransaction) -> Changes:
        """What it comes to, once it has its locks. Why it is refused it has looked up, too."""
        tables, done, error = StatementTables(own, self._written), NOTHING, None
        try:
            done = self._changed_by(tables, operation)
        except HeadraceError as refused:
            error = refused
        changed = {table.schema.name: deltas for table, deltas in done.tables.items()}
        met = self.locks.met(own, tables.look_ups, changed) or self.locks.behind(own, tables.look_ups, changed)
        if met is not None:
            raise in_line(met, within)
        self._lock(own, tables)
        if error is not None:
            raise error
        return done

    def _lock(self, own: OpenTransaction, tables: StatementTables) -> None:
        """What the statement has looked up is held from now on."""
        self.locks.holders[own.id] = own
        for name, looked_up in tables.look_ups.items():
            if name not in self._look_ups:
                self._look_ups[name] = TableLookUps(self._written.known(name).schema)
            self._look_ups[name].take(looked_up, own.id)

    def _await(self, own: OpenTransaction, within: InTransaction) -> None:
        """Take the locks that a read has wanted in vain: as of now, so that it is not overtaken before it is done
        again."""
        wanted, own.reading = own.reading, None
        if wanted is None:
            return
        tables = wanted.anew()
        found = tables.found()
        met = self.locks.met(own, tables.look_ups, found) or self.locks.behind(own, tables.look_ups, found)
        if met is not None:
            own.reading = wanted
            raise in_line(met, within)
        self._lock(own, tables)
        own.reserve(tables)

    def reading(self, within: InTransaction, decided: Container[str] = ()) -> StagedTables:
        """The tables for a read, after which ``check_read`` is called. ``decided``: transactions that were committed in
        other shards, so that what is prepared of them here counts as done.

        :raises Conflict, TransactionEnded, LimitExceeded."""
        own = self.entered(within)
        if not own.locks:
            return own.tables
        if within.reads.startswith(("exclusive", "shared")):
            alone, skips = within.reads.startswith("exclusive"), within.reads.endswith(SKIPPING)
            free = partial(self.locks.is_free, own, exclusive=alone) if skips else None
            own.reading = StatementTables(own, self._written, reserves=alone, free=free)
            return own.reading
        own.reading, snapshot = None, own.snapshot if within.reads == "snapshot" else None
        return ShownTables(own, self._written, snapshot or begun_snapshot(self, within.most, decided))

    def take_snapshot(self, within: InTransaction, decided: Container[str]) -> bool:
        """Have plain reads be of now. Whether they were: nothing has been committed or prepared since.

        :raises Conflict, TransactionEnded."""
        own = self.entered(within)
        before, own.snapshot = own.snapshot, begun_snapshot(self, within.most, decided)
        return before is not None and before.is_of_now and before.order == self.order

    def has_committed(self, id: str) -> bool:
        return id in self.decided or isinstance(self._ended.get(id), Written)

    def check_read(self, within: InTransaction) -> None:
        """It has read something.

        :raises LimitExceeded. :raises HeldByLocks: others hold something of what it has read to write: it asks to
            ``AwaitLocks``, and reads again."""
        own = self._found(within.id)
        if (tables := own.reading) is not None:
            found = tables.found()
            met = self.locks.met(own, tables.look_ups, found) or self.locks.behind(own, tables.look_ups, found)
            if met is not None and tables.free is None:
                raise held(met, within.domain)
            self._lock(own, tables)
            own.reserve(tables)
            own.reading = None
        self.check_size(own, within.most)

    def waits(self, packet: Write, raised: Exception) -> bool:
        """Whether a write is to be done later: it waits for a lock then. Where that is in vain, since all in a ring
        wait for one another, the youngest of those who wait here ends."""
        if not isinstance(raised, Waits):
            return False
        assert isinstance(packet.within, InTransaction), "nothing else waits in line"
        while (victim := self.locks.park(packet, packet.within, raised.met)) is not None:
            self._end(victim, deadlock(victim, raised.met.said))
            if victim == packet.within.id:
                break
        return True

    # --- what is prepared, and holds what it has looked up --------------------------------------------------------

    def _prepare(self, own: OpenTransaction, act: Prepare) -> Changes:
        if own.prepared is None:
            self._check_locks(own, waits=False)
            changes = {name: list(deltas.items()) for name, deltas in own.tables.staged_deltas().items()}
            read = tuple(name for name, each in self._look_ups.items() if each.have(own.id))
            at = self._written.positions()
            order = self.parts.next_order()
            own.preparing = TransactionRecord(act.decider, (), own.affected, read, changes, act.since, at, order)
            self._store.keep(own.id, own.preparing)
        return Changes(own.tables.changes(), own.affected)

    def held(self, id: str) -> list[str]:
        """What one that is prepared holds, for people: what it has looked up, and how much it is to change."""
        found = [each for table in self._look_ups.values() for each in table.told(id, HELD_SHOWN)]
        tables = self.prepared[id].tables
        found += [
            f"{tables.known(name).schema.title}: {len(deltas)} rows of its own"
            for name, deltas in tables.staged_deltas().items()
        ]
        return found if len(found) <= HELD_SHOWN else [*found[:HELD_SHOWN], f"{len(found) - HELD_SHOWN} more"]

    def write_beside(self, operation: Operation) -> Changes:
        """What a plain write comes to: as a transaction of this one operation, if nothing that is prepared minds.

        :raises Locked: it does; nothing was done."""
        own = OpenTransaction("", StagedTables(self._written, self._look_ups, ""))
        try:
            done = self._changed_by(own.tables, operation)
            own.tables.stage(done.tables)
            self._check_locks(own, waits=True)
            return replace(done, tables=own.tables.changes())
        except Locked:
            raise
        except HeadraceError:
            self._check_locks(own, waits=True)  # Why it is refused may be about to change.
            raise
        finally:
            self._let_go(own)

    def check_free(self) -> None:
        """:raises Locked: a transaction is prepared."""
        for holder in self.prepared:
            raise _locked("the tables of this shard", holder)

    def _check_locks(self, own: OpenTransaction, *, waits: bool) -> None:
        """Whether any transaction that holds something has changed what this one has looked up, or looked up what this
        one changes, or the shard stands still. If so it has to wait; one that holds something itself only for younger
        ones that are prepared, so that no two ever wait for each other, over all shards.

        :raises Locked: it has to wait. :raises Conflict: it must not."""
        self.snapshots.check()
        changed = {name: list(deltas.items()) for name, deltas in own.tables.staged_deltas().items()}
        met = self.locks.met(own, self._look_ups, changed)
        if met is None:
            return
        holder = min(met.holders)
        if not waits and (own.id > holder or self.open[holder].prepared is None):
            own.conflict = f'{met.said}, is held by transaction "{holder}"'
            raise self._lost(own)
        raise held(met) if self.open[holder].prepared is None else _locked(met.said, holder)

    def check_size(self, own: OpenTransaction, most: int) -> None:
        """:raises LimitExceeded: it takes more than ``most`` bytes, or all that are open take more than
        :data:`TOGETHER` times as many; it has ended."""
        size = own.bytes + LOOK_UP_BYTES * sum(each.count(own.id) for each in self._look_ups.values())
        self._bytes += size - own.counted
        own.counted = size
        if most and (size > most or self._bytes > TOGETHER * most):
            whose = f'transaction "{own.id}" exceeds' if size > most else f"all transactions exceed {TOGETHER} times"
            error = LimitExceeded(
                f'{whose} "max_transaction_size", {most} bytes of staged rows and look-ups',
                hint="it was rolled back: commit earlier, or raise the limit",
            )
            error.ends_transaction = True
            self._end(own.id, error)
            raise error

    def done(self, act: TransactionAct, within: InTransaction, written: Written) -> Written:
        """What :meth:`take` gave is stored. Answers what is told of it."""
        id = within.id
        if isinstance(act, RollBack) and not written.rows_affected:
            self._end(id, TransactionEnded(f'transaction "{id}" was rolled back', hint="begin another one"))
        elif isinstance(act, ForgetDecision):
            self.decided.pop(id, None)
        elif isinstance(act, Prepare):
            own = self.prepared[id] = self.locks.holders[id] = self.open[id]
            own.prepared = own.prepared or own.preparing  # It may be asked again.
            return self.parts.prepared(own, written)
        elif isinstance(act, Commit):
            if act.others and id in self.open:
                self.decided[id] = TransactionRecord(within.domain, act.others, self.open[id].affected)
            self._end(id, written)
        return self.parts.decided(id, act, written)

    def failed(self, act: TransactionAct, within: Within, error: HeadraceError) -> None:
        """A write is not done."""
        if isinstance(within, InTransaction) and isinstance(act, (Commit, Prepare)) and not isinstance(error, Locked):
            self._end(within.id, error)

    # --- what others change -----------------------------------------------------------------------------------

    def changed(self, tables: Mapping[str, Sequence[Delta]], within: Within) -> None:
        """A commit has changed these rows, perhaps one of a transaction."""
        by = within.id if isinstance(within, InTransaction) else ""
        for name, deltas in tables.items():
            known = self._look_ups.get(name)
            for id, what in (known.met(deltas) if known is not None else {}).items():
                if id != by:
                    self._meet(self.open[id], f"{what}, was changed")
        for own in self.open.values():
            if own.snapshot is not None and own.id != by:
                own.snapshot.changed(tables)

    def altered(self, schema: TableSchema) -> None:
        """The table is another now, new, or gone: as it is, what was worked out for it, and for tables that its foreign
        keys name, may not hold."""
        parents = {key.parent.lower() for key in schema.foreign_keys}
        for own in self.open.values():
            if own.snapshot is not None:
                own.snapshot.altered(schema.name)
            for name, table in own.tables.items() if own.prepared is None else ():
                if name == schema.name or table.schema.title.lower() in parents:
                    self._meet(own, f'table "{table.schema.title}", which it has come to, was altered or dropped')
                    break
        for id in [
            each.id for each in self.locks.waiting.values() if schema.name in written_tables(each.packet.operation)
        ]:
            why = f'table "{schema.title}" was altered or dropped while transaction "{id}" waited to write to it'
            self._end(id, Conflict(why, hint="begin it again: db.run does"))
        self._look_ups.pop(schema.name, None)
        for id in self.prepared:
            for each in self._look_ups.values():
                each.forget(id)
        self._restore()  # The rows of a prepared one have the table's width, as all that is stored.

    def _meet(self, own: OpenTransaction, why: str) -> None:
        """It can only end now, and holds nothing until it hears of that. One that is prepared is not met by what others
        were let do, but after a crash, when it holds more than it has read, by one that was prepared beside it."""
        if own.conflict is None and own.prepared is None:
            own.conflict = why
            self._let_go(own)

    def _lost(self, own: OpenTransaction) -> Conflict:
        error = Conflict(f'transaction "{own.id}" is in conflict: {own.conflict}', hint="begin it again: db.run does")
        self._end(own.id, error)
        return error

    def _end(self, id: str, how: Written | HeadraceError) -> None:
        own = self.open.pop(id, None)
        self.prepared.pop(id, None)
        if self.locks.waiting and isinstance(how, HeadraceError):
            self.locks.stop(id, how)
        if own is not None:
            self._let_go(own)
        # Anew: one that was raised has the frames of whoever met it.
        self._ended[id] = type(how)(how.message, hint=how.hint) if isinstance(how, HeadraceError) else how
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _let_go(self, own: OpenTransaction) -> None:
        self._bytes -= own.counted
        own.counted = 0
        for each in self._look_ups.values():
            each.forget(own.id)
        own.tables = StagedTables(self._written, self._look_ups, own.id)
        own.reserved, own.snapshot, own.reading = ReservedRows(), None, None
        own.savepoints.clear()
        self.locks.let_go(own.id)


def _locked(what: str, holder: str) -> Locked:
    return Locked(
        f'transaction "{holder}", which is being committed in several shards, holds {what}',
        hint="try again: it is over within seconds, unless a shard is away",
    )


def _place_of(own: OpenTransaction, name: str) -> int:
    for at, each in enumerate(own.savepoints):
        if each.name.lower() == name.lower():
            return at
    raise NotFound(f'savepoint "{name}" does not exist', hint="SAVEPOINT name makes one")
