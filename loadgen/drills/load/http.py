"""HTTP as a load needs it: cheap, every connection with one request under way, and clear about what is not known.

The cluster under test shares the machine with whoever asks, so a request must cost little: this is a third of what a
general client takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

CONNECTIONS_MAX = 512
"""Of one target. A request that finds them all taken waits, and its waiting counts."""
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


@dataclass(frozen=True, slots=True)
class HttpRequest:
    data: bytes
    """As it goes over the wire."""
    again: bool = False
    """Whether it may be sent once more where a connection that had been used before ends without a byte of an answer:
    a server that stops closes idle connections, and may do so while a request is on its way."""


@dataclass(frozen=True, slots=True)
class DrillAnswer:
    status: int
    body: bytes


class NotSent(Exception):
    """Nobody could be reached: the request was surely not done."""


class Lost(Exception):
    """The connection ended, or the time, before the answer came: nobody knows whether it was done."""


def get(path: str, headers: Mapping[str, str]) -> HttpRequest:
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return HttpRequest(f"GET {path} HTTP/1.1\r\nhost: drill\r\n{more}\r\n".encode(), again=True)


def send(method: str, path: str, body: bytes) -> HttpRequest:
    head = f"{method} {path} HTTP/1.1\r\nhost: drill\r\ncontent-type: application/json\r\n"
    return HttpRequest(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


class HttpTarget:
    """Connections to one server."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._idle: list[_Connection] = []
        self._free = asyncio.Semaphore(CONNECTIONS_MAX)

    async def ask(self, request: HttpRequest, within: float) -> DrillAnswer:
        """The answer, whatever its status. Raises NotSent, Lost."""
        sent = False
        try:
            async with asyncio.timeout(within), self._free:
                connection, used = await self._connection()
                sent = True
                try:
                    answer = await connection.ask(request)
                except Lost:
                    if not (used and request.again):
                        raise
                    connection = await self._connect()
                    answer = await connection.ask(request)
                if connection.reusable:
                    self._idle.append(connection)
                return answer
        except TimeoutError:
            raise (Lost if sent else NotSent)(f"no answer within {within:g} s") from None

    async def _connection(self) -> tuple[_Connection, bool]:
        """One that is open, and whether it has been used before."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection, True
        return await self._connect(), False

    async def _connect(self) -> _Connection:
        try:
            _, made = await asyncio.get_running_loop().create_connection(_Connection, self.host, self.port)
        except OSError as error:
            raise NotSent(f"cannot connect: {error.strerror or error}") from error
        return made

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.reusable = True
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[DrillAnswer] | None = None
        self._data = b""

    async def ask(self, request: HttpRequest) -> DrillAnswer:
        assert self._answer is None
        assert self._transport is not None
        if not self.reusable:
            raise NotSent("the connection has ended")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request.data)
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exception: Exception | None) -> None:
        self.reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Lost(f"the connection ended: {exception or 'closed by the server'}"))

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(_END)
        if end < 0:
            return
        head = self._data[:end].lower()
        at = head.find(_LENGTH)
        size = 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        if len(self._data) < end + 4 + size:
            return
        body, self._data = self._data[end + 4 : end + 4 + size], b""
        if b"connection: close" in head:
            self.reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(DrillAnswer(int(head[9:12]), body))
