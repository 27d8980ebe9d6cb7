"""An event loop whose time is a number, and on which several processes run, each of which can be stopped or killed.

Nothing ever waits: when nothing is to be done now, time jumps to the next timer. What runs belongs to a process by its
context (``contextvars``), which tasks and callbacks inherit; so a process that is killed simply is not run any more.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from typing import Any

ELSEWHERE_SECONDS = 0.001
"""What is done on another thread takes."""
STEPS_AT_MOST = 600_000
"""Of one run; one that takes more goes round in circles."""


class Condition(Enum):
    RUNNING = "running"
    STOPPED = "stopped"
    """Not run until it is woken."""
    DEAD = "dead"


class Stuck(AssertionError):
    """Nothing is left to happen, or too much happens."""


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """Something that can die alone."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.condition = Condition.RUNNING
        self.at_death: list[Callable[[], None]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept, so that those of a dead process are not collected and made to run their last lines."""
        self._parked: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)
        loop.processes.append(self)

    def __repr__(self) -> str:
        return self.name

    @property
    def is_dead(self) -> bool:
        return self.condition is Condition.DEAD

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """An assertion that ends it is found, also where nobody waits for its end."""
        task = self.loop.create_task(coroutine, context=self.context.copy())
        task.add_done_callback(self.loop.ended)
        return task

    def call(self, act: Callable[..., object], *arguments: Any) -> None:
        """Have it run by the process, soon; never if it is dead by then."""
        self.loop.call_soon(act, *arguments, context=self.context.copy())

    def stop(self) -> None:
        if self.condition is Condition.RUNNING:
            self.condition = Condition.STOPPED

    def wake(self) -> None:
        if self.condition is Condition.STOPPED:
            self.condition = Condition.RUNNING
            self.loop.resume(self._parked)
            self._parked = []

    def die(self) -> None:
        if self.is_dead:
            return
        self.condition = Condition.DEAD
        self._parked.clear()
        for act in self.at_death:
            act()

    def divert(self, handle: asyncio.Handle) -> None:
        if self.condition is Condition.STOPPED:
            self._parked.append(handle)


class _NoSelector:
    def close(self) -> None:
        """There is nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """``steps`` counts what was run. Exceptions that nobody took are in ``faults``."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._selector = _NoSelector()
        self.steps = 0
        self.faults: list[dict[str, Any]] = []
        self.processes: list[Process] = []
        self.connector: Any = None
        """The network."""
        self.set_task_factory(_make_task)
        self.set_exception_handler(lambda loop, context: self.faults.append(context))

    def time(self) -> float:
        return self._now

    def resume(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, AssertionError):
            self.faults.append({"message": "a task ended", "exception": error})

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck("nothing is left that could happen")
            self._now = max(self._now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None and process.condition is not Condition.RUNNING:
                process.divert(handle)
                continue
            self.steps += 1
            handle._run()
        if self.steps > STEPS_AT_MOST:
            raise Stuck(f"{self.steps} steps, and no end")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """They are dropped when their time has come."""

    def _write_to_self(self) -> None:
        """Nobody waits in another thread."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """What others have a thread for is done a moment later, all at once; never by a process that is dead then."""
        future = self.create_future()

        def act() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(ELSEWHERE_SECONDS, act)
        return future

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.connector.connect(factory, host, port)

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return self.connector.listen(factory, host, port)


def _make_task(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    context: Context = options.get("context") or copy_context()
    process = context.get(PROCESS)
    if process is not None:
        process.tasks.append(task)
        if len(process.tasks) > 512:
            process.tasks = [each for each in process.tasks if not each.done()]
    return task
