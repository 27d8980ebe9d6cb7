"""What is refused, and in which words."""

from __future__ import annotations

import random
import re
from contextlib import suppress

import pytest

from domains.errors import HeadraceError, LimitExceeded, SqlError, SqlSyntaxError, UnknownName, Unsupported
from migrations.joint_graph.graph import JointGraph
from migrations.parse.reading import parse, text_of
from migrations.query.select import constant_select
from migrations.query.view import plan_view
from tests.migrations.oracle import catalog, plan
from tests.migrations.query_cases import read_cases

CATALOG = catalog()

UNSUPPORTED = {
    "SELECT id FROM stories WHERE id = :x OR title = :x": "columns of the types",
    "SELECT id FROM stories WHERE id = :x AND (score > 1 OR title = :x)": "columns of the types",
    "SELECT id FROM stories WHERE author IN (:x) AND id > :x": "as a list and as a value",
    "SELECT id FROM stories WHERE author IN (:x) AND (id > :x OR id < 3)": "as a list and as a value",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM stories WHERE author = ?) x WHERE n > ?": "a parameter on the result",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM stories WHERE author = ?) x WHERE n > ? OR n = 1": "on the result",
    "SELECT n + ? FROM (SELECT COUNT(*) AS n FROM stories WHERE author = ?) x": "a parameter beside the result",
    "SELECT COUNT(*) FROM (SELECT COUNT(*) AS n FROM stories WHERE author = ?) x WHERE n > ?": "on the result",
    "SELECT id FROM stories WHERE id IN (?, ?)": "an IN list of parameters alone",
    "SELECT x.n FROM (SELECT COUNT(*) AS n FROM stories WHERE score > ?) x, users u": "in a subquery",
    "SELECT id FROM stories s WHERE (id, 1) NOT IN (SELECT user, 1 FROM votes WHERE user = s.author AND user <> ?)": (
        "below a subquery in an expression"
    ),
    "SELECT id, (SELECT MAX(user) FROM votes WHERE user = s.author AND user <> ? HAVING COUNT(*) > 1) FROM stories s": (
        "in a subquery"
    ),
    "SELECT id, (SELECT user FROM votes WHERE story_id = s.id AND user <> ? LIMIT 1) AS n FROM stories s": (
        "below a subquery in an expression"
    ),
    "SELECT u.id FROM stories s JOIN users b ON b.id = s.author AND 3 IN (SELECT user FROM votes WHERE user <> ?) "
    "RIGHT JOIN users u ON u.id = b.id": "below a subquery in an expression",
    "SELECT u.id FROM users u LEFT JOIN (SELECT id FROM stories WHERE EXISTS (SELECT 1 FROM votes WHERE user <> ?)) x "
    "ON x.id = u.id": "below a subquery in an expression",
    "SELECT v.vote FROM votes v, (SELECT DISTINCT author FROM stories WHERE score > ?) x WHERE v.user = x.author": (
        "in a subquery"
    ),
    "SELECT x.r FROM (SELECT RANK() OVER (ORDER BY id) AS r FROM stories WHERE score > ?) x, users u": "in a subquery",
    "SELECT x.a, COUNT(*) FROM (SELECT DISTINCT author AS a FROM stories WHERE score > ?) x GROUP BY a WITH ROLLUP": (
        "WITH ROLLUP over a parameter"
    ),
    "SELECT x.n FROM (SELECT id AS n FROM stories WHERE score > ? ORDER BY id LIMIT ?) x": "LIMIT ? or OFFSET ?",
    "SELECT id FROM users WHERE boss = (SELECT MAX(x.n) FROM (SELECT COUNT(*) AS n FROM stories WHERE score > ?) x)": (
        "in a subquery"
    ),
    "SELECT id FROM stories WHERE title LIKE ? INTERSECT SELECT id FROM users": "below a set operation",
    "SELECT id FROM stories WHERE title LIKE ? UNION SELECT id FROM users UNION ALL SELECT 1 FROM users": (
        "below a set operation"
    ),
    "SELECT x.id FROM (SELECT id FROM stories WHERE title LIKE ? ORDER BY id LIMIT 3) x, users u": "below LIMIT",
    "SELECT u.id FROM users u LEFT JOIN (SELECT id FROM stories WHERE title LIKE ?) s ON s.id = u.id": "outer join",
    "SELECT COUNT(*), (SELECT MAX(id) FROM users) FROM stories WHERE score > ?": "a subquery or join beside rows",
    "SELECT id FROM users WHERE id = (SELECT COUNT(*) FROM stories LEFT JOIN votes ON story_id = id AND user = ?)": (
        "when the answer is read"
    ),
    "SELECT s.id FROM stories s LEFT JOIN users u ON u.id = s.author AND u.name = ? LEFT JOIN users b ON b.id = u.id": (
        "a parameter may make missing"
    ),
    "SELECT x.id FROM (SELECT s.id FROM stories s LEFT JOIN users u ON u.id = s.author AND u.name = ?) x, users y": (
        "a parameter that an outer join"
    ),
    "SELECT s.id FROM stories s LEFT JOIN (SELECT id FROM users WHERE name = ?) u ON u.id = s.author": "outer join",
    "SELECT s.id, u.id AS u FROM stories s LEFT JOIN (SELECT id FROM users WHERE name = :n) u ON u.id = s.author "
    "WHERE s.title = :n": "outer join",  # Not an equality of u.name and s.title, which rows without a user have not.
    "SELECT s.id, u.id AS u FROM stories s LEFT JOIN (SELECT id FROM users WHERE name > :n) u ON u.id = s.author "
    "WHERE s.title > :n": "outer join",
    "SELECT x.id FROM (SELECT id FROM stories WHERE score > ? ORDER BY id LIMIT 3) x, users u": "below LIMIT",
    "SELECT x.id FROM (SELECT id FROM stories LIMIT ?) x": "LIMIT ?",
    "SELECT id FROM stories WHERE id = ? EXCEPT SELECT id FROM users": "different parameters",
    "SELECT id FROM stories WHERE id = ? INTERSECT SELECT id FROM users WHERE name = ?": "different parameters",
    "SELECT id FROM stories WHERE id = :id UNION SELECT id FROM users WHERE id = ?": 'a ? for "id" in each branch',
    "SELECT id FROM stories WHERE id > ? EXCEPT SELECT id FROM users WHERE id > ?": 'a ? for "id" in each branch',
    "SELECT id FROM stories WHERE id = ? UNION ALL SELECT id FROM users WHERE id = ?": 'a ? for "id" in each branch',
    "SELECT id FROM stories WHERE id IN (?) UNION ALL SELECT id FROM users WHERE id IN (?)": (
        'a ? for "id" in each branch'
    ),
    "SELECT s.id, x.n FROM stories s, (SELECT COUNT(*) n FROM votes WHERE user = ?) x": "aggregate without GROUP BY",
    "SELECT COUNT(*) FROM votes WHERE story_id = ? HAVING COUNT(*) = 0": "a count of nothing meets",
    "WITH x AS (SELECT id FROM stories WHERE id = ?) SELECT id FROM users": "nothing reads",
    "SELECT (SELECT COUNT(*) + s.id FROM votes WHERE story_id = s.id) FROM stories s": "beside an aggregate",
    "SELECT id FROM users s WHERE boss IN (SELECT user FROM votes WHERE story_id = s.id UNION SELECT 1 FROM tags)": (
        "whose branches compare other columns"
    ),
    "SELECT id FROM stories WHERE title > ANY (SELECT boss FROM users)": "a comparison of TEXT with ANY of BIGINT",
    "SELECT id FROM stories WHERE RANK() OVER (ORDER BY score) = 1": "a window function outside of the SELECT list",
    "SELECT author FROM stories GROUP BY author HAVING RANK() OVER () = 1": "a window function outside of the SELECT",
    "SELECT COUNT(DISTINCT author) OVER () FROM stories": "DISTINCT in a window function",
    "SELECT GROUP_CONCAT(title) OVER () FROM stories": "GROUP_CONCAT() OVER",
    "SELECT GROUP_CONCAT(score) OVER () FROM stories": "GROUP_CONCAT() OVER",
    "SELECT JSON_ARRAYAGG(score ORDER BY id) OVER () FROM stories": "ORDER BY of its own",
    "SELECT id FROM users WHERE id IN (SELECT RANK() OVER (ORDER BY id) FROM stories WHERE title LIKE ?)": (
        "below a window function, in a subquery of an expression"
    ),
    "SELECT LAG(id, ?) OVER (ORDER BY id) FROM stories": "a parameter in a window function",
    "SELECT COUNT(*), SUM(COUNT(*)) OVER () FROM stories WHERE author = ?": "over an aggregate without GROUP BY",
    "SELECT s.id FROM stories s FULL JOIN users u ON u.id = s.author": "FULL JOIN",
    "SELECT author FROM stories WHERE title LIKE ? GROUP BY author WITH ROLLUP": "ROLLUP over a parameter",
    "SELECT author FROM stories WHERE author IN (?) GROUP BY author WITH ROLLUP": "ROLLUP over a parameter",
    "SELECT author FROM stories GROUP BY author, author WITH ROLLUP": "ROLLUP by the same expression twice",
    "WITH RECURSIVE x AS (SELECT id FROM users UNION SELECT MAX(id) FROM x) SELECT * FROM x": "within it",
    "SELECT id FROM stories WHERE id IN (?) EXCEPT SELECT id FROM users WHERE boss IN (?)": "UNION whose branches",
    "SELECT title FROM stories WHERE id IN (:x) EXCEPT SELECT name FROM users WHERE id IN (:x)": "below EXCEPT",
    "SELECT STR_TO_DATE(title, '%X %V %W') FROM stories": 'by "%V"',
    "SELECT s.id FROM stories s RIGHT JOIN LATERAL (SELECT s.id AS n FROM users) x ON TRUE": "RIGHT JOIN of LATERAL",
    "SELECT s.id FROM stories s, LATERAL (SELECT s.id AS n FROM users) x RIGHT JOIN users ON TRUE": "behind a comma",
    "SELECT s.id FROM stories s JOIN (users u JOIN LATERAL (SELECT u.id AS n FROM votes) x ON TRUE) ON TRUE": (
        "LATERAL in a join in parentheses"
    ),
    "SELECT s.id FROM stories s JOIN LATERAL (SELECT s.id AS n FROM users) x ON EXISTS (SELECT 1 FROM tags)": (
        "a subquery in the ON of LATERAL"
    ),
    "SELECT s.id FROM stories s FULL OUTER JOIN users u ON EXISTS (SELECT 1 FROM tags)": "ON of a FULL",
    "SELECT s.id FROM stories s FULL OUTER JOIN users u ON u.id = s.author AND u.name = ?": "ON of a FULL OUTER JOIN",
    "SELECT COUNT(*) FROM stories WHERE author = (SELECT boss FROM users)": "several rows",
    "SELECT x.id FROM (SELECT id FROM stories WHERE author = (SELECT boss FROM users)) x, users u": "several rows",
    "SELECT x.n FROM (SELECT NOW() AS n FROM stories) x, votes v": "the parameter in the column",
    "SELECT x.n FROM (SELECT COUNT(*) AS n FROM stories WHERE NOW() > '2026-01-01') x, users u": "over a condition",
    "SELECT RAND() FROM stories": "RAND()",
    "SELECT DATABASE() FROM stories": "DATABASE()",
    "SELECT NO_SUCH(id) FROM stories": "no_such",
    "SELECT @x FROM stories": "user variables",
    "SELECT id FROM stories WHERE MATCH (title) AGAINST ('x')": "full-text",
    "SELECT title COLLATE utf8mb4_unicode_ci FROM stories": "collation",
    "SELECT 1": "without FROM",
    "SELECT GREATEST(CAST(title AS JSON), '1') FROM stories": "GREATEST and LEAST of JSON",
    "SELECT id FROM stories ORDER BY id NULLS LAST": "NULLS FIRST",
    "SELECT /*+ PARTIAL_BY(vcount) */ id FROM StoriesWithVC WHERE vcount = ? AND id = ?": "followed up to a base table",
}

WRONG = {
    "SELECT ADDDATE(made) FROM stories": "ADDDATE takes 2 arguments, not 1",
    "SELECT SUBDATE(made, 1, 2) FROM stories": "SUBDATE takes 2 arguments, not 3",
    "SELECT id, COUNT(*) FROM stories": "neither in GROUP BY",
    "SELECT title, COUNT(*) FROM stories GROUP BY author": "neither in GROUP BY",
    "SELECT * FROM stories GROUP BY author": "neither in GROUP BY",
    "SELECT author FROM stories GROUP BY author ORDER BY title": "neither in GROUP BY",
    "SELECT u.name FROM stories s, users u WHERE s.score = u.name GROUP BY s.score": "neither in GROUP BY",
    "SELECT name FROM users WHERE name = 0 GROUP BY boss": "neither in GROUP BY",
    "SELECT s.score FROM stories s, users u WHERE s.score = u.karma GROUP BY u.karma": "neither in GROUP BY",
    "SELECT author FROM stories GROUP BY 2": "the SELECT list has 1",
    "SELECT id FROM stories ORDER BY 2": "the SELECT list has 1",
    "SELECT DISTINCT author FROM stories ORDER BY score": "DISTINCT needs",
    "SELECT id FROM stories WHERE COUNT(*) > 1": "cannot stand in WHERE",
    "SELECT SUM(COUNT(*)) FROM stories": "cannot stand in an aggregate",
    "SELECT id FROM stories, users": "ambiguous",
    "SELECT 1 FROM stories JOIN stories ON 1 = 1": "not unique",
    "SELECT 1 FROM stories, stories": "not unique",
    "SELECT 1 FROM stories x, users X": "not unique",
    "SELECT 1 FROM stories x, users y JOIN stories z ON z.id = y.id, users Z": "not unique",
    "SELECT 1 FROM stories x JOIN users y ON x.id = y.id, users y": "not unique",
    "SELECT 1 FROM (SELECT id FROM stories)": "alias",
    "SELECT id FROM stories UNION SELECT id, name FROM users": "1 and 2 columns",
    "SELECT id FROM stories WHERE id IN (SELECT id, name FROM users)": "IN compares 1",
    "SELECT id FROM stories s LEFT JOIN users u": "ON or USING",
    "SELECT id FROM stories LIMIT 'x'": "LIMIT wants",
    "SELECT COUNT() FROM stories": "an argument is wanted",
    "SELECT COUNT(DISTINCT) FROM stories": "an argument is wanted",
    "SELECT GROUP_CONCAT(ORDER BY id) FROM stories": "wants an argument",
    "SELECT JSON_ARRAYAGG(DISTINCT id) FROM stories": "take nothing else",
    "SELECT JSON_OBJECTAGG(id) FROM stories": "take nothing else",
    "SELECT title->'x' FROM stories": "no JSON path",
    "SELECT FROM stories": "the SELECT list is empty",
    "SELECT id FROM (SELECT id FROM stories) x (a, b)": "2 names",
    "SELECT /*+ PARTIAL_BY(titel) */ id FROM stories WHERE title = ?": 'has no parameter "titel"',
    "SELECT /*+ PARTIAL_BY(title) */ id FROM stories WHERE title = 'x'": 'has no parameter "title"',
    "SELECT /*+ PARTIAL_BY(score) */ id FROM stories WHERE title = ? AND score > ?": "not compared by = or IN",
    "SELECT /*+ PARTIAL_BY(`limit`) */ id FROM stories WHERE title = ? LIMIT ?": "not compared by = or IN",
    "SELECT /*+ PARTIAL_BY */ id FROM stories WHERE title = ?": "wants the names",
    "SELECT /*+ PARTIAL_BY() */ id FROM stories WHERE title = ?": "wants the names",
    "SELECT /*+ PARTIAL_BY(stories.title) */ id FROM stories WHERE title = ?": "wants the names",
    "SELECT /*+ PARTIAL_BY(title) PARTIAL_BY(id) */ id FROM stories WHERE title = ? AND id = ?": "is there twice",
    "SELECT id FROM (SELECT /*+ PARTIAL_BY(id) */ id FROM stories) x WHERE id = ?": "in a subquery",
    "SELECT id FROM stories WHERE id = :id UNION SELECT /*+ PARTIAL_BY(id) */ id FROM users WHERE id = :id": (
        "in a subquery"
    ),
    "WITH x AS (SELECT id FROM stories), x AS (SELECT id FROM users) SELECT * FROM x": "twice",
}

UNKNOWN = {
    "SELECT titel FROM stories": ('unknown column "titel" at line 1, column 8', "title"),
    "SELECT s.titel\nFROM stories s": ('unknown column "s.titel" at line 1, column 10', "title"),
    "SELECT t.id FROM stories s": ('unknown table "t" at line 1, column 10', None),
    "SELECT id FROM storys": ('unknown table or view "storys"', "stories"),
    "SELECT vcont FROM votecount": ('unknown column "vcont" at line 1, column 8', "vcount"),
    "SELECT x.* FROM stories s": ('unknown table "x"', None),
    "SELECT id FROM stories JOIN users USING (nam)": ('unknown column "nam"', None),
}


@pytest.mark.parametrize(("sql", "words"), UNSUPPORTED.items())
def test_unsupported_is_named(sql: str, words: str) -> None:
    with pytest.raises(Unsupported) as caught:
        plan(sql, CATALOG)
    assert words in caught.value.message


@pytest.mark.parametrize(("sql", "words"), WRONG.items())
def test_wrong_text(sql: str, words: str) -> None:
    with pytest.raises(SqlError) as caught:
        plan(sql, CATALOG)
    assert words in caught.value.message


@pytest.mark.parametrize(("sql", "expected"), UNKNOWN.items())
def test_unknown_names_have_a_place_and_a_neighbour(sql: str, expected: tuple[str, str | None]) -> None:
    with pytest.raises(UnknownName) as caught:
        plan(sql, CATALOG)
    message, near = expected
    assert caught.value.message == message
    if near is not None:
        assert caught.value.hint == f'did you mean "{near}"?'


@pytest.mark.parametrize(
    ("called", "near"),
    [
        ("LENGHT(title)", "LENGTH"),
        ("UPPR(title)", "UPPER"),
        ("TIMESTAMPDIF(DAY, title, title)", "TIMESTAMPDIFF"),
        ("COUNTT(id)", "COUNT"),
        ("GROUP_CONCT(title)", "GROUP_CONCAT"),
        ("UCSE(title)", "UCASE"),
        ("JSON_EXTRAC(title, '$.a')", "JSON_EXTRACT"),
        ("JSON_SCHEMA(title, 'x')", None),
        ("LEAD(id)", None),
        ("LAG(id)", None),
        ("SUBTRAC(3, 1)", None),
    ],
)
def test_a_function_is_guessed_only_where_its_name_is_close(called: str, near: str | None) -> None:
    """And never one that SQL does not have under that name."""
    with pytest.raises(Unsupported) as caught:
        plan(f"SELECT {called} FROM stories", CATALOG)
    assert caught.value.message == f'function "{called.partition("(")[0].lower()}" is not supported'
    assert caught.value.hint == (near and f"did you mean {near}?")


SYNTAX = {
    "SELEC 1": ('unexpected "1"', 1, 7),
    "SELECT 1 +": ("expected an expression, but the text ends", 1, 11),
    "SELECT 'abc": ("string is not closed", 1, 8),
    "SELECT 1;\nSELECT (1": ('expected ")", but the text ends', 2, 10),
    "SELECT a b c FROM t": ('unexpected "c"', 1, 12),
    "SELECT\0 1": ("unexpected NUL character", 1, 7),
    "SELECT /* abc": ("comment is not closed", 1, 8),
    "CREATE VIEW v AS SELECT a b c FROM t": ('unexpected "c"', 1, 29),
}


@pytest.mark.parametrize(("sql", "expected"), SYNTAX.items())
def test_syntax_errors_say_where(sql: str, expected: tuple[str, int, int]) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(sql)
    message, line, column = expected
    assert caught.value.message == f"{message} at line {line}, column {column}"
    assert (caught.value.line, caught.value.column) == (line, column)
    assert "\x1b" not in str(caught.value)


def deep(levels: int) -> dict[str, str]:
    return {
        "parentheses": "SELECT " + "(" * levels + "id" + ")" * levels + " FROM stories",
        "sums": "SELECT " + "id + " * levels + "id FROM stories",
        "negations": "SELECT id FROM stories WHERE " + "NOT " * levels + "id",
        "functions": "SELECT " + "ABS(" * levels + "id" + ")" * levels + " FROM stories",
        "subqueries": "SELECT id FROM " + "(SELECT * FROM " * levels + "stories" + ") x" * levels,
        "cases": "SELECT " + "CASE WHEN id THEN " * levels + "1" + " END" * levels + " FROM stories",
        "unions": "SELECT id FROM stories" + " UNION ALL SELECT id FROM stories" * levels,
        "conditions": "SELECT id FROM stories WHERE id = 1" + " OR id = 1" * levels,
        "exists": "SELECT id FROM stories WHERE " + "EXISTS (SELECT 1 FROM users WHERE " * levels + "1" + ")" * levels,
    }


@pytest.mark.parametrize("shape", deep(1))
@pytest.mark.parametrize("levels", [60, 3000])
def test_deep_nesting_is_planned_or_refused_cleanly(shape: str, levels: int) -> None:
    with suppress(LimitExceeded):
        plan(deep(levels)[shape], CATALOG)


def test_what_cannot_be_printed_was_nested_too_deep() -> None:
    """A text is printed to be found again, which takes more of the stack than parsing it did."""
    for levels in range(60, 140, 10):
        with suppress(LimitExceeded):
            text_of(parse(deep(levels)["subqueries"])[0].expression)


def test_long_texts() -> None:
    many = ", ".join(str(i) for i in range(20_000))
    plan(f"SELECT id FROM stories WHERE id IN ({many})", CATALOG)
    with pytest.raises(HeadraceError):
        parse("SELECT " + "x" * 2**24)
    with pytest.raises(HeadraceError):
        parse("(" * 500_000 + "1")


@pytest.mark.parametrize(
    ("condition", "budget"),
    [
        ("title = REPEAT('a', 2000000)", "fold_bytes"),
        ("title IN (REPEAT('a', 600000), REPEAT('b', 600000))", "fold_bytes"),
        ("title = REPEAT('a', 600000) AND (title = REPEAT('b', 600000) OR id = 1)", "fold_bytes"),
        (f"id IN ({', '.join(f'{i} + 1' for i in range(10_001))})", "fold_steps"),
    ],
    ids=lambda value: value[:30],
)
def test_constants_have_a_budget(condition: str, budget: str) -> None:
    """One for the whole statement: what it is is in the message."""
    with pytest.raises(LimitExceeded, match=budget):
        plan(f"SELECT id FROM stories WHERE {condition}", CATALOG)
    with pytest.raises(LimitExceeded, match=budget):
        constant_select(parse(f"SELECT {condition.replace('title', 'NULL').replace('id', '0')}")[0].expression)


@pytest.mark.parametrize("junk", ["", ";;", "  ", "-- only a comment", "/* x */ ;"])
def test_nothing_is_no_statement(junk: str) -> None:
    assert parse(junk) == []


@pytest.mark.parametrize("seed", range(3))
def test_mangled_texts_fail_cleanly(seed: int) -> None:
    """Words of known queries dropped, swapped and mixed: each text is planned, or refused by an error of ours."""
    rng = random.Random(seed)
    texts = [re.findall(r"'[^']*'|\w+|<=>|[<>!]=|[^\w\s]", case.sql) for case in read_cases("queries.txt")]
    words = sorted({word for text in texts for word in text})
    for _ in range(1500):
        text = list(rng.choice(texts))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(([], [rng.choice(words)], rng.choice(texts)[:3])) or [
                "SELECT"
            ]
        with suppress(HeadraceError):
            for parsed in parse(" ".join(text)):
                plan_view(CATALOG, JointGraph(), "v", parsed.expression)
