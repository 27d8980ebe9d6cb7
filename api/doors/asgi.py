"""The endpoints as plain ASGI, in front of FastAPI.

A request through FastAPI costs some 150 µs of Python; a look-up itself takes a few, and a write in an api process of a
cluster some tens. FastAPI's routes (``routes/``) document the endpoints, and delegate to them where a request comes
that way (HEAD does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from api.auditing import HttpAudit
from api.doors.browsers import SocketOrigins, answering_pages
from api.doors.forwarding import Forwarding
from api.endpoints import CLAIMS, EndpointCall, Endpoints, RequestMetrics, token_of
from api.limits import check_browser, read_body
from api.statuses import CERTIFICATE, SCHEMES, SESSION, describe
from controller.access.session import Caller
from domains.errors import HeadraceError

JSON = (b"content-type", b"application/json")
TYPES = b"headrace-types"
UNVERIFIED = "unauthenticated"
"""The route that requests count for whose key, password or host is wrong."""
GONE_SECONDS = 1.0
"""Seconds within which uvicorn hears that a connection was closed. It takes a turn of the loop."""


class AsgiDoor:
    """The whole application: answers the endpoints itself, passes other requests to ``app``."""

    def __init__(
        self,
        app: ASGIApp,
        endpoints: Endpoints,
        requests: RequestMetrics,
        proxies: Sequence[str] = (),
        origins: Sequence[str] = (),
        audit: HttpAudit | None = None,
    ) -> None:
        """``proxies``: addresses and networks whose ``X-Forwarded-For`` says where a request comes from. ``origins``:
        see ``answering_pages``."""
        self.app = app
        self._routed: ASGIApp = self._route
        if proxies:
            self._routed = ProxyHeadersMiddleware(self._route, list(proxies))  # type: ignore[arg-type, assignment]
        self._routed = answering_pages(self._routed, origins)
        self._sockets = SocketOrigins(origins)
        self.endpoints = endpoints
        self.requests = requests
        endpoints.asks_origin = bool(proxies) and audit is not None
        self._audit = audit
        self.admission = endpoints.admission
        self._forwarding = Forwarding(endpoints.sessions, endpoints.admission, self._route)
        self.times = requests.route(UNVERIFIED)

    async def close(self) -> None:
        """End what was begun for it, which is no deployment."""
        await self.endpoints.beside.close()
        if self._audit is not None:
            await self._audit.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._routed(scope, receive, send)
        except RuntimeError:
            # What a handler raises is answered, so this came of sending. uvloop refuses to write to a connection that
            # was closed a moment ago, before uvicorn has heard of it: there is no client left to answer, and nothing is
            # wrong.
            if scope["type"] != "http" or not await _has_gone(receive):
                raise

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_socket = scope["type"] == "websocket"
        if is_socket:
            scope["method"], send = "GET", _refusing(send)
        elif scope["type"] != "http":
            return await self.app(scope, receive, send)
        client, audit = scope.get("client"), self._audit
        address = client[0] if client else ""
        asks = [value for name, value in scope["headers"] if name == b"authorization"]
        try:
            self.endpoints.hosts.check(scope["headers"], scope["path"])
            certificate = scope.get(CERTIFICATE)
            if is_socket and not self._sockets.check(scope):
                asks, certificate = [], None
            session = await self.endpoints.authentication.session(asks, address, certificate)
            claims = [value for name, value in scope["headers"] if name == CLAIMS]
            if claims:
                session = session.with_claims(b",".join(claims))  # Two are no JSON, and so refused.
            process = self._forwarding.process(scope)
            found = None if is_socket or process else self.endpoints.find(scope["method"], scope["path"])
            if found is not None:
                session = self.endpoints.entered(session, scope["headers"])
            if audit is not None and found is None:
                audit.check(scope)
        except HeadraceError as error:
            status, answer = describe(error, "authentication")
            self.times.add(status, 0.0)
            if audit is not None:
                audit.not_let_in(scope, (status, answer, b""), address, asks)
            return await _answer(send, status, b"" if scope["method"] == "HEAD" else answer)
        scope[SESSION] = session
        if process:
            return await self._forwarding.pass_on(process, scope, receive, send)
        if found is not None:
            return await self._make(*found, session, scope, receive, send)
        if audit is not None:
            return await audit.watched(self.app, scope, receive, send, address)
        return await self.app(scope, receive, send)

    async def _make(
        self, call: EndpointCall, name: str, session: Caller, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = scope["headers"]
        try:
            if call.writes:
                check_browser(headers)
            body = b"" if scope["method"] == "GET" else await read_body(headers, receive, self.admission)
            token = token_of(headers)
        except Exception as error:
            status, answer = describe(error, call.route)
            types = b""
            call.times.add(status, 0.0)
        else:
            client = scope.get("client")
            begun = call.begin(name, scope["query_string"], body, token, session, client[0] if client else "")
            status, answer, types = begun if isinstance(begun, tuple) else await begun
        await _answer(send, status, answer, types)


def _refusing(send: Send) -> Send:
    """Of a WebSocket that is not accepted: what refuses it is an HTTP answer."""

    async def sending(message: Message) -> None:
        refuses = message["type"].startswith("http.")
        await send({**message, "type": f"websocket.{message['type']}"} if refuses else message)

    return sending


async def _has_gone(receive: Receive) -> bool:
    """Whether the client has closed the connection."""
    try:
        async with asyncio.timeout(GONE_SECONDS):
            while (await receive())["type"] == "http.request":
                pass
    except TimeoutError:
        return False
    return True


async def _answer(send: Send, status: int, body: bytes, types: bytes = b"") -> None:
    headers: Any = (JSON, (b"content-length", b"%d" % len(body)), *([(TYPES, types)] if types else []))
    if status == 401:
        headers = (*headers, (b"www-authenticate", SCHEMES))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
