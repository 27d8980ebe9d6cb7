"""Whoever knows of positions of a disk that is given up is asked, or begins anew: nobody hears of more afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.cluster.leader.ledger import StateLedger
from domains.errors import Unavailable
from domains.plan.graph import DomainIndex
from tests.kit.lost_worker import Lost
from tests.kit.memory_workers import MemoryCluster, MemoryWorker, simulated
from worker.protocol.operations import HeardRequest


async def one_has_heard() -> Lost:
    """Of what w2 has written last only w1 has heard, and what w1 tells of it is on its way."""
    lost = await Lost().start(late=True)
    lost.cluster.workers["w1"].late = []
    lost.cluster.workers["w2"].deliver(to="w1")
    await lost.noticed()
    return lost


def hold_rounds(ledger: StateLedger) -> asyncio.Event:
    """Rounds of recovery wait for ZooKeeper, until this is set."""
    settle, answers = ledger.settle, asyncio.Event()

    async def late() -> None:
        await answers.wait()
        await settle()

    ledger.settle = late  # type: ignore[method-assign]
    return answers


def given_up_at(worker: MemoryWorker) -> dict[DomainIndex, int]:
    """What the worker was told to hear no more of."""
    asked = [each.given_up for each in worker.asked if isinstance(each, HeardRequest) and each.given_up]
    return asked[-1] if asked else {}


def has_its_own(cluster: MemoryCluster, worker: MemoryWorker) -> bool:
    """Whether all that is open there is as it is decided."""
    placement, hosts = cluster.decided.placement, worker.hosted.hosts
    return all(host.linked and host.domain.incarnation == placement[d].incarnation for d, host in hosts.items())


def test_a_worker_that_was_cut_off_while_others_were_asked_begins_anew() -> None:
    """It alone has heard of the last positions, and no round of recovery has seen that it is away. The others hear
    nothing more of it, and what it has when it is back is closed."""

    async def run() -> None:
        lost = await one_has_heard()
        cluster, w1, w3 = lost.cluster, lost.cluster.workers["w1"], lost.cluster.workers["w3"]
        cluster.archive.looks = 10**6
        zookeeper = hold_rounds(cluster.led.ledger)
        w1.reachable = False
        cluster.led.fleet._lose(cluster.led.fleet.members["w1"], "nothing was heard from it")
        rebuilding = asyncio.create_task(lost.rebuild(*lost.shards))
        await cluster.until(lambda: given_up_at(w3) or rebuilding.done())
        for domain, host in w1.hosted.hosts.items():
            assert given_up_at(w3).get(domain, 0) > host.domain.incarnation, "it is heard on"
        w1.reachable = True
        await cluster.until(lambda: "w1" in cluster.led.fleet.members)
        zookeeper.set()
        await cluster.until(lambda: cluster.archive.asked and has_its_own(cluster, w1))
        assert not lost.heard_later()
        w1.late = None
        await lost.made(rebuilding)

    simulated(run())


def test_a_worker_that_is_started_anew_while_others_are_asked_has_nothing_decided() -> None:
    """Its successor knows nothing; the process that was there may be, and tell."""

    async def run() -> None:
        lost = await (await Lost().start()).noticed()
        cluster, w3 = lost.cluster, lost.cluster.workers["w3"]
        handle = w3.handle

        async def slow(message: Any) -> Any:
            if isinstance(message, HeardRequest) and message.given_up:
                await asyncio.sleep(0.01)  # w1 has answered.
                cluster.workers["w1"].die()
                anew = await cluster.start_worker("w1", "/w1")
                process = anew.descriptor.incarnation
                members = cluster.led.fleet.members
                await cluster.until(lambda: "w1" in members and members["w1"].descriptor.incarnation == process)
            return await handle(message)

        w3.handle = slow  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="nothing is decided"):
            await lost.rebuild(*lost.shards)
        assert all(cluster.decided.placement[DomainIndex(shard)].rebuild is None for shard in lost.shards)
        w3.handle = handle  # type: ignore[method-assign]
        await cluster.until(lambda: set(lost.shards) == cluster.led.closed.keys())
        await lost.rebuild()
        lost.forget()
        await cluster.calm()
        await lost.program.check()
        await cluster.close()

    simulated(run())
