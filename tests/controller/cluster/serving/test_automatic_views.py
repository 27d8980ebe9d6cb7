"""Automatic views in a cluster: made by the leader, shown by api processes, gone with whatever changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.leader.leader import Leader
from controller.cluster.serving.connections import ReaderMaps
from controller.cluster.serving.deployment import ClusterDeployment
from controller.statements import selects, shapes
from domains.errors import ConstraintViolation, Unsupported
from domains.plan.graph import is_automatic
from tests.kit.cluster_deployment import InProcess, NoMap, open_cluster
from worker.protocol.messages import Role
from worker.reader_map import ReaderClient
from worker.wire.connection import greeting

BY_AUTHOR = "SELECT id, title FROM stories WHERE author = 7 ORDER BY id"


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InProcess]:
    monkeypatch.setattr(shapes, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(selects, "KEEP_AGAIN_SECONDS", 0.0)
    deployment = await open_cluster(tmp_path, plain=False)
    try:
        await deployment.execute("CREATE TABLE stories (id INT PRIMARY KEY, author INT, title TEXT, KEY (author))")
        await deployment.execute("INSERT INTO stories VALUES (1, 7, 'a'), (2, 7, 'b'), (3, 8, 'c')")
        yield deployment
    finally:
        await deployment.close()


def leader_of(cluster: InProcess) -> Leader:
    leader = cluster.leading.candidate.leader
    assert leader is not None
    return leader


async def asked(cluster: ClusterDeployment, sql: str, times: int = 1, **given: Any) -> tuple[tuple[Any, ...], ...]:
    rows: tuple[tuple[Any, ...], ...] = ()
    for _ in range(times):
        (answer,), _ = await cluster.execute(sql, **given)
        rows = answer.rows
        await cluster.selects.settled()
    return rows


def kept(cluster: ClusterDeployment) -> list[str]:
    return [view.sql for view in cluster.views() if view.ad_hoc]


def automatic_nodes(cluster: InProcess) -> set[int]:
    domains = [host.domain for worker in cluster.workers for host in worker.dataflow.hosted.hosts.values()]
    return {index for domain in domains for index in domain.vertices if is_automatic(index)}


async def test_what_is_asked_again_and_again_is_kept(cluster: InProcess) -> None:
    assert await asked(cluster, BY_AUTHOR, shapes.KEEP_CALLS) == ((1, "a"), (2, "b"))
    assert kept(cluster) == ["SELECT id, title FROM stories WHERE author = ? ORDER BY id"]
    (told,) = cluster.queries()
    assert told.view is not None
    assert told.why.startswith("kept: it was asked")
    (plan,), _ = await cluster.execute(f"EXPLAIN {BY_AUTHOR}")
    assert plan.rows[0] == (f'answered by the view "{told.view}"',)
    _, token = await cluster.execute("INSERT INTO stories VALUES (4, 7, 'd')")
    assert await asked(cluster, BY_AUTHOR, token=token) == ((1, "a"), (2, "b"), (4, "d"))
    assert await asked(cluster, BY_AUTHOR.replace("7", "8")) == ((3, "c"),)
    assert cluster.directory.recipe is not None
    assert not any(entry.ad_hoc for entry in cluster.directory.recipe.entries)
    assert (await cluster.status())["cluster"]["automatic"] == 1


async def test_a_shape_with_ever_other_constants_gets_one_view(cluster: InProcess) -> None:
    for low in range(12):
        sql = f"SELECT id FROM stories WHERE author = 7 AND id > {low} ORDER BY id"
        assert await asked(cluster, sql) == tuple((id,) for id in (1, 2) if id > low)
    assert len(kept(cluster)) == 1


async def test_what_cannot_be_kept_says_why(cluster: InProcess) -> None:
    await asked(cluster, "SELECT id FROM stories WHERE title = 'a'", 6)
    (told,) = cluster.queries()
    assert told.why == 'not kept: it looks "stories" up by (title), and there is no index for that'
    await cluster.execute("CREATE INDEX by_title ON stories (title)")
    assert await asked(cluster, "SELECT id FROM stories WHERE title = 'a'", 2) == ((1,),)
    assert len(kept(cluster)) == 1


async def test_a_change_of_the_recipe_begins_without_them(cluster: InProcess) -> None:
    await asked(cluster, BY_AUTHOR, 5)
    before = automatic_nodes(cluster)
    assert before
    await cluster.execute("CREATE EXT VIEW titles AS SELECT title FROM stories WHERE id = ?")
    assert kept(cluster) == []
    assert automatic_nodes(cluster) == set()
    assert await asked(cluster, BY_AUTHOR, 2) == ((1, "a"), (2, "b"))
    assert len(kept(cluster)) == 1
    assert not before & automatic_nodes(cluster), "numbers are given once"


async def test_a_table_that_one_reads_is_altered_and_dropped(cluster: InProcess) -> None:
    await asked(cluster, "SELECT * FROM stories WHERE author = 7 ORDER BY id", 5)
    assert kept(cluster)
    await cluster.execute("ALTER TABLE stories ADD COLUMN score INT DEFAULT 1")
    rows = await asked(cluster, "SELECT * FROM stories WHERE author = 7 ORDER BY id", 5)
    assert rows == ((1, 7, "a", 1), (2, 7, "b", 1))
    assert kept(cluster)
    await cluster.execute("DROP TABLE stories")
    assert automatic_nodes(cluster) == set()


async def test_a_recovery_removes_them_and_nobody_notices(cluster: InProcess) -> None:
    await asked(cluster, BY_AUTHOR, 5)
    before = automatic_nodes(cluster)
    leader = leader_of(cluster)
    leader.disturb("a test")
    await leader.until_calm()
    assert automatic_nodes(cluster) == set()
    assert kept(cluster), "the api process has not heard of it"
    assert await asked(cluster, BY_AUTHOR) == ((1, "a"), (2, "b"))
    assert await asked(cluster, BY_AUTHOR, 2) == ((1, "a"), (2, "b"))
    assert kept(cluster)
    assert not before & automatic_nodes(cluster)


async def test_another_leader_knows_none(cluster: InProcess) -> None:
    await asked(cluster, BY_AUTHOR, 5)
    before = automatic_nodes(cluster)
    await cluster.leading.again(cluster.around)
    assert automatic_nodes(cluster) == set()
    assert await asked(cluster, BY_AUTHOR, 3) == ((1, "a"), (2, "b"))
    after = automatic_nodes(cluster)
    assert after
    assert not before & after


async def test_without_a_leader_they_serve_on(cluster: InProcess) -> None:
    await asked(cluster, BY_AUTHOR, 5)
    await cluster.leading.end()
    assert await asked(cluster, BY_AUTHOR) == ((1, "a"), (2, "b"))
    assert kept(cluster)
    other = "SELECT title FROM stories WHERE author = 7 ORDER BY id"
    assert await asked(cluster, other, 6) == (("a",), ("b",))
    assert len(kept(cluster)) == 1


async def test_there_are_no_more_of_a_table_than_it_bears(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "TABLE_VIEWS", 2)
    columns = ("id", "title", "id, title", "title, id")
    for each in columns:
        await asked(cluster, f"SELECT {each} FROM stories WHERE author = 7", 5)
    assert len(kept(cluster)) == 2
    assert any("asked about as often" in told.why for told in cluster.queries())
    await asked(cluster, "SELECT title, id FROM stories WHERE author = 7", 40)
    assert len(kept(cluster)) == 2
    assert "SELECT title, id FROM stories WHERE author = ?" in kept(cluster)


async def test_one_goes_where_memory_is_short(cluster: InProcess) -> None:
    await asked(cluster, BY_AUTHOR, 5)
    automatic = leader_of(cluster).keeping()
    automatic.memory_is_short("w0")
    while automatic.views or automatic.changing:
        await asyncio.sleep(0.001)
    assert await asked(cluster, BY_AUTHOR, 2) == ((1, "a"), (2, "b"))
    assert kept(cluster) == []
    (told,) = cluster.queries()
    assert "one had to go" in told.why


@pytest.mark.parametrize("mode", [shapes.AdHocMode.ANSWER, shapes.AdHocMode.OFF])
async def test_none_is_kept_in_the_other_modes(cluster: InProcess, mode: shapes.AdHocMode) -> None:
    cluster.selects.shapes.mode = mode
    if mode is shapes.AdHocMode.OFF:
        with pytest.raises(Unsupported, match="ad_hoc is off"):
            await asked(cluster, BY_AUTHOR)
    else:
        await asked(cluster, BY_AUTHOR, 6)
    assert kept(cluster) == []


async def test_a_worker_tells_that_its_memory_is_short(cluster: InProcess) -> None:
    await asked(cluster, BY_AUTHOR, 5)
    assert kept(cluster)
    for worker in cluster.workers:
        worker.dataflow.memory_limit = 1
    automatic = leader_of(cluster).keeping()
    async with asyncio.timeout(60):
        while automatic.views:
            await cluster.execute("UPDATE stories SET title = 'x' WHERE id = 3")
            await asyncio.sleep(0.05)
    assert await asked(cluster, BY_AUTHOR) == ((1, "a"), (2, "b"))


async def test_a_worker_tells_that_they_are_too_large(cluster: InProcess) -> None:
    await asked(cluster, BY_AUTHOR, 5)
    assert kept(cluster)
    automatic = leader_of(cluster).keeping()
    for worker in cluster.workers:
        worker.server.handler.__self__._automatic_bytes = 0
    async with asyncio.timeout(60):
        while automatic.views:
            await asyncio.sleep(0.02)
    assert await asked(cluster, BY_AUTHOR) == ((1, "a"), (2, "b"))


async def test_what_costs_writes_more_than_it_saves_goes(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.serving.automatic.TELL_SECONDS", 0.01)
    monkeypatch.setattr(shapes, "WRITES", 5)
    monkeypatch.setattr(shapes, "WRITES_AN_ASKING", 3)
    await asked(cluster, BY_AUTHOR, 5)
    automatic = leader_of(cluster).keeping()
    for number in range(10):
        await cluster.execute(f"UPDATE stories SET title = '{number}' WHERE id = 1")
        await asked(cluster, BY_AUTHOR)
        await asyncio.sleep(0.02)
    assert automatic.views
    async with asyncio.timeout(60):
        while automatic.views or kept(cluster):
            await cluster.execute("UPDATE stories SET title = CONCAT(title, 'x') WHERE id = 3")
            await asyncio.sleep(0.01)
    assert await asked(cluster, BY_AUTHOR) == ((1, "9"), (2, "b"))


async def test_api_processes_share_them(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.serving.automatic.TELL_SECONDS", 0.01)
    other = await another(cluster)
    try:
        await asked(cluster, BY_AUTHOR, 5)
        first = automatic_nodes(cluster)
        await asked(other, BY_AUTHOR, 5)
        assert kept(other) == kept(cluster)
        assert automatic_nodes(cluster) == first, "it was there already"
        await asked(other, "SELECT title FROM stories WHERE author = 7 ORDER BY id", 5)
        async with asyncio.timeout(60):
            while len(kept(cluster)) < 2:
                await asyncio.sleep(0.01)
        _, token = await other.execute("INSERT INTO stories VALUES (4, 7, 'd')")
        assert await asked(cluster, BY_AUTHOR, token=token) == ((1, "a"), (2, "b"), (4, "d"))
        await other.execute("CREATE TABLE more (id INT PRIMARY KEY)")
        for each in (cluster, other):
            assert await asked(each, BY_AUTHOR) == ((1, "a"), (2, "b"), (4, "d"))
    finally:
        await other.close()


async def another(cluster: InProcess) -> ClusterDeployment:
    """A second api process of the cluster."""
    authority = cluster.zookeeper.authority()
    await authority.start()
    cluster.around.push_async_callback(authority.close)
    hello = greeting("main", Role.API, "another", 1)
    return await ClusterDeployment.open(authority, hello, cluster.leading.door, maps=ReaderMaps(_no_map))


def _no_map(place: str) -> ReaderClient:
    raise NoMap(place)


async def test_the_rows_of_a_table_made_of_a_select_go_through_the_leader(cluster: InProcess) -> None:
    await cluster.execute(
        "CREATE TABLE made (PRIMARY KEY (id)) AS SELECT id, title, 1.50 AS d, x'00' AS b FROM stories"
    )
    (found,), _ = await cluster.execute("SELECT * FROM made ORDER BY id")
    assert [row[:3] for row in found.rows] == [(1, "a", "1.50"), (2, "b", "1.50"), (3, "c", "1.50")]
    with pytest.raises(ConstraintViolation, match="has the value 7 already"):
        await cluster.execute("CREATE TABLE twice (PRIMARY KEY (author)) AS SELECT author, id FROM stories")
    assert [schema.name for schema in cluster.tables()] == ["stories", "made"]
    await cluster.execute("CREATE TABLE twice (a INT); INSERT INTO twice VALUES (1)")
    (found,), _ = await cluster.execute("SELECT * FROM twice")
    assert found.rows == ((1,),)
