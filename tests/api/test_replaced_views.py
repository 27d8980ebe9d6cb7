"""A view that others read is replaced while all of them are read, and their table is written."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from controller.deployment import Deployment
from domains.errors import StillInUse

ROWS = 200
STACK = """
CREATE TABLE ballots (id BIGINT NOT NULL PRIMARY KEY, story BIGINT NOT NULL);
CREATE VIEW Counted AS SELECT id, story FROM ballots;
CREATE EXT VIEW OfStory AS SELECT id FROM Counted WHERE story = ?;
CREATE EXT VIEW Total AS SELECT COUNT(*) AS n, MAX(id) AS last FROM Counted;
"""
SAME = (
    "SELECT id, story FROM ballots WHERE id >= 0",
    "SELECT id, story FROM ballots GROUP BY id, story",
    "SELECT b.id, b.story FROM ballots b JOIN ballots c ON b.id = c.id",
)
GROWN = "SELECT story, id, 0 AS more FROM ballots"
"""All mean the same, each by other nodes."""


@pytest.fixture
def real(deployment: Deployment) -> Deployment:
    if type(deployment).__name__ == "FakeDeployment":
        pytest.skip("the fake has no views that read views")
    return deployment


async def test_views_that_read_it_answer_right_all_along(real: Deployment, http: httpx.AsyncClient) -> None:
    await real.execute(STACK)
    written: list[int] = []
    token, going = "", True
    several_workers = type(real).__name__ == "InProcess"

    async def write() -> None:
        nonlocal token
        for number in range(1, ROWS + 1):
            rows = [{"id": number, "story": number % 2}]
            token = (await http.post("/v1/tables/ballots/rows", json={"rows": rows})).json()["token"]
            written.append(number)

    async def read() -> int:
        answers = 0
        while going:
            headers, known = {"Headrace-Token": token} if token else {}, set(written)
            even = (await http.get("/v1/views/OfStory?story=0", headers=headers)).json()["rows"]
            (total,) = (await http.get("/v1/views/Total", headers=headers)).json()["rows"]
            assert {row["id"] for row in even} >= {number for number in known if number % 2 == 0}
            assert len({row["id"] for row in even}) == len(even)
            assert total["n"] >= len(known)
            # None twice. From another worker's shard a row may come before the one that was written first.
            last = total["last"] or 0
            assert total["n"] == last or (several_workers and total["n"] < last <= ROWS)
            answers += 1
            await asyncio.sleep(0)  # A hit gives nobody else a turn.
        return answers

    reading = [asyncio.ensure_future(read()) for _ in range(2)]
    writing = asyncio.ensure_future(write())
    try:
        for select in (*SAME, *SAME, GROWN):
            await real.execute(f"CREATE OR REPLACE VIEW Counted AS {select}")
        await writing
    finally:
        going = False
    assert min(await asyncio.gather(*reading)) > 0
    (total,) = (await http.get("/v1/views/Total", headers={"Headrace-Token": token})).json()["rows"]
    assert total == {"n": ROWS, "last": ROWS}


async def test_they_mean_what_it_means_then(real: Deployment, http: httpx.AsyncClient) -> None:
    await real.execute(STACK)
    await real.insert("ballots", [{"id": number, "story": 0} for number in range(4)])

    async def shown() -> tuple[list[int], int]:
        of_story = (await http.get("/v1/views/OfStory?story=0")).json()["rows"]
        total = (await http.get("/v1/views/Total")).json()["rows"]
        asked = await http.post("/v1/sql", json={"sql": "SELECT COUNT(*) FROM Counted"})
        assert asked.json()["results"][0]["rows"] == [[total[0]["n"]]]
        return sorted(row["id"] for row in of_story), total[0]["n"]

    assert await shown() == ([0, 1, 2, 3], 4)
    await real.execute("CREATE OR REPLACE VIEW Counted AS SELECT id, story FROM ballots WHERE id > 1")
    assert await shown() == ([2, 3], 2)
    with pytest.raises(StillInUse, match=r'"OfStory" and "Total" read view "Counted".*no column "story"'):
        await real.execute("CREATE OR REPLACE VIEW Counted AS SELECT id FROM ballots")
    assert await shown() == ([2, 3], 2)
    await real.execute("CREATE OR REPLACE EXT VIEW Counted AS SELECT id + 10 AS id, story FROM ballots")
    assert await shown() == ([10, 11, 12, 13], 4)
