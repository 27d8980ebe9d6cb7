"""The start of each part of a cluster as a process: what it answers meanwhile, and how it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_cluster import NO_JAVA, until

from controller.cluster.serving.deployment import ClusterDeployment
from controller.cluster.state import ClusterState
from controller.embedded.opening import Opening
from domains.errors import Cancelled
from headrace.cluster import api_process
from headrace.cluster.api_process import LeaderClient, run
from headrace.serving.server import Running
from headrace.settings import Settings
from migrations.recipe import Recipe, RecipeEntry
from tests.told_process import ToldProcess
from worker.protocol.messages import Role
from worker.service.process import work
from worker.wire.connection import greeting
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.memory import MemoryZooKeeper
from zookeeper.server import Ensemble

VIEWS = 40
RECIPE = Recipe(
    (
        RecipeEntry(("CREATE TABLE t (id INT PRIMARY KEY, a INT)",)),
        *(RecipeEntry((f"CREATE VIEW V{n} AS SELECT id FROM t WHERE a = ? AND id > {n}",)) for n in range(VIEWS)),
    )
)
DECIDED = ClusterState("main", 2, 1, 7, {}, RECIPE)

LaunchPart = Callable[..., ToldProcess]


@pytest.fixture
def part() -> Iterator[LaunchPart]:
    started: list[ToldProcess] = []

    def start(*arguments: str) -> ToldProcess:
        started.append(ToldProcess(["-m", "headrace", *arguments], {}))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def tried(http: httpx.Client, path: str) -> httpx.Response | None:
    try:
        return http.get(path)
    except httpx.ConnectError:
        return None


def test_an_api_process_answers_while_it_waits_for_zookeeper_and_can_be_stopped(part: LaunchPart) -> None:
    port = free_port()
    process = part("api", "--port", str(port), "--zookeeper", f"127.0.0.1:{free_port()}")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        until(lambda: (answer := tried(http, "/healthz")) and "ZooKeeper" in answer.json()["starting"]["phase"])
        for path in ("/readyz", "/v1/views/V?id=1"):
            answer = http.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["message"].startswith("the server is starting (asking ZooKeeper at ")
    process.popen.send_signal(signal.SIGTERM)
    code, _, errors = process.finish(5)  # It waits for ZooKeeper for ten seconds.
    assert code == 0
    assert "Traceback" not in errors
    assert "answers at" not in errors


@pytest.mark.parametrize("kind", ["controller", "worker"])
def test_a_part_that_waits_for_zookeeper_can_be_stopped(part: LaunchPart, kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # It is asked as soon as the part waits, and never answers.
        data = ("--data", str(tmp_path / "data")) if kind == "worker" else ()
        process = part(kind, f"--{kind}-port", "0", "--zookeeper", f"127.0.0.1:{silent.getsockname()[1]}", *data)
        silent.settimeout(60)
        with silent.accept()[0]:
            process.popen.send_signal(signal.SIGTERM)
            code, _, errors = process.finish(5)
    assert code == 0
    assert "Traceback" not in errors


async def answered(http: httpx.AsyncClient, path: str, status: int) -> Any:
    """What is answered there, once it is with that status."""
    async with asyncio.timeout(60):
        while (answer := await http.get(path)).status_code != status:
            await asyncio.sleep(0.02)
    return answer.json()


@pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH")
async def test_an_api_process_that_was_there_before_zookeeper_serves_when_that_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headrace")
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    authority = KazooAuthority(ensemble.address, "main")
    await authority.start(create=True)
    await authority.write(DECIDED.encode(), 0)
    await authority.close()
    await ensemble.kill(1)
    settings = Settings(zookeeper=ensemble.address, port=free_port())
    open_now: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(run(settings, started=open_now.set_result))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{settings.port}", timeout=60) as http:
            assert (await answered(http, "/readyz", 503))["starting"]["phase"].startswith("asking ZooKeeper at ")
            assert not open_now.done()
            await ensemble.restart(1)
            await answered(http, "/v1/tables", 200)  # Over the connection of before. No worker is there to be healthy.
            assert len((await http.get("/v1/views")).json()["views"]) == VIEWS
        assert f": 0 of {len(RECIPE.entries)}" in caplog.text
        (await open_now).stop()
        await serving
        await one_of_several_answers_when_it_serves(settings)
    finally:
        await ensemble.stop()


async def one_of_several_answers_when_it_serves(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as shared:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{shared.getsockname()[1]}", timeout=60) as http:
            first = asyncio.create_task(http.get("/v1/tables"))
            open_now: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
            serving = asyncio.create_task(run(settings, os.dup(shared.fileno()), open_now.set_result))
            assert (await first).status_code == 200
        (await open_now).stop()
        await serving


async def test_one_of_several_answers_also_while_it_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_process, "SHARED_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as shared:
        settings = Settings(zookeeper=f"127.0.0.1:{free_port()}")
        serving = asyncio.create_task(run(settings, os.dup(shared.fileno())))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{shared.getsockname()[1]}", timeout=60) as http:
            assert "starting" in await answered(http, "/readyz", 503)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await serving


async def opened(opening: Opening) -> ClusterDeployment:
    server = MemoryZooKeeper()
    authority = server.authority()
    await authority.start(create=True)
    await authority.write(DECIDED.encode(), 0)
    hello = greeting("main", Role.API, "api", 1)
    return await ClusterDeployment.open(authority, hello, LeaderClient, opening=opening)


async def test_what_was_decided_is_planned_with_progress() -> None:
    opening = Opening()
    deployment = await opened(opening)
    assert (opening.done, opening.total) == (len(RECIPE.entries), len(RECIPE.entries))
    await deployment.close()


async def test_a_start_that_is_given_up_plans_no_further() -> None:
    opening = Opening()
    opening.give_up()
    with pytest.raises(Cancelled):
        await opened(opening)


async def test_a_worker_that_waits_to_register_can_be_stopped(tmp_path: Path) -> None:
    """ZooKeeper was there when it began to start, and then was not."""
    server = MemoryZooKeeper(timeout=3600.0)
    authority = server.authority()
    await authority.start(create=True)
    server.stop()
    settings = Settings(data=tmp_path / "data", worker_port=0, name="w", memory_limit=64 * 2**20)
    ready = asyncio.Event()
    working = asyncio.create_task(work(settings, authority, lambda worker: ready.set()))
    while not [*tmp_path.glob("data/workers/w/readers-*")]:
        assert not working.done()
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(30):
        await working
    assert not ready.is_set()
    assert not [*tmp_path.glob("data/workers/w/readers-*")]
