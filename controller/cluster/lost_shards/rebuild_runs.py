"""The archive of lost shards folded by Spark, into *runs* that the worker which gets the shards only loads.

::

    by Spark (rebuild_way.py): job ──► ARCHIVE/_rebuild/ID/table=…/shard=…  ─► the decision names them ─► loaded
    by the worker:                                           the decision   ─► folded and loaded

**The job comes before the decision.** Until then nothing is given up: a job that fails, is cancelled or ends with its
leader leaves everything as it was, and the operator asks again. After it whoever leads goes on, since the state says
where the runs lie. That they count is for the worker to judge (``worker/archive/lost_shard.py``); without them it folds
by itself, so no decision ever waits for Spark. The full state that stands on the shards comes after it
(``refilling.py``).

The runs are the rebuild's that had them made, until it decides; who removes them is said in ``bulk/job_files.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from controller.cluster.leader.building import is_settled, named_runs
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.lost_shards.rebuild_way import Rebuilding, RebuildMethod, or_by_worker
from controller.migrating.bulk.building import started
from controller.migrating.bulk.job_files import RUNS, JobFiles, url_of
from domains.errors import HeadraceError, Unavailable
from domains.plan.graph import DomainIndex
from domains.plan.sharding import table_of
from migrations.backfill.job import Folding
from migrations.backfill.runner import FoldRun

POLL_SECONDS = 0.1
"""Between two looks at the job: a cancel is to be felt at once."""


@contextmanager
def turn(folding: set[str], id: str) -> Iterator[None]:
    """Until the runs are decided nobody else may begin: two jobs on the same cores end later than one by one, and a
    second request for the same shards gets an error."""
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
    """The URL for a rebuild's runs, which are removed with the end of the block, unless a decision names them."""
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
    """Have base shards folded and sorted as of positions, into ``runs``. ``check`` raises what ends it.

    :raises HeadraceError: what made it fail. Nothing of it runs any more then.
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
