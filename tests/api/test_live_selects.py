"""SELECTs that are followed: the view that is made for one, how long it is there, who may, and what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from test_live import Site, site  # noqa: F401
from test_live_socket import texts, until
from test_rights import Served, account, bearer, closed, served  # noqa: F401

from api.app import create_app
from controller.live import live_views
from controller.live.limits import LiveLimits
from migrations.access.rights import Privilege, Rights
from tests.kit.live_stream import EventReader, Folded, SocketReader

COUNTED = "SELECT title, COUNT(*) AS n FROM stories WHERE author = ? GROUP BY title"


def kept(site: Site) -> list[str]:  # noqa: F811
    return [name for name, view in site.deployment.state.catalog.views.items() if view.ad_hoc]


async def test_a_view_is_made_for_a_select_and_goes_with_who_follows_it(
    site: Site,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_views, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(live_views, "LINGER_SECONDS", 0.05)
    await site.write("INSERT INTO stories VALUES (1, 7, 'one'), (2, 7, 'two'), (3, 8, 'three')")
    asked = {"sql": "SELECT id, title FROM stories WHERE title LIKE ? AND author = ?", "params": ["t%", 7], "name": "s"}
    body = json.dumps({"subscriptions": [asked]}).encode()
    stream = EventReader(site.app, "/v1/live", {}, "POST", body)
    folded = Folded()
    folded.take((await stream.event() or ("", []))[1])
    _, control = await stream.event() or ("", {})
    assert control["subscription"] == "s"
    assert folded.listed() == [{"id": 2, "title": "two"}]
    (view,) = kept(site)
    other = EventReader(site.app, "/v1/live", {}, "POST", body)
    await other.event()
    await site.write("UPDATE stories SET title = 'ten' WHERE id = 1")
    folded.take((await stream.event() or ("", []))[1])
    assert sorted(row["title"] for row in folded.listed()) == ["ten", "two"]
    await stream.close()
    await asyncio.sleep(0.1)
    assert kept(site) == [view]
    await other.close()
    await until(lambda: not kept(site), "the view stays")


async def test_a_declared_view_answers_where_there_is_one(site: Site) -> None:  # noqa: F811
    socket = SocketReader(site.app)
    socket.say(subscribe=[{"sql": "SELECT id, title FROM stories WHERE author = ?", "params": [7], "name": "s"}])
    await texts(socket, 2)
    assert not kept(site)
    await socket.close()


@pytest.mark.parametrize(
    ("sql", "code", "word"),
    [
        ("SELECT id FROM stories WHERE title < NOW()", "unsupported", "time"),
        ("SELECT id FROM stories ORDER BY RAND()", "unsupported", "random"),
        ("SELECT 1", "unsupported", "no table"),
        ("INSERT INTO stories VALUES (9, 9, '')", "bad_request", "one SELECT"),
        ("SELECT id FROM stories; SELECT id FROM stories", "bad_request", "one SELECT"),
        ("SELECT id FROM nothing", "unknown_name", "nothing"),
        ("SELECT FROM", "syntax_error", ""),
    ],
)
async def test_what_cannot_be_followed(site: Site, sql: str, code: str, word: str) -> None:  # noqa: F811
    socket = SocketReader(site.app)
    socket.say(subscribe=[{"sql": sql, "name": "s"}])
    (told,) = await texts(socket, 1)
    assert told["error"]["code"] == code, told
    assert word in told["error"]["message"]
    assert not kept(site)
    await socket.close()


async def test_there_are_so_many_and_the_shapes_of_a_subscription(site: Site) -> None:  # noqa: F811
    site.deployment.live.limits = LiveLimits(max_live_selects=1)
    socket = SocketReader(site.app)
    socket.say(subscribe=[{"sql": COUNTED, "params": [0], "name": "one"}])
    await texts(socket, 2)
    socket.say(subscribe=[{"sql": COUNTED, "params": [1], "name": "same view"}])
    await texts(socket, 2)
    socket.say(subscribe=[{"sql": "SELECT title FROM stories WHERE id > ?", "params": [1], "name": "two"}])
    (told,) = await texts(socket, 1)
    assert "max_live_selects" in told["error"]["message"]
    wrong: list[dict[str, Any]] = [{"sql": COUNTED}, {}, {"view": "ByAuthor", "sql": COUNTED, "name": "x"}]
    for each in (*wrong, {"view": "ByAuthor", "params": [7]}):
        socket.say(subscribe=[each])
        (told,) = await texts(socket, 1)
        assert told["error"]["code"] == "bad_request"
    await socket.close()


async def test_rights_are_those_of_the_tables(closed: Served) -> None:  # noqa: F811
    rights = Rights({"stories": frozenset((Privilege.SELECT,)), "*": frozenset((Privilege.QUERY,))})
    await closed.keeper.change("bob", lambda before: account("bob", rights))
    app = create_app(closed.deployment)
    socket = SocketReader(app, bearer("hrk_bob"))
    socket.say(subscribe=[{"sql": "SELECT COUNT(*) AS n FROM stories", "name": "s"}])
    assert (await texts(socket, 2))[1]["subscription"] == "s"
    socket.say(subscribe=[{"sql": "SELECT COUNT(*) AS n FROM secrets", "name": "w"}])
    assert (await texts(socket, 1))[0]["error"]["code"] == "forbidden"
    await asyncio.sleep(2 * live_views.TICK_SECONDS)
    assert closed.deployment.live.status()["subscriptions"] == 1
    await closed.keeper.change("bob", lambda before: account("bob"))
    async with asyncio.timeout(2 * live_views.TICK_SECONDS + 0.5):
        assert (await socket.text())["ended"] in ("forbidden", "expired")
    await socket.close()
    await app.close()


async def test_policies_apply_to_a_select(site: Site) -> None:  # noqa: F811
    await site.write("CREATE POLICY own ON stories FOR SELECT USING (author = CURRENT_CLAIM('sub'))")
    await site.write("INSERT INTO stories VALUES (1, 7, 'one'), (2, 8, 'two')")
    asked = {"sql": "SELECT id, title FROM stories WHERE title > 'a'", "name": "s"}
    for sub in (7, 8):
        socket = SocketReader(site.app, {"Headrace-Claims": json.dumps({"sub": sub})})
        socket.say(subscribe=[asked])
        rows, _ = await texts(socket, 2)
        assert [each["value"]["id"] for each in rows[1:-1]] == [sub - 6]
        await socket.close()
    unnamed = SocketReader(site.app)
    unnamed.say(subscribe=[asked])
    (told,) = await texts(unnamed, 1)
    assert "policies" in told["error"]["message"]
    await unnamed.close()
