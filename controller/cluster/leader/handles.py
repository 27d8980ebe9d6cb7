"""A worker as the leader sees it: something that is asked, and that may be gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from domains.errors import HeadraceError, Unavailable
from worker.protocol.messages import ConnectionLost, Role, Welcome
from worker.wire.connection import Connection, connect, greeting
from zookeeper.registration import WorkerDescriptor

# Asking several at once, and hearing of all of them.


async def together(calls: Iterable[Any]) -> list[Any]:
    """All answers, in order; when one fails, the first error, once all have ended: none goes on unseen."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


class WorkerGone(Unavailable):
    """The process that was meant is surely not there any more: nobody listens at its address, or another one does."""


class Deposed(HeadraceError):
    """Another leads, or may lead. Whoever hears it stops leading and changes nothing more."""

    code = "deposed"


class WorkerHandle(Protocol):
    """One connection to one process of a worker. Requests are answered in any order, but begun in the order given:
    what was asked before a ``Report`` is reflected by it."""

    @property
    def descriptor(self) -> WorkerDescriptor: ...

    @property
    def lost(self) -> asyncio.Event:
        """Set when the connection is gone. The process may still be there."""

    async def ask(self, message: Any) -> Any:
        """The worker's answer. Raises the HeadraceError that it answered, and ConnectionLost."""

    async def close(self) -> None:
        """Requests that are not answered yet fail with ConnectionLost."""


class Connect(Protocol):
    """How the leader reaches a worker: over the wire, or, in a simulation, in memory."""

    async def __call__(self, worker: WorkerDescriptor) -> WorkerHandle:
        """Raises WorkerGone where that process is surely not there, and ConnectionLost where it is not known."""


class WireHandle:
    """See :class:`WorkerHandle`: a worker in another process, over TCP."""

    def __init__(self, descriptor: WorkerDescriptor, connection: Connection) -> None:
        self._descriptor = descriptor
        self._connection = connection

    @property
    def descriptor(self) -> WorkerDescriptor:
        return self._descriptor

    @property
    def lost(self) -> asyncio.Event:
        return self._connection.closed

    async def ask(self, message: Any) -> Any:
        return await self._connection.ask(message)

    async def close(self) -> None:
        # Not closed politely: callers that wait for an answer of a hung worker get the error now.
        self._connection.abort(ConnectionLost("the controller gave the worker up", sent=True))
        await self._connection.closed.wait()


@dataclass(frozen=True, slots=True)
class Wire:
    """See :class:`Connect`; ``name`` is this controller's."""

    deployment: str
    name: str
    incarnation: int

    async def __call__(self, worker: WorkerDescriptor) -> WorkerHandle:
        hello = greeting(self.deployment, Role.CONTROLLER, self.name, self.incarnation)
        try:
            connection = await connect(worker.host, worker.port, hello)
        except ConnectionLost as error:
            if isinstance(error.__context__, ConnectionRefusedError):
                raise WorkerGone(f"nobody listens at {worker.host}:{worker.port}") from error
            raise
        peer = connection.peer
        assert isinstance(peer, Welcome), "a connection is given out after its greeting"
        if (peer.name, peer.incarnation) != (worker.name, worker.incarnation):
            connection.close()
            raise WorkerGone(f'at {worker.host}:{worker.port} there is "{peer.name}", process {peer.incarnation}')
        return WireHandle(worker, connection)
