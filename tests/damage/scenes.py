"""What is damaged: a server's directory that was killed, closed or has several shards, an archive, a cluster's."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace_client import calls

from controller.cluster.state import ClusterState
from domains.errors import BadRequest, HeadraceError, NotFound
from domains.plan.graph import DomainIndex
from headrace import Embedded, embedded
from headrace.backup.restoring import restore
from headrace.cluster import kept_state
from headrace.errors import StorageFailure
from headrace.settings import load
from migrations.recipe import RecipeEntry
from worker.belonging import claim
from worker.rocks.store import RocksStore
from worker.service.shards import open_shard
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.server import Ensemble

QUERIES = (
    "SELECT COUNT(*), SUM(n) FROM t",
    "SELECT * FROM t ORDER BY id",
    "SELECT id FROM t WHERE n = 7 ORDER BY id",
    "SELECT * FROM u ORDER BY id",
    "SELECT * FROM High ORDER BY id",
    "SELECT * FROM Later ORDER BY id",
)
CLUSTER, SHARDS = "main", 2


class Scene:
    """A server that is killed, unless a subclass says otherwise."""

    rows = 3_000
    walked = "."
    refusals: tuple[type[HeadraceError], ...] = ()
    """Beside those of storage, archives and the authority."""
    unnoticed: tuple[str, ...] = ()
    """What may be deleted without a word: a limit that is known, and stands in the essay of this room."""
    ways: tuple[str, ...] = ("bit", "byte", "cut", "zeros", "delete", "folder", "empty")

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def make(self, data: Path, image: Path) -> None:
        """Tables in files and in the log, views of before and after the recipe was last written whole."""
        self._write(data, lambda _: shutil.copytree(data, image))

    def _write(self, data: Path, at_last: Callable[[Embedded], Any]) -> None:
        with embedded(data, **self._settings) as db:
            db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT, text TEXT); CREATE INDEX by_n ON t (n)")
            db.execute("CREATE VIEW High AS SELECT id, n FROM t WHERE n > 90")
            for first in range(0, self.rows, 1_000):
                part = range(first, min(first + 1_000, self.rows))
                db.table("t").insert([{"id": at, "n": at % 100, "text": "x" * (at % 50)} for at in part])
        with embedded(data, **self._settings) as db:  # What was written before is in a file of rows by now.
            db.execute("CREATE TABLE u (id INT PRIMARY KEY, name TEXT)")
            for at in range(40):
                db.execute(f"INSERT INTO u VALUES ({at}, 'name {at}')")
                db.execute(f"UPDATE t SET n = n + 1 WHERE id = {at * 7}")
            db.execute("CREATE VIEW Later AS SELECT id FROM u WHERE id > 3")
            db.execute("ALTER TABLE u ADD COLUMN more INT DEFAULT 5")
            at_last(db)

    def extent(self, path: Path) -> int:
        """How much of a file is worth damaging."""
        return path.stat().st_size

    def answers(self, data: Path) -> list[Any]:
        """Of each query, its rows or None where storage refuses it. Raises what refuses the whole."""
        with embedded(data, **self._settings) as db:
            return [_answer(db, query) for query in QUERIES]


def _answer(db: Embedded, query: str) -> Any:
    try:
        return db.execute(query).rows
    except HeadraceError as error:
        if error.code != "storage_failure":
            raise AssertionError(f"{query}: {error.code}: {error}") from error
        return None


class Closed(Scene):
    """Stopped cleanly; with its reader map, which the next start is to make anew."""

    rows = 300

    def make(self, data: Path, image: Path) -> None:
        self._write(data, lambda _: None)
        shutil.copytree(data, image)


class Archived(Scene):
    """An archive below a data directory; what is asked is a restored copy."""

    rows = 300
    walked = "archive"
    refusals = (NotFound, BadRequest)
    unnoticed = ("archive/cuts",)

    def make(self, data: Path, image: Path) -> None:
        self._settings = {"archive": str(data / "archive"), "archive_interval": 86_400}

        def twice(db: Embedded) -> None:
            db.send(calls.archive())
            db.execute("INSERT INTO u VALUES (100, 'late', 1)")
            db.send(calls.archive())

        self._write(data, twice)
        self._settings = {}
        shutil.copytree(data / "archive", image / "archive")

    def answers(self, data: Path) -> list[Any]:
        made = data.with_name(f"{data.name}.made")
        restore(str(data / "archive"), made)
        return super().answers(made)


class Cluster(Scene):
    """The directory of a cluster's workers, which were killed, and the state that a back-up of it brings."""

    rows = 300
    refusals = (BadRequest,)

    def make(self, data: Path, image: Path) -> None:
        archive = data.with_name("archive")
        self._settings = {"archive": str(archive), "archive_interval": 86_400, "shards": SHARDS}
        self._write(data, lambda db: db.send(calls.archive()))
        workers = data.with_name("workers")
        restore(str(archive), workers, cluster=CLUSTER)
        opened = [open_shard(workers, shard, "w1", 7) for shard in range(SHARDS)]
        try:
            for each in opened:
                position = each.store.position("u")
                for step in range(1, 6):
                    row = (1_000 * step + each.owner.incarnation, f"late {step}", step)
                    each.store.table("u").stage([(row, 1)])
                    each.store.commit([("u", position + step, [(row, 1)])])
                    each.store.sync()
            shutil.copytree(workers, image)
        finally:
            for each in opened:
                each.close()

    def answers(self, data: Path) -> list[Any]:
        """Its recipe, and the tables of each shard."""
        id, state = kept_state._read(load(deployment=CLUSTER), data / kept_state.RESTORED)
        name = claim(data, CLUSTER, id)
        return [
            state.recipe.entries,
            *(table for shard in range(SHARDS) for table in self._of_shard(data, name, state, shard)),
        ]

    def _of_shard(self, data: Path, name: str, state: ClusterState, shard: int) -> list[Any]:
        if state.placement[DomainIndex(shard)].data != name:
            raise StorageFailure(f'no worker has the data directory of shard {shard}, "{name}" is another')
        opened = open_shard(data, shard, "w2", 8, kept=True)
        try:
            return [_table(opened.store, table) for table in ("t", "u")]
        finally:
            opened.close()


def _table(store: RocksStore, name: str) -> Any:
    try:
        return store.position(name), sorted(store.table(name).find((), ()))
    except StorageFailure:
        return None


class ZooKeeper(Scene):
    """The bundled server's snapshots and logs; what is asked is the cluster's state. Only turned bits and bytes: of a
    log that is cut or has zeros at its end, as of one that a crash has torn, it reads what is before."""

    walked = "zookeeper/1/data"
    ways = ("bit", "byte")
    refusals = (BadRequest,)

    def make(self, data: Path, image: Path) -> None:
        asyncio.run(self._make(data, image))

    async def _make(self, data: Path, image: Path) -> None:
        state, version = ClusterState(CLUSTER, SHARDS, 1, 1), 0
        for _ in range(2):  # Each start takes a snapshot, and begins a log with the first change.
            async with self._served(data, create=True) as (server, authority):
                for number in range(5):
                    entry = RecipeEntry((f"CREATE TABLE t{version}_{number} (id INT PRIMARY KEY, n INT DEFAULT 1234)",))
                    state = replace(state.with_recipe(state.recipe.with_entry(entry)), epoch=state.epoch + 1)
                    version = await authority.write(state.encode(), version)
                await server.kill(1)
        shutil.copytree(data, image)

    @asynccontextmanager
    async def _served(self, data: Path, *, create: bool) -> AsyncIterator[tuple[Ensemble, KazooAuthority]]:
        server = Ensemble(data / "zookeeper")
        await server.start()
        try:
            authority = KazooAuthority(server.address, CLUSTER)
            try:
                await authority.start(create=create)
                yield server, authority
            finally:
                await authority.close()
        finally:
            await server.stop()

    def answers(self, data: Path) -> list[Any]:
        return [asyncio.run(self._answer(data))]

    async def _answer(self, data: Path) -> ClusterState:
        async with self._served(data, create=False) as (_, authority):
            found, _ = await authority.read()
        if found is None:
            raise StorageFailure("ZooKeeper has no state of the deployment")
        return ClusterState.decode(found, CLUSTER)

    def extent(self, path: Path) -> int:
        """A log is allocated at once, and nearly all of it is zeros."""
        return min(path.stat().st_size, len(path.read_bytes().rstrip(b"\0")) + 64)


SCENES: dict[str, Callable[[], Scene]] = {
    "killed": Scene,
    "closed": Closed,
    "shards": lambda: Scene(shards=3),
    "archive": Archived,
    "cluster": Cluster,
    "zookeeper": ZooKeeper,
}
