"""What MariaDB 10.11 does not have (LATERAL, FULL OUTER JOIN): DuckDB is the judge of ``beside_duckdb.txt``.

Each query is asked as a view that was there before half of the writes, and without a view.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import duckdb
import pytest

from controller.embedded.local import LocalDeployment
from tests.comparisons.test_subqueries import AFTER, BEFORE, TABLES, bag

QUERIES = (Path(__file__).parent / "beside_duckdb.txt").read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def expected() -> dict[str, list[list[object]]]:
    with duckdb.connect() as judge:
        for statement in (*TABLES, *BEFORE, *AFTER):
            judge.execute(statement)
        return {query: bag(judge.execute(query).fetchall()) for query in QUERIES}


@pytest.mark.parametrize("shards", [1, 3])
async def test_duckdb_answers_the_same(tmp_path: Path, expected: dict[str, list[list[object]]], shards: int) -> None:
    deployment = await LocalDeployment.open(tmp_path, shards=shards)
    try:
        await deployment.execute("; ".join((*TABLES, *BEFORE)))
        for at, query in enumerate(QUERIES):
            await deployment.execute(f"CREATE EXT VIEW v{at} AS {query}")
        await deployment.execute("; ".join(AFTER))
        for at, query in enumerate(QUERIES):
            (held,), _ = await deployment.execute(f"SELECT * FROM v{at}")
            assert bag(held.rows) == expected[query], query
            await deployment.execute(f"DROP VIEW v{at}")
            (evaluated,), _ = await deployment.execute(query)
            assert bag(evaluated.rows) == expected[query], query
    finally:
        await deployment.close()


ASKED = (
    "SELECT s.id, v.vote FROM s LEFT JOIN v ON v.story = s.id AND v.user = ?",
    "SELECT s.id, v.vote FROM s LEFT JOIN v ON v.story = s.id AND v.user = ? WHERE s.id = ?",
    "SELECT s.id, v.vote FROM s LEFT JOIN v ON v.story = s.id AND v.user = ? AND v.vote > s.score WHERE s.author = ?",
    "SELECT s.id, v.vote FROM v RIGHT JOIN s ON v.story = s.id AND v.vote > ?",
    "SELECT s.id FROM s LEFT JOIN v ON v.story = s.id AND v.user = ? WHERE v.id IS NULL",
    "SELECT s.id, COALESCE(v.vote, -1) AS x FROM s LEFT JOIN v ON v.story = s.id AND v.user = ? "
    "WHERE v.vote > 1 OR s.score > 2",
    "SELECT s.id, v.id AS v, c.id AS c FROM s LEFT JOIN v ON v.story = s.id AND v.user = ? "
    "LEFT JOIN c ON c.story = s.id AND c.score >= ?",
    "SELECT s.id, u.name, v.vote FROM s JOIN u ON u.id = s.author LEFT JOIN v ON v.story = s.id AND v.user = ?",
    "SELECT DISTINCT s.author, v.user FROM s LEFT JOIN v ON v.story = s.id AND v.user = ?",
    "SELECT b.story, v.id FROM b LEFT JOIN v ON v.story = b.story AND v.user = ?",
    "SELECT id FROM s WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.story = s.id AND v.user = ?)",
    "SELECT id FROM s WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.story = s.id AND v.user = ?) AND author = ?",
    "SELECT id, EXISTS (SELECT 1 FROM v WHERE v.story = s.id AND v.user = ?) AS x FROM s",
    "SELECT id FROM s WHERE EXISTS (SELECT 1 FROM v WHERE v.story = s.id AND v.user = ?) OR score > 4",
    "SELECT id, (SELECT COUNT(*) FROM v WHERE v.story = s.id AND v.user = ?) AS n FROM s",
    "SELECT id, (SELECT MAX(vote) FROM v WHERE v.story = s.id AND v.user = ?) AS n FROM s WHERE s.id > ?",
    "SELECT id FROM s WHERE (SELECT COUNT(*) FROM v WHERE v.story = s.id AND v.user = ?) = 0 AND score > ?",
    "SELECT author, COUNT(*) AS n FROM s GROUP BY author "
    "HAVING NOT EXISTS (SELECT 1 FROM v WHERE v.user = s.author AND v.vote = ?)",
    "SELECT id FROM s WHERE EXISTS (SELECT 1 FROM v WHERE v.story = s.id AND v.vote > ?)",
    "SELECT id, author FROM s WHERE EXISTS (SELECT 1 FROM v WHERE v.story = s.id AND v.vote <= ? AND v.user = ?)",
    "SELECT b.story FROM b WHERE EXISTS (SELECT 1 FROM v WHERE v.story = b.story AND v.user >= ?) AND b.story > ?",
)
"""With parameters that rows may be missing for: an outer join or a subquery is decided when the answer is read. And for
which a row may have several that meet a range."""


@pytest.mark.parametrize("shards", [1, 3])
async def test_what_is_missing_for_a_parameter_is_what_duckdb_misses(tmp_path: Path, shards: int) -> None:
    """As views that are read before the writes and behind them, and without a view."""
    deployment = await LocalDeployment.open(tmp_path, shards=shards)
    try:
        with duckdb.connect() as judge:
            for statement in (*TABLES, *BEFORE):
                judge.execute(statement)
                await deployment.execute(statement)
            for at, query in enumerate(ASKED):
                await deployment.execute(f"CREATE EXT VIEW v{at} AS {query}")
            await _compare(deployment, judge)
            for statement in AFTER:
                judge.execute(statement)
                await deployment.execute(statement)
            await _compare(deployment, judge)
    finally:
        await deployment.close()


async def _compare(deployment: LocalDeployment, judge: duckdb.DuckDBPyConnection) -> None:
    for at, query in enumerate(ASKED):
        for values in product(range(1, 5), repeat=query.count("?")):
            expected = bag(judge.execute(query, list(values)).fetchall())
            (page,) = await deployment.pages(f"v{at}", [list(values)])
            assert bag(row.values() for row in json.loads(b"[" + page + b"]")) == expected, (query, values)
            if set(values) == {2}:
                (evaluated,), _ = await deployment.execute(query, values)
                assert bag(evaluated.rows) == expected, (query, values)
