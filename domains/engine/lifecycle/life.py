"""A domain's life while its graph changes, and what its two ways to build full state have in common.

::

            ┌─► HELD ──┐           in slices:  BUILDING ──► FEEDING ─────────────────────────► FOLLOWING
    ACTIVE ─┴──────────┴─ AddNodes             begin                 all is fed                    │ Activate
       ▲                           in bulk:    LOADING ──► READING ──► READY ──► REPLAYING ──► FOLLOWING
       └───────────────────────────────────────────────── or RemoveNodes, from everywhere ─────────┘
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from domains.engine.forward import ForwardPass
from domains.language.types import Delta, Row
from domains.operators.edges import BaseOperator
from domains.operators.operator import Vertex
from domains.plan.graph import Columns
from domains.store.storage import Store
from domains.transitions import moved


class Life(Enum):
    ACTIVE = "active"
    """Everything runs."""
    HELD = "held"
    """There are nodes that answer nobody before ``Activate``, and no full state to be built."""
    BUILDING = "building"
    """Full state is to be fed in slices; nothing has reached it."""
    FEEDING = "feeding"
    LOADING = "loading"
    """States that were computed elsewhere come."""
    READING = "reading"
    """The log since is read, for look-ups."""
    READY = "ready"
    """It has been read; nothing is replayed yet."""
    REPLAYING = "replaying"
    FOLLOWING = "following"
    """All is fed or replayed: updates go on as they come, and ``Activate`` may."""


TRANSITIONS = {
    Life.ACTIVE: (Life.ACTIVE, Life.HELD, Life.BUILDING, Life.LOADING),
    Life.HELD: (Life.ACTIVE, Life.HELD, Life.BUILDING, Life.LOADING),
    Life.BUILDING: (Life.FEEDING, Life.ACTIVE, Life.HELD),
    Life.FEEDING: (Life.FOLLOWING, Life.ACTIVE, Life.HELD),
    Life.LOADING: (Life.READING, Life.ACTIVE, Life.HELD),
    Life.READING: (Life.READY, Life.ACTIVE, Life.HELD),
    Life.READY: (Life.REPLAYING, Life.ACTIVE, Life.HELD),
    Life.REPLAYING: (Life.FOLLOWING, Life.ACTIVE, Life.HELD),
    Life.FOLLOWING: (Life.ACTIVE, Life.HELD),
}
"""The transitions. ``Activate`` leads to ACTIVE; ``RemoveNodes``, which takes a migration back, leads to ACTIVE or HELD
from everywhere."""


class LifeCycle:
    """The life cycle of one domain."""

    def __init__(self) -> None:
        self.state = Life.ACTIVE

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be fed or replayed."""
        return self.state in (Life.ACTIVE, Life.HELD, Life.FOLLOWING)

    def to(self, after: Life) -> None:
        """Raises AssertionError where that cannot follow."""
        self.state = moved(TRANSITIONS, self.state, after)


class StateBuild(ABC):
    """Full state of one migration in one domain on its way to life."""

    def __init__(self, store: Store, bases: Iterable[Vertex], life: LifeCycle, full: Sequence[Vertex] = ()) -> None:
        self._store = store
        self._life = life
        self.full = full
        """Vertices whose state runs already. All of it is fed when the build begins."""
        self._bases: dict[str, list[Vertex]] = {}
        for vertex in bases:
            assert isinstance(vertex.operator, BaseOperator)
            self._bases.setdefault(vertex.operator.table, []).append(vertex)
        self.rows = 0
        """Rows of base tables, or of their logs, that were fed so far."""

    @property
    def begun(self) -> bool:
        """Whether rows reach what is built."""
        return self._life.state in (Life.FEEDING, Life.REPLAYING, Life.FOLLOWING)

    @abstractmethod
    def begin(self, building: Iterable[Vertex], new_pass: Callable[[], ForwardPass]) -> None:
        """Begin to feed, with the first slice or the first rows over a link. Only the first call does anything."""

    @abstractmethod
    def needs(self, table: str) -> int | None:
        """The position after which the table's log is needed; None where it is not."""

    @abstractmethod
    def unseen(self, table: str) -> bool:
        """Whether no row of the table is seen by what is built."""

    @abstractmethod
    def seen(self, table: str, columns: Columns, key: Row, rows: list[Delta]) -> list[Delta]:
        """The part of stored rows, found by ``columns`` (positions in the stored row), that building vertices see."""

    @abstractmethod
    def slice(self, limit: int) -> list[tuple[Vertex, list[Delta]]]:
        """Go on by some ``limit`` rows; what to feed to which base vertices, in one pass."""

    @abstractmethod
    def passed(self, table: str, deltas: Sequence[Delta]) -> list[tuple[Vertex, list[Delta]]]:
        """The part of an update to ``table``, which is stored already, that the building vertices may see."""

    def _to_bases(self, table: str, rows: list[Delta]) -> list[tuple[Vertex, list[Delta]]]:
        if not rows:
            return []
        return [
            (vertex, vertex.operator.cut(rows))
            for vertex in self._bases[table]
            if isinstance(vertex.operator, BaseOperator)
        ]


def feed_whole(full: Sequence[Vertex], new_pass: Callable[[], ForwardPass]) -> None:
    """Pass on all rows of vertices with full state, in one pass."""
    act = new_pass()
    for vertex in full:
        index = next(iter(vertex.indexes.values()))
        act.inject_output(vertex, [delta for key in index.keys() for delta in index.get(key) or ()])  # noqa: SIM118
    act.run()
