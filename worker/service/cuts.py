"""Views of base shards that api processes read, for SELECTs that no view answers: made between two steps, with the
positions that they show, and let go in time.

A cut keeps files of RocksDB from being removed, so a worker has few of them. One that nobody has read for some seconds
is closed, and so are those of a connection that has ended. All methods are for the event loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass

from domains.engine.evaluation import RowsExceeded
from domains.errors import BadRequest, HeadraceError, Overloaded, StorageFailure, Unavailable
from domains.language.types import Delta
from worker.adhoc.answer import Question, part_of
from worker.adhoc.cut import FEW_ROWS, EvaluationCut, answered_here, cut
from worker.adhoc.pool import Evaluator, EvaluatorPool, watched
from worker.adhoc.shard_view import ShardView, ViewedTables
from worker.dataflow.batch import Batch
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.inbox import Stopping
from worker.dataflow.thread import DataflowThread
from worker.protocol.cuts import (
    ContinuePart,
    CutEntries,
    CutRead,
    CutTaken,
    Evaluated,
    EvaluatePart,
    EvaluateRequest,
    MisreadCut,
    PartRows,
    ReadCut,
)
from worker.protocol.messages import NotHere
from worker.rocks.iterating import ENTRIES, ENTRY_BYTES
from worker.wire.connection import Connection

CUTS_MAX = 64
"""The most cuts at once. Each keeps the files and the memory tables that it stands on; whoever comes after is told to
come later."""

BESIDE = 8
"""Processes that evaluate parts, at once. An api process has two queries under way, and each takes one here."""

HELD_BYTES = 1_000_000_000
"""The bytes that such a process may hold, unless settings say otherwise."""

PATIENCE = 30.0
"""Seconds between two reads, after which nobody is there any more: as long as a statement may take."""


class CutParts:
    """What parts of questions come to over one cut: at once where that is few rows, or else in a process beside."""

    def __init__(self, cut: EvaluationCut, pool: EvaluatorPool, held_bytes: int) -> None:
        self._cut = cut
        self._held_bytes = held_bytes
        self._pool = pool
        self._evaluator: Evaluator | None = None
        self._turn = asyncio.Lock()
        self._left: dict[int, deque[tuple[Delta, ...]]] = {}
        """What was made and not fetched, by stream."""
        self._closed = False

    async def begin(self, shard: int, part: Question) -> PartRows:
        view = self._cut.views[shard]
        few = _few(view, part)
        if few is not None:
            return PartRows(few, 0)
        async with self._turn:
            if self._evaluator is None:
                self._evaluator = await self._pool.take(limit=BESIDE)
            stream = len(self._left) + 1
            self._evaluator.open_part(stream, part, shard, view.tables)
            self._left[stream] = deque()
        return await self.next(stream)

    async def next(self, stream: int) -> PartRows:
        async with self._turn:
            left = self._left.get(stream)
            if left is None or self._closed:
                raise BadRequest("there is no such part")
            if not left:
                deltas, size = await self._step(stream)
                if deltas is None:
                    return PartRows((), 0)
                pieces = 1 + size // ENTRY_BYTES
                step = max(1, -(-len(deltas) // pieces))
                left.extend(tuple(deltas[at : at + step]) for at in range(0, max(1, len(deltas)), step))
            return PartRows(left.popleft(), stream)

    async def _step(self, stream: int) -> tuple[list[Delta] | None, int]:
        evaluator = self._evaluator
        assert evaluator is not None, "a stream has one"
        try:
            return await watched(evaluator, lambda: evaluator.step(stream, self._cut), self._cut, self._held_bytes)
        finally:
            if self._closed or evaluator.ended:
                self._evaluator = None
                await self._pool.give_back(evaluator, good=False)

    def close(self) -> None:
        self._closed = True
        if self._turn.locked():
            if self._evaluator is not None:
                self._evaluator.stop(Unavailable("the cut was closed meanwhile"))
        elif self._evaluator is not None:
            self._evaluator.forget()
            self._pool.put_back(self._evaluator)
            self._evaluator = None


def _few(view: ShardView, part: Question) -> tuple[Delta, ...] | None:
    """The rows of a small part, worked out on the event loop in some milliseconds at most."""
    try:
        found = part_of(part, ViewedTables([(view, view.tables)]), most=FEW_ROWS)
        return tuple(delta for some in found for delta in some)
    except RowsExceeded:
        return None
    except HeadraceError:
        raise
    except Exception as error:
        raise Unavailable(f"the query cannot be evaluated: {type(error).__name__}: {error}") from error


@dataclass(slots=True)
class _Held:
    cut: EvaluationCut
    parts: CutParts
    connection: Connection
    timer: asyncio.TimerHandle


class HeldCuts:
    def __init__(self, dataflow: DataflowThread, held_bytes: int) -> None:
        self._dataflow = dataflow
        self._held_bytes = held_bytes
        self._held: dict[int, _Held] = {}
        self._taking = 0
        self._last = time.time_ns()
        # So no two processes give the same number: one that is read of another than gave it, is not there.
        self._beside = EvaluatorPool()
        self._heard: set[Connection] = set()
        """Connections whose end closes their cuts."""

    async def evaluate(self, connection: Connection, asked: EvaluateRequest) -> Evaluated | CutTaken:
        """Both are of one moment: what is too much to be answered between two steps is kept between the same."""
        if len(self._held) + self._taking >= CUTS_MAX:
            raise Overloaded(f"{CUTS_MAX} cuts of base tables are read already", hint="try again later")
        if len(asked.domains) != len(asked.shards):
            raise BadRequest("a cut is of as many domains as it names tables of")

        def act(hosted: DomainHost, _: Batch) -> EvaluationCut | Evaluated:
            if asked.question is not None:
                try:
                    rows, clock = answered_here(hosted, asked.domains, asked.question, asked.within)
                    return Evaluated(tuple(rows), clock)
                except RowsExceeded:
                    pass  # These are not few rows.
            return cut(hosted, asked.domains, asked.shards, asked.within)

        self._taking += 1
        try:
            taken = await asyncio.wrap_future(self._dataflow.control(act))
        except Stopping as error:
            raise NotHere(error.message, epoch=self._dataflow.hosted.epoch) from error
        finally:
            self._taking -= 1
        if isinstance(taken, Evaluated):
            return taken
        assert isinstance(taken, EvaluationCut)
        return self._keep(connection, taken)

    def _keep(self, connection: Connection, taken: EvaluationCut) -> CutTaken:
        self._last += 1
        number = self._last
        parts = CutParts(taken, self._beside, self._held_bytes)
        self._held[number] = _Held(taken, parts, connection, self._closing(number))
        if not connection.is_open():
            self.close(number)
        elif connection not in self._heard:
            self._heard.add(connection)
            connection.on_lost.append(self._lost)
        changes = tuple((table, tuple(deltas)) for table, deltas in taken.changes.items())
        return CutTaken(number, tuple(view.tables for view in taken.views), taken.clock, changes)

    def _closing(self, number: int) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(PATIENCE, self.close, number)

    def _lost(self, connection: Connection) -> None:
        self._heard.discard(connection)
        for number in [number for number, held in self._held.items() if held.connection is connection]:
            self.close(number)

    def read(self, asked: CutRead) -> CutEntries | Awaitable[PartRows]:
        view = self._view(asked.number, asked.shard)
        try:
            match asked:
                case ReadCut(ranges=ranges, most=most):
                    if len(ranges) > ENTRIES or most < 1:
                        raise BadRequest(f"at most {ENTRIES} ranges of a cut are read at once, and something of each")
                    found = view.ranges(ranges, most)
                    return CutEntries(found.found, found.cut)
                case MisreadCut(what=what):
                    raise view.misread(what)
                case EvaluatePart() | ContinuePart():
                    return self._part(self._held[asked.number], view, asked)
        except StorageFailure as error:
            raise (self._gone() if view.is_closed else error) from error

    async def _part(self, held: _Held, view: ShardView, asked: EvaluatePart | ContinuePart) -> PartRows:
        held.timer.cancel()  # It may take as long as the statement has, and whoever asked waits for it.
        try:
            if isinstance(asked, EvaluatePart):
                return await held.parts.begin(asked.shard, asked.part)
            return await held.parts.next(asked.stream)
        except HeadraceError as error:
            raise (self._gone() if view.is_closed else error) from error
        finally:
            if asked.number in self._held:
                held.timer.cancel()
                held.timer = self._closing(asked.number)

    def _view(self, number: int, shard: int) -> ShardView:
        held = self._held.get(number)
        if held is None:
            raise self._gone()
        if not 0 <= shard < len(held.cut.views):
            raise BadRequest(f"the cut has {len(held.cut.views)} shards, and no number {shard}")
        held.timer.cancel()
        held.timer = self._closing(number)
        view = held.cut.views[shard]
        if view.is_closed:
            raise self._gone()
        return view

    def _gone(self) -> HeadraceError:
        return NotHere("the cut was closed meanwhile", hint="begin again", epoch=self._dataflow.hosted.epoch)

    def close(self, number: int) -> None:
        held = self._held.pop(number, None)
        if held is not None:
            held.timer.cancel()
            held.parts.close()
            held.cut.close()
