"""Migrations in bulk, in the midst of a case: a CREATE VIEW has begun, and writes, evictions and restarts follow.

Whatever the subject does next, the migration goes on by some of its moments; before somebody asks for what it makes, or
for another change of the graph, it is seen through. Now and then it is cancelled and begun again, and a restart always
does that to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from migrations.change import Change, change_of
from migrations.recipe import RecipeEntry
from tests.simulation.bulk import BulkMigration, is_bulk

if TYPE_CHECKING:
    from tests.campaign.simulated import Simulated

CANCELLED = 0.02
"""How often a migration that goes on is cancelled instead: about every second one once."""


class BulkMigrations:
    """Of one subject, one at a time."""

    def __init__(self, subject: Simulated) -> None:
        self._subject = subject
        self._random = Random(f"bulk {subject.setting.seed}")
        self._entry: RecipeEntry | None = None
        self._change: Change
        self._migration: BulkMigration
        self._moments: Iterator[None] = iter(())
        self.begun = self.ended = 0

    def begin(self, entry: RecipeEntry) -> bool:
        """False where the entry has nothing to be computed in bulk, or changes tables."""
        self.finish()
        subject = self._subject
        change = change_of(subject.state, entry, subject.placement)
        flow, schemas = change.state.flow, {each.name: each for each in change.state.catalog.tables.values()}
        if change.tables or not is_bulk(flow, change.views):
            return False
        self._entry, self._change = entry, change
        self._migration = BulkMigration(subject.simulation, flow, change.views, schemas, self._random)
        self._moments = self._migration.moments()
        self.begun += 1
        return True

    def go_on(self) -> None:
        """A few moments of it, or many, or none."""
        for _ in range(self._random.choice((0, 1, 2, 5, 20)) if self._entry is not None else 0):
            if not self._moment():
                return

    def finish(self) -> None:
        """See it through."""
        while self._moment():
            self._subject.between()

    def _moment(self) -> bool:
        """False where it is over."""
        if self._entry is None:
            return False
        if self._random.random() < CANCELLED:
            entry = self.give_up()
            assert entry is not None
            return self.begin(entry)
        if next(self._moments, self) is not self:
            return True
        subject, change = self._subject, self._change
        for step in (*change.removal.steps, *change.drops):
            while not subject.simulation.command(step.domain, step.command) and step.sliced:
                subject.between()
        subject.state, self._entry = change.state, None
        self.ended += 1
        return False

    def give_up(self) -> RecipeEntry | None:
        """Take back what is under way; answers what it was to do."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._migration.take_back()
        return entry
