"""The port for MySQL's clients: its beginning and its end."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from api.mysql.connection import MysqlConnection
from api.mysql.shared import MysqlShared

CLOSE_SECONDS = 10.0
"""Seconds that commands under way have when the server stops."""
LOOK_SECONDS = 0.02


class MysqlDoor:
    """Takes connections from :meth:`listen` on."""

    def __init__(self, shared: MysqlShared) -> None:
        self._shared = shared
        self._server: asyncio.Server | None = None

    async def listen(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if self._shared.slots is not None:
            await self._shared.slots.hear()
        self._server = await loop.create_server(lambda: MysqlConnection(self._shared), sock=listening)

    async def close(self) -> None:
        """No connection is taken any more, those without a command end, and others when theirs is answered."""
        if self._server is not None:
            self._server.close()
        connections = self._shared.connections
        for connection in [*connections.values()]:
            connection.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while connections:
                    await asyncio.sleep(LOOK_SECONDS)
        for connection in [*connections.values()]:
            connection.give_up()
        await self._shared.close()
