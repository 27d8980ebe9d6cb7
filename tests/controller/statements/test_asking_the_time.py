"""NOW() in a SELECT is the time of the request: the same text asked later has another answer, and nothing that was
remembered of it is used. MariaDB judges the rest (``tests/comparisons/queries.txt``)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.statements import shapes
from domains.errors import Unsupported

EARLY, LATE = "2026-03-01 08:00:00", "2026-03-01 09:30:00"
LAST_HOUR = "SELECT COUNT(*) FROM visits WHERE made > NOW() - INTERVAL 1 HOUR AND made <= NOW() AND place = 'a'"


class Clock:
    def __init__(self) -> None:
        self.now = EARLY


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
async def deployment(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalDeployment]:
    monkeypatch.setattr(shapes, "KEEP_SECONDS", 0.0)
    deployment = await LocalDeployment.open(tmp_path / "data", shards=request.param)
    monkeypatch.setattr(type(deployment), "now", staticmethod(lambda: clock.now))
    await deployment.execute("CREATE TABLE visits (id INT PRIMARY KEY, place VARCHAR(5), made DATETIME, KEY (place))")
    await deployment.execute(
        "INSERT INTO visits VALUES (1, 'a', '2026-03-01 07:30:00'), (2, 'a', '2026-03-01 08:45:00'), "
        "(3, 'a', '2026-03-01 09:00:00'), (4, 'b', '2026-02-28 23:00:00'), (5, 'a', NULL)"
    )
    yield deployment
    await deployment.close()


async def rows(deployment: LocalDeployment, sql: str, params: list[Any] | None = None) -> list[tuple[Any, ...]]:
    ((result,), _) = await deployment.execute(sql, params or [])
    return [tuple(row) for row in result.rows]


async def test_the_same_text_has_another_answer_later(deployment: LocalDeployment, clock: Clock) -> None:
    for _ in range(2 * shapes.KEEP_CALLS):
        assert await rows(deployment, LAST_HOUR) == [(1,)]
    clock.now = LATE
    for _ in range(2 * shapes.KEEP_CALLS):
        assert await rows(deployment, LAST_HOUR) == [(2,)]
    await deployment.selects.settled()
    assert not deployment.selects.shapes.kept
    asked = {row[0]: row[5] for row in await rows(deployment, "SHOW QUERIES")}
    assert [why for text, why in asked.items() if "place" in text] == [
        "not kept: its answer depends on the time when it is asked"
    ]


async def test_texts_that_differ_in_constants_only_are_not_recognised(
    deployment: LocalDeployment, clock: Clock
) -> None:
    text = "SELECT id FROM visits WHERE place = '{}' AND made <= NOW() ORDER BY id"
    assert await rows(deployment, text.format("a")) == [(1,)]
    assert await rows(deployment, text.format("b")) == [(4,)]
    clock.now = LATE
    assert await rows(deployment, text.format("a")) == [(1,), (2,), (3,)]


async def test_with_parameters_and_under_its_names(deployment: LocalDeployment, clock: Clock) -> None:
    sql = (
        "SELECT id, CURDATE(), NOW() AS at FROM visits WHERE made >= CURRENT_DATE AND place = ? AND id < ? ORDER BY id"
    )
    assert await rows(deployment, sql, ["a", 3]) == [(1, EARLY[:10], EARLY), (2, EARLY[:10], EARLY)]
    clock.now = LATE
    ((result,), _) = await deployment.execute(sql, ["a", 2])
    assert [column.name for column in result.columns] == ["id", "CURDATE()", "at"]
    assert [tuple(row) for row in result.rows] == [(1, LATE[:10], LATE)]


async def test_in_subqueries_of_selects_and_writes(deployment: LocalDeployment, clock: Clock) -> None:
    inner = "SELECT id FROM visits WHERE made > NOW()"
    assert await rows(deployment, f"SELECT id FROM visits WHERE id IN ({inner}) ORDER BY id") == [(2,), (3,)]
    clock.now = "2026-03-01 08:50:00"
    ((done,), _) = await deployment.execute(f"DELETE FROM visits WHERE id IN ({inner})")
    assert done.rows_affected == 1
    ((done,), _) = await deployment.execute(
        "INSERT INTO visits SELECT id + 10, place, NOW() FROM visits WHERE made < NOW() - INTERVAL 1 HOUR"
    )
    assert done.rows_affected == 2
    assert await rows(deployment, "SELECT id, made FROM visits WHERE id > 10 ORDER BY id") == [
        (11, clock.now),
        (14, clock.now),
    ]
    ((done,), _) = await deployment.execute("DELETE FROM visits WHERE made < NOW() ORDER BY id LIMIT 1")
    assert done.rows_affected == 1
    assert await rows(deployment, "SELECT MIN(id) FROM visits") == [(2,)]


async def test_explain_says_the_time(deployment: LocalDeployment) -> None:
    told = await rows(deployment, "EXPLAIN SELECT id FROM visits WHERE made > NOW() - INTERVAL 1 DAY")
    assert any("2026-02-28 08:00:00" in line for (line,) in told)
    ((told_again,), _) = await deployment.execute("EXPLAIN ANALYZE " + LAST_HOUR)
    assert told_again.rows


async def test_a_statement_and_its_views_are_of_one_time(deployment: LocalDeployment, clock: Clock) -> None:
    await deployment.execute("CREATE VIEW v AS SELECT id, made FROM visits WHERE made < NOW()")
    text = "SELECT id, NOW() FROM v WHERE made < NOW() ORDER BY id"
    for _ in range(2 * shapes.KEEP_CALLS):
        assert await rows(deployment, text) == [(1, EARLY), (4, EARLY)]
    clock.now = LATE
    assert await rows(deployment, text) == [(at, LATE) for at in range(1, 5)]
    insert = "INSERT INTO visits SELECT id + 10, 'c', NOW() FROM v WHERE made > ?"
    ((done,), _) = await deployment.execute(insert, [EARLY])
    assert done.rows_affected == 2
    inserted = "SELECT id, made FROM visits WHERE place = 'c' ORDER BY id"
    assert await rows(deployment, inserted) == [(12, LATE), (13, LATE)]
    assert await rows(deployment, "SELECT COUNT(*) FROM v WHERE id > 10") == [(0,)]
    clock.now = "2026-03-01 09:30:01"
    assert await rows(deployment, "SELECT COUNT(*) FROM v WHERE id > 10") == [(2,)]


async def test_what_no_look_up_can_apply_is_refused(deployment: LocalDeployment) -> None:
    with pytest.raises(Unsupported, match="window"):
        await deployment.execute("CREATE VIEW w AS SELECT id, RANK() OVER (ORDER BY made > NOW()) AS r FROM visits")
    await deployment.execute("CREATE TABLE made (a DATETIME)")
    with pytest.raises(Unsupported, match=r"NOW\(\)"):
        await deployment.execute("ALTER TABLE made ADD CHECK (a < NOW())")
