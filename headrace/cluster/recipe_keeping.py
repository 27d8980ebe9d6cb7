"""The leader keeps the recipe beside the archive: the workers, who archive the tables, know nothing of it.

A record says which tables the recipe was in force for, and a new table is first archived some time after it is
created. So a recipe is kept again in every interval until all of its tables are archived; only what is new is written.

How far back the archive reaches is the workers' setting. A controller that is not given the same lets no recipe go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from controller.cluster.candidate import Candidate
from domains.errors import HeadraceError
from domains.sharding import base_shard
from domains.types import TableSchema
from headrace.settings import Settings
from migrations.recipe import Recipe

_log = logging.getLogger("headrace.controller")


async def keep_recipes(candidate: Candidate, settings: Settings) -> None:
    """For as long as the process runs, whenever it leads. What goes wrong is logged, and tried again."""
    assert settings.archive is not None, "there is no archive to keep it in"
    from worker.archive.recipes import keep_recipe  # Late: it loads pyarrow.

    retention = settings.archive_retention if "archive_retention" in settings.model_fields_set else None
    kept: Recipe | None = None
    while True:
        await asyncio.sleep(settings.archive_interval)
        leader = candidate.leader
        decided = None if leader is None else leader.ledger.state
        if leader is None or decided is None or decided.recipe is kept:
            continue
        try:
            tables = leader.serving().state.catalog.tables.values()
            text = decided.recipe.to_json().decode()
            archived = await asyncio.to_thread(keep_recipe, settings.archive, decided.shards, text, retention=retention)
            if archived >= bases(tables, decided.shards):
                kept = decided.recipe
        except HeadraceError as error:
            _log.warning("the recipe was not kept in the archive: %s", error)
        except Exception:  # Nobody waits for this task: what ended it would be seen when an archive is restored.
            _log.exception("the recipe was not kept in the archive, for a reason that nobody foresaw")


def bases(tables: Iterable[TableSchema], shards: int) -> set[str]:
    """The names of all base shards."""
    return {
        base_shard(schema.name, schema.generation, shard, shards)
        for schema in tables
        for shard in range(schema.shards or shards)
    }
