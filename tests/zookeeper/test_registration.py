"""Two live processes of one worker's name: the newer one has it, and the older one learns that at once."""

from __future__ import annotations

import asyncio

import pytest

from zookeeper.errors import ForeignDeployment
from zookeeper.memory import MemoryAuthority, MemoryZooKeeper
from zookeeper.registration import WorkerDescriptor


def descriptor(incarnation: int) -> WorkerDescriptor:
    return WorkerDescriptor("w0", "host", 7000 + incarnation, incarnation, incarnation, "/data")


async def started(server: MemoryZooKeeper, incarnation: int) -> MemoryAuthority:
    authority = server.authority()
    await authority.start(create=True)
    await authority.register_worker(descriptor(incarnation))
    return authority


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.01])
async def test_the_newer_process_keeps_the_name(delay: float) -> None:
    server = MemoryZooKeeper(delay=delay)
    old = await started(server, 1)
    new = await started(server, 2)
    async with asyncio.timeout(60):
        await old.superseded.wait()
    assert not new.superseded.is_set()
    assert (await new.workers())["w0"].incarnation == 2
    for authority in (old, new):
        await authority.close()


async def test_what_is_gone_from_zookeeper_is_an_error_that_says_so() -> None:
    server = MemoryZooKeeper()
    authority = await started(server, 1)
    server.forget()
    for ask in (authority.read, authority.workers, authority.candidates):
        with pytest.raises(ForeignDeployment, match="is gone"):
            await ask()
    await authority.close()


async def test_a_znode_that_was_deleted_by_hand_comes_back() -> None:
    server = MemoryZooKeeper()
    worker = await started(server, 1)
    server.delete("/headrace/main/workers/w0", -1)
    async with asyncio.timeout(60):
        while not await worker.workers():
            await asyncio.sleep(0.01)
    assert not worker.superseded.is_set()
    await worker.close()
