"""What follows from a table's schema and the names that a write gives, worked out once for all writes of that shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from domains.types import TableSchema

MOST_SHAPES = 1024
"""Remembered shapes of each kind, some kilobytes each: a program has a few for each table. When there are more, they
are made up, and all are forgotten."""

Names = TypeVar("Names", bound=Hashable)
Shape = TypeVar("Shape")


class Shapes(Generic[Names, Shape]):
    """``make`` with its results remembered, from any thread.

    By the schema's identity, since its hash takes 7 µs, as long as all that is made for one row. The schema is kept, so
    that its identity stays its own.
    """

    def __init__(self, make: Callable[[TableSchema, Names], Shape]) -> None:
        self._make = make
        self._known: dict[tuple[int, Names], tuple[TableSchema, Shape]] = {}

    def __call__(self, schema: TableSchema, names: Names) -> Shape:
        found = self._known.get((id(schema), names))
        if found is not None:
            return found[1]
        made = self._make(schema, names)
        if len(self._known) >= MOST_SHAPES:
            self._known.clear()
        self._known[id(schema), names] = (schema, made)
        return made
