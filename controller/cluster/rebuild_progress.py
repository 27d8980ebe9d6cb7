"""A rebuild as the outside sees it: as a migration, which it is like in all but what it does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from controller.cluster.rebuild_way import Way
from controller.deployment import BackfillStatus, MigrationStatus
from controller.execution import Migration
from domains.errors import Cancelled, HeadraceError, Unavailable
from migrations.backfill.job import JobProgress

FOLD, LOAD, FOLD_AND_LOAD = "fold and sort the archive (spark)", "load what is sorted", "fold the archive and load it"
FILL = "build full states"
LAST = 2
"""The steps of a rebuild by Spark before that one."""


@dataclass(slots=True)
class Rebuilding(Migration):
    kind: ClassVar[str] = "rebuild"
    decided: bool = False
    """From then on a cancel only has full states fed in slices."""
    filling: Migration | None = None
    """The bulk build of full states, while one is under way."""
    rebuilt: list[dict[str, Any]] = field(default_factory=list)
    """What ``rebuild_lost`` answers."""

    def begin(self, way: Way) -> None:
        self.steps = (FOLD_AND_LOAD,) if way.folder is None else (FOLD, LOAD, FILL)
        self.step, self.done = self.steps[0], 0
        self.backfill = BackfillStatus(way.by, way.why, rows_total=way.rows)

    def next(self) -> None:
        self.done, self.within = self.done + 1, 0.0
        self.step = self.steps[self.done]

    def fill(self, what: str) -> None:
        """What is done now, which is the last step."""
        self.steps = (*self.steps[:LAST], what)
        self.done, self.within, self.step = LAST, 0.0, what

    def status(self) -> MigrationStatus:
        filling = self.filling
        if filling is not None:
            self.within, self.backfill = filling.share(), filling.backfill or self.backfill
        shown = Migration.status(self)
        return shown if filling is None else replace(shown, step=f"{shown.step}: {filling.step}")

    def check(self) -> None:
        if self.cancelled and not self.decided:
            raise Cancelled(f'rebuild "{self.id}" was cancelled', hint="nothing is given up")

    def broken_off(self) -> HeadraceError:
        what = "the next one goes on with it" if self.decided else "nothing is given up"
        return Unavailable(f"the leader is succeeded: {what}", hint="look at the status, ask again")

    def show(self, progress: JobProgress) -> None:
        """How far the present step is. A worker that does not use the runs, or finds more rows, is not shown behind
        where it was."""
        before = self.backfill
        assert before is not None
        self.show_job(before.way, before.why, replace(progress, ui=progress.ui or before.ui))
        total = max(progress.total, progress.rows)
        self.within = max(self.within, progress.rows / total) if total else self.within
