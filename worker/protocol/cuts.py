"""How one asks workers what a SELECT that no view answers reads: for its answer where that is few rows, or for a cut.

::

    api ── EvaluateRequest ──► worker      all shards that it reads are there: few rows are answered at once
        ◄── Evaluated ───────              … read between two steps
        ◄── CutTaken ────────              … else views of the shards, made between two steps, with their positions
    api ── ReadCut ──────────► worker      entries of one view, as often as it is read
        ◄── CutEntries ──────
    api ── EvaluatePart ─────► worker      what a part of the question comes to on one shard
        ◄── PartRows ────────              … some at a time, while there are more
    api ── CloseCut ─────────► worker

A cut belongs to the connection that it was asked for over, and ends with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from domains.language.types import Delta, Row, TableSchema
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock, InTransaction
from domains.plan.snapshots import InSnapshot
from worker.adhoc.answer import Question
from worker.rocks.stored_table import ViewedTable


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """Answer a question if that reads few rows, or else keep views of the shards. → ``Evaluated``, or ``CutTaken``

    Without a question views are kept. Either is answered when what it shows is durable. NotHere where not all of the
    domains are here, or a table is another.
    """

    domains: tuple[DomainIndex, ...]
    shards: tuple[tuple[TableSchema, ...], ...]
    """The tables that are read of each domain."""
    question: Question | None = None
    within: tuple[InTransaction | InSnapshot, ...] = ()
    """The transaction that asks, as each domain hears it, or the snapshot that is read; () where it is neither."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    rows: tuple[Row, ...]
    """JSON-ready."""
    clock: Clock


@dataclass(frozen=True, slots=True)
class CutTaken:
    number: int
    shards: tuple[tuple[ViewedTable, ...], ...]
    """The tables of each domain, in the order in which they were asked for."""
    clock: Clock
    """Exactly what the views show, of each base shard."""
    changes: tuple[tuple[str, tuple[Delta, ...]], ...] = ()
    """What the transaction that asks has staged, by table."""


@dataclass(frozen=True, slots=True)
class ReadCut:
    """Entries of some ranges of keys of one view, at most ``most`` of each. → ``CutEntries``

    NotHere where the cut was closed, or the shard was: begin again.
    """

    number: int
    shard: int
    """Its place in the cut."""
    ranges: tuple[tuple[bytes, bytes], ...]
    most: int


@dataclass(frozen=True, slots=True)
class CutEntries:
    """See :class:`worker.rocks.iterating.FoundEntries`."""

    found: tuple[tuple[tuple[bytes, bytes], ...], ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class MisreadCut:
    """What was read of a view is no row. → StorageFailure, which the worker shows as an alarm from then on"""

    number: int
    shard: int
    what: str


@dataclass(frozen=True, slots=True)
class EvaluatePart:
    """What a part of a question comes to over one view (``worker/adhoc/pushing.py``). → ``PartRows``"""

    number: int
    shard: int
    part: Question


@dataclass(frozen=True, slots=True)
class ContinuePart:
    """The next rows of it. → ``PartRows``"""

    number: int
    shard: int
    stream: int


@dataclass(frozen=True, slots=True)
class PartRows:
    deltas: tuple[Delta, ...]
    stream: int
    """Its number for ``ContinuePart``; 0: there are no more."""


@dataclass(frozen=True, slots=True)
class CloseCut:
    """It is read no more; a notice."""

    number: int


@dataclass(frozen=True, slots=True)
class TakeReadSnapshot:
    """Have the plain reads of a transaction be of now in these shards. → ``ReadSnapshotTaken``"""

    within: tuple[InTransaction, ...]
    decided: tuple[str, ...]
    """Transactions that shards elsewhere have committed: what is prepared of them here counts as done."""


@dataclass(frozen=True, slots=True)
class ReadSnapshotTaken:
    unchanged: bool
    """Whether they were already: nothing was committed or prepared since the last one."""
    decided: tuple[str, ...]
    """Transactions that these shards have committed, and others perhaps not yet."""


@dataclass(frozen=True, slots=True)
class TakeLocks:
    """Take the locks of what parts of a read look up in a shard. → ``Done``; ``HeldByLocks``: others have some"""

    within: InTransaction
    parts: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class WaitsRequest:
    """Who waits for locks in a base shard. → ``KnownWaits``"""

    domain: DomainIndex


@dataclass(frozen=True, slots=True)
class KnownWait:
    """One transaction waits for another."""

    id: str
    holder: str
    number: int
    """Of the wait: no other of this incarnation of the shard has it."""
    incarnation: int


@dataclass(frozen=True, slots=True)
class KnownWaits:
    waits: tuple[KnownWait, ...]


OfTransactions = TakeReadSnapshot | TakeLocks | WaitsRequest
CutRead = ReadCut | MisreadCut | EvaluatePart | ContinuePart
