"""One connection to each worker process, made when it is first asked something, and made again when it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from worker.messages import Hello
from worker.wire import Connection, ConnectionLost, connect
from zookeeper.descriptors import WorkerDescriptor

CONNECT_SECONDS = 1.0
"""For a worker to be reached: on a network that is well it takes a thousandth of that, and reads wait for it."""


class Connections:
    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._open: dict[WorkerDescriptor, Connection] = {}
        self._opening: dict[WorkerDescriptor, asyncio.Task[Connection]] = {}

    def known(self, worker: WorkerDescriptor) -> Connection | None:
        """The connection, if it is open now."""
        connection = self._open.get(worker)
        return connection if connection is not None and connection.is_open() else None

    async def to(self, worker: WorkerDescriptor) -> Connection:
        """Raises ConnectionLost (not sent), WrongDeployment, ProtocolError."""
        connection = self.known(worker)
        if connection is not None:
            return connection
        opening = self._opening.get(worker)
        if opening is None:
            opening = self._opening[worker] = asyncio.create_task(self._connect(worker))
            opening.add_done_callback(lambda done: self._opened(worker, done))
        # Whoever waits may give up; the others go on waiting for the same connection.
        return await asyncio.shield(opening)

    def _opened(self, worker: WorkerDescriptor, done: asyncio.Task[Connection]) -> None:
        self._opening.pop(worker, None)
        if not done.cancelled():
            done.exception()  # Whoever waited has it; perhaps nobody waits any more.

    async def _connect(self, worker: WorkerDescriptor) -> Connection:
        connection = await connect(worker.host, worker.port, self._hello, timeout=CONNECT_SECONDS)
        assert connection.peer is not None
        if connection.peer.incarnation != worker.incarnation:
            connection.close()
            raise ConnectionLost(f'another process than worker "{worker.name}" answers at its address')
        self._open[worker] = connection
        return connection

    def keep(self, workers: Iterable[WorkerDescriptor]) -> None:
        """Give up the connections to all others: what was asked over them is answered by nobody."""
        for gone in self._open.keys() - set(workers):
            error = ConnectionLost(f'worker "{gone.name}" is there no more')
            self._open.pop(gone).abort(error)

    async def close(self) -> None:
        for opening in list(self._opening.values()):
            opening.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for connection in self._open.values():
            connection.close()
            await connection.closed.wait()
        self._open.clear()
