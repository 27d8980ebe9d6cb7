"""Locks of shards that several workers have: rings that no worker sees, and what becomes of all where somebody goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.cluster.serving.deployment import ClusterDeployment
from controller.transactions.deadlocks import in_ring
from controller.transactions.limits import Isolation
from domains.errors import Conflict, TransactionEnded
from domains.plan.graph import DomainIndex
from domains.plan.sharding import shard_of
from tests.controller.transactions.test_locks import LEVELS, Connection, Server
from tests.kit.cluster_deployment import SHARDS, InProcess, open_cluster
from worker.protocol.cuts import KnownWait

HERE, THERE = 0, 1
"""Shards of different workers."""
CLIENTS = 32


def row_in(shard: int, beyond: int = 0) -> int:
    """The id of a row in a shard."""
    return next(id for id in range(beyond + 1, 1000) if shard_of(id, SHARDS) == shard)


ONE, OTHER = row_in(HERE), row_in(THERE)


class Cluster(Server):
    cluster: InProcess
    beside: ClusterDeployment

    async def lose(self, shard: int) -> None:
        """Its worker gives it to the other one, and with it only what is stored."""
        names = [each.descriptor.name for each in self.cluster.workers]
        given = self.cluster.leader.decided.placement[DomainIndex(shard)].worker
        await self.cluster.leader.move(DomainIndex(shard), next(name for name in names if name != given))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Two api processes before two workers."""
    cluster = await open_cluster(tmp_path)
    beside = await cluster.another("beside", 2)
    cluster.sessions.process, beside.sessions.process = 1, 2
    server = Cluster([cluster, beside], [each.dataflow.hosted for each in cluster.workers])
    server.cluster, server.beside = cluster, beside
    try:
        await cluster.execute("CREATE TABLE c (id INT PRIMARY KEY, n INT NOT NULL)")
        await cluster.execute(f"INSERT INTO c VALUES ({ONE}, 0), ({OTHER}, 0)")
        yield server
        await server.until(lambda: not server.held() and not server.waiting())
    finally:
        await beside.close()
        await cluster.close()


async def _add(db: Connection, id: int, n: int = 1) -> None:
    await db(f"UPDATE c SET n = n + {n} WHERE id = {id}")


@LEVELS
async def test_of_a_ring_over_workers_one_ends(server: Cluster, level: Isolation) -> None:
    one, other = server.connect(level), server.connect(level)
    assert one.deployment is not other.deployment
    await one("BEGIN")
    await _add(one, ONE)
    await other("BEGIN")
    await _add(other, OTHER, 10)
    waiting = one.begin(f"UPDATE c SET n = n + 1 WHERE id = {OTHER}")
    await server.until(lambda: server.waiting() == 1)
    with pytest.raises(Conflict, match="deadlock"):
        await _add(other, ONE, 10)
    assert other.caller.transaction is None
    await waiting
    await one("COMMIT")
    assert await server.plain("SELECT n FROM c") == [(1,), (1,)]


async def test_many_that_take_two_rows_in_either_order(server: Cluster) -> None:
    """A deadlock is all that refuses one, and it is over then; what the others do is whole."""
    ended = [0]

    async def move(number: int) -> None:
        db, ids = server.connect(), (ONE, OTHER) if number % 2 else (OTHER, ONE)
        try:
            await db("BEGIN")
            for id in ids:
                await _add(db, id)
            await db("COMMIT")
        except Conflict:
            assert db.caller.transaction is None
            ended[0] += 1

    await asyncio.gather(*map(move, range(CLIENTS)))
    assert 0 < ended[0] < CLIENTS
    assert await server.plain("SELECT n FROM c") == [(CLIENTS - ended[0],)] * 2


async def test_statements_over_all_shards_are_in_no_ring(server: Cluster) -> None:
    async def add() -> None:
        db = server.connect()
        await db("BEGIN")
        await db("UPDATE c SET n = n + 1")
        await db("COMMIT")

    await asyncio.gather(*(add() for _ in range(CLIENTS)))
    assert await server.plain("SELECT n FROM c") == [(CLIENTS,), (CLIENTS,)]


async def test_a_locking_read_takes_the_rows_that_it_names(server: Cluster) -> None:
    """And not the table, though several workers have it."""
    one, other = server.connect(), server.connect(wait=0.05)
    await one("BEGIN")
    assert await one(f"SELECT n FROM c WHERE id = {ONE} FOR UPDATE") == [(0,)]
    await other("BEGIN")
    assert await other(f"SELECT n FROM c WHERE id = {OTHER} FOR UPDATE") == [(0,)]
    await _add(other, OTHER)
    await other("COMMIT")
    waiting = server.connect().begin(f"UPDATE c SET n = 7 WHERE id = {ONE}")
    await server.until(lambda: server.waiting() == 1)
    await _add(one, ONE)
    await one("COMMIT")
    await waiting
    assert sorted(await server.plain("SELECT n FROM c")) == [(1,), (7,)]


@pytest.mark.parametrize(
    "locks", [f"UPDATE c SET n = n + 1 WHERE id = {ONE}", f"SELECT n FROM c WHERE id = {ONE} FOR UPDATE"]
)
@pytest.mark.parametrize("more", ["SELECT 1", f"UPDATE c SET n = n + 1 WHERE id = {OTHER}"])
async def test_who_has_lost_a_lock_is_not_committed(server: Cluster, locks: str, more: str) -> None:
    """Its worker is gone, and another may have changed what was locked."""
    one, other = server.connect(), server.connect()
    await one("BEGIN")
    await one(locks)
    await server.lose(HERE)
    await _add(other, ONE, 10)
    with pytest.raises(TransactionEnded):
        await one(f"{more}; COMMIT")
    assert one.caller.transaction is None
    assert sorted(await server.plain("SELECT n FROM c")) == [(0,), (10,)]


async def test_who_waits_goes_on_where_the_shard_is_now(server: Cluster) -> None:
    """At once, and not when it has waited for long: there is no lock there."""
    one, other = server.connect(), server.connect(wait=600.0)
    await one("BEGIN")
    await _add(one, ONE)
    await other("BEGIN")
    await _add(other, OTHER)
    waiting = other.begin(f"UPDATE c SET n = n + 1 WHERE id = {ONE}")
    await server.until(lambda: server.waiting() == 1)
    await server.lose(HERE)
    async with asyncio.timeout(20):
        await waiting
    with pytest.raises(TransactionEnded):
        await one("COMMIT")
    await other("COMMIT")
    assert await server.plain("SELECT n FROM c") == [(1,), (1,)]


async def test_what_an_api_process_held_goes_with_it(server: Cluster) -> None:
    gone = server.connect()
    while gone.deployment is not server.beside:
        gone = server.connect()
    await gone("BEGIN")
    await _add(gone, ONE)
    await gone(f"SELECT n FROM c WHERE id = {OTHER}")

    async def alive() -> frozenset[int]:
        return frozenset({1})

    server.cluster.in_doubt.alive = alive
    other = server.connect(wait=60.0)
    while other.deployment is server.beside:
        other = server.connect(wait=60.0)
    async with asyncio.timeout(30):
        await _add(other, ONE, 10)
    with pytest.raises(TransactionEnded):
        await gone("COMMIT")
    assert sorted(await server.plain("SELECT n FROM c")) == [(0,), (10,)]


async def test_what_comes_to_a_shard_after_the_end_is_ended(server: Cluster) -> None:
    """The shard was away, so that neither came in its time; and the process that has sent both is there."""
    sessions, domain = server.cluster.sessions, DomainIndex(HERE)
    server.cluster.in_doubt.has_left = sessions.has_left
    over, goes_on = (sessions.transaction(Isolation.REPEATABLE_READ, 1.0) for _ in range(2))
    for each in (over, goes_on):
        await each.take_snapshot([domain], server.cluster._take_snapshot)
    late = over._within(domain, reads="snapshot")
    del over
    server.cluster.in_doubt.look(at_once=True)
    await server.until(lambda: server.held() == 1)
    assert not sessions.has_left(goes_on.id)
    assert sessions.has_left(late.id)
    await goes_on.roll_back()


def test_only_the_youngest_of_a_ring_ends() -> None:
    def waits(*ways: str) -> set[tuple[DomainIndex, KnownWait]]:
        return {(DomainIndex(0), KnownWait(way[0], way[1], 1, 1)) for way in ways}

    assert [id for id in "abcd" if in_ring(id, waits("ab", "bc", "ca"))] == ["c"]
    assert [id for id in "abcd" if in_ring(id, waits("ab", "ba", "cb", "dc"))] == ["b"]
    assert [id for id in "abcd" if in_ring(id, waits("ab", "bc", "cd"))] == []
    assert [id for id in "abcd" if in_ring(id, waits("ab", "ba", "cd", "dc"))] == ["b", "d"]
