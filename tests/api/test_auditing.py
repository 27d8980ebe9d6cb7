"""What an audit log has of requests by HTTP, whichever way they come."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from api import auditing
from api.app import create_app
from api.doors.asgi import AsgiDoor
from api.endpoints import EndpointCall
from controller.access.accounts import Account, ApiKey, administrator
from controller.access.audit_file import AuditFile
from controller.access.audit_log import AuditLog
from controller.access.keeper import Keeper
from controller.access.passwords import Passwords, key_digest, new_id
from controller.access.session import OPEN
from controller.embedded.local import LocalDeployment
from domains.errors import SqlSyntaxError
from migrations.access.rights import Privilege, Rights
from zookeeper.accounts import FileAccounts

SCHEMA = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT, title TEXT);
CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?
"""
ANN, APP = {"Authorization": "Bearer hrk_ann"}, {"Authorization": "Bearer hrk_app"}


class Site:
    def __init__(self, path: Path, deployment: LocalDeployment, door: AsgiDoor, http: httpx.AsyncClient) -> None:
        self.path, self.deployment, self.door, self.http = path, deployment, door, http

    @property
    def log(self) -> AuditLog:
        assert self.deployment.accounts is not None
        assert self.deployment.accounts.audit is not None
        return self.deployment.accounts.audit

    async def sql(self, sql: str, headers: dict[str, str] = ANN, params: tuple[Any, ...] = ()) -> httpx.Response:
        return await self.http.post("/v1/sql", json={"sql": sql, "params": list(params)}, headers=headers)

    async def lines(self) -> list[dict[str, Any]]:
        """What is new, without times."""
        await self.log.settled()
        found = [json.loads(line) for line in self.path.read_bytes().splitlines()]
        self.path.write_bytes(b"")
        return [
            {name: value for name, value in line.items() if name not in ("time", "ms")}
            for line in found
            if line["kind"] != "log"
        ]


Begin = Callable[..., Any]


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    ended: list[Any] = []

    async def started(**given: Any) -> Site:
        deployment = await LocalDeployment.open(tmp_path / "data", memory_limit=64_000_000)
        await deployment.execute(SCHEMA)
        keeper = Keeper(
            FileAccounts(tmp_path / "data"), Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        )
        await keeper.start()
        ann = Account("ann", new_id(), keys=(ApiKey(new_id(), "", key_digest("hrk_ann")),))
        ann = administrator("ann", new_id(), await keeper.passwords.made("x"), ann)
        rights = {"byauthor": frozenset({Privilege.SELECT}), "stories": frozenset({Privilege.INSERT})}
        app = Account("app", new_id(), rights=Rights(rights), keys=(ApiKey(new_id(), "", key_digest("hrk_app")),))
        await keeper.change("ann", lambda before: ann)
        await keeper.change("app", lambda before: app)
        deployment.accounts = keeper
        path = tmp_path / "audit.jsonl"
        keeper.audit = AuditLog(AuditFile(path, 10_000_000, 3), **given)
        keeper.audit.begin()
        door = create_app(deployment, proxies=["192.0.2.0/24"])
        http = httpx.AsyncClient(transport=httpx.ASGITransport(door, client=("192.0.2.1", 1)), base_url="http://x")
        ended.extend((http.aclose, door.close, deployment.close))
        site = Site(path, deployment, door, http)
        await site.lines()
        return site

    yield started
    for end in ended:
        await end()


async def test_definitions_and_accounts_are_recorded_one_by_one(begin: Begin) -> None:
    site = await begin()
    told = {"door": "http", "address": "192.0.2.1", "account": "ann", "route": "POST /v1/sql"}
    done = await site.sql(
        "INSERT INTO stories VALUES (1, 7, 'one'); CREATE TABLE a (id INT PRIMARY KEY);"
        "CREATE TABLE b (id INT PRIMARY KEY); SELECT 1; CREATE USER u IDENTIFIED BY 'hunter2';"
        "GRANT SELECT ON a TO u; TRUNCATE a; SHOW GRANTS FOR u"
    )
    assert done.status_code == 200, done.text
    assert await site.lines() == [
        {**told, "kind": kind, "statement": statement, "code": "ok"}
        for kind, statement in (
            ("definition", "CREATE TABLE a (id INT PRIMARY KEY)"),
            ("definition", "CREATE TABLE b (id INT PRIMARY KEY)"),
            ("account", "CREATE USER u IDENTIFIED BY '…'"),
            ("account", "GRANT SELECT ON a TO u"),
            ("definition", "TRUNCATE a"),
        )
    ]
    failed = await site.sql("DROP TABLE b; /* hidden */ DROP TABLE nothing; DROP TABLE a")
    assert failed.status_code == 400
    shown = await site.lines()
    assert {line["code"] for line in shown} == {"unknown_name"}, shown
    assert "DROP TABLE nothing" in [line["statement"] for line in shown]
    await site.sql("KILL 999")
    await site.sql("CREATE TABLE c AS SELECT id FROM stories")
    shown = await site.lines()
    assert [(line["kind"], line["code"]) for line in shown] == [("operation", "not_found"), ("definition", "ok")]


async def test_data_is_not_recorded_unless_it_is_asked_for(begin: Begin) -> None:
    site = await begin()
    await site.sql("INSERT INTO stories VALUES (1, 7, 'one')")
    await site.http.post("/v1/tables/stories/rows", json={"rows": [{"id": 2}]}, headers=APP)
    await site.http.get("/v1/views/ByAuthor?author=7", headers=APP)
    await site.sql("SELEC")
    assert await site.lines() == []


DATA = [
    ("POST", "/v1/sql", {"sql": "SELECT title FROM stories WHERE id = 4711 AND title = 'q'", "params": []}),
    ("POST", "/v1/sql", {"sql": "INSERT INTO stories (id, author) VALUES (?, 7)", "params": [4712]}),
    ("POST", "/v1/sql", {"sql": "SELECT 'q' FROM WHERE 4711", "params": []}),
    ("GET", "/v1/views/ByAuthor?author=4711", None),
    ("POST", "/v1/views/ByAuthor/lookup", {"keys": [[4711]]}),
    ("POST", "/v1/lookups", {"lookups": [{"view": "ByAuthor", "keys": [[4711]]}, {"view": "ByAuthor", "keys": []}]}),
    ("POST", "/v1/tables/stories/rows", {"rows": [{"id": 4713, "title": "q"}]}),
    ("PATCH", "/v1/tables/stories/rows", {"key": {"id": 4713}, "set": {"title": "q"}}),
    ("DELETE", "/v1/tables/stories/rows", {"key": {"id": 4713}}),
]


@pytest.mark.parametrize("data", ["statements", "values"])
async def test_data_with_and_without_values(begin: Begin, data: str) -> None:
    site = await begin(data=data)
    for method, path, body in DATA:
        await site.http.request(method, path, json=body, headers=ANN)
    shown = await site.lines()
    assert [line["kind"] for line in shown] == ["data"] * len(DATA)
    assert [line["status"] for line in shown] == [200, 200, 400, *[200] * 6]
    assert shown[2]["code"] == SqlSyntaxError.code
    texts = [line.get("statement", "") for line in shown]
    if data == "statements":
        assert texts[:3] == [
            "SELECT title FROM stories WHERE id = ? AND title = ?",
            "INSERT INTO stories (id, author) VALUES (?, ?)",
            "SELECT ? FROM WHERE ?",
        ]
        assert not any(texts[3:])
        assert not any(word in json.dumps(shown) for word in ("471", '"q"', "'q'"))
    else:
        assert "4711" in texts[0]
        assert texts[3] == "author=4711"
        assert '"title":"q"' in texts[6].replace(" ", "")
    assert [line.get("on") for line in shown[3:]] == [
        "ByAuthor",
        "ByAuthor",
        "ByAuthor",
        "stories",
        "stories",
        "stories",
    ]


async def test_look_ups_and_writes_of_rows_are_asked_as_without_a_log(begin: Begin) -> None:
    """Unless data is recorded: a hit costs no call more."""
    site = await begin()
    calls = site.door.endpoints._calls
    assert [route for route, call in calls.items() if type(call) is not EndpointCall] == ["POST /v1/sql"]


async def test_a_client_that_goes_is_recorded_with_what_it_had_done(begin: Begin) -> None:
    site = await begin(data="statements")
    call, name = site.door.endpoints.find("POST", "/v1/tables/stories/rows")
    begun = call.begin(name, b"", b'{"rows": [{"id": 77}]}', None, OPEN, "198.51.100.1")
    task = asyncio.create_task(begun)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (line,) = await site.lines()
    assert (line["on"], line["code"], line["address"]) == ("stories", "cancelled", "198.51.100.1")


async def test_what_a_view_holds_is_data_too(begin: Begin) -> None:
    site = await begin(data="statements")
    assert (await site.http.get("/v1/views/ByAuthor/held", headers=ANN)).status_code == 200
    await site.http.get("/v1/status", headers=ANN)
    (line,) = await site.lines()
    assert (line["kind"], line["route"], line["account"]) == ("data", "GET /v1/views/ByAuthor/held", "ann")


async def test_refusals_are_always_recorded(begin: Begin) -> None:
    site = await begin()
    http = site.http
    basic = {"Authorization": "Basic " + b64encode(b"bob:hunter2").decode()}
    await http.get("/v1/views/ByAuthor?author=7")
    await http.get("/v1/tables%0A/x%1B", headers={"Authorization": "Bearer hrk_hunter2"})
    await http.get("/v1/status", headers=basic)
    await site.sql("DROP TABLE stories", APP)
    await site.sql("CREATE USER x IDENTIFIED BY 'hunter2'", APP)
    await site.sql("INSERT INTO stories (title) SELECT 'hunter2' FROM stories /* hunter2 */", APP)
    await http.patch("/v1/tables/stories/rows", json={"key": {"id": 1}, "set": {"title": "hunter2"}}, headers=APP)
    await http.get("/v1/status", headers=APP)
    await http.head("/v1/views/ByAuthor?author=7")
    await http.post("/v1/migrations", json={"sql": "DROP TABLE stories"}, headers=APP)
    shown = await site.lines()
    assert {line["kind"] for line in shown} == {"refusal"}
    assert [(line["status"], line.get("account"), line["route"]) for line in shown] == [
        (401, None, "GET /v1/views/{view}"),
        (401, None, "GET /v1/tables\n/x\x1b"),
        (401, None, "GET /v1/status"),
        (403, "app", "POST /v1/sql"),
        (403, "app", "POST /v1/sql"),
        (403, "app", "POST /v1/sql"),
        (403, "app", "PATCH /v1/tables/{table}/rows"),
        (403, "app", "GET /v1/status"),
        (401, None, "HEAD /v1/views/ByAuthor"),
        (403, "app", "POST /v1/migrations"),
    ]
    assert shown[0]["on"] == "ByAuthor"
    assert shown[2]["tried"] == "bob"
    assert shown[3]["statement"] == shown[9]["statement"] == "DROP TABLE stories"
    assert 'no DROP on "stories"' in shown[3]["why"]
    assert "hunter2" not in json.dumps(shown)
    for _ in range(12):
        await http.get("/v1/status", headers={"Authorization": "Bearer hrk_no"})
    assert (await site.lines())[-1]["status"] == 429


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("CREATE TABLE n (id INT PRIMARY KEY)", "ok"),
        ("ALTER TABLE stories ADD UNIQUE (author)", "constraint_violation"),
    ],
)
async def test_what_became_of_a_migration_is_recorded(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, sql: str, code: str
) -> None:
    monkeypatch.setattr(auditing, "LOOK_SECONDS", 0.01)
    site = await begin()
    await site.sql("INSERT INTO stories VALUES (11, 5, 'a'), (12, 5, 'b')")
    queued = (await site.http.post("/v1/migrations", json={"sql": sql}, headers=ANN)).json()["id"]
    told: list[dict[str, Any]] = []
    for _ in range(2_000):
        told += [line for line in await site.lines() if line.get("route") == "POST /v1/migrations"]
        if len(told) == 2:
            break
        await asyncio.sleep(0.01)
    assert [(line["on"], line.get("status"), line["code"]) for line in told] == [
        (queued, 202, "ok"),
        (queued, None, code),
    ]
    assert {line["statement"] for line in told} == {sql}
    assert {line["account"] for line in told} == {"ann"}


async def test_a_migration_that_outlives_its_server_is_recorded_as_unknown(begin: Begin) -> None:
    site = await begin()
    await site.http.post("/v1/migrations", json={"sql": "CREATE TABLE n (id INT PRIMARY KEY)"}, headers=ANN)
    await site.door.close()
    assert [line["code"] for line in await site.lines()] == ["ok", "unknown"]


async def test_operations_are_recorded(begin: Begin) -> None:
    site = await begin()
    await site.http.post("/v1/views/ByAuthor/evict", json={"keys": [[7]]}, headers=ANN)
    await site.http.post("/v1/archive", headers=ANN)
    answer = await site.http.post("/v1/migrations", json={"sql": "CREATE TABLE n (id INT PRIMARY KEY)"}, headers=ANN)
    assert answer.status_code < 300
    await site.http.get("/v1/status", headers=ANN)
    assert [(line["kind"], line["route"], line["status"], line["code"]) for line in await site.lines()] == [
        ("operation", "POST /v1/views/ByAuthor/evict", 200, "ok"),
        ("operation", "POST /v1/archive", 400, "bad_request"),
        ("definition", "POST /v1/migrations", answer.status_code, "ok"),
    ]


async def test_the_address_is_the_one_that_a_proxy_of_ours_names(begin: Begin) -> None:
    site = await begin()
    for header in ("198.51.100.7", "203.0.113.9, 198.51.100.7"):
        headers = {**ANN, "X-Forwarded-For": header}
        await site.sql("CREATE OR REPLACE VIEW w AS SELECT id FROM stories", headers)
        assert [line["address"] for line in await site.lines()] == ["198.51.100.7"]


async def test_what_cannot_be_recorded_is_not_done(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    site = await begin()
    write = os.write

    def full(number: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("controller.access.audit_log.AGAIN_SECONDS", 0.02)
    monkeypatch.setattr("controller.access.audit_file.os.write", full)
    assert (await site.http.get("/v1/views/ByAuthor?author=7")).status_code == 401
    for _ in range(200):  # The thread finds out.
        if site.log.status()["failing"]:
            break
        await asyncio.sleep(0.01)
    for answer in (
        await site.sql("INSERT INTO stories VALUES (5, 7, 'five'); CREATE TABLE no (id INT PRIMARY KEY)"),
        await site.sql("GRANT SELECT ON stories TO app"),
        await site.http.post("/v1/migrations", json={"sql": "CREATE TABLE no (id INT PRIMARY KEY)"}, headers=ANN),
        await site.http.post("/v1/views/ByAuthor/evict", json={"keys": [[7]]}, headers=ANN),
    ):
        assert answer.status_code == 503, answer.text
        assert "audit log cannot be written" in answer.json()["error"]["message"]
    assert [each.name for each in site.deployment.tables()] == ["stories"]
    assert (await site.sql("INSERT INTO stories VALUES (6, 7, 'six')")).status_code == 200, "data is not recorded"
    status = (await site.http.get("/v1/status", headers=ANN)).json()
    assert "audit log cannot be written" in status["health"]
    shown = (await site.http.get("/metrics", headers=ANN)).text
    assert "headrace_audit_failing 1.0" in shown
    monkeypatch.setattr("controller.access.audit_file.os.write", write)
    for _ in range(200):
        if not site.log.status()["failing"]:
            break
        await asyncio.sleep(0.01)
    assert (await site.sql("GRANT SELECT ON stories TO app")).status_code == 200
    assert (await site.http.get("/v1/status", headers=ANN)).json()["health"] == "ok"


async def test_data_that_cannot_be_recorded_is_not_read(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    site = await begin(data="statements")
    monkeypatch.setattr("controller.access.audit_log.QUEUE_EVENTS", 0)
    for method, path, body in DATA:
        assert (await site.http.request(method, path, json=body, headers=ANN)).status_code == 503, path
    site.log._refuses = False
    assert (await site.http.get("/v1/views/ByAuthor?author=7", headers=ANN)).status_code == 200
    assert site.log.status()["lost"] == 1
