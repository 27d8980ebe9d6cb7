"""Views of the time of the request: each way of an answer has the time of its own request, and none is kept."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx
import pytest

from controller.deployment import Deployment

VIEWS = """
CREATE TABLE visits (id INT PRIMARY KEY, guest INT, at DATETIME);
CREATE EXT VIEW Fresh AS SELECT id FROM visits WHERE at > NOW() - INTERVAL 1 DAY ORDER BY id;
CREATE EXT VIEW FreshOf AS SELECT id FROM visits WHERE guest = ? AND at > NOW() - INTERVAL 1 DAY ORDER BY id;
CREATE EXT VIEW Ages AS SELECT id, TIMESTAMPDIFF(HOUR, at, NOW()) AS hours FROM visits WHERE guest = ? ORDER BY id;
CREATE EXT VIEW Many AS SELECT COUNT(*) AS n FROM visits WHERE at > NOW() - INTERVAL 1 DAY;
CREATE EXT VIEW OfGuest AS SELECT id FROM visits WHERE guest = ?
"""


class Clock:
    """The clock of a deployment, which stands until it is moved."""

    def __init__(self, deployment: Deployment) -> None:
        self.text = "2026-03-01 12:00:00"
        self.told = lambda: self.text
        deployment.now = lambda: self.told()  # type: ignore[attr-defined]


@pytest.fixture
async def clock(http: httpx.AsyncClient, deployment: Deployment) -> Clock:
    if type(deployment).__name__ == "FakeDeployment":
        pytest.skip("the fake knows no such views")
    await deployment.execute(VIEWS)
    rows = [{"id": at, "guest": at % 2, "at": f"2026-03-01 {at:02}:00:00"} for at in range(10)]
    written = await http.post("/v1/tables/visits/rows", json={"rows": rows})
    for view, key in (("Fresh", []), ("FreshOf", [1]), ("Ages", [1]), ("Many", []), ("OfGuest", [1])):
        filled = await http.post(
            f"/v1/views/{view}/lookup", json={"keys": [key]}, headers={"Headrace-Token": written.json()["token"]}
        )
        assert filled.status_code == 200, filled.text
    return Clock(deployment)


async def answers(http: httpx.AsyncClient, view: str, key: list[Any], query: str = "") -> list[dict[str, Any]]:
    """By GET, by POST of keys, beside others in both spellings, and behind a reference."""
    page = await http.get(f"/v1/views/{view}?{query}")
    found = [page.json()["rows"]]
    many = await http.post(f"/v1/views/{view}/lookup", json={"keys": [key, key]})
    found += many.json()["results"]
    lookup = {"view": view, "keys": [key]}
    several = await http.post("/v1/lookups", json={"lookups": [lookup, {"view": "OfGuest", "keys": [[1]]}, lookup]})
    found += [several.json()["results"][0][0], several.json()["results"][2][0]]
    compact = f'{{"lookups":[{{"view":"{view}","keys":{[key]}}}]}}'
    found.append((await http.post("/v1/lookups", content=compact)).json()["results"][0][0])
    if key:
        of_first = {"view": view, "keys": [[{"first": [0, "id"]}]]}
        first = {"view": "OfGuest", "keys": [[1]]}
        referring = await http.post("/v1/lookups", json={"lookups": [first, of_first]})
        found.append(referring.json()["results"][1][0])
    assert all(each == found[0] for each in found), found
    return found[0]  # type: ignore[no-any-return]


async def test_no_answer_of_the_time_is_kept(http: httpx.AsyncClient, clock: Clock) -> None:
    for text, first in (("2026-03-01 12:00:00", 0), ("2026-03-02 02:00:00", 3), ("2026-03-02 02:00:01", 3)):
        clock.text = text
        for _ in range(3):  # The second would be given out of what is kept, and then with what was told of its keys.
            assert await answers(http, "Fresh", []) == [{"id": at} for at in range(first, 10)]
            of_guest = [{"id": at} for at in range(first, 10) if at % 2]
            assert await answers(http, "FreshOf", [1], "guest=1") == of_guest
            assert await answers(http, "Many", []) == [{"n": 10 - first}]
            hours = [{"id": at, "hours": (14 if first else 0) + 12 - at} for at in range(1, 10, 2)]
            assert await answers(http, "Ages", [1], "guest=1") == hours


async def test_sql_over_a_view_of_the_time(http: httpx.AsyncClient, clock: Clock) -> None:
    async def asked(sql: str) -> list[list[Any]]:
        answer = await http.post("/v1/sql", json={"sql": sql})
        assert answer.status_code == 200, answer.text
        return answer.json()["results"][0]["rows"]  # type: ignore[no-any-return]

    both = "SELECT f.id, NOW() FROM Fresh f JOIN visits v ON v.id = f.id WHERE v.at < NOW() ORDER BY f.id"
    for text, first in (("2026-03-01 12:00:00", 0), ("2026-03-02 02:00:00", 3)):
        clock.text = text
        for _ in range(12):  # It may become an automatic view meanwhile.
            assert await asked("SELECT id FROM Fresh WHERE id < 5 ORDER BY id") == [[at] for at in range(first, 5)]
            assert await asked("SELECT id FROM FreshOf WHERE guest = 1 ORDER BY id") == [
                [at] for at in range(first, 10) if at % 2
            ]
            assert await asked(both) == [[at, text] for at in range(first, 10)]


async def test_all_of_a_request_is_of_one_time(http: httpx.AsyncClient, clock: Clock) -> None:
    hours = count(13)
    clock.told = lambda: f"2026-03-01 {next(hours):02}:00:00"
    ages = {"view": "Ages", "keys": [[1], [1]]}
    for _ in range(3):
        several = await http.post("/v1/lookups", json={"lookups": [ages, {"view": "Many", "keys": [[]]}, ages]})
        first, _, last = several.json()["results"]
        assert first[0] == first[1] == last[0] == last[1], several.text
        many = (await http.post("/v1/views/Ages/lookup", json={"keys": [[1], [1]]})).json()["results"]
        assert many[0] == many[1]
        assert many[0] != first[0], "the next request has a time of its own"


async def test_the_time_is_asked_of_nobody(http: httpx.AsyncClient, clock: Clock) -> None:
    views = (await http.get("/v1/views")).json()["views"]
    (listed,) = [each for each in views if each["name"] == "FreshOf"]
    assert [each["name"] for each in listed["parameters"]] == ["guest"]
    assert listed["moments"] == ["NOW() - INTERVAL 1 DAY"]
    refused = await http.get("/v1/views/FreshOf?guest=1&at=2026-03-01")
    assert refused.status_code == 400
    assert "guest" in refused.json()["error"]["hint"]
