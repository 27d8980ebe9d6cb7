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
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from ipaddress import ip_address

from headrace.errors import HeadraceError
from headrace.settings import Settings

GRACE_SECONDS = 10
"""Seconds beyond the read timeout that requests under way have at a stop; then they are cancelled."""

BACKLOG = 2048

_log = logging.getLogger("headrace.start")


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


def listen_for_mysql(settings: Settings) -> AbstractContextManager[socket.socket | None]:
    """The same for MySQL's clients, where they are wanted. The address is HTTP's: so what others must not reach without
    accounts is not reached here either."""
    if settings.mysql_port is None:
        return nullcontext()
    return listen(settings.host, settings.mysql_port, "--mysql-port")


def address(listening: socket.socket, scheme: str = "http") -> str:
    """The socket's URL on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_public(listening: socket.socket) -> bool:
    """Whether other machines reach it."""
    return not ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


LOOPBACK_NAMES = ("localhost", "*.localhost", "127.0.0.1", "::1")
"""No name server is asked for these: a page under one of them is from this machine."""


def hosts_of(settings: Settings, listening: socket.socket) -> list[str]:
    """The names that requests may have in ``Host``; ``*`` for any."""
    if not settings.allowed_hosts and is_public(listening):
        return ["*"]
    return [*settings.allowed_hosts, *LOOPBACK_NAMES, listening.getsockname()[0], settings.host]


def check_exposed(listening: socket.socket, settings: Settings, *, accounts: bool) -> None:
    """``accounts``: whether there are any.

    :raises StartFailed: others reach this server, and nobody would be asked who they are.
    """
    if accounts or not is_public(listening):
        return
    host = listening.getsockname()[0]
    if settings.insecure:
        _log.warning("whoever reaches %s may read, write and drop everything: there are no accounts (--insecure)", host)
        return
    place = f"--data {settings.data}" if settings.zookeeper is None else f"--zookeeper {settings.zookeeper}"
    place += "" if settings.secret_file is None else f" --secret-file {settings.secret_file}"
    raise StartFailed(
        f"whoever reaches {host} could read, write and drop everything: there are no accounts",
        hint=f"make an administrator first (headrace admin NAME {place}); or listen on 127.0.0.1; or say --insecure",
    )


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
