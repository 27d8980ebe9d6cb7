"""The leader keeps the recipe beside the archive: the workers, who archive the tables, know nothing of it.

Whenever the recipe is another than the one that it kept last, the leader has all workers archive (``archive_led``), and
records recipe and cut as one. So a record never names a table whose rows of then are not archived.

How far back the archive reaches is the workers' setting. A controller that is not given the same lets no recipe go.
"""

from __future__ import annotations

import asyncio
import logging

from controller.cluster.archiving import archive_led
from controller.cluster.candidate import Candidate
from domains.errors import HeadraceError
from headrace.settings import Settings
from migrations.recipe import Recipe

_log = logging.getLogger("headrace.controller")


async def keep_recipes(candidate: Candidate, settings: Settings) -> None:
    """For as long as the process runs, whenever it leads. What goes wrong is logged, and tried again."""
    assert settings.archive is not None, "there is no archive to keep it in"
    retention = settings.archive_retention if "archive_retention" in settings.model_fields_set else None
    kept: Recipe | None = None
    while True:
        await asyncio.sleep(settings.archive_interval)
        leader = candidate.leader
        decided = None if leader is None else leader.ledger.state
        if leader is None or decided is None or decided.recipe is kept:
            continue
        try:
            await archive_led(leader, retention)
            kept = decided.recipe
        except HeadraceError as error:
            _log.warning("the recipe was not kept in the archive: %s", error)
        except Exception:  # Nobody waits for this task: what ended it would be seen when an archive is restored.
            _log.exception("the recipe was not kept in the archive, for a reason that nobody foresaw")
