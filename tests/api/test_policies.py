"""No lane passes a row policy: every endpoint and every kind of statement is tried, and shows what policies let through
or refuses by name; also with warm caches, two users and one text, and when policies and rights come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from test_rights import Served, account, bearer

from api.app import create_app
from controller.access.accounts import administrator
from controller.access.keeper import Keeper
from controller.access.passwords import Passwords, new_id
from controller.access.session import Caller
from controller.cluster.serving.connections import ReaderMaps
from controller.cluster.serving.deployment import ClusterDeployment
from controller.deployment import RequestMoment
from controller.embedded.local import LocalDeployment
from controller.serving import Serving
from domains.errors import Forbidden, ReadTimeout, SqlError, StillInUse, Unavailable, Unsupported
from migrations.access.policies import _REACHED
from migrations.access.rights import Privilege, Rights
from migrations.access.statements import DECLARED
from migrations.parse.reading import parse
from tests.attack.who_may import ENDPOINTS
from tests.kit.cluster_deployment import open_cluster
from worker.protocol.messages import Role
from worker.reader_map import ReaderClient
from worker.wire.connection import greeting
from zookeeper.accounts import FileAccounts

SECRET = "xyzzy"
NOTED = "FOREIGN KEY (story) REFERENCES stories (id) ON DELETE CASCADE"
SCHEMA = f"""
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(40));
CREATE TABLE notes (id INT PRIMARY KEY, story INT, {NOTED});
CREATE TABLE plain (id INT PRIMARY KEY, a INT, t VARCHAR(40));
CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?;
CREATE EXT VIEW ById AS SELECT id, title FROM stories WHERE id = ?;
CREATE EXT VIEW Titles AS SELECT title FROM stories;
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n FROM stories;
CREATE EXT VIEW Latest AS SELECT id, title FROM stories ORDER BY id DESC LIMIT 1;
CREATE EXT VIEW Named AS SELECT name, title FROM users JOIN stories ON author = users.id;
CREATE EXT VIEW Through AS SELECT n FROM Counted;
INSERT INTO users VALUES (7, 'seven'), (8, 'eight');
INSERT INTO stories VALUES (1, 7, 'one'), (2, 8, '{SECRET} two'), (3, 8, '{SECRET} three'), (4, NULL, '{SECRET} four');
INSERT INTO plain VALUES (1, 1, 'p'), (2, 1, 'q');
INSERT INTO notes VALUES (1, 2)
"""
POLICY = "CREATE POLICY own ON stories FOR SELECT USING (author = CURRENT_CLAIM('sub'))"
NOTES = "CREATE POLICY none ON notes FOR SELECT USING (FALSE)"
VIEWS = {
    "ByAuthor?author=8": 0,
    "ById?id=2": 0,
    "Titles": 1,
    "Counted": 1,
    "Latest": 1,
    "Named": 1,
    "Through": 1,
}
"""Views, and the number of rows that user 7 sees."""
STATEMENTS: list[tuple[str, object]] = [
    ("SELECT 1", [[1]]),
    ("SELECT id FROM stories", [[1]]),
    ("SELECT id FROM stories WHERE title LIKE 'xyz%'", []),
    ("SELECT COUNT(*), MAX(title), GROUP_CONCAT(title) FROM stories", [[1, "one", "one"]]),
    ("SELECT id FROM stories WHERE id IN (1, 2, 3)", [[1]]),
    ("SELECT id FROM stories ORDER BY id DESC LIMIT 1", [[1]]),
    ("SELECT a.id, b.id FROM stories a JOIN stories b ON a.id <> b.id", []),
    ("SELECT id FROM users WHERE id NOT IN (SELECT author FROM stories WHERE author IS NOT NULL)", [[8]]),
    ("SELECT name, title FROM users LEFT JOIN stories ON author = users.id", [["seven", "one"], ["eight", None]]),
    (
        "SELECT name, (SELECT COUNT(*) FROM stories WHERE author = u.id) AS n FROM users u",
        [["eight", 0], ["seven", 1]],
    ),
    ("SELECT EXISTS (SELECT 1 FROM stories WHERE id = 2) AS there", [[0]]),
    ("WITH s AS (SELECT * FROM stories) SELECT COUNT(*) AS n FROM s", [[1]]),
    ("SELECT id FROM stories UNION ALL SELECT id FROM stories", [[1], [1]]),
    ("SELECT title FROM Titles", [["one"]]),
    ("SELECT n FROM Through", [[1]]),
    ("SELECT SUM(title + 0) AS s FROM stories", [[0]]),
    ("SELECT id, ROW_NUMBER() OVER (ORDER BY id DESC) AS place FROM stories", [[1, 1]]),
    ("SELECT MOD(id, 0) AS m, CAST(title AS SIGNED) AS c FROM stories", [[None, 0]]),
    ("SELECT id FROM stories " + "/* a long text */" * 700, [[1]]),
    ("EXPLAIN SELECT id FROM stories", 403),
    ("EXPLAIN ANALYZE SELECT id FROM stories", 403),
    ("EXPLAIN SELECT n FROM Through", 403),
    ("EXPLAIN Counted", 200),
    ("DESCRIBE stories", 200),
    ("SHOW TABLES", 200),
    ("SHOW QUERIES", 200),
    ("SHOW PROCESSLIST", 200),
    ("SHOW POLICIES", 200),
    ("SHOW CREATE VIEW Titles", 200),
    ("SET @n = (SELECT COUNT(*) FROM stories); SELECT @n", [[1]]),
    ("SET @t = (SELECT title FROM stories WHERE id = 2); SELECT @t", [[None]]),
    ("USE headrace", 200),
    ("BEGIN", 400),
    ("COMMIT", 200),
    ("ROLLBACK", 200),
    ("KILL 999", 404),
    ("INSERT INTO stories VALUES (9, 7, 'mine')", 403),
    ("INSERT IGNORE INTO stories VALUES (2, 7, 'mine')", 403),
    ("REPLACE INTO stories VALUES (2, 7, 'mine')", 403),
    ("INSERT INTO stories VALUES (2, 7, 'mine') ON DUPLICATE KEY UPDATE title = CONCAT(title, 'x')", 403),
    ("INSERT INTO stories SELECT id + 20, 7, t FROM plain RETURNING title", 403),
    (f"INSERT INTO stories VALUES (9, 7, '{'m' * 30}'){' ' * 2_000}", 403),
    ("UPDATE stories SET title = 'x'", 0),
    ("UPDATE stories SET title = 'x' WHERE id = 1", 0),
    ("UPDATE IGNORE stories SET title = 'x' WHERE id = 1", 0),
    ("UPDATE stories SET title = 'x' WHERE JSON_EXTRACT(title, '$.a') = 1 AND id > 1", 0),
    ("UPDATE plain JOIN stories ON stories.id = plain.id SET stories.title = 'x'", 0),
    ("DELETE FROM stories WHERE id = 2 RETURNING title", []),
    ("DELETE stories FROM stories JOIN plain ON plain.id = stories.id", 0),
    ("TRUNCATE TABLE stories", 403),
    ("INSERT INTO plain SELECT id + 100, 0, title FROM stories RETURNING t", [["one"]]),
    ("UPDATE plain SET t = (SELECT MAX(title) FROM stories) WHERE id = 2", 1),
    ("UPDATE plain SET a = 5 WHERE id IN (SELECT id FROM stories)", 1),
    ("UPDATE plain JOIN stories ON stories.id = plain.id SET plain.t = stories.title", 1),
    ("DELETE plain FROM plain JOIN stories ON stories.id = plain.id", 1),
    ("CREATE TABLE copied AS SELECT id, title FROM stories", 1),
    ("CREATE TABLE alike LIKE stories", 200),
    ("CREATE EXT VIEW Another AS SELECT title FROM stories WHERE id > ?", 200),
    ("CREATE OR REPLACE VIEW Another AS SELECT title, id FROM stories", 200),
    ("CREATE UNIQUE INDEX u ON stories (title)", 403),
    ("ALTER TABLE stories ADD UNIQUE (title)", 403),
    ("ALTER TABLE stories ADD CHECK (id < 3)", 403),
    ("RENAME TABLE stories TO others", 403),
    ("CREATE POLICY all_of_it ON stories USING (TRUE)", 403),
    ("DROP POLICY own ON stories", 403),
    ("DROP TABLE copied", 200),
]
AT_LAST = ["SELECT t FROM plain", "SELECT COUNT(*) AS n FROM alike"]


def claims(sub: Any) -> dict[str, str]:
    return {"Headrace-Claims": json.dumps({"sub": sub} if sub is not None else {})}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    deployment = await LocalDeployment.open(tmp_path, memory_limit=64_000_000)
    await deployment.execute(SCHEMA)
    await deployment.execute(f"{POLICY}; {NOTES}")
    cheap = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    keeper = deployment.accounts = Keeper(FileAccounts(tmp_path), cheap)
    await keeper.start()
    app = create_app(deployment)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://served") as http:
        yield Served(deployment, keeper, http)
    await app.close()
    await deployment.close()


@pytest.fixture
async def closed(served: Served) -> Served:
    """With ``ann``, an administrator, ``app``, which has all rights but to bypass policies, and ``other``, which may
    not even say for whom it asks."""
    password = await served.keeper.passwords.made("a long one")
    ann = administrator("ann", new_id(), password, account("ann"))
    all_but = frozenset(Privilege) - {Privilege.BYPASS_POLICIES, Privilege.GRANT_OPTION}
    app = account("app", Rights({"*": all_but}))
    other = account("other", Rights({"*": all_but - {Privilege.SET_CLAIMS}}))
    for each in (ann, app, other):
        await served.keeper.change(each.name, lambda before, each=each: each)
    return served


ANN, APP, OTHER = (bearer(f"hrk_{name}") for name in ("ann", "app", "other"))
SEVEN, EIGHT, NOBODY = ({**APP, **claims(sub)} for sub in (7, "8", None))


async def rows(served: Served, view: str, headers: dict[str, str]) -> list[list[Any]]:
    answer = await served.http.get(f"/v1/views/{view}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [list(row.values()) for row in answer.json()["rows"]]


async def test_every_statement(closed: Served) -> None:
    assert set(_REACHED) == set(DECLARED)
    kinds = {type(each.expression) for sql, _ in STATEMENTS for each in parse(sql.partition(";")[0])}
    assert all(any(issubclass(kind, declared) for kind in kinds) for declared in DECLARED), "a kind is not tried"
    before = await closed.done("SELECT * FROM stories ORDER BY id", ANN)
    for sql, wanted in STATEMENTS:
        answer = await closed.sql(sql, SEVEN)
        about = (sql[:80], answer.text)
        assert SECRET not in answer.text, about
        if isinstance(wanted, list):
            assert answer.status_code == 200, about
            found = answer.json()["results"][-1]["rows"]
            assert sorted(found, key=repr) == sorted(wanted, key=repr), about
        elif isinstance(wanted, int) and wanted < 100:
            assert answer.status_code == 200, about
            assert answer.json()["results"][-1]["rows_affected"] == wanted, about
        else:
            assert answer.status_code == wanted, about
            if wanted == 403:
                assert "stories" in answer.text or "BYPASS POLICIES" in answer.text, about
    for sql in AT_LAST:
        assert SECRET not in str(await closed.done(sql, ANN)), sql
    assert await closed.done("SELECT * FROM stories ORDER BY id", ANN) == before
    assert await closed.done("DROP POLICY own ON stories; SELECT COUNT(*) AS n FROM stories", ANN) == [[4]]


async def test_every_endpoint(closed: Served) -> None:
    """By user 7, by nobody, and by applications that say of no user."""
    for route, (path, body, _) in ENDPOINTS.items():
        for headers in (SEVEN, NOBODY, APP, OTHER):
            answer = await closed.http.request(route.split()[0], path, json=body, headers=headers)
            assert SECRET not in answer.text, (route, answer.text)
            if route == "POST /v1/tables/{table}/rows":
                assert (answer.status_code, "no policy lets" in answer.text) == (403, True), answer.text
            elif route.endswith("/rows"):
                assert (answer.status_code, answer.json()["rows_affected"]) == (200, 0), (route, answer.text)
            elif route.endswith("/held"):
                assert "policies of" in answer.json()["error"]["message"]
    for view, count in VIEWS.items():
        assert len(await rows(closed, view, SEVEN)) == count, view
        assert SECRET not in str(await rows(closed, view, SEVEN))
        for headers in (NOBODY, APP, OTHER):
            assert await rows(closed, view, headers) == ([[0]] if view in ("Counted", "Through") else []), view
    for body in ({"lookups": [{"view": "ById", "keys": [[1], [2], [3]]}, {"view": "Titles", "keys": [[]]}]},):
        for _ in range(3):
            answer = await closed.http.post("/v1/lookups", json=body, headers=SEVEN)
            assert answer.json()["results"] == [[[{"id": 1, "title": "one"}], [], []], [[{"title": "one"}]]]
            answer = await closed.http.post("/v1/lookups", json=body, headers=EIGHT)
            assert [len(page) for page in answer.json()["results"][0]] == [0, 1, 1]
            assert (await closed.http.post("/v1/lookups", json=body, headers=OTHER)).json()["results"][0] == [
                [],
                [],
                [],
            ]
    held = await closed.http.get("/v1/views/Titles/held", headers=ANN)
    assert SECRET in held.text
    answer = await closed.http.get("/v1/views/Titles", headers=ANN)
    assert (answer.status_code, "Headrace-Claims" in answer.text) == (400, True)


async def test_who_may_say_for_whom(closed: Served) -> None:
    for header, status in (
        ({**OTHER, **claims(8)}, 403),
        (claims(8), 401),
        ({**APP, "Headrace-Claims": "[8]"}, 400),
        ({**APP, "Headrace-Claims": "{"}, 400),
        ({**APP, "Headrace-Claims": json.dumps({"sub": "x" * 5_000})}, 400),
    ):
        answer = await closed.http.get("/v1/views/Titles", headers=header)
        assert answer.status_code == status, (header, answer.text)
        assert SECRET not in answer.text
    twice = [*APP.items(), *claims(7).items(), *claims(8).items()]
    assert (await closed.http.get("/v1/views/Titles", headers=twice)).status_code == 400
    for sub in ("7", 7):
        assert await rows(closed, "Titles", {**APP, **claims(sub)}) == [["one"]]
    for sub in ("07", " 7", "7.0", 7.0, [7], {"7": 7}, True, "7 OR 1=1", 2**70, "-7", None, ""):
        assert await rows(closed, "Titles", {**APP, **claims(sub)}) == [], sub
    # An administrator that says for whom it asks sees what that user does.
    assert await rows(closed, "Titles", {**ANN, **claims(7)}) == [["one"]]
    assert await closed.done("SELECT COUNT(*) AS n FROM stories", {**ANN, **claims(None)}) == [[0]]


async def test_one_text_of_two_users_with_warm_caches(closed: Served) -> None:
    """Until there is an automatic view, and then of it."""
    seen: dict[str, list[list[Any]]] = {"7": [[1]], "8": [[2], [3]]}
    for number in range(60):
        for sub, wanted in seen.items():
            headers = {**APP, **claims(sub)}
            assert await closed.done("SELECT id FROM stories WHERE id < 9 ORDER BY id", headers) == wanted
            grouped = "SELECT author, COUNT(*) AS n FROM stories WHERE id < 9 GROUP BY author"
            assert await closed.done(grouped, headers) == [[int(sub), len(wanted)]]
        if number % 20 == 10:
            assert await closed.done("SELECT COUNT(*) AS n FROM stories WHERE id < 9", ANN) == [[4]]
            await asyncio.sleep(0.05)
    await closed.deployment.selects.settled()
    await closed.done("INSERT INTO stories VALUES (5, 8, 'five')", ANN)
    assert await closed.done("SELECT id FROM stories WHERE id < 9 ORDER BY id", EIGHT) == [[2], [3], [5]]
    assert await closed.done("SELECT id FROM stories WHERE id < 9 ORDER BY id", SEVEN) == [[1]]
    await closed.done("UPDATE stories SET author = 7 WHERE id = 5", ANN)
    assert await closed.done("SELECT id FROM stories WHERE id < 9 ORDER BY id", SEVEN) == [[1], [5]]
    assert await closed.done("SELECT id FROM stories WHERE id < 9 ORDER BY id", EIGHT) == [[2], [3]]
    # Rights and policies go and come while all of that is warm.
    await closed.keeper.change("app", lambda before: account("app"))
    assert (await closed.sql("SELECT id FROM stories WHERE id < 9 ORDER BY id", SEVEN)).status_code == 403
    assert (await closed.http.get("/v1/views/Titles", headers=SEVEN)).status_code == 403
    rights = Rights({"*": frozenset({Privilege.SELECT, Privilege.QUERY, Privilege.SET_CLAIMS})})
    await closed.keeper.change("app", lambda before: account("app", rights))
    await closed.done("DROP VIEW Through", ANN)
    await closed.done("CREATE POLICY first ON stories FOR SELECT USING (id = 4)", ANN)
    assert await closed.done("SELECT id FROM stories WHERE id < 9 ORDER BY id", SEVEN) == [[1], [4], [5]]
    assert sorted(await rows(closed, "ById?id=4", EIGHT)) == [[4, f"{SECRET} four"]]
    await closed.done("DROP POLICY own ON stories", ANN)
    assert await closed.done("SELECT id FROM stories WHERE id < 9 ORDER BY id", SEVEN) == [[4]]
    assert await rows(closed, "Titles", SEVEN) == [[f"{SECRET} four"]]
    await closed.done("DROP POLICY first ON stories", ANN)
    assert len(await rows(closed, "Titles", SEVEN)) == 5
    assert await closed.done("SELECT COUNT(*) AS n FROM stories", OTHER) == [[5]]
    await closed.done(POLICY, ANN)
    assert await rows(closed, "Titles", OTHER) == []
    assert sorted(await rows(closed, "Titles", SEVEN)) == [["five"], ["one"]]
    assert await closed.done("SELECT COUNT(*) AS n FROM stories", OTHER) == [[0]]


async def test_policies_stay_through_a_restart_and_go_with_their_table(served: Served, tmp_path: Path) -> None:
    deployment = served.deployment
    for number in range(20):
        await deployment.execute(f"CREATE EXT VIEW w{number} AS SELECT id FROM stories WHERE id > {number}")
        await deployment.execute(f"DROP VIEW w{number}")
    await deployment.execute("DROP VIEW Through")  # A view of it that others read cannot have these two.
    await deployment.execute("CREATE POLICY also ON stories USING (id = 4); DROP POLICY also ON stories")
    before = await rows(served, "Titles", claims(8))
    await deployment.close()
    again = await LocalDeployment.open(tmp_path, memory_limit=64_000_000)
    assert [each.name for each in again.state.catalog.policies["stories"]] == ["own"]
    app = create_app(again)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://served") as http:
        other = Served(again, served.keeper, http)
        assert sorted(await rows(other, "Titles", claims(8))) == sorted(before)
        text = again.schema()
        assert text.index("CREATE POLICY `own`") < text.index("CREATE EXT VIEW `Titles`")
        await again.execute("DROP TABLE notes")
        await again.execute("DROP TABLE stories CASCADE")
        assert again.state.catalog.policies == {}
    await app.close()
    await again.close()


async def test_what_is_refused_by_name(served: Served) -> None:
    deployment = served.deployment
    for sql, error, told in (
        ("CREATE POLICY w ON stories FOR SELECT USING (TRUE) WITH CHECK (id > 1)", SqlError, "WITH CHECK"),
        ("CREATE POLICY w ON stories FOR INSERT USING (TRUE)", SqlError, "FOR INSERT"),
        ("CREATE POLICY w ON stories TO app USING (TRUE)", Unsupported, "TO role"),
        ("CREATE POLICY w ON stories AS RESTRICTIVE USING (TRUE)", Unsupported, "RESTRICTIVE"),
        ("CREATE POLICY w ON stories USING (id IN (SELECT 1))", Unsupported, "subquery"),
        ("CREATE POLICY w ON stories USING (RAND() < 0.5)", Unsupported, "RAND"),
        ("SELECT CURRENT_CLAIM('sub')", Unsupported, "outside of a policy"),
        ("CREATE VIEW w AS SELECT id FROM stories WHERE author = CURRENT_CLAIM('sub')", Unsupported, "outside"),
        ("ALTER TABLE stories DROP COLUMN author", StillInUse, 'policy "own"'),
        ("ALTER TABLE stories RENAME COLUMN author TO writer", StillInUse, 'policy "own"'),
        ("ALTER TABLE stories MODIFY author BIGINT", StillInUse, 'policy "own"'),
        ("ALTER TABLE stories DROP COLUMN author, ADD COLUMN author INT", StillInUse, 'policy "own"'),
        (
            "CREATE EXT VIEW w AS SELECT name, title FROM users LEFT JOIN stories ON author = users.id",
            Unsupported,
            "sub",
        ),
    ):
        with pytest.raises(error, match=told.replace("(", r"\(")):
            await deployment.execute(sql)
    await deployment.execute("ALTER TABLE stories ADD COLUMN more INT; RENAME TABLE stories TO tales")
    assert await rows(served, "Titles", claims(7)) == [["one"]]
    answer = await served.sql("SELECT COUNT(*) AS n FROM tales", claims(7))
    assert answer.json()["results"][0]["rows"] == [[1]]
    await deployment.execute("CREATE EXT VIEW Left1 AS SELECT u.name FROM users u LEFT JOIN plain p ON p.a = u.id")
    with pytest.raises(StillInUse, match="Left1"):
        await deployment.execute("CREATE POLICY p ON plain FOR SELECT USING (a = CURRENT_CLAIM('sub'))")
    assert (await served.sql("SELECT COUNT(*) AS n FROM plain", claims(7))).json()["results"][0]["rows"] == [[2]]


@pytest.mark.parametrize("kind", ["sharded", "cluster", "remote"])
async def test_in_several_shards_and_processes(tmp_path: Path, kind: str) -> None:
    if kind == "sharded":
        deployment: Serving = await LocalDeployment.open(tmp_path, memory_limit=64_000_000, domains=2, shards=3)
    else:
        deployment = await open_cluster(tmp_path, maps=kind == "cluster", read_timeout=30, plain=False)
    await deployment.execute(SCHEMA.replace(NOTED, "KEY (story)"))
    app = create_app(deployment)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://served") as http:
        for view in VIEWS:
            await http.get(f"/v1/views/{view}")
        await deployment.execute(POLICY)
        for _ in range(2):
            for view, count in VIEWS.items():
                answer = await http.get(f"/v1/views/{view}", headers=claims(7))
                assert (len(answer.json()["rows"]), SECRET in answer.text) == (count, False), (view, answer.text)
                answer = await http.get(f"/v1/views/{view}", headers=claims("8"))
                assert (SECRET in answer.text) == (view not in ("Counted", "Through")), (view, answer.text)
            for sql in ("SELECT COUNT(*) AS n FROM stories", "SELECT n FROM Through"):
                for sub, n in ((7, 1), (8, 2), (None, 0)):
                    answer = await http.post("/v1/sql", json={"sql": sql}, headers=claims(sub))
                    assert answer.json()["results"][0]["rows"] == [[n]], (sql, sub)
                assert (await http.post("/v1/sql", json={"sql": "SELECT COUNT(*) AS n FROM stories"})).json()[
                    "results"
                ][0]["rows"] == [[4]]
        await deployment.execute("DROP POLICY own ON stories")
        assert len((await http.get("/v1/views/Titles", headers=claims(7))).json()["rows"]) == 4
    await app.close()
    await deployment.close()


WRITES = """
CREATE TABLE mails (id INT PRIMARY KEY AUTO_INCREMENT, owner INT, box VARCHAR(9) DEFAULT 'in', body VARCHAR(40),
  later DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP);
CREATE TABLE labels (id INT PRIMARY KEY, mail INT, FOREIGN KEY (mail) REFERENCES mails (id) ON DELETE CASCADE);
INSERT INTO mails (id, owner, box, body) VALUES (1, 7, 'in', 'a'), (2, 7, 'out', 'b'), (3, 8, 'in', 'xyzzy c'),
  (4, 8, 'sent', 'xyzzy d'), (5, NULL, 'in', 'xyzzy e');
INSERT INTO labels VALUES (1, 3), (2, 1);
CREATE POLICY own ON mails USING (owner = CURRENT_CLAIM('sub'))
  WITH CHECK (owner = CURRENT_CLAIM('sub') AND box <> 'sent');
CREATE POLICY out ON mails FOR SELECT USING (box = 'out')
"""
WRITTEN: list[tuple[str, list[Any], object]] = [
    ("INSERT INTO mails (owner, body) VALUES (7, 'mine')", [], 1),
    ("INSERT INTO mails (owner, body) VALUES (?, ?)", [7, "mine, too"], 1),
    ("INSERT INTO mails (owner, body) VALUES (?, ?)", [8, "another's"], 403),
    ("INSERT INTO mails (owner, body) VALUES (7, 'x'), (8, 'y')", [], 403),
    ("INSERT INTO mails (body) VALUES ('x')", [], 403),
    ("INSERT INTO mails (owner, box) VALUES (7, 'sent')", [], 403),
    ("INSERT INTO mails (owner, body) SELECT owner, 'copied' FROM mails WHERE id < 9", [], 4),
    ("INSERT INTO mails (owner, body) SELECT 8, 'for eight' FROM mails", [], 403),
    ("INSERT INTO mails (owner, body) VALUES " + ", ".join(["(7, 'many')"] * 200), [], 200),
    ("INSERT INTO mails (owner, body) VALUES " + ", ".join(["(8, 'many')"] * 200), [], 403),
    ("INSERT INTO mails (id, owner, body) VALUES (3, 7, 'taken')", [], 409),
    ("UPDATE mails SET body = CONCAT(body, '!') WHERE id < 6", [], 2),
    ("UPDATE mails SET body = ? WHERE id = ?", ["by key", 1], 1),
    ("UPDATE mails SET body = ? WHERE id = ?", ["by key", 3], 0),
    ("UPDATE mails SET body = 'x' WHERE body LIKE 'xyz%' OR owner = 8", [], 0),
    ("UPDATE mails SET owner = 8 WHERE id = 1", [], 403),
    ("UPDATE mails SET box = 'sent' WHERE id = 1", [], 403),
    ("UPDATE mails SET body = (SELECT GROUP_CONCAT(body) FROM mails m WHERE m.id IN (3, 4)) WHERE id = 2", [], 1),
    ("UPDATE mails SET body = CONCAT(body, '.') ORDER BY id LIMIT 1", [], 1),
    ("UPDATE mails SET body = CONCAT(body, '.') WHERE id > 2 LIMIT 2", [], 2),
    ("UPDATE mails AS m SET body = CONCAT(m.body, '.') WHERE m.id > 2 OR TRUE ORDER BY m.id DESC LIMIT 2", [], 2),
    ("UPDATE labels JOIN mails ON mails.id = labels.mail SET mails.body = 'joined'", [], 1),
    ("UPDATE labels SET id = id + 10 WHERE mail IN (SELECT id FROM mails)", [], 1),
    ("DELETE FROM mails WHERE id IN (3, 4, 5)", [], 0),
    ("DELETE FROM mails WHERE body LIKE 'many%'", [], 200),
    ("DELETE FROM mails WHERE id = 2 RETURNING id", [], 1),
    ("DELETE FROM labels", [], 2),
    ("DELETE FROM mails WHERE id = 3 OR body LIKE 'xyz%' RETURNING body", [], 0),
    ("REPLACE INTO mails (id, owner, body) VALUES (3, 7, 'over')", [], 403),
    ("REPLACE INTO mails (id, owner, body) VALUES (1, 7, 'over')", [], 2),
    ("REPLACE INTO mails (id, owner, body) VALUES (1, 8, 'over')", [], 403),
    ("INSERT INTO mails (id, owner) VALUES (3, 7) ON DUPLICATE KEY UPDATE owner = 7", [], 403),
    ("INSERT INTO mails (id, owner) VALUES (3, 7) ON DUPLICATE KEY UPDATE body = CAST(body AS JSON)", [], 403),
    ("INSERT INTO mails (id, owner) VALUES (1, 7) ON DUPLICATE KEY UPDATE body = 'met'", [], 2),
    ("INSERT INTO mails (id, owner) VALUES (1, 7) ON DUPLICATE KEY UPDATE owner = 8", [], 403),
    ("INSERT INTO mails (id, owner) VALUES (1, 8) ON DUPLICATE KEY UPDATE body = 'met'", [], 403),
    ("INSERT IGNORE INTO mails (id, owner) VALUES (3, 7), (4, 7)", [], 0),
    ("INSERT IGNORE INTO mails (id, owner) VALUES (3, 8)", [], 403),
    ("INSERT INTO mails (owner, box) VALUES (7, 'in') RETURNING box", [], 1),
    ("UPDATE IGNORE mails SET id = 3 WHERE id = 1", [], 422),
    ("UPDATE IGNORE mails SET owner = 8 WHERE id = 1", [], 403),
    ("TRUNCATE TABLE mails", [], 403),
]


async def test_writes(closed: Served) -> None:
    """USING says which rows are there to be written, WITH CHECK which may be; another user's stay as they are."""
    await closed.done(WRITES.replace(" xyzzy", SECRET), ANN)
    others = "SELECT id, owner, box, body FROM mails WHERE owner = 8 OR owner IS NULL ORDER BY id"
    before = await closed.done(others, ANN)
    for sql, params, wanted in WRITTEN:
        body = {"sql": sql, "params": params}
        answer = await closed.http.post("/v1/sql", json=body, headers=SEVEN)
        about = (sql[:90], answer.text)
        assert SECRET not in answer.text, about
        if isinstance(wanted, int) and wanted < 300:
            assert answer.status_code == 200, about
            assert answer.json()["results"][-1]["rows_affected"] == wanted, about
        else:
            assert answer.status_code == wanted, about
        assert (await closed.http.post("/v1/sql", json=body, headers=NOBODY)).status_code in (200, 403, 409, 422), about
        assert await closed.done(others, ANN) == before, about
    assert await closed.done("SELECT COUNT(*) AS n FROM mails WHERE body LIKE 'xyz%' AND owner = 7", ANN) == [[0]]
    for method, body, wanted in TABLE_CALLS:
        answer = await closed.http.request(method, "/v1/tables/mails/rows", json=body, headers=SEVEN)
        assert (answer.status_code if wanted >= 400 else answer.json()["rows_affected"]) == wanted, (body, answer.text)
        assert SECRET not in answer.text
        assert await closed.done(others, ANN) == before, body
    assert (await closed.sql("DELETE FROM mails WHERE owner = 8", EIGHT)).json()["results"][0]["rows_affected"] == 2
    rights = Rights({"*": frozenset({Privilege.SELECT, Privilege.QUERY, Privilege.INSERT, Privilege.SET_CLAIMS})})
    await closed.keeper.change("app", lambda before: account("app", rights))
    for sql, _, _ in WRITTEN:
        if not sql.startswith("INSERT IGNORE") and ("DUPLICATE" in sql or not sql.startswith("INSERT")):
            assert (await closed.sql(sql, SEVEN)).status_code in (400, 403), sql
    for method, body, _ in TABLE_CALLS:
        if method != "POST" or body.get("on_duplicate") in ("replace", "update"):
            answer = await closed.http.request(method, "/v1/tables/mails/rows", json=body, headers=SEVEN)
            assert (answer.status_code, "app" in answer.text) == (403, True), answer.text


TABLE_CALLS: list[tuple[str, dict[str, Any], int]] = [
    ("POST", {"rows": [{"id": 50, "owner": 7}]}, 1),
    ("POST", {"rows": [{"owner": 7}, {"owner": 8}]}, 403),
    ("POST", {"rows": [{"owner": 7}], "once": {"stream": "s", "number": 1}}, 1),
    ("POST", {"rows": [{"owner": 8}], "once": {"stream": "s", "number": 2}}, 403),
    ("POST", {"rows": [{"id": 3, "owner": 7}]}, 409),
    ("POST", {"rows": [{"id": 3, "owner": 7}], "on_duplicate": "ignore"}, 0),
    ("POST", {"rows": [{"id": 3, "owner": 7}], "on_duplicate": "replace"}, 403),
    ("POST", {"rows": [{"id": 3, "owner": 7}], "on_duplicate": "update"}, 403),
    ("POST", {"rows": [{"id": 50, "owner": 7, "body": "over"}], "on_duplicate": "replace"}, 2),
    ("POST", {"rows": [{"id": 50, "owner": 7, "body": "over it"}], "on_duplicate": "update"}, 2),
    ("PATCH", {"key": {"id": 50}, "set": {"body": "set"}}, 1),
    ("PATCH", {"key": {"id": 50}, "set": {"owner": 8}}, 403),
    ("PATCH", {"key": {"id": 3}, "set": {"body": "set"}}, 0),
    ("PATCH", {"key": {"owner": 8}, "set": {"body": "set"}}, 0),
    ("DELETE", {"key": {"owner": 8}}, 0),
    ("DELETE", {"key": {"id": 50}}, 1),
]


async def test_a_write_looks_again_at_rows_that_change_hands_meanwhile(closed: Served) -> None:
    await closed.done(WRITES, ANN)

    async def handed(sub: int) -> None:
        for number in range(15):
            await closed.done(f"UPDATE mails SET owner = {(7, 8)[number % 2]} WHERE id = 1", ANN)

    async def written() -> None:
        for _ in range(15):
            answer = await closed.sql("UPDATE mails SET body = CONCAT('by seven ', owner) WHERE id = 1", SEVEN)
            assert answer.status_code == 200, answer.text
            body = await closed.done("SELECT body FROM mails WHERE id = 1", ANN)
            assert body != [["by seven 8"]]

    await asyncio.gather(handed(7), written())


@pytest.mark.parametrize("maps", [True, False])
async def test_who_has_not_heard_of_a_policy_serves_nothing_of_before(tmp_path: Path, maps: bool) -> None:
    """An api process that is cut off from ZooKeeper, for as long as it is, and after it; also by what it reads of the
    workers' maps by itself."""
    deployment = await open_cluster(tmp_path, maps=True, read_timeout=30, plain=True)
    await deployment.execute(SCHEMA.replace(NOTED, "KEY (story)"))
    await deployment.execute(
        "CREATE TABLE boxes (id INT PRIMARY KEY);"
        "CREATE TABLE things (box INT, id INT, owner INT, PRIMARY KEY (box, id),"
        "FOREIGN KEY (box) REFERENCES boxes (id) ON DELETE CASCADE) SHARD BY (box); INSERT INTO boxes VALUES (1);"
        "INSERT INTO things VALUES (1, 1, 8)"
    )
    authority = deployment.zookeeper.authority()
    await authority.start()

    def attach(place: str) -> ReaderClient:
        return next(each.dataflow.client() for each in deployment.workers if each.descriptor.reader_map == place)

    other = await ClusterDeployment.open(
        authority,
        greeting("main", Role.API, "other", 1),
        lambda _: deployment.leader,
        read_timeout=1,
        write_timeout=1,
        maps=ReaderMaps(attach) if maps else None,
    )
    seven = Caller("", None, claims={"sub": 7}, claimed=True)
    moment = RequestMoment(asker=seven)
    sql = "SELECT COUNT(*) AS n FROM stories"
    for _ in range(2):
        results, _ = await other.execute(sql, session=seven)
        assert results[0].rows == ((4,),)
        assert (await other.pages("Titles", [[]], moment=moment))[0].count(SECRET.encode()) == 3
        await other.execute("UPDATE stories SET title = title WHERE id = 2", session=seven)
    before = other.state
    authority.cut()
    own = "CREATE POLICY own ON things USING (owner = CURRENT_CLAIM('sub'))"
    for text in (POLICY, "DROP POLICY own ON stories", f"{POLICY}; {own}"):
        await deployment.execute(text)
        assert other.state is before
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: other.execute(sql, session=seven),
        lambda: other.execute("SELECT title FROM stories WHERE id = 2", session=seven),
        lambda: other.execute("UPDATE stories SET title = 'x' WHERE id = 2", session=seven),
        lambda: other.execute("REPLACE INTO stories VALUES (2, 7, 'x')", session=seven),
        lambda: other.insert("stories", [{"id": 9, "author": 8}], asker=seven),
        lambda: other.execute("DELETE FROM boxes WHERE id = 1", session=seven),
        lambda: other.pages("Titles", [[]], moment=moment),
        lambda: other.pages("ById", [[2]], moment=moment),
    ]
    for attempt in attempts:
        with pytest.raises((Unavailable, ReadTimeout)):
            await attempt()
    authority.mend()
    await other.directory.refresh()
    assert other.directory.connected
    assert (await other.execute(sql, session=seven))[0][0].rows == ((1,),)
    assert (await other.pages("Titles", [[]], moment=moment))[0] == b'{"title":"one"}'
    for text in ("REPLACE INTO stories VALUES (2, 7, 'x')", "DELETE FROM boxes WHERE id = 1"):
        with pytest.raises(Forbidden):
            await other.execute(text, session=seven)
    results, _ = await deployment.execute("SELECT title FROM stories WHERE id = 2 AND author = 8")
    assert results[0].rows == ((f"{SECRET} two",),)
    await other.close()
    await authority.close()
    await deployment.close()
