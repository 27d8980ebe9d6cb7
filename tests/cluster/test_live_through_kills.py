"""What is watched through kills, of a cluster's workers and of a server: clients go on by themselves, tell each change
once, and come to what reads answer."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from headrace_client import AsyncConnection, connect_async
from headrace_client.errors import ConnectionFailed, Unavailable
from running_cluster import Launch
from test_real_cluster import SCHEMA

from tests.crash.killed_server import KilledServer
from tests.told_process import ROOT, ToldProcess

STORIES, ROUNDS, PATIENCE = 12, 3, 180.0
NODE = shutil.which("node")

Told = Mapping[int, list[tuple[str, int]]]
"""By story each change that the application heard of: the operation, and the count of votes."""
Following = Callable[[AsyncConnection, str], AbstractAsyncContextManager[Callable[[], Told]]]


@asynccontextmanager
async def in_python(db: AsyncConnection, url: str) -> AsyncIterator[Callable[[], Told]]:
    told: dict[int, list[tuple[str, int]]] = {story: [] for story in range(STORIES)}

    async def follow(story: int) -> None:
        async for change in db.view("StoriesWithVC").live(id=story):
            told[story].append((change.operation, change.row["vcount"]))

    followers = [asyncio.create_task(follow(story)) for story in told]

    def so_far() -> Told:
        for follower in followers:
            assert not follower.done(), follower.exception()
        return told

    yield so_far
    for follower in followers:
        follower.cancel()


@asynccontextmanager
async def in_javascript(db: AsyncConnection, url: str) -> AsyncIterator[Callable[[], Told]]:
    """All of them by one connection."""
    assert NODE is not None
    script = str(ROOT / "clients" / "js" / "test" / "follower.js")
    node = ToldProcess([script, url, "StoriesWithVC", *map(str, range(STORIES))], {}, program=NODE)

    def so_far() -> Told:
        assert node.popen.poll() is None, node.errors()
        told: dict[int, list[tuple[str, int]]] = {story: [] for story in range(STORIES)}
        for said in map(json.loads, list(node.lines)):
            changes = [(each["operation"], each["value"]["vcount"]) for each in said["changes"]]
            told[said["id"]] += changes
            assert [row["vcount"] for row in said["rows"]] == [changes[-1][1]], said
        return told

    try:
        yield so_far
    finally:
        node.kill()


CLIENTS = [
    in_python,
    pytest.param(in_javascript, marks=pytest.mark.skipif(NODE is None, reason="Node is not installed")),
]


async def each_change_is_told_once(url: str, following: Following, kill: Callable[[], Awaitable[None]]) -> None:
    """Votes only come: whatever was told twice, or out of its order, would be a count that is not greater."""
    async with asyncio.timeout(PATIENCE), connect_async(url, read_your_writes=True) as db:
        await db.execute_all(SCHEMA)
        await db.table("stories").insert([{"id": n, "author": n, "title": "one"} for n in range(STORIES)])

        async def vote() -> None:
            rows = [{"user": 1, "story_id": n} for n in range(STORIES)]
            while True:
                try:
                    return await db.table("votes").insert(rows) and None
                except (Unavailable, ConnectionFailed):
                    # What became of it is not known: then there is one more, and all know of it.
                    await asyncio.sleep(0.05)

        await vote()
        async with following(db, url) as so_far:
            while not all(so_far().values()):
                await asyncio.sleep(0.02)
            for round in range(ROUNDS):
                for at in range(6):
                    await vote()
                    if at == 3 and round < ROUNDS - 1:
                        await kill()
            counts = {story: (await db.view("StoriesWithVC").lookup(id=story))[0]["vcount"] for story in range(STORIES)}
            assert min(counts.values()) >= 1 + 6 * ROUNDS
            while any(not changes or changes[-1][1] != counts[story] for story, changes in so_far().items()):
                await asyncio.sleep(0.02)
            told = so_far()
    for story, changes in told.items():
        operations = [operation for operation, _ in changes]
        assert operations == ["insert"] + ["update"] * (len(changes) - 1), (story, changes)
        assert [count for _, count in changes] == sorted({count for _, count in changes}), (story, changes)
        assert len(changes) > 1, (story, changes)


@pytest.mark.parametrize("following", CLIENTS)
async def test_each_change_is_told_once_through_kills_of_workers(launch: Launch, following: Following) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    running = launch("--workers", "2", "--controllers", "1", "--shards", "2").serves()

    async def kill() -> None:
        os.kill(running.pids()[rng.choice(("worker-1", "worker-2"))], signal.SIGKILL)

    await each_change_is_told_once(running.url, following, kill)


@pytest.mark.parametrize("following", CLIENTS)
async def test_each_change_is_told_once_through_kills_of_the_server(tmp_path: Path, following: Following) -> None:
    """Which is there again at the same address, with nothing in memory of who watched."""
    server = KilledServer(tmp_path / "data")
    url = server.url

    async def kill() -> None:
        nonlocal server
        server.kill()
        server = await asyncio.to_thread(KilledServer, tmp_path / "data", "--port", url.rpartition(":")[2])

    try:
        await each_change_is_told_once(url, following, kill)
    finally:
        server.kill()
