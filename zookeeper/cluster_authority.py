"""The Authority of a cluster: state by compare-and-set, who is there, and who leads.

Every method and callback runs on one event loop. What changes is only announced: whoever hears of it reads again, so
an announcement too many does no harm, and several changes may be announced as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from zookeeper.descriptors import ControllerDescriptor, WorkerDescriptor

STATE_BYTES_MAX = 1_000_000
"""ZooKeeper refuses packets of more than 1,048,575 bytes (jute.maxbuffer) unless all its servers are told otherwise."""

SESSION_TIMEOUT = 1.5
"""Seconds without a sign of life after which what a process registered is gone. Shorter, and a pause of a busy machine
looks like a death; longer, and a dead leader is missed for longer."""


class Change(Enum):
    STATE = "state"
    WORKERS = "workers"
    LEADER = "leader"
    """The leader, or the candidates."""
    CONNECTION = "connection"
    """``connected`` is another, or the session was lost and begun anew."""


Listener = Callable[[Change], None]


class Election(Protocol):
    """One candidacy. When it is lost it is over: ``candidate`` gives another."""

    @property
    def lost(self) -> asyncio.Event:
        """Set as soon as it is known that the session is gone, or that another leads. Being cut off from ZooKeeper is
        not yet that: while all of it is away nobody else can lead, and the epoch fences off whoever does not know."""

    async def elected(self) -> None:
        """Returns when this candidate leads. Waits through lost connections and sessions."""

    async def resign(self) -> None:
        """Give the lead or the candidacy up; ``lost`` is set."""


class ClusterAuthority(Protocol):
    """One process's session. Methods raise AuthorityUnavailable where ZooKeeper does not answer in time."""

    @property
    def deployment(self) -> str: ...

    @property
    def deployment_id(self) -> str:
        """What tells it from another one of the same name (``worker/belonging.py``); known after ``start``."""

    @property
    def connected(self) -> bool: ...

    @property
    def lost_at(self) -> float:
        """The loop's time at which this process's session was lost last; long ago if it never was."""

    @property
    def superseded(self) -> asyncio.Event:
        """Set when a newer process registered under this worker's name: this one has no business any more."""

    async def start(self, *, create: bool = False) -> None:
        """Connect. ``create`` makes the deployment if there is none; else that raises WrongDeployment.

        Raises AuthorityUnavailable, NotZooKeeper, AccessRefused.
        """

    async def close(self) -> None:
        """End the session: what was registered is gone at once."""

    async def read(self) -> tuple[bytes | None, int]:
        """The state and its version, as new as any that was written before the call; (None, 0) before the first."""

    async def write(self, state: bytes, version: int) -> int:
        """Replace the state that was read at ``version``; answers the new version. Raises StateConflict, StateTooLarge,
        and AuthorityUnavailable, with ``maybe_done`` where it cannot be known whether it was written."""

    async def register_worker(self, descriptor: WorkerDescriptor) -> None:
        """Register under ``descriptor.name``, and again by itself whenever the session was lost. Once more: replace.

        An earlier process of the same host and data directory is replaced at once; raises NameTaken where another one
        is alive.
        """

    async def workers(self) -> Mapping[str, WorkerDescriptor]:
        """By name, sorted."""

    def candidate(self, descriptor: ControllerDescriptor) -> Election:
        """Stand for leader from now on."""

    async def leader(self) -> ControllerDescriptor | None: ...

    async def candidates(self) -> Mapping[str, ControllerDescriptor]:
        """All that stand or lead, by name, sorted."""

    def on_change(self, listener: Listener) -> None:
        """Call the listener at each change from now on, on the event loop."""
