"""Every planned query, recomputed operator by operator, answers what SQLite answers."""

from __future__ import annotations

import sqlite3

import pytest

from domains.language.types import Row
from tests.migrations.oracle import as_bag, catalog, comparable, judge, plan, planned_answer, random_tables
from tests.migrations.query_cases import Case, read_cases

SEEDS = range(4)
CATALOG = catalog()


@pytest.fixture(scope="module")
def worlds() -> list[tuple[int, dict[str, list[Row]], sqlite3.Connection]]:
    made = []
    for seed in SEEDS:
        tables = random_tables(seed)
        connection = judge(tables)
        connection.execute("PRAGMA case_sensitive_like = ON")
        made.append((seed, tables, connection))
    return made


@pytest.mark.parametrize("case", read_cases("queries.txt"), ids=lambda case: case.sql)
def test_same_rows(case: Case, worlds: list[tuple[int, dict[str, list[Row]], sqlite3.Connection]]) -> None:
    graph, view = plan(case.sql, CATALOG)
    for seed, tables, connection in worlds:
        for values in case.values:
            flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
            expected = connection.execute(case.sqlite or case.sql, flat).fetchall()
            found = planned_answer(graph, view, tables, values)
            assert as_bag(found) == as_bag(expected), f"seed {seed}, values {values}"


def test_every_question_mark_is_a_parameter_of_its_own() -> None:
    texts = [case.sql for case in read_cases("queries.txt") if "?" in case.sql]
    assert len(texts) > 20
    for sql in texts:
        _, view = plan(sql, CATALOG)
        assert len(view.parameters) == sql.count("?"), sql


@pytest.mark.parametrize("case", read_cases("queries_in_order.txt"), ids=lambda case: case.sql)
def test_same_rows_in_order(case: Case, worlds: list[tuple[int, dict[str, list[Row]], sqlite3.Connection]]) -> None:
    graph, view = plan(case.sql, CATALOG)
    for seed, tables, connection in worlds:
        expected = connection.execute(case.sqlite or case.sql).fetchall()
        assert comparable(planned_answer(graph, view, tables, ())) == comparable(expected), f"seed {seed}"
