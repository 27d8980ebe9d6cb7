"""All domains of a deployment in one process, over one data directory: what the embedded server runs on.

::

    DIR/base                    the base tables, where the deployment has one shard
    DIR/shards/0000/base …      one RocksDB for each of several
    DIR/shards/count.json       how many: the last one that is missing is no smaller number
    DIR/readers                 the reader map; DIR/readers.2 and this take turns where stores are opened again
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree

from domains.archive.manifest import opened, sealed
from domains.errors import StorageFailure
from domains.plan.graph import DomainIndex
from domains.plan.sharding import physical
from domains.store.memory_store import MemoryStore
from domains.store.storage import DISK_RESERVE
from worker.dataflow.thread import DataflowThread
from worker.rocks.database import RESTORE
from worker.rocks.opening import check_there
from worker.rocks.store import RocksStore
from worker.service.system import allow_open_files

COUNT = "count.json"
READERS = ("readers", "readers.2")


def shard_directory(path: Path, shard: int) -> Path:
    """The directory of one of several shards of the base tables, below the data directory."""
    return path / "shards" / f"{shard:04}"


def shards_of(path: Path, wanted: int | None = None) -> int:
    """How many shards a data directory has: what was decided when it was first used, and ``wanted`` (else 1) if it is
    new. StorageFailure where it has another number than is wanted, or nobody can tell."""
    found = _counted(path) or (1 if (path / "base").exists() else wanted or 1)
    if wanted is not None and found != wanted:
        raise StorageFailure(
            f"the data directory {path} has {found} {'shard' if found == 1 else 'shards'}, not {wanted}",
            hint="their number was decided when it was first used: give none, or begin anew in another directory",
        )
    return found


def _counted(path: Path) -> int:
    """0 where there are none. Of an earlier version, as many as there are."""
    count = path / "shards" / COUNT
    try:
        return int(opened(json.loads(count.read_text("utf-8")))["shards"])
    except FileNotFoundError:
        return len(list(count.parent.glob("[0-9]*")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageFailure(f'cannot tell how many shards "{path}" has: "{count}" is damaged', hint=RESTORE) from error


def note_count(directory: Path, shards: int) -> None:
    """In the directory of all shards, if it does not say so yet. Raises OSError."""
    if (directory / COUNT).exists():
        return
    beside = directory / "count.new"
    with beside.open("w", encoding="utf-8") as file:
        json.dump(sealed({"shards": shards}), file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(directory / COUNT)


def base_directories(path: Path, shards: int, *, new: bool = False) -> list[Path]:
    """The directories of the base tables, shard by shard. StorageFailure where the directory was made for another
    number, and where one of them is missing, unless the deployment is ``new``."""
    shards_of(path, shards)
    found = [path / "base"] if shards == 1 else [shard_directory(path, shard) / "base" for shard in range(shards)]
    for directory in () if new else found:
        check_there(directory)
    return found


def _decide(path: Path, shards: int, *, new: bool) -> None:
    """Make the directories of a new one's shards, all of them or none: a first start that is killed between two of them
    would have decided for fewer."""
    decided, making = path / "shards", path / "shards.making"
    if shards == 1:
        return
    try:
        if decided.exists() or not new:
            note_count(decided, shards)
            return
        rmtree(making, ignore_errors=True)
        for shard in range(shards):
            (making / shard_directory(path, shard).name).mkdir(parents=True)
        note_count(making, shards)
        making.rename(decided)
    except OSError as error:
        if not (decided / COUNT).exists():  # Else another server was faster, and has the locks.
            raise StorageFailure(f'cannot write to "{decided}": {error.strerror}') from error


def open_embedded(
    path: Path,
    *,
    groups: int,
    memory_limit: int,
    shards: int = 1,
    new: bool = True,
    disk_reserve: int = DISK_RESERVE,
    readers: str = READERS[0],
) -> DataflowThread:
    """A dataflow that hosts ``groups × shards`` domains; those of the first group have the base tables.

    StorageFailure where another process has the directory, where it is damaged, or was made for other shards, and where
    the process may not have so many files open. What is not there is made where the deployment is ``new``, and is
    damage where it has a recipe.
    """
    directories = base_directories(path, shards, new=new)
    allow_open_files(shards)
    _decide(path, shards, new=new)
    with ExitStack() as closing:
        stores = []
        for directory in directories:  # First, since their locks keep two servers from one directory.
            stores.append(RocksStore(directory, create=new, reserve=disk_reserve))
            closing.callback(stores[-1].close)
        dataflow = DataflowThread(path / readers, memory_limit=memory_limit)
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
        closing.pop_all()
        return dataflow
