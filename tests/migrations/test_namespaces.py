"""What a text says in a session of another database, written out; and the one name that a table has in a tree."""

from __future__ import annotations

import pytest

from domains.errors import HeadraceError
from migrations.parse.reading import parse, qualified, text_of

TEXTS = [
    ("SELECT a FROM t", "SELECT a FROM `d`.t"),
    ("SELECT t.a FROM t JOIN e.u ON t.a = u.a", "SELECT t.a FROM `d`.t JOIN e.u ON t.a = u.a"),
    ("WITH t AS (SELECT a FROM t) SELECT a FROM t", "WITH t AS (SELECT a FROM `d`.t) SELECT a FROM t"),
    ("SELECT (SELECT MAX(a) FROM `t`), 'FROM t' FROM dual", "SELECT (SELECT MAX(a) FROM `d`.`t`), 'FROM t' FROM dual"),
    ("SELECT TABLE_NAME FROM information_schema.TABLES", "SELECT TABLE_NAME FROM information_schema.TABLES"),
    ("INSERT IGNORE INTO t VALUES ('; SELECT')", "INSERT IGNORE INTO `d`.t VALUES ('; SELECT')"),
    ("INSERT INTO t (a) SELECT a FROM u", "INSERT INTO `d`.t (a) SELECT a FROM `d`.u"),
    ("REPLACE t VALUES (1); DELETE FROM u", "REPLACE `d`.t VALUES (1); DELETE FROM `d`.u"),
    ("UPDATE t, u SET t.a = u.a", "UPDATE `d`.t, `d`.u SET t.a = u.a"),
    ("DELETE t FROM t JOIN u ON t.a = u.a", "DELETE t FROM `d`.t JOIN `d`.u ON t.a = u.a"),
    ("DELETE FROM t USING t JOIN u", "DELETE FROM t USING `d`.t JOIN `d`.u"),
    (
        "CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES u (a))",
        "CREATE TABLE `d`.t (a INT, FOREIGN KEY (a) REFERENCES `d`.u (a))",
    ),
    ("CREATE TABLE e.t (a INT REFERENCES u (a))", "CREATE TABLE e.t (a INT REFERENCES u (a))"),
    ("CREATE TABLE e.t LIKE u", "CREATE TABLE e.t LIKE `d`.u"),
    ("CREATE INDEX i ON t (a)", "CREATE INDEX i ON `d`.t (a)"),
    ("DROP INDEX i ON t", "DROP INDEX i ON `d`.t"),
    ("DROP TABLE IF EXISTS t, e.u", "DROP TABLE IF EXISTS `d`.t, e.u"),
    ("ALTER TABLE t RENAME TO u", "ALTER TABLE `d`.t RENAME TO `d`.u"),
    ("RENAME TABLE t TO u, e.v TO w", "RENAME TABLE `d`.t TO `d`.u, e.v TO `d`.w"),
    ("CREATE VIEW e.v AS SELECT a FROM t", "CREATE VIEW e.v AS SELECT a FROM `d`.t"),
    ("SHOW CREATE TABLE t", "SHOW CREATE TABLE `d`.t"),
    ("SHOW INDEX FROM t FROM e", "SHOW INDEX FROM t FROM e"),
    ("SHOW TABLES", "SHOW TABLES"),
    ("DESCRIBE t", "DESCRIBE `d`.t"),
    ("TRUNCATE TABLE t", "TRUNCATE TABLE `d`.t"),
    ("GRANT SELECT ON t TO ann", "GRANT SELECT ON `d`.t TO ann"),
    ("GRANT SELECT ON TABLE t TO ann", "GRANT SELECT ON TABLE `d`.t TO ann"),
    ("GRANT SELECT ON * TO ann", "GRANT SELECT ON `d`.* TO ann"),
    ("GRANT SELECT ON *.* TO ann", "GRANT SELECT ON *.* TO ann"),
    ("CREATE POLICY p ON t USING (a = 1)", "CREATE POLICY p ON `d`.t USING (a = 1)"),
    ("SHOW POLICIES ON t", "SHOW POLICIES ON `d`.t"),
    ("CREATE DATABASE t; USE t; DROP DATABASE t", "CREATE DATABASE t; USE t; DROP DATABASE t"),
    ("/*!40101 SELECT a FROM t */", "         SELECT a FROM `d`.t   "),
]


@pytest.mark.parametrize(("sql", "whole"), TEXTS, ids=[sql for sql, _ in TEXTS])
def test_a_text_with_its_database(sql: str, whole: str) -> None:
    assert qualified(sql, "d") == whole
    assert qualified(whole, "e") == whole, "nothing is left to be said"


TREES = [
    ("SELECT d.t.a FROM d.t", "SELECT `t`.a FROM `d.t` AS `t`"),
    ("SELECT t.a FROM headrace.t", "SELECT t.a FROM t"),
    ("SELECT d.t.a, e.t.a FROM d.t, e.t", "SELECT `d.t`.a, `e.t`.a FROM `d.t`, `e.t`"),
    ("SELECT d.t.a, headrace.t.a FROM d.t, t", "SELECT `d.t`.a, `headrace.t`.a FROM `d.t`, t AS `headrace.t`"),
    (
        "SELECT t.a FROM t JOIN (SELECT x.a FROM t AS x JOIN d.t ON x.a = d.t.a WHERE t.a = 1) AS y ON t.a = y.a",
        "SELECT `headrace.t`.a FROM t AS `headrace.t` JOIN (SELECT x.a FROM t AS x JOIN `d.t` ON x.a = `d.t`.a "
        "WHERE `d.t`.a = 1) AS y ON `headrace.t`.a = y.a",
    ),
    ("SELECT x.a FROM d.t AS x", "SELECT x.a FROM `d.t` AS x"),
]


@pytest.mark.parametrize(("sql", "tree"), TREES, ids=[sql for sql, _ in TREES])
def test_a_tree_has_one_name(sql: str, tree: str) -> None:
    (parsed,) = parse(sql)
    (same,) = parse(tree)
    assert text_of(parsed.expression).replace("`", "") == text_of(same.expression).replace("`", "")


def test_a_column_of_a_table_that_is_not_there_is_refused() -> None:
    with pytest.raises(HeadraceError, match=r"e\.t"):
        parse("SELECT e.t.a FROM d.t")
