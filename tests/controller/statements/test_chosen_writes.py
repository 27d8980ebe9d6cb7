"""UPDATE and DELETE whose rows a SELECT chooses, while others write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.hosts import SchemaChanged, TableTarget
from controller.statements import sequence
from controller.statements.selects import Selects
from controller.statements.shapes import AdHocMode
from domains.errors import LimitExceeded, RowsChanged, Unsupported
from domains.plan.packets import Amend
from migrations.parse.measure import SqlLimits
from migrations.statements.constants import constant_of
from worker.service.child_pool import ChildPool

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, n INT);
CREATE TABLE u (t INT, n INT, PRIMARY KEY (t, n));
INSERT INTO t VALUES (1, 10), (2, 20), (3, 30);
INSERT INTO u VALUES (1, 1), (1, 2), (3, 5)
"""
JOINED = "UPDATE t JOIN u ON u.t = t.id SET t.n = t.n + 1"


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path)
    await opened.execute(TABLES)
    yield opened
    await opened.close()


async def rows(deployment: LocalDeployment) -> list[Any]:
    (found,), _ = await deployment.execute("SELECT id, n FROM t ORDER BY id")
    return list(found.rows)


def interfered(monkeypatch: pytest.MonkeyPatch, deployment: LocalDeployment, writes: list[str]) -> None:
    """After each choice of rows another write comes first, while there is one."""
    plain = Selects.found

    async def found(self: Selects, *arguments: Any) -> Any:
        answer = await plain(self, *arguments)
        if writes:
            await deployment.execute(writes.pop(0))
        return answer

    monkeypatch.setattr(Selects, "found", found)


async def test_no_write_between_is_lost(deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    interfered(monkeypatch, deployment, ["UPDATE t SET n = 100 WHERE id = 1", "DELETE FROM t WHERE id = 3"])
    (result,), _ = await deployment.execute(JOINED)
    assert result.rows_affected == 1
    assert await rows(deployment) == [(1, 101), (2, 20)]


async def test_what_is_changed_all_the_time_is_given_up(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence, "CHOOSING_SECONDS", 0.0)
    interfered(monkeypatch, deployment, ["UPDATE t SET n = 100 WHERE id = 1"])
    with pytest.raises(RowsChanged):
        await deployment.execute(JOINED)
    assert await rows(deployment) == [(1, 100), (2, 20), (3, 30)]


async def test_a_table_that_is_altered_between_is_read_anew(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    interfered(monkeypatch, deployment, ["ALTER TABLE t ADD COLUMN m INT DEFAULT 7"])
    await deployment.execute(JOINED)
    assert await rows(deployment) == [(1, 11), (2, 20), (3, 31)]


async def test_takers_of_a_queue_each_get_another_row(deployment: LocalDeployment) -> None:
    taken = await asyncio.gather(
        *(deployment.execute("DELETE FROM t ORDER BY id LIMIT 1 RETURNING id") for _ in range(3))
    )
    assert sorted(result.rows[0][0] for (result,), _ in taken) == [1, 2, 3]
    (empty,), _ = await deployment.execute("DELETE FROM t ORDER BY id LIMIT 1 RETURNING id")
    assert (empty.rows, empty.rows_affected) == ((), 0)


async def test_parameters_and_the_time_are_those_of_the_statement(deployment: LocalDeployment) -> None:
    await deployment.execute("CREATE TABLE d (id INT PRIMARY KEY, at DATETIME, name TEXT)")
    await deployment.execute("INSERT INTO d (id) VALUES (1), (3)")
    await deployment.execute(
        "UPDATE d JOIN t ON t.id = d.id AND t.n > ? SET d.at = NOW(), d.name = CONCAT(t.n, ?) WHERE t.id < ?",
        [10, "'x", 9],
    )
    (found,), _ = await deployment.execute("SELECT id, name, at IS NULL FROM d ORDER BY id")
    assert list(found.rows) == [(1, None, 1), (3, "30'x", 0)]


async def test_without_ad_hoc_selects_none_is_chosen(tmp_path: Path) -> None:
    opened = await LocalDeployment.open(tmp_path / "off", ad_hoc=AdHocMode.OFF)
    try:
        await opened.execute(TABLES)
        with pytest.raises(Unsupported, match="ad_hoc is off"):
            await opened.execute(JOINED)
    finally:
        await opened.close()


async def test_several_tables_are_written_to_whole_or_not_at_all(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = ["UPDATE u SET n = 9 WHERE n = 1", "ALTER TABLE u ADD COLUMN x INT DEFAULT 4"]
    interfered(monkeypatch, deployment, writes)
    (result,), token = await deployment.execute("UPDATE t JOIN u ON u.t = t.id SET t.n = 0, u.n = u.n + 20")
    assert result.rows_affected == 5
    assert set(token) >= {"t", "u"}
    assert await rows(deployment) == [(1, 0), (2, 20), (3, 0)]
    (found,), _ = await deployment.execute("SELECT t, n, x FROM u ORDER BY n")
    assert list(found.rows) == [(1, 22, 4), (3, 25, 4), (1, 29, 4)]


async def test_each_table_of_a_write_has_the_schema_that_it_was_made_for(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that was made for an older one is refused whole, whichever table was altered."""
    catalog = deployment.state.catalog
    first = Amend("t", ((1, 10),), assignments=((1, constant_of(0)),), single=True)
    both = replace(first, also=(Amend("u", ((1, 1), (1, 2)), assignments=None),))
    made = [TableTarget.of(catalog.tables[name], catalog.shards) for name in ("t", "u")]
    await deployment.execute("ALTER TABLE u ADD COLUMN x INT DEFAULT 4")
    anew = TableTarget.of(deployment.state.catalog.tables["u"], catalog.shards)
    with pytest.raises(SchemaChanged, match='"t, u"'):
        await deployment.hosts.write(made[0].domains[0], both, made[0].beside(made[1:]))
    assert await rows(deployment) == [(1, 10), (2, 20), (3, 30)]
    both = replace(both, also=(Amend("u", ((1, 1, 4), (1, 2, 4)), assignments=None),))
    written = await deployment.hosts.write(made[0].domains[0], both, made[0].beside([anew]))
    assert written.rows_affected == 3
    assert await rows(deployment) == [(1, 0), (2, 20), (3, 30)]


async def test_rows_of_a_subquery_have_a_limit_with_a_name(deployment: LocalDeployment) -> None:
    beside = ChildPool()
    deployment.read_within(SqlLimits(max_subquery_rows=2), beside)
    try:
        with pytest.raises(LimitExceeded, match='gives 3 rows, which exceeds "max_subquery_rows", 2 rows') as refused:
            await deployment.execute("DELETE FROM t WHERE id IN (SELECT id FROM t)")
        assert "greater max_subquery_rows" in str(refused.value.hint)
        await deployment.execute("DELETE FROM t WHERE id IN (SELECT id FROM t WHERE n < 30)")
        assert await rows(deployment) == [(3, 30)]
        (done,), _ = await deployment.execute("INSERT INTO t SELECT t * 10 + n, n FROM u")
        assert done.rows_affected == 3, "the rows of INSERT … SELECT are others"
    finally:
        await beside.close()


async def test_tables_of_several_shards_are_not_written_to_at_once(tmp_path: Path) -> None:
    spread = await LocalDeployment.open(tmp_path, shards=2)
    try:
        await spread.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, n INT) SHARD BY (id) SHARDS 1;"
            "CREATE TABLE u (t INT, n INT) SHARD BY (t) SHARDS 1; CREATE TABLE v (t INT);"
            "INSERT INTO t VALUES (1, 10), (2, 20); INSERT INTO u VALUES (1, 1), (1, 2); INSERT INTO v VALUES (1)"
        )
        with pytest.raises(Unsupported, match="in different shards"):
            await spread.execute("DELETE t, v FROM t JOIN v ON v.t = t.id")
        (result,), _ = await spread.execute("DELETE t, u FROM t JOIN u ON u.t = t.id")
        assert result.rows_affected == 3
        assert await rows(spread) == [(2, 20)]
    finally:
        await spread.close()


async def test_what_a_subquery_gives_is_made_the_type_of_its_column(deployment: LocalDeployment) -> None:
    await deployment.execute("UPDATE t SET n = (SELECT SUM(n) * 1.5 FROM u WHERE u.t = t.id) WHERE id <> 2")
    assert await rows(deployment) == [(1, 5), (2, 20), (3, 8)]
