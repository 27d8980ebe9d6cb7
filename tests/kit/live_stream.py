"""Clients of live views inside the test's process: they speak ASGI, read as slowly as they are told to, and fold.

Those that are ``straight`` are also what a socket is to a stream (``api.limits.StraightWay``)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from api.limits import STRAIGHT

Headers = dict[str, str]


@dataclass(slots=True)
class Answered:
    status: int
    headers: Headers
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def get(app: Any, url: str, headers: Headers | None = None) -> Answered:
    stream = EventReader(app, url, headers or {})
    await stream.ended.wait()
    return Answered(stream.status, stream.headers, bytes(stream.body))


class EventReader:
    """One request, whose answer comes piece by piece. ``open`` is an event: while it is clear, nothing is read."""

    def __init__(
        self,
        app: Any,
        url: str,
        headers: Headers | None = None,
        method: str = "GET",
        body: bytes = b"",
        straight: bool = True,
    ):
        self.status = 0
        self.headers: Headers = {}
        self.body = bytearray()
        self.ended = asyncio.Event()
        self.began = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self._sent = body
        self._came = asyncio.Event()
        self._closing = asyncio.Event()
        self._asked = False
        self._at = 0
        self._straight = {STRAIGHT: self} if straight else {}
        self._task = asyncio.create_task(self._run(app, url, headers or {}, method))

    async def _run(self, app: Any, url: str, headers: Headers, method: str) -> None:
        parts = urlsplit(url)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("192.0.2.1", 1),
            "server": ("test", 80),
            **self._straight,
        }
        try:
            await app(scope, self._receive, self._send)
        finally:
            self.ended.set()
            self._came.set()

    def takes(self) -> bool:
        return self.reads.is_set()

    def put(self, piece: bytes) -> None:
        assert self.began.is_set()
        assert not self.ended.is_set()
        self.body += piece
        self._came.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._sent, "more_body": False}
        await self._closing.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.began.set()
        else:
            await self.reads.wait()
            self.body += message.get("body", b"")
            self._came.set()

    async def event(self) -> tuple[str, Any] | None:
        """The next event; None at the end."""
        while True:
            end = self.body.find(b"\n\n", self._at)
            if end >= 0:
                block, self._at = bytes(self.body[self._at : end]).decode(), end + 2
                found = _parsed(block)
                if found is not None:
                    return found
                continue
            if self.ended.is_set():
                return None
            self._came.clear()
            await self._came.wait()

    async def close(self) -> None:
        self._closing.set()
        self.reads.set()
        await self._task


class SocketReader:
    """A WebSocket, as ASGI has it. While ``reads`` is clear, nothing is read."""

    def __init__(self, app: Any, headers: Headers | None = None, url: str = "/v1/live", straight: bool = True):
        self.status = 0
        """101: it was accepted."""
        self.refusal = b""
        self.began = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.closed: int | None = None
        """With which code the server closed it."""
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self._texts: asyncio.Queue[Any] = asyncio.Queue()
        self._said.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "path": urlsplit(url).path,
            "raw_path": urlsplit(url).path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "ws",
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "client": ("192.0.2.1", 1),
            "server": ("test", 80),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
            **({STRAIGHT: self} if straight else {}),
        }
        self._task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: Any, scope: Any) -> None:
        try:
            await app(scope, self._said.get, self._send)
        finally:
            self.began.set()
            self._texts.put_nowait(None)

    async def _send(self, message: Any) -> None:
        kind = message["type"]
        if kind == "websocket.accept":
            self.status = 101
            self.began.set()
        elif kind == "websocket.close":
            self.closed = message["code"]
            self._said.put_nowait({"type": "websocket.disconnect", "code": self.closed})
        elif kind == "websocket.http.response.start":
            self.status = message["status"]
        elif kind == "websocket.http.response.body":
            self.refusal += message["body"]
        else:
            await self.reads.wait()
            self.put(message["bytes"])

    def takes(self) -> bool:
        return self.reads.is_set()

    def put(self, piece: bytes) -> None:
        assert self.status == 101
        for text in unframed(piece):
            self._texts.put_nowait(json.loads(text))

    def say(self, **members: Any) -> None:
        self._said.put_nowait({"type": "websocket.receive", "text": json.dumps(members)})

    async def text(self) -> Any:
        """The next text that says something; None at the end."""
        while (found := await self._texts.get()) == []:
            pass
        return found

    async def close(self) -> None:
        self._said.put_nowait({"type": "websocket.disconnect", "code": 1005})
        self.reads.set()
        await self._task


def unframed(frames: bytes) -> list[bytes]:
    """The texts in what a server sends (RFC 6455, 5.2): whole, and not masked."""
    texts, at = [], 0
    while at < len(frames):
        assert frames[at] == 0x81
        size, at = frames[at + 1], at + 2
        if size > 125:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(frames[at : at + width]), at + width
        texts.append(frames[at : at + size])
        at += size
    return texts


def _parsed(block: str) -> tuple[str, Any] | None:
    name, data = "message", []
    for line in block.split("\n"):
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            data.append(value)
    return (name, json.loads("\n".join(data))) if data else None


@dataclass(slots=True)
class Folded:
    """The rows that messages come to, by key; in the order of their places where they have them. Whatever is no change
    of what is there fails: a repetition, or something that was left out."""

    rows: dict[str, Any] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def take(self, messages: list[Any]) -> None:
        if messages and messages[0]["headers"].get("control") == "snapshot-start":
            assert messages[-1]["headers"]["control"] == "snapshot-end"
            self.rows.clear()
            self.order.clear()
            messages = messages[1:-1]
        placed = []
        for message in messages:
            key, operation = message["key"], message["headers"]["operation"]
            if operation == "insert":
                assert key not in self.rows, f"inserted twice: {message}"
            else:
                assert key in self.rows, f"not there: {message}"
                self.order.remove(key)
                del self.rows[key]
            if operation != "delete":
                assert key not in self.rows, message
                self.rows[key] = message["value"]
                placed.append((message["headers"].get("place"), key))
        for place, key in placed:
            self.order.insert(len(self.order) if place is None else place, key)

    def listed(self) -> list[Any]:
        return [self.rows[key] for key in self.order]


Ask = Callable[[str], Awaitable[Answered]]
