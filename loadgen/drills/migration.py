"""The leader is killed during a migration: afterwards the cluster has the old graph or the new one, and no mixture."""

from __future__ import annotations

import asyncio

import httpx

from loadgen.drills.cluster import DrillFailed, asked
from loadgen.drills.faults import kill_leader
from loadgen.drills.stage import DrillStage

ROWS = 20_000
"""Enough that a full view of them is built for some tenths of a second."""
ROWS_AT_ONCE = 2_000
KINDS = 50
STARTED_SECONDS = 20.0
LOOK_AGAIN = 0.005

DELAY_MAX = 0.9
"""The leader is killed after at most this share of the time that the migration takes when nobody is killed."""

TABLE = "CREATE TABLE bulk (id BIGINT NOT NULL PRIMARY KEY, kind BIGINT NOT NULL, amount BIGINT NOT NULL)"


async def load_bulk(stage: DrillStage) -> None:
    """Insert the rows of the view that will be built. Raises DrillFailed."""
    async with stage.cluster.client() as client:
        await asked(client, "/v1/sql", {"sql": TABLE})
        for first in range(0, ROWS, ROWS_AT_ONCE):
            rows = [{"id": i, "kind": i % KINDS, "amount": i} for i in range(first, first + ROWS_AT_ONCE)]
            await asked(client, "/v1/tables/bulk/rows", {"rows": rows})
        began = stage.now
        location = await _begin(client, _sql_of(0))
        while (await client.get(location)).json()["state"] in ("queued", "running"):
            await asyncio.sleep(LOOK_AGAIN)
        stage.notes |= {"migration_s": round(stage.now - began, 3), "migrations": 1, "after": []}


async def kill_leader_mid_migration(stage: DrillStage) -> None:
    number = stage.notes["migrations"]
    stage.notes["migrations"] = number + 1
    name = _name(number)
    async with stage.cluster.client() as client:
        location = await _begin(client, _sql_of(number))
        await _until_running(stage, client, location)
        await asyncio.sleep(stage.random.uniform(0.0, DELAY_MAX) * stage.notes["migration_s"])
        await kill_leader(stage)
        await stage.until_whole()
        there = await _exists(client, name)
        stage.notes["after"].append("new graph" if there else "old graph")
        if not there:
            await _again(stage, client, _sql_of(number))
        await _check(stage, client, name, number)


def _name(number: int) -> str:
    return f"Built{number}"


def _sql_of(number: int) -> str:
    """Its own filter, so that no view of an earlier round can be reused and there is something to build."""
    return (
        f"CREATE EXT VIEW {_name(number)} AS SELECT kind, COUNT(*) AS n, SUM(amount) AS total FROM bulk "
        f"WHERE id >= {number} GROUP BY kind ORDER BY kind"
    )


async def _begin(client: httpx.AsyncClient, sql: str) -> str:
    """Begin the migration; the path of its status."""
    answer = await client.post("/v1/migrations", json={"sql": sql})
    if answer.status_code != 202:
        raise DrillFailed(f"the migration was refused: {answer.text[:300]}")
    return answer.headers["location"]


async def _until_running(stage: DrillStage, client: httpx.AsyncClient, location: str) -> None:
    deadline = stage.now + STARTED_SECONDS
    while stage.now < deadline:
        answer = await client.get(location)
        if answer.is_success and answer.json()["state"] != "queued":
            return
        await asyncio.sleep(LOOK_AGAIN)
    raise DrillFailed(f"the migration did not begin within {STARTED_SECONDS:g} s")


async def _again(stage: DrillStage, client: httpx.AsyncClient, sql: str) -> None:
    """Repeat a migration that was taken back. A view that exists by now is as good."""
    answer = await client.post("/v1/sql", json={"sql": sql})
    if not answer.is_success and answer.json()["error"]["code"] != "already_exists":
        stage.broken.append(f"the migration cannot be done after it was taken back: {answer.text[:300]}")


async def _check(stage: DrillStage, client: httpx.AsyncClient, name: str, number: int) -> None:
    expected = [
        [kind, len(ids), sum(ids)]
        for kind in range(KINDS)
        if (ids := [i for i in range(number, ROWS) if i % KINDS == kind])
    ]
    answer = await client.get(f"/v1/views/{name}")
    found = [list(row.values()) for row in answer.json().get("rows", [])] if answer.is_success else answer.text[:300]
    if found != expected:
        stage.broken.append(f'view "{name}" is wrong after the leader was killed: {str(found)[:300]}')


async def _exists(client: httpx.AsyncClient, name: str) -> bool:
    views = (await client.get("/v1/views")).json()["views"]
    return any(view["name"] == name for view in views)
