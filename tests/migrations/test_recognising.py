"""Which texts are looked at, what is known of them, and what comes out."""

from __future__ import annotations

from decimal import Decimal

import pytest

from migrations.parse.reading import parse_select
from migrations.statements.adhoc.recognising import KnownShapes, rewritten, scanned
from migrations.statements.adhoc.shapes_of_selects import comparands

MANY = 1_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t WHERE id = 7", "SELECT a FROM t WHERE id = 123"),
        ("SELECT a FROM t WHERE id IN (1, 2,3)", "SELECT a FROM t WHERE id IN (1)"),
        ("SELECT a FROM t WHERE b = 'x' -- first\n", "SELECT a FROM t WHERE b = 'it is -- /* # y'# second"),
        ("/* 4711 */ SELECT a FROM t WHERE id=7", "/* 12 */ SELECT a FROM t WHERE id=8"),
        ("SELECT a FROM t WHERE p > 1.5", "SELECT a FROM t WHERE p > 22.75"),
    ],
)
def test_texts_of_one_shape(one: str, other: str) -> None:
    ours, theirs = scanned(one), scanned(other)
    assert ours is not None
    assert theirs is not None
    assert ours[0] == theirs[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t WHERE id = 7", "SELECT a FROM t WHERE id = '7'"),
        ("SELECT a FROM t WHERE id = 7", "SELECT a FROM t WHERE id = 7.0"),
        ("SELECT a FROM t WHERE id IN (1, 2)", "SELECT a FROM t WHERE id IN (1, '2')"),
        ("SELECT a FROM t WHERE id = 7", "SELECT A FROM t WHERE id = 7"),
        ("SELECT a FROM t WHERE a = 7", "SELECT a FROM t WHERE `a` = 7"),
        ("SELECT a FROM t WHERE f(1, 2)", "SELECT a FROM t WHERE f(1)"),
    ],
)
def test_texts_of_two_shapes(one: str, other: str) -> None:
    ours, theirs = scanned(one), scanned(other)
    assert ours is not None
    assert theirs is not None
    assert ours[0] != theirs[0]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1)",
        "SELECT a FROM t WHERE b = 'it''s'",
        r"SELECT a FROM t WHERE b = 'a\'b'",
        'SELECT a FROM t WHERE b = "x"',
        "SELECT a FROM t WHERE id = ?",
        "SELECT a FROM t WHERE id = :id",
        "SELECT a FROM t WHERE id = 7; SELECT 1",
        "SELECT /*+ NO_INDEX */ a FROM t WHERE id = 7",
        "SELECT /*!40000 a */ FROM t WHERE id = 7",
        "SELECT /* a /* b */ c */ a FROM t WHERE id = 7",
        "SELECT a FROM t WHERE id = 1e5",
        "SELECT a FROM t WHERE id = 0x1F",
        "SELECT a FROM t WHERE id = 1234567890123456789",
        "SELECT a FROM t WHERE b = 'open",
        "SELECT @x",
        f"SELECT a FROM t WHERE id = 7{' ' * 20_000}",
    ],
)
def test_what_is_unusual_is_not_looked_at(sql: str) -> None:
    assert scanned(sql) is None


def test_what_was_learnt_holds_for_the_next() -> None:
    known = KnownShapes()
    first = "SELECT a, 5 FROM t WHERE id = 7 AND n > 3 AND b IN ('x', 'y') LIMIT 2"
    assert known.recognised(first, MANY) is None
    turned = [(first.index("7"),), (first.index("'x'"), first.index("'y'"))]
    assert known.unlearnt(first, turned) == (
        "SELECT a, 5 FROM t WHERE id = ? AND n > 3 AND b IN (?) LIMIT 2",
        [7, ("x", "y")],
    )
    known.learn(first, turned, turned)
    assert known.unlearnt(first, turned) is None
    second = "/* q2 */SELECT a, 6 FROM t WHERE id = 8 AND n > 4 AND b IN ('z') LIMIT 1"
    assert scanned(second) is not None
    assert known.recognised(second, MANY) is None, "its comment stands where the first has nothing"
    third = "SELECT a, 6 FROM t WHERE id = 8 AND n > 4 AND b IN ('z','u','v') LIMIT 1"
    assert known.recognised(third, MANY) == (
        "SELECT a, 6 FROM t WHERE id = ? AND n > 4 AND b IN (?) LIMIT 1",
        [8, ("z", "u", "v")],
    )
    assert known.recognised(third, 2) is None, "a list is longer than it may be"


def test_a_shape_that_comes_once_is_not_worth_learning() -> None:
    known = KnownShapes()
    assert not known.meets("SELECT a FROM t WHERE id = 7")
    assert not known.meets("SELECT a FROM t WHERE id = 'x'")
    assert known.meets("SELECT a FROM t WHERE id = 8")
    assert not known.meets("SELECT a FROM t WHERE id = ?"), "it is not looked at"


def test_what_would_be_another_view_takes_the_full_way() -> None:
    known, sql = KnownShapes(), "SELECT a FROM t WHERE id = 7"
    known.learn(sql, (), ())
    assert known.recognised(sql, MANY) is None
    assert known.unlearnt(sql, [(26,)]) is None


def test_comments_are_left_out() -> None:
    sql = "SELECT a\n FROM t -- why\n WHERE p = 2.50 /* and */ AND b = ' -- x '"
    found = scanned(sql)
    assert found is not None
    first = found[1][0]
    assert first.argument == Decimal("2.50")
    assert rewritten(sql, [first]) == "SELECT a FROM t WHERE p = ? AND b = ' -- x '"


def test_a_view_for_a_whole_shape_has_all_that_could_be_parameters() -> None:
    known, sql = KnownShapes(), "SELECT a FROM t WHERE id = 7 AND n > 3"
    id, n = (sql.index("7"),), (sql.index("3"),)
    known.learn(sql, [id], [id, n])
    text, values = known.recognised("SELECT a FROM t WHERE id = 8 AND n > 4", MANY) or ("", [])
    assert (text, values) == ("SELECT a FROM t WHERE id = ? AND n > 4", [8])
    assert known.general(text) == ("SELECT a FROM t WHERE id = ? AND n > ?", [8, 4])
    known.keep(text, "adhoc_1")
    other = "SELECT a FROM t WHERE id = 9 AND n > 5"
    assert known.recognised(other, MANY) == ("SELECT a FROM t WHERE id = ? AND n > ?", [9, 5])
    known.forget("adhoc_1")
    assert known.recognised(other, MANY) == ("SELECT a FROM t WHERE id = ? AND n > 5", [9])


def test_comparands_are_those_of_conditions_outside_of_subqueries() -> None:
    sql = (
        "SELECT a + 1, 2 FROM t WHERE (id = 3 OR NOT n BETWEEN 4 AND 5) AND f(6) = 7 AND b IN (8, 9) AND c LIKE 'x'"
        " AND d IN (SELECT e FROM u WHERE e = 10) AND g = 11 + 12 GROUP BY 13 ORDER BY 14 LIMIT 15 OFFSET 16"
    )
    shown = sorted(sql[start : start + 2].strip(" ),") for starts in comparands(parse_select(sql)) for start in starts)
    assert shown == ["'x", "15", "16", "3", "4", "5", "7", "8", "9"]
