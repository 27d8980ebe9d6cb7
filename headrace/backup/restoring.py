"""A data directory from a back-up or an archive. It appears under its name once it is whole."""

from __future__ import annotations

import json
import os
import shutil
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from controller.cluster.state import Assignment, ClusterState
from domains.archive.manifest import sealed
from domains.language.types import Delta
from domains.plan.graph import DomainIndex
from domains.store.widening import widening
from headrace.backup.choosing import AsOf, ShardAsOf, choose
from headrace.cluster.kept_state import FORMAT as STATE_FORMAT
from headrace.cluster.kept_state import RESTORED
from headrace.errors import AlreadyExists, BadRequest, StorageFailure
from migrations.backfill.spark.launching import ABOUT, SparkJob
from migrations.backfill.spark.settings import SparkSettings
from migrations.recipe import declared
from worker.archive.folding import log_of
from worker.archive.lost_shard import rebuild_table
from worker.archive.manifests import all_manifests, load_manifest
from worker.archive.place import Place
from worker.belonging import claim
from worker.embedded import note_count, shard_directory
from worker.rocks.store import RocksStore

# Base shards whose disk is gone, rebuilt from the archive: folded and sorted by Spark, loaded by us.
#
# ::
#
#     archive ── Spark: fold, sort by key ──► runs (snapshots in a directory of their own) ──► RocksDB: shards/0001/base
#
# Rows are loaded by write batches without RocksDB's log, and not as finished SST files: a row has entries in several
# places (rows, secondary indexes, the store's counters), whose keys the store alone knows how to write, and a stream
# that is sorted by primary key is appended to RocksDB's files either way.
#
# **The tail.** What was written after the last archiving was on the disk only. It cannot be rebuilt; it is named,
# shard by shard, as far as it is known: by a token (any that a client has kept), or by the positions that the cluster
# last showed.

STEP_ROWS = 4_096
"""Rows in one write of RocksDB; more make it no faster."""

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


FIRST_EPOCH = 1
"""Epoch of the restored state; ``headrace state --restore`` sets it ahead of all that the former cluster has seen."""

Told = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Restored:
    as_of: AsOf
    rows: int


def restore(
    source: str,
    data: Path,
    *,
    as_of: str | None = None,
    cluster: str | None = None,
    tell: Told = lambda base, rows: None,
) -> Restored:
    """Make the data directory of an embedded server, or with a deployment's name of a ``cluster``.

    ``tell`` is called with each shard of a table and its number of rows.

    :raises NotFound: there is no such source. :raises AlreadyExists: there is something in the directory.
    :raises StorageFailure: it cannot be made. :raises ArchiveError: something is missing or damaged; then nothing is
        left behind.
    """
    place = Place(source).there()
    chosen = choose(place, as_of)
    data = data.resolve()  # "." has no name, and a link is not to be replaced by what it leads to.
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise AlreadyExists(f'"{data}" is not empty', hint="restore into a directory of its own")
    if data.is_mount():
        raise StorageFailure(
            f'"{data}" is a mount point, and cannot be put in place as a whole', hint="name a directory in it"
        )
    making = data.with_name(data.name + ".restoring")
    try:
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        rows = sum(
            _make_shard(place, _base_directory(making, chosen, shard, cluster), _of_shard(chosen, shard), making, tell)
            for shard in range(chosen.shards)
        )
        if cluster is None:
            if chosen.shards > 1:
                note_count(making / "shards", chosen.shards)
            _write(making / "recipe.json", chosen.recipe.to_json())
        else:
            _write_cluster(making, chosen, cluster)
        making.replace(data)
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        raise StorageFailure(f'cannot make "{data}": {error.strerror or error}') from error
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return Restored(chosen, rows)


def _base_directory(making: Path, chosen: AsOf, shard: int, cluster: str | None) -> Path:
    if cluster is None and chosen.shards == 1:
        return making / "base"
    return shard_directory(making, shard) / "base"


def _of_shard(chosen: AsOf, shard: int) -> list[ShardAsOf]:
    return [each for each in chosen.tables if each.manifest.shard == shard]


def _make_shard(place: Place, directory: Path, tables: Iterable[ShardAsOf], scratch: Path, tell: Told) -> int:
    store = RocksStore(directory, keep_log=False)
    total = 0
    try:
        for each in tables:
            rows = rebuild_table(
                store,
                place,
                each.manifest,
                each.position,
                schema=each.schema,
                scratch=scratch,
                behind=_lacking(place, each),
            )
            tell(each.manifest.base, rows)
            total += rows
    finally:
        store.close()
    return total


def _lacking(place: Place, table: ShardAsOf) -> Iterator[list[Delta]]:
    """What transactions change in the table that it had only prepared: as it was told, or by the log of later."""
    base = table.manifest.base
    for part in table.lacking:
        if base in part.changes:
            changes = part.changes[base]
            widen, width = widening(changes.schema, table.schema), len(table.schema.columns)
            yield [(widen(row)[:width], weight) for row, weight in changes.deltas]
        else:
            assert part.committed is not None, "it has the base by one of both"
            at = part.committed[base]
            for entries in log_of(place, table.manifest, at, schema=table.schema, after=at - 1):
                yield [(row, weight) for _, row, weight in entries]


def _write_cluster(making: Path, chosen: AsOf, deployment: str) -> None:
    """The state as it is to be in ZooKeeper: every shard is in this directory and nowhere else."""
    id = uuid4().hex
    directory = claim(making, deployment, id)
    placement = {DomainIndex(shard): Assignment("", FIRST_EPOCH, directory) for shard in range(chosen.shards)}
    recipe = declared(chosen.recipe)
    state = ClusterState(deployment, chosen.shards, 1, FIRST_EPOCH, placement, recipe)
    document = {
        "format": STATE_FORMAT,
        "deployment": deployment,
        "id": id,
        "state": b64encode(state.encode()).decode(),
    }
    _write(making / RESTORED, json.dumps(sealed(document)).encode())


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
