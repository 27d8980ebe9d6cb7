"""Who folds the archive of lost shards: the worker that gets them, or Spark, into *runs* that the worker only loads.

::

    rows > threshold? ─ by Spark: job ──► ARCHIVE/_rebuild/ID/table=…/shard=…  ─► the decision names them ─► loaded
                      └ by the worker: the decision ─► folded and loaded

**The job comes before the decision.** Until then nothing is given up: a job that fails, is cancelled or ends with its
leader leaves everything as it was, and the operator asks again. After it whoever leads goes on, since the state says
where the runs lie. That they count is for the worker to judge (``worker/archive/lost_shard.py``); without them it folds
by itself, so no decision ever waits for Spark. The full state that stands on the shards comes after it
(``refilling.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from controller.bulk.starting import started
from controller.cluster.building import BulkSettings
from controller.deployment import BackfillStatus, MigrationStatus
from controller.execution import Migration
from domains.errors import BadRequest, Cancelled, HeadraceError, Unavailable
from domains.graph import DomainIndex
from domains.sharding import table_of
from migrations.backfill.job import Folding, JobProgress
from migrations.backfill.runner import Folder, FoldRun
from worker.rebuild_messages import ArchivedShard

if TYPE_CHECKING:
    from controller.cluster.leader import Leader

By = Literal["auto", "spark", "worker"]
WORKER = "worker"

RUNS = "_rebuild"
"""Below the archive's URL, as ``controller.bulk.source.STAGING`` is."""
FOLD, LOAD, FOLD_AND_LOAD = "fold and sort the archive (spark)", "load what is sorted", "fold the archive and load it"
FILL = "build full states"
LAST = 2
"""The steps of a rebuild by Spark before that one."""
POLL_SECONDS = 0.1
"""Between two looks at the job: a cancel is to be felt at once."""
_log = logging.getLogger("headrace.controller")

BY_WORKER = "or have the worker fold it by itself: --by worker"


@dataclass(frozen=True, slots=True)
class Way:
    by: str
    """``spark`` or ``worker``."""
    why: str
    rows: int
    """Archived, of all the shards."""
    folder: Folder | None = None
    """Whose the way is, where it is not the worker's."""


@dataclass(slots=True)
class Rebuilding(Migration):
    """A rebuild as the outside sees it: as a migration, which it is like in all but what it does."""

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

    def show(self, progress: JobProgress) -> None:
        """How far the present step is."""
        before = self.backfill
        assert before is not None
        self.show_job(before.way, before.why, replace(progress, ui=progress.ui or before.ui))
        total = max(progress.total, progress.rows)
        self.within = progress.rows / total if total else 0.0


async def choose_way(bulk: BulkSettings, by: By, archived: Mapping[DomainIndex, ArchivedShard]) -> Way:
    """``archived`` is what the workers say of the lost shards.

    :raises BadRequest: Spark is asked for, and not to be had here.
    :raises Unavailable: Spark is to do it and cannot be begun (no Java); says what to install. Nothing is decided.
    """
    rows = sum(each.rows for each in archived.values())
    if by == WORKER:
        return Way(WORKER, "as was asked", rows)
    missing = _missing(bulk)
    if by == "auto" and missing:
        return Way(WORKER, missing, rows)
    if by == "auto" and rows <= bulk.threshold:
        return Way(WORKER, f"{rows:,} archived rows are not more than the threshold of {bulk.threshold:,}", rows)
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
        error.hint = _way_out(error.hint)
        raise
    return Way(bulk.folder.name, "as was asked" if by == "spark" else above, rows, bulk.folder)


def _missing(bulk: BulkSettings) -> str:
    if bulk.archive is None:
        return "the controller has no archive (--archive)"
    return "" if bulk.folder is not None else "Spark is turned off (--spark-master none)"


def _way_out(hint: str | None) -> str:
    return f"{hint}; {BY_WORKER}" if hint else BY_WORKER


@contextmanager
def turn(folding: set[str], id: str) -> Iterator[None]:
    """Until the runs are decided nobody else may begin: it clears away what no decision names."""
    if folding:
        raise Unavailable(
            f'rebuild "{next(iter(folding))}" folds the archive already', hint="see how far it is, or cancel it"
        )
    folding.add(id)
    try:
        yield
    finally:
        folding.discard(id)


async def fold_lost(
    leader: Leader,
    way: Way,
    positions: Mapping[DomainIndex, Mapping[str, int]],
    check: Callable[[], None],
    shown: Rebuilding,
) -> str:
    """Have base shards folded and sorted as of positions; the URL of the runs. ``check`` raises what ends it.

    :raises HeadraceError: what made it fail. Nothing of it runs any more then.
    """
    folder = way.folder
    assert folder is not None
    archive, shards = leader.settings.bulk.archive, leader.ledger.decided.shards
    assert archive is not None
    await asyncio.to_thread(clear_runs, archive, decided_runs(leader))
    wanted = [
        (table_of(base, shards), int(domain), position)
        for domain, bases in sorted(positions.items())
        for base, position in sorted(bases.items())
        if position
    ]
    folding = Folding(archive, runs_url(archive, shown.id), tuple(wanted), way.rows)
    run = await started(lambda: folder.start(folding))
    try:
        while not _is_done(run):
            shown.show(run.progress())
            await asyncio.sleep(POLL_SECONDS)
            check()
    finally:
        await asyncio.to_thread(run.cancel)
    return folding.out


def _is_done(run: FoldRun) -> bool:
    try:
        return run.is_done()
    except HeadraceError as error:
        error.hint = _way_out(error.hint or "nothing is given up: ask again")
        raise


def decided_runs(leader: Leader) -> set[str]:
    """The URLs of runs that a decision names."""
    placement = leader.ledger.decided.placement
    return {given.rebuild.runs for given in placement.values() if given.rebuild is not None and given.rebuild.runs}


async def forget_runs(leader: Leader, runs: str) -> None:
    """Unless a decision names them. Those of a leader that is lost go with the next rebuild by Spark."""
    if not runs or leader.is_over or runs in decided_runs(leader):
        return
    try:
        await asyncio.to_thread(delete_runs, runs)
    except HeadraceError as error:
        _log.warning("the runs below %s are left: %s", runs, error)


# --- files --------------------------------------------------------------------------------------------------------


def runs_url(archive: str, id: str) -> str:
    from controller.bulk.source import below  # Late: it loads pyarrow.

    return below(archive, f"{RUNS}/{id}")


def delete_runs(url: str) -> None:
    """Raises ArchiveUnreachable."""
    from worker.archive.place import Place

    Place(url).delete_all()


def clear_runs(archive: str, kept: Collection[str]) -> None:
    """Delete all runs below an archive but those at these URLs. Raises ArchiveUnreachable."""
    from worker.archive.place import Place

    for id in Place(archive).directories(RUNS):
        if runs_url(archive, id) not in kept:
            delete_runs(runs_url(archive, id))
