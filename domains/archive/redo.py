"""What is brought back of transactions to a shard that lost its disk: its parts, as the other shards keep them.

The shard is made again as of the last position that is archived of each of its tables. Of a transaction over several
shards that it committed behind that, the others have their parts, and a copy of its own (``engine/transactions/
parts.py``). So they are done again, *by their keys*: the writes between, of this shard alone, are lost::

    archived ─────────┊ a write that is lost ─ a transaction's part ─ another write that is lost
    made again ───────┊────────────────────────the same rows

**Which**: those that others have committed, and that are not archived here. A manifest names the transactions whose
rows are in it, and are not settled; one that is settled (``transactions.py``) is in a recorded cut, and so is archived
in all shards. **In which order**: two that have met here have been prepared, or committed, one after the other, and
their copies have the numbers. **What is in the way**: a stored row that has a key which the transaction has taken. It
was given up by a write that is lost, or the transaction would not have taken the key; so it goes. A row that it takes
away and that is not there was changed by one.

Of those that this shard was to decide, and that are prepared elsewhere, it has the decision again if one of the others
has committed, if its own rows are archived, or if one that is brought back has met it here. Otherwise it knows nothing
of them, and rolls them back when asked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from domains.archive.manifest import ArchiveError, check_rows, opened, sealed
from domains.language.types import Delta, Row, collations_of
from domains.plan.copies import Behind, PartCopy, changes_of, copied
from domains.plan.deltas import key_function
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from domains.plan.sharding import base_shard
from domains.store.row_types import RowTypes
from domains.store.storage import Store, TableStore, TransactionPart, TransactionRecord
from domains.store.widening import Widening


@dataclass(frozen=True, slots=True)
class KeptTransaction:
    """What a shard keeps of a transaction in which a lost one had a part."""

    id: str
    shard: DomainIndex
    decider: DomainIndex
    copies: tuple[PartCopy, ...]
    is_prepared: bool = False
    """It is prepared there, the lost one decides, and the copy is of this shard."""


def kept_with(store: Store, shard: DomainIndex, incarnation: int, lost: DomainIndex) -> list[KeptTransaction]:
    found = []
    for id, part in store.parts().items():
        copies = store.copies_of(id)
        if lost == part.decider or any(copy.shard == lost for copy in copies):
            found.append(KeptTransaction(id, shard, part.decider, copies))
    for id, record in store.records().items():
        if record.decider == lost and not record.is_committed:
            changes = {(name, store.table(name).schema.generation): rows for name, rows in record.changes.items()}
            own = PartCopy(shard, incarnation, record.order, copied(changes))
            found.append(KeptTransaction(id, shard, lost, (own,), is_prepared=True))
    return found


def copies_directory(decided: int, lost: int) -> str:
    """Relative to the archive's root: where the others leave theirs for the rebuild that was decided in an epoch."""
    return f"copies/{decided:012}-{lost}"


def copies_file(decided: int, lost: int, shard: int) -> str:
    return f"{copies_directory(decided, lost)}/{shard}.json"


def kept_to_json(kept: Iterable[KeptTransaction]) -> bytes:
    def told(copy: PartCopy) -> list[Any]:
        behind = [(id, order, changes.decode()) for id, order, changes in copy.behind]
        return [copy.shard, copy.incarnation, copy.order, copy.changes.decode(), behind, copy.is_left_out]

    parts = [[each.id, each.shard, each.decider, list(map(told, each.copies)), each.is_prepared] for each in kept]
    return json.dumps(sealed({"transactions": parts})).encode()


def _copy_of(told: list[Any]) -> PartCopy:
    shard, incarnation, order, changes, behind, is_left_out = told
    others = tuple([(id, at, rows.encode()) for id, at, rows in behind])
    return PartCopy(shard, incarnation, order, changes.encode(), others, is_left_out)


def kept_from_json(data: bytes | None, file: str) -> list[KeptTransaction]:
    """Raises ArchiveError: it is missing or damaged."""
    try:
        if data is None:
            raise ValueError("it is missing")
        return [
            KeptTransaction(id, shard, decider, tuple(map(_copy_of, copies)), is_prepared)
            for id, shard, decider, copies, is_prepared in opened(json.loads(data))["transactions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(
            f'what another shard has kept, "{file}", cannot be read: {error!r}', hint="it is written again"
        ) from error


@dataclass(slots=True)
class Redone:
    transactions: int = 0
    displaced: int = 0
    """Rows that were in the way."""
    halves: list[str] = field(default_factory=list)
    """Transactions that are not brought back, and stay elsewhere."""


@dataclass(slots=True)
class _Lost:
    """One transaction, by all that keep it."""

    decider: DomainIndex
    is_committed: bool = False
    shards: set[DomainIndex] = field(default_factory=set)
    copies: dict[DomainIndex, PartCopy] = field(default_factory=dict)


def redo(
    store: Store,
    shard: DomainIndex,
    shards: int,
    kept: Iterable[KeptTransaction],
    archived: Mapping[str, Collection[str]],
) -> Redone:
    """Bring back the shard's parts of what others have ``kept`` and is not settled. ``store`` has the tables as they
    are archived; ``archived`` names, by table, the transactions whose rows these have.

    :raises ArchiveError: a row does not fit its table."""
    lost: dict[str, _Lost] = {}
    behind: list[Behind] = []
    for each in kept:
        known = lost.setdefault(each.id, _Lost(each.decider))
        known.is_committed = known.is_committed or not each.is_prepared
        known.shards |= {each.shard, each.decider, *(copy.shard for copy in each.copies)} - {shard}
        known.copies |= {copy.shard: copy for copy in each.copies}
        behind += [met for copy in each.copies if copy.shard == shard for met in copy.behind]
    for id, order, changes in behind:
        if id in lost and not lost[id].is_committed:  # Else others have heard of it, and perhaps forgotten it.
            lost[id].is_committed = True
            lost[id].copies[shard] = PartCopy(shard, 0, order, changes)
    here = Redoing(store, shard, shards, archived)
    for id, transaction in sorted(lost.items(), key=lambda item: _order(item[1], shard)):
        if transaction.is_committed or any(id in ids for ids in archived.values()):
            here.bring_back(id, transaction)
    return here.done


def _order(transaction: _Lost, shard: DomainIndex) -> int:
    own = transaction.copies.get(shard)
    return own.order if own is not None else 0


class Redoing:
    """One rebuild's."""

    def __init__(self, store: Store, shard: DomainIndex, shards: int, archived: Mapping[str, Collection[str]]) -> None:
        self.done = Redone()
        self._store = store
        self._shard = shard
        self._archived = archived
        self._schemas = {schema.name: schema for schema in store.tables()}
        self._bases = {
            name: base_shard(name, schema.generation, shard, shards) for name, schema in self._schemas.items()
        }

    def bring_back(self, id: str, transaction: _Lost) -> None:
        """What is archived of it is noted only: the next manifest, too, is to name it."""
        store, own = self._store, transaction.copies.get(self._shard)
        before = {base: store.position(name) for name, base in self._bases.items()}
        after = {self._bases[name]: before[self._bases[name]] for name, ids in self._archived.items() if id in ids}
        log: list[tuple[str, int, list[Delta]]] = []
        for (name, generation), deltas in (changes_of(own.changes) if own is not None else {}).items():
            schema = self._schemas.get(name)
            if schema is None or generation != schema.generation or id in self._archived.get(name, ()):
                continue
            widened = [(Widening(schema, len(row))(row), weight) for row, weight in deltas]
            check_rows(RowTypes(schema), self._shard, [row for row, weight in widened if weight > 0])
            changed, displaced = by_key(store.table(name), widened)
            store.table(name).stage(changed)
            _pass_over(store.table(name), changed)
            self.done.displaced += displaced
            after[self._bases[name]] = store.position(name) + 1
            log.append((name, store.position(name) + 1, changed))
        self._note(id, transaction, before, after)
        store.commit(log)
        self.done.transactions += bool(log)
        if own is not None and own.is_left_out and not after:
            self.done.halves.append(id)

    def _note(self, id: str, transaction: _Lost, before: Clock, after: Clock) -> None:
        """That it is committed, and what others have to hear of it. Others may still have copies with the number of
        its part when the shard is lost again."""
        order, decides = _order(transaction, self._shard), transaction.decider == self._shard
        others = tuple(sorted(transaction.shards)) if decides else ()
        part = TransactionPart(transaction.decider, others, before, before, after, order, order)
        self._store.note_part(id, part, list(transaction.copies.values()))
        if decides:
            self._store.keep(id, TransactionRecord(self._shard, others))


def _pass_over(table: TableStore, deltas: Iterable[Delta]) -> None:
    """No AUTO_INCREMENT value of these rows is given again."""
    for at, column in enumerate(table.schema.columns):
        if column.auto_increment and not column.dropped:
            given = [value for row, weight in deltas if weight > 0 and isinstance(value := row[at], int)]
            table.raise_auto_increment(max(given, default=0))


def tables_of(kept: Iterable[KeptTransaction], shard: int) -> set[str]:
    """The tables of which a shard's parts have rows."""
    copies = [copy for each in kept for copy in each.copies if copy.shard == shard]
    changed = [each for copy in copies for each in (copy.changes, *(changes for *_, changes in copy.behind))]
    return {name for changes in changed for name, _ in changes_of(changes)}


def by_key(table: TableStore, deltas: Sequence[Delta]) -> tuple[list[Delta], int]:
    """What makes the table have what the deltas put into it and nothing of what they take away, whatever it has now;
    and how many rows were in the way."""
    schema, put = table.schema, [row for row, weight in deltas if weight > 0]
    if not schema.primary_key:
        return _of_bag(table, deltas), 0
    named = key_function(schema.primary_key, collations_of(schema.columns))
    own, gone, displaced = {named(row) for row, _ in deltas}, dict[Row, None](), 0
    for columns in (schema.primary_key, *schema.unique):
        key_of = key_function(columns, collations_of(schema.columns))
        for row in [row for row, _ in deltas] if columns == schema.primary_key else put:
            key = key_of(row)
            for stored, _ in () if None in key else table.find(columns, key):
                displaced += stored not in gone and named(stored) not in own
                gone[stored] = None
    kept = gone.keys() & set(put)
    return [*((row, -1) for row in gone if row not in kept), *((row, 1) for row in put if row not in kept)], displaced


def _of_bag(table: TableStore, deltas: Sequence[Delta]) -> list[Delta]:
    found: list[Delta] = []
    for row, weight in deltas:
        there = sum(count for stored, count in table.find((), ()) if stored == row) if weight < 0 else 0
        if weight > 0 or there:
            found.append((row, max(weight, -there)))
    return found
