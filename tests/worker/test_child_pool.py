"""Work in a process beside: its parts and errors come back, and who passes a limit is killed, replaced and named."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from domains.errors import LimitExceeded, Overloaded, SqlSyntaxError
from worker.service import child_pool as module
from worker.service.child_pool import ChildPool, Turn, in_turns
from worker.service.system import resident_bytes


def counted(number: int) -> Iterator[tuple[int, int]]:
    for each in range(number):
        yield os.getpid(), each


def refusing() -> Iterator[int]:
    yield 1
    raise SqlSyntaxError("this is wrong", line=3, column=7)


def broken() -> Iterator[int]:
    yield 1 // 0


def endless() -> Iterator[int]:
    yield os.getpid()
    while True:
        time.sleep(0.01)


def greedy() -> Iterator[int]:
    yield len(bytearray(8 * 2**30))


def cyclic(text: str) -> Iterator[int]:
    """60 MB, as a tree is."""
    tree: list[object] = [[None] * 10 for _ in range(500_000)]
    tree.append(tree)
    yield os.getpid()


def dying() -> Iterator[int]:
    yield 1
    os._exit(3)


@pytest.fixture
async def beside(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChildPool]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # Where a child finds this file's functions.
    opened = ChildPool(processes=1, seconds=30)
    yield opened
    await opened.close()


async def test_a_child_gives_back_what_a_long_text_took(beside: ChildPool) -> None:
    [(process, _)] = [part async for part in beside.run(counted, 1)]
    before = resident_bytes(process)
    assert [process] == [part async for part in beside.run(cyclic, "x" * module.GIVES_BACK)]
    until = time.monotonic() + 10
    while resident_bytes(process) > before + 20_000_000:
        assert time.monotonic() < until, resident_bytes(process)
        await asyncio.sleep(0.02)


async def test_parts_come_in_order_and_a_child_is_used_again(beside: ChildPool) -> None:
    first = [part async for part in beside.run(counted, 1000)]
    again = [part async for part in beside.run(counted, 2)]
    assert [each for _, each in first] == list(range(1000))
    assert {pid for pid, _ in first + again} == {first[0][0]} != {os.getpid()}


async def test_errors_are_those_of_the_function(beside: ChildPool) -> None:
    with pytest.raises(SqlSyntaxError) as refused:
        [part async for part in beside.run(refusing)]
    assert (refused.value.line, refused.value.column) == (3, 7)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        [part async for part in beside.run(broken)]
    assert beside.killed == 0


@pytest.mark.parametrize("work", [greedy, dying])
async def test_a_child_that_breaks_is_replaced(beside: ChildPool, work: object) -> None:
    with pytest.raises(LimitExceeded, match="bytes of memory"):
        [part async for part in beside.run(work)]  # type: ignore[arg-type]
    assert [each async for _, each in beside.run(counted, 2)] == [0, 1]
    assert beside.killed == 1


async def test_who_takes_too_long_is_killed(beside: ChildPool) -> None:
    assert [each async for _, each in beside.run(counted, 1)] == [0]  # Its start is not to count.
    beside.seconds = 0.2
    coming = beside.run(endless)
    pid = await anext(coming)
    with pytest.raises(LimitExceeded, match=r"takes more than 0\.2 s"):
        await anext(coming)
    await is_gone(pid)


async def test_who_is_no_longer_wanted_is_killed(beside: ChildPool) -> None:
    """As where a client has gone."""
    coming = beside.run(endless)
    pid = await anext(coming)
    await coming.aclose()  # type: ignore[attr-defined]
    await is_gone(pid)
    assert beside.killed == 0


async def is_gone(pid: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.01)


async def test_too_many_are_refused(beside: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    coming = beside.run(endless)
    await anext(coming)
    waits = asyncio.create_task(anext(beside.run(counted, 1)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await anext(beside.run(counted, 1))
    await coming.aclose()  # type: ignore[attr-defined]
    assert (await waits)[1] == 0


async def test_an_idle_child_ends(beside: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    ((pid, _),) = [part async for part in beside.run(counted, 1)]
    await is_gone(pid)


async def test_others_have_their_turns() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def work() -> Iterator[None]:
        deadline = time.monotonic() + 30
        while turns < 3 and time.monotonic() < deadline:
            yield
        return "done"  # type: ignore[return-value]

    task = asyncio.create_task(other())
    assert await in_turns(work()) == "done"  # type: ignore[arg-type, comparison-overlap]
    assert turns >= 3
    turn, before = Turn(), turns
    for _ in range(20):
        await turn.pause()
        time.sleep(0.001)
    assert turns > before
    task.cancel()
