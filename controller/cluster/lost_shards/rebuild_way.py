"""Rebuilding lost shards by Spark: when it pays, how it is shown, and the runs that it makes.

::

    by Spark:        job ──► ARCHIVE/_rebuild/ID/table=…/shard=… ──► the decision names them ──► the worker loads them
    by the worker:                                                   the decision ──► the worker folds and loads

**The job comes before the decision.** Until then nothing is given up: if the job fails, is cancelled or ends with its
leader, everything stays as it was, and the operator asks again. After the decision any leader goes on, since the state
names the runs. The worker judges whether they count (``worker/archive/lost_shard.py``) and else folds by itself, so no
decision ever waits for Spark. The full state that stands on the shards is built afterwards (``refilling.py``).

``bulk/job_files.py`` says who removes the runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, assert_never

from controller.cluster.leader.building import BulkSettings, is_settled, named_runs
from controller.cluster.leader.ledger import StateLedger
from controller.deployment import BackfillStatus, MigrationStatus
from controller.migrating.bulk.building import started
from controller.migrating.bulk.job_files import RUNS, JobFiles, url_of
from controller.migrating.execution import Migration
from domains.errors import BadRequest, Cancelled, HeadraceError, Unavailable
from domains.plan.graph import DomainIndex
from domains.plan.sharding import table_of
from domains.transitions import moved
from migrations.backfill.job import Folding, JobProgress
from migrations.backfill.runner import Folder, FoldRun
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
    """Archived rows of all the shards."""
    folder: Folder | None = None
    """The runner that folds, if the worker does not."""


async def choose_way(bulk: BulkSettings, by: By, archived: Mapping[DomainIndex, ArchivedShard]) -> RebuildMethod:
    """Decide who folds the archive of lost shards: Spark, if it pays and is available, or the worker. ``archived``: the
    workers' reports of the shards.

    :raises BadRequest: Spark is asked for, and not available here.
    :raises Unavailable: Spark cannot be started (no Java); the message says what to install.
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


# To the outside a rebuild looks like a migration.

FOLD, LOAD, FOLD_AND_LOAD = "fold and sort the archive (spark)", "load what is sorted", "fold the archive and load it"
FILL = "build full states"
LAST = 2
"""The number of steps of a rebuild by Spark before the last."""


class RebuildStage(Enum):
    CHOOSING = "choosing"
    """Which shards are lost, where they go and who folds."""
    FOLDING = "folding"
    DECIDING = "deciding"
    LOADING = "loading"
    """It is decided, or that write is under way. From now on a cancel only makes full states be fed in slices."""
    FILLING = "filling"


TRANSITIONS = {
    RebuildStage.CHOOSING: (RebuildStage.FOLDING, RebuildStage.DECIDING),
    RebuildStage.FOLDING: (RebuildStage.DECIDING,),
    RebuildStage.DECIDING: (RebuildStage.LOADING,),
    RebuildStage.LOADING: (RebuildStage.LOADING, RebuildStage.FILLING),
    RebuildStage.FILLING: (RebuildStage.FILLING,),
}
"""LOADING again: another change of the state came first, and the decision is repeated. FILLING again: in another way,
or after a round that was broken off."""


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
        """Raises AssertionError if that stage cannot follow."""
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
        """Begin the last step."""
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
        """Show the progress of the present step. It never goes back, even if a worker finds more rows or does not use
        the runs."""
        before = self.backfill
        assert before is not None
        self.show_job(before.way, before.why, replace(progress, ui=progress.ui or before.ui))
        total = max(progress.total, progress.rows)
        self.within = max(self.within, progress.rows / total) if total else self.within


# The runs: the archive of lost shards, folded and sorted by Spark, which the worker that gets the shards only loads.

POLL_SECONDS = 0.1
"""Seconds between two looks at the job: a cancel must take effect at once."""


@contextmanager
def turn(folding: set[str], id: str) -> Iterator[None]:
    """One rebuild at a time has the archive folded, until its runs are decided: two jobs on the same cores end later
    than one after the other, and a second request for the same shards must fail."""
    if folding:
        raise Unavailable(
            f'rebuild "{next(iter(folding))}" folds the archive already', hint="see how far it is, or cancel it"
        )
    folding.add(id)
    try:
        yield
    finally:
        folding.discard(id)


@asynccontextmanager
async def runs_of(archive: str, files: JobFiles, ledger: StateLedger, shown: Rebuilding) -> AsyncIterator[str]:
    """The URL for a rebuild's runs, which are removed at the end of the block unless a decision names them."""
    runs = url_of(archive, RUNS, shown.id)
    try:
        yield runs
    finally:
        if not shown.decided or (await is_settled(ledger) and runs not in named_runs(ledger.decided)):
            await files.remove(runs)
        else:
            files.left_to_decisions.add(shown.id)


async def fold_lost(
    archive: str,
    shards: int,
    way: RebuildMethod,
    runs: str,
    positions: Mapping[DomainIndex, Mapping[str, int]],
    check: Callable[[], None],
    shown: Rebuilding,
) -> None:
    """Fold and sort base shards as of positions, into ``runs``. ``check`` raises to end it.

    :raises HeadraceError: the reason why it failed. The job has ended then.
    """
    folder = way.folder
    assert folder is not None
    wanted = [
        (table_of(base, shards), int(domain), position)
        for domain, bases in sorted(positions.items())
        for base, position in sorted(bases.items())
        if position
    ]
    folding = Folding(archive, runs, tuple(wanted), way.rows)
    run = await started(lambda: folder.start(folding))
    try:
        while not _is_done(run):
            shown.show(run.progress())
            await asyncio.sleep(POLL_SECONDS)
            check()
    finally:
        await asyncio.to_thread(run.cancel)


def _is_done(run: FoldRun) -> bool:
    try:
        return run.is_done()
    except HeadraceError as error:
        error.hint = or_by_worker(error.hint or "nothing is given up: ask again")
        raise
