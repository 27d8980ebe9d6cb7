"""The judge is judged: by DuckDB on generated queries, and by the comparison's own rules on hand-made answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pytest

from tests.campaign.comparison import Different, canonical, canonical_row, compare
from tests.campaign.duck import Duck, comparable
from tests.campaign.functions import my_date_add, my_div, my_like, my_mod, my_quot, my_round, my_substring
from tests.campaign.judge import Expected, Judge
from tests.campaign.judged_writes import Verdict
from tests.campaign.kinds import DATE, INT, TXT, Kind, Type, dec
from tests.campaign.queries import Cut, OrderKey, Output, Query, Select, Source, selects
from tests.campaign.schema import Column, Table, random_table
from tests.campaign.selects import Queries, stored
from tests.campaign.statements import Insert, Update
from tests.campaign.terms import arithmetic, column, constant
from tests.campaign.writes import random_insert

QUERIES_A_SEED = 40
ORDERED = (OrderKey(column("t", "k", INT)),)


def world(seed: int) -> tuple[Judge, Random]:
    random = Random(f"judge {seed}")
    judge = Judge()
    for i in range(3):
        table = random_table(random, f"b{i}")
        while any(c.type.members or c.type.kind is Kind.JSON for c in table.columns):  # They do not mean the same.
            table = random_table(random, f"b{i}")
        judge.create_table(table)
        for _ in range(4):
            verdict, rows = judge.consider(random_insert(random, table, rows=6))
            if verdict is Verdict.DONE:
                judge.apply(rows)
    return judge, random


def without_cut(query: Query) -> Query:
    return replace(query, order=(), cut=Cut())


@pytest.mark.parametrize("seed", range(12))
def test_sqlite_and_duckdb_agree(seed: int) -> None:
    judge, random = world(seed)
    duck = Duck(judge)
    compared = 0
    for _ in range(QUERIES_A_SEED * 20):
        query = without_cut(Queries(random, list(judge.tables.values())).query())
        if not comparable(query) or not judge.affordable(query):
            continue
        types = [output.term.type for output in query.outputs]
        try:
            found = duck.rows(query)
        except (duckdb.ConversionException, duckdb.BinderException, duckdb.InvalidInputException):
            continue  # DuckDB is strict about texts where a number or a date is wanted.
        if any(
            type.kind is Kind.DEC and value is not None and not isinstance(value, Decimal | int | float)
            for row in found
            for type, value in zip(types, row, strict=True)
        ):
            continue  # fmt: skip
        expected = judge.expected(query)
        ours = Counter(canonical_row(row, types) for row, _ in expected.rows)
        theirs = Counter(canonical_row(_as_ours(row, types), types) for row in found)
        assert ours == theirs, f"seed {seed}: {selects(query)}"
        compared += 1
        if compared == QUERIES_A_SEED:
            break
    judge.close()
    duck.close()
    assert compared >= QUERIES_A_SEED / 2, f"seed {seed}: only {compared} queries are comparable"


def _as_ours(row: Sequence[Any], types: Sequence[Type]) -> list[Any]:
    """DuckDB sums integers as HUGEINT and averages them as DOUBLE; an integer of ours is one in Python."""
    return [
        int(value) if type.kind is Kind.INT and isinstance(value, float | Decimal) and value == int(value) else value
        for value, type in zip(row, types, strict=True)
    ]


def test_functions_follow_the_manual() -> None:
    assert my_quot(1, 3, 4) == 0.3333
    assert my_quot(2, 3, 4) == 0.6667
    assert my_quot(1, 0, 4) is None
    assert my_div(-7, 2) == -3
    assert my_mod(-7, 3, 0) == -1
    assert my_round(2.25, 1) == 2.3
    assert my_round(-2.5, 0) == -3
    assert my_substring("apple", 0, 2) == ""
    assert my_substring("apple", -3, 2) == "pl"
    assert my_like("a_c", "a_c")
    assert not my_like("abc", "A%")
    assert my_date_add("2024-01-31", 1, "MONTH") == "2024-02-29"


# --- comparing ------------------------------------------------------------------------------------------


def test_a_limit_within_a_query_follows_keys_that_are_not_shown() -> None:
    judge = Judge()
    judge.create_table(table := Table("b", (Column("k", INT, "INT"), Column("hidden", INT, "INT"))))
    judge.apply({"b": {1: (1, 3), 2: (2, 2)}})
    order = (OrderKey(column("t", "hidden", INT)), OrderKey(column("t", "k", INT), position=0))
    inner = Select((Output(column("t", "k", INT), "x0"),), (Source("t", stored(table)),), order=order, cut=Cut(1))
    outer = Select((Output(column("u", "x0", INT), "y0"),), (Source("u", inner),))
    assert judge.expected(outer).rows == [((2,), ())]


def answers(*pairs: tuple[int, str], limit: int | None = None, offset: int = 0) -> Expected:
    return Expected([((k, v), (k,)) for k, v in pairs], limit, offset)


def test_ties_may_stand_as_they_like() -> None:
    expected = answers((1, "a"), (1, "b"), (2, "c"))
    compare([(1, "b"), (1, "a"), (2, "c")], expected, [INT, TXT], ORDERED)
    with pytest.raises(Different):
        compare([(2, "c"), (1, "b"), (1, "a")], expected, [INT, TXT], ORDERED)
    compare([(2, "c"), (1, "b"), (1, "a")], expected, [INT, TXT], ())


def test_a_limit_may_cut_through_a_tie() -> None:
    expected = answers((1, "a"), (2, "b"), (2, "c"), (3, "d"), limit=2)
    compare([(1, "a"), (2, "b")], expected, [INT, TXT], ORDERED)
    compare([(1, "a"), (2, "c")], expected, [INT, TXT], ORDERED)
    for wrong in ([(1, "a"), (3, "d")], [(2, "b"), (2, "c")], [(1, "a")], [(1, "a"), (1, "a")]):
        with pytest.raises(Different):
            compare(wrong, expected, [INT, TXT], ORDERED)
    compare([(2, "c"), (3, "d")], replace(expected, offset=2), [INT, TXT], ORDERED)
    compare([], replace(expected, offset=9), [INT, TXT], ORDERED)


def test_values_count_by_their_type() -> None:
    assert canonical("3.50", dec(2)) == canonical(Decimal("3.5"), dec(2)) == canonical(3.5, dec(2))
    for value, type in ((True, INT), (1.0, INT), ("1", INT), (1, TXT), ("x", dec(2))):
        with pytest.raises(ValueError, match="is no"):
            canonical(value, type)


# --- writes ------------------------------------------------------------------------------------------


@pytest.fixture
def keyed() -> Judge:
    judge = Judge()
    columns = (Column("k", INT, "INT", nullable=False), Column("u", TXT, "VARCHAR(5)"), Column("d", DATE, "DATE"))
    judge.create_table(Table("t", columns, ("k",), (("u",),)))
    judge.apply({"t": {1: (1, "a", None), 2: (2, "b", None), 3: (3, None, None)}})
    return judge


def insert(*rows: tuple[object, ...], mode: str = "") -> Insert:
    return Insert("t", ("k", "u"), rows, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("write", "verdict", "left"),
    [
        (insert((4, "d"), (1, "x")), Verdict.REFUSED, 3),
        (insert((4, None), (5, None)), Verdict.DONE, 5),
        (insert((4, "too long")), Verdict.REFUSED, 3),
        (insert((None, "x")), Verdict.REFUSED, 3),
        (insert((4, "a"), (5, "e"), (5, "f"), mode="ignore"), Verdict.DONE, 4),
        (insert((1, "b"), mode="replace"), Verdict.DONE, 2),
    ],
)
def test_constraints(keyed: Judge, write: Insert, verdict: Verdict, left: int) -> None:
    found, rows = keyed.consider(write)
    assert (found, len(rows.get("t", keyed.contents("t")))) == (verdict, left)


def test_an_update_that_collides_on_the_way_is_open(keyed: Judge) -> None:
    shift = arithmetic("+", column("t", "k", INT), constant(1, INT))
    assert keyed.consider(Update("t", (("k", shift),), None))[0] is Verdict.OPEN
    assert keyed.consider(Update("t", (("k", constant(1, INT)),), None))[0] is Verdict.REFUSED
