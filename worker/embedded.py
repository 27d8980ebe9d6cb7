"""All domains of a deployment in one process, over one data directory: what the embedded server runs on.

::

    DIR/base                    the base tables, where the deployment has one shard
    DIR/shards/0000/base …      one RocksDB for each of several
    DIR/readers                 the reader map
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree

from domains.errors import StorageFailure
from domains.graph import DomainIndex
from domains.memory_store import MemoryStore
from domains.sharding import physical
from domains.storage import DISK_RESERVE
from worker.dataflow import Dataflow
from worker.open_files import allow_open_files
from worker.rocks.store import RocksStore


def shard_directory(path: Path, shard: int) -> Path:
    """Where one of several shards of the base tables is, below the data directory."""
    return path / "shards" / f"{shard:04}"


def shards_of(path: Path, wanted: int | None = None) -> int:
    """How many shards a data directory has: what was decided when it was first used, and ``wanted`` (else 1) if it is
    new. StorageFailure where it has another number than is wanted."""
    found = len(list((path / "shards").glob("[0-9]*"))) or (1 if (path / "base").exists() else wanted or 1)
    if wanted is not None and found != wanted:
        raise StorageFailure(
            f"the data directory {path} has {found} {'shard' if found == 1 else 'shards'}, not {wanted}",
            hint="their number was decided when it was first used: give none, or begin anew in another directory",
        )
    return found


def base_directories(path: Path, shards: int) -> list[Path]:
    """Where the base tables are, shard by shard. StorageFailure where the directory was made for another number."""
    shards_of(path, shards)
    return [path / "base"] if shards == 1 else [shard_directory(path, shard) / "base" for shard in range(shards)]


def _decide(path: Path, shards: int) -> None:
    """Make the directories of a new one's shards, all of them or none: a first start that is killed between two of them
    would have decided for fewer."""
    decided, making = path / "shards", path / "shards.making"
    if shards == 1 or decided.exists():
        return
    try:
        rmtree(making, ignore_errors=True)
        for shard in range(shards):
            (making / shard_directory(path, shard).name).mkdir(parents=True)
        making.rename(decided)
    except OSError as error:
        if not decided.exists():  # Else another server was faster, and has the locks.
            raise StorageFailure(f'cannot make "{decided}": {error.strerror}') from error


def open_embedded(
    path: Path,
    *,
    groups: int,
    memory_limit: int,
    shards: int = 1,
    new: bool = True,
    disk_reserve: int = DISK_RESERVE,
) -> Dataflow:
    """A dataflow that hosts ``groups × shards`` domains; those of the first group have the base tables.

    StorageFailure where another process has the directory, where it is damaged, or was made for other shards, and where
    the process may not have so many files open. What is not there is made where the deployment is ``new``, and is
    damage where it has a recipe.
    """
    directories = base_directories(path, shards)
    if not new:
        for directory in directories:
            if not directory.exists():
                raise StorageFailure(
                    f'"{directory}" is missing: there were tables in it',
                    hint="restore it from its archive or a back-up",
                )
    allow_open_files(shards)
    _decide(path, shards)
    with ExitStack() as opened:
        stores = []
        for directory in directories:  # First, since their locks keep two servers from one directory.
            stores.append(RocksStore(directory, reserve=disk_reserve))
            opened.callback(stores[-1].close)
        dataflow = Dataflow(path / "readers", memory_limit=memory_limit)
        for group in range(groups):
            for shard in range(shards):
                index = physical(DomainIndex(group), shard, shards)
                if group == 0:
                    store = stores[shard]
                    dataflow.hosted.open(
                        index, store, shard=shard, shards=shards, linked=True, sync=store.sync, close=store.close
                    )
                else:
                    dataflow.hosted.open(index, MemoryStore(), shard=shard, shards=shards, linked=True)
        opened.pop_all()
        return dataflow
