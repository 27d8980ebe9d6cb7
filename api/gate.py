"""The middleware around FastAPI's routes: it counts requests, bounds bodies, answers HEAD and ends exceptions."""

from __future__ import annotations

from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.endpoints import RequestMetrics
from api.limits import HEAD, Admission, body_too_large
from api.statuses import describe

UNMATCHED = "unmatched"
HUNG_UP = 499
"""Counted where the client went before its request was read: nobody to answer, and no fault of ours to log."""


class Gate:
    """Sits inside Starlette's own error middleware, which would otherwise print traces and raise them again."""

    def __init__(self, app: ASGIApp, *, requests: RequestMetrics, admission: Admission) -> None:
        self._app = app
        self._requests = requests
        self._max_body = admission.limits.max_body_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        status = 0
        asks_for_head = scope["method"] == "HEAD"
        if asks_for_head:
            scope = {**scope, "method": "GET", HEAD: True}  # What GET would answer, with nothing but its head.

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif asks_for_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, self._bounded(scope, receive), sending)
        except ClientDisconnect:
            status = status or HUNG_UP
        except Exception as error:
            answer, body = describe(error, f"{scope['method']} {scope['path']}")
            if not status:
                await Response(body, answer, media_type="application/json")(scope, receive, sending)
        route = _route(scope)
        seconds = 0.0 if route.endswith("/live") and status < 400 else perf_counter() - started
        self._requests.route(route).add(status, seconds, scope["path"])  # A stream is not slow because it lasts.

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """``receive`` that raises LimitExceeded, announced or not, where the body passes the limit."""
        limit, size = self._max_body, 0
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")

        async def receiving() -> Message:
            nonlocal size
            if announced.isdigit() and int(announced) > limit:
                raise body_too_large(limit)
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise body_too_large(limit)
            return message

        return receiving


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return f"{scope['method']} {path}" if path else UNMATCHED
