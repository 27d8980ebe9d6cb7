"""Transactions that are prepared and not decided: listed with what they hold, and an alarm where that lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.embedded.local import LocalDeployment
from controller.hosts import TableTarget
from controller.transactions.in_doubt import ALARM_SECONDS, told_of_doubt
from domains.engine.transactions.transactions import HELD_SHOWN
from domains.plan.graph import DomainIndex
from domains.plan.packets import Insert, InTransaction, Prepare
from tests.controller.transactions.over_shards import SHARDS

OLD = 2 * ALARM_SECONDS


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path, shards=SHARDS)
    await opened.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    yield opened
    await opened.close()


async def prepared(deployment: LocalDeployment, id: str, age: float, key: int = 1, rows: int = 1) -> None:
    """One that shard 1 has a part of, and shard 0 is to decide."""
    target = TableTarget.of(deployment.state.catalog.tables["t"], SHARDS)
    within = InTransaction(id, begins=True, domain=DomainIndex(1))
    keys = tuple((key, 0) for key in range(key, key + SHARDS * rows, SHARDS))
    await deployment.hosts.transact(Insert("t", keys), within, target)
    await deployment.hosts.transact(Prepare(DomainIndex(0), time.time() - age), within, None)


async def test_one_in_doubt_is_listed_with_what_it_holds(deployment: LocalDeployment) -> None:
    id = deployment.sessions.open("")
    await prepared(deployment, "young", 1.0)
    listed, missing = await deployment.in_doubt.listed(deployment.sessions.list())
    by_id = {each.id: each for each in listed}
    young = by_id["young"]
    assert (young.state, young.shards, missing) == ("in doubt", (0, 1), [])
    assert young.holds == ("t: (id) = (1)", "t: 1 rows of its own")
    assert 1.0 <= young.seconds < ALARM_SECONDS
    ((result,), _) = await deployment.execute("SHOW TRANSACTIONS")
    assert {(row[0], row[6]) for row in result.rows} == {("young", "in doubt"), (id, "open")}
    assert (await deployment.status())["transactions"]["in_doubt"] == 1
    assert not await deployment.unready(), "that is how long a commit may take"


async def test_what_is_told_of_one_is_bounded(deployment: LocalDeployment) -> None:
    await prepared(deployment, "large", 0.0, rows=100)
    ((large,), _) = await deployment.in_doubt.listed([])
    assert len(large.holds) <= HELD_SHOWN + 1
    assert any("more" in each for each in large.holds)


async def test_one_that_stays_in_doubt_is_an_alarm_until_it_is_ended(deployment: LocalDeployment) -> None:
    assert (await deployment.status())["transactions"] == {"open": 0, "in_doubt": 0, "in_doubt_seconds": 0.0}
    await prepared(deployment, "young", 1.0)
    await prepared(deployment, "old", OLD, key=4)
    shown = (await deployment.status())["transactions"]
    assert shown["in_doubt"] == 2
    assert shown["in_doubt_seconds"] >= OLD
    assert '"old"' in shown["alarm"]
    assert not await deployment.unready(), "all is served: a balancer is to send no less"
    deployment.in_doubt.look(at_once=True)
    until = time.monotonic() + 20.0
    while "alarm" in (await deployment.status())["transactions"]:
        assert time.monotonic() < until, "nobody has ended it"
        await asyncio.sleep(0.02)
    while (await deployment.in_doubt.listed([]))[0]:
        assert time.monotonic() < until, "the other is not ended"
        await asyncio.sleep(0.02)
    await deployment.insert("t", [{"id": 4, "n": 1}])


async def test_since_when_it_is_in_doubt_is_stored(deployment: LocalDeployment) -> None:
    await prepared(deployment, "old", OLD)
    for domain in deployment.dataflow.domains.values():
        records = domain.store.records()
        assert all(record.since <= time.time() - OLD for record in records.values())
    told = told_of_doubt({"old": time.time() - OLD, "of an earlier build": 0.0}, 0)
    assert told["in_doubt_seconds"] >= OLD
    assert "1 more" in told["alarm"]
