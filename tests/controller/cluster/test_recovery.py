"""Rounds of recovery in which workers come and go, in virtual time."""

from __future__ import annotations

from controller.cluster.leader.draining import drain
from tests.controller.cluster.memory_workers import simulated
from tests.controller.cluster.voting_program import placement, started
from worker.protocol.messages import OpenDomain


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
