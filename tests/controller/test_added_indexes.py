"""Indexes that come after the rows: they hold what is stored, at once and after a crash in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.embedded.local import LocalDeployment


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD INDEX (a)", "CREATE INDEX by_a ON t (a)"])
async def test_an_added_index_holds_the_stored_rows(tmp_path: Path, statement: str) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 5), (2, 5), (3, 6)")
    await deployment.execute(statement)
    table = deployment.dataflow.stores[0].table("t")
    assert table.has_index((1,))
    assert sorted(table.find((1,), (5,))) == [((1, 5), 1), ((2, 5), 1)]
    await deployment.close()


async def test_an_index_left_half_built_is_built_at_the_next_start(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, INDEX (a))")
    await deployment.execute("INSERT INTO t VALUES (1, 5), (2, 5), (3, 6)")
    store = deployment.dataflow.stores[0]
    store.table("t").drop_index((1,))
    store.table("t").add_index((1,))
    assert not store.table("t").has_index((1,))
    await deployment.close()
    deployment = await LocalDeployment.open(tmp_path)
    table = deployment.dataflow.stores[0].table("t")
    assert table.has_index((1,))
    assert table.find((1,), (6,)) == [((3, 6), 1)]
    await deployment.close()
