"""The accepting end: a port, and a handler for the requests of clients that belong to the deployment."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from domains.errors import BadRequest, HeadraceError, Unavailable
from worker.protocol.messages import ConnectionLost, Hello, ProtocolError, Role, Welcome, WrongDeployment
from worker.wire.connection import Connection, ConnectionStage, Handler
from worker.wire.frames import FRAME_MAX, GREETING_MAX
from worker.wire.proof import LinkGate, Refusals
from worker.wire.vocabulary import PROTOCOL
from zookeeper.secret import Secret

GREETING_SECONDS = 3.0
"""Seconds for a client to send its greeting."""
CLIENT_SILENCE = 30.0
"""Seconds until a client that sends nothing, not even beats, is taken for gone. Until then it only holds a socket."""


class Accepted(Connection):
    hello: Hello
    """The client's; known before the handler gets a message."""

    def __init__(self, server: WireServer, proven: Role | None = None) -> None:
        """``proven`` is the role that the client has proven; None: the deployment has no secret."""
        super().__init__(server.handler, silence=server.client_silence, beats=False)
        self.server = server
        self._proven = proven
        self._cutter.limit = GREETING_MAX

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.server.connections.add(self)
        self.on_lost.append(lambda _: self.server.forget(self))
        self._loop.call_later(self.server.greeting_seconds, self._check_greeted)

    def _check_greeted(self) -> None:
        if self.stage is ConnectionStage.OPENING:
            self._refuse(ProtocolError("no greeting came", hint="only processes of headrace connect here"))

    def tell_of(self, error: HeadraceError) -> None:
        where = self._transport.get_extra_info("peername") if self._transport is not None else None
        self.server.refusals.note(str(where[0]) if where else "", str(self), error)

    def _reply(self, number: int, answer: Any, message: Any) -> None:
        if isinstance(answer, ProtocolError | BadRequest):
            self.tell_of(answer)
        super()._reply(number, answer, message)

    def pause_writing(self) -> None:
        """Read no more requests of a client that does not read its answers.

        Only this end does so: if both did, two full ends would wait for each other for ever.
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
        """Before anything is decoded: in another version a name may mean something else."""
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
        if self._proven is not None and message.role is not self._proven:
            said = f'the greeting is that of a "{message.role}", and the role "{self._proven}" was proven'
            self._refuse(ProtocolError(said), number)
            return
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


@dataclass(eq=False)
class WireServer:
    """``handler(connection, message)`` answers requests and takes notices; ``connection.hello`` says whose they are."""

    deployment: str
    handler: Handler
    name: str
    incarnation: int
    greeting_seconds: float = GREETING_SECONDS
    client_silence: float = CLIENT_SILENCE
    connections: set[Accepted] = field(default_factory=set)
    secret: Secret | None = None
    """The deployment's; clients have to prove it. None: whoever reaches the port is believed."""
    door: Role = Role.WORKER
    """Whose port it is."""
    port: int = 0
    refusals: Refusals = field(default_factory=Refusals)
    _ended: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """The traffic of connections that have ended, by role."""
    _listener: asyncio.Server | None = None
    _gate: LinkGate | None = None

    async def listen(self, host: str, port: int) -> None:
        """Listen, on any free port if ``port`` is 0; ``self.port`` is the one. Raises Unavailable."""
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._protocol, host, port)
        except OSError as error:
            raise Unavailable(
                f'cannot listen on "{host}:{port}": {error.strerror or error}',
                hint="is another process on this port? Choose another one",
            ) from None
        for each in self._listener.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.port = self._listener.sockets[0].getsockname()[1]

    def _protocol(self) -> asyncio.BaseProtocol:
        if self.secret is None:
            return Accepted(self)
        if self._gate is None:
            self._gate = LinkGate(self.secret, self.door, self.refusals, self.greeting_seconds)
        return self._gate.before(lambda role: Accepted(self, role))

    def forget(self, connection: Accepted) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        if connection.peer is not None:
            self._ended[str(connection.hello.role)].update(connection.traffic)

    def traffic(self) -> dict[str, dict[str, int]]:
        """The traffic by the role of the clients, greetings and beats included. JSON-ready; counters only grow."""
        told: defaultdict[str, Counter[str]] = defaultdict(Counter, {r: Counter(t) for r, t in self._ended.items()})
        for connection in self.connections:
            if connection.peer is not None:
                told[str(connection.hello.role)].update(connection.traffic)
        return {role: dict(traffic) for role, traffic in told.items()}

    async def close(self) -> None:
        """Take no more connections, and end the open ones after sending what waits."""
        self._stop_listening()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.closed.wait()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._gate is not None:
            self._gate.close()

    def abort(self) -> None:
        """End everything at once, as a crash would."""
        self._stop_listening()
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
    secret: Secret | None = None,
) -> WireServer:
    """A server that listens; see :meth:`WireServer.listen`."""
    server = WireServer(deployment, handler, name, incarnation, greeting_seconds, client_silence, secret=secret)
    await server.listen(host, port)
    return server
