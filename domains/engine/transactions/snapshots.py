"""A snapshot of all shards, as far as one shard has to do with it.

::

    StandStill ──► all shards      no shard commits anything from here on …
    KeepSnapshot ► each shard      its tables are kept as they are
    GoOn ────────► all shards      … to here

**The invariant**: *each shard stands still from its StandStill to its GoOn; all StandStills come before all
KeepSnapshots, and all of these before all GoOns.*

So there is a moment at which all shards stand as they are kept: whatever was done before it is in the
snapshot, and nothing that was begun after it was answered. The one thing that a shard still does meanwhile is to
commit its part of a transaction which another shard has decided; before the KeepSnapshots whoever takes it waits until
no part of such a one is left. What is not decided cannot become so, as the decider stands still too, until all have
kept theirs: one that went on sooner could decide what another, which has yet to keep its tables, would do at once.

A shard that has begun anew, or was told to go on, does not stand still for the snapshot any more, and refuses to keep
it.
"""

from __future__ import annotations

from domains.errors import AlreadyExists, Locked, TransactionEnded
from domains.plan.snapshots import DropSnapshot, GoOn, KeepSnapshot, SnapshotAct, StandStill
from domains.store.storage import SnapshotRecord, Store


class StandingStill:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.still = ""
        """The snapshot that is being taken. Until it is, nothing is committed that is not decided."""

    def take(self, act: SnapshotAct, name: str) -> None:
        """:raises Locked, TransactionEnded, AlreadyExists"""
        match act:
            case StandStill():
                self.check(but=name)
                if name in self._store.snapshots():
                    raise AlreadyExists(f'snapshot "{name}" exists', hint="take another name, or drop it first")
                self.still = name
            case KeepSnapshot(at=at, held=held):
                if name in self._store.snapshots():
                    return  # It was asked twice.
                if self.still != name:
                    raise TransactionEnded(f'the shard has gone on before snapshot "{name}" was kept', hint="try again")
                self._store.keep_snapshot(SnapshotRecord(name, at, held))
            case GoOn():
                self._go_on(name)
            case DropSnapshot():
                self._store.drop_snapshot(name)
                self._go_on(name)

    def _go_on(self, name: str) -> None:
        if self.still == name:
            self.still = ""

    def check(self, *, but: str = "") -> None:
        """:raises Locked: the shard stands still, for another snapshot than ``but``."""
        if self.still not in ("", but):
            raise Locked(
                f'snapshot "{self.still}" of all shards is being taken',
                hint="try again: it is over within a second, unless a shard is away",
            )
