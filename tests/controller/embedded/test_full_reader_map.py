"""A reader map whose disk has no room for a larger one: every answer is right, and it grows once there is room."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from errno import ENOSPC
from functools import partial
from pathlib import Path
from random import Random

import pytest

from controller.deployment import health_of
from controller.embedded.local import LocalDeployment
from controller.embedded.opening import Opening
from domains.errors import HeadraceError, OutcomeUnknown
from worker.reader_map import ReaderMap, environment

PATIENCE = 20.0
KEYS, ROWS, TEXT = 500, 10, 1_000
"""More than a map of four megabytes can hold."""
SCHEMA = """
CREATE TABLE notes (id BIGINT PRIMARY KEY, story INT NOT NULL, text TEXT);
CREATE VIEW OfStory AS SELECT id, text FROM notes WHERE story = ? ORDER BY id;
CREATE EXT VIEW Counts AS SELECT story, COUNT(*) AS n FROM notes GROUP BY story
"""


SIZE = 2**22


class Disk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        reserve = environment._reserve

        def reserve_if_there_is_room(path: Path, size: int) -> None:
            if self.full and size > (path / "data.mdb").stat().st_size:
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            reserve(path, size)

        monkeypatch.setattr(environment, "_reserve", reserve_if_there_is_room)
        monkeypatch.setattr("worker.dataflow.thread.ReaderMap", partial(ReaderMap, initial_size=SIZE))


async def opened(path: Path) -> LocalDeployment:
    deployment = await LocalDeployment.open(path, opening=Opening(), read_timeout=PATIENCE)
    await deployment.execute(SCHEMA)
    return deployment


async def says(deployment: LocalDeployment, health: str) -> bool:
    """Whether its health is "ok", or not and says what is given."""
    found = health_of(await deployment.unready())
    return found == "ok" if health == "ok" else found != "ok" and health in found


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (met if isinstance(met := condition(), bool) else await met):
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def test_a_map_that_cannot_grow_evicts_and_every_answer_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, random = Disk(monkeypatch), Random(5)
    deployment = await opened(tmp_path)
    expected: dict[int, list[tuple[int, str]]] = {story: [] for story in range(KEYS)}

    async def insert(ids: range) -> None:
        rows = [(id, id % KEYS, random.choice("abc") * TEXT) for id in ids]
        for id, story, text in rows:
            expected[story].append((id, text))
        await deployment.insert("notes", [{"id": id, "story": story, "text": text} for id, story, text in rows])

    async def check(story: int) -> None:
        page = await deployment.page("OfStory", {"story": [str(story)]})
        assert [(row["id"], row["text"]) for row in json.loads(b"[" + page + b"]")] == expected[story]

    try:
        await insert(range(KEYS * ROWS))
        disk.full = True
        for round_ in range(2):
            for story in range(KEYS):
                await check(story)
                if story % 20 == 0:
                    begin = KEYS * ROWS + (round_ * KEYS + story) * 20
                    await insert(range(begin, begin + 20))  # To keys that are held, and to holes.
        (alarm,) = (await deployment.status())["storage_alarms"]
        assert alarm["since"]
        assert "grow" in alarm["error"]
        assert health_of(await deployment.unready()) == "ok"
        counts = json.loads(b"[" + await deployment.page("Counts", {}) + b"]")
        assert {row["story"]: row["n"] for row in counts} == {story: len(rows) for story, rows in expected.items()}
        assert deployment.dataflow.reader_map.file_bytes() <= SIZE

        disk.full = False
        deadline = time.monotonic() + PATIENCE
        while (await deployment.status())["storage_alarms"]:
            assert time.monotonic() < deadline, "there is room, and the map does not grow"
            await check(random.randrange(KEYS))
            await deployment.evict("OfStory", [[random.randrange(KEYS)]])
        for story in range(KEYS):
            await check(story)
    finally:
        await deployment.close()


async def test_where_full_views_alone_have_no_room_all_is_opened_again_once_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    deployment = await opened(tmp_path)
    try:
        await deployment.execute("CREATE EXT VIEW Everything AS SELECT id, text FROM notes")
        await deployment.insert("notes", [{"id": 0, "story": 0, "text": "first"}])
        before = await deployment.page("Everything", {})
        disk.full = True
        told = 1
        failed: HeadraceError | None = None
        while failed is None:
            rows = [{"id": id, "story": 1, "text": "x" * TEXT} for id in range(told, told + 100)]
            try:
                await deployment.insert("notes", rows)
            except HeadraceError as error:
                failed = error
            else:
                told += 100
        assert isinstance(failed, OutcomeUnknown)
        assert told > 100
        assert before in await deployment.page("Everything", {}), "hits go on"
        await until(lambda: says(deployment, "not ok since"), "it fails")
        disk.full = False
        await until(lambda: says(deployment, "ok"), "it is opened again")
        rows = json.loads(b"[" + await deployment.page("Everything", {}) + b"]")
        assert {row["id"] for row in rows} >= set(range(told))
        await deployment.insert("notes", [{"id": 10**6, "story": 1, "text": "last"}])
    finally:
        await deployment.close()
