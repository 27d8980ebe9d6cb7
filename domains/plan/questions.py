"""What is asked of each operator: the questions, to which ``traits.py`` has the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

from domains.language.expressions import Expression
from domains.plan.estimates import Estimated, Statistics
from domains.plan.graph import Columns, Operator, TopK


class ForJoin(Enum):
    """What a join finds in a parent that keeps nothing on its own account. A join's inputs have to be state."""

    ANSWERS = auto()
    """State, wherever it stands, or a base table."""
    PASSES = auto()
    """State above it will do."""
    NARROWS = auto()
    """State above it will do, but over a join it keeps its own rows, which are narrower."""
    KEEPS = auto()
    """It becomes state for the join."""


@dataclass(frozen=True, slots=True)
class Matching:
    """How an operator of two parents matches their rows: by equal columns, in pairs (none for a cross join)."""

    on: tuple[Columns, Columns]
    outer: bool
    """A left row without a match is in the output too."""


@dataclass(frozen=True, slots=True)
class Phases:
    """An operator over all shards, as one in each shard (same output columns) and one over those."""

    each: Operator
    merged: Operator


class Traits(ABC):
    """The answers of one operator. Each of them is given by every operator; only what follows from others is here."""

    own_state: ClassVar[bool]
    """It keeps state wherever it stands."""
    for_join: ClassVar[ForJoin]
    row_for_row: ClassVar[bool]
    """Each row of its one parent gives one of its rows."""
    renders = False
    """A change of a group makes a text of all its elements anew."""
    demands: Expression | None = None
    """What decides alone which of its parent's rows pass, as they are."""
    residual: Expression | None = None
    """The condition of a match of rows, beyond equal columns."""
    cut: TopK | None = None
    """Only the first of each group's rows pass, as they are."""
    computes = False
    """It makes values that its parents do not have."""
    goes_round: tuple[tuple[int, Columns], ...] = ()
    """The look-ups of its further parents by which it goes on from its own rows, which come from the first parent."""

    @abstractmethod
    def __init__(self, operator: Any) -> None: ...

    @property
    @abstractmethod
    def groups_by(self) -> Columns | None:
        """The columns of its output that name a group, whose rows are computed together: it can be partial by these
        alone, and they have to meet in one shard. None: rows are computed each for itself."""

    @property
    @abstractmethod
    def matching(self) -> Matching | None:
        """How it looks up one parent for each update of the other; None if it does not."""

    @property
    @abstractmethod
    def refills(self) -> tuple[Columns, ...]:
        """The look-ups of its parent by which full state is computed anew when a retraction takes what it holds (rule
        8)."""

    @property
    @abstractmethod
    def grows(self) -> bool:
        """Insertions into its parents never take one of its rows back."""

    @property
    @abstractmethod
    def row_over_nothing(self) -> bool:
        """It has its one row also over no input."""

    @property
    @abstractmethod
    def merging(self) -> Phases | None:
        """How it merges over shards wherever a group's rows are; None if only the rows themselves will do.

        The row of a scalar aggregate is there over no input too, in each shard: a sum of COUNTs is never over nothing.
        """

    @property
    def phases(self) -> Phases | None:
        """``merging`` where all rows would have to be in one shard: those of a group meet in one by its columns."""
        return None if self.groups_by else self.merging

    @abstractmethod
    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        """The places of these output columns in each parent (``widths`` columns wide), or COMPUTED."""

    @abstractmethod
    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        """The columns of each parent that these of the output depend on, and those that decide which rows it has."""

    @abstractmethod
    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        """Its rows, as far as can be told from those of its parents."""

    @abstractmethod
    def text(self, names: Sequence[Sequence[str]]) -> str:
        """One line for people, in symbols; ``names`` are the columns' of each parent."""

    @property
    def ends(self) -> bool:
        """Whether its rows are surely a finite number, out of finite ones."""
        return True

    @property
    def looks_up(self) -> bool:
        """Whether it looks its parents up while updates pass through it."""
        return self.matching is not None or bool(self.refills) or bool(self.goes_round)
