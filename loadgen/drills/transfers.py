"""``transactions``: money is moved between accounts in all shards while parts are killed; none is lost, and none made.

::

    movers, several at once     UPDATE source; UPDATE sink; INSERT INTO transfers    all or none, by "atomic"
                                BEGIN; SELECT … FOR UPDATE; what that came to is     over HTTP and by MySQL's protocol
                                written, less and more by one; INSERT; COMMIT
    meanwhile                   the total, by look-ups with "consistent"             always the same
                                accounts and transfers, of one snapshot              what the transfers say
    a back-up, restored         the total, what its transfers say, and those that were answered before it was asked for;
                                of a snapshot, by turns: exactly what that has
    the fault                   kill -9 of a worker, the leader, or an api process, by turns; or a worker's network is
                                cut off, while it goes on and takes itself for the host of its shards
    afterwards                  each account has what the transfers that are there say; of the transfers all are there
                                that were answered, none that was refused, and nothing is held any more
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from headrace_client.async_connection import AsyncConnection

from headrace.errors import Conflict, HeadraceError, TransactionEnded
from headrace.serving.listening import listen
from loadgen.drills.cluster import HOST, DrillCluster, DrillFailed, asked, headrace
from loadgen.drills.faults import kill_leader, kill_worker
from loadgen.drills.links import cut_off, partition_means
from loadgen.drills.stage import WHOLE_SECONDS, DrillStage, need_module

ACCOUNTS, EACH = 24, 1_000
LEVELS = ("REPEATABLE READ", "READ COMMITTED")
MOVED = 20
"""Transfers that are answered before a fault, and again after it."""
SCHEMA = (
    "CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
    "CREATE TABLE transfers (id BIGINT NOT NULL PRIMARY KEY, source BIGINT NOT NULL, sink BIGINT NOT NULL)",
    "CREATE EXT VIEW money AS SELECT SUM(n) AS n FROM accounts",
)
ACCOUNTS_SQL, TRANSFERS_SQL = "SELECT id, n FROM accounts", "SELECT id, source, sink FROM transfers"
Rows = Sequence[Sequence[Any]]
Move = Callable[[int, int, int], Awaitable[None]]
"""A transfer: its number, and the two accounts. Raises TransferRefused, Unheard."""


class Way(Protocol):
    """How money is moved."""

    __name__: str

    def __call__(self, cluster: DrillCluster, /) -> AbstractAsyncContextManager[Move]: ...


AGAIN_SECONDS = 0.05


@dataclass
class Moves:
    """Transfers by their numbers, and what was heard of them."""

    sent: int = 0
    answered: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    by: Counter[str] = field(default_factory=Counter)
    """Those that were answered, by the way."""
    totals: int = 0
    snapshots: int = 0


@asynccontextmanager
async def means(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    need_module("transactions", "asyncmy")
    archive = {"HEADRACE_ARCHIVE": str((cluster.data / "archive").absolute())}
    for kind in ("worker", "controller", "api"):
        cluster.started_with(kind, archive)
    with listen(HOST, 0) as free:
        cluster.mysql_port = free.getsockname()[1]
    yield {}


@asynccontextmanager
async def means_of_partition(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    async with partition_means(cluster), means(cluster):
        yield {}


async def prepare(stage: DrillStage) -> None:
    stage.means["moves"] = Moves()
    async with stage.cluster.client() as client:
        for sql in SCHEMA:
            await asked(client, "/v1/sql", {"sql": sql})
        rows = [{"id": id, "n": EACH} for id in range(ACCOUNTS)]
        await asked(client, "/v1/tables/accounts/rows", {"rows": rows})


async def kill_amid_transfers(stage: DrillStage) -> None:
    await _amid_transfers(stage, (kill_worker, kill_leader, _kill_api)[len(stage.faults) % 3])


async def cut_off_amid_transfers(stage: DrillStage) -> None:
    await _amid_transfers(stage, cut_off)


async def _amid_transfers(stage: DrillStage, fault: Callable[[DrillStage], Awaitable[None]]) -> None:
    moves: Moves = stage.means["moves"]
    over = asyncio.Event()
    tasks = [asyncio.create_task(_move_on(stage, moves, over, way)) for way in MOVERS]
    tasks += [asyncio.create_task(look(stage, moves, over)) for look in (_look_on, _look_back)]
    try:
        await _until_moved(stage, moves)
        await _back_up(stage, moves)
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
        "by": dict(moves.by),
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


class TransferRefused(Exception):
    """Nothing of the transfer is done."""


class Unheard(Exception):
    """Nobody knows of it, until the transfers are read."""


async def _move_on(stage: DrillStage, moves: Moves, over: asyncio.Event, way: Way) -> None:
    async with way(stage.cluster) as move:
        while not over.is_set():
            number = moves.sent = moves.sent + 1
            source, sink = stage.random.sample(range(ACCOUNTS), 2)
            try:
                await move(number, source, sink)
            except Unheard:
                continue
            except TransferRefused:
                moves.refused.add(number)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                moves.answered.add(number)
                moves.by[way.__name__] += 1


@asynccontextmanager
async def at_once(cluster: DrillCluster) -> AsyncIterator[Move]:
    async with cluster.client() as client:

        async def move(number: int, source: int, sink: int) -> None:
            sql = (
                f"UPDATE accounts SET n = n - 1 WHERE id = {source}; UPDATE accounts SET n = n + 1 WHERE id = {sink}; "
                f"INSERT INTO transfers VALUES ({number}, {source}, {sink})"
            )
            try:
                answer = await client.post("/v1/sql", json={"sql": sql, "atomic": True})
            except httpx.HTTPError as error:
                raise Unheard from error
            if not answer.is_success:
                raise Unheard if answer.json()["error"]["code"] == "outcome_unknown" else TransferRefused

        yield move


def _looked_up(source: int, sink: int) -> str:
    return f"SELECT id, n FROM accounts WHERE id IN ({source}, {sink}) FOR UPDATE"


def _written(number: int, source: int, sink: int, found: Mapping[int, int]) -> tuple[str, ...]:
    """What was read, less and more by one: a write that came between would be lost."""
    return (
        f"UPDATE accounts SET n = {found[source] - 1} WHERE id = {source}",
        f"UPDATE accounts SET n = {found[sink] + 1} WHERE id = {sink}",
        f"INSERT INTO transfers VALUES ({number}, {source}, {sink})",
    )


@asynccontextmanager
async def by_locks(cluster: DrillCluster) -> AsyncIterator[Move]:
    async with AsyncConnection(cluster.url) as db:

        async def move(number: int, source: int, sink: int) -> None:
            try:
                transaction = await db.transaction(isolation="repeatable-read").__aenter__()
            except HeadraceError as error:
                raise TransferRefused from error
            try:
                found = await transaction.execute(_looked_up(source, sink))
                for text in _written(number, source, sink, dict(found.rows)):
                    await transaction.execute(text)
            except HeadraceError as error:
                with suppress(HeadraceError):
                    await transaction.rollback()
                raise TransferRefused from error
            try:
                await transaction.commit()
            except (Conflict, TransactionEnded) as error:
                raise TransferRefused from error
            except HeadraceError as error:
                raise Unheard from error

        yield move


@asynccontextmanager
async def by_mysql(cluster: DrillCluster) -> AsyncIterator[Move]:
    from loadgen.peers.mysql import BROKEN, DEADLOCK, MysqlSession, MysqlTarget  # Late: the driver is an extra.

    target = MysqlTarget(urlsplit(f"mysql://root@{HOST}:{cluster.mysql_port}/headrace"), cluster.mysql_port)
    opened: list[MysqlSession] = []
    failed: tuple[type[Exception], ...] = (HeadraceError, *BROKEN)

    async def drop() -> None:
        while opened:
            with suppress(*BROKEN):
                await opened.pop().disconnect()

    async def move(number: int, source: int, sink: int) -> None:
        try:
            if not opened:
                opened.append(await target.open(None))
            await opened[0].run(f"SET TRANSACTION ISOLATION LEVEL {LEVELS[number % len(LEVELS)]}", "BEGIN")
            found = {row["id"]: row["n"] for row in await opened[0].fetch(_looked_up(source, sink), ())}
            await opened[0].run(*_written(number, source, sink, found))
        except failed as error:
            await drop()  # What is open there goes with it.
            raise TransferRefused from error
        try:
            await opened[0].run("COMMIT")
        except BROKEN as error:
            await drop()
            raise (TransferRefused if error.args[:1] == (DEADLOCK,) else Unheard) from error

    yield move
    await drop()


MOVERS: tuple[Way, ...] = (at_once, at_once, by_locks, by_mysql, by_mysql)


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
    of_snapshot: list[str] = []
    if len(stage.faults) % 2 == 0:
        name = f"backed-up-{len(stage.faults)}"
        await _take_snapshot(stage, name)
        of_snapshot += ["--snapshot", name]
    await headrace("backup", directory / "taken", "--url", stage.cluster.url, *of_snapshot)
    await headrace("restore", directory / "taken", "--data", directory / "data")
    accounts, transfers = await asyncio.to_thread(_restored, directory / "data", stage.cluster.shape.shards)
    for what in _wrong(accounts, transfers, answered):
        stage.broken.append(f"of a back-up: {what}")
    if of_snapshot:
        async with stage.cluster.client() as client:
            then = [await _rows(client, sql, of_snapshot[1]) for sql in (ACCOUNTS_SQL, TRANSFERS_SQL)]
            await client.delete(f"/v1/snapshots/{of_snapshot[1]}")
        if [sorted(map(tuple, rows)) for rows in then] != [sorted(map(tuple, rows)) for rows in (accounts, transfers)]:
            stage.broken.append("a back-up of a snapshot has not what the snapshot has")


async def _take_snapshot(stage: DrillStage, name: str) -> None:
    """It is given up where a commit takes too long, and taken again."""
    until = stage.now + WHOLE_SECONDS
    async with stage.cluster.client() as client:
        while not (await client.post("/v1/snapshots", json={"name": name, "hold": True})).is_success:
            if stage.now > until:
                raise DrillFailed("no snapshot was taken")
            await asyncio.sleep(AGAIN_SECONDS)


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


async def _rows(client: httpx.AsyncClient, sql: str, snapshot: str = "") -> list[list[Any]]:
    then = {"Headrace-Snapshot": snapshot} if snapshot else None
    answer = await client.post("/v1/sql", json={"sql": sql}, headers=then)
    if not answer.is_success:
        raise DrillFailed(f"{sql}: {answer.text[:300]}")
    rows: list[list[Any]] = answer.json()["results"][0]["rows"]
    return rows
