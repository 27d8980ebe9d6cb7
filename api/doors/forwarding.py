"""Requests in transactions that another api process of the cluster has begun: that one answers them.

::

    client ── Headrace-Transaction: id-18f2a… ──► this process ── over the link of the two ──► the process of the id
           ◄──────────────── its answer, as it is ─────────────

The id names the process. What a client sends to say who it is goes along, and is checked there as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from api.endpoints import TRANSACTION
from api.limits import Admission, read_body
from api.statuses import CERTIFICATE, describe
from controller.transactions.sessions import Sessions
from domains.errors import BadRequest
from worker.protocol.operations import ForwardedAnswer, ForwardedRequest

PREFIX = "/v1/transactions/"
FORWARDED = "headrace.forwarded"
"""In ASGI's scope: another process has passed it on."""
JSON = (b"content-type", b"application/json")
Routed = Callable[[Scope, Receive, Send], Awaitable[None]]


class Forwarding:
    """Passes requests on, and answers those that others pass on by ``route``."""

    def __init__(self, sessions: Sessions, admission: Admission, route: Routed) -> None:
        self._sessions = sessions
        self._admission = admission
        self._route = route
        if sessions.others is not None:
            sessions.others.answering = self.answer

    def process(self, scope: Scope) -> int:
        """The other process that is to answer it; 0: this one."""
        if self._sessions.others is None or scope["type"] != "http" or FORWARDED in scope:
            return 0
        path: str = scope["path"]
        id = path.removeprefix(PREFIX).partition("/")[0] if path.startswith(PREFIX) else ""
        for name, value in scope["headers"]:
            if name == TRANSACTION:
                id = value.decode("latin-1")
        return self._sessions.elsewhere(id) if id else 0

    async def pass_on(self, process: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the other process answer it. Who sends it was let in here."""
        others = self._sessions.others
        assert others is not None, "there is another process"
        try:
            if scope.get(CERTIFICATE) is not None and all(name != b"authorization" for name, _ in scope["headers"]):
                raise BadRequest(
                    "the transaction was begun at another api process, which does not see the client's certificate",
                    hint="send its requests to that one, or with a key",
                )
            body = await read_body(scope["headers"], receive, self._admission)
            headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
            client = scope.get("client")
            asked = ForwardedRequest(
                scope["method"], scope["path"], scope["query_string"], headers, body, client[0] if client else ""
            )
            found = await others.forward(process, asked)
        except Exception as error:
            status, told = describe(error, scope["path"])
            found = ForwardedAnswer(status, (JSON, (b"content-length", b"%d" % len(told))), told)
        await send({"type": "http.response.start", "status": found.status, "headers": list(found.headers)})
        await send({"type": "http.response.body", "body": found.body})

    async def answer(self, asked: ForwardedRequest) -> ForwardedAnswer:
        """As if the client had sent it here."""
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": asked.method,
            "path": asked.path,
            "raw_path": asked.path.encode(),
            "root_path": "",
            "query_string": asked.query,
            "headers": list(asked.headers),
            "client": (asked.address, 0),
            FORWARDED: True,
        }
        status, headers, pieces = 500, tuple[tuple[bytes, bytes], ...](), list[bytes]()
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": asked.body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = tuple((bytes(name), bytes(value)) for name, value in message["headers"])
            else:
                pieces.append(message.get("body", b""))

        await self._route(scope, receive, send)
        return ForwardedAnswer(status, headers, b"".join(pieces))
