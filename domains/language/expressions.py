"""Typed scalar expressions, as data: what the planner writes and ``compile.py`` turns into Python.

An expression is closed over one row: ``Field(2, TEXT)`` is the row's third value. It is frozen, comparable and
picklable, so it travels in plans and packets and is a part of a node's identity (two equal expressions are one
node). Functions are named, never held: ``Call("add", (Field(0, BIGINT), Constant(1, BIGINT)), BIGINT)``.
``functions.py`` lists the names with their typing rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from domains.language.types import SqlType, Value


@dataclass(frozen=True, slots=True)
class Field:
    """The value at ``position`` of the row."""

    position: int
    type: SqlType


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value
    type: SqlType


@dataclass(frozen=True, slots=True)
class Call:
    """A function, operator, CASE or CAST applied to arguments; NULL rules are the function's own."""

    function: str
    arguments: tuple[Expression, ...]
    type: SqlType


Expression = Field | Constant | Call
