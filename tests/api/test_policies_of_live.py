"""Live answers, and all that is told about answers, under row policies: nobody is sent a row of another.

Also not by the offset of another, on an open connection whose claims change, or once rights or policies have.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any

from test_policies import ANN, APP, EIGHT, NOBODY, OTHER, POLICY, SECRET, SEVEN, VIEWS, claims, closed, rows, served
from test_rights import Served, account, bearer

from api.app import create_app
from controller.access.accounts import Account, time_text
from controller.access.keeper import Keeper
from controller.live import live_views
from migrations.access.rights import Privilege, Rights
from tests.kit.live_stream import EventReader, SocketReader, get
from zookeeper.accounts import FileAccounts

__all__ = ["closed", "served"]
SLOW_SECONDS, ENDS_SECONDS = 15.0, 8.0
"""The first is of a machine that has much else to do."""
WHO = {"seven": SEVEN, "nobody": NOBODY, "app": APP, "other": OTHER}


async def test_an_answer_that_is_followed_is_that_of_who_follows(closed: Served) -> None:
    app = create_app(closed.deployment)
    for view, count in VIEWS.items():
        path = view.replace("?", "/live?") if "?" in view else f"{view}/live"
        path = f"/v1/views/{path}"
        shown = await get(app, path, EIGHT)  # So that there is a topic of another user.
        theirs = shown.headers["stream-next-offset"]
        for name, headers in WHO.items():
            answer = await get(app, path, headers)
            assert (answer.status, SECRET in answer.body.decode()) == (200, False), (view, name, answer.body)
            rows = [each for each in answer.json if "value" in each]
            empty = 1 if view in ("Counted", "Through") else 0
            assert len(rows) == (count if name == "seven" else empty), (view, name, answer.body)
            mark = "&" if "?" in path else "?"
            for offset in (theirs, "-1", "now"):
                again = await get(app, f"{path}{mark}offset={offset}", headers)
                assert again.status in (200, 410), (view, name, offset)
                assert SECRET not in again.body.decode()
        assert (await get(app, path, ANN)).status == 400
    await app.close()


async def test_what_is_sent_on_open_connections(closed: Served) -> None:
    """By events and by WebSocket: other users' rows come and go, rows change hands, policies change."""
    app = create_app(closed.deployment)
    asked = {"subscriptions": [{"view": "Titles", "name": "t"}, {"view": "Counted", "name": "n"}]}
    events = EventReader(app, "/v1/live", SEVEN, "POST", json.dumps(asked).encode())
    theirs = EventReader(app, "/v1/live", EIGHT, "POST", json.dumps(asked).encode())
    socket = SocketReader(app, SEVEN)
    socket.say(subscribe=asked["subscriptions"])
    for stream in (events, theirs):
        for _ in range(4):
            await stream.event()
    texts = [await socket.text() for _ in range(4)]
    assert SECRET not in str(texts)
    await closed.done(f"INSERT INTO stories VALUES (30, 8, '{SECRET} thirty')", ANN)
    await closed.done("UPDATE stories SET author = 7, title = 'handed over' WHERE id = 3", ANN)
    await closed.done(f"UPDATE stories SET author = 8, title = '{SECRET} back' WHERE id = 1", ANN)
    await closed.done("INSERT INTO stories VALUES (31, 7, 'the end')", ANN)
    while "the end" not in str(texts[-1]):
        texts.append(await socket.text())
    while "the end" not in events.body.decode():
        await events.event()
    assert SECRET not in events.body.decode()
    assert SECRET not in str(texts)
    assert SECRET in theirs.body.decode()
    for stream in (events, theirs):
        await stream.close()
    # Policies that come end what was followed before, since no view of before serves.
    await closed.done("CREATE POLICY first ON stories FOR SELECT USING (id = 2)", ANN)
    while (told := await socket.text()) is not None and "ended" not in told:
        assert SECRET not in str(told)
    await socket.close()
    await app.close()


async def test_a_socket_says_for_whom_only_where_it_may(closed: Served) -> None:
    app = create_app(closed.deployment)
    for headers, said, code in (
        (OTHER, {"claims": {"sub": 8}}, "forbidden"),
        ({}, {"claims": {"sub": 8}}, "unauthenticated"),
        ({}, {"authorization": "Bearer hrk_nobody"}, "unauthenticated"),
        ({}, {"authorization": OTHER["Authorization"], "claims": {"sub": 8}}, "forbidden"),
        (APP, {"claims": [8]}, "bad_request"),
        (APP, {"claims": {"sub": "x" * 5_000}}, "bad_request"),
    ):
        socket = SocketReader(app, headers)
        socket.say(**said)
        socket.say(subscribe=[{"view": "Titles"}])
        texts = [await socket.text(), await socket.text()]
        assert texts[0]["error"]["code"] == code, (headers, said, texts)
        assert SECRET not in str(texts)
        await socket.close()
    socket = SocketReader(app, {**APP, **claims(7)})
    socket.say(subscribe=[{"view": "Titles", "name": "seven"}])
    assert "one" in str(await socket.text())
    await socket.text()
    socket.say(claims={"sub": 8}, subscribe=[{"view": "Titles", "name": "eight"}])
    assert SECRET in str(await socket.text())
    await socket.text()
    # Who says who asks, says anew for whom: another account does not go on with the claims of the one before.
    socket.say(authorization=OTHER["Authorization"], subscribe=[{"view": "Titles", "name": "other"}])
    told = await socket.text()
    assert SECRET not in str(told)
    await socket.close()
    await app.close()


async def test_rights_that_are_revoked_end_what_is_followed(closed: Served) -> None:
    app = create_app(closed.deployment)
    socket = SocketReader(app, SEVEN)
    socket.say(subscribe=[{"view": "Titles"}])
    await socket.text()
    await socket.text()
    some = Rights({"*": frozenset({Privilege.SELECT, Privilege.QUERY})})
    await closed.keeper.change("app", lambda before: account("app", some))  # It may not say any more for whom.
    async with asyncio.timeout(2 * live_views.TICK_SECONDS + SLOW_SECONDS):
        while "ended" not in (told := await socket.text()):
            assert "one" not in str(told)
    socket.say(subscribe=[{"view": "Titles", "name": "again"}])
    assert (await socket.text())["error"]["code"] == "forbidden"
    await socket.close()
    await app.close()


def ending() -> Account:
    """An account whose key ends soon, and not before its streams are open on a busy machine."""
    soon = time_text(time() + ENDS_SECONDS) or ""
    made = account("brief", Rights({"*": frozenset({Privilege.SELECT, Privilege.SET_CLAIMS})}))
    return replace(made, keys=(replace(made.keys[0], expires=soon),))


async def test_rights_that_another_process_revokes_and_keys_that_end_do_so_within_two_seconds(
    closed: Served, tmp_path: Path
) -> None:
    """On connections that are open, by events and by WebSocket; another process shares only what accounts are in."""
    app = create_app(closed.deployment)
    other = Keeper(FileAccounts(tmp_path), closed.keeper.passwords)
    await other.start()
    await closed.keeper.change("brief", lambda before: ending())
    for name, act in (("app", partial(other.change, "app", lambda before: account("app"))), ("brief", None)):
        headers = {**bearer(f"hrk_{name}"), **claims(7)}
        events, socket = EventReader(app, "/v1/views/Titles/live?live=sse", headers), SocketReader(app, headers)
        socket.say(subscribe=[{"view": "Titles"}])
        for _ in range(2):
            assert await events.event()
            assert "error" not in await socket.text()
        if act is not None:
            await act()
        began = monotonic()
        ends = []
        for following in (events.event, socket.text):
            async with asyncio.timeout(30):
                told: Any = await following()
                while told is not None and "ended" not in json.dumps(told):
                    told = await following()
                assert told is not None
            ends.append(monotonic() - began)
        assert max(ends) < 2.0 + (ENDS_SECONDS if name == "brief" else 0.0) + SLOW_SECONDS, (name, ends)
        assert (await closed.http.get("/v1/views/Titles", headers=headers)).status_code in (401, 403)
        await events.close()
        await socket.close()
    await other.close()
    await app.close()


async def test_nothing_that_is_told_of_answers_tells_of_their_rows(closed: Served) -> None:
    for sub in (SEVEN, EIGHT):  # So that there is something to tell.
        for view in VIEWS:
            assert (await closed.http.get(f"/v1/views/{view}", headers=sub)).status_code == 200
        await closed.done("SELECT title FROM stories WHERE title LIKE 'xyz%'", sub)
        asked = {"sql": "SELECT * FROM stories WHERE title = ? ORDER BY id LIMIT 1", "params": [f"{SECRET} two"]}
        assert (await closed.http.post("/v1/sql", json=asked, headers=sub)).status_code == 200
    paths = [
        *(f"/v1/views/{view.partition('?')[0]}/{what}" for view in VIEWS for what in ("stats", "explain")),
        *(f"/v1/lineage?view={view.partition('?')[0]}&key={key}" for view in VIEWS for key in ("[]", "[2]", "[8]")),
        *(f"/v1/graph?view={view.partition('?')[0]}" for view in VIEWS),
        *("/v1/graph", "/v1/graph?by=view", "/v1/status", "/metrics", "/v1/queries/running", "/v1/sessions"),
        *("/v1/views", "/v1/tables", "/v1/schema", "/v1/migrations", "/v1/accounts", "/v1/drills"),
    ]
    for path in paths:
        for headers in WHO.values():
            answer = await closed.http.get(path, headers=headers)
            assert answer.status_code < 500, (path, answer.text)
            assert SECRET not in answer.text, (path, answer.text)
    told = await closed.http.get("/v1/queries", headers=SEVEN)
    assert SECRET not in json.dumps([each["query"] for each in told.json()["queries"]]), told.text


TEAMS = f"""
CREATE TABLE members (draft INT, user INT, note VARCHAR(40), PRIMARY KEY (draft, user));
CREATE TABLE drafts (id INT PRIMARY KEY, author INT, level INT, title VARCHAR(40));
INSERT INTO members VALUES (1, 7, 'm'), (1, 8, '{SECRET}'), (2, 8, '{SECRET}'), (3, 7, 'n'), (4, 7, 'o');
INSERT INTO drafts VALUES (1, 7, 1, 'one'), (2, 8, 1, '{SECRET}'), (3, 8, 9, 'three'), (4, 8, 8, '{SECRET}');
INSERT INTO drafts VALUES (5, 7, 7, 'one');
CREATE POLICY own ON members USING (user = CURRENT_CLAIM('sub'));
CREATE POLICY own ON drafts USING (author = CURRENT_CLAIM('sub'));
CREATE EXT VIEW AllDrafts AS SELECT id, title FROM drafts;
CREATE EXT VIEW OneDraft AS SELECT id, title, note FROM drafts JOIN members ON draft = id WHERE id = ?;
CREATE EXT VIEW Titled AS SELECT title, COUNT(*) AS n, MAX(level) AS most FROM drafts GROUP BY title;
CREATE EXT VIEW HowMany AS SELECT COUNT(*) AS n, MAX(level) AS most FROM drafts;
CREATE EXT VIEW Noted AS SELECT id FROM drafts WHERE EXISTS (SELECT 1 FROM members WHERE draft = drafts.id);
CREATE EXT VIEW Placed AS SELECT id, RANK() OVER (ORDER BY level DESC, id) AS place FROM drafts;
CREATE EXT VIEW Highest AS SELECT id, level FROM drafts ORDER BY level DESC, id LIMIT 2
"""
LATE = "CREATE POLICY late ON drafts USING (level > 8 OR title = 'three' AND CURRENT_CLAIM('sub') <> 3)"
KEYS = {
    "OneDraft": [[1], [2], [3], [4], [5]],
    **{view: [[]] for view in ("AllDrafts", "Titled", "HowMany", "Noted", "Placed", "Highest")},
}


async def test_lineage_tells_what_a_select_shows(closed: Served) -> None:
    """Of each row of each answer some rows, one of which has its values, and none that a SELECT does not show."""
    await closed.done(TEAMS, ANN)
    for policies in ("SELECT 1", LATE):
        await closed.done(policies, ANN)
        for headers in (SEVEN, EIGHT, NOBODY, {**APP, **claims(3)}):
            readable = {table: await closed.done(f"SELECT * FROM {table}", headers) for table in ("drafts", "members")}
            for view, keys in KEYS.items():
                shown = await closed.http.post(f"/v1/views/{view}/lookup", json={"keys": keys}, headers=headers)
                assert shown.status_code == 200, (policies, shown.text)
                for key, page in zip(keys, shown.json()["results"], strict=True):
                    for place, row in enumerate(page):
                        asked = {"view": view, "key": json.dumps(key), "row": place}
                        answer = await closed.http.get("/v1/lineage", params=asked, headers=headers)
                        assert answer.status_code == 200, (asked, answer.text)
                        told = answer.json()["rows"]
                        assert all(list(each["row"].values()) in readable[each["table"]] for each in told), asked
                        ids = [each["row"]["id"] for each in told if each["table"] == "drafts"]
                        assert row.get("id") in (None, *ids), (asked, told)
                        assert len(ids) == row.get("n", len(ids) or None), (asked, told)
            answer = await closed.http.get("/v1/lineage?view=AllDrafts&row=9", headers=headers)
            assert answer.json()["error"]["message"].startswith(f"the answer has {len(readable['drafts'])} rows")
    assert (await closed.http.get("/v1/lineage?view=AllDrafts", headers=ANN)).status_code == 400
    some = {view: frozenset({Privilege.SELECT}) for view in ("drafts", "onedraft")}
    rights = Rights({"*": frozenset({Privilege.SET_CLAIMS}), **some})
    await closed.keeper.change("app", lambda before: account("app", rights))
    refused = await closed.http.get("/v1/lineage?view=OneDraft&key=[1]", headers=SEVEN)
    assert (refused.status_code, "members" in refused.text) == (403, True)


async def test_a_view_that_a_user_makes_is_no_users(closed: Served) -> None:
    """Neither what its maker sees is kept in it, nor what its maker does not see."""
    made = "EXT VIEW Made AS SELECT title FROM stories", "EXT VIEW MadeCount AS SELECT COUNT(*) AS n FROM stories"
    for statement, maker in (("CREATE", SEVEN), ("CREATE OR REPLACE", NOBODY), ("CREATE OR REPLACE", ANN)):
        for each in made:
            await closed.done(f"{statement} {each}", maker)
        for headers, count in ((NOBODY, 0), (SEVEN, 1), (EIGHT, 2), (SEVEN, 1)):
            shown = await rows(closed, "Made", headers)
            assert (len(shown), SECRET in str(shown)) == (count, headers is EIGHT), (statement, shown)
            assert await rows(closed, "MadeCount", headers) == [[count]]


async def test_pages_and_orders_count_what_is_shown(closed: Served) -> None:
    await closed.done("INSERT INTO stories VALUES " + ", ".join(f"({n}, 8, '{SECRET}')" for n in range(100, 160)), ANN)
    await closed.done("INSERT INTO stories VALUES (200, 7, 'mine'), (201, 7, 'mine')", ANN)
    await closed.done("CREATE EXT VIEW Paged AS SELECT id, title FROM stories ORDER BY title, id LIMIT ? OFFSET ?", ANN)
    for sql, wanted in (
        ("SELECT id FROM stories ORDER BY title DESC, id LIMIT 2", [[1], [200]]),
        ("SELECT id FROM stories ORDER BY id DESC LIMIT 1 OFFSET 1", [[200]]),
        ("SELECT id FROM stories ORDER BY id LIMIT 10 OFFSET 3", []),
        ("SELECT COUNT(DISTINCT title) AS n, MIN(id) AS a, MAX(id) AS b FROM stories", [[2, 1, 201]]),
        ("SELECT id, RANK() OVER (ORDER BY title, id) AS r FROM stories ORDER BY id", [[1, 3], [200, 1], [201, 2]]),
        ("SELECT id, LAG(title) OVER (ORDER BY id) AS t FROM stories ORDER BY id LIMIT 2", [[1, None], [200, "one"]]),
        ("SELECT SUM(id) AS s FROM stories HAVING s > 0", [[402]]),
    ):
        assert await closed.done(sql, SEVEN) == wanted, sql
    for limit, offset, ids in ((1, 0, [200]), (2, 1, [201, 1]), (5, 3, []), (100, 0, [200, 201, 1])):
        found: Any = await closed.http.get(f"/v1/views/Paged?limit={limit}&offset={offset}", headers=SEVEN)
        assert [row["id"] for row in found.json()["rows"]] == ids


async def test_messages_of_keys_tell_no_values(closed: Served, tmp_path: Path) -> None:
    """A key that is taken is told, and not what else the row has."""
    await closed.done("CREATE TABLE boxes (id INT PRIMARY KEY, owner INT, label VARCHAR(40) UNIQUE)", ANN)
    await closed.done(f"INSERT INTO boxes VALUES (1, 8, '{SECRET}')", ANN)
    await closed.done("CREATE POLICY own ON boxes USING (owner = CURRENT_CLAIM('sub'))", ANN)
    for sql, status in (
        ("INSERT INTO boxes VALUES (1, 7, 'x')", 409),
        ("INSERT INTO boxes VALUES (2, 7, LOWER('XYZZY'))", 409),
        ("INSERT IGNORE INTO boxes VALUES (1, 7, 'x')", 200),
        ("UPDATE boxes SET owner = 7 WHERE id = 1", 200),
    ):
        answer = await closed.sql(sql, SEVEN)
        assert answer.status_code == status, (sql, answer.text)
        if "LOWER" not in sql:
            assert SECRET not in answer.text, (sql, answer.text)
    assert POLICY
