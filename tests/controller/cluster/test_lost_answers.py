"""A decision that was written, and whose answer was lost: what is told of it is what became of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.cluster.lost_shards.rebuilding import lost_shards
from domains.errors import Unavailable
from migrations.recipe import RecipeEntry
from tests.controller.cluster.memory_workers import MemoryCluster, simulated
from tests.controller.cluster.test_rebuilding import Lost
from zookeeper.errors import AuthorityUnavailable

LATE = 5.0
"""Seconds for which ZooKeeper stays away after the leader has given it up."""


@pytest.mark.parametrize("is_written", [True, False])
def test_a_migration_ends_as_the_recovery_found_it(is_written: bool) -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(shards=2)
        for name in ("w1", "w2"):
            await cluster.start_worker(name, f"/{name}")
        await cluster.start_controller("c1")
        await cluster.calm()
        migrator, authority = cluster.led.serving(), cluster.led.authority
        table, view = "CREATE TABLE votes (id INT PRIMARY KEY)", "CREATE EXT VIEW every AS SELECT id FROM votes"
        await migrator.run(RecipeEntry((table,)), table)
        away(authority, is_written, cluster.timing.commit_patience + LATE)
        migration = migrator.start(RecipeEntry((view,)), view)
        await migration.ended.wait()
        assert cluster.led.calm
        assert migration.state == ("done" if is_written else "failed")
        assert ("every" in migrator.state.catalog.views) == is_written
        await cluster.close()

    simulated(scenario())


@pytest.mark.parametrize("is_written", [True, False])
def test_a_rebuild_that_may_be_decided_says_so_and_is_carried_out_if_it_is(is_written: bool) -> None:
    async def scenario() -> None:
        lost = await (await Lost().start()).noticed()
        cluster = lost.cluster
        back = away(cluster.led.authority, is_written, cluster.timing.commit_patience + LATE)
        with pytest.raises(Unavailable) as caught:
            await lost.rebuild()
        assert "may be decided all the same" in str(caught.value.hint)
        await back.wait()
        if is_written:
            await cluster.until(lambda: not lost_shards(cluster.led))
        else:
            await lost.rebuild()
        lost.forget()
        await cluster.calm()
        await lost.program.check()
        await cluster.close()

    simulated(scenario())


def away(authority: Any, is_written: bool, seconds: float) -> asyncio.Event:
    """From the next write on ZooKeeper does not answer for so long; that write is done or not. Set when it is back."""
    write, read, is_back = authority.write, authority.read, asyncio.Event()

    async def lost(data: bytes, version: int) -> int:
        authority.write, authority.read = unheard, unheard
        asyncio.get_running_loop().call_later(seconds, back)
        if is_written:
            await write(data, version)
        raise AuthorityUnavailable("no answer", maybe_done=True)

    async def unheard(*_: Any) -> Any:
        raise AuthorityUnavailable("no answer")

    def back() -> None:
        authority.write, authority.read = write, read
        is_back.set()

    authority.write = lost
    return is_back
