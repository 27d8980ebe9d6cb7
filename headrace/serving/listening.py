"""The common part of all processes of Headrace that listen: a socket, its address, a log, a loop.

A worker has no HTTP and a supervisor answers nothing itself. So this stands apart from ``server.py``, which loads
uvicorn, FastAPI and all routes: a second of processor time for each process that only wanted a socket, and a second
later for the shards of a worker that was killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from datetime import UTC, datetime

from headrace.errors import HeadraceError
from headrace.settings import Settings

GRACE_SECONDS = 10
"""Seconds beyond the read timeout that requests under way have at a stop; then they are cancelled."""

BACKLOG = 2048


class StartFailed(HeadraceError):
    """The server cannot start; the message is one line for the terminal."""

    code = "start_failed"


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """A listening socket; raises StartFailed where the address is taken or not ours."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        # asyncio and socket say the address in the reason again, which is ours to say.
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        hint = f"; is another server running? choose another with {flag}" if "in use" in reason else ""
        raise StartFailed(f"cannot listen on {host}:{port}: {reason}{hint}") from error


def address(listening: socket.socket) -> str:
    """The socket's URL on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class JsonLines(logging.Formatter):
    """A line of the log as a JSON object, for whoever collects logs."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to_standard_error(settings: Settings) -> None:
    """Ours from ``log_level`` on. Libraries are heard from warnings on: httpx has a line for each request, and our own
    messages replace uvicorn's about its start and stop."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if settings.log_format == "json" else plain)
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.basicConfig(level=max(logging.WARNING, level), handlers=[handler], force=True)
    logging.getLogger("headrace").setLevel(level)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's, as uvicorn chooses it too; asyncio's own where there is no uvloop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
