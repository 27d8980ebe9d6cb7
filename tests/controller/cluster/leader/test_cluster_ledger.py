"""The decided state as bytes, and its changes by compare-and-set, also where ZooKeeper's answer is lost."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.cluster.leader.fleet import Deposed
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.lost_shards.rebuilding import lost_shards
from controller.cluster.state import RECIPE_ROOM, Assignment, ClusterState
from domains.errors import LimitExceeded, StorageFailure, Unavailable
from domains.plan.graph import DomainIndex
from migrations.recipe import Recipe, RecipeEntry
from tests.kit.lost_worker import Lost
from tests.kit.memory_workers import MemoryCluster, simulated
from zookeeper.authority import STATE_BYTES_MAX
from zookeeper.errors import AuthorityUnavailable
from zookeeper.memory import MemoryAuthority, MemoryZooKeeper

STATE = ClusterState(
    "main",
    4,
    3,
    17,
    {DomainIndex(2): Assignment("b", 9, "disk"), DomainIndex(0): Assignment("a", 17)},
    Recipe((RecipeEntry(("CREATE TABLE t (id BIGINT PRIMARY KEY)",)), RecipeEntry(readers=("v",)))),
    {"b": 3},
    "c#1#1",
)


def test_it_comes_back_as_it_was() -> None:
    assert ClusterState.decode(STATE.encode(), "main") == STATE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        STATE.encode()[:-5],
        zlib.compress(b"[]"),
        zlib.compress(b'{"format": 1}'),
        zlib.compress(b'{"format": 99}'),
        zlib.compress(b"0" * 70_000_000),
    ],
)
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(StorageFailure):
        ClusterState.decode(data, "main")


def test_another_deployments_state_is_refused() -> None:
    with pytest.raises(StorageFailure, match='of deployment "main"'):
        ClusterState.decode(STATE.encode(), "other")


def random_recipe(entries: int) -> Recipe:
    rng = random.Random(1)
    texts = ("".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1000)) for _ in range(entries))
    return Recipe(tuple(RecipeEntry((text,)) for text in texts))


def test_it_has_a_limit() -> None:
    with pytest.raises(LimitExceeded, match="is the limit"):
        replace(STATE, recipe=random_recipe(2000)).encode()


def test_a_recipe_leaves_room_to_recover() -> None:
    full = replace(STATE, recipe=random_recipe(1400))
    assert RECIPE_ROOM < len(full.encode()) < STATE_BYTES_MAX
    full.next_epoch({domain: Assignment("another", 18, "disk") for domain in full.domains}).encode()
    with pytest.raises(LimitExceeded, match="1,401 entries"):
        full.with_recipe(random_recipe(1401))
    assert full.with_recipe(random_recipe(1000)).recipe == random_recipe(1000)


# --- the ledger -----------------------------------------------------------------------------------------------------


def next_epoch(before: ClusterState | None) -> ClusterState:
    return ClusterState("main", 1, 1, 1) if before is None else before.next_epoch()


async def opened(server: MemoryZooKeeper, writer: str = "first") -> tuple[StateLedger, MemoryAuthority]:
    authority = server.authority()
    await authority.start(create=True)
    ledger = StateLedger(authority, writer)
    await ledger.load()
    return ledger, authority


async def test_a_second_leader_deposes_the_first() -> None:
    """Also where both decide the same: neither may take the other's write for its own."""
    server = MemoryZooKeeper()
    first, _ = await opened(server)
    await first.change(next_epoch, patience=0.0)
    second, _ = await opened(server, "second")
    await second.change(next_epoch, patience=0.0)
    for act in (first.confirm, lambda: first.change(next_epoch, patience=0.0)):
        with pytest.raises(Deposed):
            await act()
    assert second.decided.epoch == 2


async def test_who_finds_out_tells() -> None:
    server = MemoryZooKeeper()
    authority = server.authority()
    await authority.start(create=True)
    told: list[str] = []
    first = StateLedger(authority, "first", told.append)
    await first.load()
    second, _ = await opened(server, "second")
    await second.change(next_epoch, patience=0.0)
    with pytest.raises(Deposed):
        await first.change(next_epoch, patience=0.0)
    assert told


class Losing:
    """An authority whose next writes are lost: before they are done, or after."""

    def __init__(self, authority: MemoryAuthority, losses: list[str]) -> None:
        self.deployment = authority.deployment
        self._authority = authority
        self._losses = losses
        self.read = authority.read

    async def write(self, data: bytes, version: int) -> int:
        loss = self._losses.pop(0) if self._losses else ""
        if loss == "refused":
            raise AuthorityUnavailable("away")
        if loss == "lost":
            raise AuthorityUnavailable("away", maybe_done=True)
        written = await self._authority.write(data, version)
        if loss == "done":
            raise AuthorityUnavailable("away", maybe_done=True)
        return written


@pytest.mark.parametrize("losses", [["refused"], ["lost"], ["done"], ["lost", "refused", "done"], ["done", "lost"]])
async def test_a_lost_answer_is_found_out(losses: list[str]) -> None:
    server = MemoryZooKeeper()
    authority = server.authority()
    await authority.start(create=True)
    ledger = StateLedger(Losing(authority, list(losses)), "first")  # type: ignore[arg-type]
    await ledger.load()
    assert (await ledger.change(next_epoch, patience=5.0)).epoch == 1
    assert (await ledger.change(next_epoch, patience=5.0)).epoch == 2
    data, _ = await authority.read()
    assert data == ledger.decided.encode()


@pytest.mark.parametrize(("loss", "epoch"), [("lost", 0), ("done", 1)])
async def test_a_doubt_stays_until_it_is_settled(loss: str, epoch: int) -> None:
    server = MemoryZooKeeper()
    authority = server.authority()
    await authority.start(create=True)
    ledger = StateLedger(Losing(authority, [loss]), "first")  # type: ignore[arg-type]
    await ledger.load()
    with pytest.raises(Unavailable, match="nothing can be changed now"):
        await ledger.change(next_epoch, patience=0.0)
    await ledger.settle()
    assert (0 if ledger.state is None else ledger.state.epoch) == epoch


async def test_a_decision_that_is_withdrawn_writes_nothing() -> None:
    ledger, authority = await opened(MemoryZooKeeper())
    await ledger.change(next_epoch, patience=0.0)

    def refuse(before: ClusterState | None) -> ClusterState:
        raise Unavailable("not now")

    with pytest.raises(Unavailable, match="not now"):
        await ledger.change(refuse, patience=5.0)
    assert (await authority.read())[0] == ledger.decided.encode()


async def test_changes_at_once_are_made_one_after_another() -> None:
    ledger, _ = await opened(MemoryZooKeeper(delay=0.001))
    act: Callable[[ClusterState | None], ClusterState] = next_epoch
    await asyncio.gather(*(ledger.change(act, patience=0.0) for _ in range(10)))
    assert ledger.decided.epoch == 10


# --- a decision that was written, and whose answer was lost -------------------------------------------------------


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
