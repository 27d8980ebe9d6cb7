"""The archive of lost shards folded by Spark, into *runs* that the worker which gets the shards only loads.

::

    by Spark (rebuild_way.py): job ──► ARCHIVE/_rebuild/ID/table=…/shard=…  ─► the decision names them ─► loaded
    by the worker:                                           the decision   ─► folded and loaded

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
from typing import TYPE_CHECKING

from controller.bulk.starting import started
from controller.cluster.rebuild_way import Way, or_by_worker
from domains.errors import HeadraceError, Unavailable
from domains.graph import DomainIndex
from domains.sharding import table_of
from migrations.backfill.job import Folding
from migrations.backfill.runner import FoldRun

if TYPE_CHECKING:
    from controller.cluster.leader import Leader
    from controller.cluster.rebuild_progress import Rebuilding

RUNS = "_rebuild"
"""Below the archive's URL, as ``controller.bulk.source.STAGING`` is."""
POLL_SECONDS = 0.1
"""Between two looks at the job: a cancel is to be felt at once."""
_log = logging.getLogger("headrace.controller")


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
        error.hint = or_by_worker(error.hint or "nothing is given up: ask again")
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
