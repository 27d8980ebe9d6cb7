"""The short door: the calls that an application makes all day, as plain ASGI in front of FastAPI.

A request through FastAPI costs some 150 µs of Python; a look-up itself is done in a few, and what an api process of a
cluster has to do for a write in some tens. So this door takes ``GET /v1/views/{view}``, ``POST
/v1/views/{view}/lookup``, ``POST /v1/lookups`` and the three writes of ``/v1/tables/{table}/rows``, and hands
everything else on, writes of browsers too. FastAPI declares them as well (``routes/``), for the documentation and for
who mounts it without this door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from api import tokens
from api.dependencies import checked
from api.encoding import serialize
from api.limits import read_body
from api.lookups import Lookups, parse_keys, parse_lookups, parse_query
from api.metrics import Requests
from api.routes.tables import written
from api.schemas import DeleteRequest, RowsRequest, UpdateRequest
from api.statuses import describe
from controller.deployment import Deployment, WriteResult
from domains.packets import Clock

PREFIX = "/v1/views/"
LOOKUP = "/lookup"
LOOKUPS = "/v1/lookups"
TABLES = "/v1/tables/"
ROWS = "/rows"
PAGE_ROUTE = "GET /v1/views/{view}"
LOOKUP_ROUTE = "POST /v1/views/{view}/lookup"
LOOKUPS_ROUTE = "POST /v1/lookups"
ROWS_ROUTE = "/v1/tables/{table}/rows"
JSON = (b"content-type", b"application/json")
GONE_SECONDS = 1.0
"""Within which uvicorn hears that a connection was closed. It takes a turn of the loop."""


class HotRoute:
    """The whole application: answers look-ups itself, passes other requests to ``app``."""

    def __init__(
        self, app: ASGIApp, lookups: Lookups, deployment: Deployment, requests: Requests, max_body: int
    ) -> None:
        self.app = app
        self._lookups = lookups
        self._max_body = max_body
        self._page_times = requests.route(PAGE_ROUTE)
        self._lookup_times = requests.route(LOOKUP_ROUTE)
        self._lookups_times = requests.route(LOOKUPS_ROUTE)
        self._deployment = deployment
        self._write_times = {method: requests.route(f"{method} {ROWS_ROUTE}") for method in WRITES}

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
            path: str = scope["path"]
            if path.startswith(PREFIX):
                method, name = scope["method"], path[len(PREFIX) :]
                if method == "GET" and name and "/" not in name:
                    return await self._page(name, scope, send)
                if method == "POST" and name.endswith(LOOKUP) and name.count("/") == 1 and name != LOOKUP:
                    return await self._lookup(name[: -len(LOOKUP)], scope, receive, send)
            elif path == LOOKUPS and scope["method"] == "POST":
                return await self._many(scope, receive, send)
            elif path.startswith(TABLES) and path.endswith(ROWS) and scope["method"] in WRITES:
                table = path[len(TABLES) : -len(ROWS)]
                if table and "/" not in table and not _is_from_a_browser(scope["headers"]):
                    return await self._write(table, scope, receive, send)
        return await self.app(scope, receive, send)

    async def _page(self, view: str, scope: Scope, send: Send) -> None:
        # Runs once a request and is most of what a read costs beside uvicorn: no request object, no model, no
        # await where the answer is there.
        started = perf_counter()
        status = 200
        try:
            parameters = parse_query(scope["query_string"])
            token = _token(scope["headers"])
            body = None if token is not None else self._lookups.try_page(view, parameters)
            if body is None:
                body = await self._lookups.page(view, parameters, token)
        except Exception as error:
            status, body = describe(error, PAGE_ROUTE)
        await _answer(send, status, body)
        self._page_times.add(status, perf_counter() - started)

    async def _lookup(self, view: str, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        status = 200
        try:
            keys = parse_keys(await read_body(scope["headers"], receive, self._max_body))
            body = await self._lookups.pages(view, keys, _token(scope["headers"]))
        except Exception as error:
            status, body = describe(error, LOOKUP_ROUTE)
        await _answer(send, status, body)
        self._lookup_times.add(status, perf_counter() - started)

    async def _many(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        status = 200
        try:
            wanted = parse_lookups(await read_body(scope["headers"], receive, self._max_body))
            body = await self._lookups.many(wanted, _token(scope["headers"]))
        except Exception as error:
            status, body = describe(error, LOOKUPS_ROUTE)
        await _answer(send, status, body)
        self._lookups_times.add(status, perf_counter() - started)

    async def _write(self, table: str, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        status, method = 200, scope["method"]
        try:
            read = await read_body(scope["headers"], receive, self._max_body)
            body = serialize(written(await WRITES[method](self._deployment, table, read)))
        except Exception as error:
            status, body = describe(error, f"{method} {ROWS_ROUTE}")
        await _answer(send, status, body)
        self._write_times[method].add(status, perf_counter() - started)


def _insert(deployment: Deployment, table: str, body: bytes) -> Awaitable[WriteResult]:
    request = checked(RowsRequest, body)
    return deployment.insert(table, request.rows, request.place, request.duplicate)


def _update(deployment: Deployment, table: str, body: bytes) -> Awaitable[WriteResult]:
    request = checked(UpdateRequest, body)
    return deployment.update(table, request.key, request.set)


def _delete(deployment: Deployment, table: str, body: bytes) -> Awaitable[WriteResult]:
    return deployment.delete(table, checked(DeleteRequest, body).key)


WRITES: dict[str, Callable[[Deployment, str, bytes], Awaitable[WriteResult]]] = {
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


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers: Any = (JSON, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _token(headers: list[tuple[bytes, bytes]]) -> Clock | None:
    for name, value in headers:
        if name == b"headrace-token":
            return tokens.decode(value.decode("latin-1"))
    return None
