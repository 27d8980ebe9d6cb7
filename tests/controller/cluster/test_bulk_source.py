"""Archiving for a bulk build while domains go to other workers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cluster.leader.building import ClusterSource
from controller.cluster.state import Assignment
from controller.migrating.bulk.job_files import JobFiles
from domains.archive.manifest import ArchiveUnreachable
from domains.plan.graph import DomainIndex
from worker.protocol.operations import ArchivePositions


def test_a_domain_that_moves_while_workers_archive_is_no_fault() -> None:
    ledger: Any = SimpleNamespace(decided=None)

    def place(*workers: str) -> None:
        placement = {DomainIndex(shard): Assignment(name, 1) for shard, name in enumerate(workers)}
        ledger.decided = SimpleNamespace(shards=2, placement=placement)

    async def ask(worker: str, message: object) -> ArchivePositions:
        place("a", "a")  # The leader has given up the other meanwhile.
        return ArchivePositions("archive", {f"votes@{worker}": 3})

    place("a", "b")
    fleet: Any = SimpleNamespace(ask=ask)
    found = asyncio.run(ClusterSource("archive", fleet, ledger, JobFiles()).archive_now("1-1", 1))
    assert found == {"votes@a": 3, "votes@b": 3}


def test_a_worker_that_cannot_archive_is_told_when_all_have_ended() -> None:
    """Then the holds of the others are there, and a release takes them away."""
    placement = {DomainIndex(shard): Assignment(name, 1) for shard, name in enumerate("ab")}
    ledger: Any = SimpleNamespace(decided=SimpleNamespace(shards=2, placement=placement))
    ended: list[str] = []

    async def ask(worker: str, message: object) -> ArchivePositions:
        if worker == "a":
            raise ArchiveUnreachable("its disk is full")
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append(worker)
        return ArchivePositions("archive", {})

    async def run() -> None:
        fleet: Any = SimpleNamespace(ask=ask)
        with pytest.raises(ArchiveUnreachable):
            await ClusterSource("archive", fleet, ledger, JobFiles()).archive_now("1-1", 1)
        assert ended == ["b"], "it archives yet"

    asyncio.run(run())
