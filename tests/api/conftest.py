"""The deployments that the contract is tested against: the fake, and the embedded engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fake_deployment import FakeDeployment

from api.app import create_app
from api.limits import Admission, Limits
from controller.deployment import Deployment
from controller.embedded.local import LocalDeployment
from tests.kit.cluster_deployment import open_cluster

KINDS = ("fake", "local", "sharded", "cluster", "remote")
"""``remote`` is a cluster whose workers are on other hosts than the api process."""

READ_TIMEOUT = 30.0
"""No machine is that slow; what is to run into it makes it shorter."""

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, author BIGINT NOT NULL, title TEXT);
CREATE TABLE votes (story_id BIGINT NOT NULL, user_id BIGINT NOT NULL, PRIMARY KEY (story_id, user_id));
CREATE VIEW StoriesWithVC AS SELECT s.id AS id, s.title AS title, COUNT(v.user_id) AS vcount
  FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.id = ? GROUP BY s.id, s.title;
CREATE VIEW ByTitle AS SELECT id, title FROM stories WHERE title = ?;
CREATE VIEW ByIds AS SELECT id FROM stories WHERE id IN (?)
"""


async def open_deployment(kind: str, path: Path) -> Deployment:
    if kind == "fake":
        return FakeDeployment()
    if kind in ("cluster", "remote"):
        return await open_cluster(path, maps=kind == "cluster", read_timeout=READ_TIMEOUT, plain=False)
    shards = 3 if kind == "sharded" else 1
    return await LocalDeployment.open(
        path, memory_limit=64_000_000, domains=2, shards=shards, read_timeout=READ_TIMEOUT
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test runs on each kind, but one that uses the fake's switches only on the fake."""
    if "deployment" in metafunc.fixturenames:
        kinds = ("fake",) if "fake" in metafunc.fixturenames else KINDS
        metafunc.parametrize("deployment", kinds, indirect=True)


@pytest.fixture
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    opened = await open_deployment(request.param, tmp_path / "data")
    await opened.execute(SCHEMA)
    yield opened
    await opened.close()


@pytest.fixture
def fake(deployment: Deployment) -> FakeDeployment:
    assert isinstance(deployment, FakeDeployment)
    return deployment


@pytest.fixture
async def http(deployment: Deployment) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(deployment, admission=Admission(Limits(max_body_size=200_000)))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://headrace") as client:
        yield client
    await app.close()
