"""A leader with workers in memory, in virtual time: what it does when workers and leaders come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.cluster.leader.draining import drain, undrain
from domains.errors import BadRequest, NoLeader, Unavailable
from domains.plan.commands import Feed
from domains.plan.graph import DomainIndex
from tests.kit.memory_workers import MemoryCluster, MemoryWorker, simulated
from tests.kit.voting_program import STORIES, Program, placement, started
from worker.protocol.messages import OpenDomain, Perform, Reconfigure, Report, StaleEpoch


def test_it_starts_with_a_quorum() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(shards=4, quorum=3)
        await cluster.start_controller("c1")
        await cluster.start_worker("w1")
        await cluster.start_worker("w2")
        await asyncio.sleep(5.0)
        assert not cluster.led.calm
        assert "waiting for the first 3 workers; 2 are there" in cluster.led.trouble
        with pytest.raises(NoLeader, match="2 are there"):  # as in an election, api processes wait
            cluster.led.serving()
        await cluster.start_worker("w3")
        await cluster.calm()
        assert {len(domains) for domains in placement(cluster).values()} == {1, 2}
        program = Program(cluster)
        await program.start()
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_worker_is_killed() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        cluster.workers["w2"].die()
        await cluster.until(lambda: not cluster.led.calm)
        took = await cluster.calm()
        assert took < 0.5, f"{took} s until all was right again"
        assert sorted(placement(cluster)) == ["w1", "w3"]
        await program.check()
        await program.vote(20)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_worker_hangs_and_comes_back() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        hung = cluster.workers["w1"]
        hung.awake.clear()
        took = await cluster.until(lambda: not cluster.led.calm)
        assert 1.0 < took < 2.1
        await cluster.calm()
        await program.vote(10)
        await program.check()
        assert hung.hosted.hosts, "it does not know yet"
        hung.awake.set()
        await cluster.until(lambda: "w1" in placement(cluster))
        await cluster.calm()
        await program.vote(10)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_two_workers_at_once_and_then_all() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        cluster.workers["w1"].die()
        cluster.workers["w3"].die()
        await cluster.until(lambda: list(placement(cluster)) == ["w2"])
        await cluster.calm()
        await program.check()
        cluster.workers["w2"].die()
        await asyncio.sleep(3.0)
        assert not cluster.led.calm
        for name in ("w1", "w2", "w3"):
            await cluster.start_worker(name)
        await cluster.calm()
        await program.vote(10)
        await program.check()
        await asyncio.sleep(3.0)
        assert sorted(map(len, placement(cluster).values())) == [1, 1, 2]
        await cluster.close()

    simulated(scenario())


def test_a_worker_starts_anew_under_its_name() -> None:
    async def scenario() -> None:
        cluster, program = await started(2)
        before = placement(cluster)
        cluster.workers["w2"].die()
        await cluster.start_worker("w2")
        await asyncio.sleep(0.1)
        await cluster.calm()
        await program.check()
        await asyncio.sleep(cluster.timing.trust_after + 1.0)
        await cluster.calm()
        assert {name: len(domains) for name, domains in placement(cluster).items()} == {
            name: len(domains) for name, domains in before.items()
        }
        await program.vote(5)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_worker_that_is_lost_again_and_again_is_given_nothing_until_it_stays() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        for _ in range(3):
            cluster.workers["w2"].die()
            await cluster.until(lambda: "w2" not in cluster.led.fleet.members)
            await cluster.start_worker("w2")
            await asyncio.sleep(cluster.timing.trust_after / 2)
            assert "w2" not in placement(cluster)
        await cluster.start_worker("w4")
        await asyncio.sleep(cluster.timing.rebalance_after + 1.0)
        assert "w2" not in placement(cluster)
        assert "w4" in placement(cluster), "who joins for the first time does not wait for the other"
        cluster.workers["w4"].die()
        await cluster.until(lambda: "w2" in placement(cluster))
        await cluster.calm()
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_worker_that_came_back_and_stays_is_given_its_part() -> None:
    async def scenario() -> None:
        cluster, program = await started(2)
        cluster.workers["w2"].die()
        await cluster.until(lambda: "w2" not in placement(cluster))
        await cluster.start_worker("w2")
        took = await cluster.until(lambda: "w2" in placement(cluster))
        assert took >= cluster.timing.trust_after
        await cluster.calm()
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_worker_joins_and_few_domains_move() -> None:
    async def scenario() -> None:
        cluster, program = await started(2)
        before = cluster.led.ledger.decided.placement
        await cluster.start_worker("w3")
        await cluster.until(lambda: "w3" in placement(cluster))
        await cluster.calm()
        after = cluster.led.ledger.decided.placement
        assert sum(before[d].worker != after[d].worker for d in before) == 1
        await program.vote(10)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_worker_is_drained() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        await drain(cluster.led, "w2")
        assert "w2" not in placement(cluster)
        assert not cluster.workers["w2"].hosted.hosts
        await program.vote(10)
        await program.check()
        await cluster.workers["w2"].leave()
        await asyncio.sleep(1.0)
        assert cluster.led.calm, "nothing was lost"
        await cluster.start_worker("w2")
        await cluster.until(lambda: "w2" in placement(cluster))
        await cluster.calm()
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_connection_breaks_and_nothing_moves() -> None:
    async def scenario() -> None:
        cluster, program = await started(2)
        before = cluster.led.ledger.decided
        cluster.workers["w1"].break_connections()
        await cluster.until(lambda: cluster.led.ledger.decided != before)
        await cluster.calm()
        # What was said over the old connection is refused if it comes yet, and that is all that changes.
        after = cluster.led.ledger.decided
        assert (after.epoch, after.placement) == (before.epoch + 1, before.placement)
        for worker in cluster.workers.values():
            with pytest.raises(StaleEpoch):
                await worker.handle(Report(before.epoch))
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_leader_is_killed_and_healthy_domains_stay() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        before = cluster.led
        await cluster.start_controller("c2")
        cluster.kill_controller("c1")
        await program.vote(10)
        took = await cluster.until(lambda: cluster.leader is not before and cluster.led.calm)
        assert took < 2.5
        assert cluster.led.ledger.decided.placement == before.ledger.decided.placement
        opened = [m for w in cluster.workers.values() for m in w.asked if type(m).__name__ == "OpenDomain"]
        assert len(opened) == 4, "each domain was opened once, at the first start"
        await program.vote(10)
        await program.check()
        await cluster.migrate("CREATE EXT VIEW authors AS SELECT author, COUNT(*) AS n FROM stories GROUP BY author")
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_all_sessions_end_and_a_worker_is_late_to_come_back() -> None:
    """ZooKeeper hung. Whoever leads then must not take for dead whom ZooKeeper has not heard again yet."""

    async def scenario() -> None:
        cluster, program = await started(3)
        await cluster.start_controller("c2")
        before = cluster.led
        late = cluster.workers["w2"]
        late.authority.cut()
        for session in list(cluster.zookeeper._sessions.values()):
            cluster.zookeeper.expire(session)
        asyncio.get_running_loop().call_later(0.8, late.authority.mend)
        await cluster.until(lambda: cluster.leader is not before and cluster.led.calm)
        assert cluster.led.ledger.decided.placement == before.ledger.decided.placement
        assert not late.dead
        await program.vote(10)
        await program.check()
        await cluster.close()

    simulated(scenario())


def feed_late(worker: MemoryWorker) -> None:
    """What it sends is late from the first slice on that it is to feed."""
    handle = worker.handle

    async def handle_late(message: Any) -> Any:
        if isinstance(message, Perform) and isinstance(message.command, Feed):
            worker.late, worker.handle = [], handle  # type: ignore[method-assign]
        return await handle(message)

    worker.handle = handle_late  # type: ignore[method-assign]


async def break_off(cluster: MemoryCluster, slow: MemoryWorker, spares: list[MemoryWorker]) -> None:
    """What feeds is broken off by a loss, and the round that follows by another, as soon as it has removed nodes."""
    await cluster.until(lambda: slow.late)
    before = len(slow.asked)
    spares[0].die()
    await cluster.until(lambda: any(isinstance(m, Reconfigure) and m.removals for m in slow.asked[before:]))
    spares[1].die()
    await asyncio.sleep(0.5)


def spares_of(cluster: MemoryCluster) -> list[MemoryWorker]:
    """Workers without domains."""
    return [each for name, each in cluster.workers.items() if name not in placement(cluster) and not each.dead]


def test_what_was_fed_is_late_and_rounds_are_broken_off() -> None:
    """Of the rounds that follow on a loss, one has removed what is built again when it is broken off. The next finds
    nothing to remove, and must wait for what is on its way all the same."""

    async def scenario() -> None:
        cluster, program = await started(6, shards=3)
        lost, slow, *_ = (cluster.workers[name] for name in sorted(placement(cluster)))
        feed_late(slow)
        lost.die()
        await cluster.until(lambda: slow.late)
        await break_off(cluster, slow, spares_of(cluster))
        slow.deliver()
        await cluster.calm()
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_what_a_migration_fed_is_late_and_rounds_are_broken_off() -> None:
    """A migration is taken back by a round that is broken off when it has removed the nodes. When it is tried again its
    nodes have the same numbers, and must not meet the rows that were fed to the first ones."""

    async def scenario() -> None:
        cluster, program = await started(5, shards=3)
        slow = cluster.workers[min(placement(cluster))]
        feed_late(slow)
        view = "CREATE EXT VIEW voters AS SELECT user_id, COUNT(*) AS n FROM votes GROUP BY user_id"
        migration = asyncio.create_task(cluster.migrate(view))
        await break_off(cluster, slow, spares_of(cluster))
        slow.deliver()
        await migration
        assert await cluster.read("voters") == sorted([(user, 1) for user in range(program.voted)], key=repr)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_zookeeper_is_away() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        cluster.zookeeper.stop()
        await program.vote(10)
        await program.check()
        with pytest.raises(Unavailable, match="ZooKeeper does not answer"):
            await cluster.migrate("CREATE TABLE more (id BIGINT PRIMARY KEY)")
        cluster.workers["w3"].die()
        await asyncio.sleep(10.0)
        assert not cluster.led.calm
        assert DomainIndex(0) in cluster.led.ledger.decided.placement
        cluster.zookeeper.start()
        await cluster.calm()
        await program.vote(10)
        await program.check()
        await cluster.migrate("CREATE TABLE more (id BIGINT PRIMARY KEY)")
        await cluster.close()

    simulated(scenario())


def test_what_was_opened_is_linked_only_when_all_others_have_been_told() -> None:
    """Else what is broken off then would leave full state of others that nobody knows to be void."""

    async def scenario() -> None:
        cluster, program = await started(3)
        hosts: set[str] = set()
        told = asyncio.Event()

        def slow(worker: MemoryWorker) -> None:
            handle = worker.handle

            async def slowly(message: Any) -> Any:
                if isinstance(message, OpenDomain):
                    hosts.add(worker.descriptor.name)
                if isinstance(message, Reconfigure) and worker.descriptor.name not in hosts:
                    await told.wait()
                return await handle(message)

            worker.handle = slowly  # type: ignore[method-assign]

        lost = {DomainIndex(domain) for domain in placement(cluster)["w3"]}
        for name in ("w1", "w2"):
            slow(cluster.workers[name])
        cluster.workers["w3"].die()
        await cluster.until(lambda: hosts)
        await asyncio.sleep(0.5)
        assert len(hosts) == 1, "the other has to be a mere survivor"
        there = {d: host for name in hosts for d, host in cluster.workers[name].hosted.hosts.items() if d in lost}
        assert there
        assert all(list(host.domain.vertices) and not host.linked for host in there.values())
        told.set()
        await cluster.calm()
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_shard_that_one_worker_cannot_open_goes_to_another() -> None:
    async def scenario() -> None:
        cluster, program = await started(3)
        lost = placement(cluster)["w3"]
        cluster.workers["w1"].refuses.update(DomainIndex(domain) for domain in lost)
        cluster.workers["w3"].die()
        await cluster.until(lambda: set(lost) <= set(placement(cluster).get("w2", ())) and cluster.led.calm)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_a_shard_that_nobody_can_open_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        cluster, program = await started(3, shards=3)
        (lost,) = placement(cluster)["w3"]
        for name in ("w1", "w2"):
            cluster.workers[name].refuses.add(DomainIndex(lost))
        cluster.workers["w3"].die()
        await cluster.until(lambda: cluster.led.closed)
        assert f"the disk of shard {lost} cannot be read" in cluster.led.trouble
        for story in range(STORIES):
            if story % 3 != lost:
                await asyncio.wait_for(
                    cluster.write(f"UPDATE stories SET author = 'a{story % 3}' WHERE id = {story}"), 1
                )
        with pytest.raises(Unavailable, match="cannot be read"):
            await cluster.migrate("CREATE TABLE more (id BIGINT PRIMARY KEY)")
        with pytest.raises(Unavailable, match="is given no more domains"):
            await drain(cluster.led, "w2")
        await undrain(cluster.led, "w2")
        cluster.workers["w1"].refuses.clear()
        await cluster.calm()
        assert not cluster.led.closed
        await program.vote(5)
        await program.check()
        await cluster.close()

    simulated(scenario())


def test_rows_stay_with_their_directory() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(shards=2, quorum=2)
        await cluster.start_worker("w1", "disk1")
        await cluster.start_worker("w2", "disk2")
        await cluster.start_controller("c1")
        await cluster.calm()
        program = Program(cluster)
        await program.start()
        before = placement(cluster)
        cluster.workers["w2"].die()
        await cluster.until(lambda: cluster.led.closed)
        assert 'has the data directory "disk2"' in cluster.led.trouble
        await cluster.start_worker("w3", "disk2")
        await cluster.calm()
        assert placement(cluster) == {"w1": before["w1"], "w3": before["w2"]}
        with pytest.raises(BadRequest, match="no other worker can take domain"):
            await drain(cluster.led, "w3")
        await program.vote(5)
        await program.check()
        await cluster.close()

    simulated(scenario())
