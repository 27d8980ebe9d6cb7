"""The short door: the calls that an application makes all day, as plain ASGI in front of FastAPI.

A request through FastAPI costs some 150 µs of Python; a look-up itself is done in a few, and what an api process of a
cluster has to do for a write in some tens. So this door makes the calls of ``endpoints.py``, and hands everything else
on, writes of browsers too. FastAPI declares them as well (``routes/``), for the documentation and for who mounts it
without this door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from headrace_client import tokens
from starlette.types import ASGIApp, Receive, Scope, Send

from api.dependencies import checked
from api.endpoints import EndpointCall, Endpoints, Write
from api.limits import read_body
from api.lookups.lookups import LookupCalls
from api.metrics import RequestMetrics
from api.schemas import DeleteRequest, RowsBody, UpdateRequest
from api.statuses import describe
from controller.deployment import Deployment, WriteResult
from domains.plan.packets import Clock

JSON = (b"content-type", b"application/json")
TYPES = b"headrace-types"
GONE_SECONDS = 1.0
"""Within which uvicorn hears that a connection was closed. It takes a turn of the loop."""


class AsgiDoor:
    """The whole application: makes hot calls itself, passes other requests to ``app``."""

    def __init__(
        self, app: ASGIApp, lookups: LookupCalls, deployment: Deployment, requests: RequestMetrics, max_body: int
    ) -> None:
        self.app = app
        self.endpoints = Endpoints(lookups, deployment, requests, WRITES, max_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._route(scope, receive, send)
        except RuntimeError:
            # What a handler raises is answered, so this came of sending. uvloop refuses to write to a connection that
            # was closed a moment ago, before uvicorn has heard of it: nobody is there to be told, and nothing is wrong.
            if scope["type"] != "http" or not await _has_gone(receive):
                raise

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = self.endpoints.find(scope["method"], scope["path"])
            if found is not None and not (found[0].writes and _is_from_a_browser(scope["headers"])):
                return await self._make(*found, scope, receive, send)
        return await self.app(scope, receive, send)

    async def _make(self, call: EndpointCall, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        try:
            body = b"" if scope["method"] == "GET" else await read_body(headers, receive, self.endpoints.max_body)
            token = _token(headers)
        except Exception as error:
            status, answer = describe(error, call.route)
            types = b""
            call.times.add(status, 0.0)
        else:
            begun = call.begin(name, scope["query_string"], body, token)
            status, answer, types = begun if isinstance(begun, tuple) else await begun
        await _answer(send, status, answer, types)


def _insert(deployment: Deployment, table: str, body: bytes) -> Awaitable[WriteResult]:
    request = checked(RowsBody, body)
    return deployment.insert(table, request.rows, request.place, request.duplicate)


def _update(deployment: Deployment, table: str, body: bytes) -> Awaitable[WriteResult]:
    request = checked(UpdateRequest, body)
    return deployment.update(table, request.key, request.set)


def _delete(deployment: Deployment, table: str, body: bytes) -> Awaitable[WriteResult]:
    return deployment.delete(table, checked(DeleteRequest, body).key)


WRITES: dict[str, Write] = {
    "POST": _insert,
    "PATCH": _update,
    "DELETE": _delete,
}


def _is_from_a_browser(headers: list[tuple[bytes, bytes]]) -> bool:
    """Those have rules of their own (``json_body``)."""
    return any(name == b"origin" for name, _ in headers)


async def _has_gone(receive: Receive) -> bool:
    """Whether the client has closed the connection."""
    try:
        async with asyncio.timeout(GONE_SECONDS):
            while (await receive())["type"] == "http.request":
                pass
    except TimeoutError:
        return False
    return True


async def _answer(send: Send, status: int, body: bytes, types: bytes) -> None:
    headers: Any = (JSON, (b"content-length", b"%d" % len(body)), *([(TYPES, types)] if types else []))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _token(headers: list[tuple[bytes, bytes]]) -> Clock | None:
    for name, value in headers:
        if name == b"headrace-token":
            return tokens.decode(value.decode("latin-1"))
    return None
