"""RAND() and UUID(): a value for each row of an answer, of which nothing is kept; what is written is the value.

MySQL's manual has the numbers that RAND(3) begins with, and MariaDB judges others (``tests/comparisons``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.statements import shapes
from domains.errors import Unsupported

OF_THREE = (0.9057697559760601, 0.37307905813034536, 0.14808605345719125)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
async def deployment(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalDeployment]:
    monkeypatch.setattr(shapes, "KEEP_SECONDS", 0.0)
    deployment = await LocalDeployment.open(tmp_path / "data", shards=request.param)
    await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, g INT, KEY (g)); CREATE TABLE bag (x INT)")
    await deployment.execute("INSERT INTO t VALUES " + ", ".join(f"({at}, {at % 3})" for at in range(12)))
    await deployment.execute("INSERT INTO bag VALUES (1), (1), (1), (2)")
    yield deployment
    await deployment.close()


async def rows(deployment: LocalDeployment, sql: str, params: list[Any] | None = None) -> list[tuple[Any, ...]]:
    ((result,), _) = await deployment.execute(sql, params or [])
    return [tuple(row) for row in result.rows]


async def test_each_row_has_its_own(deployment: LocalDeployment) -> None:
    found = await rows(deployment, "SELECT x, RAND() AS r, RAND(), UUID() FROM bag ORDER BY r")
    assert Counter(row[0] for row in found) == {1: 3, 2: 1}
    assert [row[1] for row in found] == sorted(row[1] for row in found), "the alias is the same value"
    assert len({value for row in found for value in row[1:]}) == 12
    assert all(0 <= number < 1 for row in found for number in row[1:3])


async def test_numbers_from_a_seed(deployment: LocalDeployment) -> None:
    for _ in range(2):
        found = await rows(deployment, "SELECT id, RAND(3) FROM t WHERE g < ? ORDER BY id LIMIT 3", [3])
        assert found == list(enumerate(OF_THREE))
    assert await rows(deployment, "SELECT RAND(3), RAND(3) * 10") == [(OF_THREE[0], 10 * OF_THREE[0])]


async def test_nothing_of_it_is_kept(deployment: LocalDeployment) -> None:
    text = "SELECT id FROM t WHERE g = 1 AND RAND() < 2 ORDER BY RAND() LIMIT 2"
    seen = Counter([tuple(await rows(deployment, text)) for _ in range(60)])
    assert len(seen) > 5, seen
    assert {id for answer in seen for (id,) in answer} == {1, 4, 7, 10}
    whole = Counter(
        [tuple(await rows(deployment, "SELECT RAND(), UUID() FROM t")) for _ in range(2 * shapes.KEEP_CALLS)]
    )
    assert set(whole.values()) == {1}
    await deployment.selects.settled()
    assert not deployment.selects.shapes.kept
    asked = {row[0]: row[5] for row in await rows(deployment, "SHOW QUERIES")}
    assert set(asked.values()) == {"not kept: it draws random values each time it is asked"}
    for explained in (text, text.replace("g = 1", "g + 1 = 1")):
        ((head,), *_) = await rows(deployment, "EXPLAIN " + explained)
        assert head.endswith("not kept: it draws random values each time it is asked"), "asked before or not"
    told = await rows(deployment, "EXPLAIN " + text)
    assert any("not possible" in line for (line,) in told)


async def test_what_is_written_is_the_value(deployment: LocalDeployment, tmp_path: Path) -> None:
    await deployment.execute("CREATE TABLE w (id VARCHAR(36) PRIMARY KEY, x DOUBLE)")
    await deployment.execute("INSERT INTO w VALUES (UUID(), RAND()), (UUID(), RAND(3)), (?, RAND())", ["a"])
    await deployment.execute("INSERT INTO w SELECT UUID(), RAND() FROM t WHERE g = 1")
    before = sorted(await rows(deployment, "SELECT id, x FROM w"))
    assert len(before) == 7
    assert OF_THREE[0] in {x for _, x in before}
    await deployment.close()
    again = await LocalDeployment.open(tmp_path / "data", shards=deployment.state.shards)
    assert sorted(await rows(again, "SELECT id, x FROM w")) == before
    await again.close()


async def test_an_update_draws_once_for_each_row(deployment: LocalDeployment, tmp_path: Path) -> None:
    await deployment.execute(
        "CREATE TABLE w (id INT PRIMARY KEY, x DOUBLE, u TEXT); CREATE TABLE many (k INT, x DOUBLE)"
    )
    await deployment.execute("INSERT INTO w (id) SELECT id FROM t; INSERT INTO many SELECT 1, 1 FROM t")
    await deployment.execute("CREATE VIEW Kept AS SELECT id, x, u FROM w")
    ((done,), _) = await deployment.execute("UPDATE w SET x = 1 + RAND(), u = UUID() WHERE id > ?", [1])
    assert done.rows_affected == 10
    found = await rows(deployment, "SELECT id, x, u FROM w WHERE id > 1")
    assert len({x for _, x, _ in found}) == len({u for _, _, u in found}) == 10
    assert all(1 <= x < 2 for _, x, _ in found)
    assert await rows(deployment, "SELECT COUNT(*) FROM w WHERE x IS NULL") == [(2,)]
    await deployment.execute("UPDATE many SET x = RAND()")
    assert len(set(await rows(deployment, "SELECT x FROM many"))) == 12, "equal rows too"
    await deployment.execute("DELETE FROM w WHERE RAND() > 2; UPDATE w SET x = RAND(3) ORDER BY id LIMIT 3")
    first = await rows(deployment, "SELECT x FROM w ORDER BY id LIMIT 3")
    assert [x for (x,) in first] == list(OF_THREE)
    before = sorted(await rows(deployment, "SELECT id, x, u FROM Kept"))
    assert before == sorted(await rows(deployment, "SELECT id, x, u FROM w"))
    await deployment.close()
    again = await LocalDeployment.open(tmp_path / "data", shards=deployment.state.shards)
    assert sorted(await rows(again, "SELECT id, x, u FROM w")) == before
    await again.close()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW v AS SELECT id, RAND() AS r FROM t",
        "CREATE EXT VIEW v AS SELECT id FROM t WHERE g = ? ORDER BY UUID()",
        "SELECT x.id FROM (SELECT id FROM t ORDER BY RAND() LIMIT 2) x",
        "SELECT COUNT(*) FROM t WHERE RAND() < 0.5",
        "SELECT SUM(RAND()) FROM t",
        "SELECT id FROM t UNION SELECT RAND() FROM t",
        "SELECT RAND(id) FROM t",
        "SELECT t.id FROM t LEFT JOIN bag ON x = id AND RAND() < 1",
        "UPDATE t JOIN bag ON x = id SET g = RAND()",
        "INSERT INTO t VALUES (1, 2) ON DUPLICATE KEY UPDATE g = RAND()",
        "CREATE TABLE u (id INT DEFAULT (RAND()))",
    ],
)
async def test_elsewhere_it_is_refused_by_name(deployment: LocalDeployment, sql: str) -> None:
    with pytest.raises(Unsupported, match=r"RAND|UUID|ON of an outer join"):
        await deployment.execute(sql)
