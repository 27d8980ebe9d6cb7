"""The two that need no server: the file of the embedded deployment, and the memory of the simulator."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from zookeeper.authority import StateChange
from zookeeper.errors import AuthorityUnavailable, StateConflict
from zookeeper.local_authority import LocalAuthority
from zookeeper.memory import MemoryAuthority, MemoryZooKeeper
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor


async def test_a_file_keeps_the_state(tmp_path: Path) -> None:
    authority = LocalAuthority(tmp_path / "in" / "recipe.json")
    assert await authority.read() == (None, 0)
    assert await authority.write(b"one", 0) == 1
    assert await authority.read() == (b"one", 1)
    with pytest.raises(StateConflict, match="at version 1, not 0"):
        await authority.write(b"other", 0)
    assert await authority.write(b"two", 1) == 2
    again = LocalAuthority(tmp_path / "in" / "recipe.json")
    assert await again.read() == (b"two", 1)


class Story:
    """A few processes to which everything happens, in an order that only the seed decides."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = MemoryZooKeeper(timeout=0.02, delay=0.0001)
        self.told: list[str] = []
        self.terms: list[tuple[int, int]] = []
        """(leader, version of the state that it wrote when it took over)."""

    async def tell(self) -> list[str]:
        processes = [self.server.authority() for _ in range(3)]
        running = [asyncio.create_task(self._process(number, each)) for number, each in enumerate(processes)]
        for _ in range(40):
            victim = self.chance.choice(processes)
            act = self.chance.choice(["cut", "mend", "mend", "expire", "stop", "start", "start"])
            self.told.append(act)
            if act in ("stop", "start"):
                getattr(self.server, act)()
            else:
                getattr(victim, act)()
            await asyncio.sleep(self.chance.random() * 0.03)
        self.server.start()
        for each in processes:
            each.mend()
        watcher = self.server.authority()
        await watcher.start()
        async with asyncio.timeout(60):
            while len(await watcher.workers()) < 3 or await watcher.leader() is None or not self.terms:
                await asyncio.sleep(0.005)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for each in (*processes, watcher):
            await each.close()
        return self.told

    async def _process(self, number: int, authority: MemoryAuthority) -> None:
        while True:
            try:
                await authority.start(create=True)
                break
            except AuthorityUnavailable:
                await asyncio.sleep(0.005)
        authority.on_change(lambda change: self.told.append(f"{number} hears of {change.value}"))
        while True:
            try:
                await authority.register_worker(WorkerDescriptor(f"w{number}", "h", 1, 1, 1, f"/{number}"))
                break
            except AuthorityUnavailable:
                await asyncio.sleep(0.005)
        while True:
            election = authority.candidate(ControllerDescriptor(f"c{number}", "h", 1, 1))
            await election.elected()
            await self._lead(number, authority)
            await election.lost.wait()

    async def _lead(self, number: int, authority: MemoryAuthority) -> None:
        """Take over by compare-and-set, as a leader does. Only one can have each version."""
        while True:
            try:
                state, version = await authority.read()
                version = await authority.write(b"%d after %b" % (number, (state or b"nobody")[:1]), version)
            except AuthorityUnavailable:
                await asyncio.sleep(0.005)
                continue
            except StateConflict:
                continue
            self.terms.append((number, version))
            self.told.append(f"{number} leads, {version}")
            return


@pytest.mark.parametrize("seed", range(20))
async def test_a_random_story_ends_well(seed: int) -> None:
    print("seed", seed)
    story = Story(seed)
    await story.tell()
    versions = [version for _, version in story.terms]
    assert versions == sorted(set(versions)), "each takes over from the one before"
    assert versions


@pytest.mark.parametrize("turns", range(24))
async def test_a_connection_that_breaks_while_it_starts_is_waited_for(turns: int) -> None:
    """As on a machine that is busy: a process that gave up then would have a whole cluster not start."""
    server = MemoryZooKeeper()
    authority = server.authority()

    async def begin() -> None:
        await authority.start(create=True)
        await authority.register_worker(WorkerDescriptor("w", "h", 1, 1, 1, "/w"))

    beginning = asyncio.create_task(begin())
    for _ in range(turns):
        await asyncio.sleep(0)
    if authority.connected:  # Else it has not begun: whoever is not there at all is an error.
        authority.cut()
        authority.mend()
    async with asyncio.timeout(60):
        await beginning
    assert list(await authority.workers()) == ["w"]
    await authority.close()


async def test_the_memory_twin_is_deterministic() -> None:
    """Without any waiting in real time the same acts give the same story."""

    async def once() -> list[str]:
        told: list[str] = []
        server = MemoryZooKeeper(timeout=0.0)
        one, other = server.authority(), server.authority()
        for number, each in enumerate((one, other)):
            each.on_change(lambda change, number=number: told.append(f"{number} {change.value}"))  # type: ignore[misc]
            await each.start(create=True)
        elections = [
            each.candidate(ControllerDescriptor(f"c{number}", "h", 1, 1)) for number, each in enumerate((one, other))
        ]
        await elections[0].elected()
        for act in (one.expire, other.expire, server.stop, server.start):
            act()
            for _ in range(30):
                await asyncio.sleep(0)
            if server.running:
                leader = await one.leader()
                told.append(f"leader {leader.name if leader else None}")
        await one.close()
        await other.close()
        return told

    first = await once()
    assert StateChange.LEADER.value in " ".join(first)
    for _ in range(5):
        assert await once() == first


async def test_whose_session_has_ended_and_who_is_back_while_the_server_is_away_goes_on_with_it() -> None:
    server = MemoryZooKeeper(timeout=0.05)
    authority = server.authority()
    await authority.start(create=True)
    first = authority.session.id
    authority.cut()
    async with asyncio.timeout(10):
        while server.lives(first):
            await asyncio.sleep(0.01)
        server.stop()
        authority.mend()
        server.start()
        assert await authority.read() == (None, 0)
    assert server.lives(authority.session.id)
    assert authority.session.id != first
    await authority.close()
