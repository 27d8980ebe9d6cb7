"""Which texts are looked at, what is known of them, and what comes out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

import pytest

from migrations.parse.reading import parse_select
from migrations.statements.adhoc import recognising
from migrations.statements.adhoc.recognising import KnownShapes, rewritten, scanned
from migrations.statements.adhoc.shapes_of_selects import comparands
from migrations.statements.constants import Argument

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


def learnt(known: KnownShapes[str], sql: str, turned: Sequence[str], values: Sequence[Argument], plan: str) -> None:
    """``turned``: the constants as they are written, those of a list parted by blanks."""
    starts = [tuple(map(sql.index, each.split(" "))) for each in turned]
    known.learn(sql, starts, lambda: starts, values, plan)


def test_what_was_learnt_holds_for_the_next() -> None:
    known: KnownShapes[str] = KnownShapes()
    first = "SELECT a, 5 FROM t WHERE id = 7 AND n > 3 AND b IN ('x', 'y') LIMIT 2"
    assert known.recognised(first, MANY) is None
    learnt(known, first, ["7", "'x' 'y'"], [7, ("x", "y")], "plan")
    assert known.recognised(first, MANY) == ("plan", [7, ("x", "y")])
    second = "/* q2 */SELECT a, 5 FROM t WHERE id = 8 AND n > 3 AND b IN ('z','u','v') LIMIT 2 -- end"
    assert known.recognised(second, MANY) == ("plan", [8, ("z", "u", "v")])
    assert known.recognised(second, 2) is None, "a list is longer than it may be"


@pytest.mark.parametrize(
    "other",
    [
        "SELECT a, 6 FROM t WHERE id = 7 AND n > 3.50",
        "SELECT a, 5 FROM t WHERE id = 7 AND n > 3.5",
        "SELECT a, 05 FROM t WHERE id = 7 AND n > 3.50",
    ],
)
def test_other_constants_are_known_letter_by_letter(other: str) -> None:
    """The type of 3.50 is another than that of 3.5, and so may the answer's be."""
    known: KnownShapes[str] = KnownShapes()
    learnt(known, "SELECT a, 5 FROM t WHERE id = 7 AND n > 3.50", ["7"], [7], "plan")
    assert known.recognised(other, MANY) is None
    learnt(known, other, ["7"], [7], "another")
    assert known.recognised(other, MANY) == ("another", [7])


def test_nothing_is_learnt_where_the_tokens_say_something_else() -> None:
    known: KnownShapes[str] = KnownShapes()
    sql = "SELECT a FROM t WHERE id = -7 AND n = 8"
    known.learn(sql, [(sql.index("8"),)], list, [-7, 8], "plan")
    known.learn(sql, [(0,), (sql.index("8"),)], list, [7, 8], "plan")
    known.learn(sql, [(sql.index("8"),)], list, [9], "plan")
    assert known.recognised(sql, MANY) is None


def test_a_constant_that_does_not_fit_its_column_teaches_nothing_of_the_others() -> None:
    known: KnownShapes[str] = KnownShapes()
    fits, other = "SELECT a FROM t WHERE b = '2024-01-01'", "SELECT a FROM t WHERE b = 'x'"
    learnt(known, other, [], [], "verbatim")
    assert known.recognised(fits, MANY) is None
    learnt(known, fits, ["'2024-01-01'"], ["2024-01-01"], "plan")
    learnt(known, other, [], [], "verbatim")
    assert known.recognised("SELECT a FROM t WHERE b = '2024-01-02'", MANY) == ("plan", ["2024-01-02"])


def test_what_is_remembered_is_bounded_by_its_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrations.statements.adhoc.recognising.CHARACTERS", 100)
    known: KnownShapes[str] = KnownShapes()
    texts = [f"SELECT a, a AS {name} FROM t WHERE id = 7" for name in "bcdefg"]
    for sql in texts:
        learnt(known, sql, ["7"], [7], sql)
    assert [known.recognised(sql, MANY) is not None for sql in texts] == [False] * 4 + [True] * 2
    known.forget_plans()
    assert known.recognised(texts[-1], MANY) is None


def test_comments_are_left_out() -> None:
    sql = "SELECT a\n FROM t -- why\n WHERE p = 2.50 /* and */ AND b = ' -- x '"
    found = scanned(sql)
    assert found is not None
    first = found[1][0]
    assert first.argument == Decimal("2.50")
    assert rewritten(sql, [first]) == "SELECT a FROM t WHERE p = ? AND b = ' -- x '"


def test_a_view_for_a_whole_shape_has_all_that_could_be_parameters() -> None:
    known: KnownShapes[str] = KnownShapes()
    sql = "SELECT a, 1 FROM t WHERE id = 7 AND n > 3"
    id, n = (sql.index("7"),), (sql.index("3"),)
    known.learn(sql, [id], lambda: [id, n], [7], "plan")
    assert known.general(sql) == ("SELECT a, 1 FROM t WHERE id = ? AND n > ?", [7, 3])
    assert not known.waits_for_plan(sql)
    known.keep(sql, "adhoc_1", "whole")
    other = "SELECT a, 1 FROM t WHERE id = 9 AND n > 5"
    assert known.recognised(other, MANY) == ("whole", [9, 5])
    assert known.recognised(other.replace("1", "2"), MANY) is None
    known.forget_plans()
    assert known.recognised(other, MANY) is None
    assert known.waits_for_plan(other)
    known.keep(other, "adhoc_1", "whole")
    known.forget("adhoc_1")
    assert known.recognised(other, MANY) is None
    assert not known.waits_for_plan(other)


def test_comparands_are_those_of_conditions_outside_of_subqueries() -> None:
    sql = (
        "SELECT a + 1, 2 FROM t WHERE (id = 3 OR NOT n BETWEEN 4 AND 5) AND f(6) = 7 AND b IN (8, 9) AND c LIKE 'x'"
        " AND d IN (SELECT e FROM u WHERE e = 10) AND g = 11 + 12 GROUP BY 13 ORDER BY 14 LIMIT 15 OFFSET 16"
    )
    shown = sorted(sql[start : start + 2].strip(" ),") for starts in comparands(parse_select(sql)) for start in starts)
    assert shown == ["'x", "15", "16", "3", "4", "5", "7", "8", "9"]


# --- what a text's tokens are -------------------------------------------------------------------------------------

PIECES = (
    *("SELECT a", " FROM t", " WHERE id = ", " AND b = ", "'x'", "''", "'it is'", "7", "07", "1.5", "1.", ".5", "1e5"),
    *(
        "x",
        "`a 1`",
        "`",
        "'",
        "/* 5 */",
        "/*",
        "*/",
        "-- 5\n",
        "--",
        "# 'x'\n",
        "#",
        "(",
        ")",
        " IN (1, 2)",
        " IN (",
        ",",
    ),
    *("N'a'", "x'41'", "t.5", "a5", "$5", "5a", "-", "+", "\\", '"', ";", "?", "\0", "\n", "ä5", "1234567890123456789"),
)


@pytest.mark.parametrize("seed", range(20))
def test_what_stands_around_constants_decides_the_tokens(seed: int) -> None:
    """The quick way to them, which knows texts by what is around their constants, beside the whole one."""
    draw = random.Random(seed)
    constants = ("1", "22", "3.50", "'a'", "'-- b'", "'/* 5'", "''", "'c ''d'")

    def changed(pieces: Sequence[str]) -> list[str]:
        return [draw.choice(constants) if each in ("7", "'x'", "1.5") else each for each in pieces]

    seen = 0
    for _ in range(150):
        pieces = draw.choices(PIECES, k=draw.randrange(1, 12))
        for _ in range(6):
            sql = "SELECT " + "".join(changed(pieces))
            ours, whole = recognising._scanned(sql), recognising._scanned_whole(sql)
            assert (ours is None) == (whole is None), (seed, sql)
            if ours is not None and whole is not None:
                seen += 1
                assert (ours[0], list(ours[1])) == (whole[0], list(whole[1])), (seed, sql)
    assert seen > 20
