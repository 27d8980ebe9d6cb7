"""HTTP/1.1 as a load needs it: kept-alive connections, several requests written at once, answers left as bytes.

The generator shares the machine with what it measures, so a request must cost it little. Requests of one round of a
page are *pipelined*: one write to the socket, and the answers are taken as they come, in order. An answer's head is
searched for its length and nothing else; its body is parsed by whoever needs a value out of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, cast

from loadgen.pace.errors import LoadError, RequestFailed

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_CHUNKED = b"transfer-encoding: chunked"
ANSWER_WITHIN = 60.0
"""Seconds after which a round is given up. Far past any answer that is of use: shorter, and a target that stalls would
be spared its longest times."""


class HttpAnswer(NamedTuple):
    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """One connection, with one round of requests under way at a time."""

    def __init__(self) -> None:
        self.open = False
        self._transport: asyncio.Transport | None = None
        self._wanted = 0
        self._answers: list[HttpAnswer] = []
        self._done: asyncio.Future[list[HttpAnswer]] | None = None
        self._data = b""

    @classmethod
    async def connect(cls, host: str, port: int) -> Connection:
        """Raises LoadError when nobody listens there."""
        try:
            _, made = await asyncio.get_running_loop().create_connection(cls, host, port)
        except OSError as error:
            raise LoadError(
                f"cannot reach {host}:{port}: {error.strerror or error}",
                hint="is the server running, and on that port?",
            ) from error
        return made

    async def ask(self, requests: Sequence[bytes]) -> list[HttpAnswer]:
        """The answers in the order of the requests. Raises RequestFailed when the connection ends before."""
        assert self._done is None, "one round at a time"
        if not self.open or self._transport is None:
            raise RequestFailed("the connection was closed by the server")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[HttpAnswer]] = loop.create_future()
        self._done = done
        self._wanted, self._answers = len(requests), []
        guard = loop.call_later(ANSWER_WITHIN, self._give_up)
        self._transport.write(b"".join(requests))
        try:
            return await done
        except asyncio.CancelledError:
            self.close()  # Answers may be under way that nobody will ask for.
            raise
        finally:
            guard.cancel()
            self._done = None

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class
        self.open = True

    def connection_lost(self, exception: Exception | None) -> None:
        self.open = False
        self._fail(f"the connection ended: {exception or 'closed by the server'}")

    def data_received(self, data: bytes) -> None:
        # Runs once a packet, with most of what the generator costs: no parser, no header object.
        data = self._data + data if self._data else data
        at = 0
        while True:
            end = data.find(_END, at)
            if end < 0:
                break
            head = data[at:end].lower()
            place = head.find(_LENGTH)
            if place < 0:
                if _CHUNKED in head:
                    self._fail("an answer in chunks, which this client does not read")
                    self.close()
                    return
                size = 0
            else:
                size = int(head[place + len(_LENGTH) :].split(b"\r\n", 1)[0])
            body_end = end + 4 + size
            if len(data) < body_end:
                break
            self._answers.append(HttpAnswer(int(head[9:12]), data[end + 4 : body_end]))
            at = body_end
        self._data = data[at:] if at else data
        if self._done is not None and len(self._answers) >= self._wanted and not self._done.done():
            self._done.set_result(self._answers)

    def _give_up(self) -> None:
        self._fail(f"no answer within {ANSWER_WITHIN:g} s")
        self.close()

    def _fail(self, text: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(RequestFailed(text))


def request(method: str, path: str, host: str, body: bytes = b"") -> bytes:
    """A request's bytes."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
