"""Live views over WebSockets: what a client may say, who may, what ends them; and on a real connection."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from served_bytes import listening
from test_live import Site, site  # noqa: F401
from test_rights import Served, account, bearer, closed, served  # noqa: F401
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from api.app import create_app
from api.doors import web_socket
from api.doors.tls import Tls
from api.limits import Admission, Limits
from controller.live import live_views
from headrace.serving.certificates import context_of
from headrace.settings import load
from migrations.access.rights import Privilege, Rights
from tests.kit.certificates import Authority
from tests.kit.live_stream import Folded, SocketReader, get

BY = {"view": "ByAuthor", "parameters": {"author": 7}}


async def texts(socket: SocketReader, count: int) -> list[Any]:
    told: list[Any] = []
    async with asyncio.timeout(30):
        while len(told) < count:
            told.append(await socket.text())
            assert told[-1] is not None, told
    return told


async def test_answers_are_subscribed_to_and_left_on_the_way(site: Site) -> None:  # noqa: F811
    await site.write("INSERT INTO stories VALUES (1, 7, 'one'), (2, 8, 'two')")
    socket = SocketReader(site.app)
    socket.say(subscribe=[{**BY, "name": "a"}])
    rows, control = await texts(socket, 2)
    folded = Folded()
    folded.take(rows)
    assert folded.listed() == [{"id": 1, "title": "one"}]
    assert (control["subscription"], control["upToDate"]) == ("a", True)
    socket.say(subscribe=[{"view": "ByAuthor", "parameters": {"author": 8}, "name": "b"}])
    await texts(socket, 2)
    token = await site.write("UPDATE stories SET author = 8 WHERE id = 1")
    told = await texts(socket, 4)
    gone, came = sorted((each for each in told if isinstance(each, list)), key=lambda each: str(each[0]["type"]))
    assert gone == [{"type": "a", "key": "1", "headers": {"operation": "delete", "txid": token}}]
    assert (came[0]["type"], came[0]["value"]) == ("b", {"id": 1, "title": "one"})
    socket.say(unsubscribe=["b", "nobody"])
    (left,) = await texts(socket, 1)
    assert (left["subscription"], left["ended"]) == ("b", "unsubscribed")
    token = await site.write("INSERT INTO stories VALUES (3, 8, 'three')")
    socket.say(subscribe=[{**BY, "name": "b", "parameters": {"author": 8}, "offset": left["streamNextOffset"]}])
    missed, _ = await texts(socket, 2)
    assert [each["key"] for each in missed] == ["3"]
    await socket.close()
    assert site.deployment.live.status()["subscriptions"] == 0


async def test_who_calls_an_answer_the_same_is_sent_the_same(site: Site) -> None:  # noqa: F811
    """It is written once for them, and others are told by their own names."""
    names = ("a", "a", "b")
    sockets = [SocketReader(site.app) for _ in names]
    for name, socket in zip(names, sockets, strict=True):
        socket.say(subscribe=[{**BY, "name": name}])
        await texts(socket, 2)
    for number in range(3):
        await site.write(f"INSERT INTO stories VALUES ({number}, 7, 'one')")
        told = [await texts(socket, 2) for socket in sockets]
        assert [(rows[0]["type"], control["subscription"]) for rows, control in told] == [
            (each, each) for each in names
        ]
        assert told[0] == told[1]
        assert told[1][0][0]["value"] == told[2][0][0]["value"] == {"id": number, "title": "one"}
    (topic,) = {each.topic for each in site.deployment.live._subscriptions}
    assert sum(isinstance(key, tuple) for key in topic.written) == 2
    for socket in sockets:
        await socket.close()


@pytest.mark.parametrize("resumes", [False, True])
async def test_the_first_control_of_a_subscription_has_the_types_of_its_rows(site: Site, resumes: bool) -> None:  # noqa: F811
    """As the header of a read; what comes by one name is told no more of it."""
    await site.write("CREATE TABLE prices (id BIGINT PRIMARY KEY, price DECIMAL(8, 2), since DATE)")
    await site.write("CREATE EXT VIEW Price AS SELECT id, price, since FROM prices WHERE id = ?")
    await site.write("INSERT INTO prices VALUES (1, 2.50, '2024-02-29')")
    asked = {"view": "Price", "parameters": {"id": 1}}
    begun = await get(site.app, "/v1/views/Price/live?id=1")
    await site.write("UPDATE prices SET price = 3 WHERE id = 1")
    socket = SocketReader(site.app)
    at = {"offset": begun.headers["stream-next-offset"]} if resumes else {}
    socket.say(subscribe=[{**asked, **at}, {**asked, "name": "again"}, {**BY, "name": "untyped"}])
    told = [each for each in await texts(socket, 6) if isinstance(each, dict)]
    types = begun.headers["headrace-types"]
    assert types == "1:DECIMAL 2:DATE"
    assert {each["subscription"]: each.get("types") for each in told} == {
        "Price": types,
        "again": types,
        "untyped": None,
    }
    await site.write("UPDATE prices SET price = 4 WHERE id = 1")
    assert not any("types" in each for each in await texts(socket, 4))
    await socket.close()


async def test_a_write_that_is_to_be_reached_is_told_of_where_it_changed_nothing(
    site: Site,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, and not only with the next progress."""
    monkeypatch.setattr(live_views, "PROGRESS_SECONDS", 3600.0)
    monkeypatch.setattr(live_views, "LONGEST_PROGRESS", 3600.0)
    socket = SocketReader(site.app)
    socket.say(subscribe=[{**BY, "name": "a"}, {"view": "ByAuthor", "parameters": {"author": 8}, "name": "b"}])
    await texts(socket, 4)
    token = await site.write("INSERT INTO stories VALUES (1, 9, 'elsewhere')")
    socket.say(reached=token)
    told = await texts(socket, 2)
    assert {each["subscription"]: each["token"] for each in told} == {"a": token, "b": token}
    token = await site.write("INSERT INTO stories VALUES (2, 9, 'elsewhere')")
    await get(site.app, "/v1/views/ByAuthor/live?author=8&offset=now", {"headrace-token": token})
    (by_another,) = await texts(socket, 1)
    assert (by_another["subscription"], by_another["token"]) == ("b", token)
    socket.say(reached="h1.!")
    (error,) = await texts(socket, 1)
    assert error["error"]["code"] == "bad_request"
    await socket.close()


async def test_what_is_refused_leaves_the_rest(site: Site) -> None:  # noqa: F811
    socket = SocketReader(site.app)
    socket.say(subscribe=[{**BY, "name": "a"}, {"view": "Nothing"}, {"view": "Fresh", "parameters": {"author": 1}}])
    told = await texts(socket, 4)
    refused = {each["subscription"]: each["error"]["code"] for each in told if "error" in each}
    assert refused == {"Nothing": "not_found", "Fresh": "unsupported"}
    for said in ({"subscribe": [{**BY, "name": "a"}]}, {"unknown": 1}, {"token": "x"}):
        socket.say(**said)
        (error,) = await texts(socket, 1)
        assert error["error"]["code"] == "bad_request"
    await site.write("INSERT INTO stories VALUES (1, 7, 'one')")
    assert (await texts(socket, 2))[0][0]["key"] == "1"
    await site.write("DROP VIEW ByAuthor")
    assert (await texts(socket, 1))[0]["ended"] == "dropped"
    await socket.close()
    assert socket.closed is None


async def test_one_that_watches_nothing_is_closed(site: Site) -> None:  # noqa: F811
    app = create_app(site.deployment, admission=Admission(Limits(idle_timeout=0.05)))
    socket = SocketReader(app)
    assert await socket.text() is None
    assert socket.closed == 1001
    await app.close()


async def test_rights_are_those_of_now_and_may_be_said_in_a_message(closed: Served) -> None:  # noqa: F811
    rights = Rights({"byauthor": frozenset((Privilege.SELECT,))})
    await closed.keeper.change("bob", lambda before: account("bob", rights))
    app = create_app(closed.deployment)
    wrong = SocketReader(app, bearer("hrk_wrong"))
    await wrong.began.wait()
    assert (wrong.status, json.loads(wrong.refusal)["error"]["code"]) == (401, "unauthenticated")
    socket = SocketReader(app)
    asked = {"view": "ByAuthor", "parameters": {"author": 7}}
    socket.say(subscribe=[asked])
    assert (await texts(socket, 1))[0]["error"]["code"] == "unauthenticated"
    socket.say(authorization="Bearer hrk_wrong")
    assert (await texts(socket, 1))[0]["error"]["code"] == "unauthenticated"
    socket.say(authorization="Bearer hrk_bob", subscribe=[asked, {"view": "Words", "parameters": {"id": 1}}])
    told = await texts(socket, 3)
    assert [each["error"]["code"] for each in told if "error" in each] == ["forbidden"]
    await closed.keeper.change("bob", lambda before: account("bob"))
    async with asyncio.timeout(2 * live_views.TICK_SECONDS + 0.5):
        assert (await socket.text())["ended"] in ("forbidden", "expired")
    socket.say(subscribe=[asked])
    assert (await texts(socket, 1))[0]["error"]["code"] in ("forbidden", "unauthenticated")
    await socket.close()
    await app.close()


async def test_each_user_is_sent_what_policies_show_him(site: Site) -> None:  # noqa: F811
    await site.write("CREATE EXT VIEW Mine AS SELECT id, title FROM stories")
    await site.write("CREATE POLICY own ON stories FOR SELECT USING (author = CURRENT_CLAIM('sub'))")
    await site.write("INSERT INTO stories VALUES (1, 7, 'one'), (2, 8, 'two')")
    by_header = SocketReader(site.app, {"Headrace-Claims": '{"sub": 7}'})
    by_header.say(subscribe=[{"view": "Mine"}])
    by_message = SocketReader(site.app)
    by_message.say(claims={"sub": 8}, subscribe=[{"view": "Mine"}])
    for sub, socket in ((7, by_header), (8, by_message)):
        rows, _ = await texts(socket, 2)
        assert [each["value"]["id"] for each in rows[1:-1]] == [sub - 6]
        await socket.close()


@pytest.mark.parametrize(
    ("origin", "origins", "status"),
    [
        ("http://here", [], 101),
        ("https://here", [], 101),
        ("http://evil.example", [], 403),
        ("null", [], 403),
        ("http://[", [], 403),
        ("//here", [], 403),
        ("", [], 403),
        ("http://here.evil.example", [], 403),
        ("http://app.example", ["http://app.example"], 101),
        ("http://evil.example", ["http://app.example"], 403),
        ("http://any.example", ["*"], 101),
    ],
)
async def test_pages_of_other_origins(site: Site, origin: str, origins: list[str], status: int) -> None:  # noqa: F811
    app = create_app(site.deployment, origins=origins)
    socket = SocketReader(app, {"Origin": origin, "Host": "here"})
    await socket.began.wait()
    assert socket.status == status, socket.refusal
    await socket.close()
    await app.close()


async def test_a_page_that_nobody_named_has_not_the_browsers_credentials(closed: Served) -> None:  # noqa: F811
    app = create_app(closed.deployment, origins=["*"])
    for origin, code in (("http://any.example", "unauthenticated"), ("http://here", "not_found")):
        socket = SocketReader(app, {"Origin": origin, "Host": "here", **bearer("hrk_ann")})
        socket.say(subscribe=[{"view": "Nothing"}])
        assert (await texts(socket, 1))[0]["error"]["code"] == code
        await socket.close()
    await app.close()


# --- on a real connection --------------------------------------------------------------------------------------------


class Real:
    def __init__(self, port: int, admission: Admission) -> None:
        self.url, self.admission = f"ws://127.0.0.1:{port}/v1/live", admission


@asynccontextmanager
async def real(site: Site, **limits: Any) -> AsyncIterator[Real]:  # noqa: F811
    admission = Admission(Limits(**limits))
    app = create_app(site.deployment, admission=admission)
    async with listening(app) as server:
        yield Real(server.servers[0].sockets[0].getsockname()[1], admission)
    await app.close()


async def test_one_that_is_refused_leaves_no_line(
    site: Site,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with real(site) as opened:
        for origin in ("http://evil.example", "http://["):
            with pytest.raises(InvalidStatus) as refused:
                await connect(opened.url, origin=origin)
            assert refused.value.response.status_code == 403
            assert b'"forbidden"' in (refused.value.response.body or b"")
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def heard(socket: ClientConnection) -> Any:
    async with asyncio.timeout(30):
        while (found := json.loads(await socket.recv())) == []:
            pass
        return found


async def until(met: Any, what: str) -> None:
    for _ in range(3_000):
        if met():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)


async def test_a_client_that_leaves_leaves_nothing(site: Site) -> None:  # noqa: F811
    async with real(site) as there:
        socket = await connect(there.url, proxy=None)
        await socket.send(json.dumps({"subscribe": [BY]}))
        assert isinstance(await heard(socket), list)
        await heard(socket)
        await site.write("INSERT INTO stories VALUES (1, 7, 'one')")
        assert (await heard(socket))[0]["key"] == "1"
        assert there.admission.connections == 1
        socket.transport.abort()
        async with asyncio.timeout(1.0):
            await until(lambda: not site.deployment.live.status()["subscriptions"], "the subscription stays")
            await until(lambda: not there.admission.connections, "the connection counts")
        assert there.admission.received == 0


async def test_messages_that_pass_a_limit(site: Site) -> None:  # noqa: F811
    async with real(site, max_message_size=1_000, max_connections_per_address=2) as there:
        async with connect(there.url, proxy=None) as socket:
            await socket.send("x" * 1_001)
            with pytest.raises(ConnectionClosed) as caught:
                await heard(socket)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
        await until(lambda: not there.admission.connections, "the connection counts")
        async with connect(there.url, proxy=None) as socket:
            await socket.send(b"\x00\x01")
            assert (await heard(socket))["error"]["code"] == "bad_request"
            async with connect(there.url, proxy=None):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(there.url, proxy=None)
            assert refused.value.response.status_code == 429
        await until(lambda: not there.admission.connections, "the connections count")
        with pytest.raises(InvalidStatus) as elsewhere:
            await connect(there.url.replace("live", "sql"), proxy=None)
        assert elsewhere.value.response.status_code in (403, 404)


async def test_a_client_that_does_not_read_is_hung_up_on(site: Site) -> None:  # noqa: F811
    """It misses changes, which are not kept for it, and after a while its connection ends."""
    async with real(site, request_timeout=0.5) as there:
        socket = await connect(there.url, proxy=None, max_queue=1)
        await site.write("CREATE TABLE wide (id BIGINT PRIMARY KEY, text TEXT)")
        await site.write("CREATE EXT VIEW Texts AS SELECT id, text FROM wide")
        await socket.send(json.dumps({"subscribe": [{"view": "Texts"}]}))
        await heard(socket)
        socket.transport.pause_reading()
        for at in range(400):
            await site.deployment.execute(f"INSERT INTO wide VALUES ({at}, '{'x' * 50_000}')")
            if not site.deployment.live.status()["subscriptions"]:
                break
        await until(lambda: not site.deployment.live.status()["subscriptions"], "it stays")
        await until(lambda: not there.admission.connections, "its connection stays")
        assert there.admission.unsent == 0
        assert there.admission.refused["request_timeout"] >= 1


async def test_pings_find_out_who_has_gone_without_a_word(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(web_socket, "PING_SECONDS", 0.1)
    monkeypatch.setattr(web_socket, "PONG_SECONDS", 0.1)
    async with real(site) as there:
        socket = await connect(there.url, proxy=None, ping_interval=None)
        await socket.send(json.dumps({"subscribe": [BY]}))
        await heard(socket)
        socket.transport.pause_reading()
        await until(lambda: not site.deployment.live.status()["subscriptions"], "it stays")


async def test_over_tls_and_behind_a_request_that_is_not_answered(site: Site, tmp_path: Path) -> None:  # noqa: F811
    authority = Authority(tmp_path)
    certificate, key = authority.certificate("server")
    context = context_of(load(tls_cert=certificate, tls_key=key))
    admission = Admission(Limits())
    assert context is not None
    app = create_app(site.deployment, admission=admission)
    async with listening(app, below=Tls(context, admission)) as server:
        port = server.servers[0].sockets[0].getsockname()[1]
        trusting = ssl.create_default_context(cafile=str(authority.path))
        async with connect(f"wss://localhost:{port}/v1/live", ssl=trusting, proxy=None) as socket:
            await socket.send(json.dumps({"subscribe": [BY]}))
            await heard(socket)
            assert (await heard(socket))["upToDate"]
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
        upgrade = b"GET /v1/live HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        writer.write(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n" + upgrade)
        answers = await reader.read()
        assert answers.index(b"200 OK") < answers.index(b"400 Bad Request") < answers.index(b"before earlier requests")
        writer.close()
        await until(lambda: not admission.connections, "the connections count")
    await app.close()
