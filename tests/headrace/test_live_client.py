"""The Python client's live views: they stay right, over a restart of the server too, and say when there is nothing."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from textwrap import indent
from urllib.parse import urlsplit

import httpx
import pytest
from headrace_client import connect, connect_async
from headrace_client.errors import NotFound
from serving_process import Launch

from headrace import embedded

SCHEMA = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, author BIGINT, title VARCHAR(20), price DECIMAL(10, 2));
CREATE EXT VIEW ByAuthor AS SELECT id, title, price FROM stories WHERE author = ? ORDER BY id DESC
"""
PATIENCE = 60.0
DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.S)
REQUEST = httpx.Request("POST", "http://hook")


class Enough(Exception):
    """Ends what a document shows."""


def enough(said: list[object], *what: object) -> None:
    said.append(what)
    raise Enough


def story(id: int, title: str, author: int = 7) -> dict[str, object]:
    return {"id": id, "author": author, "title": title, "price": "1.50"}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_a_list_stays_right_and_each_change_is_told_once_over_a_restart(
    launch_local: Launch, end: signal.Signals
) -> None:
    server = launch_local()
    told: list[tuple[str, str, str]] = []
    async with asyncio.timeout(PATIENCE), connect_async(server.url) as db:
        await db.execute_all(SCHEMA)
        await db.table("stories").insert([story(1, "one"), story(2, "two")])

        async def listen() -> None:
            async for change in db.view("ByAuthor").live(author=7):
                told.extend([(change.operation, change.key, change.row["title"])])

        listening = asyncio.create_task(listen())
        async with db.view("ByAuthor").live_rows(author=7) as rows:
            assert [row["id"] for row in rows] == [2, 1]
            assert rows[0]["price"] == Decimal("1.50")
            written = await db.table("stories").insert([story(3, "three")])
            await rows.reached(written.token)
            assert [row["title"] for row in rows] == ["three", "two", "one"]
            written = await db.table("stories").insert([story(4, "elsewhere", 8)])
            await rows.reached(written.token)
            assert len(rows) == 3
            while len(told) < 3:
                await asyncio.sleep(0.01)
            server.popen.send_signal(end)
            assert (await asyncio.to_thread(server.finish))[0] == (0 if end is signal.SIGTERM else -signal.SIGKILL)
            again = launch_local("--port", str(urlsplit(server.url).port))
            assert again.url == server.url
            await db.table("stories").delete({"id": 1})
            written = await db.table("stories").update({"id": 2}, {"title": "deux"})
            await rows.reached(written.token)
            assert [row["title"] for row in rows] == ["three", "deux"]
            while len(told) < 5:
                await asyncio.sleep(0.01)
        listening.cancel()
    assert sorted(told[:2]) == [("insert", "1", "one"), ("insert", "2", "two")]
    assert told[2] == ("insert", "3", "three")
    assert sorted(told[3:]) == [("delete", "1", "one"), ("update", "2", "deux")]


def test_the_blocking_clients_list_moves_on_when_it_is_asked_to(launch_local: Launch) -> None:
    with connect(launch_local().url) as db:
        db.execute_all(SCHEMA)
        db.table("stories").insert([story(1, "one")])
        with db.view("ByAuthor").live_rows(author=7) as rows:
            assert [row["price"] for row in rows] == [Decimal("1.50")]
            rows.reached(db.table("stories").insert([story(2, "two")]).token)
            assert [row["id"] for row in rows] == [2, 1]
            rows.reached(db.table("stories").insert([story(3, "elsewhere", 8)]).token)
            assert [row["id"] for row in rows[:1]] == [2]
            before = rows.token
            db.table("stories").delete({"id": 1})
            while len(rows) == 2:
                rows.changed()
            assert rows.token != before


def test_what_the_documents_show_in_python_runs(launch_local: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would go on for ever ends where it has printed or saved something."""
    url = launch_local().url
    with connect(url) as db:
        db.execute_all(
            "CREATE TABLE stories (id INT PRIMARY KEY, title TEXT); CREATE TABLE votes (user INT, story_id INT);"
            "CREATE EXT VIEW StoriesWithVC AS SELECT id, COUNT(*) AS vcount FROM stories JOIN votes ON story_id = id"
            " WHERE id = ? GROUP BY id; INSERT INTO stories VALUES (7, 'one'); INSERT INTO votes VALUES (1, 7)"
        )
        offset = httpx.get(f"{url}/v1/views/StoriesWithVC/live?id=7").headers["stream-next-offset"]
        db.execute("INSERT INTO votes VALUES (2, 7)")
    said: list[object] = []
    for document in ("live.md", "http.md"):
        for block in BLOCK.findall((DOCS / document).read_text("utf-8")):
            text = re.sub(r"(127\.0\.0\.1|localhost):8080", urlsplit(url).netloc, block)
            if text.startswith("async with"):
                text = f"async def shown():\n{indent(text, '    ')}\nasyncio.run(shown())"
            names = {
                "print": partial(enough, said),
                "asyncio": asyncio,
                "connect_async": connect_async,
                "connect": connect,
            }
            with suppress(Enough):
                exec(text, names)
                if "deliver" in names:
                    monkeypatch.setattr(
                        httpx, "post", lambda hook, json: said.append(json) or httpx.Response(200, request=REQUEST)
                    )
                    names["deliver"](url, "/v1/views/StoriesWithVC/live?id=7", "", offset, partial(enough, said))
    assert len(said) >= 5


def test_the_blocking_client_follows_and_raises_what_does_not_pass(launch_local: Launch) -> None:
    with connect(launch_local().url) as db:
        db.execute_all(SCHEMA)
        db.table("stories").insert([story(1, "one")])
        changes = db.view("ByAuthor").live(author=7)
        following = iter(changes)
        assert next(following).row["price"] == Decimal("1.50")
        db.table("stories").insert([story(2, "two")])
        assert (next(following).key, [row["id"] for row in changes.rows]) == ("2", [2, 1])
        with pytest.raises(NotFound):
            next(iter(db.view("Nothing").live()))


def test_an_embedded_database_is_followed_too(tmp_path: Path) -> None:
    with embedded(tmp_path) as db:
        db.execute_all(SCHEMA)
        db.table("stories").insert([story(1, "one")])
        following = iter(db.view("ByAuthor").live(author=7))
        assert next(following).key == "1"
        db.table("stories").delete({"id": 1})
        assert next(following).operation == "delete"
