"""What is written to a cluster in memory, and what its views must answer, whatever becomes of workers and leaders."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.kit.memory_workers import MemoryCluster

TABLES = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, author TEXT);
CREATE TABLE votes (user_id BIGINT, story_id BIGINT, PRIMARY KEY (user_id, story_id));
"""
VIEWS = """
CREATE VIEW by_story AS SELECT story_id, COUNT(*) AS n FROM votes WHERE story_id = ? GROUP BY story_id;
CREATE VIEW by_author AS SELECT s.author, v.user_id FROM stories s JOIN votes v ON s.id = v.story_id WHERE s.author = ?;
CREATE EXT VIEW counts AS SELECT story_id, COUNT(*) AS n FROM votes GROUP BY story_id;
CREATE EXT VIEW total AS SELECT COUNT(*) AS n FROM votes;
"""
STORIES = 12


class Program:
    """Stories and votes, what was written of them, and what the views must answer."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.votes: Counter[int] = Counter()
        self.users: dict[int, list[int]] = {}
        self.voted = 0

    async def start(self) -> None:
        await self.cluster.migrate(TABLES)
        for story in range(STORIES):
            await self.cluster.write(f"INSERT INTO stories VALUES ({story}, 'a{story % 3}')")
        await self.vote(30)
        await self.cluster.migrate(VIEWS)

    async def vote(self, number: int) -> None:
        for _ in range(number):
            user, self.voted = self.voted, self.voted + 1
            story = user * 7 % STORIES
            await self.cluster.write(f"INSERT INTO votes VALUES ({user}, {story})")
            self.votes[story] += 1
            self.users.setdefault(story, []).append(user)

    async def check(self) -> None:
        """What is read is right, for keys that were read before and for others; and all state is."""
        await asyncio.sleep(0.1)
        for story in range(STORIES):
            n = self.votes[story]
            assert await self.cluster.read("by_story", story) == ([(story, n)] if n else [])
        for author in range(3):
            wanted = [(f"a{author}", user) for story in range(author, STORIES, 3) for user in self.users.get(story, ())]
            assert await self.cluster.read("by_author", f"a{author}") == sorted(wanted, key=repr)
        assert await self.cluster.read("counts") == sorted(self.votes.items(), key=repr)
        assert await self.cluster.read("total") == [(sum(self.votes.values()),)]
        await self.cluster.check()


async def started(workers: int, **options: Any) -> tuple[MemoryCluster, Program]:
    """With workers w1, w2, …, the controller c1, and the program's tables and views; at rest."""
    cluster = MemoryCluster(**options)
    for number in range(workers):
        await cluster.start_worker(f"w{number + 1}")
    await cluster.start_controller("c1")
    await cluster.calm()
    program = Program(cluster)
    await program.start()
    await program.check()
    return cluster, program


def placement(cluster: MemoryCluster) -> dict[str, list[int]]:
    """The domains of each worker that has any, as it is decided."""
    found: dict[str, list[int]] = {}
    for domain, given in sorted(cluster.led.ledger.decided.placement.items()):
        found.setdefault(given.worker, []).append(domain)
    return found
