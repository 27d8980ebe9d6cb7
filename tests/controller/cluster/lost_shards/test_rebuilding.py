"""A lost shard's disk is given up: by an operator, only if it is lost, and what is missing then is named exactly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.cluster.lost_shards.rebuilding import RebuildOutcomes, lost_shards
from controller.cluster.state import Assignment, ClusterState, Rebuild
from domains.archive.manifest import SegmentMissing
from domains.errors import BadRequest, NoLeader, Unavailable
from domains.plan.graph import DomainIndex
from tests.kit.lost_worker import Lost, losing
from tests.kit.memory_workers import simulated
from tests.kit.voting_program import placement
from worker.protocol.operations import ShardRebuilt


def test_the_tail_is_named_exactly_and_nothing_else_is_missing() -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        told = await lost.rebuild()
        await cluster.calm()
        votes = {each["shard"]: each for each in told if each["base"].startswith("votes@")}
        assert sorted(votes) == lost.shards
        for shard, each in votes.items():
            assert each["lost"] == len(lost.gone[shard] - lost.archived[shard])
            assert each["known"] == each["position"] + each["lost"]
            assert each["rows"] == len(lost.archived[shard])
            assert each["worker"] in ("w1", "w3")
        assert all(not each["lost"] for each in told if each["base"].startswith("stories@"))
        assert sum(each["lost"] for each in told) == lost.forget()
        await lost.program.check()
        assert sorted(placement(cluster)) == ["w1", "w3"]
        assert all(given.rebuild is None for given in cluster.decided.placement.values())
        await lost.program.vote(20)
        await lost.program.check()

    losing(scenario)


def test_positions_that_are_lost_are_not_given_again() -> None:
    async def scenario(lost: Lost) -> None:
        told = {
            each["base"]: each for each in await lost.rebuild(known_by_a_token=1, **{f"votes@{lost.shards[0]}": 900})
        }
        votes = told[f"votes@{lost.shards[0]}"]
        assert (votes["known"], votes["lost"]) == (900, 900 - votes["position"])
        lost.forget()
        await lost.cluster.calm()
        await lost.program.vote(20)
        given = lost.cluster.decided.placement[DomainIndex(lost.shards[0])]
        assert lost.cluster.disks[given.data, lost.shards[0]].position("votes") > 900
        await lost.program.check()

    losing(scenario)


@pytest.mark.parametrize("noticed", [True, False])
def test_what_arrives_late_of_a_shard_that_is_given_up_is_heard_by_nobody(noticed: bool) -> None:
    """They have been asked how far they have heard: the shard goes on there, and gives what comes next again."""

    async def run() -> None:
        lost = await Lost().start(late=True)
        cluster = lost.cluster
        if noticed:
            await lost.noticed()
        cluster.archive.looks = 10**6
        rebuilding = asyncio.create_task(lost.rebuild())
        await cluster.until(lambda: cluster.archive.asked or rebuilding.done())
        assert cluster.workers["w2"].late, "nothing is on its way"
        cluster.workers["w2"].deliver()
        await asyncio.sleep(0.1)
        assert not lost.heard_later()
        await lost.made(rebuilding)

    simulated(run())


def test_what_is_not_lost_is_refused_and_nothing_is_decided() -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        here = next(shard for shard in range(6) if shard not in lost.shards)
        epoch = cluster.decided.epoch
        with pytest.raises(BadRequest, match=f"shard {here} is not lost"):
            await lost.rebuild(here)
        with pytest.raises(BadRequest, match="shard 99 is not lost"):
            await lost.rebuild(lost.shards[0], 99)
        cluster.archive.is_there = False
        with pytest.raises(BadRequest, match="no archive"):
            await lost.rebuild()
        assert lost_shards(cluster.led) == lost.shards
        assert cluster.decided.epoch == epoch
        await cluster.start_worker("w2", "/w2")
        await cluster.calm()
        with pytest.raises(BadRequest, match="no shard is lost"):
            await lost.rebuild()
        await lost.program.check()

    losing(scenario)


def test_a_leader_that_has_only_just_taken_over_says_so() -> None:
    async def scenario(lost: Lost) -> None:
        led = lost.cluster.led
        recovery, led.recovery = led.recovery, None
        with pytest.raises(Unavailable, match="only just taken over"):
            await lost.rebuild()
        led.recovery = recovery

    losing(scenario)


def test_a_worker_that_leaves_just_before_it_is_decided_is_given_nothing() -> None:
    async def scenario(lost: Lost) -> None:
        led = lost.cluster.led
        amend, epoch = led.ledger.amend, lost.cluster.decided.epoch

        async def late(decide: Any, *, patience: float) -> ClusterState:
            members = dict(led.fleet.members)
            led.fleet.members.clear()
            try:
                return await amend(decide, patience=patience)
            finally:
                led.fleet.members.update(members)

        led.ledger.amend = late  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="nothing is decided"):
            await lost.rebuild()
        led.ledger.amend = amend  # type: ignore[method-assign]
        assert lost.cluster.decided.epoch == epoch

    losing(scenario)


def test_what_is_archived_nowhere_is_refused() -> None:
    async def scenario() -> None:
        lost = Lost()
        lost.cluster.archive.keep = lambda cluster: None  # type: ignore[method-assign]
        await lost.start()
        with pytest.raises(BadRequest, match=r"nothing of shard \d is archived"):
            await lost.rebuild()
        assert all(given.rebuild is None for given in lost.cluster.decided.placement.values())
        await lost.cluster.close()

    simulated(scenario())


def test_a_shard_that_its_worker_cannot_open_is_given_up_by_its_number() -> None:
    """Its log is damaged: the worker is there, and has the directory. Nobody gives it up but who names it."""

    async def scenario(lost: Lost) -> None:
        cluster, (shard, *others) = lost.cluster, lost.shards
        back = await cluster.start_worker("w2", "/w2")
        back.refuses = {DomainIndex(shard)}
        await cluster.until(lambda: cluster.led.closed.keys() == {shard})
        assert "cannot be read" in cluster.led.closed[DomainIndex(shard)]
        assert lost_shards(cluster.led) == []
        with pytest.raises(BadRequest, match="no shard is lost") as refused:
            await lost.rebuild()
        assert f"headrace rebuild {shard}" in (refused.value.hint or "")
        with pytest.raises(BadRequest, match=f"shard {others[0]} is not lost"):
            await lost.rebuild(shard, others[0])
        asked = asyncio.ensure_future(lost.rebuild(shard))
        await cluster.until(lambda: cluster.archive.asked)
        back.refuses = set()
        assert {each["shard"] for each in await asked} == {shard}
        await cluster.calm()
        lost.shards = [shard]
        lost.forget()
        await lost.program.check()
        with pytest.raises(BadRequest, match=f"shard {shard} is not lost"):
            await lost.rebuild(shard)

    losing(scenario)


def test_one_that_is_away_as_well_is_waited_for() -> None:
    """It may keep transactions of those that are given up, and nobody can ask it."""

    async def scenario(lost: Lost) -> None:
        first, *others = lost.shards
        with pytest.raises(Unavailable, match=f"shard {others[0]}, which may keep transactions") as caught:
            await lost.rebuild(first)
        assert f"headrace rebuild {others[0]}" in str(caught.value.hint)
        assert not lost.cluster.archive.asked
        await lost.rebuild(*others)
        await lost.cluster.calm()
        lost.forget()
        await lost.program.check()

    losing(scenario)


def test_each_other_shard_leaves_what_it_keeps_before_one_is_made() -> None:
    async def scenario(lost: Lost) -> None:
        others = [shard for shard in range(6) if shard not in lost.shards]
        await lost.rebuild()
        assert {each.copies for each in lost.cluster.archive.asked} == {tuple(map(DomainIndex, others))}
        assert sorted(lost.cluster.archive.left) == [(other, shard) for other in others for shard in lost.shards]
        await lost.cluster.calm()

    losing(scenario)


def test_damage_is_told_and_it_goes_on_when_it_is_mended() -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        cluster.archive.damaged = True
        with pytest.raises(Unavailable, match=r"cannot be rebuilt yet.*segment is missing"):
            await lost.rebuild()
        assert not cluster.led.calm
        cluster.archive.damaged = False
        await cluster.calm()
        lost.forget()
        await lost.program.check()

    losing(scenario)


def test_the_next_leader_goes_on_with_it() -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        cluster.archive.looks = 10**6
        asked = asyncio.ensure_future(lost.rebuild())
        await cluster.until(lambda: cluster.archive.asked)
        first = cluster.led
        await cluster.start_controller("c2")
        cluster.kill_controller("c1")
        cluster.archive.looks = 0
        await cluster.until(lambda: cluster.led is not first and cluster.led.calm)
        asked.cancel()
        assert len({one.decided for one in cluster.archive.asked}) == 1, "it was decided once"
        lost.forget()
        await lost.program.check()

    losing(scenario)


def test_the_worker_that_rebuilds_dies_and_is_given_up_too() -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        shard = lost.shards[0]
        cluster.archive.looks = 10**6
        asked = asyncio.ensure_future(lost.rebuild())
        await cluster.until(lambda: cluster.archive.asked)
        target = cluster.decided.placement[DomainIndex(shard)].worker
        known = {each.shard: each.known for each in cluster.archive.asked}
        asked.cancel()
        cluster.workers[target].die()
        await cluster.until(lambda: "to be rebuilt in the data directory" in cluster.led.closed.get(shard, ""))
        cluster.archive.looks = 0
        await cluster.start_worker(target, f"/{target}")
        await cluster.until(lambda: shard not in lost_shards(cluster.led))
        last = cluster.archive.asked[-1]
        assert known.get(last.shard, last.known) == last.known

    losing(scenario)


def test_the_old_disk_that_comes_back_is_given_nothing() -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        await lost.rebuild()
        await cluster.calm()
        lost.forget()
        before = placement(cluster)
        back = await cluster.start_worker("w2", "/w2")
        await asyncio.sleep(20.0)
        assert cluster.led.calm
        assert placement(cluster) == before
        assert not back.hosted.hosts
        await lost.program.check()

    losing(scenario)


def test_two_that_are_given_up_one_after_the_other_are_both_told_of() -> None:
    async def scenario(lost: Lost) -> None:
        leader = lost.cluster.led
        first, second = lost.shards
        one = leader.rebuild_operations.start([first], {}, "worker")
        await lost.cluster.until(lambda: first in leader.rebuilds.failed)
        other = leader.rebuild_operations.start([second], {}, "worker")
        await asyncio.gather(one.ended.wait(), other.ended.wait())
        assert {each["shard"] for each in one.rebuilt} == {first}
        assert {each["shard"] for each in other.rebuilt} == {second}

    losing(scenario)


@pytest.mark.parametrize("at", range(1, 9))
def test_a_cancel_counts_until_it_is_decided(at: int) -> None:
    async def scenario(lost: Lost) -> None:
        cluster, operations = lost.cluster, lost.cluster.led.rebuild_operations
        was_decided: list[bool] = []

        async def cancel(_: Any) -> None:
            was_decided.append(operations.cancel(one.id).decided)

        cluster.at_message(at, cancel)
        one = operations.start((), {}, "worker")
        await one.ended.wait()
        await cluster.until(lambda: was_decided)
        assert one.state == ("done" if was_decided[0] else "cancelled")
        given_up = [given for given in cluster.decided.placement.values() if given.rebuild is not None]
        assert was_decided[0] or (lost_shards(cluster.led) == lost.shards and not given_up)

    losing(scenario)


async def test_what_failed_once_and_is_made_has_not_failed() -> None:
    rebuilds, told = RebuildOutcomes(), ShardRebuilt(())
    placement = {DomainIndex(0): Assignment("w", 2, "disk", Rebuild(2, {}))}
    answers: list[Any] = [SegmentMissing("a segment is missing"), told]

    async def ask(worker: str, message: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    for failed in ({DomainIndex(0)}, set()):
        await rebuilds.round(
            ask, ClusterState("main", 1, 1, 2, placement), {"w": "disk"}, lambda domain: (), ["w"], lambda domain: False
        )
        assert set(rebuilds.failed) == failed


def test_a_leader_that_is_succeeded_begins_none() -> None:
    async def scenario(lost: Lost) -> None:
        leader = lost.cluster.led
        leader.deposed("another leads")
        with pytest.raises(NoLeader):
            leader.rebuild_operations.start((), {}, "worker")

    losing(scenario)


def test_without_a_worker_nothing_is_decided() -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        for name in ("w1", "w3"):
            cluster.workers[name].die()
        await cluster.until(lambda: not cluster.led.fleet.members)
        with pytest.raises(Unavailable, match="no worker is there"):
            await lost.rebuild()

    losing(scenario)


def test_the_mark_is_part_of_the_state() -> None:
    assignments = {
        DomainIndex(0): Assignment("a", 3, "disk", Rebuild(3, {"votes@0": 17})),
        DomainIndex(1): Assignment("b", 2, "other"),
    }
    state = ClusterState("main", 2, 1, 3, assignments)
    assert ClusterState.decode(state.encode(), "main") == state


def test_a_shard_whose_folder_is_gone_is_damage_and_rebuilt() -> None:
    """Its worker is there, and made it anew, empty, without a word."""

    async def scenario(lost: Lost) -> None:
        cluster, (shard, *_) = lost.cluster, lost.shards
        del cluster.disks["/w2", shard]
        await cluster.start_worker("w2", "/w2")
        await cluster.until(lambda: cluster.led.closed.keys() == {shard})
        assert "is missing" in cluster.led.closed[DomainIndex(shard)]
        await lost.rebuild(shard)
        await cluster.calm()
        lost.shards = [shard]
        lost.forget()
        await lost.program.check()

    losing(scenario)
