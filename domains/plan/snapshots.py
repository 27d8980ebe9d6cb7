"""What is asked of a shard for a snapshot of all of them (``engine/transactions/snapshots.py``)."""

from __future__ import annotations

from dataclasses import dataclass

from domains.plan.graph import DomainIndex


@dataclass(frozen=True, slots=True)
class StandStill:
    """Commit nothing but what is decided already, until the snapshot of this name is kept or dropped. Raises Locked
    where another one is being taken."""


@dataclass(frozen=True, slots=True)
class KeepSnapshot:
    """Keep all tables as they are. It must have stood still since it was asked to: TransactionEnded."""

    at: float  # Now, in seconds since 1970, for whoever lists it.
    held: bool = False  # Until it is dropped by name.


@dataclass(frozen=True, slots=True)
class GoOn:
    """All shards have kept theirs: tell of it, and stand still no more. It must have until now: TransactionEnded."""


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Keep it no more, and do not stand still for it."""


SnapshotAct = StandStill | KeepSnapshot | GoOn | DropSnapshot
"""Of the snapshot that the transaction's id names; what is kept of it is of this process."""


@dataclass(frozen=True, slots=True)
class InSnapshot:
    """What is read is read of a snapshot."""

    snapshot: str
    domain: DomainIndex
    """Of the shard that is asked."""
