"""What is watched through a cluster whose workers are killed: clients go on by themselves, tell each change once, and
come to what reads answer."""

from __future__ import annotations

import asyncio
import os
import random
import signal

from headrace_client import connect_async
from headrace_client.errors import Unavailable
from running_cluster import Launch
from test_real_cluster import SCHEMA

STORIES, ROUNDS, PATIENCE = 12, 3, 180.0


async def test_each_change_is_told_once_through_kills_of_workers(launch: Launch) -> None:
    """Votes only come: whatever was told twice, or out of its order, would be a count that is not greater."""
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    running = launch("--workers", "2", "--shards", "2").serves()
    told: dict[int, list[tuple[str, int]]] = {story: [] for story in range(STORIES)}
    async with asyncio.timeout(PATIENCE), connect_async(running.url, read_your_writes=True) as db:
        await db.execute_all(SCHEMA)
        await db.table("stories").insert([{"id": n, "author": n, "title": "one"} for n in range(STORIES)])

        async def follow(story: int) -> None:
            async for change in db.view("StoriesWithVC").live(id=story):
                told[story].append((change.operation, change.row["vcount"]))

        async def vote() -> None:
            rows = [{"user": 1, "story_id": n} for n in range(STORIES)]
            while True:
                try:
                    return await db.table("votes").insert(rows) and None
                except Unavailable:  # What became of it is not known: then there is one more, and all know of it.
                    await asyncio.sleep(0.05)

        await vote()
        followers = [asyncio.create_task(follow(story)) for story in told]
        for round in range(ROUNDS):
            for at in range(6):
                await vote()
                if at == 3 and round < ROUNDS - 1:
                    os.kill(running.pids()[rng.choice(("worker-1", "worker-2"))], signal.SIGKILL)
        counts = {}
        for story in told:
            (row,) = await db.view("StoriesWithVC").lookup(id=story)
            counts[story] = row["vcount"]
        assert min(counts.values()) >= 1 + 6 * ROUNDS
        while any(not changes or changes[-1][1] != counts[story] for story, changes in told.items()):
            for follower in followers:
                assert not follower.done(), await follower
            await asyncio.sleep(0.02)
        for follower in followers:
            follower.cancel()
    for story, changes in told.items():
        operations = [operation for operation, _ in changes]
        assert operations == ["insert"] + ["update"] * (len(changes) - 1), (story, changes)
        assert [count for _, count in changes] == sorted({count for _, count in changes}), (story, changes)
