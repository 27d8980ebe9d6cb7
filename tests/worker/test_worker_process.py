"""Workers as processes meet them: over the wire, on real ports, with real storage."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from leading import leading

from domains.packets import Insert
from worker.messages import NotHere

SQL = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL) SHARD BY (id);
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL) SHARD BY (story);
CREATE VIEW ByAuthor AS SELECT id, author FROM stories WHERE author = ? ORDER BY id;
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story;
CREATE VIEW Karma AS SELECT author, COUNT(*) AS n FROM votes JOIN stories ON story = id WHERE author = ? GROUP BY author
"""


async def test_a_sharded_graph_over_two_workers(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a", "b"), shards=2, groups=2) as led:
        await led.write(Insert("stories", tuple((number, number % 3) for number in range(12))))
        token: dict[str, int] = {}
        for number in range(12):
            token |= await led.write(Insert("votes", tuple((number, user) for user in range(number))))
        for author in range(3):
            votes = sum(number for number in range(12) if number % 3 == author)
            page = await led.page("Karma", (author,), token)
            assert page == b'{"author":%d,"n":%d}' % (author, votes)
        token = await led.write(Insert("votes", ((4, 100),)))
        assert await led.page("Karma", (1,), token) == b'{"author":1,"n":23}'
        pages = await asyncio.gather(*(led.page("VoteCount", (number,)) for number in range(12)))
        assert pages[5] == b'{"story":5,"n":5}'
        await led.quiet()


async def test_what_a_stopping_worker_does_not_take_is_for_another(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        led.workers["a"].dataflow._stopping = True
        with pytest.raises(NotHere, match="stopping"):
            await led.write(Insert("stories", ((1, 1),)))
        led.workers["a"].dataflow._stopping = False
        await led.write(Insert("stories", ((1, 1),)))
