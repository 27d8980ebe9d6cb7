"""A snapshot of all shards, as far as one shard has to do with it.

::

    StandStill ───► all shards      no shard commits anything from here on …
    KeepSnapshot ─► all shards      its tables are kept as they are, and it stands still
    GoOn ─────────► all shards      … to here: what is kept is told of

**The invariant**: *each shard stands still from its StandStill to its GoOn, all StandStills come before all
KeepSnapshots, and these before all GoOns.* So all shards are kept as they stand at one moment: whatever was done before
it is in the snapshot, and nothing that was begun after it was answered. The one thing that a shard still does meanwhile
is to commit its part of a transaction which another shard has decided; before the KeepSnapshots whoever takes it waits
until no part of such a one is left. What is not decided cannot become so, as the decider stands still too: a shard that
went on once it had kept its own would decide what another one, which had still to keep, would commit before.

A shard that has begun anew, or was told to drop it, does not stand still for the snapshot any more, refuses to go on,
and tells nobody of what it may have kept.
"""

from __future__ import annotations

from typing import assert_never

from domains.errors import AlreadyExists, Locked, TransactionEnded
from domains.plan.snapshots import DropSnapshot, GoOn, KeepSnapshot, SnapshotAct, StandStill
from domains.store.storage import SnapshotRecord, Store


class StandingStill:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.still = ""
        """The snapshot that is being taken. Until it is, nothing is committed that is not decided."""
        self._is_kept = False
        """Whether this shard has kept what is to be of it."""

    def take(self, act: SnapshotAct, name: str) -> None:
        """:raises Locked, TransactionEnded, AlreadyExists"""
        match act:
            case StandStill():
                self.check(but=name)
                if name in self._store.snapshots():
                    raise AlreadyExists(f'snapshot "{name}" exists', hint="take another name, or drop it first")
                if self.still != name:
                    self._is_still_for(name)
            case KeepSnapshot(at=at, held=held):
                if self.still != name:
                    raise _gone_on(name)
                if not self._is_kept:  # Else it was asked twice.
                    self._store.keep_snapshot(SnapshotRecord(name, at, held))
                    self._is_kept = True
            case GoOn():
                if self.still == name and self._is_kept:
                    self._store.tell_of_snapshot(name)
                    self._is_still_for("")
                elif name not in self._store.snapshots():
                    raise _gone_on(name)
            case DropSnapshot():
                self._store.drop_snapshot(name)
                if self.still == name:
                    self._is_still_for("")
            case _:
                assert_never(act)

    def _is_still_for(self, name: str) -> None:
        self.still, self._is_kept = name, False

    def check(self, *, but: str = "") -> None:
        """:raises Locked: the shard stands still, for another snapshot than ``but``."""
        if self.still not in ("", but):
            raise Locked(
                f'snapshot "{self.still}" of all shards is being taken',
                hint="try again: it is over within a second, unless a shard is away",
            )


def _gone_on(name: str) -> TransactionEnded:
    return TransactionEnded(f'the shard has gone on before snapshot "{name}" was kept', hint="try again")
