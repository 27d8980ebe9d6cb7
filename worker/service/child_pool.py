"""Work that would hold the event loop, done in a process beside this one, in parts that are taken between other work.

One call of Python that takes seconds holds the interpreter's lock, or shares it, whatever thread it is in. A
``ChildPool`` keeps a few child processes, begun when first needed, which run functions by name::

    async for part in beside.run(function, *arguments): …     an iterator over there, pickled part by part

A child has limits of memory and time, after which it is killed and replaced; it ends with this process, since its
standard input does, and after a while without work.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import resource
import struct
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar

from domains.errors import HeadraceError, LimitExceeded, Overloaded
from worker.service.system import give_back_early, give_back_now

Part = TypeVar("Part")

PROCESSES = 2
"""One that is kept busy for long leaves the other one to the rest."""
WAITING_MAX = 100
"""Calls that wait for a child. Each has its arguments in memory: a megabyte of SQL, 32 of JSON."""
SECONDS = 60.0
"""The longest INSERT that is taken by default needs 5 on a quiet core, and more on a shared one."""
MEMORY = 2 * 2**30
"""Bytes of addresses. A megabyte of SQL takes some 300 MB as a tree."""
IDLE_SECONDS = 60.0
"""A child that waits takes some 60 MB."""
GIVES_BACK = 100_000
"""Bytes of a call, after which a child gives back what it held meanwhile: 280 MB perhaps, and its next call may be
minutes off."""
NICENESS = 5
_FRAME = struct.Struct(">BQ")
_PART, _DONE, _ERROR, _FAULT = range(4)


TURN_SECONDS = 0.002


class Turn:
    """The turn of work in pieces on the event loop, which others are to have every few milliseconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + TURN_SECONDS

    async def pause(self) -> None:
        """Let others have the loop between two pieces, if it is time."""
        if self._loop.time() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._loop.time() + TURN_SECONDS


async def in_turns(work: Generator[None, None, Part]) -> Part:
    """Do on the event loop what yields now and then."""
    turn = Turn()
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: Part = done.value
            return result
        await turn.pause()


class ChildPool:
    """Lives on one event loop."""

    def __init__(self, *, processes: int = PROCESSES, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.seconds = seconds
        self.memory = memory
        self.killed = 0
        """Children that passed a limit."""
        self._free = asyncio.Semaphore(processes)
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._waiting = 0
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, function: Callable[..., Iterator[Part]], *arguments: Any) -> AsyncIterator[Part]:
        """What the function yields. Function and arguments are pickled.

        :raises HeadraceError: what the function raises.
        :raises LimitExceeded: it took too long, or too much memory.
        :raises Overloaded: too many calls wait already.
        """
        if self._waiting >= WAITING_MAX:
            raise Overloaded(
                f"{WAITING_MAX} long texts or bodies wait to be read already; nothing was done", hint="try again later"
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        child = None
        try:
            child = self._idle.pop() if self._idle else await self._begun()
            child.is_kept()
            try:
                async with asyncio.timeout(self.seconds) as limit:
                    child.tell(pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL))
                    while (frame := await child.hears())[0] == _PART:
                        yield pickle.loads(frame[1])
                        await asyncio.sleep(0)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise self._passed(f"{self.seconds:g} s") from None
            except (asyncio.IncompleteReadError, ConnectionError):
                raise self._passed(f"{self.memory} bytes of memory") from None
            if frame[0] == _FAULT:
                raise RuntimeError(f"in a process beside: {pickle.loads(frame[1])}")
            idle, child = child, None
            self._keep(idle)
            if frame[0] == _ERROR:
                raise pickle.loads(frame[1])
        finally:
            if child is not None:  # It broke, or what it still says is for nobody.
                self._end(child)
            self._free.release()

    async def close(self) -> None:
        self._idle.clear()
        for child in list(self._all):
            self._end(child)
        await asyncio.gather(*self._ending)

    def _end(self, child: _Child) -> None:
        self._all.discard(child)
        task = asyncio.ensure_future(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _passed(self, limit: str) -> LimitExceeded:
        self.killed += 1
        return LimitExceeded(f"reading it takes more than {limit}", hint="send it in several requests")

    async def _begun(self) -> _Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "worker.service.child_pool", str(self.memory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is for the parent.
        )
        child = _Child(process)
        self._all.add(child)
        return child

    def _keep(self, child: _Child) -> None:
        self._idle.append(child)

        def end() -> None:
            if child in self._idle:
                self._idle.remove(child)
                self._end(child)

        child.is_idle(end)


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._ends: asyncio.TimerHandle | None = None

    def is_idle(self, end: Callable[[], None]) -> None:
        self._ends = asyncio.get_running_loop().call_later(IDLE_SECONDS, end)

    def is_kept(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None

    def tell(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(_FRAME.pack(_PART, len(data)))
        self.process.stdin.write(data)  # It may be megabytes: they are not copied for the sake of the frame.

    async def hears(self) -> tuple[int, bytes]:
        assert self.process.stdout is not None
        kind, size = _FRAME.unpack(await self.process.stdout.readexactly(_FRAME.size))
        return kind, await self.process.stdout.readexactly(size)

    async def end(self) -> None:
        """Returns when nothing of it is left, its pipes included."""
        self.is_kept()
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ProcessLookupError):
            process.kill()
        process.stdin.close()
        with suppress(ConnectionError):
            await process.stdin.wait_closed()
        while await process.stdout.read(2**16):
            continue
        await process.wait()


# --- over there -------------------------------------------------------------------------------------------------------


def _serve(asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls until the input ends."""
    while head := asked.read(_FRAME.size):
        _, size = _FRAME.unpack(head)
        data = asked.read(size)
        if len(data) < size:
            return
        try:
            function, arguments = pickle.loads(data)
            for part in function(*arguments):
                _say(answers, _PART, part)
            _say(answers, _DONE, None)
        except MemoryError:
            os._exit(1)
        except RecursionError:
            _say(answers, _ERROR, LimitExceeded("it nests too deep", hint="send it in several requests"))
        except HeadraceError as error:
            _say(answers, _ERROR, error.with_traceback(None))
        except Exception as error:  # The parent says it, as an internal error.
            _say(answers, _FAULT, f"{type(error).__name__}: {error}")
        if size > GIVES_BACK:
            function = arguments = part = None
            gc.collect()  # Trees of SQL are cycles.
            give_back_now()


def _say(answers: BinaryIO, kind: int, value: object) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    answers.write(_FRAME.pack(kind, len(data)) + data)
    answers.flush()


def main() -> None:
    os.nice(NICENESS)
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    give_back_early()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What a library prints is no answer.
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
