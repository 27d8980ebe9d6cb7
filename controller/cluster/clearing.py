"""What a leader clears away while it leads: files of jobs that are nobody's any more (``bulk/job_files.py``).

As it takes over, and every now and then: an owner that was killed may have been writing a moment ago, an archive that
could not be reached is back, and the last shard that was made from runs is open.
"""

from __future__ import annotations

import asyncio
import logging

from controller.bulk.job_files import RUNS, STAGING, JobFiles, epoch_of, id_of
from controller.cluster.ledger import Ledger
from controller.cluster.state import ClusterState
from domains.errors import HeadraceError
from zookeeper.errors import AuthorityError

PAUSE_SECONDS = 600.0
"""Between two looks. Each lists two directories; what lies there until then takes room, and nothing else."""

_log = logging.getLogger("headrace.controller")


async def keep_clear(files: JobFiles, archive: str, since: int, ledger: Ledger) -> None:
    """For ever, as the leader that took over in epoch ``since``."""

    def is_forsaken(id: str) -> bool:
        epoch = epoch_of(id)
        is_of_before = epoch is not None and epoch < since
        return (is_of_before or id in files.left_to_decisions) and id not in map(id_of, named_runs(ledger.decided))

    while True:
        try:
            await files.remove_left()
            if await is_settled(ledger):
                for kind in (STAGING, RUNS):
                    await files.clear(archive, kind, is_forsaken)
        except Exception:
            _log.exception("the files that jobs have left were not cleared away")
        await asyncio.sleep(PAUSE_SECONDS)


async def is_settled(ledger: Ledger) -> bool:
    """Whether what this leader has decided is known: a write may have been done although its answer was lost."""
    try:
        await ledger.settle()
    except (AuthorityError, HeadraceError) as error:
        _log.info("nobody knows which files are needed: %s", error)
        return False
    return True


def named_runs(decided: ClusterState) -> set[str]:
    """The URLs of runs that a decision names."""
    placement = decided.placement.values()
    return {given.rebuild.runs for given in placement if given.rebuild is not None and given.rebuild.runs}
