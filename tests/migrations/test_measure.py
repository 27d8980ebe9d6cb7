"""A text that is too much in one way is refused before it is parsed; what only looks so is not."""

from __future__ import annotations

import pytest

from domains.errors import LimitExceeded
from migrations.parse.measure import SqlLimits, check_length, measure
from migrations.parse.reading import parse

LIMITS = SqlLimits(max_sql_size=1_000, max_statements=3, max_list_items=5, max_select_columns=4, max_nesting=3)

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
