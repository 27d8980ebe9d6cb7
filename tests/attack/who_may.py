"""Who may what: every endpoint and every kind of statement, with the rights that each needs."""

from __future__ import annotations

from migrations.access.rights import Privilege

P = Privilege
SCHEMA = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT, title TEXT);
CREATE TABLE secrets (id INT PRIMARY KEY, word TEXT);
CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?;
CREATE EXT VIEW Words AS SELECT word FROM secrets WHERE id = ?;
INSERT INTO stories VALUES (1, 7, 'one');
INSERT INTO secrets VALUES (1, 'abracadabra')
"""
ROWS = {"rows": [{"id": 9, "author": 7, "title": "nine"}]}
ANYBODY, ACCOUNTS = "anybody", "accounts"

ENDPOINTS: dict[str, tuple[str, object, set[Privilege] | str]] = {
    "GET /v1/views/{view}": ("/v1/views/ByAuthor?author=7", None, {P.SELECT}),
    "POST /v1/views/{view}/lookup": ("/v1/views/ByAuthor/lookup", {"keys": [[7]]}, {P.SELECT}),
    "POST /v1/lookups": ("/v1/lookups", {"lookups": [{"view": "ByAuthor", "keys": [[7]]}]}, {P.SELECT}),
    "POST /v1/sql": ("/v1/sql", {"sql": "SELECT 1"}, ACCOUNTS),
    "POST /v1/tables/{table}/rows": ("/v1/tables/stories/rows", ROWS, {P.INSERT}),
    "PATCH /v1/tables/{table}/rows": ("/v1/tables/stories/rows", {"key": {"id": 1}, "set": {"title": "x"}}, {P.UPDATE}),
    "DELETE /v1/tables/{table}/rows": ("/v1/tables/stories/rows", {"key": {"id": 5}}, {P.DELETE}),
    "GET /v1/views": ("/v1/views", None, ACCOUNTS),
    "GET /v1/views/{view}/live": ("/v1/views/ByAuthor/live?author=7", None, {P.SELECT}),
    "POST /v1/live": ("/v1/live", {"subscriptions": [{"view": "Nothing"}]}, {P.SELECT}),
    "GET /v1/views/{view}/held": ("/v1/views/ByAuthor/held", None, {P.SELECT}),
    "POST /v1/views/{view}/evict": ("/v1/views/ByAuthor/evict", {"keys": [[7]]}, {P.EVICT}),
    "GET /v1/views/{view}/explain": ("/v1/views/ByAuthor/explain", None, {P.SHOW_VIEW}),
    "GET /v1/tables": ("/v1/tables", None, ACCOUNTS),
    "GET /v1/tables/{table}/streams": ("/v1/tables/stories/streams", None, {P.INSERT}),
    "GET /v1/tables/{table}/streams/{stream}": ("/v1/tables/stories/streams/s", None, {P.INSERT}),
    "DELETE /v1/tables/{table}/streams/{stream}": ("/v1/tables/stories/streams/s", None, {P.INSERT}),
    "POST /v1/migrations": ("/v1/migrations", {"sql": "DROP VIEW IF EXISTS nothing"}, {P.DROP}),
    "GET /v1/migrations": ("/v1/migrations", None, {P.PROCESS}),
    "GET /v1/migrations/{id}": ("/v1/migrations/none", None, ACCOUNTS),
    "DELETE /v1/migrations/{id}": ("/v1/migrations/none", None, {P.PROCESS}),
    "GET /v1/queries": ("/v1/queries", None, {P.PROCESS}),
    "GET /v1/queries/running": ("/v1/queries/running", None, {P.PROCESS}),
    "DELETE /v1/queries/running/{id}": ("/v1/queries/running/999", None, {P.PROCESS}),
    "POST /v1/transactions": ("/v1/transactions", {}, ACCOUNTS),
    "GET /v1/transactions": ("/v1/transactions", None, {P.PROCESS}),
    "POST /v1/transactions/{id}/commit": ("/v1/transactions/none/commit", {}, ACCOUNTS),
    "POST /v1/transactions/{id}/rollback": ("/v1/transactions/none/rollback", {}, ACCOUNTS),
    "POST /v1/snapshots": ("/v1/snapshots", {}, {P.ARCHIVE}),
    "GET /v1/snapshots": ("/v1/snapshots", None, ACCOUNTS),
    "GET /v1/snapshots/{name}": ("/v1/snapshots/none", None, {P.ARCHIVE}),
    "DELETE /v1/snapshots/{name}": ("/v1/snapshots/none", None, {P.ARCHIVE}),
    "GET /v1/upstreams/{source}/token": ("/v1/upstreams/none/token?position=0-1-1", None, ACCOUNTS),
    "GET /v1/schema": ("/v1/schema", None, {P.SHOW_VIEW}),
    "GET /v1/views/{view}/stats": ("/v1/views/ByAuthor/stats", None, {P.METRICS}),
    "GET /v1/lineage": ("/v1/lineage?view=ByAuthor&key=[7]", None, {P.SELECT}),
    "GET /v1/accounts": ("/v1/accounts", None, {P.CREATE_USER}),
    "GET /v1/sessions": ("/v1/sessions", None, {P.PROCESS}),
    "GET /v1/archive": ("/v1/archive", None, {P.METRICS}),
    "GET /v1/backups": ("/v1/backups", None, {P.METRICS}),
    "GET /v1/drills": ("/v1/drills", None, {P.METRICS}),
    "GET /v1/drills/{drill}/picture": ("/v1/drills/worker-kill/picture", None, {P.METRICS}),
    "GET /v1/graph": ("/v1/graph", None, {P.METRICS}),
    "GET /v1/status": ("/v1/status", None, {P.METRICS}),
    "GET /metrics": ("/metrics", None, {P.METRICS}),
    "POST /v1/archive": ("/v1/archive", None, {P.ARCHIVE}),
    "GET /healthz": ("/healthz", None, ANYBODY),
    "GET /readyz": ("/readyz", None, ANYBODY),
}
STATEMENTS: list[tuple[str, set[tuple[Privilege, str]]]] = [
    ("SELECT 1", set()),
    ("COMMIT", set()),
    ("SHOW TRANSACTIONS", set()),
    ("SELECT id FROM stories", {(P.QUERY, "*"), (P.SELECT, "stories")}),
    (
        "SELECT title FROM stories WHERE id IN (SELECT id FROM secrets)",
        {(P.QUERY, "*"), (P.SELECT, "stories"), (P.SELECT, "secrets")},
    ),
    ("WITH stories AS (SELECT 1 AS id) SELECT id FROM stories", set()),
    ("WITH w AS (SELECT word FROM secrets) SELECT word FROM w", {(P.QUERY, "*"), (P.SELECT, "secrets")}),
    ("WITH secrets AS (SELECT word FROM secrets) SELECT * FROM secrets", {(P.QUERY, "*"), (P.SELECT, "secrets")}),
    (
        "SELECT id FROM stories UNION SELECT id FROM secrets",
        {(P.QUERY, "*"), (P.SELECT, "stories"), (P.SELECT, "secrets")},
    ),
    ("SELECT title FROM ByAuthor WHERE author = 7", {(P.QUERY, "*"), (P.SELECT, "byauthor")}),
    ("INSERT INTO stories VALUES (20, 1, 'x')", {(P.INSERT, "stories")}),
    ("INSERT IGNORE INTO stories VALUES (20, 1, 'x')", {(P.INSERT, "stories")}),
    (
        "REPLACE INTO stories VALUES (20, 1, 'x') RETURNING title",
        {(P.INSERT, "stories"), (P.DELETE, "stories"), (P.SELECT, "stories")},
    ),
    ("REPLACE INTO stories VALUES (20, 1, 'x')", {(P.INSERT, "stories"), (P.DELETE, "stories")}),
    (
        "INSERT INTO stories VALUES (20, 1, 'x') ON DUPLICATE KEY UPDATE title = VALUES(title)",
        {(P.INSERT, "stories"), (P.UPDATE, "stories")},
    ),
    (
        "INSERT INTO stories VALUES (20, 1, 'x') ON DUPLICATE KEY UPDATE author = author + 1",
        {(P.INSERT, "stories"), (P.UPDATE, "stories"), (P.SELECT, "stories")},
    ),
    (
        "INSERT INTO stories SELECT id + 30, 1, word FROM secrets",
        {(P.INSERT, "stories"), (P.SELECT, "secrets"), (P.QUERY, "*")},
    ),
    ("INSERT INTO stories VALUES (21, 1, 'x') RETURNING id", {(P.INSERT, "stories"), (P.SELECT, "stories")}),
    ("UPDATE stories SET title = 'z'", {(P.UPDATE, "stories")}),
    ("UPDATE IGNORE stories SET title = 'z'", {(P.UPDATE, "stories")}),
    ("UPDATE stories SET title = 'z' WHERE id = 1", {(P.UPDATE, "stories"), (P.SELECT, "stories")}),
    (
        "UPDATE stories s JOIN secrets t ON t.id = s.id SET s.title = t.word",
        {(P.UPDATE, "stories"), (P.SELECT, "stories"), (P.SELECT, "secrets"), (P.QUERY, "*")},
    ),
    ("DELETE FROM stories", {(P.DELETE, "stories")}),
    ("DELETE FROM stories WHERE title = 'q'", {(P.DELETE, "stories"), (P.SELECT, "stories")}),
    (
        "DELETE s FROM stories s JOIN secrets t ON t.id = s.id",
        {(P.DELETE, "stories"), (P.SELECT, "stories"), (P.SELECT, "secrets"), (P.QUERY, "*")},
    ),
    ("TRUNCATE TABLE stories", {(P.DELETE, "stories")}),
    ("CREATE TABLE made (id INT PRIMARY KEY)", {(P.CREATE, "made")}),
    ("CREATE TABLE likewise LIKE secrets", {(P.CREATE, "likewise"), (P.SELECT, "secrets")}),
    (
        "CREATE TABLE filled AS SELECT word FROM secrets",
        {(P.CREATE, "filled"), (P.INSERT, "filled"), (P.SELECT, "secrets"), (P.QUERY, "*")},
    ),
    (
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES secrets (id))",
        {(P.CREATE, "child"), (P.REFERENCES, "secrets")},
    ),
    ("CREATE VIEW v AS SELECT word FROM secrets", {(P.CREATE, "v"), (P.SELECT, "secrets")}),
    ("CREATE OR REPLACE VIEW v AS SELECT id FROM stories", {(P.CREATE, "v"), (P.DROP, "v"), (P.SELECT, "stories")}),
    ("CREATE INDEX i ON stories (author)", {(P.ALTER, "stories")}),
    ("DROP INDEX i ON stories", {(P.ALTER, "stories")}),
    ("ALTER TABLE stories ADD COLUMN more INT", {(P.ALTER, "stories")}),
    (
        "RENAME TABLE made TO other",
        {(P.ALTER, "made"), (P.DROP, "made"), (P.CREATE, "other"), (P.INSERT, "other")},
    ),
    (
        "CREATE POLICY p ON stories USING (author = CURRENT_CLAIM('sub'))",
        {(P.ALTER, "stories"), (P.BYPASS_POLICIES, "*")},
    ),
    ("SHOW POLICIES", set()),
    ("DROP POLICY p ON stories", {(P.ALTER, "stories"), (P.BYPASS_POLICIES, "*")}),
    ("DROP VIEW v", {(P.DROP, "v")}),
    ("DROP TABLE secrets CASCADE", {(P.DROP, "secrets"), (P.DROP, "words")}),
    ("SHOW TABLES", set()),
    ("SHOW CREATE VIEW ByAuthor", {(P.SHOW_VIEW, "byauthor")}),
    ("SHOW PROCESSLIST", {(P.PROCESS, "*")}),
    ("SHOW QUERIES", {(P.PROCESS, "*")}),
    ("KILL 999", {(P.PROCESS, "*")}),
    ("EXPLAIN ByAuthor", {(P.SHOW_VIEW, "byauthor")}),
    ("EXPLAIN SELECT * FROM ByAuthor", {(P.QUERY, "*"), (P.SELECT, "byauthor"), (P.SHOW_VIEW, "byauthor")}),
    ("SET NAMES utf8mb4", set()),
    ("USE headrace", set()),
    ("BEGIN", set()),
    ("COMMIT", set()),
    ("ROLLBACK", set()),
    ("CREATE USER u IDENTIFIED BY 'a long one'", {(P.CREATE_USER, "*")}),
    ("ALTER USER u ACCOUNT LOCK", {(P.CREATE_USER, "*")}),
    ("CREATE ROLE r", {(P.CREATE_USER, "*")}),
    ("SHOW GRANTS FOR u", {(P.CREATE_USER, "*")}),
    ("CREATE API KEY 'k' FOR u", {(P.CREATE_USER, "*")}),
    ("SHOW API KEYS", set()),
    ("GRANT SELECT ON ByAuthor TO u", {(P.SELECT, "byauthor"), (P.GRANT_OPTION, "byauthor")}),
    ("REVOKE SELECT ON ByAuthor FROM u", {(P.SELECT, "byauthor"), (P.GRANT_OPTION, "byauthor")}),
    ("REVOKE ALL, GRANT OPTION FROM u", {(P.CREATE_USER, "*")}),
    ("GRANT r TO u", set()),
    ("DROP ROLE r", {(P.CREATE_USER, "*")}),
    ("DROP USER u", {(P.CREATE_USER, "*")}),
]

# A user of one row among others', of a table with policies: each form of a write, and what it is answered. ``None``: no
# row is there for it. What others have is the same afterwards, and none of it is told.

POLICED = """
CREATE TABLE mails (id INT PRIMARY KEY, owner INT, body TEXT) SHARD BY (id);
CREATE TABLE labels (mail INT, id INT, owner INT, PRIMARY KEY (mail, id),
  FOREIGN KEY (mail) REFERENCES mails (id) ON DELETE CASCADE) SHARD BY (mail);
INSERT INTO mails VALUES (1, 7, 'mine'), (2, 8, 'abracadabra'), (3, 8, 'abracadabra'), (4, 7, 'with a label');
INSERT INTO labels VALUES (2, 1, 8), (4, 1, 8);
CREATE POLICY own ON mails USING (owner = CURRENT_CLAIM('sub'));
CREATE POLICY own ON labels USING (owner = CURRENT_CLAIM('sub'));
CREATE EXT VIEW Mine AS SELECT id, body FROM mails;
CREATE EXT VIEW Owned AS SELECT id, body FROM mails WHERE owner = ?;
CREATE EXT VIEW Bodies AS SELECT body, COUNT(*) AS n FROM mails GROUP BY body
"""
FOLLOWED = {
    "subscriptions": [{"view": "Mine"}, {"view": "Owned", "parameters": {"owner": 8}}, {"view": "Bodies"}],
}
READS: list[tuple[str, str, object, int]] = [
    *(("GET", f"/v1/views/{path}", None, 200) for path in ("Mine", "Owned?owner=8", "Bodies", "Mine/stats")),
    *(("GET", f"/v1/views/{path}", None, 200) for path in ("Mine/live", "Owned/live?owner=8", "Bodies/live")),
    *(
        ("GET", f"/v1/lineage?view={view}&key={key}", None, 200 if view == "Mine" else 400)
        for view, key in (("Mine", "[]"), ("Owned", "[8]"))
    ),
    *(("GET", path, None, 200) for path in ("/v1/graph", "/v1/status", "/v1/queries", "/v1/sessions", "/metrics")),
    ("GET", "/v1/views/Mine/held", None, 403),
    ("POST", "/v1/lookups", {"lookups": [{"view": "Owned", "keys": [[7], [8]]}, {"view": "Mine", "keys": [[]]}]}, 200),
    ("POST", "/v1/sql", {"sql": "SELECT * FROM mails ORDER BY body"}, 200),
    ("POST", "/v1/sql", {"sql": "SELECT GROUP_CONCAT(body) AS b FROM mails"}, 200),
    ("POST", "/v1/sql", {"sql": "SELECT CAST(body AS SIGNED) AS n, MOD(id, 0) AS m FROM mails"}, 200),
    ("POST", "/v1/sql", {"sql": "EXPLAIN ANALYZE SELECT * FROM mails"}, 403),
]
OTHERS = "SELECT * FROM mails WHERE owner = 8 ORDER BY id", "SELECT * FROM labels ORDER BY mail"
ROUTE = "/v1/tables/mails/rows"
WRITES: list[tuple[str, str, object, int | None]] = [
    *(
        ("POST", "/v1/sql", {"sql": sql}, wanted)
        for sql, wanted in (
            ("INSERT INTO mails VALUES (10, 7, 'x')", 200),
            ("INSERT INTO mails VALUES (11, 8, 'x')", 403),
            ("INSERT INTO mails VALUES (2, 7, 'x')", 409),
            ("INSERT IGNORE INTO mails VALUES (2, 7, 'x')", None),
            ("INSERT IGNORE INTO mails VALUES (2, 8, 'x')", 403),
            ("INSERT INTO mails VALUES (12, 7, 'x') RETURNING body", 200),
            ("INSERT IGNORE INTO mails VALUES (2, 7, 'x') RETURNING body", None),
            ("REPLACE INTO mails VALUES (2, 7, 'x')", 403),
            ("REPLACE INTO mails VALUES (1, 7, 'x') RETURNING body", 200),
            ("REPLACE INTO mails VALUES (4, 7, 'x')", 403),
            ("INSERT INTO mails VALUES (2, 7, 'x') ON DUPLICATE KEY UPDATE owner = 7", 403),
            ("INSERT INTO mails VALUES (2, 7, 'x') ON DUPLICATE KEY UPDATE body = JSON_EXTRACT(body, '$')", 403),
            ("INSERT INTO mails VALUES (1, 7, 'x') ON DUPLICATE KEY UPDATE owner = 8", 403),
            ("INSERT INTO mails VALUES (1, 7, 'x') ON DUPLICATE KEY UPDATE body = 'y'", 200),
            ("UPDATE mails SET body = 'x' WHERE owner = 8", None),
            ("UPDATE mails SET body = 'x' WHERE owner = 8 AND JSON_EXTRACT(body, '$') = 1", None),
            ("UPDATE IGNORE mails SET owner = 8 WHERE id = 1", 403),
            ("UPDATE mails SET owner = 8 WHERE id = 1", 403),
            ("UPDATE labels JOIN mails ON mails.id = labels.mail SET labels.owner = 7", None),
            ("DELETE FROM mails WHERE owner = 8 RETURNING body", None),
            ("DELETE FROM mails WHERE id = 4", 403),
            ("DELETE FROM labels", None),
            ("TRUNCATE TABLE mails", 403),
        )
    ),
    ("POST", ROUTE, {"rows": [{"id": 13, "owner": 8}]}, 403),
    ("POST", ROUTE, {"rows": [{"id": 2, "owner": 7}], "on_duplicate": "replace"}, 403),
    ("POST", ROUTE, {"rows": [{"id": 2, "owner": 7}], "on_duplicate": "update"}, 403),
    ("POST", ROUTE, {"rows": [{"id": 2, "owner": 7}], "on_duplicate": "ignore"}, None),
    ("POST", ROUTE, {"rows": [{"id": 14, "owner": 8}], "once": {"stream": "s", "number": 1}}, 403),
    ("PATCH", ROUTE, {"key": {"id": 2}, "set": {"owner": 7}}, None),
    ("PATCH", ROUTE, {"key": {"id": 1}, "set": {"owner": 8}}, 403),
    ("DELETE", ROUTE, {"key": {"owner": 8}}, None),
    ("DELETE", ROUTE, {"key": {"id": 4}}, 403),
    ("DELETE", ROUTE, {"key": {"id": 1}}, 200),
]
