"""What the disk fails is opened again within the process: hits go on meanwhile, and nothing acknowledged is missing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.deployment import health_of
from controller.embedded.local import LocalDeployment
from controller.embedded.opening import Opening
from domains.engine.domain import Domain
from domains.errors import HeadraceError, OutcomeUnknown, StorageFailure, Unavailable
from worker.rocks.acknowledged import AcknowledgedRecord
from worker.rocks.database import Database

PATIENCE = 20.0
LAYOUTS: list[dict[str, int]] = [{}, {"domains": 2, "shards": 3}]
SCHEMA = """
CREATE TABLE votes (id BIGINT PRIMARY KEY, story INT NOT NULL);
CREATE VIEW OfStory AS SELECT id FROM votes WHERE story = ? ORDER BY id;
CREATE EXT VIEW Total AS SELECT COUNT(*) AS n FROM votes
"""


class Disk:
    """Fails what is told of it; what has failed stays failed in that life, as in RocksDB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken = ""
        self.opened = 0
        write, sync, note = Database.write, Database.sync, AcknowledgedRecord.write
        step, make = Domain.spread, Database.__init__

        def failing(kind: str, call: Callable[..., Any], fail: Callable[..., None]) -> Callable[..., Any]:
            def called(of: Any, *arguments: Any, **named: Any) -> Any:
                if self.broken == kind:
                    fail(of)
                return call(of, *arguments, **named)

            return called

        def open_one(of: Any, *arguments: Any, **named: Any) -> None:
            self.opened += 1
            if self.broken:
                raise StorageFailure("the disk is away")
            make(of, *arguments, **named)

        def raises(error: Exception) -> Callable[..., None]:
            def fail(_: Any) -> None:
                raise error

            return fail

        def lost(of: Database) -> None:
            of.fail("write", OSError("no such device"))

        monkeypatch.setattr(Database, "write", failing("write", write, lost))
        monkeypatch.setattr(Database, "sync", failing("sync", sync, lost))
        monkeypatch.setattr(AcknowledgedRecord, "write", failing("record", note, raises(OSError("no such device"))))
        monkeypatch.setattr(Domain, "spread", failing("step", step, raises(StorageFailure("cannot read from 7.sst"))))
        monkeypatch.setattr(Database, "__init__", open_one)


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[LocalDeployment]:
    deployment = await LocalDeployment.open(path, opening=Opening(), read_timeout=PATIENCE, **options)
    try:
        yield deployment
    finally:
        await deployment.close()


async def ids(deployment: LocalDeployment, story: int) -> list[int]:
    page = await deployment.page("OfStory", {"story": [str(story)]})
    return [row["id"] for row in json.loads(b"[" + page + b"]")]


async def total(deployment: LocalDeployment) -> int:
    (row,) = json.loads(b"[" + await deployment.page("Total", {}) + b"]")
    return int(row["n"])


async def says(deployment: LocalDeployment, health: str) -> bool:
    """Whether its health is "ok", or not and says what is given."""
    found = health_of(await deployment.unready())
    return found == "ok" if health == "ok" else found != "ok" and health in found


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (met if isinstance(met := condition(), bool) else await met):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        await asyncio.sleep(0.01)


async def until_done(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """What it answers once the server serves again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await attempt()
        except HeadraceError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("layout", LAYOUTS, ids=["one domain", "several shards"])
@pytest.mark.parametrize("kind", ["write", "sync", "record", "step"])
async def test_what_the_disk_failed_is_opened_again_and_nothing_acknowledged_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, layout: dict[str, int]
) -> None:
    disk = Disk(monkeypatch)
    async with opened(tmp_path, **layout) as deployment:
        await deployment.execute(SCHEMA)
        await deployment.insert("votes", [{"id": n, "story": n % 4} for n in range(40)])
        answers = {story: await ids(deployment, story) for story in range(3)}  # Story 3 stays a hole.
        assert await total(deployment) == 40
        disk.broken = kind
        with pytest.raises(OutcomeUnknown, match="look before"):
            await deployment.insert("votes", [{"id": 100, "story": 1}])
        await until(lambda: says(deployment, ""), "the failure shows")
        opened_before = disk.opened
        await until(lambda: disk.opened > opened_before + 1, "it is tried again")
        assert "not ok since" in health_of(await deployment.unready())
        assert {story: await ids(deployment, story) for story in range(3)} == answers, "hits go on"
        assert await total(deployment) == 40, "what is not durable is not shown"
        for refused in (
            ids(deployment, 3),
            deployment.insert("votes", [{"id": 101, "story": 1}]),
            deployment.execute("CREATE TABLE other (a INT)"),
        ):
            with pytest.raises((Unavailable, StorageFailure)):
                await refused
        alarms = (await deployment.status())["storage_alarms"]
        assert any(each["since"] and "opened again" in each["error"] for each in alarms)

        disk.broken = ""
        await until(lambda: says(deployment, "ok"), "it serves again")
        written = await until_done(lambda: deployment.insert("votes", [{"id": 102, "story": 3}]))
        page = await deployment.page("OfStory", {"story": ["3"]}, token=written.clock)
        assert [row["id"] for row in json.loads(b"[" + page + b"]")] == [*range(3, 40, 4), 102]
        there = await ids(deployment, 1)
        assert there in (answers[1], [*answers[1], 100]), "the lost write is there or it is not"
        assert await total(deployment) == 41 + (100 in there), "and all views agree on it"
        assert await ids(deployment, 0) == answers[0]
        assert (await deployment.status())["storage_alarms"] == []
        await deployment.execute("CREATE TABLE other (a INT)")
    async with opened(tmp_path, **layout) as deployment:
        assert await ids(deployment, 1) == there
        assert await ids(deployment, 3) == [*range(3, 40, 4), 102]


async def test_a_second_failure_soon_after_is_got_over_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    async with opened(tmp_path) as deployment:
        await deployment.execute(SCHEMA)
        for told in range(1, 4):
            disk.broken = "sync"
            with pytest.raises(OutcomeUnknown):
                await deployment.insert("votes", [{"id": 1000 + told, "story": 9}])
            disk.broken = ""
            rows = [{"id": told, "story": 1}]
            await until_done(lambda rows=rows: deployment.insert("votes", rows))  # type: ignore[misc]
            assert await ids(deployment, 1) == [*range(1, told + 1)]
            assert sorted(path.name for path in tmp_path.glob("readers*")) == [f"readers{'.2' * (told % 2)}"]


async def test_a_deployment_that_cannot_be_opened_again_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with opened(tmp_path) as deployment:
        await deployment.execute(SCHEMA)
        await deployment.insert("votes", [{"id": 1, "story": 1}])
        disk.broken = "sync"
        with pytest.raises(OutcomeUnknown):
            await deployment.insert("votes", [{"id": 2, "story": 1}])
        await until(lambda: says(deployment, "disk is away"), "it is tried")
    disk.broken = ""
    async with opened(tmp_path) as deployment:
        assert (await ids(deployment, 1))[0] == 1
