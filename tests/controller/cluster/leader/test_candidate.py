"""Candidates: one leads, another takes over with the recipe played already, and a stop gives the lead up at once."""

from __future__ import annotations

import asyncio

import pytest

from controller.cluster.leader.candidate import Candidate, NotLeading
from controller.cluster.leader.leader import LeaderSettings
from domains.language.collating.collation import BINARY, Collation
from tests.kit.memory_workers import MemoryCluster, simulated
from zookeeper.registration import ControllerDescriptor


async def candidate(
    cluster: MemoryCluster, name: str, collation: str = BINARY
) -> tuple[Candidate, asyncio.Event, asyncio.Task[None]]:
    authority = cluster.zookeeper.authority()
    await authority.start(create=True)
    loop = asyncio.get_running_loop()
    settings = LeaderSettings(name, cluster.shards, cluster.quorum, cluster.timing, collation=collation)
    made = Candidate(authority, cluster.connect, settings, ControllerDescriptor(name, name, 7070, 1), loop.time)
    stopping = asyncio.Event()
    return made, stopping, asyncio.create_task(made.run(stopping))


def test_one_leads_and_the_other_says_who() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(shards=2)
        await cluster.start_worker("w1")
        first, stop_first, first_task = await candidate(cluster, "c1")
        await cluster.until(lambda: first.leader is not None and first.leader.calm)
        second, stop_second, second_task = await candidate(cluster, "c2")
        await asyncio.sleep(0.1)
        with pytest.raises(NotLeading, match='controller "c1" leads') as raised:
            await second.leading()
        assert "c1:7070" in raised.value.hint
        cluster.leader = await first.leading()
        await cluster.migrate("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        await asyncio.sleep(0.1)
        assert second._follower.replica is not None
        played = second._follower.replica.state
        assert "t" in played.catalog.tables

        loop = asyncio.get_running_loop()
        began = loop.time()
        stop_first.set()
        await cluster.until(lambda: second.leader is not None and second.leader.calm)
        assert loop.time() - began < 0.5, "a leader that stops does not keep the others waiting"
        led = await second.leading()
        assert led.serving().state is played, "it was not planned again"
        with pytest.raises(NotLeading):
            await first.leading()
        assert first.status()["leads"] is False
        assert second.status()["calm"] is True
        stop_second.set()
        await asyncio.gather(first_task, second_task)
        await cluster.close()

    simulated(scenario())


def test_a_leader_that_lost_its_session_stands_again() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(shards=2)
        await cluster.start_worker("w1")
        only, stop, task = await candidate(cluster, "c1")
        await cluster.until(lambda: only.leader is not None and only.leader.calm)
        before = only.leader
        only._authority.expire()  # type: ignore[attr-defined]
        await cluster.until(lambda: only.leader not in (None, before) and only.leader.calm)  # type: ignore[union-attr]
        assert only.terms == 2
        stop.set()
        await task
        await cluster.close()

    simulated(scenario())


def test_a_table_keeps_the_collation_of_the_leader_that_made_it() -> None:
    """Another leader with another setting, and whoever follows the recipe, find it there."""

    async def scenario() -> None:
        cluster = MemoryCluster(shards=2)
        await cluster.start_worker("w1")
        first, stop_first, first_task = await candidate(cluster, "c1", Collation.GENERAL_CI)
        await cluster.until(lambda: first.leader is not None and first.leader.calm)
        second, stop_second, second_task = await candidate(cluster, "c2")
        cluster.leader = await first.leading()
        await cluster.migrate("CREATE TABLE t (name VARCHAR(9) PRIMARY KEY)")
        stop_first.set()
        await cluster.until(lambda: second.leader is not None and second.leader.calm)
        cluster.leader = await second.leading()
        await cluster.migrate("CREATE TABLE u (name VARCHAR(9) PRIMARY KEY)")
        await cluster.migrate("ALTER TABLE t ADD later TEXT")
        tables = cluster.leader.serving().state.catalog.tables
        found = [[column.type.collation for column in tables[name].columns] for name in ("t", "u")]
        assert found == [[Collation.GENERAL_CI, Collation.GENERAL_CI], [None]]
        stop_second.set()
        await asyncio.gather(first_task, second_task)
        await cluster.close()

    simulated(scenario())
