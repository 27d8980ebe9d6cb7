"""``transactions``: money is moved between accounts in all shards while parts are killed; none is lost, and none made.

::

    movers, several at once     UPDATE source; UPDATE sink; INSERT INTO transfers    all or none, by "atomic"
    meanwhile                   the total, by look-ups with "consistent"             always the same
                                accounts and transfers, of one snapshot              what the transfers say
    a back-up, restored         the total, what its transfers say, and those that were answered before it was asked for
    the fault                   kill -9 of a worker, the leader, or an api process, by turns
    afterwards                  each account has what the transfers that are there say; of the transfers all are there
                                that were answered, none that was refused, and nothing is held any more
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from loadgen.drills.cluster import DrillCluster, DrillFailed, asked, headrace
from loadgen.drills.faults import kill_leader, kill_worker
from loadgen.drills.stage import WHOLE_SECONDS, DrillStage

ACCOUNTS, EACH = 24, 1_000
MOVERS = 4
MOVED = 20
"""Transfers that are answered before a fault, and again after it."""
SCHEMA = (
    "CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
    "CREATE TABLE transfers (id BIGINT NOT NULL PRIMARY KEY, source BIGINT NOT NULL, sink BIGINT NOT NULL)",
    "CREATE EXT VIEW money AS SELECT SUM(n) AS n FROM accounts",
)
ACCOUNTS_SQL, TRANSFERS_SQL = "SELECT id, n FROM accounts", "SELECT id, source, sink FROM transfers"
Rows = Sequence[Sequence[Any]]
AGAIN_SECONDS = 0.05


@dataclass
class Moves:
    """Transfers by their numbers, and what was heard of them."""

    sent: int = 0
    answered: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    totals: int = 0
    snapshots: int = 0


@asynccontextmanager
async def means(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    archive = {"HEADRACE_ARCHIVE": str((cluster.data / "archive").absolute())}
    for kind in ("worker", "controller", "api"):
        cluster.started_with(kind, archive)
    yield {}


async def prepare(stage: DrillStage) -> None:
    stage.means["moves"] = Moves()
    async with stage.cluster.client() as client:
        for sql in SCHEMA:
            await asked(client, "/v1/sql", {"sql": sql})
        rows = [{"id": id, "n": EACH} for id in range(ACCOUNTS)]
        await asked(client, "/v1/tables/accounts/rows", {"rows": rows})


async def kill_amid_transfers(stage: DrillStage) -> None:
    moves: Moves = stage.means["moves"]
    over = asyncio.Event()
    tasks = [asyncio.create_task(_move_on(stage, moves, over)) for _ in range(MOVERS)]
    tasks += [asyncio.create_task(look(stage, moves, over)) for look in (_look_on, _look_back)]
    try:
        await _until_moved(stage, moves)
        await _back_up(stage, moves)
        fault = (kill_worker, kill_leader, _kill_api)[len(stage.faults) % 3]
        await fault(stage)
        await stage.until_whole()
        await _until_moved(stage, moves)
    finally:
        over.set()
        await asyncio.gather(*tasks)
    await _judge(stage, moves)
    stage.notes |= {
        "backups": stage.notes.get("backups", 0) + 1,
        "transfers": len(moves.answered),
        "unknown": moves.sent - len(moves.answered) - len(moves.refused),
        "totals": moves.totals,
        "snapshots": moves.snapshots,
    }


async def _kill_api(stage: DrillStage) -> None:
    name = stage.random.choice(sorted(each for each in stage.cluster.pids() if each.startswith("api")))
    stage.begin(stage.shards)  # All requests that it was answering are lost.
    os.kill(stage.cluster.pids()[name], signal.SIGKILL)


async def _until_moved(stage: DrillStage, moves: Moves) -> None:
    wanted, until = len(moves.answered) + MOVED, stage.now + WHOLE_SECONDS
    while len(moves.answered) < wanted:
        if stage.now > until:
            raise DrillFailed(f"of {MOVED} transfers {wanted - len(moves.answered)} were not done in time")
        await asyncio.sleep(AGAIN_SECONDS)


async def _move_on(stage: DrillStage, moves: Moves, over: asyncio.Event) -> None:
    async with stage.cluster.client() as client:
        while not over.is_set():
            number = moves.sent = moves.sent + 1
            source, sink = stage.random.sample(range(ACCOUNTS), 2)
            sql = (
                f"UPDATE accounts SET n = n - 1 WHERE id = {source}; UPDATE accounts SET n = n + 1 WHERE id = {sink}; "
                f"INSERT INTO transfers VALUES ({number}, {source}, {sink})"
            )
            try:
                answer = await client.post("/v1/sql", json={"sql": sql, "atomic": True})
            except httpx.HTTPError:
                continue  # Nobody knows of it, until the transfers are read.
            if answer.is_success:
                moves.answered.add(number)
            elif answer.json()["error"]["code"] != "outcome_unknown":
                moves.refused.add(number)
                await asyncio.sleep(AGAIN_SECONDS)


async def _look_on(stage: DrillStage, moves: Moves, over: asyncio.Event) -> None:
    async with stage.cluster.client() as client:
        while not over.is_set():
            body = {"lookups": [{"view": "money", "keys": [[]]}], "consistent": True}
            try:
                answer = await client.post("/v1/lookups", json=body)
            except httpx.HTTPError:
                continue
            if answer.is_success:
                moves.totals += 1
                found = answer.json()["results"]
                if found != [[[{"n": ACCOUNTS * EACH}]]]:
                    stage.broken.append(f"the total is {found}")
            await asyncio.sleep(AGAIN_SECONDS)


async def _back_up(stage: DrillStage, moves: Moves) -> None:
    directory, answered = stage.directory / "backups" / str(len(stage.faults)), set(moves.answered)
    await headrace("backup", directory / "taken", "--url", stage.cluster.url)
    await headrace("restore", directory / "taken", "--data", directory / "data")
    accounts, transfers = await asyncio.to_thread(_restored, directory / "data", stage.cluster.shape.shards)
    for what in _wrong(accounts, transfers, answered):
        stage.broken.append(f"of a back-up: {what}")


def _restored(data: Path, shards: int) -> tuple[Rows, Rows]:
    from headrace.embedding import embedded  # Late: only here a server is in the drill's own process.

    with embedded(data, shards=shards) as db:
        return db.execute(ACCOUNTS_SQL).rows, db.execute(TRANSFERS_SQL).rows


async def _look_back(stage: DrillStage, moves: Moves, over: asyncio.Event) -> None:
    """At snapshots. One that a killed part has kept is gone."""
    async with stage.cluster.client() as client:
        while not over.is_set():
            await asyncio.sleep(AGAIN_SECONDS)
            read: list[Rows] = []
            answered = set(moves.answered)
            try:
                taken = await client.post("/v1/snapshots", json={})
                if taken.is_success:
                    then = {"Headrace-Snapshot": taken.json()["name"]}
                    for sql in (ACCOUNTS_SQL, TRANSFERS_SQL):
                        answer = await client.post("/v1/sql", json={"sql": sql}, headers=then)
                        read += [each["rows"] for each in answer.json().get("results", ())]
            except httpx.HTTPError:
                continue
            if len(read) == 2:
                moves.snapshots += 1
                stage.broken += [f"of a snapshot: {what}" for what in _wrong(read[0], read[1], answered)]


def _wrong(accounts: Rows, transfers: Rows, answered: set[int]) -> Iterator[str]:
    """What is wrong with what is there, in words."""
    wanted = dict.fromkeys(range(ACCOUNTS), EACH)
    for _, source, sink in transfers:
        wanted[source] -= 1
        wanted[sink] += 1
    if dict(map(tuple, accounts)) != wanted:
        yield "accounts do not have what the transfers say"
    if missing := answered - {number for number, _, _ in transfers}:
        yield f"transfers that were answered are missing: {sorted(missing)[:5]}"


async def _judge(stage: DrillStage, moves: Moves) -> None:
    """When nothing is left in doubt: an UPDATE of every account waits for that."""
    async with stage.cluster.client() as client:
        until = stage.now + WHOLE_SECONDS
        while not (await client.post("/v1/sql", json={"sql": "UPDATE accounts SET n = n"})).is_success:
            if stage.now > until:
                raise DrillFailed("accounts are held long after the last transfer")
            await asyncio.sleep(AGAIN_SECONDS)
        accounts, transfers = await _rows(client, ACCOUNTS_SQL), await _rows(client, TRANSFERS_SQL)
    stage.broken += _wrong(accounts, transfers, moves.answered)
    if there := moves.refused & {number for number, _, _ in transfers}:
        stage.broken.append(f"transfers that were refused are there: {sorted(there)[:5]}")


async def _rows(client: httpx.AsyncClient, sql: str) -> list[list[Any]]:
    answer = await asked(client, "/v1/sql", {"sql": sql})
    rows: list[list[Any]] = answer["results"][0]["rows"]
    return rows
