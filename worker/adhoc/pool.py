"""The processes beside a server that evaluate what reads many rows: begun when they are needed, and few.

Whoever exceeds a budget is stopped alone: its process is killed, whatever it is doing, and the next one takes another.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeVar

from domains.engine.evaluation import RowsExceeded
from domains.errors import HeadraceError, LimitExceeded, Overloaded, ReadTimeout, StorageFailure, Unavailable
from domains.language.types import Delta
from domains.plan.graph import NodeIndex
from worker.adhoc.answer import Question, Rows
from worker.adhoc.cut import EvaluationCut
from worker.adhoc.evaluator import (
    AnswerEnd,
    Ask,
    BeginPart,
    EntriesRead,
    Failure,
    Forget,
    FromEvaluator,
    Misread,
    NextPiece,
    OpenPart,
    StepPart,
    Stepped,
)
from worker.adhoc.shard_view import Piece, RemoteView
from worker.rocks.iterating import FoundEntries
from worker.rocks.stored_table import ViewedTable
from worker.service.system import resident_bytes

Found = TypeVar("Found")

PROCESSES = 2
"""The processes at once. More would only share the cores that are left over."""
WAITING = 64
"""Evaluations that wait for one of these. Who comes after them is told to come later."""
LOOK_SECONDS = 0.05
"""Seconds between two looks at what a process holds."""


_PROGRAM = "from worker.adhoc.evaluator import main; main()"
"""The program of a process. Not ``-m``: the classes of its messages would be those of ``__main__``."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one statement may take. Each limit is a setting."""

    seconds: float = 30.0
    rows: int = 1_000_000
    """Rows that the answer may have."""
    answer_bytes: int = 256 * 2**20
    held_bytes: int = 2**30
    """Bytes that the process may hold that evaluates it."""
    read_rows: int = 0
    """Entries of base tables that it may read in a process here, where more of them can be read elsewhere; 0: all."""

    @classmethod
    def of(cls, settings: object) -> Budget:
        """The budget that the settings name."""
        names = ("statement_timeout", "max_answer_rows", "max_answer_size", "max_evaluation_size")
        return cls(*(getattr(settings, name) for name in names))


class Evaluator:
    """One process, and the parent's end of its sockets."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._connection = Connection(ours.detach())
            command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno())]
            try:
                self._process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for the parent; and it is nice to all of it.
                )
            except OSError as error:
                self._connection.close()
                raise Unavailable(f"no process can be begun to evaluate: {error.strerror}", hint="try again") from error
        self._stopped: HeadraceError | None = None

    def ask(self, question: Question, cut: EvaluationCut, budget: Budget) -> Rows:
        """Ask on a thread of its own: serve what it reads, until the answer is whole.

        :raises LimitExceeded: it is larger than the budget. :raises RowsExceeded: it reads more rows.
        :raises Unavailable: the process ended.
        """
        tables = tuple(view.tables for view in cut.views)
        rows: Rows = []
        size = read = 0
        try:
            self._connection.send(Ask(question, tables, _elsewhere(cut), cut.changes))
            while True:
                data = self._connection.recv_bytes()
                match pickle.loads(data):
                    case EntriesRead() | Misread() | BeginPart() | NextPiece() as asked:
                        self._connection.send(found := _read(cut, asked))
                        read += _rows_of(found)
                        if read > budget.read_rows > 0:
                            raise RowsExceeded(f"the query reads more than {budget.read_rows:,} rows")
                    case AnswerEnd():
                        return rows
                    case Failure(error):
                        raise _failure(error)
                    case part:
                        rows += part
                        size += len(data)
                        if len(rows) > budget.rows or size > budget.answer_bytes:
                            raise _too_large(budget, len(rows) > budget.rows)
        except (EOFError, OSError) as error:
            raise self._ended(error) from error

    def open_part(self, stream: int, part: Question, shard: int, tables: tuple[ViewedTable, ...]) -> None:
        """What the part comes to on the shard of this view is a stream from now on."""
        try:
            self._connection.send(OpenPart(stream, part, shard, tables))
        except OSError as error:
            raise self._ended(error) from error

    def step(self, stream: int, cut: EvaluationCut) -> tuple[list[Delta] | None, int]:
        """Some rows of a stream and their size, or None. On a thread of its own."""
        try:
            self._connection.send(StepPart(stream))
            while True:
                data = self._connection.recv_bytes()
                match pickle.loads(data):
                    case EntriesRead() | Misread() as asked:
                        self._connection.send(_read(cut, asked))
                    case Stepped(deltas):
                        return deltas, len(data)
                    case Failure(error):
                        raise _failure(error)
        except (EOFError, OSError) as error:
            raise self._ended(error) from error

    def forget(self) -> None:
        """All streams."""
        with suppress(OSError):  # It ended: then it has none.
            self._connection.send(Forget())

    def _ended(self, error: Exception) -> HeadraceError:
        return self._stopped or Unavailable("the process that evaluates it ended", hint="try again")

    def held_bytes(self) -> int:
        return 0 if self.ended else resident_bytes(self._process.pid)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self, why: HeadraceError | None = None) -> None:
        """Kill it; whoever waits in ``ask`` hears why."""
        self._stopped = why
        self._process.kill()

    def close(self) -> None:
        """When nobody is in ``ask``."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


class EvaluatorPool:
    """Lives on one event loop."""

    def __init__(self) -> None:
        self._idle: list[Evaluator] = []
        self._turns = asyncio.Semaphore(PROCESSES)
        self._waiting = 0
        self.begun: set[Evaluator] = set()

    async def answer(self, question: Question, cut: EvaluationCut, budget: Budget) -> Rows:
        """The answer over a cut, which is closed afterwards. When this is cancelled, so is the evaluation.

        :raises LimitExceeded, Overloaded, Unavailable:
        """
        try:
            if self._waiting >= WAITING:
                raise Overloaded(f"{WAITING} queries wait to be evaluated", hint="try again later")
            self._waiting += 1
            try:
                await self._turns.acquire()
            finally:
                self._waiting -= 1
            try:
                return await self._asked(question, cut, budget)
            finally:
                self._turns.release()
        finally:
            cut.close()

    async def _asked(self, question: Question, cut: EvaluationCut, budget: Budget) -> Rows:
        evaluator = await self.take()
        good = False
        try:
            rows = await watched(evaluator, lambda: evaluator.ask(question, cut, budget), cut, budget.held_bytes)
            good = True
            return rows
        finally:
            await self.give_back(evaluator, good=good)

    async def take(self, *, limit: int = 0) -> Evaluator:
        """One that nobody else has, of so many.

        :raises Overloaded: all of them are taken.
        """
        if limit and len(self.begun) - len(self._idle) >= limit:
            raise Overloaded(f"{limit} processes evaluate queries already", hint="try again later")
        while self._idle:
            evaluator = self._idle.pop()
            if not evaluator.ended:
                return evaluator
            self.begun.discard(evaluator)
            evaluator.close()
        evaluator = await asyncio.to_thread(Evaluator)
        self.begun.add(evaluator)
        return evaluator

    async def give_back(self, evaluator: Evaluator, *, good: bool) -> None:
        """Take an evaluator back; one that is not ``good`` is ended, since nobody knows what it does now."""
        if good:
            self.put_back(evaluator)
            return
        evaluator.stop()
        self.begun.discard(evaluator)
        await asyncio.shield(asyncio.to_thread(evaluator.close))

    def put_back(self, evaluator: Evaluator) -> None:
        """One that has nothing to do."""
        if not evaluator.ended and len(self._idle) < PROCESSES:
            self._idle.append(evaluator)
        else:
            evaluator.stop()
            self.begun.discard(evaluator)
            evaluator.close()

    def close(self) -> None:
        """Nothing is evaluated any more."""
        for evaluator in self.begun:
            evaluator.stop(Unavailable("the server stops"))
        for evaluator in self._idle:
            evaluator.close()
        self._idle.clear()


async def watched(evaluator: Evaluator, call: Callable[[], Found], cut: EvaluationCut, held_bytes: int) -> Found:
    """What a call of the evaluator answers, on a thread. Whoever is cancelled ends both; they end where it holds more.

    :raises LimitExceeded: it does.
    """
    task = asyncio.create_task(asyncio.to_thread(call))
    try:
        while not (await asyncio.wait([task], timeout=LOOK_SECONDS))[0]:
            if evaluator.held_bytes() > held_bytes:
                evaluator.stop(
                    LimitExceeded(
                        f"the query needs more than {held_bytes:,} bytes to be evaluated",
                        hint="narrow it, declare a view of it, or raise max_evaluation_size",
                    )
                )
        return task.result()
    finally:
        if not task.done():
            evaluator.stop()
            cut.close()  # Whatever it reads now fails, and the thread ends.
            with suppress(Exception, asyncio.CancelledError):
                await asyncio.shield(task)


def _elsewhere(cut: EvaluationCut) -> dict[NodeIndex, tuple[int, ...]]:
    """The shards that have the table of each part."""

    def numbers(part: Question) -> tuple[int, ...]:
        (wanted,) = part.plan.tables
        return tuple(n for n, view in enumerate(cut.views) if any(t.schema == wanted for t in view.tables))

    return {node: numbers(part) for node, part in cut.parts.items()}


def _read(cut: EvaluationCut, asked: FromEvaluator) -> FoundEntries | StorageFailure | Piece | Failure:
    view = cut.views[asked.shard]
    try:
        match asked:
            case EntriesRead(ranges=ranges, most=most):
                return view.ranges(ranges, most)
            case Misread(what=what):
                return view.misread(what)
            case BeginPart(node=node):
                assert isinstance(view, RemoteView)
                return view.begin(cut.parts[node])
            case NextPiece(stream=stream):
                assert isinstance(view, RemoteView)
                return view.next(stream)
    except HeadraceError as error:
        return Failure(error)


def _rows_of(found: FoundEntries | StorageFailure | Piece | Failure) -> int:
    match found:
        case FoundEntries(found=ranges):
            return sum(map(len, ranges))
        case Piece(deltas=deltas):
            return len(deltas)
        case StorageFailure() | Failure():
            return 0


def _failure(error: HeadraceError | str) -> HeadraceError:
    return error if isinstance(error, HeadraceError) else _failed(error)


def _failed(text: str) -> HeadraceError:
    if text.startswith("MemoryError"):
        return LimitExceeded("the query needs more memory than there is", hint="narrow it, or declare a view of it")
    return Unavailable(f"the query cannot be evaluated: {text}")


def _too_large(budget: Budget, rows: bool) -> LimitExceeded:
    what = f"{budget.rows:,} rows (max_answer_rows)" if rows else f"{budget.answer_bytes:,} bytes (max_answer_size)"
    return LimitExceeded(f"the answer has more than {what}", hint="ask for a part of it with LIMIT, or raise that")


def timed_out(budget: Budget) -> ReadTimeout:
    return ReadTimeout(
        f"the query was stopped after {budget.seconds:g} s", hint="narrow it, or raise statement_timeout"
    )
