"""Stands between a client and a server, so that a test can cut the connection of one client without stopping either."""

from __future__ import annotations

import asyncio


class Proxy:
    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.open = True
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Connections break, and new ones are closed as soon as they come."""
        self.open = False
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self.open = True

    async def stop(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if not self.open:
                return
            try:
                theirs, there = await asyncio.open_connection("127.0.0.1", self._target)
            except OSError:
                return
            self._writers.add(there)
            pumps = [asyncio.create_task(_pump(reader, there)), asyncio.create_task(_pump(theirs, writer))]
            self._tasks.update(pumps)
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            self._writers.discard(there)
            there.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        return
