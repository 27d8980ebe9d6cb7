"""A shard's parts of transactions over several: where they stand among its writes, and the copies of the other parts.

::

    another   Prepare ─► its part is stored ──► a copy of it ──┐
    decider                                                    ├──► Commit ─► kept with its own part: all of it
    another   Commit  ◄── all copies ──────────────────────────┘         └──► all copies ─► kept by each

So whoever has committed a transaction has all of it, until it is archived, and a shard that is made again from the
archive has its parts from any of the others (``archive/redo.py``).

**The invariants**: *what was prepared on a disk that was given up is never committed by others.* A copy says in which
incarnation its shard has told it, and a shard that is given up has got a later one before anybody is asked for copies.
A decider does not commit on what was told in an earlier incarnation than it knows of; neither does a shard that is
prepared commit on what its decider told then, and asks it anew (``controller/transactions/in_doubt.py``). So once a
shard has handed out its copies, it commits nothing that they should have had. And *what a transaction that others keep
has met in this shard, others keep as well*: what was decided here and has perhaps nowhere been heard of goes with the
copy of whoever has looked it up (``behind``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from domains.engine.transactions.look_ups import TableLookUps
from domains.engine.transactions.open_transaction import OpenTransaction
from domains.engine.writing.write import TableDeltas
from domains.engine.writing.written import WrittenTables
from domains.errors import Conflict, Locked
from domains.language.types import Delta
from domains.plan.copies import Behind, PartCopy, TableId, changes_of, copied
from domains.plan.graph import DomainIndex
from domains.plan.packets import Commit, RollBack, TransactionAct, Written
from domains.store.storage import PARTS_MOST, Store, TransactionPart, TransactionRecord


@dataclass(frozen=True, slots=True)
class OtherShards:
    """Of one shard, where others keep copies of its parts."""

    shard: DomainIndex
    incarnation: int
    since: Callable[[DomainIndex], int]
    """The incarnation in which another shard is now, as far as is known here."""

    def now(self, copy: PartCopy) -> int:
        """This shard is asked now, whenever it has decided."""
        return self.incarnation if copy.shard == self.shard else copy.incarnation


class Parts:
    def __init__(
        self,
        written: WrittenTables,
        store: Store,
        decided: Mapping[str, TransactionRecord],
        look_ups: Mapping[str, TableLookUps],
    ) -> None:
        """``decided``: those that were committed here, and perhaps not yet in other shards."""
        self._written = written
        self._store = store
        self._decided = decided
        self._look_ups = look_ups
        self._unheard: dict[str, list[tuple[PartCopy, dict[TableId, list[Delta]]]]] = {}
        """What is in the store of the ``decided`` ones: their own part."""
        self.others: OtherShards | None = None
        """None: no copies are kept."""
        parts = store.parts()
        store.forget_parts(list(parts)[:-PARTS_MOST])
        orders = [part.order for part in parts.values()]
        self.order = max([*orders, *(record.order for record in store.records().values())], default=0)
        """The number of what was prepared or committed last, as cuts are told of it."""

    def next_order(self) -> int:
        self.order += 1
        return self.order

    def check(self, own: OpenTransaction, act: Commit) -> None:
        """Whether what others have told still holds.

        :raises Conflict: not what this shard is to decide on. :raises Locked: what another has decided may not, and
            the transaction stays prepared."""
        decider, others = None if own.prepared is None else own.prepared.decider, self.others
        for copy in act.copies:
            if others is None or copy.incarnation >= others.since(copy.shard):
                continue
            if decider is None:
                raise Conflict(
                    f'transaction "{own.id}" is in conflict: shard {copy.shard}, which it has come to, began anew',
                    hint="begin it again: db.run does",
                )
            if copy.shard == decider:
                raise Locked(f'shard {decider} began anew, and is asked whether transaction "{own.id}" is committed')

    def note(self, own: OpenTransaction, act: Commit, domain: DomainIndex, changes: TableDeltas) -> None:
        """It is committed with this step: the next position of each table is its. The own copy, which is in the log as
        well, is kept for who has lost all: it is asked for in its turn, when this one is lost."""
        before = self._written.positions()
        committed = {table.base: before[table.base] + 1 for table in changes}
        order, then = self.next_order(), own.prepared
        if then is None:
            part = TransactionPart(domain, act.others, before, before, committed, order, order)
        else:
            part = TransactionPart(then.decider, (), then.at, before, committed, then.order, order)
        decided = (self._copy(own, order),) if self.others is not None and act.others else ()
        self._store.note_part(own.id, part, act.copies + decided)

    def prepared(self, own: OpenTransaction, written: Written) -> Written:
        """With a copy of what is prepared."""
        if self.others is None or own.prepared is None:
            return written
        return replace(written, copies=(self._copy(own, own.prepared.order),))

    def decided(self, id: str, act: TransactionAct, written: Written) -> Written:
        """With copies of all parts, where it was committed here and others have to hear of it."""
        others = self.others
        is_decided = written.rows_affected if isinstance(act, RollBack) else isinstance(act, Commit) and act.others
        if others is None or not is_decided:
            return written
        copies = self._store.copies_of(id)
        return replace(written, copies=tuple([replace(c, incarnation=others.now(c)) for c in copies]))

    def _copy(self, own: OpenTransaction, order: int) -> PartCopy:
        assert self.others is not None
        staged = own.tables.staged_deltas()
        tables = {(name, self._written.known(name).schema.generation): list(staged[name].items()) for name in staged}
        return PartCopy(self.others.shard, self.others.incarnation, order, copied(tables), self._behind(own.id))

    def _behind(self, id: str) -> tuple[Behind, ...]:
        for decided in self._unheard.keys() - self._decided.keys():
            del self._unheard[decided]
        found: dict[str, Behind] = {}
        for decided in self._decided:
            if decided not in self._unheard:
                self._unheard[decided] = self._read(decided)
            for copy, changes in self._unheard[decided]:
                if self._has_met(id, changes):
                    found |= {each[0]: each for each in (*copy.behind, (decided, copy.order, copy.changes))}
        return tuple(found.values())

    def _read(self, id: str) -> list[tuple[PartCopy, dict[TableId, list[Delta]]]]:
        assert self.others is not None
        copies = [copy for copy in self._store.copies_of(id) if copy.shard == self.others.shard]
        return [(copy, changes_of(copy.changes)) for copy in copies]

    def _has_met(self, id: str, changes: Mapping[TableId, list[Delta]]) -> bool:
        """Whether the transaction has looked up what these have changed."""
        for (name, _), deltas in changes.items():
            known = self._look_ups.get(name)
            width = 0 if known is None else len(self._written.known(name).schema.columns)
            if any(len(row) != width for row, _ in deltas if known is not None):
                return True  # It was altered since.
            if known is not None and id in known.touched(deltas):
                return True
        return False
