"""Life cycles as tables: which state may follow which. What is not in the table cannot happen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)


def moved(table: Mapping[State, Collection[State]], before: State, after: State) -> State:
    """``after``. Raises AssertionError where the table does not lead there from ``before``."""
    if after not in table[before]:
        raise AssertionError(f"no {type(before).__name__} goes from {before.value} to {after.value}")
    return after
