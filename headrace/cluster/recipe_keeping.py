"""The leader keeps recipe and cuts beside the archive: a worker, who archives tables, knows of no recipe and no others.

In every interval the leader has all workers archive (``archive_led``), and records that as a cut, with the recipe where
it is another than before. So what is restored as of a time is what all workers had archived together.

How far back the archive reaches is the workers' setting. A controller that is not given the same lets no recipe go.
"""

from __future__ import annotations

import asyncio
import logging

from controller.cluster.archiving import archive_led
from controller.cluster.candidate import Candidate
from domains.errors import HeadraceError
from headrace.settings import Settings

_log = logging.getLogger("headrace.controller")


async def keep_recipes(candidate: Candidate, settings: Settings) -> None:
    """For as long as the process runs, whenever it leads. What goes wrong is logged, and tried again."""
    assert settings.archive is not None, "there is no archive to keep it in"
    retention = settings.archive_retention if "archive_retention" in settings.model_fields_set else None
    while True:
        await asyncio.sleep(settings.archive_interval)
        leader = candidate.leader
        if leader is None or leader.ledger.state is None:
            continue
        try:
            await archive_led(leader, retention, urgent=False)
        except HeadraceError as error:
            _log.warning("no cut was recorded in the archive: %s", error)
        except Exception:  # Nobody waits for this task: what ended it would be seen when an archive is restored.
            _log.exception("no cut was recorded in the archive, for a reason that nobody foresaw")
