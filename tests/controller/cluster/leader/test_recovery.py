"""Rounds of recovery in which workers come and go, and domains that move while they serve."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from controller.cluster.leader.draining import drain
from controller.cluster.leader.fleet import Deposed
from controller.cluster.leader.recovery import FLUSH_SECONDS, flush_domains
from controller.cluster.state import Assignment, ClusterState
from controller.migrating.executor import Interrupted
from domains.errors import HeadraceError, StorageFailure
from domains.plan.graph import DomainIndex
from tests.cluster_simulation.loop import VirtualLoop
from tests.kit.memory_workers import MemoryWorker, simulated
from tests.kit.voting_program import placement, started
from worker.protocol.messages import CloseDomain, Done, OpenDomain
from worker.protocol.operations import FlushDomain


def test_a_worker_that_comes_back_within_a_round_is_told_of_no_peers_by_it() -> None:
    """It has not reported: what its old domains would have to remove before their sources are reset is not known."""

    async def scenario() -> None:
        cluster, program = await started(3)
        back, taker = cluster.workers["w1"], cluster.workers["w3"]
        back.awake.clear()
        await cluster.until(lambda: "w1" not in placement(cluster))
        await cluster.calm()
        taker.asked.clear()
        cluster.workers["w2"].die()
        await cluster.until(lambda: any(isinstance(message, OpenDomain) for message in taker.asked))
        taker.awake.clear()
        back.awake.set()
        await cluster.until(lambda: "w1" in cluster.led.fleet.members)
        assert back.hosted.hosts, "its old domains are there yet"
        taker.awake.set()
        await cluster.calm()
        await cluster.until(lambda: "w1" in placement(cluster))
        await cluster.calm()
        await program.vote(10)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_drained_worker_takes_what_nobody_else_can() -> None:
    async def scenario() -> None:
        cluster, program = await started(2)
        await drain(cluster.led, "w2")
        cluster.workers["w1"].die()
        await cluster.until(lambda: "w1" not in placement(cluster))
        await cluster.calm()
        await program.vote(10)
        await program.check()
        await cluster.start_worker("w1")
        await cluster.until(lambda: list(placement(cluster)) == ["w1"])
        await cluster.calm()
        await program.check()
        await cluster.close()

    simulated(scenario())


# --- domains that move while they serve ---------------------------------------------------------------------------


ONE, TWO = DomainIndex(1), DomainIndex(2)
STATE = replace(
    ClusterState("test", 4, 1, 7), placement={ONE: Assignment("a", 3, "data"), TWO: Assignment("b", 5, "data")}
)


def flushed(outcome: BaseException | None) -> tuple[list[tuple[str, Any]], float]:
    """What workers are asked, of which "b" answers so (None: never), and how long it takes."""
    loop, asked = VirtualLoop(), []
    began = loop.time()

    async def ask(worker: str, message: Any) -> Done:
        asked.append((worker, message))
        await asyncio.sleep(0.0 if worker == "a" or outcome is not None else 3600.0)
        if worker == "b" and outcome is not None:
            raise outcome
        return Done()

    try:
        loop.run_until_complete(loop.create_task(flush_domains(ask, STATE, [ONE, TWO])))
    finally:
        loop.close()
    return asked, loop.time() - began


@pytest.mark.parametrize("error", [StorageFailure("the disk is full"), HeadraceError("what is that"), None])
def test_a_flush_that_fails_or_never_ends_keeps_nothing_from_being_moved(error: HeadraceError | None) -> None:
    asked, took = flushed(error)
    assert asked == [("a", FlushDomain(7, ONE)), ("b", FlushDomain(7, TWO))]
    assert took <= FLUSH_SECONDS


@pytest.mark.parametrize("error", [Interrupted("it is lost"), Deposed("another leads")])
def test_what_ends_a_round_is_heard(error: HeadraceError) -> None:
    with pytest.raises(type(error)):
        flushed(error)


def about(worker: MemoryWorker, domain: DomainIndex) -> list[type]:
    kinds = (FlushDomain, CloseDomain, OpenDomain)
    return [type(each) for each in worker.asked if isinstance(each, kinds) and each.domain == domain]


def test_what_moves_is_flushed_before_it_is_closed_and_what_is_lost_is_not_kept_waiting() -> None:
    async def scenario() -> None:
        cluster, program = await started(2)
        await cluster.start_worker("w3")
        await cluster.until(lambda: "w3" in placement(cluster))
        await cluster.calm()
        moved = DomainIndex(placement(cluster)["w3"][0])
        before = [about(cluster.workers[name], moved) for name in ("w1", "w2")]
        assert [OpenDomain, FlushDomain, CloseDomain] in before
        asked = [each for name in ("w1", "w2") for each in cluster.workers[name].asked]
        flush = next(each for each in asked if isinstance(each, FlushDomain) and each.domain == moved)
        assert flush.epoch < cluster.led.ledger.decided.placement[moved].incarnation, "it is decided afterwards"
        for worker in cluster.workers.values():
            worker.asked.clear()
        cluster.workers["w1"].die()
        await cluster.until(lambda: "w1" not in placement(cluster))
        await cluster.calm()
        assert not any(isinstance(m, FlushDomain) for w in cluster.workers.values() for m in w.asked)
        await program.check()
        await cluster.close()

    simulated(scenario())
