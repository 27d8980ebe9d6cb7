"""Several api processes: each lists what all of them were asked and perform, and stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from controller.cluster.serving import other_apis
from controller.cluster.serving.connections import ReaderMaps
from controller.cluster.serving.deployment import ClusterDeployment
from controller.statement_lists import QueryInfo
from controller.statements.running import PROCESS_NUMBERS, together
from domains.errors import Cancelled, NotFound, Unavailable
from tests.kit.cluster_deployment import InProcess, NoMap, open_cluster
from worker.protocol.messages import Role
from worker.reader_map import ReaderClient
from worker.wire.connection import greeting
from zookeeper.memory import MemoryAuthority
from zookeeper.registration import ApiDescriptor

DEADLINE = 30.0
SLOW = "CREATE TABLE slow (id INT PRIMARY KEY)"


class Another(ClusterDeployment):
    authority: MemoryAuthority

    async def close(self) -> None:
        await super().close()
        await self.authority.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcess]:
    deployment = await open_cluster(tmp_path)
    try:
        await deployment.meet_others(greeting("main", Role.API, "one", 1), "127.0.0.1", 0, None)
        await deployment.execute("CREATE TABLE items (id INT PRIMARY KEY, kind INT)")
        yield deployment
    finally:
        await deployment.close()


@pytest.fixture
async def other(cluster: InProcess) -> AsyncIterator[Another]:
    authority = cluster.zookeeper.authority()
    await authority.start()
    hello = greeting("main", Role.API, "two", 2)
    deployment = await Another.open(authority, hello, lambda _: cluster.leader, maps=ReaderMaps(_no_map))
    deployment.authority = authority
    await deployment.meet_others(hello, "0.0.0.0", 0, "127.0.0.1")
    yield deployment
    await deployment.close()


def _no_map(place: str) -> ReaderClient:
    raise NoMap(place)


async def rows(deployment: ClusterDeployment, sql: str) -> tuple[tuple[Any, ...], ...]:
    (answer,), _ = await deployment.execute(sql)
    return answer.rows


async def test_shapes_are_summed_over_all_processes(cluster: InProcess, other: Another) -> None:
    for _ in range(3):
        await rows(cluster, "SELECT id FROM items WHERE kind = 1")
    for kind in (1, 2):
        await rows(other, f"SELECT id FROM items WHERE kind = {kind}")
    await rows(other, "SELECT COUNT(*) FROM items")
    for each in (cluster, other):
        told = {row[0]: row[1] for row in await rows(each, "SHOW QUERIES")}
        assert sorted(told.values()) == [1, 5], told
        (own,) = [query for query in each.queries() if "kind" in query.query]
        assert own.calls == (3 if each is cluster else 2)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(each)), base_url="http://a") as http:
            shown = (await http.get("/v1/queries")).json()
        assert shown["missing"] == []
        assert {query["query"]: query["calls"] for query in shown["queries"]} == told


def test_a_shape_is_judged_by_who_keeps_it_or_was_asked_most() -> None:
    kept = QueryInfo("a", 4, 1.5, 7, "adhoc_1", "kept: it was asked 4 times", "CREATE 1")
    most = QueryInfo("a", 9, 2.25, 1, None, "not kept: now", "CREATE 2")
    least = replace(most, calls=2, why="not kept: it was asked 2 times")
    slow = replace(most, query="b", milliseconds=99.0)
    assert together([least, slow, most, kept]) == [slow, replace(kept, calls=15, milliseconds=6.0, rows=9)]
    assert together([least, most])[0].why == "not kept: now"


async def running(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[Any]:
    """A statement that runs until it is stopped."""
    began = asyncio.Event()

    async def run(entry: object, text: str, rows: object = None) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster.leader, "run", run)
    statement = asyncio.create_task(cluster.execute(SLOW))
    await began.wait()
    return statement


async def test_a_statement_is_listed_and_stopped_from_any_process(
    cluster: InProcess, other: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(DEADLINE):
        for by_http in (False, True):
            statement = await running(cluster, monkeypatch)
            (shown,) = [row for row in await rows(other, "SHOW FULL PROCESSLIST") if row[7] == SLOW]
            assert (shown[2], shown[0] // PROCESS_NUMBERS) == ("one", 1)
            (same,) = [row for row in await rows(cluster, "SHOW FULL PROCESSLIST") if row[7] == SLOW]
            assert same[0] == shown[0]
            for nobody in (shown[0] + 1000, 7 * PROCESS_NUMBERS + 1):
                with pytest.raises(NotFound, match=f"no statement {nobody} runs"):
                    await other.execute(f"KILL {nobody}")
            if by_http:
                transport = httpx.ASGITransport(create_app(other))
                async with httpx.AsyncClient(transport=transport, base_url="http://a") as http:
                    (listed,) = (await http.get("/v1/queries/running")).json()["running"]
                    assert (listed["id"], listed["process"]) == (shown[0], "one")
                    stopped = await http.delete(f"/v1/queries/running/{shown[0]}")
                assert (stopped.status_code, stopped.json()["sql"]) == (200, SLOW)
            else:
                await other.execute(f"KILL {shown[0]}")
            with pytest.raises(Cancelled, match="KILL"):
                await statement
            assert all(row[7] != SLOW for row in await rows(other, "SHOW PROCESSLIST"))


async def test_what_is_missing_is_said(cluster: InProcess, other: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_apis, "PATIENCE", 0.2)
    gone = cluster.zookeeper.authority()
    await gone.start()
    await gone.register_api(ApiDescriptor("lost", "127.0.0.1", 1, 9, 1))
    await rows(other, "SELECT id FROM items WHERE kind = 1")
    (query, missing) = await rows(cluster, "SHOW QUERIES")
    assert (query[1], missing[0]) == (1, '-- missing: what api process "lost at 127.0.0.1:1" would tell')
    assert "cannot be reached" in missing[5]
    (missing,) = [row for row in await rows(cluster, "SHOW PROCESSLIST") if row[0] is None]
    assert "lost" in missing[4]
    assert "cannot be reached" in missing[6]
    with pytest.raises(Unavailable, match=r'api process "lost".* does not answer'):
        await cluster.execute(f"KILL {3 * PROCESS_NUMBERS + 1}")
    await gone.close()
    assert (await cluster.lists.queries()).missing == []
    # One that hangs.
    monkeypatch.setattr(other.lists, "own_queries", None)
    monkeypatch.setattr(type(other._others), "_answer", lambda *_: asyncio.Event().wait())
    hanging = (await cluster.lists.queries()).missing
    assert [each.process.split()[0] for each in hanging] == ["two"]


async def test_without_zookeeper_the_last_known_ones_are_asked(
    cluster: InProcess, other: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rows(other, "SELECT id FROM items WHERE kind = 1")
    assert len((await cluster.lists.queries()).found) == 1
    cluster.zookeeper.stop()
    told = await cluster.lists.queries()
    cluster.zookeeper.start()
    assert [each.calls for each in told.found] == [1]
    assert len(told.missing) == 1
    assert told.missing[0].process == "any that ZooKeeper knows"


async def test_links_do_not_grow_and_a_number_is_used_again(cluster: InProcess, other: Another) -> None:
    assert cluster._others is not None
    assert other._others is not None
    for _ in range(5):
        await asyncio.gather(*(cluster.lists.running() for _ in range(5)), other.lists.queries())
    assert len(other._others._server.connections) == 1
    assert len(cluster._others._server.connections) == 1
    assert other._others.number == 2
    other.authority.expire()
    async with asyncio.timeout(DEADLINE):
        while not [api for api in (await cluster.directory.authority.apis()).values() if api.name == "two"]:
            await asyncio.sleep(0.002)
    assert (await cluster.directory.authority.apis())[2].name == "two"
    await other.close()
    assert list(await cluster.directory.authority.apis()) == [1]
    assert (await cluster.lists.queries()).missing == []


# --- transactions, which any process takes ---------------------------------------------------------------------------


def at(deployment: ClusterDeployment) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(deployment)), base_url="http://a")


async def test_any_process_takes_a_transaction(cluster: InProcess, other: Another) -> None:
    async with asyncio.timeout(DEADLINE), at(cluster) as here, at(other) as there:
        id = (await here.post("/v1/transactions", json={})).json()["id"]
        inside = {"Headrace-Transaction": id}
        sql = "INSERT INTO items VALUES (?, ?)"
        for key, http in enumerate((there, here, there)):
            answer = await http.post("/v1/sql", json={"sql": sql, "params": [key, 7]}, headers=inside)
            assert answer.json()["results"][0]["rows_affected"] == 1
        wrong = await there.post("/v1/sql", json={"sql": "SELECT nothing FROM items"}, headers=inside)
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "unknown_name")
        added = await there.post("/v1/tables/items/rows", json={"rows": [{"id": 9, "kind": 7}]}, headers=inside)
        assert added.status_code == 200, added.text
        counted = {"sql": "SELECT COUNT(*) FROM items"}
        assert (await there.post("/v1/sql", json=counted, headers=inside)).json()["results"][0]["rows"] == [[4]]
        assert (await there.post("/v1/sql", json=counted)).json()["results"][0]["rows"] == [[0]]
        done = await there.post(f"/v1/transactions/{id}/commit", json={})
        assert (done.status_code, done.json()["rows_affected"]) == (200, 4)
        assert (await here.post(f"/v1/transactions/{id}/commit", json={})).json() == done.json()
        assert (await there.post(f"/v1/transactions/{id}/commit", json={})).json() == done.json()
        ended = await there.post("/v1/sql", json=counted, headers=inside)
        assert (ended.status_code, ended.json()["error"]["code"]) == (410, "transaction_ended")
        assert (await there.post("/v1/sql", json=counted)).json()["results"][0]["rows"] == [[4]]


async def test_what_a_process_has_begun_that_is_gone_is_gone_too(cluster: InProcess, other: Another) -> None:
    async with asyncio.timeout(DEADLINE), at(cluster) as here:
        async with at(other) as there:
            id = (await there.post("/v1/transactions", json={})).json()["id"]
            inside = {"Headrace-Transaction": id}
            rows_of = [{"id": key, "kind": 1} for key in range(8)]
            await there.post("/v1/tables/items/rows", json={"rows": rows_of}, headers=inside)
        bases = cluster._bases()
        assert any([await cluster.hosts.known_transactions(base) for base in bases])
        cluster.in_doubt.look(at_once=True)
        await asyncio.sleep(0)
        same = await here.post("/v1/sql", json={"sql": "SELECT COUNT(*) FROM items"}, headers=inside)
        assert same.json()["results"][0]["rows"] == [[8]], "its process is there"
        await other.close()
        for path in ("/v1/sql", f"/v1/transactions/{id}/commit", f"/v1/transactions/{id}/rollback"):
            answer = await here.post(path, json={"sql": "SELECT 1"} if path == "/v1/sql" else {}, headers=inside)
            assert (answer.status_code, answer.json()["error"]["code"]) == (410, "transaction_ended"), path
        cluster.in_doubt.look(at_once=True)
        while any([await cluster.hosts.known_transactions(base) for base in bases]):
            await asyncio.sleep(0.02)


async def test_a_process_that_does_not_answer_is_named(cluster: InProcess, other: Another) -> None:
    gone = cluster.zookeeper.authority()
    await gone.start()
    await gone.register_api(ApiDescriptor("lost", "127.0.0.1", 1, 9, 1))
    async with asyncio.timeout(DEADLINE), at(other) as there:
        answer = await there.post("/v1/transactions/0-9/commit", json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert '"lost"' in answer.json()["error"]["message"]
        await gone.close()
        for id in ("0-9", "0-zz", "0-", "0-9-9"):
            answer = await there.post(f"/v1/transactions/{id}/commit", json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (410, "transaction_ended"), id
