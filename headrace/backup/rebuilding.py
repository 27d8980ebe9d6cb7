"""Base shards whose disk is gone, rebuilt from the archive: folded and sorted by Spark, loaded by us.

::

    archive ── Spark: fold, sort by key ──► runs (snapshots in a directory of their own) ──► RocksDB: shards/0001/base

Rows are loaded by write batches without RocksDB's log, and not as finished SST files: a row has entries in several
places (rows, secondary indexes, the store's counters), whose keys the store alone knows how to write, and a stream that
is sorted by primary key is appended to RocksDB's files either way.

**The tail.** What was written after the last archiving was on the disk only. It cannot be rebuilt; it is named, shard
by shard, as far as it is known: by a token (any that a client has kept), or by the positions that the cluster last
showed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.errors import BadRequest
from migrations.backfill.spark.launching import ABOUT, SparkJob
from migrations.backfill.spark.settings import SparkSettings
from worker.archive.folding import log_of
from worker.archive.manifests import all_manifests, load_manifest
from worker.archive.place import Place
from worker.embedded import shard_directory
from worker.rocks.store import RocksStore

STEP_ROWS = 4_096
"""To one write of RocksDB; more make it no faster."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One base shard. ``lost`` are the first and last position that were written and not archived, where known."""

    base: str
    position: int
    rows: int
    lost: tuple[int, int] | None = None


def rebuild(
    archive: str,
    data: Path,
    spark: SparkSettings,
    *,
    shards: Sequence[int] = (),
    known: dict[str, int] | None = None,
    tell: Tell = lambda text: None,
) -> list[Rebuilt]:
    """Make the base shards' directories below ``data`` anew, as of the last archived positions.

    ``shards`` are their numbers; () is all. ``known`` are positions that were acknowledged, by base shard.

    :raises ArchiveError: something of the archive is missing or damaged; named, and nothing is made.
    :raises BadRequest: there is no such shard, or its directory is there already.
    """
    manifests = [each for each in all_manifests(Place(archive).there()) if not shards or each.shard in shards]
    if not manifests:
        raise BadRequest(f'the archive "{archive}" has no such shard', hint="headrace archive status shows all")
    count = max(each.shards for each in manifests)
    for number in sorted({each.shard for each in manifests}):
        if _directory(data, number, count).exists():
            raise BadRequest(f'"{_directory(data, number, count)}" is there already', hint="move it away first")
    wanted = [[each.table, each.shard, each.position] for each in manifests]
    # Beside what is made: it is as large, and the same disk has room for both or for neither.
    data.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="rebuild-", dir=data) as runs:
        tell(f"folding and sorting {len(wanted)} base shards")
        rows = sum(segment.rows for each in manifests for segment in each.fold_of(each.position))
        what = {"archive": archive, "out": runs, "shards": wanted, ABOUT: rows}
        with SparkJob("rebuild", what, spark) as job:
            while not job.wait(0.5):
                tell(f"folding and sorting {job.progress.get('shard', '')}")
            job.result()
        found = []
        for number in sorted({each.shard for each in manifests}):
            # Under its name once it is whole: what was broken off would be served as if it were all.
            making = Path(runs) / f"making-{number}"
            store = RocksStore(making, keep_log=False)
            try:
                for each in manifests:
                    if each.shard == number:
                        tell(f"loading {each.base}")
                        rows = _loaded(store, Place(runs), each.table, number)
                        found.append(Rebuilt(each.base, each.position, rows, _lost(each.base, each.position, known)))
            finally:
                store.close()
            _directory(data, number, count).parent.mkdir(parents=True, exist_ok=True)
            making.rename(_directory(data, number, count))
    return found


def _directory(data: Path, shard: int, shards: int) -> Path:
    return data / "base" if shards == 1 else shard_directory(data, shard) / "base"


def _lost(base: str, position: int, known: dict[str, int] | None) -> tuple[int, int] | None:
    last = (known or {}).get(base, 0)
    return (position + 1, last) if last > position else None


def _loaded(store: RocksStore, runs: Place, name: str, shard: int) -> int:
    """A run into a store, in its order; how many rows it has."""
    manifest = load_manifest(runs, name, shard)
    assert manifest is not None, "the job has written one"
    position = manifest.position
    schema = manifest.schemas[-1]
    table, total = store.create_table(schema), 0
    for part in log_of(runs, manifest, position) if position else ():
        for at in range(0, len(part), STEP_ROWS):
            deltas = [(row, weight) for _, row, weight in part[at : at + STEP_ROWS]]
            table.stage(deltas)
            store.commit([])
            total += sum(weight for _, weight in deltas)
    table.raise_auto_increment(manifest.auto_increment)
    store.commit([(schema.name, position, [])] if position else [])
    return total


def report(found: Sequence[Rebuilt], began: float) -> str:
    """Rebuilt shards, and those that failed, as lines."""
    rows = sum(each.rows for each in found)
    lines = [f"{len(found)} base shards, {rows:,} rows in {time.monotonic() - began:.1f} s"]
    for each in found:
        lines.append(f"{each.base}: as of position {each.position:,}, {each.rows:,} rows")
        if each.lost is not None:
            lines.append(f"{each.base}: positions {each.lost[0]:,} to {each.lost[1]:,} were not archived and are lost")
    return "\n".join(lines)
