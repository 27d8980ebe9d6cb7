"""A TCP proxy on the loopback that can cut, refuse and hold what goes through it, without stopping either side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition, and say that it did not come."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.005)


class Proxy:
    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.cuts = 0
        self.held = False
        """Whether what arrives is kept back: both sides see a connection on which nothing comes."""
        self.is_open = True
        """Cleared: new connections are closed as soon as they come."""
        self._ways: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """All connections, with whatever is in them."""
        for way in self._ways:
            self.cuts += 1
            for writer in way:
                writer.transport.abort()
        self._ways.clear()

    async def cut_at_random(self, random: Random, mean: float) -> None:
        while True:
            await asyncio.sleep(random.expovariate(1 / mean))
            self.cut()

    def close_off(self) -> None:
        """Connections break, and none is made until ``mend``."""
        self.is_open = False
        self.cut()

    def mend(self) -> None:
        self.is_open = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        if not self.is_open:  # It was closed off meanwhile.
            writer.transport.abort()
            far_writer.transport.abort()
            return
        self._ways.add((writer, far_writer))
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                while self.held:
                    await asyncio.sleep(0.005)
                sink.write(data)
                await sink.drain()
            sink.write_eof()
        except OSError:
            sink.transport.abort()
