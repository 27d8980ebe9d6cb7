"""What every cluster authority does, whichever ZooKeeper stands behind it."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
from authority_kinds import DEADLINE, Kind, until

from zookeeper.authority import STATE_BYTES_MAX, ClusterAuthority, StateChange
from zookeeper.errors import (
    AuthorityError,
    AuthorityUnavailable,
    ForeignDeployment,
    NameTaken,
    StateConflict,
    StateTooLarge,
)
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor


def worker(name: str, incarnation: int = 1, **others: object) -> WorkerDescriptor:
    given = {"host": "h", "port": 7, "pid": 1, "data": f"/data/{name}", **others}
    return WorkerDescriptor(name=name, incarnation=incarnation, **given)  # type: ignore[arg-type]


def controller(name: str) -> ControllerDescriptor:
    return ControllerDescriptor(name, "h", 9, 1)


async def started(kind: Kind, count: int = 1, deployment: str = "main") -> list[ClusterAuthority]:
    made = [kind.authority(deployment) for _ in range(count)]
    for each in made:
        await each.start(create=True)
    return made


# --- state ------------------------------------------------------------------------------------------------------------


async def test_state_is_replaced_by_compare_and_set(kind: Kind) -> None:
    one, other = await started(kind, 2)
    assert await one.read() == (None, 0)
    assert await one.write(b"first", 0) == 1
    assert await other.read() == (b"first", 1)
    with pytest.raises(StateConflict):
        await other.write(b"late", 0)
    assert await other.write(b"second", 1) == 2
    with pytest.raises(StateConflict):
        await one.write(b"late", 1)
    assert await one.read() == (b"second", 2)
    assert await one.write(b"", 2) == 3
    assert await other.read() == (b"", 3)


async def test_of_many_that_write_at_once_one_wins(kind: Kind) -> None:
    made = await started(kind, 3)
    for version in range(5):
        outcomes = await asyncio.gather(
            *(each.write(f"{version} {number}".encode(), version) for number, each in enumerate(made)),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes if each != version + 1] == [StateConflict] * 2
        winner = outcomes.index(version + 1)
        assert await made[0].read() == (f"{version} {winner}".encode(), version + 1)


async def test_a_state_that_is_too_large_is_refused(kind: Kind) -> None:
    (one,) = await started(kind)
    largest = b"x" * STATE_BYTES_MAX
    with pytest.raises(StateTooLarge, match="1,000,001 bytes"):
        await one.write(largest + b"x", 0)
    version = await one.write(largest, 0)
    assert (await one.read())[0] == largest
    assert await one.write(largest, version) == 2


async def test_while_zookeeper_is_away_nothing_is_written_and_then_it_goes_on(kind: Kind) -> None:
    one, other = await started(kind, 2)
    await one.write(b"first", 0)
    await kind.down()
    outcomes = await asyncio.gather(
        one.write(b"second", 1), one.read(), one.workers(), one.leader(), return_exceptions=True
    )
    assert [type(each) for each in outcomes] == [AuthorityUnavailable] * 4, outcomes
    assert "cannot be reached" in str(outcomes[0])
    assert not one.connected
    await kind.up()
    assert await until(lambda: one.connected and other.connected)
    now = await one.read()
    # A request that was under way when the server went may be sent again by the client; it is told as maybe done.
    assert isinstance(outcomes[0], AuthorityUnavailable)
    assert now == (b"first", 1) or (outcomes[0].maybe_done and now == (b"second", 2))
    assert await other.write(b"third", now[1]) == now[1] + 1


async def test_a_write_whose_answer_is_lost_is_known_when_the_connection_is_back(kind: Kind) -> None:
    one, other = await started(kind, 2)
    version, tries = 0, 0
    while tries < 20:
        tries += 1
        writing = asyncio.create_task(one.write(b"%d" % tries, version))
        for _ in range(tries % 4):
            await asyncio.sleep(0)
        kind.cut(one)
        await asyncio.sleep(0)
        kind.mend(one)
        (outcome,) = await asyncio.gather(writing, return_exceptions=True)
        assert isinstance(outcome, int) or (isinstance(outcome, AuthorityUnavailable) and not outcome.maybe_done)
        answered = outcome if isinstance(outcome, int) else version
        now = await other.read()
        assert now[1] == answered
        assert now[0] == b"%d" % tries or answered == version
        version = answered
    print(version, "of", tries, "were done")


# --- deployments ------------------------------------------------------------------------------------------------------


async def test_deployments_know_nothing_of_each_other(kind: Kind) -> None:
    (one,), (other,) = await started(kind), await started(kind, deployment="other")
    await one.write(b"mine", 0)
    await one.register_worker(worker("a"))
    assert await other.read() == (None, 0)
    assert await other.workers() == {}
    assert one.deployment_id != other.deployment_id
    (again,) = await started(kind)
    assert again.deployment_id == one.deployment_id


async def test_a_missing_deployment_is_an_error_that_names_those_there_are(kind: Kind) -> None:
    with pytest.raises(ForeignDeployment, match='no deployment "main"'):
        await kind.authority().start()
    await started(kind, deployment="blue")
    await started(kind, deployment="green")
    with pytest.raises(ForeignDeployment, match='there are "blue", "green"'):
        await kind.authority().start()
    await kind.authority("green").start()


async def test_a_deployment_of_another_format_is_left_alone(kind: Kind) -> None:
    (one,) = await started(kind)
    for content, says in ((json.dumps({"format": 2, "id": "x"}), "format 2"), ("{}", "not a deployment of Headrace")):
        await kind.raw(one, "set", "/headrace/main", content.encode())
        with pytest.raises(ForeignDeployment, match=says):
            await kind.authority().start(create=True)


@pytest.mark.parametrize("name", ["", "a/b", ".", "-x", "a" * 65, "é"])
def test_names_that_are_none(name: str) -> None:
    from zookeeper.memory import MemoryZooKeeper

    with pytest.raises(ValueError, match="is not a name of a deployment"):
        MemoryZooKeeper().authority(name)


async def test_a_deployment_that_was_made_anew_is_another_one(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    """ZooKeeper has lost everything, and a controller was started before anybody restored the state: what runs on must
    not take part in what is decided there, nor believe it."""
    one, other = await started(kind, 2)
    await one.register_worker(worker("a"))
    await kind.raw(one, "set", "/headrace/main", b'{"format": 1, "id": "anew"}')
    await kind.raw(one, "delete", "/headrace/main/workers/a")
    candidacy = other.candidate(controller("c"))
    await until(lambda: "cannot register again" in caplog.text and "cannot take part in the election" in caplog.text)
    assert all('deployment "main" in ZooKeeper at' in each for each in caplog.messages if "cannot" in each)
    assert (await one.workers(), await one.candidates(), await one.leader()) == ({}, {}, None)
    with pytest.raises(ForeignDeployment, match="is another one now"):
        await one.read()
    # Once it is restored, all go on where they were.
    await kind.raw(one, "set", "/headrace/main", json.dumps({"format": 1, "id": one.deployment_id}).encode())
    await until(lambda: _is_there(one, "a"))
    await asyncio.wait_for(candidacy.elected(), DEADLINE)
    assert await one.read() == (None, 0)


# --- workers ----------------------------------------------------------------------------------------------------------


async def test_workers_come_and_go_with_their_sessions(kind: Kind) -> None:
    one, other = await started(kind, 2)
    await one.register_worker(worker("b"))
    await other.register_worker(worker("a", reader_map="/map"))
    assert list((await one.workers()).items()) == [("a", worker("a", reader_map="/map")), ("b", worker("b"))]
    await one.register_worker(worker("b", port=8))
    assert (await other.workers())["b"].port == 8
    await one.register_worker(worker("c"))
    assert list(await other.workers()) == ["a", "c"]
    await one.close()
    assert list(await other.workers()) == ["a"]


async def test_a_worker_that_lost_its_session_registers_again(kind: Kind) -> None:
    one, other = await started(kind, 2)
    await one.register_worker(worker("a"))
    await kind.expire(one)
    assert await until(lambda: one.connected)
    await until(lambda: _is_there(other, "a"))
    kind.cut(one)
    await until(lambda: _is_gone(other, "a"))
    kind.mend(one)
    await until(lambda: _is_there(other, "a"))
    await kind.raw(other, "delete", "/headrace/main/workers/a")
    await until(lambda: _is_there(other, "a"))
    assert not one.superseded.is_set()


async def test_a_worker_that_is_cut_off_for_a_moment_stays(kind: Kind) -> None:
    kind.be_patient()
    one, other = await started(kind, 2)
    await one.register_worker(worker("a"))
    kind.cut(one)
    await until(lambda: not one.connected)
    kind.mend(one)
    await until(lambda: one.connected)
    assert list(await other.workers()) == ["a"]


async def test_a_worker_that_is_started_again_takes_its_own_place(kind: Kind) -> None:
    one, other, third = await started(kind, 3)
    await one.register_worker(worker("a", incarnation=1))
    kind.cut(one)  # It was killed; its session lives on for a while.
    await other.register_worker(worker("a", incarnation=2, pid=2))
    assert (await third.workers())["a"].incarnation == 2
    # It was not dead after all.
    kind.mend(one)
    await asyncio.wait_for(one.superseded.wait(), DEADLINE)
    assert (await third.workers())["a"].incarnation == 2
    assert not other.superseded.is_set()


async def test_a_name_is_one_workers(kind: Kind) -> None:
    one, other, third = await started(kind, 3)
    await one.register_worker(worker("a", incarnation=5))
    with pytest.raises(NameTaken, match='another worker is registered as "a"'):
        await other.register_worker(worker("a", incarnation=6, data="/elsewhere"))
    with pytest.raises(NameTaken, match="newer"):
        await other.register_worker(worker("a", incarnation=4))
    assert (await third.workers())["a"] == worker("a", incarnation=5)
    # The name is free when the other's session ends.
    registering = asyncio.create_task(other.register_worker(worker("a", data="/elsewhere")))
    await one.close()
    await registering
    assert (await third.workers())["a"].data == "/elsewhere"


async def test_what_is_no_worker_is_left_out(kind: Kind) -> None:
    (one,) = await started(kind)
    await one.register_worker(worker("a"))
    for number, content in enumerate((b"", b"[]", b'{"name": "b"}', b'{"name": 1, "host": 2}', b"\xff")):
        await kind.raw(one, "create", f"/headrace/main/workers/x{number}", content)
    newer = json.dumps({**json.loads(_json(worker("b"))), "more": 1}).encode()
    await kind.raw(one, "create", "/headrace/main/workers/b", newer)
    assert list(await one.workers()) == ["a", "b"]


# --- election ---------------------------------------------------------------------------------------------------------


async def test_one_leads_and_the_next_follows(kind: Kind) -> None:
    kind.be_patient()
    made = await started(kind, 3)
    assert await made[0].leader() is None
    elections = [each.candidate(controller(f"c{number}")) for number, each in enumerate(made)]
    waits = [asyncio.create_task(each.elected()) for each in elections]
    left = [0, 1, 2]
    for _ in range(3):
        done, _ = await asyncio.wait(
            [waits[each] for each in left], timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED
        )
        (winner,) = [each for each in left if waits[each] in done]
        assert await made[winner].leader() == controller(f"c{winner}")
        expected = [f"c{each}" for each in left]
        await until(partial(_candidates, made[winner], expected))
        assert not elections[winner].lost.is_set()
        await elections[winner].resign()
        assert elections[winner].lost.is_set()
        left.remove(winner)
    assert await made[0].leader() is None
    assert await made[0].candidates() == {}
    again = made[0].candidate(controller("c0"))
    await asyncio.wait_for(again.elected(), DEADLINE)


async def test_a_leader_whose_session_ends_learns_it_and_another_leads(kind: Kind) -> None:
    one, other = await started(kind, 2)
    first = one.candidate(controller("one"))
    await asyncio.wait_for(first.elected(), DEADLINE)
    second = other.candidate(controller("other"))
    await kind.expire(one)
    await asyncio.wait_for(first.lost.wait(), DEADLINE)
    await asyncio.wait_for(second.elected(), DEADLINE)
    assert await one.leader() == controller("other")
    with pytest.raises(AuthorityError, match="over"):
        await first.elected()
    # It may stand again, and waits its turn.
    third = one.candidate(controller("one"))
    await until(lambda: _candidates(other, ["one", "other"]))
    await other.close()
    await asyncio.wait_for(third.elected(), DEADLINE)


async def test_a_leader_that_is_cut_off_is_replaced(kind: Kind) -> None:
    one, other = await started(kind, 2)
    first = one.candidate(controller("one"))
    await asyncio.wait_for(first.elected(), DEADLINE)
    second = other.candidate(controller("other"))
    kind.cut(one)
    await asyncio.wait_for(second.elected(), DEADLINE)
    # Nobody could tell it; its commands are refused by their epoch. When it hears of ZooKeeper again it knows.
    kind.mend(one)
    await asyncio.wait_for(first.lost.wait(), DEADLINE)
    assert await one.leader() == controller("other")


async def test_a_leader_stays_while_all_of_zookeeper_is_away(kind: Kind) -> None:
    kind.be_patient()
    one, other = await started(kind, 2)
    first = one.candidate(controller("one"))
    await asyncio.wait_for(first.elected(), DEADLINE)
    other.candidate(controller("other"))
    await kind.down()
    await until(lambda: not one.connected and not other.connected)
    await kind.up()
    await until(lambda: one.connected and other.connected)
    assert await other.leader() == controller("one")
    assert not first.lost.is_set()


async def test_a_leader_that_somebody_deleted_knows(kind: Kind) -> None:
    (one,) = await started(kind)
    first = one.candidate(controller("one"))
    await asyncio.wait_for(first.elected(), DEADLINE)
    await kind.raw(one, "delete", "/headrace/main/controller")
    await asyncio.wait_for(first.lost.wait(), DEADLINE)


async def test_closing_ends_the_lead(kind: Kind) -> None:
    one, other = await started(kind, 2)
    first = one.candidate(controller("one"))
    await asyncio.wait_for(first.elected(), DEADLINE)
    await one.close()
    assert first.lost.is_set()
    assert await other.leader() is None
    assert await other.candidates() == {}


# --- changes ----------------------------------------------------------------------------------------------------------


async def test_changes_are_announced(kind: Kind) -> None:
    one, other = await started(kind, 2)
    seen: list[StateChange] = []
    one.on_change(seen.append)

    async def announced(change: StateChange) -> None:
        await until(lambda: change in seen)
        seen.clear()

    # What was there before anybody listened may be announced too; what follows is told apart by clearing.
    await other.write(b"1", 0)
    await announced(StateChange.STATE)
    await other.write(b"2", 1)
    await announced(StateChange.STATE)
    await other.register_worker(worker("a"))
    await announced(StateChange.WORKERS)
    election = other.candidate(controller("c"))
    await announced(StateChange.LEADER)
    await election.elected()
    await election.resign()
    await announced(StateChange.LEADER)
    kind.cut(one)
    await announced(StateChange.CONNECTION)
    await other.write(b"3", 2)
    kind.mend(one)
    await announced(StateChange.STATE)  # It missed it, and is told of everything when it is back.
    assert await one.read() == (b"3", 3)
    await other.close()
    await announced(StateChange.WORKERS)


async def test_a_listener_that_fails_keeps_nobody_from_hearing(kind: Kind) -> None:
    one, other = await started(kind, 2)
    seen: list[StateChange] = []

    def fails(change: StateChange) -> None:
        raise RuntimeError("a listener's mistake")

    one.on_change(fails)
    one.on_change(seen.append)
    await other.write(b"1", 0)
    await until(lambda: StateChange.STATE in seen)


def _json(descriptor: WorkerDescriptor) -> bytes:
    from zookeeper.registration import to_json

    return to_json(descriptor)


async def _is_there(authority: ClusterAuthority, name: str) -> bool:
    return name in await authority.workers()


async def _is_gone(authority: ClusterAuthority, name: str) -> bool:
    return name not in await authority.workers()


async def _candidates(authority: ClusterAuthority, names: list[str]) -> bool:
    return list(await authority.candidates()) == names
