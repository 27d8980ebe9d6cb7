"""Back-ups and restores have each transaction over several shards wholly, in whatever state it is at the cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from headrace_client import tokens

from controller.embedded.local import LocalDeployment
from controller.hosts import TableTarget
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock, Commit, Insert, InTransaction, Prepare, TransactionAct, Written
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_stopped
from migrations.flow.routing import split
from worker.archive.options import ArchiveOptions
from worker.archive.place import Place
from worker.archive.recipes import Cut, RecipeBook

SHARDS = 3


class Site:
    """A server of several shards, whose transactions are committed by hand, step by step."""

    def __init__(self, path: Path) -> None:
        self.path, self.archive = path, str(path / "archive")
        self.data = path / "data"
        self.server: LocalDeployment

    async def open(self) -> None:
        archive = ArchiveOptions(self.archive, interval=3600.0)
        self.server = await LocalDeployment.open(self.data, shards=SHARDS, archive=archive)

    async def act(self, id: str, act: TransactionAct, domain: int, table: TableTarget | None = None) -> Written:
        within = InTransaction(id, begins=True, domain=DomainIndex(domain))
        return await self.server.hosts.transact(act, within, table)

    async def begin(self, id: str, n: int) -> list[int]:
        """Rows for all shards; answers the shards, of which the first is to decide."""
        schema = self.server.state.catalog.tables["t"]
        target, asked = TableTarget.of(schema, SHARDS), list[int]()
        rows = Insert("t", tuple((key, n) for key in range(100 * n, 100 * n + 8)))
        for shard, part in split(rows, schema, SHARDS):
            await self.act(id, part, target.domains[shard], target)
            asked.append(target.domains[shard])
        return asked

    async def prepare(self, id: str, decider: int, *domains: int) -> None:
        for domain in domains:
            await self.act(id, Prepare(DomainIndex(decider), time.time()), domain)

    async def counted(self, as_of: str | None = None, source: str | None = None) -> dict[int, int]:
        """How many rows what is restored has of each transaction."""
        data = self.path / f"restored-{time.monotonic_ns()}"
        await asyncio.to_thread(restore, source or self.archive, data, as_of=as_of)
        restored = await LocalDeployment.open(data)
        ((result,), _) = await restored.execute("SELECT n, COUNT(*) FROM t GROUP BY n")
        await restored.close()
        return {int(n): int(count) for n, count in result.rows}

    def last(self) -> Cut:
        found = RecipeBook(Place(self.archive)).cut_at()
        assert found is not None
        return found


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Site]:
    made = Site(path)
    await made.open()
    await made.server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    yield made
    await made.server.close()


async def test_what_is_committed_in_one_shard_is_restored_in_all(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        first, *others = await site.begin("a", 1)
        await site.prepare("a", first, *others)
        await site.server.archive()
        assert await site.counted() == {}, "nobody has committed it"
        await site.act("a", Commit(tuple(map(DomainIndex, others))), first)
        await site.server.archive()
        assert await site.counted() == {1: 8}
        await site.act("a", Commit(decided=True), others[0])
        await site.server.archive()
        assert await site.counted() == {1: 8}
        assert {part.id for part in site.last().closed().lacking} == {"a"}
        await site.act("a", Commit(decided=True), others[1])
        await site.server.archive()
        assert await site.counted() == {1: 8}
        assert site.last().closed().lacking == ()
        for domain in site.server.dataflow.domains.values():
            assert domain.store.parts() == {}, "the archive has all of it"


async def test_what_others_write_meanwhile_is_restored_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        first, *others = await site.begin("a", 1)
        await site.prepare("a", first, *others)
        await site.act("a", Commit(tuple(map(DomainIndex, others))), first)
        await site.begin("b", 2)  # Open, and never committed.
        await site.server.insert("t", [{"id": key, "n": 3} for key in range(300, 310)])
        await site.server.archive()
        assert await site.counted() == {1: 8, 3: 10}


async def test_a_server_that_was_stopped_in_the_middle_is_backed_up_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        first, *others = await site.begin("a", 1)
        await site.prepare("a", first, *others)
        await site.act("a", Commit(tuple(map(DomainIndex, others))), first)
        prepared = await site.begin("b", 2)
        await site.prepare("b", prepared[0], *prepared[1:])
    await asyncio.to_thread(back_up_stopped, site.data, str(tmp_path / "backup"))
    assert await site.counted(source=str(tmp_path / "backup")) == {1: 8}
    await site.open()
    site.server.in_doubt.look(at_once=True)
    until = time.monotonic() + 20.0
    while (await site.server.in_doubt.listed([]))[0]:
        assert time.monotonic() < until, "it is not brought to an end"
        await asyncio.sleep(0.02)
    ((result,), _) = await site.server.execute("SELECT COUNT(*) FROM t")
    await site.server.close()
    assert result.rows == ((8,),), "as the back-up has it"


async def test_a_token_of_one_shard_brings_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        await site.server.insert("t", [{"id": key, "n": 0} for key in range(8)])
        first, *others = await site.begin("a", 1)
        await site.prepare("a", first, *others)
        before: Clock = {f"t@{first}": 1}
        written = await site.act("a", Commit(tuple(map(DomainIndex, others))), first)
        await site.server.archive()
        assert await site.counted(tokens.encode(written.clock)) == {0: 8, 1: 8}
        for other in others:
            await site.act("a", Commit(decided=True), other)
        await site.server.archive()
        assert await site.counted(tokens.encode(written.clock)) == {0: 8, 1: 8}
        assert await site.counted(tokens.encode(before)) == {0: 8}, "one of its shards is as of before"


async def test_a_dropped_table_takes_nothing_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        await site.server.execute("CREATE TABLE u (id INT PRIMARY KEY)")
        await site.server.execute(
            "INSERT INTO t (id, n) VALUES (1, 1), (2, 1), (3, 1); INSERT INTO u VALUES (1), (2)", atomic=True
        )
        await site.server.execute("DROP TABLE u")
        await site.server.archive()
        assert await site.counted() == {1: 3}


@pytest.mark.parametrize("restarts", [False, True])
async def test_nothing_is_told_for_ever(restarts: bool, tmp_path: Path) -> None:
    """Also of a transaction of which a shard knows nothing any more."""
    async with opened(tmp_path) as site:
        first, *others = await site.begin("a", 1)
        await site.prepare("a", first, *others)
        await site.act("a", Commit(tuple(map(DomainIndex, others))), first)
        for other in others:
            await site.act("a", Commit(decided=True), other)
        lost = site.server.dataflow.domains[DomainIndex(others[0])]
        lost.store.forget_parts(["a"])
        if restarts:
            await site.server.close()
            await site.open()
        await site.server.archive()
        assert list(site.last().lost) in ([("a", others[0])], [["a", others[0]]])
        assert await site.counted() == {1: 8}
        for domain in site.server.dataflow.domains.values():
            assert domain.store.parts() == {}
