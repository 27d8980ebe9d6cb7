"""Who may what: every endpoint and every kind of statement, asked by accounts of each right, checked both ways."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from time import time
from types import MappingProxyType, SimpleNamespace

import httpx
import pytest
from argon2 import PasswordHasher
from fastapi import APIRouter

from api import app as app_module
from api.app import create_app
from controller.access.accounts import Account, ApiKey, administrator, seconds
from controller.access.keeper import Keeper
from controller.access.passwords import Passwords, key_digest, new_id
from controller.embedded.local import LocalDeployment
from migrations.access.rights import NO_RIGHTS, Privilege, Rights
from migrations.access.statements import DECLARED
from migrations.parse.reading import parse
from tests.attack.who_may import ANYBODY, ENDPOINTS, SCHEMA, STATEMENTS
from zookeeper.accounts import FileAccounts

REFUSED = (401, 403)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


def account(name: str, rights: Rights = NO_RIGHTS) -> Account:
    """One whose key is ``hrk_`` and its name."""
    return Account(name, new_id(), rights=rights, keys=(ApiKey(new_id(), "", key_digest(f"hrk_{name}")),))


class Served:
    """A deployment with accounts, and its application."""

    def __init__(self, deployment: LocalDeployment, keeper: Keeper, http: httpx.AsyncClient) -> None:
        self.deployment, self.keeper, self.http = deployment, keeper, http

    async def sql(self, sql: str, headers: dict[str, str]) -> httpx.Response:
        return await self.http.post("/v1/sql", json={"sql": sql}, headers=headers)

    async def done(self, sql: str, headers: dict[str, str]) -> list[list[object]]:
        answer = await self.sql(sql, headers)
        assert answer.status_code == 200, answer.text
        rows: list[list[object]] = answer.json()["results"][-1]["rows"]
        return rows


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    deployment = await LocalDeployment.open(tmp_path, memory_limit=64_000_000)
    await deployment.execute(SCHEMA)
    cheap = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    keeper = deployment.accounts = Keeper(FileAccounts(tmp_path), cheap)
    await keeper.start()
    app = create_app(deployment, proxies=["192.0.2.0/24"])
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://served") as http:
        yield Served(deployment, keeper, http)
    await app.close()
    await deployment.close()


ANN = bearer("hrk_ann")


@pytest.fixture
async def closed(served: Served) -> Served:
    """With ``ann``, an administrator."""
    password = await served.keeper.passwords.made("a long one")
    ann = administrator("ann", new_id(), password, account("ann"))
    await served.keeper.change("ann", lambda before: ann)
    return served


async def test_every_endpoint_for_each_right(closed: Served) -> None:
    listed = (await closed.http.get("/openapi.json")).json()["paths"]
    assert {f"{method.upper()} {path}" for path, calls in listed.items() for method in calls} == set(ENDPOINTS)
    keys: dict[str, set[Privilege]] = {}
    for privilege in Privilege:
        name = privilege.replace(" ", "_")
        keys[f"hrk_{name}"] = {privilege}
        holder = account(name, Rights({"*": frozenset({privilege})}))
        await closed.keeper.change(name, lambda before, holder=holder: holder)
    keys["hrk_ann"] = set(Privilege)
    for route, (path, body, needed) in ENDPOINTS.items():
        method = route.split()[0]
        nobody = await closed.http.request(method, path, json=body)
        assert (nobody.status_code in REFUSED) == (needed != ANYBODY), (route, nobody.text)
        assert nobody.status_code != 403
        for key, held in keys.items():
            answer = await closed.http.request(method, path, json=body, headers=bearer(key))
            may = isinstance(needed, str) or needed <= held
            assert (answer.status_code == 403) == (not may), (route, key, answer.status_code, answer.text)
            if not may:
                assert answer.json()["error"]["code"] == "forbidden"
                assert "GRANT" in answer.json()["error"]["hint"]


async def test_every_statement_for_each_right(closed: Served) -> None:
    kinds = {type(each.expression) for sql, _ in STATEMENTS for each in parse(sql) if each.account is None}
    assert all(any(issubclass(kind, declared) for kind in kinds) for declared in DECLARED), "a kind is not tried"
    said = {type(each.account).__name__ for sql, _ in STATEMENTS for each in parse(sql) if each.account is not None}
    assert len(said) == 10, said  # DROP API KEY is tried below: it needs an id.
    for sql, needed in STATEMENTS:
        assert (await closed.sql(sql, {})).status_code == 401
        for missing in sorted(needed):
            assert await asked(closed, sql, needed - {missing}) == 403, (sql, f"without {missing}")
        assert await asked(closed, sql, needed) not in REFUSED, sql


async def asked(closed: Served, sql: str, held: set[tuple[Privilege, str]]) -> int:
    rights: dict[str, frozenset[Privilege]] = {}
    for privilege, on in held:
        rights[on] = rights.get(on, frozenset()) | {privilege}
    await closed.keeper.change("probe", lambda before: account("probe", Rights(rights)))
    return (await closed.sql(sql, bearer("hrk_probe"))).status_code


def test_a_route_that_declares_nothing_makes_no_application(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = APIRouter()

    @silent.get("/v1/everything")
    async def everything() -> None: ...

    monkeypatch.setattr(app_module, "ROUTERS", (silent,))
    with pytest.raises(AssertionError, match="/v1/everything"):
        create_app(DeploymentWithout())  # type: ignore[arg-type]


class DeploymentWithout:
    accounts = None
    live = SimpleNamespace(status=dict)
    sessions = SimpleNamespace()

    def read_within(self, limits: object, beside: object) -> None: ...


async def test_without_accounts_everything_is_open_and_the_first_is_an_administrator(served: Served) -> None:
    assert (await served.http.get("/v1/status")).status_code == 200
    for sql in ("CREATE USER app IDENTIFIED BY 'x'", "CREATE ROLE reader"):
        answer = await served.sql(sql, {})
        assert answer.status_code == 400
        assert "headrace admin" in answer.json()["error"]["hint"]
    assert (await served.sql("SELECT word FROM secrets", {})).status_code == 200


async def test_another_process_makes_the_first_and_the_server_closes(served: Served, tmp_path: Path) -> None:
    beside = Keeper(FileAccounts(tmp_path), served.keeper.passwords)
    kept = await served.keeper.passwords.made("a long one")
    await beside.change("ann", lambda before: administrator("ann", new_id(), kept, before))
    assert (tmp_path / "accounts.json").stat().st_mode & 0o777 == 0o600
    assert "a long one" not in (tmp_path / "accounts.json").read_text()
    await until(lambda: served.keeper.closed)
    assert (await served.sql("SELECT word FROM secrets", {})).status_code == 401
    assert (await served.sql("SELECT word FROM secrets", basic("ann", "a long one"))).status_code == 200
    (tmp_path / "accounts.json").write_text("{")
    assert (await served.sql("SELECT word FROM secrets", {})).status_code == 401


async def until(holds: Callable[[], bool]) -> None:
    """Within the two seconds that are promised."""
    async with asyncio.timeout(2):
        while not holds():
            await asyncio.sleep(0.02)


async def test_an_application_is_given_a_view_and_no_table(closed: Served) -> None:
    await closed.done("CREATE USER 'app'@'%' IDENTIFIED BY 'sesame'", ANN)
    await closed.done("CREATE ROLE reader; GRANT SELECT ON ByAuthor TO reader; GRANT reader TO app", ANN)
    app = basic("app", "sesame")
    assert (await closed.http.get("/v1/views/ByAuthor?author=7", headers=app)).json()["rows"][0]["title"] == "one"
    for path in ("Words?id=1", "nothing?id=1"):  # What is not there is told apart by nobody.
        assert (await closed.http.get(f"/v1/views/{path}", headers=app)).status_code == 403
    both = {"lookups": [{"view": "ByAuthor", "keys": [[7]]}, {"view": "words", "keys": [[1]]}]}
    for _ in range(2):  # Also where the answer is kept.
        await closed.http.post("/v1/lookups", json=both, headers=ANN)
        answer = await closed.http.post("/v1/lookups", json=both, headers=app)
        assert answer.status_code == 403
        assert "abracadabra" not in answer.text
    wrong = {"lookups": [{"view": "Words", "keys": [["no", "such", "key"]]}]}
    assert (await closed.http.post("/v1/lookups", json=wrong, headers=app)).status_code == 403
    assert [each["name"] for each in (await closed.http.get("/v1/views", headers=app)).json()["views"]] == ["ByAuthor"]
    assert (await closed.http.get("/v1/views", headers=app)).json()["views"][0]["sql"] == ""
    assert (await closed.http.get("/v1/tables", headers=app)).json()["tables"] == []
    assert await closed.done("SHOW TABLES", app) == [["ByAuthor"]]
    assert await closed.done("SHOW GRANTS", app) == [
        ["GRANT USAGE ON *.* TO `app`@`%`"],
        ["GRANT `reader` TO `app`@`%`"],
    ]
    assert await closed.done("SHOW GRANTS FOR reader", ANN) == [["GRANT SELECT ON `byauthor` TO `reader`"]]
    update = {"rows": [{"id": 1}], "on_duplicate": "update"}
    await closed.done("GRANT INSERT ON stories TO app", ANN)
    assert (await closed.http.post("/v1/tables/stories/rows", json=update, headers=app)).status_code == 403


async def test_what_is_revoked_is_gone_with_the_next_request(closed: Served) -> None:
    await closed.done("CREATE ROLE reader; GRANT SELECT ON ByAuthor TO reader", ANN)
    await closed.done("CREATE USER app IDENTIFIED BY 'sesame'; GRANT reader TO app", ANN)
    app, path = basic("app", "sesame"), "/v1/views/ByAuthor?author=7"
    ((id, key),) = await closed.done("CREATE API KEY 'site' FOR app", app)
    by_key = bearer(str(key))

    async def status(headers: dict[str, str]) -> int:
        return (await closed.http.get(path, headers=headers)).status_code

    assert (await status(app), await status(by_key)) == (200, 200)
    await closed.done("REVOKE reader FROM app", ANN)
    assert (await status(app), await status(by_key)) == (403, 403)
    await closed.done("GRANT reader TO app", ANN)
    await closed.done("DROP ROLE reader; CREATE ROLE reader; GRANT SELECT ON ByAuthor TO reader", ANN)
    assert await status(app) == 403, "a role that is made anew has no members"
    await closed.done("GRANT reader TO app", ANN)
    await closed.done(f"DROP API KEY '{id}'", app)
    assert (await status(app), await status(by_key)) == (200, 401)
    await closed.done("ALTER USER app IDENTIFIED BY 'another'", app)
    assert (await status(app), await status(basic("app", "another"))) == (401, 200)
    await closed.done("ALTER USER app EXPIRE '2020-01-01 00:00:00'", ANN)
    assert await status(basic("app", "another")) == 401
    await closed.done("ALTER USER app EXPIRE NEVER ACCOUNT LOCK", ANN)
    assert await status(basic("app", "another")) == 401
    await closed.done("ALTER USER app ACCOUNT UNLOCK", ANN)
    assert await status(basic("app", "another")) == 200
    await closed.done("DROP USER app", ANN)
    assert await status(basic("app", "another")) == 401


async def test_nobody_gives_or_gets_what_they_have_not(closed: Served) -> None:
    await closed.done("CREATE USER hr IDENTIFIED BY 'hr'; GRANT CREATE USER, SELECT ON * TO hr", ANN)
    await closed.done("CREATE USER dba IDENTIFIED BY 'dba'; GRANT ALL ON * TO dba", ANN)
    hr = basic("hr", "hr")
    for sql in (
        "ALTER USER ann IDENTIFIED BY 'mine'",
        "CREATE API KEY 'x' FOR ann",
        "CREATE API KEY 'x' FOR dba",
        "DROP USER dba",
        "GRANT ALL ON * TO hr",
        "GRANT SELECT ON * TO hr WITH GRANT OPTION",
        "REVOKE ALL, GRANT OPTION FROM ann",
    ):
        assert (await closed.sql(sql, hr)).status_code == 403, sql
    await closed.done("CREATE ROLE everything; GRANT ALL ON * TO everything WITH GRANT OPTION", ANN)
    assert (await closed.sql("GRANT everything TO hr", hr)).status_code == 403
    assert (await closed.sql("GRANT DELETE ON stories TO hr", basic("dba", "dba"))).status_code == 403
    for sql in ("DROP USER ann", "ALTER USER ann ACCOUNT LOCK", "REVOKE ALL, GRANT OPTION FROM ann"):
        answer = await closed.sql(sql, ANN)
        assert (answer.status_code, "last administrator" in answer.text) == (400, True), sql


async def test_guesses_at_once_are_counted_as_guesses_one_after_another(closed: Served) -> None:
    guesses = await asyncio.gather(*(closed.sql("SELECT 1", basic("ann", f"guess {n}")) for n in range(30)))
    assert sorted(each.status_code for each in guesses) == [401] * 10 + [429] * 20


async def test_a_password_that_many_connections_send_at_once_is_verified_once(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    fits = closed.keeper.passwords.fits

    async def counted(password: str, kept: str | None) -> bool:
        asked.append(password)
        return await fits(password, kept)

    monkeypatch.setattr(closed.keeper.passwords, "fits", counted)
    answers = await asyncio.gather(*(closed.sql("SELECT 1", basic("ann", "a long one")) for _ in range(30)))
    assert {each.status_code for each in answers} == {200}
    assert len(asked) == 1


async def test_wrong_names_and_passwords_are_one_answer_and_not_endless(closed: Served) -> None:
    answers = [(await closed.sql("SELECT 1", basic(*each))) for each in (("ann", "no"), ("nobody", "no"), ("ann", ""))]
    assert {each.status_code for each in answers} == {401}
    assert len({each.text for each in answers}) == 1
    assert "Basic" in answers[0].headers["www-authenticate"]
    statuses = [(await closed.sql("SELECT 1", bearer(f"hrk_{n}"))).status_code for n in range(10)]
    assert (statuses[0], statuses[-1]) == (401, 429)
    fresh = account("fresh", Rights({"*": frozenset({Privilege.SELECT})}))
    await closed.keeper.change("fresh", lambda before: fresh)
    assert (await closed.sql("SELECT 1", bearer("hrk_fresh"))).status_code == 200, "a key that is valid"
    assert (await closed.sql("SELECT 1", basic("fresh", "guess"))).status_code == 429
    assert (await closed.sql("SELECT 1", {})).status_code == 401
    elsewhere = [("X-Forwarded-For", "192.0.2.1, 198.51.100.7"), *bearer("x").items()]
    assert (await closed.http.get("/v1/status", headers=elsewhere)).status_code == 401, "the proxy's other clients"
    forged = [("X-Forwarded-For", "198.51.100.9, 192.0.2.1"), ("X-Forwarded-For", "198.51.100.7"), *bearer("x").items()]
    later = [(await closed.http.get("/v1/status", headers=forged)).status_code for _ in range(10)]
    assert (later[0], later[-1]) == (401, 429), "what a client says itself stands before what the proxy adds"
    twice = [("Authorization", "Bearer hrk_ann"), ("Authorization", "Bearer x")]
    assert (await closed.http.post("/v1/sql", json={"sql": "SELECT 1"}, headers=twice)).status_code == 401


async def test_who_tries_names_learns_of_none(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever there is of a name, and however it fails: one hash is computed, and the answer is the same."""
    await closed.done("CREATE USER locked IDENTIFIED BY 'sesame' ACCOUNT LOCK; CREATE ROLE readers", ANN)
    await closed.keeper.change("keys", lambda before: account("keys"))
    passwords, hashes = closed.keeper.passwords, []
    await passwords.fits("x", None)
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

    class Counting:
        def verify(self, kept: str, password: str) -> bool:
            hashes.append(kept)
            return hasher.verify(kept, password)

    monkeypatch.setattr(passwords, "_hasher", Counting())
    answers = set()
    tried = [
        ("ann", "guess"),
        ("nobody", "guess"),
        ("locked", "sesame"),
        ("locked", "x"),
        ("readers", ""),
        ("keys", "x"),
    ]
    for number, each in enumerate(tried, start=1):
        answers.add((answer := await closed.sql("SELECT 1", basic(*each))).text)
        assert (answer.status_code, len(hashes)) == (401, number), each
    assert len(answers) == 1


async def test_a_role_expires_for_its_members_and_verifiers_are_kept_on_request(closed: Served) -> None:
    await closed.done("CREATE USER old IDENTIFIED WITH mysql_native_password BY 'x'", ANN)
    kept = closed.keeper.accounts.get("old")
    assert kept is not None
    assert kept.verifiers == {"mysql_native_password": "b69027d44f6e5edc07f1aead1477967b16f28227"}
    await closed.done("CREATE USER new IDENTIFIED BY 'x'", ANN)
    new = closed.keeper.accounts.get("new")
    assert new is not None
    assert new.verifiers == MappingProxyType({})
    await closed.done("CREATE ROLE reader; GRANT SELECT ON ByAuthor TO reader; GRANT reader TO new", ANN)
    path = "/v1/views/ByAuthor?author=7"
    assert (await closed.http.get(path, headers=basic("new", "x"))).status_code == 200
    await closed.keeper.change("reader", lambda role: None if role is None else replace(role, expires="2020-01-01"))
    assert (await closed.http.get(path, headers=basic("new", "x"))).status_code == 403


async def test_passwords_stand_in_no_list_and_no_error(closed: Served) -> None:
    for sql in (
        "CREATE USER x IDENTIFIED BY 'hunter2' 'hunter2'",
        "CREATE USER x IDENTIFIED BY hunter2",
        "ALTER USER nobody IDENTIFIED BY 'hunter2'",
    ):
        answer = await closed.sql(sql, ANN)
        assert answer.status_code >= 400
        assert "hunter2" not in answer.text.lower()
    shown = await closed.done("CREATE USER y IDENTIFIED BY 'hunter2'; SHOW FULL PROCESSLIST", ANN)
    assert "hunter2" not in str(shown)
    assert "IDENTIFIED" in str(shown)


async def test_who_is_here_and_who_reads_a_view(closed: Served) -> None:
    await closed.keeper.change("bob", lambda before: account("bob"))
    await closed.done("GRANT SELECT ON ByAuthor TO bob; GRANT METRICS ON * TO bob", ANN)
    bob = bearer("hrk_bob")
    begun = time()
    assert (await closed.http.get("/v1/views/byauthor?author=7", headers=bob)).status_code == 200
    stats = (await closed.http.get("/v1/views/ByAuthor/stats", headers=ANN)).json()
    assert [(each["account"], each["live"]) for each in stats["readers"]] == [("bob", 0)]
    assert abs(seconds(stats["readers"][0]["last_read"]) - begun) < 60
    assert 0 <= stats["counted"] < 600
    assert (await closed.http.get("/v1/views/ByAuthor/stats", headers=bob)).json()["readers"] is None
    sessions = (await closed.http.get("/v1/sessions", headers=ANN)).json()["sessions"]
    assert [(each["account"], each["way"], each["credentials"]) for each in sessions] == [
        ("ann", "key", 1),
        ("bob", "key", 1),
    ]
    assert sessions[0]["last_read"] is None
    assert sessions[1]["last_read"] == stats["readers"][0]["last_read"]
    told = await closed.http.get("/v1/accounts", headers=ANN)
    ann, bobs = told.json()["accounts"]
    assert (ann["account"], ann["ways"], len(ann["keys"]), ann["locked"]) == ("ann", ["password"], 1, False)
    assert bobs["grants"] == ["GRANT METRICS ON *.* TO `bob`@`%`", "GRANT SELECT ON `byauthor` TO `bob`@`%`"]
    for secret in ("argon2", "hrk_", "sha256"):
        assert secret not in told.text
    await closed.done("REVOKE SELECT ON ByAuthor FROM bob", ANN)
    assert (await closed.http.get("/v1/views/ByAuthor?author=7", headers=bob)).status_code == 403
    stats = (await closed.http.get("/v1/views/ByAuthor/stats", headers=ANN)).json()
    assert [each["account"] for each in stats["readers"]] == ["bob"], "it did read it"
