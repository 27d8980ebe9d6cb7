"""A text that is too much in one way is refused before it is parsed; what only looks so is not."""

from __future__ import annotations

import pytest

from domains.errors import LimitExceeded, SqlError
from migrations.parse.measure import SqlLimits, check_length, measure
from migrations.parse.reading import parse

LIMITS = SqlLimits(
    max_sql_size=1_000, max_statements=3, max_list_items=5, max_select_columns=4, max_joins=2, max_nesting=3
)

TOO_MUCH = {
    "SELECT 1; SELECT 2; ; SELECT 3; SELECT 4": "max_statements",
    "SELECT a FROM t WHERE a IN (1, 2, 3, 4, 5, 6)": "max_list_items",
    "SELECT a FROM t WHERE a IN (?, ?, ?, ?, ?, ?)": "max_list_items",
    "SELECT a FROM t GROUP BY a, b, c, d, e, f": "max_list_items",
    "SELECT a FROM t WHERE a = 1 OR a = 2 OR a = 3 OR a": "max_list_items",
    "SELECT - - - - - - 1": "max_list_items",
    "SELECT 1+1+1+1+1+1+1": "max_list_items",
    "SELECT NOT NOT NOT NOT NOT NOT 1": "max_list_items",
    "SELECT concat(a, b, c, d, e, f) FROM t": "max_list_items",
    "SELECT 1, 2, 3, 4, 5": "max_select_columns",
    "SELECT x FROM (SELECT 1, 2, 3, 4, 5) AS d": "max_select_columns",
    "SELECT a FROM t JOIN u ON t.a = u.a LEFT JOIN v ON v.b IN (1, 2) JOIN w USING (a, b)": "max_joins",
    "SELECT a FROM t, u, v, w": "max_joins",
    "SELECT a FROM (t, (u, v)) JOIN w": "max_joins",
    "SELECT a FROM t JOIN (SELECT a FROM u, v) AS d ON 1 WHERE a IN (SELECT b FROM t, w)": "max_joins",
    "SELECT a FROM t UNION SELECT a FROM t, u, v, w": "max_joins",
    "SELECT ((((1))))": "max_nesting",
    "SELECT ((((": "max_nesting",
    "SELECT /*! (((( */ 1": "max_nesting",
}
NOT_MUCH = [
    "SELECT 1; SELECT 2; SELECT 3;",
    "SELECT a FROM t WHERE a IN (1, 2, 3, 4, 5)",
    "INSERT INTO t (a, b) VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f'), (7, 'g')",
    "SELECT 'it''s, ''a'', \\', list, of, (((( ; ; ; ; words' FROM t",
    'SELECT "a,b,c,d,e,f,\\"g,h((((" FROM t',
    "SELECT `a,b,c,d,e,f((((` FROM t",
    "SELECT 1 -- a, b, c, d, e, f ((((\n",
    "SELECT 1 # a, b, c, d, e, f ((((\n",
    "SELECT 1 /* a, b, c, d, e, f (((( ;;;; */",
    "SELECT a FROM t, u, v UNION SELECT a FROM t JOIN u JOIN v UNION SELECT a FROM t, u, v",
    "(SELECT a FROM t, u, v) UNION (SELECT a FROM t JOIN (u JOIN v)) UNION (SELECT a FROM t, u, v)",
    "SELECT a FROM t JOIN u USING (a, b, c) WHERE a IN (1, 2, 3, 4) ORDER BY a, b, c, d",
    "SELECT a, b, c FROM t JOIN u ON a IN (1, 2, 3) GROUP BY a, b, c, d",
    "SELECT (1), (2), (3), (4) FROM t WHERE a IN (1, 2, 3) OR b IN (4, 5, 6)",
    "SELECT a FROM t WHERE a IN (1, 2, 3)) , 4, 5)",
    "UPDATE t SET a = 1, b = 2 WHERE c = 3",
]


@pytest.mark.parametrize(("sql", "limit"), TOO_MUCH.items())
def test_too_much(sql: str, limit: str) -> None:
    with pytest.raises(LimitExceeded, match=f'"{limit}", ') as refused:
        measure(sql, LIMITS)
    assert limit in (refused.value.hint or "")


@pytest.mark.parametrize("sql", NOT_MUCH)
def test_not_much(sql: str) -> None:
    measure(sql, LIMITS)


def test_bytes() -> None:
    check_length("SELECT '" + "é" * 495 + "'", LIMITS)
    with pytest.raises(LimitExceeded, match='"max_sql_size", 1000 bytes'):
        check_length("SELECT '" + "é" * 496 + "'", LIMITS)


def test_the_parser_takes_what_nests_as_deep_as_is_allowed() -> None:
    deepest = SqlLimits().max_nesting
    sql = "SELECT " + "(" * deepest + "1" + ")" * deepest
    measure(sql, SqlLimits())
    assert len(parse(sql)) == 1


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("INSERT INTO t VALUES (1)", (1, "INSERT", False)),
        ("-- first\n/* then */ insert into t select 1", (1, "INSERT", True)),
        ("UPDATE t SET a = 'SELECT'", (1, "UPDATE", False)),
        ("SELECT 1; DELETE FROM t", (2, "SELECT", True)),
        ("", (0, "", False)),
    ],
)
def test_what_is_found(sql: str, found: tuple[int, str, bool]) -> None:
    size = measure(sql, LIMITS)
    assert (size.statements, size.first, size.selects) == found


@pytest.mark.parametrize("sql", ["SELECT id FROM t LIMIT {}", "SELECT {}", "KILL {}", "SELECT a FROM t ORDER BY {}"])
def test_a_number_that_is_no_value_is_refused_wherever_it_stands(sql: str) -> None:
    with pytest.raises(SqlError, match="more than 65 digits"):
        parse(sql.format("9" * 5_000))
    assert len(parse("SELECT '" + "9" * 5_000 + "'")) == 1
