"""The choice of who folds the archive of lost shards: the worker that gets them, or Spark, where it pays and is
available."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, assert_never

from controller.cluster.leader.building import BulkSettings
from controller.deployment import BackfillStatus, MigrationStatus
from controller.migrating.execution import Migration
from domains.errors import BadRequest, Cancelled, HeadraceError, Unavailable
from domains.plan.graph import DomainIndex
from domains.transitions import moved
from migrations.backfill.job import JobProgress
from migrations.backfill.runner import Folder
from migrations.backfill.spark.settings import By
from worker.protocol.operations import ArchivedShard

WORKER = "worker"
BY_WORKER = "or have the worker fold it by itself: --by worker"


@dataclass(frozen=True, slots=True)
class RebuildMethod:
    by: str
    """``spark`` or ``worker``."""
    why: str
    rows: int
    """Archived, of all the shards."""
    folder: Folder | None = None
    """Whose the way is, where it is not the worker's."""


async def choose_way(bulk: BulkSettings, by: By, archived: Mapping[DomainIndex, ArchivedShard]) -> RebuildMethod:
    """``archived``: the workers' reports of the lost shards.

    :raises BadRequest: Spark is asked for, and not available here.
    :raises Unavailable: Spark is to do it and cannot be begun (no Java); says what to install. Nothing is decided.
    """
    rows = sum(each.rows for each in archived.values())
    if by == WORKER:
        return RebuildMethod(WORKER, "as was asked", rows)
    missing = _missing(bulk)
    if by == "auto" and missing:
        return RebuildMethod(WORKER, missing, rows)
    if by == "auto" and rows <= bulk.threshold:
        return RebuildMethod(
            WORKER, f"{rows:,} archived rows are not more than the threshold of {bulk.threshold:,}", rows
        )
    if missing or bulk.folder is None:
        raise BadRequest(f"it cannot be rebuilt by Spark: {missing}", hint=BY_WORKER)
    for each in archived.values():
        if each.url != bulk.archive:
            raise Unavailable(
                f'a worker archives under "{each.url}", and the controller reads "{bulk.archive}"',
                hint=f"start all of them with the same --archive, {BY_WORKER}",
            )
    above = f"{rows:,} archived rows are more than the threshold of {bulk.threshold:,}"
    try:
        await asyncio.to_thread(bulk.folder.check)
    except HeadraceError as error:
        error.hint = or_by_worker(error.hint)
        raise
    return RebuildMethod(bulk.folder.name, "as was asked" if by == "spark" else above, rows, bulk.folder)


def _missing(bulk: BulkSettings) -> str:
    if bulk.archive is None:
        return "the controller has no archive (--archive)"
    return "" if bulk.folder is not None else "Spark is turned off (--spark-master none)"


def or_by_worker(hint: str | None) -> str:
    return f"{hint}; {BY_WORKER}" if hint else BY_WORKER


# A rebuild as the outside sees it: as a migration, which it is like in all but what it does.

FOLD, LOAD, FOLD_AND_LOAD = "fold and sort the archive (spark)", "load what is sorted", "fold the archive and load it"
FILL = "build full states"
LAST = 2
"""The steps of a rebuild by Spark before that one."""


class RebuildStage(Enum):
    CHOOSING = "choosing"
    """What is lost, where it goes and who folds it."""
    FOLDING = "folding"
    DECIDING = "deciding"
    LOADING = "loading"
    """It is decided, or the write that decides it is under way. From then on a cancel only has full states fed in
    slices."""
    FILLING = "filling"


TRANSITIONS = {
    RebuildStage.CHOOSING: (RebuildStage.FOLDING, RebuildStage.DECIDING),
    RebuildStage.FOLDING: (RebuildStage.DECIDING,),
    RebuildStage.DECIDING: (RebuildStage.LOADING,),
    RebuildStage.LOADING: (RebuildStage.LOADING, RebuildStage.FILLING),
    RebuildStage.FILLING: (RebuildStage.FILLING,),
}
"""LOADING again: another change of the state came first, and it is decided anew. FILLING again: in another way, or
after a round that was broken off."""


@dataclass(slots=True)
class Rebuilding(Migration):
    kind: ClassVar[str] = "rebuild"
    stage: RebuildStage = RebuildStage.CHOOSING
    filling: Migration | None = None
    """The bulk build of full states, while one is under way."""
    rebuilt: list[dict[str, Any]] = field(default_factory=list)
    """The answer of ``RebuildOperations``."""

    @property
    def decided(self) -> bool:
        match self.stage:
            case RebuildStage.CHOOSING | RebuildStage.FOLDING | RebuildStage.DECIDING:
                return False
            case RebuildStage.LOADING | RebuildStage.FILLING:
                return True
            case stage:
                assert_never(stage)

    def to(self, after: RebuildStage) -> None:
        """Raises AssertionError where that cannot follow."""
        self.stage = moved(TRANSITIONS, self.stage, after)

    def begin(self, way: RebuildMethod) -> None:
        self.to(RebuildStage.DECIDING if way.folder is None else RebuildStage.FOLDING)
        self.steps = (FOLD_AND_LOAD,) if way.folder is None else (FOLD, LOAD, FILL)
        self.step, self.done = self.steps[0], 0
        self.backfill = BackfillStatus(way.by, way.why, rows_total=way.rows)

    def folded(self) -> None:
        self.to(RebuildStage.DECIDING)
        self.done, self.within = self.done + 1, 0.0
        self.step = self.steps[self.done]

    def fill(self, what: str) -> None:
        """The present step, which is the last."""
        self.to(RebuildStage.FILLING)
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
