"""Cuts that have each transaction over several shards wholly, or nothing of it. Pure values.

A cut is of one moment in one process, and of a moment of each worker in a cluster. So it may have a transaction's part
in one shard while another shard has it prepared only; and workers that were cut sooner may not have it at all::

    shard 0   ──prepared────committed──┊──      in the cut
    shard 1   ────prepared─────────────┊──      what it changes is added to the rows: nobody has changed since what it
                                                has looked up, and nobody may until it is committed
    shard 2   ──┊──prepared──committed──        not prepared at the cut: shards 0 and 1 go back to before their commits

**The invariant**: positions are *closed* where each transaction that is committed at them in one of its shards, be it
one that it has only read, is prepared or committed at them in all. Then adding what is prepared makes it whole, and
leaving out what is prepared and nowhere committed makes all others nothing. What depends on a transaction is committed
behind it, in each shard where it does: so what the positions have is what serial transactions come to. (Of two that
have nothing in common and are in other shards a cut may have the later one alone, as of plain writes: who has only read
both has left nothing that says which was first.)

Two things follow from the order of a commit, in which all shards prepare before the first commits. What all shards have
at one moment is closed. And of two closed positions the later ones of each shard are closed too, so that there are
greatest ones below those of a cut (:func:`whole`). They are not below what all shards had when the cut was asked for:
**every write that was answered before is in it.** (K. Chandy and L. Lamport, *Distributed Snapshots*, 1985, where a
message, here "prepared", may not be received before it is sent.)

Each shard keeps its *part* of a transaction until a cut was recorded that has all of them. A shard that does not know,
once another has committed, has lost its part with its disk: it is waited for no longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from domains.language.json_rows import schema_from_json, schema_to_json, value_from_json, value_to_json
from domains.language.types import Delta, TableSchema
from domains.plan.packets import Clock
from domains.store.storage import Store, TransactionPart, TransactionRecord


@dataclass(frozen=True, slots=True)
class PreparedChanges:
    """What a transaction is to change in one base shard."""

    schema: TableSchema
    deltas: tuple[Delta, ...]


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """What a shard tells of one transaction at a cut, or soon after it."""

    id: str
    shard: int
    decider: int
    others: tuple[int, ...]
    """Of the decider: the shards that were prepared."""
    prepared: Clock
    """The positions of the shard's tables when it was prepared: from then on nobody has changed what it looked up."""
    before: Clock = field(default_factory=dict)
    """The same before it was committed."""
    committed: Clock | None = None
    """The positions of its writes; None: it is prepared only."""
    changes: Mapping[str, PreparedChanges] = field(default_factory=dict)
    """By base shard, where it was prepared at the cut."""
    prepared_order: int = 0
    order: int = 0
    """Numbers of both among what was prepared and committed in the shard, where several have the same positions."""

    def stands(self, positions: Clock, end: float) -> bool:
        """Whether the positions are of after its commit. They are of before the shard's number ``end``."""
        is_before = self.committed is None or self.order >= end
        return not is_before and any(positions[base] > at for base, at in self.before.items() if base in positions)

    def is_whole(self, positions: Clock) -> bool:
        """Whether they have all of its writes."""
        return self.committed is not None and all(
            positions[base] >= at for base, at in self.committed.items() if base in positions
        )

    def is_prepared(self, positions: Clock, end: float) -> bool:
        return self.prepared_order < end and all(
            positions[base] >= at for base, at in self.prepared.items() if base in positions
        )


def parts_told(
    shard: int,
    last: int,
    prepared: Mapping[str, TransactionRecord],
    committed: Mapping[str, TransactionPart],
    schemas: Mapping[str, tuple[str, TableSchema]],
) -> list[dict[str, Any]]:
    """What a shard has of transactions at a cut, JSON-ready: what was ``prepared`` then, and what it has ``committed``,
    perhaps since; ``last`` was the last number then. ``schemas``: the base and the schema of each of its tables."""
    told: list[dict[str, Any]] = []
    for id, part in committed.items():
        if part.prepared_order > last:
            continue  # It has come since, as a whole: what it changes is not in this archiving.
        known = {"id": id, "shard": shard, "decider": part.decider, "others": list(part.others)}
        clocks = {"prepared": part.prepared, "before": part.before, "committed": part.committed}
        known |= {name: dict(clock) for name, clock in clocks.items()}
        told.append(known | {"prepared_order": part.prepared_order, "order": part.order})
    for id, record in prepared.items():
        changes = {
            schemas[table][0]: {
                "schema": schema_to_json(schemas[table][1]),
                "deltas": [[[value_to_json(value) for value in row], weight] for row, weight in deltas],
            }
            for table, deltas in record.changes.items()
            if table in schemas
        }
        known = {"id": id, "shard": shard, "decider": record.decider, "others": [], "prepared": dict(record.at)}
        told.append(known | {"changes": changes, "prepared_order": record.order})
    return told


def known_parts(store: Store) -> set[str]:
    """The transactions that a shard has prepared, or has committed and not been told that they are settled."""
    prepared = {id for id, record in store.records().items() if not record.is_committed}
    return prepared | store.parts().keys()


def part_of(document: Mapping[str, Any]) -> ArchivedPart:
    """Raises KeyError, TypeError, ValueError: it is none."""
    changes = {
        base: PreparedChanges(
            schema_from_json(each["schema"]),
            tuple((tuple(map(value_from_json, row)), weight) for row, weight in each["deltas"]),
        )
        for base, each in document.get("changes", {}).items()
    }
    return ArchivedPart(
        document["id"],
        document["shard"],
        document["decider"],
        tuple(document["others"]),
        document["prepared"],
        document.get("before", {}),
        document.get("committed"),
        changes,
        document["prepared_order"],
        document.get("order", 0),
    )


PartPlace = tuple[str, int]
"""A transaction, and a shard that has, or had, a part of it."""


@dataclass(frozen=True, slots=True)
class WholeCut:
    positions: Clock
    """The greatest closed ones."""
    lacking: tuple[ArchivedPart, ...] = ()
    """Parts of transactions that are committed at them, and are themselves only prepared: to be added."""
    settled: tuple[str, ...] = ()
    """The transactions that they have wholly: nobody need tell of them again."""


def by_transaction(told: Iterable[ArchivedPart]) -> dict[str, dict[int, ArchivedPart]]:
    """By id and shard; what is told twice of a part, prepared at the cut and committed soon after, as one."""
    found: dict[str, dict[int, ArchivedPart]] = {}
    for part in told:
        parts = found.setdefault(part.id, {})
        known = parts.get(part.shard)
        if known is not None and known.committed is None:
            part = replace(part, changes=known.changes)
        elif known is not None and part.committed is None:
            part = replace(known, changes=part.changes)
        parts[part.shard] = part
    return found


def missing_parts(told: Iterable[ArchivedPart]) -> set[PartPlace]:
    """Parts of committed transactions of which their shards did not tell: these were cut before they had them, or have
    lost them."""
    found: set[PartPlace] = set()
    for id, parts in by_transaction(told).items():
        if any(part.committed is not None for part in parts.values()):
            found |= {(id, shard) for shard in _shards_of(parts) if shard not in parts}
    return found


def whole(positions: Clock, told: Iterable[ArchivedPart], lost: Collection[PartPlace] = ()) -> WholeCut:
    """The closed positions of a cut. ``lost``: parts that are not there any more, and are waited for no longer."""
    transactions = by_transaction(told)
    gone: dict[str, set[int]] = {}
    for id, shard in lost:
        gone.setdefault(id, set()).add(shard)
    shards = {id: _shards_of(parts) - gone.get(id, set()) for id, parts in transactions.items()}
    at, ends, moves = dict(positions), defaultdict[int, float](lambda: inf), True
    while moves:
        moves = False
        for id, parts in transactions.items():
            here = [part for part in parts.values() if part.stands(at, ends[part.shard])]
            if here and not _is_closed(shards[id], parts, at, ends):
                for part in here:
                    ends[part.shard] = min(ends[part.shard], part.order)
                    for base, position in part.before.items():
                        at[base] = min(at.get(base, position), position)
                moves = True
    at = {base: at[base] for base in positions}
    lacking: list[ArchivedPart] = []
    settled: list[str] = []
    for id, parts in transactions.items():
        if any(part.stands(at, ends[part.shard]) for part in parts.values()):
            lacking += [part for part in parts.values() if not part.is_whole(at)]
        if {shard for shard, part in parts.items() if part.is_whole(at)} >= shards[id]:
            settled.append(id)
    return WholeCut(at, tuple(lacking), tuple(settled))


def _shards_of(parts: Mapping[int, ArchivedPart]) -> set[int]:
    return {shard for part in parts.values() for shard in (part.shard, part.decider, *part.others)}


def _is_closed(
    shards: Collection[int], parts: Mapping[int, ArchivedPart], at: Clock, ends: Mapping[int, float]
) -> bool:
    """Whether it is whole in all of its shards at which it stands, and prepared in all others."""
    for shard in shards:
        part, end = parts.get(shard), ends[shard]
        if part is None or not (part.is_whole(at) if part.stands(at, end) else part.is_prepared(at, end)):
            return False
    return True
