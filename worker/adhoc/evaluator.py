"""The process beside that evaluates: over entries that it asks its parent for.

It has no database of its own. RocksDB's secondary instance would be one, but shows deleted rows after a compaction of
the primary (rocksdict 0.3.29: 1,000 of 1,000 keys of which 500 were deleted, flushed and compacted).

::

    parent ── Ask ──► evaluator                  messages are pickled, over a pair of sockets that only the two have
    parent ◄── EntriesRead ── evaluator                 a walk of the entries of one shard's view
    parent ── entries ──► evaluator              … as often as it reads
    parent ◄── Rows, … AnswerEnd or Failure ──   JSON-ready rows, some at a time

Where the shards are elsewhere, it asks its parent also for what parts of the question come to there (``BeginPart``). An
evaluator beside the shards makes these: a stream for each, which goes on when it is told to (``StepPart``).
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from domains.engine.evaluation import Slices
from domains.engine.transactions.staged import ChangedTables
from domains.errors import HeadraceError, StorageFailure
from domains.language.types import Delta
from domains.plan.graph import NodeIndex
from domains.store.storage import TableRows
from worker.adhoc.answer import Question, Rows, answered, part_of
from worker.adhoc.shard_view import Piece, ViewedTables
from worker.rocks.iterating import ENTRIES, ENTRY_BYTES, FoundEntries, KeyRange
from worker.rocks.stored_table import ViewedTable
from worker.service.system import give_back_early, give_back_now

STEP_SECONDS = 1.0
"""Seconds after which whoever waits for rows that pass hears at least that the work goes on."""

MESSAGE_BYTES = 4 * ENTRY_BYTES
"""Bytes of rows that are sent together; a single row may have more."""

NICENESS = 5
"""A third of what the server has where both want it. Somebody waits for the answer, so it is not the 19 of a bulk job;
see ``migrations/backfill/spark/launching.py`` for the two ways to say it."""


@dataclass(frozen=True, slots=True)
class Ask:
    question: Question
    shards: tuple[tuple[ViewedTable, ...], ...]
    """The tables of each base shard."""
    elsewhere: dict[NodeIndex, tuple[int, ...]]
    """Nodes whose rows are made where the shards are, and by which of them."""
    changes: Mapping[str, Sequence[Delta]]
    """Of tables, which count as done."""


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """Entries of the view of one shard. → ``FoundEntries``"""

    shard: int
    ranges: tuple[KeyRange, ...]
    most: int
    """The most entries of each range."""


@dataclass(frozen=True, slots=True)
class Misread:
    """What was read of one shard is no row. → ``StorageFailure``"""

    shard: int
    what: str


@dataclass(frozen=True, slots=True)
class Failure:
    error: HeadraceError | str
    """A text: a bug, or no memory."""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    pass


@dataclass(frozen=True, slots=True)
class BeginPart:
    """A question to the parent: what a node's part comes to on one shard. → ``Piece``"""

    shard: int
    node: NodeIndex


@dataclass(frozen=True, slots=True)
class NextPiece:
    shard: int
    stream: int


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A command to the evaluator: begin a stream of what a part comes to on the shard of this view. No answer"""

    stream: int
    part: Question
    shard: int
    tables: tuple[ViewedTable, ...]


@dataclass(frozen=True, slots=True)
class StepPart:
    """Some of it. → ``Stepped``, or ``Failure``, after which there is no such stream"""

    stream: int


@dataclass(frozen=True, slots=True)
class Forget:
    """All streams. No answer"""


@dataclass(frozen=True, slots=True)
class Stepped:
    deltas: list[Delta] | None
    """None: there are no more."""


class AskedShard:
    """The view of one shard that the parent has: each call is one of the parent."""

    def __init__(self, parent: Connection, shard: int) -> None:
        self._parent = parent
        self._shard = shard

    def ranges(self, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
        found = self._asked(EntriesRead(self._shard, tuple(ranges), most))
        assert isinstance(found, FoundEntries)
        return found

    def misread(self, what: str) -> StorageFailure:
        failure = self._asked(Misread(self._shard, what))
        assert isinstance(failure, StorageFailure)
        return failure

    def part(self, node: NodeIndex) -> Iterator[list[Delta]]:
        message: BeginPart | NextPiece = BeginPart(self._shard, node)
        while True:
            piece = self._asked(message)
            assert isinstance(piece, Piece)
            yield list(piece.deltas)
            if not piece.stream:
                return
            message = NextPiece(self._shard, piece.stream)

    def _asked(self, message: FromEvaluator) -> Any:
        self._parent.send(message)
        found = self._parent.recv()
        if isinstance(found, Failure):
            assert isinstance(found.error, HeadraceError)
            raise found.error
        return found


FromEvaluator = EntriesRead | Misread | BeginPart | NextPiece


def serve(parent: Connection) -> None:
    """Do what is asked until the parent goes."""
    streams: dict[int, Iterator[list[Delta]]] = {}
    while True:
        try:
            message = parent.recv()
            try:
                match message:
                    case Ask():
                        _answer(parent, message)
                        gc.collect()
                        give_back_now()
                    case OpenPart(stream=stream, part=part, shard=shard, tables=tables):
                        streams[stream] = part_of(part, ViewedTables([(AskedShard(parent, shard), tables)]))
                    case StepPart(stream=stream):
                        parent.send(Stepped(_some(streams[stream])))
                    case Forget():
                        streams.clear()
                        gc.collect()
            except HeadraceError as error:
                parent.send(Failure(error))
            except (EOFError, OSError):
                return
            except Exception as error:
                parent.send(Failure(f"{type(error).__name__}: {error}"))
        except (EOFError, OSError):
            return


def _answer(parent: Connection, ask: Ask) -> None:
    shards = [AskedShard(parent, number) for number in range(len(ask.shards))]
    tables: TableRows = ViewedTables(list(zip(shards, ask.shards, strict=True)))
    if ask.changes:
        tables = ChangedTables(tables, ask.changes)

    def rows(node: NodeIndex, numbers: Sequence[int]) -> Slices:
        return lambda: chain.from_iterable(shards[number].part(node) for number in numbers)

    elsewhere = {node: rows(node, numbers) for node, numbers in ask.elsewhere.items()}
    for some in answered(ask.question, tables, elsewhere=elsewhere):
        _send(parent, some)
    parent.send(AnswerEnd())


def _some(parts: Iterator[list[Delta]]) -> list[Delta] | None:
    """The next rows: as many as are worth a message, or those of a second."""
    found: list[Delta] = []
    until = monotonic() + STEP_SECONDS
    for part in parts:
        found += part
        if len(found) >= ENTRIES or monotonic() > until:
            return found
    return found or None


def _send(parent: Connection, rows: Rows) -> None:
    """In messages of a size that the parent, which counts them, can hold above its limit."""
    at, count = 0, ENTRIES
    while at < len(rows):
        data = pickle.dumps(rows[at : at + count], pickle.HIGHEST_PROTOCOL)
        if len(data) > MESSAGE_BYTES and count > 1:
            count = max(1, min(count, len(rows) - at) * MESSAGE_BYTES // len(data) // 2)
            continue
        parent.send_bytes(data)
        at += count


def main() -> None:
    os.nice(NICENESS)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS), "ascii")
    give_back_early()
    gc.freeze()
    serve(Connection(int(sys.argv[1])))
