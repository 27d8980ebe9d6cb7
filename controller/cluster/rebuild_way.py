"""Who folds the archive of lost shards: the worker that gets them, or Spark, where that is worth it and to be had."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from controller.cluster.building import BulkSettings
from domains.errors import BadRequest, HeadraceError, Unavailable
from domains.graph import DomainIndex
from migrations.backfill.runner import Folder
from migrations.backfill.threshold import By
from worker.rebuild_messages import ArchivedShard

WORKER = "worker"
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
        error.hint = or_by_worker(error.hint)
        raise
    return Way(bulk.folder.name, "as was asked" if by == "spark" else above, rows, bulk.folder)


def _missing(bulk: BulkSettings) -> str:
    if bulk.archive is None:
        return "the controller has no archive (--archive)"
    return "" if bulk.folder is not None else "Spark is turned off (--spark-master none)"


def or_by_worker(hint: str | None) -> str:
    return f"{hint}; {BY_WORKER}" if hint else BY_WORKER
