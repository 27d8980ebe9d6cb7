"""Live views over HTTP: what each request answers, who may watch, and what ends a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from headrace_client import connect, connect_async, tokens
from served_bytes import WITHIN, listening
from test_rights import ANN, Served, account, bearer, closed, served  # noqa: F401

from api.app import create_app
from controller.embedded.local import LocalDeployment
from controller.live import live_views
from controller.live.limits import LiveLimits
from migrations.access.rights import Privilege, Rights
from tests.kit.live_stream import EventReader, Folded, get

SCHEMA = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, author BIGINT, title VARCHAR(20));
CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?;
CREATE EXT VIEW Sorted AS SELECT title, id FROM stories WHERE author = ? ORDER BY title, id LIMIT 3;
CREATE EXT VIEW Titles AS SELECT title FROM stories WHERE author = ?;
CREATE EXT VIEW Fresh AS SELECT id FROM stories WHERE author = ? AND title < NOW();
"""


class Site:
    def __init__(self, deployment: LocalDeployment) -> None:
        self.deployment = deployment
        self.app = create_app(deployment)

    async def write(self, sql: str) -> str:
        _, clock = await self.deployment.execute(sql)
        return str(tokens.encode(clock))

    def stream(self, url: str, headers: dict[str, str] | None = None) -> EventReader:
        return EventReader(self.app, url, headers)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    deployment = await LocalDeployment.open(tmp_path, memory_limit=64_000_000)
    await deployment.execute(SCHEMA)
    opened = Site(deployment)
    yield opened
    await opened.app.close()
    await deployment.close()


async def test_a_snapshot_then_a_step_for_each_write(site: Site) -> None:
    await site.write("INSERT INTO stories VALUES (1, 7, 'one'), (2, 7, 'two'), (3, 8, 'three')")
    stream = site.stream("/v1/views/ByAuthor/live?author=7&live=sse")
    name, messages = await stream.event() or ("", [])
    assert name == "data"
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["x-accel-buffering"] == "no"
    assert [each["headers"].get("control") for each in messages] == ["snapshot-start", None, None, "snapshot-end"]
    assert sorted(messages[1:3], key=lambda each: str(each["key"]))[0] == {
        "type": "ByAuthor",
        "key": "1",
        "value": {"id": 1, "title": "one"},
        "headers": {"operation": "insert"},
    }
    _, control = await stream.event() or ("", {})
    assert control["upToDate"]
    token = await site.write("UPDATE stories SET title = 'uno' WHERE id = 1")
    _, (changed,) = await stream.event() or ("", [])
    assert changed["headers"] == {"operation": "update", "txid": token}
    assert (changed["key"], changed["value"]["title"]) == ("1", "uno")
    _, after = await stream.event() or ("", {})
    assert after["streamNextOffset"] > control["streamNextOffset"]
    await site.write("UPDATE stories SET author = 8 WHERE id = 1")
    _, (gone,) = await stream.event() or ("", [])
    assert "value" not in gone
    assert gone["headers"]["operation"] == "delete"
    await stream.close()
    assert site.deployment.live.status()["subscriptions"] == 0


async def test_equal_rows_are_told_apart_and_places_are_those_of_the_answer(site: Site) -> None:
    equal, ordered = Folded(), Folded()
    streams = [site.stream(f"/v1/views/{view}/live?author=7&live=sse") for view in ("Titles", "Sorted")]
    for stream, folded in zip(streams, (equal, ordered), strict=True):
        folded.take((await stream.event() or ("", []))[1])
        await stream.event()
    for sql in (
        "INSERT INTO stories VALUES (1, 7, 'b'), (2, 7, 'b'), (3, 7, 'a'), (4, 7, 'c')",
        "UPDATE stories SET title = 'd' WHERE id = 3",
        "DELETE FROM stories WHERE id = 1",
        "INSERT INTO stories VALUES (5, 7, 'b'), (6, 7, 'a')",
    ):
        await site.write(sql)
        for stream, folded, view in zip(streams, (equal, ordered), ("Titles", "Sorted"), strict=True):
            folded.take((await stream.event() or ("", []))[1])
            await stream.event()
            read = await get(site.app, f"/v1/views/{view}?author=7")
            rows = read.json["rows"]
            if view == "Sorted":
                assert folded.listed() == rows
            else:
                assert sorted(row["title"] for row in folded.listed()) == sorted(row["title"] for row in rows)
    for stream in streams:
        await stream.close()


async def test_long_polls_offsets_and_what_is_not_known_any_more(site: Site) -> None:
    url = "/v1/views/ByAuthor/live?author=7"
    begun = await get(site.app, url)
    offset = begun.headers["stream-next-offset"]
    assert begun.headers["cache-control"] == "no-store"
    polling = asyncio.create_task(get(site.app, f"{url}&offset={offset}&live=long-poll"))
    token = await site.write("INSERT INTO stories VALUES (1, 7, 'one')")
    polled = await polling
    assert [each["key"] for each in polled.json] == ["1"]
    again = await get(site.app, f"{url}&offset={offset}")
    assert again.json == polled.json
    assert again.headers["stream-next-offset"] == polled.headers["stream-next-offset"]
    now = await get(site.app, f"{url}&offset=now", {"Headrace-Token": token})
    assert now.json == []
    for wrong in ("00000000000000000009_AAAA", "nonsense"):
        gone = await get(site.app, f"{url}&offset={wrong}&live=sse")
        assert (gone.status, gone.json["error"]["code"]) == (410, "offset_gone")
    for bad, status in (("live=websocket", 400), ("author=x", 422), ("other=1", 400)):
        assert (await get(site.app, f"/v1/views/ByAuthor/live?author=7&{bad}")).status in (status, 400)
    assert (await get(site.app, "/v1/views/Nothing/live")).status == 404
    assert (await get(site.app, "/v1/views/Fresh/live?author=7")).status == 422


async def test_a_view_that_was_replaced_is_watched_anew_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_views, "TICK_SECONDS", 60.0)
    await site.write("INSERT INTO stories VALUES (1, 7, 'one')")
    url = "/v1/views/ByAuthor/live?author=7"
    await get(site.app, url)
    await site.write(
        "CREATE OR REPLACE VIEW ByAuthor AS SELECT id, UPPER(title) AS title FROM stories WHERE author = ?"
    )
    assert (await get(site.app, url)).json[1]["value"] == {"id": 1, "title": "ONE"}
    await site.write("DROP VIEW ByAuthor")
    assert (await get(site.app, url)).status == 404


async def test_rows_have_other_names_once_what_told_them_apart_is_gone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_views, "TICK_SECONDS", 0.01)
    await site.write("CREATE TABLE t (id INT NOT NULL, g INT); CREATE UNIQUE INDEX once ON t (id)")
    await site.write("CREATE EXT VIEW v AS SELECT id, g FROM t WHERE g = ?; INSERT INTO t VALUES (1, 1)")
    url = "/v1/views/v/live?g=1"
    begun = await get(site.app, url)
    assert begun.json[1]["key"] == "1"
    stream = site.stream(f"{url}&offset={begun.headers['stream-next-offset']}&live=sse")
    await stream.began.wait()
    await site.write("DROP INDEX once ON t")
    shown: dict[str, Any] = {}
    while "ended" not in shown:
        _, shown = await stream.event() or ("", {})
    assert shown["ended"] == "replaced"
    await stream.close()
    assert (await get(site.app, f"{url}&offset={begun.headers['stream-next-offset']}")).status == 410
    await site.write("INSERT INTO t VALUES (1, 1)")
    keys = [each["key"] for each in (await get(site.app, url)).json[1:-1]]
    assert len(set(keys)) == len(keys) == 2
    assert all(key.startswith("#") for key in keys)


async def test_an_offset_is_of_one_answer(site: Site) -> None:
    """Neither of a view that has replaced it at the same positions, nor of another key."""
    await site.write("INSERT INTO stories VALUES (1, 7, 'one')")
    url = "/v1/views/ByAuthor/live?author=7"
    offset = (await get(site.app, url)).headers["stream-next-offset"]
    assert (await get(site.app, f"{url}&offset={offset}")).json == []
    await get(site.app, "/v1/views/ByAuthor/live?author=8")
    assert (await get(site.app, f"/v1/views/ByAuthor/live?author=8&offset={offset}")).status == 410
    await site.write(
        "CREATE OR REPLACE VIEW ByAuthor AS SELECT id, UPPER(title) AS title FROM stories WHERE author = ?"
    )
    assert (await get(site.app, f"{url}&offset={offset}")).status == 410


async def test_a_long_poll_whose_client_leaves_is_over(site: Site) -> None:
    url = "/v1/views/ByAuthor/live?author=7"
    offset = (await get(site.app, url)).headers["stream-next-offset"]
    polling = site.stream(f"{url}&offset={offset}&live=long-poll")
    for _ in range(2_000):
        if site.deployment.live.status()["subscriptions"]:
            break
        await asyncio.sleep(0.005)
    assert site.deployment.live.status()["subscriptions"] == 1
    await polling.close()
    assert site.deployment.live.status()["subscriptions"] == 0


async def test_a_place_is_told_though_nothing_changes_here(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_views, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(live_views, "PROGRESS_SECONDS", 0.0)
    stream = site.stream("/v1/views/ByAuthor/live?author=7&live=sse")
    for _ in range(2):
        _, control = await stream.event() or ("", {})
    token = tokens.decode(await site.write("INSERT INTO stories VALUES (1, 8, 'elsewhere')"))
    name, moved = await stream.event() or ("", {})
    assert name == "control"
    assert moved["streamNextOffset"] > control["streamNextOffset"]
    assert tokens.decode(moved["token"]) == token
    resumed = await get(site.app, f"/v1/views/ByAuthor/live?author=7&offset={moved['streamNextOffset']}")
    assert (resumed.status, resumed.json) == (200, [])
    await stream.close()


@pytest.mark.parametrize("blocks", [False, True])
async def test_a_client_is_told_soon_of_a_write_that_changed_nothing_here(
    site: Site, monkeypatch: pytest.MonkeyPatch, blocks: bool
) -> None:
    """And not with the next progress, of which there is none."""
    monkeypatch.setattr(live_views, "PROGRESS_SECONDS", 3600.0)
    async with listening(site.app) as server:
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        token = await site.write("INSERT INTO stories VALUES (1, 7, 'one')")

        async def awaited() -> int:
            async with connect_async(url) as db, db.view("ByAuthor").live_rows(author=7) as rows:
                await rows.reached(token)
                elsewhere = await db.table("stories").insert([{"id": 2, "author": 8, "title": "elsewhere"}])
                await rows.reached(elsewhere.token)
                return len(rows)

        def blocked() -> int:
            with connect(url) as db, db.view("ByAuthor").live_rows(author=7) as rows:
                rows.reached(token)
                rows.reached(db.table("stories").insert([{"id": 2, "author": 8, "title": "elsewhere"}]).token)
                return len(rows)

        async with asyncio.timeout(WITHIN):
            assert await (asyncio.to_thread(blocked) if blocks else awaited()) == 1


async def test_a_head_is_answered_at_once(site: Site) -> None:
    url = "/v1/views/ByAuthor/live?author=7"
    offset = (await get(site.app, url)).headers["stream-next-offset"]
    for way in ("&live=sse", f"&offset={offset}&live=sse", f"&offset={offset}&live=long-poll", ""):
        asked = EventReader(site.app, url + way, method="HEAD")
        async with asyncio.timeout(10):
            await asked.ended.wait()
        assert (asked.status, bytes(asked.body)) == (200, b"")
        assert asked.headers["content-type"].startswith("text/event-stream" if "sse" in way else "application/json")
    assert site.deployment.live.status()["subscriptions"] == 0


async def test_the_oldest_subscription_ends_past_the_limit(site: Site) -> None:
    site.deployment.live.limits = LiveLimits(max_live=2)
    streams = []
    for author in range(3):
        streams.append(site.stream(f"/v1/views/ByAuthor/live?author={author}&live=sse"))
        await streams[-1].event()
        await streams[-1].event()
    _, control = await streams[0].event() or ("", {})
    assert control["ended"] == "evicted"
    assert await streams[0].event() is None
    await site.write("INSERT INTO stories VALUES (1, 2, 'still')")
    assert (await streams[2].event() or ("", []))[0] == "data"
    for stream in streams:
        await stream.close()


class Ahead:
    """Where a shard has come to is known already, since something else of it is watched; its rows are not shown yet."""

    def watch(self, shard: Any, lookup: Any, watcher: Any) -> Ahead:
        return self

    def clock(self) -> dict[str, int]:
        return {"stories": 1_000}

    def end(self) -> None:
        """Nothing."""


async def test_a_place_is_told_with_the_rows_of_that_place_after_a_move_too(site: Site) -> None:
    await site.write("INSERT INTO stories VALUES (1, 7, 'one')")
    await get(site.app, "/v1/views/ByAuthor/live?author=7")
    (topic,) = site.deployment.live._topics.values()
    before = topic.offset
    topic.watch(Ahead())  # type: ignore[arg-type]
    assert not topic.progress()
    assert topic.offset == before


async def test_an_answer_that_is_most_of_the_memory_is_watched(tmp_path: Path) -> None:
    """State of other views, which nobody asks for, stands in its way: what is evicted is of the largest state, and that
    is always this one."""
    deployment = await LocalDeployment.open(tmp_path, memory_limit=40_000)
    opened = Site(deployment)
    try:
        await deployment.execute(SCHEMA)
        for author in range(30):
            await opened.write(f"INSERT INTO stories VALUES ({author}, {author}, 'one')")
            await get(opened.app, f"/v1/views/Sorted?author={author}")
            await get(opened.app, f"/v1/views/Titles?author={author}")
        rows = ", ".join(f"({at}, 99, 'title {at}')" for at in range(100, 190))
        await opened.write(f"INSERT INTO stories VALUES {rows}")
        answered = await get(opened.app, "/v1/views/ByAuthor/live?author=99")
        assert answered.status == 200, answered.body
        assert len(answered.json) == 92
    finally:
        await opened.app.close()
        await deployment.close()


async def test_streams_end_where_their_view_is_dropped_or_the_server_stops(site: Site) -> None:
    stream, other = (site.stream(f"/v1/views/{view}/live?author=7&live=sse") for view in ("Titles", "ByAuthor"))
    for each in (stream, other):
        await each.event()
        await each.event()
    await site.write("DROP VIEW Titles")
    _, control = await stream.event() or ("", {})
    assert control["ended"] == "dropped"
    assert await stream.event() is None
    site.deployment.stopping()
    _, control = await other.event() or ("", {})
    assert control["ended"] == "stopping"
    assert await other.event() is None


async def test_rights_of_a_stream_are_those_of_now(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    rights = Rights({"byauthor": frozenset((Privilege.SELECT,))})
    await closed.keeper.change("bob", lambda before: account("bob", rights))
    app = create_app(closed.deployment)
    bob = bearer("hrk_bob")
    assert (await get(app, "/v1/views/ByAuthor/live?author=7")).status == 401
    assert (await get(app, "/v1/views/Words/live?id=1", bob)).status == 403
    stream = EventReader(app, "/v1/views/ByAuthor/live?author=7&live=sse", bob)
    await stream.event()
    await stream.event()
    await closed.keeper.change("bob", lambda before: account("bob"))
    async with asyncio.timeout(2 * live_views.TICK_SECONDS + 0.5):
        _, control = await stream.event() or ("", {})
    assert control["ended"] in ("forbidden", "expired")
    assert await stream.event() is None
    await app.close()


async def test_several_answers_share_a_connection(site: Site) -> None:
    await site.write("INSERT INTO stories VALUES (1, 7, 'one'), (2, 8, 'two')")
    asked = [
        {"view": "ByAuthor", "parameters": {"author": 7}, "name": "a"},
        {"view": "ByAuthor", "parameters": {"author": 8}, "name": "b"},
        {"view": "Titles", "parameters": {"author": 8}, "offset": "forgotten"},
    ]
    stream = EventReader(site.app, "/v1/live", {}, "POST", json.dumps({"subscriptions": asked}).encode())
    folded = {name: Folded() for name in ("a", "b", "Titles")}

    async def take(count: int) -> None:
        while count:
            name, data = await stream.event() or ("", [])
            if name == "data":
                kinds = {each["type"] for each in data if "type" in each}
                folded[kinds.pop()].take(data)
                assert not kinds
            else:
                count -= 1
                assert data["subscription"] in folded

    await take(3)
    assert [len(each.rows) for each in folded.values()] == [1, 1, 1]
    await site.write("UPDATE stories SET author = 8 WHERE id = 1")
    await take(3)
    assert [len(each.rows) for each in folded.values()] == [0, 2, 2]
    await stream.close()
    assert site.deployment.live.status()["subscriptions"] == 0
    for wrong, status in (([asked[0], asked[0]], 400), ([{"view": "Nothing"}], 404), ([], 400)):
        body = json.dumps({"subscriptions": wrong}).encode()
        refused = EventReader(site.app, "/v1/live", {}, "POST", body)
        await refused.ended.wait()
        assert refused.status == status


async def test_each_user_is_sent_what_policies_show_him(site: Site) -> None:
    await site.write("CREATE EXT VIEW Mine AS SELECT id, title FROM stories")
    await site.write("CREATE POLICY own ON stories FOR SELECT USING (author = CURRENT_CLAIM('sub'))")
    await site.write("INSERT INTO stories VALUES (1, 7, 'one'), (2, 8, 'two')")
    streams = {
        sub: site.stream("/v1/views/Mine/live?live=sse", {"Headrace-Claims": f'{{"sub": {sub}}}'}) for sub in (7, 8)
    }
    for sub, stream in streams.items():
        _, messages = await stream.event() or ("", [])
        assert [each["value"]["id"] for each in messages[1:-1]] == [sub - 6]
        await stream.event()
    await site.write("UPDATE stories SET author = 8 WHERE id = 1")
    _, (gone,) = await streams[7].event() or ("", [])
    _, (came,) = await streams[8].event() or ("", [])
    assert (gone["headers"]["operation"], gone["key"], "value" in gone) == ("delete", "1", False)
    assert (came["headers"]["operation"], came["value"]) == ("insert", {"id": 1, "title": "one"})
    for stream in streams.values():
        await stream.close()
