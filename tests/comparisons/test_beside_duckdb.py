"""What MariaDB 10.11 does not have (LATERAL, FULL OUTER JOIN): DuckDB is the judge of ``beside_duckdb.txt``.

Each query is asked as a view that was there before half of the writes, and without a view.
"""

from __future__ import annotations

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
