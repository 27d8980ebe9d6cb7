"""SELECTs that no view answers, in a cluster: over one cut of shards that several workers host, and nothing is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from controller.deployment import MigrationStatus
from domains.errors import BadRequest, Cancelled, NotServed, ReadTimeout
from domains.plan.graph import DomainIndex
from migrations.recipe import RecipeEntry
from tests.kit.cluster_deployment import InProcess, open_cluster
from worker.protocol.cuts import CutEntries, CutRead, CutTaken, EvaluateRequest, ReadCut
from worker.protocol.messages import CloseDomain, ConnectionLost, NotHere, Role
from worker.rocks.iterating import ENTRY_BYTES
from worker.service.cuts import HeldCuts
from worker.service.process import Worker
from worker.service.server import WorkerServer
from worker.wire.connection import Connection

SCHEMA = """
CREATE TABLE items (id BIGINT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, n BIGINT NOT NULL DEFAULT 0);
CREATE TABLE small (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL) SHARD BY (id) SHARDS 1
"""
MANY = 4_000
DEADLINE = 60.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcess]:
    opened = await open_cluster(tmp_path, maps=False)
    await opened.execute(SCHEMA)
    yield opened
    await opened.close()


async def select(cluster: InProcess, sql: str, *params: Any, **named: Any) -> list[tuple[Any, ...]]:
    (result,), _ = await cluster.execute(sql, params, **named)
    return [tuple(row) for row in result.rows]


async def filled(cluster: InProcess, rows: int = MANY) -> None:
    for start in range(0, rows, 1_000):
        await cluster.insert(
            "items", [{"id": id, "kind": f"k{id % 5}", "n": id} for id in range(start, min(rows, start + 1_000))]
        )


async def test_few_and_many_rows_are_answered_and_nothing_is_kept(cluster: InProcess) -> None:
    await filled(cluster)
    recipe = cluster.directory.recipe
    for _ in range(6):
        assert await select(cluster, "SELECT n FROM items WHERE id = ?", 17) == [(17,)]
        assert await select(cluster, "SELECT COUNT(*), SUM(n) FROM items") == [(MANY, sum(range(MANY)))]
    by_kind = await select(cluster, "SELECT kind, COUNT(*) FROM items GROUP BY kind ORDER BY kind")
    assert by_kind == [(f"k{kind}", MANY // 5) for kind in range(5)]
    joined = "SELECT COUNT(*) FROM items a JOIN items b ON a.id = b.n WHERE b.id < ?"
    assert await select(cluster, joined, 3_000) == [(3_000,)]
    assert await select(cluster, "SELECT n FROM items ORDER BY n DESC LIMIT 3") == [(MANY - 1 - n,) for n in range(3)]
    assert cluster.directory.recipe == recipe
    assert not cluster.views()


async def test_samples_of_all_shards_order_joins(cluster: InProcess) -> None:
    """By table sizes alone orders would come first, half of which are looked up then."""
    await cluster.execute("""
        CREATE TABLE orders (id INT PRIMARY KEY, state INT);
        CREATE TABLE products (id INT PRIMARY KEY, code INT) SHARD BY (id) SHARDS 1;
        CREATE TABLE parts (id INT PRIMARY KEY, order_id INT, product INT, KEY (order_id), KEY (product))
    """)
    await cluster.insert("orders", [{"id": i, "state": i // 2 % 2} for i in range(2_000)])
    await cluster.insert("products", [{"id": i, "code": 1_000 + i} for i in range(400)])
    await cluster.insert("parts", [{"id": i, "order_id": i // 2, "product": i % 400} for i in range(4_000)])
    tables = cluster.state.catalog.tables
    known = await cluster.statistics([tables["orders"], tables["products"], tables["parts"]])
    assert [known[name].rows for name in ("orders", "products", "parts")] == [2_000, 400, 4_000]
    assert known["orders"].distinct[1,] == 2
    assert known["products"].distinct[1,] == 400
    assert 300 <= known["parts"].distinct[2,] <= 800
    plan = await select(
        cluster,
        "EXPLAIN SELECT i.id FROM orders o JOIN parts i ON o.id = i.order_id JOIN products p ON p.id = i.product "
        "WHERE o.state = 1 AND p.code = 1077",
    )
    lines = [str(line) for (line,) in plan]
    bases = [line.strip("│├└─ ").split("  ")[0] for line in lines[: lines.index("a view of it would be")]]
    assert [each for each in bases if each in tables] == ["products", "parts", "orders"]


async def test_the_answer_has_the_positions_that_it_shows_and_waits_for_a_token(cluster: InProcess) -> None:
    for number in range(20):
        written = await cluster.insert("items", [{"id": number, "kind": "a"}, {"id": 1_000 + number, "kind": "b"}])
        (result,), clock = await cluster.execute("SELECT COUNT(*) FROM items")
        assert result.rows == ((2 * number + 2,),)
        assert all(clock[base] >= position for base, position in written.clock.items())
    cluster.read_timeout = 0.2
    with pytest.raises(ReadTimeout, match="did not reach the token"):
        await select(cluster, "SELECT COUNT(*) FROM items", token={base: at + 1 for base, at in clock.items()})
    waiting = asyncio.create_task(
        select(cluster, "SELECT COUNT(*) FROM items", token={**clock, "items@0": clock["items@0"] + 1})
    )
    cluster.read_timeout = DEADLINE
    while not waiting.done():
        await cluster.insert("items", [{"id": 2_000 + number, "kind": "c"}])
        number += 1
    assert (await waiting)[0][0] > 40


async def test_where_one_worker_has_all_shards_one_message_is_enough(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("evaluate", "read", "close"):
        done = getattr(HeldCuts, name)
        monkeypatch.setattr(HeldCuts, name, lambda *given, name=name, done=done: asked.append(name) or done(*given))
    await cluster.insert("small", [{"id": number, "n": number} for number in range(10)])
    assert await select(cluster, "SELECT SUM(n) FROM small") == [(45,)]
    assert asked == ["evaluate"]


async def test_every_shard_is_read_at_one_position(cluster: InProcess) -> None:
    """While rows come, two of a kind in each write: a self-join that reads two positions would miss some."""
    await filled(cluster)
    ended = asyncio.Event()

    async def write() -> None:
        number = MANY
        while not ended.is_set():
            await cluster.insert("items", [{"id": number, "kind": "new", "n": 1}, {"id": -number, "kind": "new"}])
            number += 1

    writing = asyncio.create_task(write())
    alone = "SELECT COUNT(*) FROM items a LEFT JOIN items b ON a.id = b.id WHERE b.id IS NULL"
    for _ in range(5):
        assert await select(cluster, alone) == [(0,)]
        ((both, rows),) = await select(
            cluster,
            "SELECT SUM(q.c), SUM(q.n) FROM (SELECT COUNT(*) AS c, 0 AS n FROM items"
            " UNION ALL SELECT 0 AS c, COUNT(*) AS n FROM items) AS q",
        )
        assert both == rows
    ended.set()
    await writing


# --- views that are gone --------------------------------------------------------------------------------------------


def at_read(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[HeldCuts, CutRead], Awaitable[None]]) -> None:
    """Have something done before the n-th read of a cut."""
    read, count = HeldCuts.read, 0

    async def met(self: HeldCuts, asked: CutRead) -> Any:
        nonlocal count
        count += 1
        if count == number:
            await act(self, asked)
        found = read(self, asked)
        return await found if isawaitable(found) else found

    monkeypatch.setattr(HeldCuts, "read", met)


SUM = "SELECT COUNT(*), SUM(n) FROM items"


async def test_a_shard_that_moves_meanwhile_is_read_anew_where_it_is(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(cluster)

    async def move(_: HeldCuts, asked: CutRead) -> None:
        await cluster.leader.move(DomainIndex(0), "w1")

    at_read(monkeypatch, 2, move)
    assert await select(cluster, SUM) == [(MANY, sum(range(MANY)))]
    owner = cluster.directory.owner(DomainIndex(0))
    assert owner is not None
    assert owner.name == "w1"
    assert await select(cluster, "SELECT n FROM items WHERE id = 17") == [(17,)]
    await none_held(cluster)


async def test_a_cut_that_was_closed_is_taken_again(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(cluster)

    async def close(cuts: HeldCuts, asked: CutRead) -> None:
        cuts.close(asked.number)

    at_read(monkeypatch, 3, close)
    assert await select(cluster, SUM) == [(MANY, sum(range(MANY)))]


async def test_a_connection_that_breaks_closes_its_cuts_and_the_answer_comes_all_the_same(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(cluster)

    async def cut_off(_: HeldCuts, asked: CutRead) -> None:
        for worker in cluster.workers:
            for accepted in list(worker.server.connections):
                if accepted.hello.role is Role.API:
                    accepted.abort(ConnectionLost("cut by the test"))

    at_read(monkeypatch, 3, cut_off)
    assert await select(cluster, SUM) == [(MANY, sum(range(MANY)))]
    await none_held(cluster)


async def test_shards_that_stay_away_are_not_waited_for_for_ever(cluster: InProcess) -> None:
    cluster.hosts.write_timeout = 0.2  # type: ignore[attr-defined]
    await cluster.leader._ask(DomainIndex(1), CloseDomain(cluster.leader.epoch, DomainIndex(1)))
    with pytest.raises(NotServed, match="are not served now"):
        await select(cluster, SUM)


async def test_a_cut_that_nobody_reads_is_closed(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = cuts_of(cluster.workers[0])
    schema = cluster.state.catalog.tables["items"]
    connection = next(each for each in cluster.workers[0].server.connections if each.hello.role is not Role.WORKER)
    taken = await cuts.evaluate(connection, EvaluateRequest((DomainIndex(0),), ((schema,),)))
    assert isinstance(taken, CutTaken)
    read = ReadCut(taken.number, 0, ((b"r", b"s"),), 10)
    with pytest.raises(BadRequest):
        cuts.read(replace(read, ranges=read.ranges * 2_001))
    monkeypatch.setattr("worker.service.cuts.PATIENCE", 0.05)  # From the next read on.
    found = cuts.read(read)
    assert isinstance(found, CutEntries)
    assert len(found.found) == 1
    async with asyncio.timeout(DEADLINE):
        while cuts._held:
            await asyncio.sleep(0.002)
    with pytest.raises(NotHere):
        cuts.read(read)


async def test_long_rows_come_some_at_a_time(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    take = Connection._take

    def taken(self: Connection, content: bytes) -> None:
        sizes.append(len(content))
        take(self, content)

    monkeypatch.setattr(Connection, "_take", taken)
    text = "x" * 300_000
    for number in range(30):
        await cluster.insert("items", [{"id": number, "kind": f"{number} {text}", "n": number}])
    for module in ("worker.adhoc.cut", "worker.service.cuts"):
        monkeypatch.setattr(f"{module}.FEW_ROWS", 1)
    found = await select(cluster, "SELECT id, kind FROM items ORDER BY id")
    assert found == [(number, f"{number} {text}") for number in range(30)]
    assert sum(sizes) > 30 * 300_000
    assert max(sizes) < ENTRY_BYTES + 301_000


# --- what crosses ---------------------------------------------------------------------------------------------------


def crossed(cluster: InProcess) -> int:
    """Bytes from the workers to the api process so far."""
    return sum(worker.server.traffic()["api"]["bytes_out"] for worker in cluster.workers)


async def costs(cluster: InProcess, sql: str, *params: Any) -> tuple[list[tuple[Any, ...]], int]:
    before = crossed(cluster)
    rows = await select(cluster, sql, *params)
    return rows, crossed(cluster) - before


async def test_rows_that_do_not_pass_do_not_cross(cluster: InProcess) -> None:
    """A row of these is 10 bytes and more: 40 kB in all. What does not depend on the rows is some messages."""
    await filled(cluster)
    await cluster.insert("small", [{"id": number, "n": number} for number in range(10)])
    _, everything = await costs(cluster, "SELECT * FROM items")
    assert everything > 10 * MANY
    for sql, params, wanted in (
        ("SELECT COUNT(*), SUM(n), MIN(n), MAX(n) FROM items", (), [(MANY, sum(range(MANY)), 0, MANY - 1)]),
        ("SELECT kind, COUNT(*) FROM items GROUP BY kind ORDER BY kind", (), [(f"k{n}", MANY // 5) for n in range(5)]),
        ("SELECT DISTINCT kind FROM items ORDER BY kind", (), [(f"k{n}",) for n in range(5)]),
        ("SELECT id FROM items WHERE n = ?", (1_234,), [(1_234,)]),
        ("SELECT id FROM items WHERE n > ? ORDER BY id", (MANY - 3,), [(MANY - 2,), (MANY - 1,)]),
        ("SELECT id FROM items WHERE n % 1000 = 7 ORDER BY id", (), [(7,), (1_007,), (2_007,), (3_007,)]),
        ("SELECT id FROM items ORDER BY n DESC LIMIT 2 OFFSET 1", (), [(MANY - 2,), (MANY - 3,)]),
        ("SELECT kind, SUM(n) FROM items WHERE n < 10 GROUP BY kind HAVING SUM(n) > 11 ORDER BY 1", (), [("k4", 13)]),
        ("SELECT s.id FROM small s JOIN items i ON i.n + 1 = s.n WHERE i.kind = ? ORDER BY 1", ("k2",), [(3,), (8,)]),
    ):
        found, bytes_ = await costs(cluster, sql, *params)
        assert found == wanted, sql
        assert bytes_ < everything / 3, f"{sql}: {bytes_} of {everything} bytes"


async def none_held(cluster: InProcess) -> None:
    async with asyncio.timeout(DEADLINE):
        while any(cuts_of(worker)._held for worker in cluster.workers):
            await asyncio.sleep(0.002)


def cuts_of(worker: Worker) -> HeldCuts:
    server = worker.server.handler.__self__  # type: ignore[attr-defined]
    assert isinstance(server, WorkerServer)
    return server._cuts


async def test_positions_that_were_shown_are_known_to_have_been(cluster: InProcess) -> None:
    """Else a shard that is rebuilt might give them to other writes, while clients have them in their tokens."""
    await filled(cluster)
    known = cluster._hosts.acknowledged
    known.positions.clear()
    _, clock = await cluster.execute("SELECT COUNT(*) FROM items")
    assert clock
    assert known.positions == clock


async def test_kill_cancels_the_leaders_migration(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    sql, cancelled = "CREATE TABLE slow (id INT PRIMARY KEY)", list[str]()
    began = asyncio.Event()

    async def run(entry: RecipeEntry, text: str, rows: object = None) -> None:
        began.set()
        await asyncio.Event().wait()

    async def migrations() -> list[MigrationStatus]:
        ended, runs = (MigrationStatus(id, sql, state, "", 0.5, ()) for id, state in (("9", "done"), ("8", "running")))
        return [ended, runs]

    async def cancel(id: str) -> MigrationStatus:
        cancelled.append(id)
        return (await migrations())[1]

    for each in (run, migrations, cancel):
        monkeypatch.setattr(cluster.leader, each.__name__, each)
    statement = asyncio.create_task(cluster.execute(sql))
    async with asyncio.timeout(20):
        await began.wait()
        (one,) = cluster.running()
        await cluster.execute(f"KILL {one.id}")
        with pytest.raises(Cancelled, match="KILL"):
            await statement
    assert cancelled == ["8"]
