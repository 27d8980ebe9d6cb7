"""The application until there is a deployment: it says how far the start is. The server then puts another in place.

A start is mostly over within a second, so a request waits a little for it: whoever starts a server and asks at once, or
restarts one behind its clients, gets an answer instead of an error.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from api.limits import Admission
from api.statuses import STATUSES
from controller.deployment import ReasonKind
from controller.embedded.opening import Opening
from domains.errors import Unavailable

RETRY_AFTER = b"1"
"""Seconds. Most starts are over within one or two."""
PATIENCE_SECONDS = 5.0
"""The longest that a request waits for the end of the start."""
LIVE, READY = "/healthz", "/readyz"
METRICS = "/metrics"
AT_ONCE = (LIVE, READY, METRICS)
"""What is asked about the start itself."""


class OpeningDoor:
    """Answers 503 with progress when the patience ends, and at once what asks about the start."""

    def __init__(self, opening: Opening, admission: Admission) -> None:
        self.opening = opening
        self.admission = admission
        self._over = asyncio.Event()
        self._app: ASGIApp | None = None

    def end(self, app: ASGIApp | None = None) -> None:
        """The start is over: requests that wait go to ``app``, or are refused where there is none."""
        self._app = app
        self._over.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = {"http": "http.response", "websocket": "websocket.http.response"}.get(scope["type"])
        if kind is None:
            return
        if scope["path"] not in AT_ONCE:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), PATIENCE_SECONDS)
        if self._app is not None:
            await self._app(scope, receive, send)
        else:
            status, media, body = self._answer(scope["path"])
            headers = [(b"content-type", media), (b"content-length", b"%d" % len(body))]
            if status != 200:
                headers.append((b"retry-after", RETRY_AFTER))
            await send({"type": f"{kind}.start", "status": status, "headers": headers})
            await send({"type": f"{kind}.body", "body": b"" if scope.get("method") == "HEAD" else body})

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        opening = self.opening
        progress = {
            "phase": opening.phase,
            "done": opening.done,
            "total": opening.total,
            "seconds": round(opening.seconds, 1),
        }
        if path == LIVE:
            return 200, b"application/json", orjson.dumps({"status": "starting", "starting": progress})
        if path == METRICS:
            lines = [f"headrace_start_{name} {progress[name]}\n" for name in ("done", "total", "seconds")]
            return 200, b"text/plain; version=0.0.4; charset=utf-8", "".join(lines).encode()
        error = Unavailable(f"the server is starting ({opening.text()})", hint="try again in a second")
        shown = {"code": error.code, "message": error.message, "hint": error.hint}
        document: dict[str, object] = {"error": shown, "starting": progress}
        if path == READY:
            document["reasons"] = [{"reason": ReasonKind.STARTING, "message": opening.text()}]
        return STATUSES[Unavailable], b"application/json", orjson.dumps(document)
