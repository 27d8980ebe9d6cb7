"""Locks below SERIALIZABLE: who waits for whom, who reads what, and how a wait ends; on one shard and on several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.access.session import OPEN, Caller
from controller.embedded.local import LocalDeployment
from controller.serving import Serving
from controller.transactions.limits import Isolation
from domains.engine.domain import Domain
from domains.errors import (
    Conflict,
    ConstraintViolation,
    Locked,
    LockNotFree,
    TransactionEnded,
    Unsupported,
)
from domains.plan.packets import Failed, Insert, InTransaction, Reply, RequestId, RollBack, Write, Written
from tests.cluster_simulation.loop import VirtualLoop
from tests.controller.transactions.interleaved import Drawn, Run, answer, judge, opened
from tests.controller.transactions.over_shards import Chances, Sharded
from tests.kit.cluster_deployment import open_cluster
from worker.dataflow.domain_host import DomainHost

TABLES = """
CREATE TABLE c (id INT PRIMARY KEY, branch INT, n INT NOT NULL, KEY (branch));
CREATE TABLE bag (n INT);
CREATE TABLE p (id INT PRIMARY KEY, n INT);
CREATE TABLE k (id INT, p INT, PRIMARY KEY (id, p), FOREIGN KEY (p) REFERENCES p (id)) SHARD BY (p);
CREATE EXT VIEW one AS SELECT n FROM c WHERE id = ?;
INSERT INTO c VALUES (1, 1, 0), (2, 1, 0), (3, 2, 0), (4, 2, 0);
INSERT INTO bag VALUES (1), (1);
INSERT INTO p VALUES (1, 0)
"""
CLIENTS = 32


@dataclass
class Connection:
    """As a connection of MySQL has it."""

    deployment: Serving
    caller: Caller

    async def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        results, _ = await self.deployment.execute(sql, session=self.caller)
        return [tuple(row) for row in results[-1].rows]

    def begin(self, sql: str) -> asyncio.Task[list[tuple[Any, ...]]]:
        return asyncio.create_task(self(sql))


@dataclass
class Server:
    deployments: Sequence[Serving]
    """Connections are made to them by turns."""
    hosted: Sequence[DomainHost]
    opened: int = 0

    @property
    def deployment(self) -> Serving:
        return self.deployments[0]

    def connect(self, isolation: Isolation = Isolation.REPEATABLE_READ, wait: float = 20.0) -> Connection:
        self.opened += 1
        deployment = self.deployments[self.opened % len(self.deployments)]
        session = deployment.sessions.connected(self.opened, "")
        session.isolation, session.lock_wait = isolation, wait
        return Connection(deployment, replace(OPEN, session=session))

    def disconnect(self, db: Connection) -> None:
        assert db.caller.session is not None
        db.deployment.sessions.disconnected(db.caller.session.number)

    async def plain(self, sql: str) -> list[tuple[Any, ...]]:
        results, _ = await self.deployment.execute(sql)
        return [tuple(row) for row in results[-1].rows]

    def waiting(self) -> int:
        """Statements that wait for locks."""
        return sum(len(each.transactions.locks.waiting) for each in self._domains())

    def _domains(self) -> list[Domain]:
        return [each.domain for hosted in self.hosted for each in list(hosted.hosts.values())]

    def held(self) -> int:
        return sum(len(each.transactions.open) for each in self._domains())

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.001)


@pytest.fixture(params=[1, 3, 0], ids=["one shard", "three shards", "two workers"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    """Without a number of shards: two api processes before two workers with three shards."""
    if request.param:
        local = await LocalDeployment.open(tmp_path, memory_limit=256_000_000, shards=request.param)
        server = Server([local], [local.dataflow.hosted])
    else:
        cluster = await open_cluster(tmp_path)
        beside = await cluster.another("beside", 2)
        cluster.sessions.process, beside.sessions.process = 1, 2
        server = Server([cluster, beside], [each.dataflow.hosted for each in cluster.workers])
    try:
        await server.deployment.execute(TABLES)
        yield server
        await server.until(lambda: not server.held() and not server.waiting())
    finally:
        for each in reversed(server.deployments):
            await each.close()


LEVELS = pytest.mark.parametrize("level", [Isolation.REPEATABLE_READ, Isolation.READ_COMMITTED])


@LEVELS
async def test_each_of_many_clients_adds_its_one(server: Server, level: Isolation) -> None:
    """None is refused, and none is lost."""

    async def add(db: Connection) -> None:
        for _ in range(3):
            await db("BEGIN")
            await db("UPDATE c SET n = n + 1 WHERE id = 1")
            await db("COMMIT")

    await asyncio.gather(*(add(server.connect(level)) for _ in range(CLIENTS)))
    assert await server.plain("SELECT n FROM c WHERE id = 1") == [(3 * CLIENTS,)]


@LEVELS
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE c SET n = n + 1 WHERE id = 1",
        "UPDATE c SET n = n + 1",
        "UPDATE c SET n = n + 1 WHERE branch = 1",
        "INSERT INTO c VALUES (1, 1, 1) ON DUPLICATE KEY UPDATE n = n + 1",
        "UPDATE c JOIN (SELECT 1 AS id) x ON c.id = x.id SET c.n = c.n + 1",
        "UPDATE c SET n = (SELECT n FROM (SELECT n FROM c WHERE id = 1) x) + 1 WHERE id = 1",
    ],
)
async def test_so_they_do_by_whatever_statement(server: Server, sql: str, level: Isolation) -> None:
    """Plain writes are among them, and stand in line with the others."""

    async def add(number: int) -> int:
        db = server.connect(level)
        if number % 4 == 0:
            await db("UPDATE c SET n = n + 1 WHERE id = 1")
            return 1
        try:
            await db("BEGIN")
            await db(sql)
            await db("COMMIT")
        except Conflict:
            assert "SELECT" in sql, "only one that reads before it writes can be in a deadlock"
            return 0
        return 1

    added = await asyncio.gather(*map(add, range(16)))
    assert await server.plain("SELECT n FROM c WHERE id = 1") == [(sum(added),)]
    assert sum(added) >= 5


async def test_a_plain_read_is_of_the_snapshot(server: Server) -> None:
    reader, other = server.connect(), server.connect()
    await reader("BEGIN")
    assert await reader("SELECT n FROM c WHERE id = 1") == [(0,)]
    await other("UPDATE c SET n = n + 5 WHERE id = 1; DELETE FROM c WHERE id = 2; INSERT INTO c VALUES (9, 1, 9)")
    await other("INSERT INTO bag VALUES (1), (2); DELETE FROM bag WHERE n = 1 LIMIT 1")
    for _ in range(2):
        assert await reader("SELECT id, n FROM c WHERE branch = 1 ORDER BY id") == [(1, 0), (2, 0)]
        assert await reader("SELECT id FROM c ORDER BY id DESC LIMIT 1") == [(4,)]
        assert await reader("SELECT n FROM bag") == [(1,), (1,)]
    assert await reader("SELECT n FROM c WHERE id = 1 FOR UPDATE") == [(5,)]
    await reader("UPDATE c SET n = n + 1 WHERE id = 1")
    assert await reader("SELECT id, n FROM c ORDER BY id") == [(1, 6), (2, 0), (3, 0), (4, 0)]
    await reader("COMMIT")
    assert await reader("SELECT id, n FROM c ORDER BY id") == [(1, 6), (3, 0), (4, 0), (9, 9)]


async def test_a_read_committed_is_of_now(server: Server) -> None:
    reader, other = server.connect(Isolation.READ_COMMITTED), server.connect()
    await reader("BEGIN")
    assert await reader("SELECT n FROM c WHERE id = 1") == [(0,)]
    await other("UPDATE c SET n = 5 WHERE id = 1")
    assert await reader("SELECT n FROM c WHERE id = 1") == [(5,)]
    await other("BEGIN")
    await other("UPDATE c SET n = 6 WHERE id = 1")
    assert await reader("SELECT n FROM c WHERE id = 1") == [(5,)]
    await other("COMMIT")
    await reader("COMMIT")


async def test_with_consistent_snapshot(server: Server) -> None:
    reader, other = server.connect(), server.connect()
    await reader("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    await other("UPDATE c SET n = 5 WHERE id = 1")
    assert await reader("SELECT n FROM c WHERE id = 1") == [(0,)]
    await reader("COMMIT")
    await reader("START TRANSACTION")
    await other("UPDATE c SET n = 6 WHERE id = 1")
    assert await reader("SELECT n FROM c WHERE id = 1") == [(6,)]
    await reader("ROLLBACK")


async def test_a_snapshot_has_all_of_a_transaction_or_nothing(server: Server) -> None:
    """Also while it is done in one shard, and not yet in another."""
    done = False

    async def move() -> None:
        db = server.connect()
        while not done:
            await db("BEGIN")
            await db("UPDATE c SET n = n - 1 WHERE id = 1")
            await db("UPDATE c SET n = n + 1 WHERE id = 2")
            await db("UPDATE c SET n = n + 1 WHERE id = 3")
            await db("UPDATE c SET n = n - 1 WHERE id = 4")
            await db("COMMIT")

    mover = asyncio.create_task(move())
    reader = server.connect()
    for _ in range(60):
        await reader("BEGIN")
        (first,) = await reader("SELECT SUM(n) FROM c WHERE id < 3")
        (rest,) = await reader("SELECT SUM(n) FROM c WHERE id >= 3")
        await reader("COMMIT")
        assert int(first[0]) == int(rest[0]) == 0
    done = True
    await mover


@LEVELS
async def test_of_a_deadlock_one_ends_and_the_other_goes_on(server: Server, level: Isolation) -> None:
    one, other = server.connect(level), server.connect(level)
    await one("BEGIN")
    await one("UPDATE c SET n = n + 1 WHERE id = 1")
    await other("BEGIN")
    await other("UPDATE c SET n = n + 10 WHERE id = 2")
    waiting = one.begin("UPDATE c SET n = n + 1 WHERE id = 2")
    await server.until(lambda: server.waiting() == 1)
    with pytest.raises(Conflict, match="deadlock"):
        await other("UPDATE c SET n = n + 10 WHERE id = 1")
    await waiting
    assert other.caller.transaction is None
    await one("COMMIT")
    assert await server.plain("SELECT n FROM c WHERE id < 3") == [(1,), (1,)]


@LEVELS
async def test_a_wait_ends_in_time(server: Server, level: Isolation) -> None:
    """The statement is refused; the transaction, and what it has locked before, stays."""
    one, other = server.connect(level), server.connect(level, 0.05)
    await one("BEGIN")
    await one("UPDATE c SET n = n + 1 WHERE id = 1")
    await other("BEGIN")
    await other("UPDATE c SET n = n + 1 WHERE id = 2")
    for sql in (
        "UPDATE c SET n = n + 1",
        "SELECT n FROM c WHERE id = 1 FOR UPDATE",
        "SELECT n FROM c WHERE branch = 1 FOR SHARE",
    ):
        with pytest.raises(Locked):
            await other(sql)
    await one("COMMIT")
    await other("UPDATE c SET n = n + 1 WHERE id = 1")
    await other("COMMIT")
    assert await server.plain("SELECT n FROM c ORDER BY id") == [(2,), (1,), (0,), (0,)]


async def test_who_does_not_wait(server: Server) -> None:
    one, other = server.connect(), server.connect(wait=600.0)
    await one("BEGIN")
    await one("UPDATE c SET n = 1 WHERE id = 1")
    await other("BEGIN")
    for how in ("FOR UPDATE", "FOR SHARE"):
        async with asyncio.timeout(20):
            with pytest.raises(LockNotFree):
                await other(f"SELECT n FROM c WHERE id = 1 {how} NOWAIT")
            assert await other(f"SELECT n FROM c WHERE id = 2 {how} NOWAIT") == [(0,)]
    await one("COMMIT")
    assert await other("SELECT n FROM c WHERE id = 1 FOR UPDATE NOWAIT") == [(1,)]
    await other("COMMIT")


TAKE = "SELECT id FROM c ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"


async def test_who_skips_what_is_locked(server: Server) -> None:
    """Each takes a row of its own, as the workers of a queue do, and what it gives back another one takes."""
    if len(server.deployments) > 1:
        db = server.connect()
        await db("BEGIN")
        with pytest.raises(Unsupported):
            await db(TAKE)
        await db("ROLLBACK")
        return
    takers = [server.connect() for _ in range(5)]
    for each in takers:
        await each("BEGIN")
    async with asyncio.timeout(20):
        assert [await each(TAKE) for each in takers] == [[(1,)], [(2,)], [(3,)], [(4,)], []]
        assert await takers[4]("SELECT id FROM c WHERE branch = 2 FOR SHARE SKIP LOCKED") == []
        await takers[0]("DELETE FROM c WHERE id = 1; COMMIT")
        await takers[1]("ROLLBACK")
        assert await takers[4](TAKE) == [(2,)]
        assert await takers[4]("SELECT id FROM c ORDER BY id FOR UPDATE SKIP LOCKED") == [(2,)]
        reader, other = server.connect(), server.connect()
        await takers[2]("ROLLBACK")
        for each in (reader, other):
            await each("BEGIN")
            assert await each("SELECT id FROM c ORDER BY id FOR SHARE SKIP LOCKED") == [(3,)]
        assert await takers[4]("SELECT id FROM c WHERE id = 3 FOR UPDATE SKIP LOCKED") == []
        waiting = takers[4].begin("UPDATE c SET n = 1 WHERE id = 3")
        await server.until(lambda: server.waiting() == 1)
        await reader("COMMIT")
        await other("COMMIT")
        await waiting
    for each in takers:
        await each("COMMIT")


async def test_who_stands_behind_goes_on_with_who_is_before(server: Server) -> None:
    """Where both only read in the end, neither waits for the other's end."""
    first, before, *behind = (server.connect() for _ in range(4))
    for each in (first, before, *behind):
        await each("BEGIN")
    await first("SELECT n FROM c WHERE id = 1 FOR SHARE")
    asked = [before.begin("UPDATE c SET n = 9 WHERE id = 1 AND n = 0")]
    await server.until(lambda: server.waiting() == 1)
    for each in behind:
        asked.append(each.begin("SELECT n FROM c WHERE id = 1 FOR SHARE"))
        await server.until(lambda: server.waiting() == len(asked))
    await first("UPDATE c SET n = 5 WHERE id = 1")
    await first("COMMIT")
    async with asyncio.timeout(10):
        assert await asyncio.gather(*asked) == [[], [(5,)], [(5,)]]
    for each in (before, *behind):
        await each("COMMIT")


async def test_locking_reads(server: Server) -> None:
    one, other = server.connect(), server.connect()
    await one("BEGIN")
    await other("BEGIN")
    assert await one("SELECT n FROM c WHERE id = 1 FOR SHARE") == [(0,)]
    assert await other("SELECT n FROM c WHERE id = 1 LOCK IN SHARE MODE") == [(0,)]
    assert await other("SELECT n FROM c WHERE id = 2 FOR UPDATE") == [(0,)]
    waiting = one.begin("SELECT n FROM c WHERE id = 2 FOR UPDATE")
    await server.until(lambda: server.waiting() == 1)
    await other("UPDATE c SET n = 7 WHERE id = 2")
    await other("COMMIT")
    assert await waiting == [(7,)]
    await one("UPDATE c SET n = n + 1 WHERE id = 2")
    await one("COMMIT")


async def test_a_lock_on_what_is_not_there(server: Server) -> None:
    one, other = server.connect(), server.connect()
    await one("BEGIN")
    assert await one("SELECT n FROM c WHERE id = 7 FOR UPDATE") == []
    waiting = other.begin("INSERT INTO c VALUES (7, 1, 1)")
    await server.until(lambda: server.waiting() == 1)
    await one("INSERT INTO c VALUES (7, 1, 0)")
    await one("ROLLBACK")
    await waiting
    assert await server.plain("SELECT n FROM c WHERE id = 7") == [(1,)]


async def test_a_parent_that_is_named_stays(server: Server) -> None:
    one, other = server.connect(), server.connect()
    await one("BEGIN")
    await one("INSERT INTO k VALUES (1, 1)")
    waiting = other.begin("UPDATE p SET n = 5 WHERE id = 1")
    await server.until(lambda: server.waiting() == 1)
    await one("COMMIT")
    await waiting


async def test_who_goes_lets_all_go(server: Server) -> None:
    """Whoever holds, and whoever waits."""
    one, other, third = server.connect(), server.connect(), server.connect()
    await one("BEGIN")
    await one("UPDATE c SET n = n + 1 WHERE id = 1")
    await other("BEGIN")
    waiting = other.begin("UPDATE c SET n = n + 10 WHERE id = 1")
    await server.until(lambda: server.waiting() == 1)
    last = third.begin("UPDATE c SET n = n + 100 WHERE id = 1")
    await server.until(lambda: server.waiting() == 2)
    server.disconnect(other)
    with pytest.raises(TransactionEnded):
        await waiting
    server.disconnect(one)
    await last
    assert await server.plain("SELECT n FROM c WHERE id = 1") == [(100,)]


async def test_a_serializable_one_waits_to_commit_and_is_in_conflict(server: Server) -> None:
    one, other = server.connect(), server.connect(Isolation.SERIALIZABLE)
    await one("BEGIN")
    await one("UPDATE c SET n = n + 1 WHERE id = 1")
    await other("BEGIN")
    await other("UPDATE c SET n = n + 10 WHERE id = 1")
    waiting = other.begin("COMMIT")
    await asyncio.sleep(0.01)
    await one("COMMIT")
    with pytest.raises(Conflict):
        await waiting
    assert await server.plain("SELECT n FROM c WHERE id = 1") == [(1,)]


async def test_savepoints(server: Server) -> None:
    one, other = server.connect(), server.connect(wait=0.05)
    await one("BEGIN; UPDATE c SET n = 1 WHERE id = 1; SAVEPOINT s; UPDATE c SET n = 2 WHERE id = 1; ROLLBACK TO s")
    assert await one("SELECT n FROM c WHERE id = 1") == [(1,)]
    with pytest.raises(Locked):
        await other("UPDATE c SET n = n + 10 WHERE id = 1")
    await one("COMMIT")


async def test_a_table_that_is_altered(server: Server) -> None:
    one, other = server.connect(), server.connect()
    await one("BEGIN")
    assert await one("SELECT n FROM c WHERE id = 1") == [(0,)]
    await other("ALTER TABLE c ADD COLUMN more INT")
    with pytest.raises(Conflict):
        await one("SELECT n FROM c WHERE id = 1")


async def test_a_table_is_altered_while_one_waits(server: Server) -> None:
    """Whoever waits has come to the table, and is in conflict, which is said once; and the others go on."""
    one, two, other = server.connect(), server.connect(), server.connect()
    await two("BEGIN")
    await two("UPDATE c SET n = n + 1 WHERE id = 2")
    await one("BEGIN")
    await one("UPDATE c SET n = n + 1 WHERE id = 1")
    waiting = two.begin("UPDATE c SET n = n + 1 WHERE id = 1")
    await server.until(lambda: server.waiting() == 1)
    await other("ALTER TABLE c ADD COLUMN more INT")
    with pytest.raises(Conflict):
        await one("COMMIT")
    with pytest.raises(Conflict):
        await waiting
    await other("UPDATE c SET n = n + 1 WHERE branch = 1")
    assert await other("SELECT n FROM c WHERE id IN (1, 2)") == [(1,), (1,)]


@pytest.mark.parametrize("begin", ["BEGIN", ""])
@pytest.mark.parametrize(
    ("change", "row"), [("ADD COLUMN more INT NOT NULL DEFAULT 7", (9, 1, 5, 7)), ("MODIFY n VARCHAR(9)", (9, 1, "5"))]
)
async def test_who_waits_for_a_table_that_is_another_then(
    server: Server, begin: str, change: str, row: tuple[Any, ...]
) -> None:
    """Its rows were made for what the table was: a transaction is in conflict, and a plain write is made anew."""
    one, two, other = server.connect(), server.connect(), server.connect()
    await other("DROP VIEW one")
    await one("BEGIN")
    await one("INSERT INTO c VALUES (9, 1, 0)")
    if begin:
        await two(begin)
    waiting = two.begin("INSERT INTO c (id, branch, n) VALUES (9, 1, 5)")
    await server.until(lambda: server.waiting() == 1)
    await other(f"ALTER TABLE c {change}")
    with pytest.raises(Conflict):
        await one("COMMIT")
    if begin:
        with pytest.raises(Conflict):
            await waiting
        await two("INSERT INTO c (id, branch, n) VALUES (9, 1, 5)")
    else:
        await waiting
    assert await other("SELECT * FROM c WHERE id = 9") == [row]


async def test_a_refusal_is_of_what_is_committed(server: Server) -> None:
    one, other = server.connect(), server.connect()
    await one("BEGIN")
    await one("DELETE FROM c WHERE id = 1")
    waiting = other.begin("INSERT INTO c VALUES (1, 1, 7)")
    await server.until(lambda: server.waiting() == 1)
    await one("COMMIT")
    await waiting
    await other("BEGIN")
    with pytest.raises(ConstraintViolation):
        await other("INSERT INTO c VALUES (1, 1, 8)")
    waiting = one.begin("DELETE FROM c WHERE id = 1")
    await server.until(lambda: server.waiting() == 1)
    await other("COMMIT")
    await waiting


async def _transactions(deployment: LocalDeployment, level: Isolation, seed: str, count: int, done: Run) -> None:
    """Of one client, whose reads are all FOR SHARE: what it has read is locked then, what is absent too."""
    drawn = Drawn(Random(seed))
    for _ in range(count):
        id = deployment.sessions.open("", isolation=level)
        caller = replace(OPEN, session=deployment.sessions.found(id, ""))
        statements = drawn.transaction()
        try:
            for asked in statements:
                if asked.sql.startswith("SELECT"):
                    asked.sql += " FOR SHARE"
                with caller.transaction.reading_to_write("shared"):
                    asked.came = await answer(deployment, asked, caller)
                if asked.came == "ReadTimeout":
                    raise TransactionEnded("it has waited for too long")
            await deployment.sessions.commit(id, "")
            done.committed.append((True, statements))
        except (Conflict, TransactionEnded):
            done.conflicts += 1
            if caller.session is not None:
                await caller.session.roll_back()


@pytest.mark.parametrize("level", [Isolation.REPEATABLE_READ, Isolation.READ_COMMITTED])
@pytest.mark.parametrize("seed", range(4))
async def test_with_locking_reads_all_is_serializable(seed: int, level: Isolation, tmp_path: Path) -> None:
    """One after the other, in the order of their commits, they come to the same."""
    deployment, serial, done = await opened(tmp_path / "together"), await opened(tmp_path / "serial"), Run()
    try:
        await asyncio.gather(*(_transactions(deployment, level, f"{seed} {n}", 12, done) for n in range(6)))
        await judge(deployment, done, serial)
        assert len(done.committed) > 10, "too few to show anything"
    finally:
        await deployment.close()
        await serial.close()


def test_a_ring_that_closes_as_a_lock_is_given_is_found() -> None:
    """A waits for B, and C, which waits for A in another shard, is given first what A waits for here."""
    domain = Sharded(VirtualLoop(), Random(1), Chances(0.0, 0.0, 0.0), lists=False).shards[0].domain
    locks = domain.transactions.locks
    locks.waits_for = lambda id: locks.waited_for(id) | ({"a"} if id == "c" else frozenset())
    number = count(1)

    def sent(act: Insert | RollBack, id: str) -> dict[int, object]:
        within = InTransaction(id, begins=not isinstance(act, RollBack), locks=True, patience=60.0)
        effects = domain.handle(Write(RequestId(next(number)), act, within))
        return {each.request: each.outcome for each in effects if isinstance(each, Reply)}

    def changing(value: int) -> Insert:
        return Insert("t", ((0, 0, value),), on_conflict="replace")

    assert isinstance(sent(changing(1), "b")[1], Written)
    assert sent(changing(2), "c") == sent(changing(3), "a") == {}
    ended = sent(RollBack(), "b")
    assert isinstance(ended[2], Written), "c has it"
    assert isinstance(refused := ended[3], Failed)
    assert isinstance(refused.error, Conflict)
    assert "deadlock" in str(refused.error)
