"""The accepting end: a port, and a handler for what is asked over it by those who belong to the deployment."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import Any

from domains.errors import Unavailable
from worker.protocol.messages import Hello, Role, Welcome
from worker.wire.connection import Connection, ConnectionStage, Handler
from worker.wire.errors import ConnectionLost, ProtocolError, WrongDeployment
from worker.wire.frames import FRAME_MAX, GREETING_MAX
from worker.wire.vocabulary import PROTOCOL

GREETING_SECONDS = 3.0
"""For whoever connects to say who they are."""
CLIENT_SILENCE = 30.0
"""Seconds until a client that does not even beat is taken for gone. No one waits for it: it only holds a socket."""


@dataclass(slots=True)
class Traffic:
    """The traffic of connections, as seen from the accepting end."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, connection: Connection) -> None:
        self.messages_in += connection.messages_in
        self.messages_out += connection.messages_out
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.bytes_out


class Accepted(Connection):
    """Who has connected is ``hello``, from the first message that the handler sees."""

    hello: Hello

    def __init__(self, server: WireServer) -> None:
        super().__init__(server.handler, silence=server.client_silence, beats=False)
        self.server = server
        self._cutter.limit = GREETING_MAX

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.server.connections.add(self)
        self.on_lost.append(lambda _: self.server.forget(self))
        self._loop.call_later(self.server.greeting_seconds, self._check_greeted)

    def _check_greeted(self) -> None:
        if self.stage is ConnectionStage.OPENING:
            self._refuse(ProtocolError("no greeting came", hint="only processes of headrace connect here"))

    def pause_writing(self) -> None:
        """A client that does not read answers is not asked for more requests.

        Only this end does so. If both did, two ends that are full would wait for each other for ever.
        """
        super().pause_writing()
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _read(self, packed: Any) -> Any:
        if self.stage is ConnectionStage.OPENING:
            self._check_hello(packed)
        return super()._read(packed)

    def _check_hello(self, packed: Any) -> None:
        """Before anything is decoded: another version may call other things the same."""
        if type(packed) is not tuple or len(packed) < 2 or packed[0] != "Hello" or type(packed[1]) is not str:
            raise ProtocolError("the first message is not a greeting", hint="only processes of headrace connect here")
        if packed[1] != PROTOCOL:
            raise ProtocolError(
                f'the other side speaks "{packed[1][:80]}", and this one "{PROTOCOL}"',
                hint="run the same version of headrace on both sides",
            )

    def _answer(self, number: int, message: Any) -> None:
        if self.stage is not ConnectionStage.OPENING:
            super()._answer(number, message)
            return
        assert isinstance(message, Hello)
        server = self.server
        if message.deployment != server.deployment:
            self._refuse(
                WrongDeployment(
                    f'this process belongs to the deployment "{server.deployment}", not to "{message.deployment}"',
                    hint="check the deployment's name and the address",
                ),
                number,
            )
            return
        self.hello = message
        self.greeted(message)
        self._cutter.limit = FRAME_MAX
        self._reply(number, Welcome(server.name, server.incarnation), message)

    def _notice(self, message: Any) -> None:
        if self.stage is ConnectionStage.OPENING:
            raise ProtocolError("a greeting is a request", hint="only processes of headrace connect here")
        super()._notice(message)


class WireServer:
    """Made by ``serve``."""

    def __init__(
        self,
        deployment: str,
        handler: Handler,
        name: str,
        incarnation: int,
        *,
        greeting_seconds: float = GREETING_SECONDS,
        client_silence: float = CLIENT_SILENCE,
    ) -> None:
        self.deployment = deployment
        self.handler = handler
        self.name = name
        self.incarnation = incarnation
        self.greeting_seconds = greeting_seconds
        self.client_silence = client_silence
        self.connections: set[Accepted] = set()
        self.port = 0
        self._ended: defaultdict[Role, Traffic] = defaultdict(Traffic)
        """Over connections that are there no more."""
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(lambda: Accepted(self), host, port)
        except OSError as error:
            raise Unavailable(
                f'cannot listen on "{host}:{port}": {error.strerror or error}',
                hint="is another process on this port? Choose another one",
            ) from None
        for each in self._listener.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.port = self._listener.sockets[0].getsockname()[1]

    def forget(self, connection: Accepted) -> None:
        """It has ended."""
        self.connections.discard(connection)
        if connection.peer is not None:
            self._ended[connection.hello.role].add(connection)

    def traffic(self) -> dict[str, dict[str, int]]:
        """By the role of who connected, JSON-ready; all only grows. Greetings and beats are in it."""
        told = {role: replace(traffic) for role, traffic in self._ended.items()}
        for connection in self.connections:
            if connection.peer is not None:
                told.setdefault(connection.hello.role, Traffic()).add(connection)
        return {str(role): asdict(traffic) for role, traffic in told.items()}

    async def close(self) -> None:
        """Take no more connections, and end those that are open once what was said over them is sent."""
        if self._listener is not None:
            self._listener.close()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.closed.wait()

    def abort(self) -> None:
        """End everything at once, as if the process had died."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.abort(ConnectionLost("the server was stopped"))


async def serve(
    host: str,
    port: int,
    deployment: str,
    handler: Handler,
    *,
    name: str,
    incarnation: int,
    greeting_seconds: float = GREETING_SECONDS,
    client_silence: float = CLIENT_SILENCE,
) -> WireServer:
    """Listen (on any free port where ``port`` is 0, see ``Server.port``). Unavailable where that cannot be.

    ``handler(connection, message)`` answers requests and takes notices; ``connection.hello`` says whose they are.
    """
    server = WireServer(
        deployment, handler, name, incarnation, greeting_seconds=greeting_seconds, client_silence=client_silence
    )
    await server.listen(host, port)
    return server
