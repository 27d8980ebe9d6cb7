"""Targets for load runs: one with a switch, in memory, and one that speaks HTTP as Headrace does."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from loadgen.pace.loop import Arrival
from loadgen.peers.opening import NullSession, NullTarget
from loadgen.peers.store import Change, Lookup, PeerSession, in_rounds
from tests.cluster_simulation.loop import VirtualLoop


class _Here(ThreadPoolExecutor):
    """What is given to a thread is done at once, since nothing else happens in virtual time meanwhile."""

    def submit(self, act: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(act(*args, **kwargs))
        return done


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop whose time jumps: a second costs nothing, and measured times are exact."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        loop = VirtualLoop()
        loop.set_default_executor(_Here())
        try:
            loop.run_until_complete(test(*args, **kwargs))
        finally:
            loop.close()
        assert not loop.faults

    return run


class SwitchedTarget(NullTarget):
    """Answers after ``delay`` seconds, and not at all while it is ``stalled``."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.going = asyncio.Event()
        self.going.set()
        self.under_way = self.most_under_way = 0

    async def session(self) -> SwitchedSession:
        return SwitchedSession(self)

    async def stall(self, after: float, seconds: float) -> None:
        await asyncio.sleep(after)
        self.going.clear()
        await asyncio.sleep(seconds)
        self.going.set()


class SwitchedSession(NullSession):
    def __init__(self, target: SwitchedTarget) -> None:
        self._target = target

    async def read(self, lookups: Sequence[Lookup]) -> Any:
        target = self._target
        target.under_way += 1
        target.most_under_way = max(target.most_under_way, target.under_way)
        try:
            await target.going.wait()
            await asyncio.sleep(target.delay)
        finally:
            target.under_way -= 1
        return await super().read(lookups)


class OneKind:
    """A workload of one kind of page: one empty round of look-ups."""

    name = "one kind"
    unit = "pages"

    def begin(self, rate: float) -> float:
        return rate

    def draw(self, at: float) -> Arrival:
        return Arrival("page", _ask)


async def _ask(session: PeerSession) -> None:
    await session.read(())


class HttpStub:
    """A server that answers every request with ``answer``, and remembers them."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, _ = head.decode().split(" ", 2)
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0] or 0)
                self.requests.append((method, path, await reader.readexactly(size)))
                status, body = self.answers.get(path, (200, b'{"results":[[]]}'))
                # In two pieces: a client must not take a packet for an answer.
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n" % (status, len(body)))
                await writer.drain()
                writer.write(b"\r\n" + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client has gone: the end of every test.
        finally:
            writer.close()


class Recorder:
    """A session that answers like the null target and remembers what it was asked."""

    def __init__(self) -> None:
        self.rounds: list[list[Lookup]] = []
        self.changes: list[Change] = []
        self._null = NullSession()

    async def read(self, lookups: Sequence[Lookup]) -> Any:
        return await in_rounds(self._round, lookups)

    async def _round(self, lookups: Sequence[Lookup]) -> Any:
        self.rounds.append(list(lookups))
        return await self._null.read(lookups)

    async def write(self, changes: Sequence[Change]) -> int:
        self.changes.extend(changes)
        return len(changes)

    async def close(self) -> None:
        return None

    def asked(self) -> list[str]:
        return [lookup.query.name for each in self.rounds for lookup in each]


def values_of(lookups: Iterable[Lookup], name: str) -> tuple[Any, ...]:
    (found,) = (each.values for each in lookups if each.query.name == name)
    return found


class SilentTeller:
    """Shows nothing."""

    def loading(self, what: str, done: int, total: int) -> None: ...

    def begins(self, rate: float) -> None: ...

    def glimpse(self, glimpse: object) -> None: ...

    def ended(self, point: object) -> None: ...
