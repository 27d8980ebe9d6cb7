"""The open transactions of a domain, and what it does for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from domains.engine.transactions.look_ups import LOOK_UP_BYTES, TableLookUps
from domains.engine.transactions.staged import StagedTables
from domains.engine.writing.foreign_keys import change_related
from domains.engine.writing.write import NOTHING, Changes, change_table
from domains.engine.writing.written import WrittenTables
from domains.errors import Conflict, HeadraceError, LimitExceeded, NotFound, TransactionEnded
from domains.language.types import Delta, TableSchema
from domains.plan.deltas import Entry
from domains.plan.packets import (
    Amend,
    Commit,
    Delete,
    Insert,
    InTransaction,
    Operation,
    Release,
    RollBack,
    RollBackTo,
    Savepoint,
    TransactionAct,
    Update,
    Within,
    Written,
)

TOGETHER = 8
"""Times what one may take is what all may take."""
REMEMBERED = 1_000
"""Transactions that have ended, whose end is remembered: a commit that is sent again is answered as it was."""


@dataclass(frozen=True, slots=True)
class StagedThen:
    """What was staged at a savepoint."""

    name: str
    staged: Mapping[str, Entry]
    bytes: int
    affected: int


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


class Transactions:
    """See the package. All of it is of one domain, between two steps or within one."""

    def __init__(self, written: WrittenTables) -> None:
        self._written = written
        self._look_ups: dict[str, TableLookUps] = {}
        self.open: dict[str, OpenTransaction] = {}
        self._ended: dict[str, Written | HeadraceError] = {}
        self._bytes = 0

    def entered(self, within: InTransaction) -> OpenTransaction:
        """The transaction, which is begun if this says so. Raises Conflict, TransactionEnded."""
        id = within.id
        if within.begins and id not in self.open and id not in self._ended:
            self.open[id] = OpenTransaction(id, StagedTables(self._written, self._look_ups, id))
        return self._found(id)

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

        :raises HeadraceError: an operation's, Conflict, TransactionEnded, LimitExceeded.
        """
        if isinstance(act, RollBack):
            return NOTHING
        if isinstance(act, Commit) and isinstance(ended := self._ended.get(within.id), Written):
            return Changes({}, ended.rows_affected)
        own = self.entered(within)
        match act:
            case Savepoint(name=name):
                own.savepoints = [each for each in own.savepoints if each.name.lower() != name.lower()]
                staged = {table: dict(deltas) for table, deltas in own.tables.staged_deltas().items()}
                own.savepoints.append(StagedThen(name, staged, own.bytes, own.affected))
            case RollBackTo(name=name):
                del own.savepoints[_place_of(own, name) + 1 :]
                then = own.savepoints[-1]
                own.bytes, own.affected = then.bytes, then.affected
                own.tables.go_back(then.staged)
            case Release(name=name):
                del own.savepoints[_place_of(own, name) :]
            case Commit():
                return Changes(own.tables.changes(), own.affected)
            case Insert() | Update() | Delete() | Amend():
                return self._stage(own, act, within.most)
            case _:
                assert_never(act)
        return NOTHING

    def _stage(self, own: OpenTransaction, operation: Operation, most: int) -> Changes:
        known = own.tables.known(operation.table)
        if known.is_related or (isinstance(operation, Amend) and operation.also):
            done = change_related(own.tables, operation)
        else:
            done = change_table(known, operation)
        own.bytes += own.tables.stage(done.tables)
        own.affected += done.affected
        self.check_size(own, most)
        return replace(done, tables={})

    def check_read(self, within: InTransaction) -> None:
        """It has read something. Raises LimitExceeded."""
        self.check_size(self._found(within.id), within.most)

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

    def done(self, act: TransactionAct, within: InTransaction, written: Written) -> None:
        """What :meth:`take` gave is stored."""
        if isinstance(act, RollBack):
            gone = TransactionEnded(f'transaction "{within.id}" was rolled back', hint="begin another one")
            self._end(within.id, gone)
        elif isinstance(act, Commit):
            self._end(within.id, written)

    def failed(self, act: TransactionAct, within: Within, error: HeadraceError) -> None:
        """A write is not done."""
        if isinstance(within, InTransaction) and isinstance(act, Commit):
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

    def altered(self, schema: TableSchema) -> None:
        """The table is another now, new, or gone: as it is, what was worked out for it, and for tables that its foreign
        keys name, may not hold."""
        parents = {key.parent.lower() for key in schema.foreign_keys}
        for own in self.open.values():
            for name, table in own.tables.items():
                if name == schema.name or table.schema.title.lower() in parents:
                    self._meet(own, f'table "{table.schema.title}", which it has come to, was altered or dropped')
                    break
        self._look_ups.pop(schema.name, None)

    def _meet(self, own: OpenTransaction, why: str) -> None:
        """It can only end now, and holds nothing until it hears of that."""
        if own.conflict is None:
            own.conflict = why
            self._let_go(own)

    def _lost(self, own: OpenTransaction) -> Conflict:
        error = Conflict(f'transaction "{own.id}" is in conflict: {own.conflict}', hint="begin it again: db.run does")
        self._end(own.id, error)
        return error

    def _end(self, id: str, how: Written | HeadraceError) -> None:
        own = self.open.pop(id, None)
        if own is None:
            return
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
        own.savepoints.clear()


def _place_of(own: OpenTransaction, name: str) -> int:
    for at, each in enumerate(own.savepoints):
        if each.name.lower() == name.lower():
            return at
    raise NotFound(f'savepoint "{name}" does not exist', hint="SAVEPOINT name makes one")
