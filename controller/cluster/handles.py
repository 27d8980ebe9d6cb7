"""A worker as the leader sees it: something that is asked, and that may be gone."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from domains.errors import HeadraceError, Unavailable
from zookeeper.descriptors import WorkerDescriptor


class WorkerGone(Unavailable):
    """The process that was meant is surely not there any more: nobody listens at its address, or another one does."""


class Interrupted(Unavailable):
    """What was asked of a worker may have been done or not: the worker, or the connection to it, was lost meanwhile,
    or a recovery began. The graph is brought to what is decided, and then the change may be tried again."""


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

    async def close(self) -> None: ...


class Connect(Protocol):
    """How the leader reaches a worker: over the wire, or, in a simulation, in memory."""

    async def __call__(self, worker: WorkerDescriptor) -> WorkerHandle:
        """Raises WorkerGone where that process is surely not there, and ConnectionLost where it is not known."""
