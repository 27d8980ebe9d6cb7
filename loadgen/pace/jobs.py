"""The jobs that a workload hands to the loop, and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from loadgen.peers.store import PeerSession


@dataclass(frozen=True, slots=True)
class Arrival:
    """One arrival: a page, or a batch of requests that a client sends together."""

    kind: str
    act: Callable[[PeerSession], Awaitable[None]]
    """Raises RequestFailed."""
    count: int = 1
    """Requests in it."""
    gathered: float = 0.0
    """Seconds over which those were gathered, until the arrival: their mean waiting is half of it."""


class Workload(Protocol):
    """A stream of jobs. The same seed gives the same stream."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str:
        """The unit of a rate: pages, requests."""
        ...

    def begin(self, rate: float) -> float:
        """Jobs a second for ``rate`` units a second; called before each point."""
        ...

    def draw(self, at: float) -> Arrival:
        """The job that arrives ``at`` seconds after the start."""
        ...
