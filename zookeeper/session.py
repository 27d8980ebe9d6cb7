"""A session with ZooKeeper, as small as we need it: znodes, versions, owners, one-shot watches.

There are two, ``KazooSession`` and ``MemorySession``. What the cluster does with one is in ``authority.py``
(state, election) and ``registration.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class NoNode(Exception):
    """There is no such znode."""


class NodeExists(Exception):
    """There is one already."""


class BadVersion(Exception):
    """The znode is at another version."""


class Link(Enum):
    """The events of a session."""

    CONNECTED = "connected"
    """Also with a new session, after the last one was lost."""
    SUSPENDED = "suspended"
    """The connection is gone; only ZooKeeper knows whether the session lives on."""
    LOST = "lost"
    """ZooKeeper says that the session is over: its ephemeral znodes are gone."""


@dataclass(frozen=True, slots=True)
class Znode:
    data: bytes
    version: int
    """0 when it was made; each ``set`` adds 1."""
    owner: int
    """The session that an ephemeral znode ends with; 0 if it stays."""


Watch = Callable[[], None]
"""Called once, on the event loop: when what was read changes, or when the connection is lost."""


class Session(Protocol):
    """Methods wait for a connection for the session timeout, then raise AuthorityUnavailable (``maybe_done`` if a
    change was sent and its answer lost); AccessRefused if an access list keeps us out."""

    address: str
    """The user's address of ZooKeeper, for messages."""
    timeout: float
    """The session timeout that was asked for, in seconds."""
    id: int
    """The id of the present session; another one after it was lost."""

    is_private: bool
    """Whether it is a ZooKeeper for this machine alone, and all of it is meant: what is in it is the deployment's."""

    @property
    def connected(self) -> bool: ...

    def listen(self, listener: Callable[[Link], None]) -> None: ...

    def allow(self, bearers: Sequence[str]) -> None:
        """Be the bearer of these, ``name:password``, from now on: what is made from here on is for them alone, and for
        anybody where there are none. What was borne before is still."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def until_connected(self) -> None:
        """Returns at once if it is connected; else waits for as long as it takes."""

    async def sync(self) -> None:
        """Reads after this see everything that was written before it, whichever server answers."""

    async def ensure(self, path: str) -> None:
        """Create the znode and its parents, without data, unless they are there."""

    async def protect(self, path: str) -> None:
        """Have a znode be for the present bearers, as if it were made now."""

    async def get(self, path: str) -> Znode: ...

    async def look(self, path: str, watch: Watch) -> Znode | None:
        """The znode without its data, or None; ``watch`` is called when it is created, deleted or changed."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names in no order. If it raises NoNode, there is no watch."""

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None: ...

    async def set(self, path: str, data: bytes, version: int) -> int: ...

    async def delete(self, path: str, version: int = -1) -> None: ...
