"""A bulk job as a value: what is read, what is computed in which order, what came of it. Plain and picklable.

::

    Job ── tables: each base shard that is read, with its manifest and the position P at which it is folded
     └──── stages, one after another; the tasks of a stage know nothing of each other
            └─ Task: one physical domain in one stage
                 tables  the base shards that it reads, in the order in which they are to be fed
                 inputs  the links that feed its ingresses, all of earlier stages
                 full    the vertices whose states come out
                 outputs the links whose rows come out, for tasks of later stages

A domain is in a later stage again where what it sends comes back to it (a → b → a): it then computes all that it needs
anew, and only what it had not given before comes out. So no task ever waits for another one.

Rows between tasks and states in files are *blocks* (``domains/archive/rows.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import BinaryIO

from domains.archive.manifest import ShardManifest
from domains.errors import StorageFailure
from domains.language.types import TableSchema
from domains.plan.commands import Route
from domains.plan.graph import Columns, DomainIndex, Node, NodeIndex
from domains.plan.packets import LinkId, receiver_of

# How a state lies in a file: blocks one after another, each behind its length, so that a loader reads one at a time.
#
# ::
#
#     4 bytes, big-endian: n │ n bytes: a block │ 4 bytes … │ …
#
# A file's digest is in the job's results and not in the file, so a file that was cut or replaced is known for what it
# is.

_LENGTH = struct.Struct(">I")
DIGEST_BYTES = 32


class StateDamaged(StorageFailure):
    """A staged file is not what the job wrote. The migration may be begun again."""

    code = "state_damaged"


class Digest:
    """The digest of a file, made while it is written."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self.bytes = 0

    def add(self, data: bytes) -> bytes:
        self._hash.update(data)
        self.bytes += len(data)
        return data

    def hex(self) -> str:
        return self._hash.hexdigest()


def frame(block: bytes) -> bytes:
    return _LENGTH.pack(len(block)) + block


def read_frames(file: BinaryIO, name: str, digest: str) -> Iterator[bytes]:
    """The blocks of a file in their order. Its digest is known, and checked, after the last one.

    :raises StateDamaged: the file is cut, or is another than the digest's.
    """
    found = Digest()
    while head := file.read(_LENGTH.size):
        length = _LENGTH.unpack(found.add(head))[0] if len(head) == _LENGTH.size else -1
        block = file.read(length) if length >= 0 else b""
        if len(block) != length:
            raise StateDamaged(f'the staged file "{name}" is cut', hint="begin the migration again")
        yield found.add(block)
    if found.hex() != digest:
        raise StateDamaged(f'the staged file "{name}" is not the one that was written', hint="begin again")


@dataclass(frozen=True, slots=True)
class TableShard:
    """A base shard as of a position. Its rows are the fold of ``manifest.fold_of(position)``, each in the width of
    ``schema``: what was archived under an older schema is padded."""

    base: str
    """The name in clocks: ``votes``, or ``votes@2`` where there are several shards."""
    schema: TableSchema
    position: int
    manifest: ShardManifest | None = None
    """None where the rows are not in an archive (a test that has them at hand)."""
    rows: int = 0
    """About how many, for the order of feeding and for showing progress."""


@dataclass(frozen=True, slots=True)
class TaskTable:
    base: str
    schema: TableSchema
    kept: bool
    """The rows are looked up while others are fed, so the task keeps them in memory. Else they only pass through."""
    columns: Columns
    """Stored positions, ascending: what the task reads of it (``stages.py``). All others are to be None in what it is
    fed, so that rows which differ in those alone are one row."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The rows for one ingress over one link."""

    link: LinkId
    ingress: NodeIndex

    @property
    def receiver(self) -> DomainIndex:
        return receiver_of(self.link)


@dataclass(frozen=True, slots=True)
class StageSink:
    """The place where rows leave a task: an egress or a reader over ``parent``."""

    node: NodeIndex
    parent: NodeIndex
    routes: tuple[Route, ...] = ()
    """The routes of an egress."""
    from_state: bool = False
    """``parent`` has full state in the task: the rows are read from it at the end, and the sink needs no vertex."""
    grows: bool = False
    """Nothing is ever retracted on the way to it: rows may leave as they come."""


@dataclass(frozen=True, slots=True)
class Task:
    """One physical domain in one stage. ``nodes`` are in topological order."""

    stage: int
    domain: DomainIndex
    shard: int
    shards: int
    nodes: tuple[Node, ...]
    incoming: tuple[Route, ...]
    tables: tuple[TaskTable, ...]
    inputs: tuple[Flow, ...]
    full: tuple[NodeIndex, ...]
    """Vertices whose own indexes come out (readers are among ``sinks``)."""
    sinks: tuple[StageSink, ...]
    outputs: tuple[Flow, ...]

    @property
    def name(self) -> str:
        return f"stage {self.stage}, domain {self.domain}"


@dataclass(frozen=True, slots=True)
class JobStage:
    number: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class BulkJob:
    """``archive`` and ``staging`` are URLs, or paths of directories; ``id`` is the migration's."""

    id: str
    archive: str
    staging: str
    tables: tuple[TableShard, ...]
    stages: tuple[JobStage, ...]

    @property
    def rows(self) -> int:
        """Base rows to be read, about; a base shard that several tasks read counts once for each."""
        rows = {table.base: table.rows for table in self.tables}
        return sum(rows[t.base] for stage in self.stages for task in stage.tasks for t in task.tables)

    def table(self, base: str) -> TableShard:
        return next(table for table in self.tables if table.base == base)


@dataclass(frozen=True, slots=True)
class Folding:
    """Base shards that are to be folded and sorted into *runs*, which is all of a job that rebuilds them."""

    archive: str
    out: str
    """The URL below which the runs are to lie, as an archive of their own."""
    shards: tuple[tuple[str, int, int], ...]
    """Table, number of the shard, and the position as of which it is folded."""
    rows: int
    """Rows that are to be read, about."""


# --- what comes out -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateFile:
    """The state of one full vertex in one physical domain: frames of blocks of items (``frames.py``)."""

    domain: DomainIndex
    node: NodeIndex
    file: str
    """Relative to the job's staging directory, with ``/`` between its parts."""
    items: int
    bytes: int
    digest: str
    """blake2b of the file, hexadecimal: ``frames.Digest``."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is. Counts only grow."""

    rows: int = 0
    """Base rows fed so far, and half of those that were read and are not fed yet."""
    total: int = 0
    """The rows to be fed, about."""
    stages_done: int = 0
    stages: int = 0
    tasks_done: int = 0
    tasks: int = 0
    """Tasks of the stage that is under way, as far as they are known: Spark's, of which most make its rows ready."""
    seconds_left: float | None = None
    """None while nobody can tell."""
    ui: str | None = None
    """The address that shows more (Spark's own pages)."""
