"""What is told of statements and connections: which shapes were asked, what runs, and how it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """SELECTs of one shape that no declared view answers, counted since the start."""

    query: str
    calls: int
    milliseconds: float
    """Total time of its evaluations."""
    rows: int
    """Number of rows of all evaluated answers."""
    view: str | None
    """The automatic view that answers it now."""
    why: str
    """The reason why it has, or has not, an automatic view."""
    create_view: str
    """The statement that declares a view of it."""


@dataclass(frozen=True, slots=True)
class RunningInfo:
    id: int
    """No two statements that run in a cluster have the same one."""
    sql: str
    seconds: float
    process: str | None = None
    """The api process that performs it, in a cluster."""


@dataclass(frozen=True, slots=True)
class MissingProcess:
    """An api process that does not say what it was asked and what it performs."""

    process: str
    why: str


Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Each]):
    """What all api processes told."""

    found: list[Each]
    missing: list[MissingProcess]
    """The processes that did not."""


class StatementLists(Protocol):
    """The statements of all api processes: which were asked without a view, and which run now."""

    async def queries(self) -> Listing[QueryInfo]:
        """The shapes that took longest come first."""

    async def running(self) -> Listing[RunningInfo]:
        """The oldest first."""

    def connected(self, end: Callable[[], None]) -> int:
        """The number of a connection, which no other one or statement of this process has, nor will have. ``end``
        closes it, behind the statement that it performs."""

    def disconnected(self, number: int) -> None: ...

    async def stop(self, id: int) -> RunningInfo:
        """Stop a statement. Raises NotFound; Unavailable where its process does not answer."""

    async def kill(self, id: int, *, query: bool) -> None:
        """The same, and unless it is ``query`` close the connection of this number, where it is one of this process. A
        connection that performs nothing has nothing to be stopped."""
