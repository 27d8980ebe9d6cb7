"""A decision that was written, and whose answer was lost: what is told of it is what became of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from migrations.recipe import Entry
from tests.controller.cluster.memory_workers import MemoryCluster, simulated
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
        await migrator.run(Entry((table,)), table)
        away(authority, is_written, cluster.timing.commit_patience + LATE)
        migration = migrator.start(Entry((view,)), view)
        await migration.ended.wait()
        assert cluster.led.calm
        assert migration.state == ("done" if is_written else "failed")
        assert ("every" in migrator.state.catalog.views) == is_written
        await cluster.close()

    simulated(scenario())


def away(authority: Any, is_written: bool, seconds: float) -> None:
    """From the next write on ZooKeeper does not answer for so long; that write is done or not."""
    write, read = authority.write, authority.read

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

    authority.write = lost
