"""What a later start finds in a data directory: its shards, its indexes, and tables that had one name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from headrace_client import tokens

from controller.embedded.local import LocalDeployment
from domains.errors import StorageFailure
from domains.plan.packets import Clock
from worker.belonging import claim


@pytest.mark.parametrize("first", [None, 1, 3])
async def test_a_later_start_has_as_many_as_the_first(first: int | None, tmp_path: Path) -> None:
    opened = await LocalDeployment.open(tmp_path, shards=first)
    await opened.execute("CREATE TABLE stories (id INT PRIMARY KEY)")
    await opened.insert("stories", [{"id": number} for number in range(20)])
    await opened.close()
    for given in (None, first):
        opened = await LocalDeployment.open(tmp_path, shards=given)
        assert opened.state.shards == (first or 1)
        ((found,), _) = await opened.execute("SELECT COUNT(*) FROM stories")
        assert found.rows == ((20,),)
        await opened.close()
    with pytest.raises(StorageFailure, match="not 2") as refused:
        await LocalDeployment.open(tmp_path, shards=2)
    assert refused.value.hint is not None
    assert "give none" in refused.value.hint


async def test_the_data_of_a_cluster_is_not_opened(tmp_path: Path) -> None:
    claim(tmp_path, "main", "1")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StorageFailure, match="of a cluster"):
        await LocalDeployment.open(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


async def test_what_was_created_and_dropped_again_is_not_in_the_recipe(tmp_path: Path) -> None:
    opened = await LocalDeployment.open(tmp_path)
    await opened.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 5), (2, 5)")
    await opened.execute("CREATE EXT VIEW kept AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a")
    (kept,) = opened.views()
    assert kept.created
    sizes = set[int]()
    for turn in range(25):
        await opened.execute(f"CREATE TABLE u (id INT PRIMARY KEY); INSERT INTO u VALUES ({turn})")
        await opened.execute(f"CREATE OR REPLACE EXT VIEW v AS SELECT id FROM t WHERE a > {turn}")
        await opened.execute("DROP TABLE u")
        sizes.add((tmp_path / "recipe.json").stat().st_size)
    await opened.execute("DROP VIEW v")
    assert max(sizes) < 4_000
    await opened.close()
    opened = await LocalDeployment.open(tmp_path)
    await opened.execute("CREATE TABLE u (id INT PRIMARY KEY)")
    assert opened.state.catalog.table("u").generation == 25, "it is none of the former ones"
    assert [view.created for view in opened.views()] == [kept.created]
    ((found, none), _) = await opened.execute("SELECT a, n FROM kept WHERE a = 5; SELECT id FROM u")
    assert (found.rows, none.rows) == (((5, 2),), ())
    await opened.close()


# --- indexes that come after the rows -----------------------------------------------------------------------------


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


# --- two tables of one name, one after the other ------------------------------------------------------------------


TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT)"
VIEW = "CREATE EXT VIEW v AS SELECT id FROM t WHERE a = ?"


async def told(deployment: LocalDeployment, sql: str, seen: Clock) -> Clock:
    """What a client has seen that merges the token of the answer into what it has."""
    _, clock = await deployment.execute(sql)
    return tokens.merge(seen, tokens.decode(tokens.encode(clock)))


async def read(deployment: LocalDeployment, seen: Clock) -> bytes:
    return await deployment.page("v", {"a": ["7"]}, token=seen)


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_token_of_the_former_table_makes_nobody_wait(tmp_path: Path, shards: int) -> None:
    settings: dict[str, Any] = {"read_timeout": 60.0, "shards": shards}
    deployment = await LocalDeployment.open(tmp_path / "data", **settings)
    seen = await told(
        deployment, f"{TABLE}; {VIEW}; INSERT INTO t VALUES (1, 7), (2, 7); INSERT INTO t VALUES (3, 7)", {}
    )
    seen = await told(deployment, "DELETE FROM t WHERE id < 3", seen)
    assert await read(deployment, seen) == b'{"id":3}'
    for number in (4, 5):
        seen = await told(
            deployment, f"DROP VIEW v; DROP TABLE t; {TABLE}; {VIEW}; INSERT INTO t VALUES ({number}, 7)", seen
        )
        assert await read(deployment, seen) == b'{"id":%d}' % number
    await deployment.close()
    deployment = await LocalDeployment.open(tmp_path / "data", **settings)
    assert await read(deployment, seen) == b'{"id":5}'
    seen = await told(deployment, "INSERT INTO t VALUES (6, 7)", seen)
    assert sorted((await read(deployment, seen)).split(b",")) == [b'{"id":5}', b'{"id":6}']
    assert len(seen) <= 3 * shards, "each table has names of its own"
    await deployment.close()


async def test_a_crash_before_the_former_table_was_dropped_leaves_none_of_its_rows(tmp_path: Path) -> None:
    """What was decided is in the recipe, and the stores are as they were before."""
    data, before = tmp_path / "data", tmp_path / "before"
    deployment = await LocalDeployment.open(data)
    await deployment.execute(f"{TABLE}; INSERT INTO t VALUES (1, 7)")
    await deployment.close()
    shutil.copytree(data, before)
    deployment = await LocalDeployment.open(data)
    await deployment.execute(f"DROP TABLE t; {TABLE}")
    await deployment.close()
    for store in (before / "base", before / "shards"):
        if store.exists():
            shutil.rmtree(data / store.name)
            shutil.copytree(store, data / store.name)
    deployment = await LocalDeployment.open(data)
    ((answer,), _) = await deployment.execute("SELECT * FROM t")
    assert answer.rows == ()
    await deployment.close()
