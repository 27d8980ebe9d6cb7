"""A base shard's RocksDB from its archive: what a restore does, and a recovery without Spark.

The fold is loaded row by row into a new table, whose position is then that of the fold. Its log begins there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from domains.archive import ShardManifest, check_rows
from domains.row_types import RowTypes
from domains.storage import added_values
from domains.types import Delta, TableSchema
from worker.archive.folding import fold
from worker.archive.place import Place
from worker.rocks.store import RocksStore

STEP_ROWS = 4_096
"""To one write of RocksDB; more make it no faster."""

Loaded = Callable[[int], None]


def rebuild_table(
    store: RocksStore,
    place: Place,
    manifest: ShardManifest,
    position: int,
    *,
    schema: TableSchema | None = None,
    identity: str | None = None,
    scratch: Path | None = None,
    loaded: Loaded = lambda rows: None,
) -> int:
    """Make the manifest's table in a store that writes no log, as of a position; answers how many rows it has.

    ``schema`` is what the table is to be, where it was altered since the position, or between it and the one that is
    asked for. ``identity`` is that of the manifest only where this goes on with the same archive. ``loaded`` is told of
    each part's rows. Not durable before the store is synced or closed.

    :raises ArchiveError: nothing is skipped, and no row is stored that does not fit; the store is then to be thrown
        away.
    """
    wanted = schema or manifest.schema_at(position)
    padding, width = added_values(manifest.schema_at(position), wanted), len(wanted.columns)
    table, types = store.create_table(wanted, identity), RowTypes(wanted)
    total = 0
    for part in fold(place, manifest, position, scratch=scratch):
        for at in range(0, len(part), STEP_ROWS):
            deltas: list[Delta] = [((row + padding)[:width], weight) for row, weight in part[at : at + STEP_ROWS]]
            check_rows(types, manifest.shard, [row for row, _ in deltas])
            table.stage(deltas)
            store.commit([])
            total += sum(weight for _, weight in deltas)
        loaded(sum(weight for _, weight in part))
    table.raise_auto_increment(manifest.auto_increment)
    if position:
        store.commit([(wanted.name, position, [])])
    else:
        store.commit([])
    return total
