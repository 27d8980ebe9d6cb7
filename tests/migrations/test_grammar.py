"""Whatever a statement says is consumed or refused, and what is kept as a text reads back as the same tree."""

from __future__ import annotations

import inspect

import pytest

from domains.errors import HeadraceError, SqlError, SqlSyntaxError, Unsupported
from migrations.parse import grammar, reading, syntax, writing
from migrations.parse.reading import exp, faithful, parse_select, refuse_unfaithful, same_tree
from migrations.statements.adhoc.shapes_of_selects import parameterise
from migrations.statements.statement import ChosenWrite
from tests.migrations.query_cases import read_cases
from tests.migrations.statement_catalog import CATALOG, one

REFUSED = {
    "SELECT id FROM stories PARTITION (p0)": "PARTITION in FROM",
    "CREATE VIEW v AS SELECT s.id FROM votes JOIN stories PARTITION (p0) s ON s.id = story_id": "PARTITION in FROM",
    "TRUNCATE TABLE votes CASCADE": "TRUNCATE … CASCADE",
    "DROP TABLE votes PURGE": "DROP … PURGE",
    "SELECT id FROM stories LIMIT 1 BY id": "LIMIT … BY",
    "CREATE INDEX i ON stories (author) WHERE author > 1": "an index with WHERE",
    "SELECT COUNT(*) FROM stories FULL JOIN votes ON 1 = 0": "FULL JOIN",
    "SELECT * FROM stories FULL JOIN votes": "FULL JOIN",
    "SELECT * FROM stories NATURAL FULL JOIN votes": "FULL JOIN",
    "SELECT id FROM stories WHERE EXISTS (SELECT 1 FROM votes FULL JOIN log ON 1)": "FULL JOIN",
    "DELETE FROM votes WHERE user IN (SELECT s.id FROM stories s FULL JOIN votes ON 1)": "FULL JOIN",
    "CREATE EXT VIEW v AS SELECT id FROM stories FULL JOIN votes ON 1": "FULL JOIN",
    "SELECT id FROM stories SEMI JOIN votes ON id = story_id": "SEMI JOIN",
    "SELECT id FROM stories ASOF JOIN votes ON id = story_id": "ASOF JOIN",
    "SELECT id FROM stories WHERE title ILIKE 'a'": "ILIKE",
    "SELECT id::CHAR FROM stories": "::",
    "SELECT * EXCEPT (id) FROM stories": "EXCEPT",
    "SELECT * REPLACE (1 AS id) FROM stories": "REPLACE",
    "SELECT id FROM stories ORDER BY id NULLS LAST": "NULLS",
    "SELECT id FROM stories ORDER BY id NULLS FIRST": "NULLS",
    "SELECT GROUP_CONCAT(title ORDER BY id NULLS LAST) FROM stories": "NULLS",
    "SELECT LT(1, 2)": "LT",
    "SELECT SUBTRACT(3, 1)": "SUBTRACT",
    "CREATE EXT VIEW v AS SELECT id FROM stories FOR UPDATE": "FOR UPDATE",
    "CREATE EXT VIEW v AS SELECT id FROM stories LOCK IN SHARE MODE": "FOR UPDATE",
    "FROM stories": "FROM",
    "CREATE VIEW v AS SELECT x.id FROM (FROM stories) x": "FROM",
    "SELECT id, FROM stories": "FROM",
    "SELECT id FROM stories WHERE id IN (1, 2,)": ")",
    "SELECT id FROM stories WHERE id == 3": "==",
    "SELECT id FROM stories WHERE id ISNULL": "ISNULL",
    "SELECT id FROM stories WHERE id BETWEEN SYMMETRIC 3 AND 1": "SYMMETRIC",
    "SELECT id FROM stories TABLESAMPLE (10 PERCENT)": "TABLESAMPLE",
    "SELECT id FROM stories LIMIT 10 PERCENT": "PERCENT",
    "SELECT id FROM stories LIMIT 3 WITH TIES": "TIES",
    "SELECT id FROM stories QUALIFY id > 3": "QUALIFY",
    "SELECT SUM(id) OVER (ROWS 1 PRECEDING EXCLUDE TIES) FROM t": "EXCLUDE in a frame",
    "SELECT other.stories.id FROM stories": "other.stories",
    "SELECT id FROM stories FOR SYSTEM_TIME AS OF '2024-01-01'": "as of",
    "SELECT id FROM stories UNION BY NAME SELECT user FROM votes": "BY NAME",
    "SELECT made + INTERVAL '1 day' FROM stories": "unit",
    "SELECT made AT TIME ZONE 'UTC' FROM stories": "ZONE",
    "SELECT CAST(title AS DATE FORMAT 'YYYY') FROM stories": "STR_TO_DATE",
    "INSERT OVERWRITE INTO votes VALUES (1, 2)": "OVERWRITE",
    "INSERT INTO votes BY NAME SELECT 1 AS a, id AS b FROM stories": "BY NAME",
    "INSERT INTO votes VALUES (1, 2) ON DUPLICATE KEY UPDATE user = 2 WHERE user = 3": "WHERE",
    "UPDATE votes SET user = 1 FROM stories WHERE id = 1": "FROM",
    "UPDATE votes SET user = 1 LIMIT 1, 2": "one number",
    "DELETE FROM votes LIMIT 1, 2": "one number",
    "TRUNCATE TABLE votes PARTITION (p0)": "PARTITION",
    "CREATE TABLE t (a INT) PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (5))": "PARTITION",
    "CREATE TABLE t (a INT) INHERITS (stories)": "INHERITS",
    "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_unicode_ci)": "utf8mb4_unicode_ci",
    "CREATE TABLE t (a VARCHAR(9)) COLLATE=utf8mb4_0900_as_cs": "utf8mb4_0900_as_cs",
    "ALTER TABLE stories ADD x VARCHAR(3) COLLATE latin1_swedish_ci": "latin1_swedish_ci",
    "CREATE TABLE t (a FLOAT(7,2))": "FLOAT(7,2), which rounds",
    "CREATE TABLE t (a DOUBLE(5,1))": "DOUBLE(5,1), which rounds",
    "CREATE TABLE t (a VARCHAR(9) CHARACTER SET binary)": "character set binary",
    "CREATE TABLE t (a VARCHAR(9) COLLATE binary)": "character set binary",
    "CREATE TABLE t (a VARCHAR(9)) DEFAULT CHARSET=binary": "character set binary",
    "SELECT CONVERT('x' USING latin1)": "text in latin1",
    "SELECT CAST('x' AS CHAR CHARACTER SET ascii)": "text in ascii",
    "SELECT _latin1'\u00e9'": "text in latin1",
    "SELECT title FROM stories@link": "@link",
    "SELECT title AS @x FROM stories": "@x",
    "CREATE INDEX i ON stories (score) WHERE id > 1": "WHERE",
    "SAVEPOINT s1": "SAVEPOINT",
    "CALL p()": "CALL",
}


CORRELATED = (
    "UPDATE votes v SET user = (SELECT MAX(id) FROM stories s WHERE s.id = v.story_id)",
    "DELETE FROM stories WHERE EXISTS (SELECT 1 FROM votes WHERE votes.story_id = stories.id)",
)


@pytest.mark.parametrize("sql", CORRELATED)
def test_a_correlated_write_chooses_its_rows_by_a_select(sql: str) -> None:
    assert isinstance(one(sql), ChosenWrite)


@pytest.mark.parametrize(("sql", "word"), REFUSED.items())
def test_what_no_pass_reads_is_refused_by_name(sql: str, word: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        one(sql)
    assert isinstance(caught.value, (Unsupported, SqlError, SqlSyntaxError))
    assert word.lower() in caught.value.message.lower()
    assert "correlated" not in caught.value.message


FILES = ("queries.txt", "queries_in_order.txt", "queries_beyond_sqlite.txt")
QUERIES = [case.sql for name in FILES for case in read_cases(name)]
WRITTEN = (
    "SELECT 'it''s', 'a\\\\b', 'a\\nb', '\\%', \"q\" 'r', N'x', _utf8mb4'y', x'41', b'101', .5, 1e3",
    "SELECT - -id, ~id, !id, NOT id = 1, -id ^ 2 | 3 & 4 << 1, (id = 1) IS NULL FROM stories",
    "SELECT id = author IS NULL, id NOT IN (1, 2), title NOT LIKE 'a' ESCAPE '|', title NOT RLIKE 'x' FROM stories",
    "SELECT `a``b`, `select`.`from`, TRIM(LEADING 'x' FROM title), POSITION('a' IN title) FROM `select`",
    "SELECT s.id FROM (stories s JOIN votes v ON v.story_id = s.id) LEFT JOIN log ON 1 NATURAL JOIN t, u",
    "SELECT CAST(a AS SIGNED), CAST(a AS CHAR(3)), CAST(a AS DECIMAL(5,2)), CONVERT(a USING utf8), BINARY a FROM t",
    "SELECT GROUP_CONCAT(DISTINCT a, b ORDER BY a DESC SEPARATOR '\\''), COUNT(DISTINCT a, b) FROM t",
    "(SELECT a FROM t ORDER BY a LIMIT 1) UNION ALL (SELECT b FROM u) ORDER BY 1 LIMIT 3 OFFSET 1",
    "WITH x (a) AS (SELECT 1), y AS (SELECT 2) SELECT a + INTERVAL 1.5 DAY, a - INTERVAL '2' HOUR FROM x, y",
    "SELECT a FROM t WHERE a = ? AND b IN (?) AND c BETWEEN :low AND :high LIMIT ? OFFSET ?",
)


@pytest.mark.parametrize("sql", [*QUERIES, *WRITTEN])
def test_a_query_reads_back_as_the_same_tree(sql: str) -> None:
    query = parse_select(sql)
    text = faithful(query)
    assert faithful(parse_select(text)) == text, "a written text is its own normal form"


def test_a_text_that_is_another_query_is_not_kept() -> None:
    query = parse_select("SELECT id FROM stories WHERE id = 1")
    for other in ("SELECT id FROM stories WHERE id = 2", "SELECT id FROM stories", "SELECT id, id FROM stories"):
        assert not same_tree(query, parse_select(other))
        with pytest.raises(Unsupported):
            refuse_unfaithful(query, parse_select(other))


def test_an_ad_hoc_view_is_planned_from_the_tree_of_its_select() -> None:
    view = parameterise(parse_select("SELECT title FROM stories WHERE id = 7"), CATALOG)
    assert view.tree is not None
    assert same_tree(view.tree, view.definition().relation)


def test_the_parsers_generator_is_not_used() -> None:
    for module in (reading, syntax, grammar, writing):
        assert ".sql(" not in inspect.getsource(module)


def test_an_argument_that_nobody_knows_is_refused_whatever_it_is() -> None:
    for kind, known in grammar.KNOWN.items():
        if kind in (exp.Literal, exp.Identifier):
            continue
        node = kind()
        for name in set(kind.arg_types) - known:
            node.args = {name: True}
            with pytest.raises((Unsupported, SqlError)):
                grammar.refuse_unknown(node)
