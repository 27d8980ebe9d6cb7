"""``POST /v1/archive`` on deployments that have an archive: in one process, over shards, and of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fake_deployment import FakeDeployment
from headrace_client import tokens

from api.app import create_app
from controller.deployment import Deployment
from controller.embedded.local import LocalDeployment
from domains.language.types import Row
from tests.kit.cluster_deployment import open_cluster
from worker.archive.folding import fold
from worker.archive.manifests import all_manifests
from worker.archive.options import ArchiveOptions
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook

SCHEMA = """
CREATE TABLE votes (story BIGINT NOT NULL, user BIGINT NOT NULL, PRIMARY KEY (story, user));
CREATE TABLE kinds (id BIGINT NOT NULL PRIMARY KEY, name TEXT) SHARD BY (id) SHARDS 1;
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story
"""


@pytest.fixture(params=["local", "sharded", "cluster"])
async def archived_deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    url = str(tmp_path / "archive")
    opened: Deployment
    if request.param == "cluster":
        opened = await open_cluster(tmp_path / "data", maps=True, archive=url)
    else:
        shards = 3 if request.param == "sharded" else 1
        options = ArchiveOptions(url, interval=3600.0)
        opened = await LocalDeployment.open(tmp_path / "data", shards=shards, archive=options)
    await opened.execute(SCHEMA)
    yield opened
    await opened.close()


@pytest.fixture
async def http(archived_deployment: Deployment) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(archived_deployment))
    async with httpx.AsyncClient(transport=transport, base_url="http://headrace") as client:
        yield client


def rows_in(place: Place, table: str) -> dict[Row, int]:
    found: dict[Row, int] = {}
    for manifest in all_manifests(place):
        if manifest.table == table:
            for part in fold(place, manifest, manifest.position):
                found.update(part)
    return found


async def test_what_was_written_before_the_call_is_in_the_archive(http: httpx.AsyncClient, tmp_path: Path) -> None:
    rows = [{"story": story, "user": user} for story in range(9) for user in range(3)]
    written = (await http.post("/v1/tables/votes/rows", json={"rows": rows})).json()
    answer = await http.post("/v1/archive")
    assert answer.status_code == 200, answer.text
    archived = answer.json()
    assert archived["url"] == str(tmp_path / "archive")
    assert archived["positions"] == tokens.decode(archived["token"])
    for base, position in tokens.decode(written["token"]).items():
        assert archived["positions"][base] >= position
    statements = [text for entry in archived["recipe"]["entries"] for text in entry["statements"]]
    assert any("VoteCount" in text for text in statements)

    place = Place(archived["url"])
    assert rows_in(place, "votes") == {(row["story"], row["user"]): 1 for row in rows}
    assert rows_in(place, "kinds") == {}
    manifests = all_manifests(place)
    assert {each.base: each.position for each in manifests} == archived["positions"]
    assert {each.shards for each in manifests} == {archived["shards"]}
    (record,) = RecipeBook(place).records()
    assert record.positions == archived["positions"]
    assert record.identities == {each.base: each.identity for each in manifests}
    assert "VoteCount" in record.recipe


async def behind(http: httpx.AsyncClient, table: str) -> int:
    """How many writes to a table are not archived, once any are: they are told a moment after their answer."""
    async with asyncio.timeout(30):
        while True:
            told = (await http.get("/v1/archive")).json()["archives"]
            shards = [each for one in told for base, each in one["shards"].items() if base.startswith(table)]
            if found := sum(each["behind"] for each in shards):
                return int(found)


async def test_the_status_shows_the_archive(http: httpx.AsyncClient) -> None:
    await http.post("/v1/archive")
    status = (await http.get("/v1/status")).json()
    shown = [status["archive"]] if "archive" in status else [each["archive"] for each in status["workers"]]
    assert shown
    told = (await http.get("/v1/archive")).json()["archives"]
    assert [{**each, "worker": None} for each in told] == [{**each, "worker": None} for each in shown]
    for archive in shown:
        assert archive["alarms"] == []
        assert {each["behind"] for each in archive["shards"].values()} == {0}
    await http.post("/v1/tables/votes/rows", json={"rows": [{"story": story, "user": 1} for story in range(9)]})
    assert await behind(http, "votes") >= 1
    await http.post("/v1/sql", json={"sql": "CREATE TABLE late (id INT PRIMARY KEY)"})
    await http.post("/v1/tables/late/rows", json={"rows": [{"id": 1}]})
    assert await behind(http, "late") == 1


async def test_backups_are_listed_where_it_is_known_where_they_are() -> None:
    one = {"backup": "monday", "time": "2026-01-31T08:00:00.000Z", "shards": 1, "files": 3, "writes": 9, "damage": None}
    for given, wanted in ((None, {"known": False, "backups": []}), (lambda: [one], {"known": True, "backups": [one]})):
        app = create_app(FakeDeployment(), backups=given)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace") as http:
            assert (await http.get("/v1/backups")).json() == wanted
            assert (await http.get("/v1/archive")).json() == {"archives": []}
        await app.close()


async def test_a_place_that_fails_is_said_and_serving_goes_on(http: httpx.AsyncClient, tmp_path: Path) -> None:
    await http.post("/v1/archive")
    for manifest in (tmp_path / "archive").rglob("manifest.json"):
        manifest.write_text("damaged")
    await http.post("/v1/tables/votes/rows", json={"rows": [{"story": story, "user": 1} for story in range(9)]})
    answer = await http.post("/v1/archive")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "manifest_damaged"
    assert (await http.get("/v1/views/VoteCount?story=1")).json() == {"rows": [{"story": 1, "n": 1}]}
    assert (await http.get("/readyz")).status_code == 200
