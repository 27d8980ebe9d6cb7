"""Running statements, with a number each, to list and stop them by; and the lists of all api processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from time import monotonic
from typing import Protocol

from controller.access.session import Caller
from controller.deployment import KILLED
from controller.statement_lists import Listing, QueryInfo, RunningInfo
from domains.errors import Cancelled, NotFound
from migrations.access.statements import recorded
from migrations.parse.reading import Parsed
from migrations.parse.temporary import plainly

TEXT_SHOWN = 1_000
"""Characters of a statement in the list."""
PROCESS_NUMBERS = 10**12
"""Numbers of a process's statements: at 10,000 a second it has them for three years. With the number of the process
before them they are still whole numbers of JSON."""

CONNECTION_BITS, PROCESSES = 20, 2**12
"""Of the 32 bits of a connection's number: the others are its process's, so that no two in a cluster have the same."""


@dataclass(slots=True)
class RunningStatement:
    number: int
    text: str
    began: float
    task: asyncio.Task[object]
    stopped: bool = False

    def info(self) -> RunningInfo:
        return RunningInfo(self.number, self.text, round(self.seconds, 3))

    @property
    def seconds(self) -> float:
        return monotonic() - self.began


class RunningStatements:
    """The running statements of one process, by number. Lives on one event loop."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._running: dict[int, RunningStatement] = {}
        self.connections: dict[int, Callable[[], None]] = {}
        """What closes each connection that is open, by its number."""

    def __iter__(self) -> Iterator[RunningStatement]:
        """The oldest one first."""
        return iter(list(self._running.values()))

    def next_number(self) -> int:
        return next(self._numbers)

    @contextmanager
    def entered(self, text: str, number: int = 0) -> Iterator[None]:
        """While the current task performs it; ``number``: of the connection that asks.

        :raises Cancelled: somebody has stopped it.
        """
        task = asyncio.current_task()
        assert task is not None, "a statement runs in a task"
        one = RunningStatement(number or next(self._numbers), text[:TEXT_SHOWN], monotonic(), task)
        self._running[one.number] = one
        try:
            yield
        except asyncio.CancelledError:
            if not one.stopped:
                raise
            task.uncancel()
            raise Cancelled("the statement was stopped by KILL", hint="what it had written before stays") from None
        finally:
            del self._running[one.number]

    def stop(self, number: int) -> RunningStatement | None:
        """None: no statement of this number runs."""
        one = self._running.get(number)
        if one is not None and not one.stopped:
            one.stopped = True
            one.task.cancel(KILLED)
        return one


class ApisBeside(Protocol):
    """The other api processes of a cluster; see :class:`controller.cluster.serving.other_apis.OtherApis`."""

    @property
    def number(self) -> int:
        """The number of this process, from 1 on; 0 while it has none."""

    @property
    def name(self) -> str: ...

    async def queries(self) -> Listing[QueryInfo]: ...

    async def running(self) -> Listing[RunningInfo]: ...

    async def stop(self, process: int, id: int) -> RunningInfo: ...


class Lists:
    """See :class:`controller.deployment.StatementLists`, which it implements."""

    def __init__(self, asked: Callable[[], list[QueryInfo]], running: RunningStatements) -> None:
        self.others: ApisBeside | None = None
        """In a cluster."""
        self._asked = asked
        self._running = running

    def connected(self, end: Callable[[], None]) -> int:
        number = self._running.next_number()
        if self.others is not None:
            number = (self.others.number % PROCESSES << CONNECTION_BITS) + number % 2**CONNECTION_BITS
        self._running.connections[number] = end
        return number

    def disconnected(self, number: int) -> None:
        self._running.connections.pop(number, None)

    async def queries(self) -> Listing[QueryInfo]:
        own = self.own_queries()
        if self.others is None:
            return Listing(own, [])
        told = await self.others.queries()
        return Listing(together([*own, *told.found]), told.missing)

    async def running(self) -> Listing[RunningInfo]:
        own = self.own_running()
        if self.others is None:
            return Listing(own, [])
        told = await self.others.running()
        return Listing(sorted([*own, *told.found], key=lambda each: -each.seconds), told.missing)

    async def stop(self, id: int) -> RunningInfo:
        process = id // PROCESS_NUMBERS
        if self.others is None or process in (0, self.others.number):
            return self.stop_own(id)
        return await self.others.stop(process, id)

    async def kill(self, id: int, *, query: bool) -> None:
        """:raises NotFound: there is none, or it is a connection of another process."""
        own = 0 if self.others is None else self.others.number
        end = self._running.connections.get(id % PROCESS_NUMBERS) if id // PROCESS_NUMBERS in (0, own) else None
        if end is None and own and id >> CONNECTION_BITS not in (0, own % PROCESSES) and id < 2**32:
            raise NotFound(f"connection {id} is not of this api process", hint="KILL it over one of that process")
        if end is None:
            await self.stop(id)
            return
        self._running.stop(id % PROCESS_NUMBERS)
        if not query:
            end()

    def own_queries(self) -> list[QueryInfo]:
        return self._asked()

    def own_running(self) -> list[RunningInfo]:
        return list(map(self._shown, self._running))

    def stop_own(self, id: int) -> RunningInfo:
        """Raises NotFound."""
        own = 0 if self.others is None else self.others.number
        one = self._running.stop(id % PROCESS_NUMBERS) if id // PROCESS_NUMBERS in (0, own) else None
        if one is None:
            raise unknown(id)
        return self._shown(one)

    def _shown(self, one: RunningStatement) -> RunningInfo:
        others = self.others
        if others is None:
            return one.info()
        return replace(one.info(), id=others.number * PROCESS_NUMBERS + one.number, process=others.name)


def together(told: Sequence[QueryInfo]) -> list[QueryInfo]:
    """The shapes of all processes, each once, with the sums of calls, time and rows; the longest ones first. The reason
    is that of a process that has a view of it, or else of the one that was asked most."""
    shapes: dict[str, list[QueryInfo]] = {}
    for each in told:
        shapes.setdefault(each.query, []).append(each)
    found = []
    for same in shapes.values():
        first = max(same, key=lambda each: (each.view is not None, each.calls))
        calls, rows = sum(each.calls for each in same), sum(each.rows for each in same)
        milliseconds = round(sum(each.milliseconds for each in same), 3)
        found.append(replace(first, calls=calls, milliseconds=milliseconds, rows=rows))
    return sorted(found, key=lambda each: -each.milliseconds)


def unknown(id: int) -> NotFound:
    return NotFound(f"no statement {id} runs", hint="SHOW PROCESSLIST lists those that do")


@contextmanager
def witnessed(session: Caller, statements: Sequence[Parsed]) -> Iterator[None]:
    """While they are performed, those that an audit log always has are recorded, one by one.

    :raises Unavailable: they cannot be recorded.
    """
    witness = session.witness
    named = [(recorded(each), plainly(each.sql)) for each in statements] if witness is not None else []
    told = [(kind, sql) for kind, sql in named if kind is not None]
    if witness is None or not told:
        yield
        return
    witness.check()
    began, error = monotonic(), None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        for kind, sql in told:
            witness.saw(kind, sql, monotonic() - began, error)
