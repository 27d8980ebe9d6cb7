"""``transactions``: money is moved between accounts in all shards while parts are killed; none is lost, and none made.

::

    movers, several at once     UPDATE source; UPDATE sink; INSERT INTO transfers    all or none, by "atomic"
    meanwhile                   the total, by look-ups with "consistent"             always the same
    the fault                   kill -9 of a worker, the leader, or an api process, by turns
    afterwards                  each account has what the transfers that are there say; of the transfers all are there
                                that were answered, none that was refused, and nothing is held any more
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from typing import Any

import httpx

from loadgen.drills.cluster import DrillFailed, asked
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
AGAIN_SECONDS = 0.05


@dataclass
class Moves:
    """Transfers by their numbers, and what was heard of them."""

    sent: int = 0
    answered: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    totals: int = 0


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
    tasks.append(asyncio.create_task(_look_on(stage, moves, over)))
    try:
        await _until_moved(stage, moves)
        fault = (kill_worker, kill_leader, _kill_api)[len(stage.faults) % 3]
        await fault(stage)
        await stage.until_whole()
        await _until_moved(stage, moves)
    finally:
        over.set()
        await asyncio.gather(*tasks)
    await _judge(stage, moves)
    stage.notes |= {
        "transfers": len(moves.answered),
        "unknown": moves.sent - len(moves.answered) - len(moves.refused),
        "totals": moves.totals,
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


async def _judge(stage: DrillStage, moves: Moves) -> None:
    """When nothing is left in doubt: an UPDATE of every account waits for that."""
    async with stage.cluster.client() as client:
        until = stage.now + WHOLE_SECONDS
        while not (await client.post("/v1/sql", json={"sql": "UPDATE accounts SET n = n"})).is_success:
            if stage.now > until:
                raise DrillFailed("accounts are held long after the last transfer")
            await asyncio.sleep(AGAIN_SECONDS)
        accounts = await _rows(client, "SELECT id, n FROM accounts")
        transfers = await _rows(client, "SELECT id, source, sink FROM transfers")
    wanted = dict.fromkeys(range(ACCOUNTS), EACH)
    for _, source, sink in transfers:
        wanted[source] -= 1
        wanted[sink] += 1
    there = {number for number, _, _ in transfers}
    for what, wrong in (
        ("accounts do not have what the transfers say", dict(map(tuple, accounts)) != wanted),
        (f"transfers that were answered are missing: {sorted(moves.answered - there)[:5]}", moves.answered - there),
        (f"transfers that were refused are there: {sorted(moves.refused & there)[:5]}", moves.refused & there),
    ):
        if wrong:
            stage.broken.append(what)


async def _rows(client: httpx.AsyncClient, sql: str) -> list[list[Any]]:
    answer = await asked(client, "/v1/sql", {"sql": sql})
    rows: list[list[Any]] = answer["results"][0]["rows"]
    return rows
