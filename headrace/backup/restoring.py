"""A data directory from a back-up or an archive. It appears under its name once it is whole."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from controller.cluster.state import Assignment, ClusterState
from domains.archive.sealed import sealed
from domains.plan.graph import DomainIndex
from headrace.backup.choosing import AsOf, ShardAsOf, choose
from headrace.cluster.kept_state import FORMAT as STATE_FORMAT
from headrace.cluster.kept_state import RESTORED
from headrace.errors import AlreadyExists, StorageFailure
from migrations.recipe import without_forgotten
from worker.archive.lost_shard import rebuild_table
from worker.archive.place import Place
from worker.belonging import claim
from worker.embedded import note_count, shard_directory
from worker.rocks.store import RocksStore

FIRST_EPOCH = 1
"""Of the restored cluster's state; bringing it into ZooKeeper sets it ahead of all that the former one has seen."""

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
            rows = rebuild_table(store, place, each.manifest, each.position, schema=each.schema, scratch=scratch)
            tell(each.manifest.base, rows)
            total += rows
    finally:
        store.close()
    return total


def _write_cluster(making: Path, chosen: AsOf, deployment: str) -> None:
    """The state as it is to be in ZooKeeper: every shard is in this directory and nowhere else."""
    id = uuid4().hex
    directory = claim(making, deployment, id)
    placement = {DomainIndex(shard): Assignment("", FIRST_EPOCH, directory) for shard in range(chosen.shards)}
    recipe = without_forgotten(chosen.recipe)
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
