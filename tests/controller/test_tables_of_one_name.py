"""A table that is dropped and another one that is created with its name: two tables, for tokens and after a crash."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from headrace_client import tokens

from controller.embedded.local import LocalDeployment
from domains.plan.packets import Clock

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
