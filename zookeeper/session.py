"""A session with ZooKeeper, as small as we need it: znodes, versions, owners, one-shot watches.

There are two, ``KazooSession`` and ``MemorySession``. What the cluster does with one (registration, election, state) is
written once, in ``session_authority.py``, and so is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class NoNode(Exception):
    """There is no such znode."""


class NodeExists(Exception):
    """There is one already."""


class BadVersion(Exception):
    """The znode is not at the version that was named."""


class Link(Enum):
    """The events of a session."""

    CONNECTED = "connected"
    """Also when a new session was begun after the last one was lost."""
    SUSPENDED = "suspended"
    """The connection is gone; the session may live on, only ZooKeeper knows."""
    LOST = "lost"
    """ZooKeeper has said that the session is over: its ephemeral znodes are gone."""


@dataclass(frozen=True, slots=True)
class Znode:
    data: bytes
    version: int
    """0 when it was made; each ``set`` adds 1."""
    owner: int
    """The session that it goes with; 0 if it stays."""


Watch = Callable[[], None]
"""Called once, on the event loop: when what was read changes, or when the connection is gone and nobody can tell."""


class Session(Protocol):
    """Methods wait for a connection for as long as the session timeout, then raise AuthorityUnavailable (``maybe_done``
    where a change was sent and its answer lost); AccessRefused where an access list keeps us out."""

    @property
    def address(self) -> str:
        """The user's address of ZooKeeper, for messages."""

    @property
    def timeout(self) -> float:
        """The session timeout that was asked for, in seconds."""

    @property
    def id(self) -> int:
        """Of the present session; another one after the last was lost."""

    @property
    def connected(self) -> bool: ...

    def listen(self, listener: Callable[[Link], None]) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def until_connected(self) -> None:
        """Returns at once if it is; waits for as long as it takes."""

    async def sync(self) -> None:
        """A read after this is as new as anything written before it, whichever server is asked."""

    async def ensure(self, path: str) -> None:
        """The znode and its parents, without data, unless they are there."""

    async def get(self, path: str) -> Znode: ...

    async def look(self, path: str, watch: Watch) -> Znode | None:
        """The znode without its data, or None; ``watch`` is called when it comes, goes or changes."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names in no order. Raises NoNode, and then there is no watch."""

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None: ...

    async def set(self, path: str, data: bytes, version: int) -> int: ...

    async def delete(self, path: str, version: int = -1) -> None: ...
