"""What an api process makes of a controller that does not lead, is lost, or hangs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import httpx
import pytest

from api.control import MigrationBody
from api.statuses import error_body
from controller.cluster.serving.directory import Directory
from domains.errors import AlreadyExists, LeaderLost, NoLeader
from headrace.cluster import api_process
from headrace.cluster.api_process import LeaderClient
from migrations.recipe import RecipeEntry
from zookeeper.memory import MemoryZooKeeper
from zookeeper.registration import ControllerDescriptor

LEADER = ControllerDescriptor("c1", "leader", 7070, 1)
ENTRY = RecipeEntry(("CREATE VIEW v AS SELECT 1",))
DONE = {"id": "1", "sql": "x", "state": "done", "step": "", "progress": 1.0, "steps": ["a"], "error": None}

Answering = Callable[[httpx.Request], httpx.Response] | Callable[[httpx.Request], Awaitable[httpx.Response]]


def client(answering: Answering, leader: ControllerDescriptor | None = LEADER) -> LeaderClient:
    directory = Directory(MemoryZooKeeper().authority())
    directory.leader, directory.led = leader, True
    return LeaderClient(directory, httpx.MockTransport(answering))  # type: ignore[arg-type]


async def test_a_migration_is_sent_whole_and_its_end_awaited() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=DONE)

    door = client(answer)
    await door.run(ENTRY, "CREATE VIEW …")
    assert str(seen[0].url) == "http://leader:7070/v1/migrations"
    body = json.loads(seen[0].content)
    assert body["wait"] is True
    assert MigrationBody.model_validate(body).entry.entry() == ENTRY, "a controller takes it"
    assert (await door.migration("1")).steps == ("a",)
    await door.close()


async def test_any_host_and_any_id_stand_in_the_address() -> None:
    """The id is what a client said. With a line break in it there was no address, and the answer an internal error."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url}")
        return httpx.Response(200, json=DONE)

    door = client(answer, ControllerDescriptor("c1", "::1", 7070, 1))
    await door.migration("a/b?c#d\n")
    await door.cancel("\x00é")
    assert seen == [
        "GET http://[::1]:7070/v1/migrations/a%2Fb%3Fc%23d%0A",
        "DELETE http://[::1]:7070/v1/migrations/%00%C3%A9",
    ]
    await door.close()


async def test_all_of_them_are_listed() -> None:
    door = client(lambda _: httpx.Response(200, json=[DONE, {**DONE, "id": "2", "state": "running"}]))
    assert [(each.id, each.state) for each in await door.migrations()] == [("1", "done"), ("2", "running")]
    await door.close()


async def test_what_made_it_fail_is_raised() -> None:
    failed = {**DONE, "state": "failed", "error": ["already_exists", '"v" exists already', "drop it"]}
    with pytest.raises(AlreadyExists) as raised:
        await client(lambda _: httpx.Response(200, json=failed)).run(ENTRY, "x")
    assert raised.value.hint == "drop it"
    refused = error_body("already_exists", '"v" exists already')
    with pytest.raises(AlreadyExists):
        await client(lambda _: httpx.Response(409, content=refused)).start("x")


@pytest.mark.parametrize(
    ("code", "kind"),
    [("not_leading", NoLeader), ("no_leader", NoLeader), ("deposed", LeaderLost), ("leader_lost", LeaderLost)],
)
async def test_a_controller_that_does_not_lead(code: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await client(lambda _: httpx.Response(503, content=error_body(code, "another leads"))).run(ENTRY, "x")


async def test_no_leader_at_all() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(NoLeader, match="c1"):
        await client(refuse).run(ENTRY, "x")
    with pytest.raises(NoLeader):
        await client(refuse, None).run(ENTRY, "x")


async def test_a_leader_that_hangs_and_is_not_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All controllers hang: their sessions are gone, their ports take connections still."""
    monkeypatch.setattr(api_process, "LOOK_SECONDS", 0.01)

    async def hang(request: httpx.Request) -> httpx.Response:
        door._directory.led = False
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    door = client(hang)
    async with asyncio.timeout(60):
        with pytest.raises(LeaderLost, match="no longer leads"):
            await door.run(ENTRY, "x")
        with pytest.raises(NoLeader, match='"c1" did last'):
            await door.run(ENTRY, "x")


async def test_a_leader_that_dies_while_it_is_asked() -> None:
    def break_off(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    with pytest.raises(LeaderLost) as raised:
        await client(break_off).run(ENTRY, "x")
    assert "before you ask again" in str(raised.value.hint)
    with pytest.raises(LeaderLost):
        await client(lambda _: httpx.Response(502, content=b"<html>")).run(ENTRY, "x")


async def test_a_leader_that_hangs_is_given_up_when_another_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_process, "LOOK_SECONDS", 0.005)
    asked = asyncio.Event()

    async def hang(request: httpx.Request) -> httpx.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("it hangs for ever")

    door = client(hang)
    running = asyncio.create_task(door.run(ENTRY, "x"))
    await asked.wait()
    door._directory.leader = ControllerDescriptor("c2", "other", 7070, 2)
    with pytest.raises(LeaderLost, match="another leads"):
        await asyncio.wait_for(running, 60)
