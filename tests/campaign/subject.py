"""What the campaign and the SQL logic tests ask of a system under test, and how they find one by name.

Values in answers may be the engine's own (``Decimal``, ISO text) or those of the JSON face (a DECIMAL as text): the
comparison knows each column's type and accepts both. Errors are those of ``domains.errors``; anything else that is
raised (an ``AssertionError`` above all) is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one statement."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    rows_affected: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """How a subject is to be set up. Two subjects of one setting, driven alike, must behave alike."""

    seed: int = 0
    partial: bool = True
    """False: every view's state is full (no holes, no evictions)."""
    domains: int = 1
    shards: int = 1
    """In how many shards each of the domains stands."""
    bulk: bool = False
    """Full states come in bulk, while the statements that follow are executed; the simulated subject knows how."""


class Subject(Protocol):
    """One database, empty at first. Calls are made one at a time."""

    def execute(self, sql: str) -> list[Answer]:
        """Run statements of any kind, one result each. A write is durable and acknowledged when this returns, but
        its updates may still be under way on links. A SELECT answers what its view holds once filled."""

    def lookup(self, view: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The visible columns of the view's rows in order; ``values`` has one entry a ``?`` in the order of the text,
        a list for an IN. Fills what is a hole, delivering packets as far as it needs to."""

    def select_evaluated(self, sql: str) -> list[tuple[Any, ...]] | None:
        """A SELECT over the base tables as they are, without a view. None: its ``execute`` is that already, or nothing
        is. Raises Unsupported where only a view can answer it."""

    def view_evaluated(self, view: str, values: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        """``lookup``, in the same way."""

    def evict(self, view: str, values: Sequence[Any]) -> None:
        """Evict the entries that such a look-up reads (nothing happens where they are holes or the state is full)."""

    def evict_some(self, random: Random) -> None:
        """Memory pressure: ask for a random share of all accounted bytes to be freed."""

    def restart(self) -> None:
        """Crash and open again on the same storage. What was acknowledged is still there."""

    def settle(self) -> None:
        """Deliver every packet that is under way, and those that follow, until all is quiet."""

    def step(self, random: Random) -> None:
        """Deliver one packet on a link chosen at random, if any is under way."""

    def check(self) -> None:
        """Run the executable invariants; raises AssertionError."""

    def close(self) -> None: ...


SubjectFactory = Callable[[Setting], Subject]

DEFAULT_SUBJECT = "tests.campaign.simulated:simulated"
"""The simulated deployment: planner and domains on one thread, packets delivered in seeded order."""


def subject_named(name: str) -> SubjectFactory:
    """``package.module:attribute`` → the factory."""
    module, _, attribute = name.partition(":")
    factory: SubjectFactory = getattr(import_module(module), attribute)
    return factory
