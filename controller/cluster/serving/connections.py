"""Ways to each worker process: a connection, made at its first request and again when it broke, and its reader map."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache

from domains.errors import HeadraceError, NoLeader, Unavailable
from worker.protocol.messages import ConnectionLost, Hello, Role
from worker.reader_map import ReaderClient
from worker.wire.connection import Connection, connect
from zookeeper.registration import ApiDescriptor, WorkerDescriptor
from zookeeper.secret import Secret

_log = logging.getLogger("headrace.api")

Attach = Callable[[str], ReaderClient]
"""Opens the map in a directory."""


class ReaderMaps:
    """The reader maps of workers on this host, which are read without asking any process.

    Each process of a worker makes a map of its own. The map of a worker that died is read until its domains are given
    to others: it holds the rows of that moment, and a read that must be newer carries a token.
    """

    def __init__(self, attach: Attach = ReaderClient) -> None:
        self._attach = attach
        self._clients: dict[WorkerDescriptor, ReaderClient | None] = {}

    def client(self, worker: WorkerDescriptor) -> ReaderClient | None:
        """None if the map is on another host, or cannot be opened: then the worker is asked."""
        if worker not in self._clients:
            self._clients[worker] = self._opened(worker)
        return self._clients[worker]

    def _opened(self, worker: WorkerDescriptor) -> ReaderClient | None:
        if not worker.reader_map or not is_local(worker.host):
            return None
        try:
            return self._attach(worker.reader_map)
        except HeadraceError as error:
            _log.warning('the reader map of worker "%s" is not read here: %s', worker.name, error)
            return None

    def keep(self, workers: Iterable[WorkerDescriptor]) -> None:
        """Close the maps of all other workers, which nobody may use any more."""
        for gone in self._clients.keys() - set(workers):
            client = self._clients.pop(gone)
            if client is not None:
                client.close()


@lru_cache(maxsize=1024)
def is_local(host: str) -> bool:
    """Whether it is an address of this host."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
            return True
    except OSError:
        return False
    return False


class ReaderGone(Unavailable):
    """The reader was dropped or replaced, so the view is looked up again. Users never see this error."""


def no_leader(why: str) -> NoLeader:
    return NoLeader(
        f"no controller leads: {why}",
        hint="reads and writes go on; changes are taken again when a controller leads",
    )


Process = WorkerDescriptor | ApiDescriptor

CONNECT_SECONDS = 1.0
"""Seconds for connecting to a worker: a healthy network takes a thousandth of that, and reads wait for it."""


class Connections:
    def __init__(self, hello: Hello, secret: Secret | None = None) -> None:
        self._hello = hello
        self._secret = secret
        self._open: dict[Process, Connection] = {}
        self._opening: dict[Process, asyncio.Task[Connection]] = {}

    def known(self, worker: Process) -> Connection | None:
        """The connection, if it is open now."""
        connection = self._open.get(worker)
        return connection if connection is not None and connection.is_open() else None

    async def to(self, worker: Process) -> Connection:
        """Raises ConnectionLost (not sent), WrongDeployment, ProtocolError."""
        connection = self.known(worker)
        if connection is not None:
            return connection
        opening = self._opening.get(worker)
        if opening is None:
            opening = self._opening[worker] = asyncio.create_task(self._connect(worker))
            opening.add_done_callback(lambda done: self._opened(worker, done))
        # Shielded: if one caller gives up, others still wait for the same connection.
        return await asyncio.shield(opening)

    def _opened(self, worker: Process, done: asyncio.Task[Connection]) -> None:
        self._opening.pop(worker, None)
        if not done.cancelled():
            done.exception()  # Marked as retrieved: perhaps no caller waits any more.

    async def _connect(self, worker: Process) -> Connection:
        door = Role.WORKER if isinstance(worker, WorkerDescriptor) else Role.API
        connection = await connect(
            worker.host, worker.port, self._hello, timeout=CONNECT_SECONDS, secret=self._secret, door=door
        )
        assert connection.peer is not None
        if connection.peer.incarnation != worker.incarnation:
            connection.close()
            raise ConnectionLost(f'another process than "{worker.name}" answers at its address')
        self._open[worker] = connection
        return connection

    def keep(self, workers: Iterable[Process]) -> None:
        """Abort the connections to all other workers, and their requests."""
        for gone in self._open.keys() - set(workers):
            error = ConnectionLost(f'"{gone.name}" is gone')
            self._open.pop(gone).abort(error)

    async def close(self) -> None:
        for opening in list(self._opening.values()):
            opening.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for connection in self._open.values():
            connection.close()
            await connection.closed.wait()
        self._open.clear()
