"""With statistics joins begin with few rows; without them, as in a view, they follow the text."""

from __future__ import annotations

import sqlite3

import pytest

from domains.language.types import BIGINT, Row, TableColumn, TableSchema
from domains.plan.estimates import Statistics, TableStatistics
from domains.store.memory_store import MemoryStore
from domains.store.storage import sampled
from migrations.catalog import Catalog
from migrations.flow.evaluation_plan import estimates_of
from migrations.flow.explain import explain_query
from migrations.joint_graph.graph import JointGraph
from migrations.parse.reading import parse
from migrations.query.view import PlannedView, plan_view
from tests.migrations.oracle import as_bag, catalog, judge, planned_answer, random_tables
from tests.migrations.query_cases import Case, read_cases

CATALOG = catalog()
STATISTICS: Statistics = {
    "stories": TableStatistics(100_000, {(0,): 100_000, (1,): 1_000, (2,): 90_000, (3,): 50}, ((0,), (1,))),
    "votes": TableStatistics(1_000_000, {(0,): 1_000, (1,): 80_000, (2,): 3}, ((1,),)),
    "users": TableStatistics(1_000, {(0,): 1_000, (1,): 1_000, (2,): 20, (3,): 100}, ((0,),)),
    "tags": TableStatistics(300_000, {(0, 1): 300_000, (0,): 100_000, (1,): 30, (2,): 4}, ((0, 1),)),
}


def planned(sql: str, statistics: Statistics | None, known: Catalog = CATALOG) -> tuple[JointGraph, PlannedView]:
    graph = JointGraph()
    return graph, plan_view(known, graph, "v", parse(sql)[0].expression, statistics=statistics)


def shape(sql: str) -> list[str]:
    graph, view = planned(sql, STATISTICS)
    known = estimates_of([graph.node(index) for index in graph.ancestors(view.root)], STATISTICS)
    return explain_query(graph.node, view.root, known, {}, {}).splitlines()


def test_joins_begin_where_few_rows_are_and_go_on_by_an_index() -> None:
    sql = (
        "SELECT t.tag, v.vote FROM votes v, tags t, stories s, users u "
        "WHERE v.story_id = s.id AND t.story_id = s.id AND s.author = u.id AND u.name = 'ann'"
    )
    assert shape(sql) == [
        "π tag, vote  ~3,750 rows",
        "└─ ⋈ id = story_id  ~3,750 rows",
        "   ├─ π id, tag  ~300 rows",
        "   │  └─ ⋈ id = story_id  ~300 rows",
        "   │     ├─ π id  ~100 rows",
        "   │     │  └─ ⋈ id = author  ~100 rows",
        "   │     │     ├─ σ name = 'ann'  ~1 rows",
        "   │     │     │  └─ users  ~1,000 rows",
        "   │     │     └─ stories  ~100,000 rows",
        "   │     └─ tags  ~300,000 rows",
        "   └─ votes  ~1,000,000 rows",
    ]


def test_a_view_follows_the_text() -> None:
    """Whatever the tables hold: a recipe gives the same graph."""
    sql = "SELECT v.vote FROM votes v JOIN stories s ON story_id = s.id JOIN users u ON s.author = u.id WHERE u.id = 7"
    graph, view = planned(sql, None)
    order = [
        line.strip("│├└─ ").split("  ")[0] for line in explain_query(graph.node, view.root, {}, {}, {}).splitlines()
    ]
    assert [line for line in order if line in STATISTICS] == ["votes", "stories", "users"]


@pytest.mark.parametrize("case", read_cases("queries.txt"), ids=lambda case: case.sql)
def test_the_order_changes_no_answer(case: Case, worlds: list[tuple[dict[str, list[Row]], sqlite3.Connection]]) -> None:
    graph, view = planned(case.sql, STATISTICS)
    for tables, connection in worlds:
        for values in case.values:
            flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
            expected = connection.execute(case.sqlite or case.sql, flat).fetchall()
            assert as_bag(planned_answer(graph, view, tables, values)) == as_bag(expected), values


@pytest.fixture(scope="module")
def worlds() -> list[tuple[dict[str, list[Row]], sqlite3.Connection]]:
    made = []
    for seed in (11, 12):
        tables = random_tables(seed)
        connection = judge(tables)
        connection.execute("PRAGMA case_sensitive_like = ON")
        made.append((tables, connection))
    return made


def test_a_sample_tells_how_many_rows_a_key_has() -> None:
    columns = tuple(TableColumn(name, BIGINT) for name in ("id", "author", "state", "code", "one"))
    store = MemoryStore()
    table = store.create_table(TableSchema("stories", columns, primary_key=(0,), indexes=((1,), (4,))))
    table.add_index((1,))
    table.add_index((4,))
    table.stage([((i, i % 400, i % 3, i * 7, 5), 1) for i in range(2_000)])
    store.commit([])
    known = sampled(table)
    distinct = {(0,): 2_000, (1,): 400, (2,): 3, (3,): 2_000, (4,): 1}
    assert known == TableStatistics(2_000, distinct, ((0,), (1,), (4,)))
    assert known.has_index((1, 2))
    assert not known.has_index((2,))
