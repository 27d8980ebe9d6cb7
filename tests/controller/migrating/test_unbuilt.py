"""A start that serves before full state is built: what is ready, what waits, and that each row counts exactly once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.embedded.opening import Opening
from controller.migrating.migrator import Migrator
from controller.migrating.unbuilt import UnbuiltPart
from domains.errors import NotFound, StorageFailure, Unavailable

SCHEMA = """
CREATE TABLE events (id BIGINT PRIMARY KEY AUTO_INCREMENT, kind INT NOT NULL, weight INT NOT NULL);
CREATE TABLE kinds (kind INT PRIMARY KEY, name TEXT);
CREATE VIEW OfKind AS SELECT id, weight FROM events WHERE kind = ?
"""
VIEWS = """
CREATE EXT VIEW Totals AS SELECT kind, COUNT(*) AS n, SUM(weight) AS w FROM events GROUP BY kind;
CREATE EXT VIEW Named AS SELECT name, COUNT(*) AS n FROM events JOIN kinds ON kinds.kind = events.kind GROUP BY name;
CREATE EXT VIEW Best AS SELECT kind, n FROM Totals ORDER BY n DESC, kind LIMIT 3
"""
KINDS = 7
LAYOUTS: list[dict[str, int]] = [{}, {"domains": 3}, {"domains": 2, "shards": 3}]

Open = Callable[..., Awaitable[LocalDeployment]]


@asynccontextmanager
async def opened(path: Path, *, held: bool = False, **options: Any) -> AsyncIterator[LocalDeployment]:
    """``held``: nothing is built before the migrator's turn is given back."""
    deployment = await LocalDeployment.open(path, opening=Opening(), **options)
    if held:
        assert not deployment.migrator.turn.locked()
        await deployment.migrator.turn.acquire()
    try:
        yield deployment
    finally:
        await deployment.close()


async def filled(path: Path, rows: int, **options: Any) -> None:
    async with opened(path, **options) as deployment:
        await deployment.execute(SCHEMA)
        await deployment.execute(VIEWS)  # By themselves: what is planned together shares its links.
        await deployment.insert("kinds", [{"kind": kind, "name": f"k{kind}"} for kind in range(KINDS)])
        await deployment.insert("events", [{"kind": n % KINDS, "weight": n} for n in range(rows)])


async def read(deployment: LocalDeployment, view: str, **parameters: object) -> list[dict[str, Any]]:
    page = await deployment.page(view, {name: [str(value)] for name, value in parameters.items()})
    rows: list[dict[str, Any]] = json.loads(b"[" + page + b"]")
    return rows


async def check(deployment: LocalDeployment) -> None:
    """All views agree with the base table, as the ready view and the engine's own SELECT have it."""
    rows = {kind: await read(deployment, "OfKind", kind=kind) for kind in range(KINDS + 1)}
    present = {kind: of for kind, of in rows.items() if of}
    totals = {row["kind"]: (row["n"], row["w"]) for row in await read(deployment, "Totals")}
    assert totals == {kind: (len(of), sum(row["weight"] for row in of)) for kind, of in present.items()}
    named = {row["name"]: row["n"] for row in await read(deployment, "Named")}
    assert named == {f"k{kind}": len(of) for kind, of in present.items() if kind < KINDS}
    best = sorted(((kind, len(of)) for kind, of in present.items()), key=lambda each: (-each[1], each[0]))[:3]
    assert [(row["kind"], row["n"]) for row in await read(deployment, "Best")] == best


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_is_ready_serves_before_full_state_is_built(tmp_path: Path, layout: dict[str, int]) -> None:
    await filled(tmp_path, 700, **layout)
    async with opened(tmp_path, held=True, read_timeout=0.3, **layout) as deployment:
        assert len(await read(deployment, "OfKind", kind=1)) == 100
        await deployment.insert("events", [{"kind": 1, "weight": 5}])
        assert len(await read(deployment, "OfKind", kind=1)) == 101
        building = (await deployment.status())["building"]
        assert (building["views"], building["parts_left"]) == (3, 1 if "shards" in layout else 2)
        assert "Totals" in deployment.explain("Totals")
        with pytest.raises(Unavailable, match='view "Totals" is still being built after the start'):
            await read(deployment, "Totals")
        with pytest.raises(Unavailable, match='view "Totals" is still being built after the start'):
            await anext(deployment.held("Totals"))
        deployment.read_timeout = 60
        reading = asyncio.create_task(read(deployment, "Totals"))
        await asyncio.sleep(0)
        deployment.migrator.turn.release()
        assert {"kind": 1, "n": 101, "w": sum(range(1, 700, 7)) + 5} in await reading
        await check(deployment)
        assert "building" not in await deployment.status()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
async def test_writes_and_changes_meanwhile_count_once(tmp_path: Path, layout: dict[str, int], seed: int) -> None:
    random = Random(f"unbuilt {seed}")
    await filled(tmp_path, 2_000 if "shards" in layout else 6_000, **layout)  # Of several shards each row costs more.
    for _ in range(2):
        async with opened(tmp_path, read_timeout=30, **layout) as deployment:
            assert deployment.migrator.unbuilt.parts
            for _ in range(random.randrange(25)):
                await act(deployment, random)
            if random.random() < 0.5:
                continue  # Stopped in the midst of it.
            await check(deployment)
    async with opened(tmp_path, read_timeout=30, **layout) as deployment:
        await check(deployment)


async def act(deployment: LocalDeployment, random: Random) -> None:
    kind = random.randrange(KINDS + 1)
    match random.randrange(8):
        case 0:
            await deployment.execute(f"DELETE FROM events WHERE kind = {kind} AND weight < {random.randrange(300)}")
        case 1:
            await deployment.execute(f"UPDATE events SET weight = weight + 1, kind = {kind} WHERE weight = 17")
        case 2:
            await deployment.execute(
                f"CREATE OR REPLACE VIEW Other AS SELECT MAX(weight) AS m FROM events WHERE id > {kind}"
            )
        case 3:
            await deployment.execute("DROP VIEW IF EXISTS Over")
            await deployment.execute("CREATE EXT VIEW Over AS SELECT SUM(n) AS n FROM Totals")
        case 4:
            await deployment.execute(f"SELECT COUNT(*) FROM events WHERE weight = {kind}")
        case 5:
            await read(deployment, "OfKind", kind=kind)
        case _:
            rows = [{"kind": random.randrange(KINDS + 1), "weight": random.randrange(99)} for _ in range(40)]
            await deployment.insert("events", rows)


async def test_a_change_that_stands_on_a_part_builds_it_first(tmp_path: Path) -> None:
    await filled(tmp_path, 700)
    async with opened(tmp_path, held=True) as deployment:
        migrator = deployment.migrator
        migrator.turn.release()
        # In the turn before anything is built: the task that builds has not run yet.
        await deployment.execute("CREATE EXT VIEW Over AS SELECT SUM(n) AS n FROM Totals")
        assert await read(deployment, "Over") == [{"n": 700}]
        await check(deployment)


async def test_a_view_that_is_dropped_is_not_built(tmp_path: Path) -> None:
    await filled(tmp_path, 700)
    async with opened(tmp_path, held=True) as deployment:
        waiting = asyncio.create_task(read(deployment, "Named"))
        dropping = asyncio.create_task(deployment.execute("DROP VIEW Named; ALTER TABLE kinds ADD COLUMN more INT"))
        await asyncio.sleep(0)
        deployment.migrator.turn.release()
        await dropping
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(outcome, (list, NotFound)), "it may have been built before"
        names = {node.operator.view for node in deployment.state.flow.nodes.values() if hasattr(node.operator, "view")}
        assert "Named" not in names
        assert len(await read(deployment, "Totals")) == KINDS
    async with opened(tmp_path) as deployment:
        assert len(await read(deployment, "Totals")) == KINDS


async def test_a_part_that_cannot_be_built_says_why_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path, 700)
    build, broken = Migrator._build_part, [True]

    async def failing(self: Migrator, part: UnbuiltPart) -> None:
        if broken[0] and "named" in part.views:
            raise StorageFailure("a file is damaged")
        await build(self, part)

    monkeypatch.setattr(Migrator, "_build_part", failing)
    monkeypatch.setattr("controller.migrating.migrator.RETRY_SECONDS", 0.05)
    async with opened(tmp_path, read_timeout=20) as deployment:
        assert len(await read(deployment, "Totals")) == KINDS
        async with asyncio.timeout(20):
            while not (await deployment.status())["building"]["failed"]:
                await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match='view "Named" could not be built after the start: a file is damaged'):
            await read(deployment, "Named")
        broken[0] = False
        async with asyncio.timeout(20):
            while "building" in await deployment.status():
                await asyncio.sleep(0.01)
        await check(deployment)
