"""A worker follows a greater epoch only where ZooKeeper's state has it, and begins messages in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.state import ClusterState
from domains.errors import BadRequest, HeadraceError, Overloaded, Unavailable
from migrations.recipe import Recipe, RecipeEntry
from tests.kit.leading_workers import EPOCHS, leading
from worker.protocol.messages import Done, Ping, Pong, Report, WorkerReport
from worker.service import waits
from worker.service.waits import LeaderEpochs, epoch_of
from zookeeper.memory import MemoryZooKeeper

SQL = "CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL) SHARD BY (story)"


async def test_a_strangers_epoch_does_not_leave_a_worker_without_its_leader(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        pong = await led.ask("a", Ping(led.epoch))
        for epoch in (EPOCHS + 1, 2**60):
            with pytest.raises(BadRequest, match=f"no leader has epoch {epoch}: the state in ZooKeeper has {EPOCHS}"):
                await led.ask("a", Ping(epoch))
        assert await led.ask("a", Ping(led.epoch)) == pong
        report = await led.ask("a", Report(led.epoch + 1))
        assert isinstance(report, WorkerReport)
        assert report.epoch == led.epoch + 1


async def test_without_zookeeper_a_worker_goes_on_with_the_leader_that_it_knows() -> None:
    zookeeper = MemoryZooKeeper(timeout=0.05)
    authority = zookeeper.authority()
    await authority.start(create=True)
    begun: list[int] = []
    known = 4

    def obey(message: Ping) -> Done:
        nonlocal known
        known = max(known, message.epoch)
        begun.append(message.epoch)
        return Done()

    epochs = LeaderEpochs(lambda: known, obey, waits.decided_epochs(authority))
    with pytest.raises(BadRequest, match="has 0"):
        await epochs.take(Ping(5))
    version = await authority.write(ClusterState("main", 1, 1, 5).encode(), 0)
    zookeeper.stop()
    assert epochs.take(Ping(4)) == Done()
    with pytest.raises(Unavailable, match="ZooKeeper cannot be reached"):
        await epochs.take(Ping(5))
    zookeeper.start()
    assert await epochs.take(Ping(5)) == Done()
    assert epochs.take(Ping(5)) == Done(), "it is known now"
    await authority.write(ClusterState("main", 1, 1, 9).encode(), version)
    assert await epochs.take(Ping(8)) == Done(), "it was decided, and another after it"
    assert begun == [4, 5, 5, 8]
    await authority.close()


async def test_messages_begin_in_their_order_and_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[asyncio.Future[int]] = []
    begun: list[Ping] = []

    def decided() -> Awaitable[int]:
        looks.append(asyncio.get_running_loop().create_future())
        return looks[-1]

    def obey(message: Ping) -> Any:
        begun.append(message)
        if message.epoch == 7:
            raise HeadraceError("seven is not obeyed")
        return asyncio.sleep(0, Pong("w", message.epoch))

    epochs = LeaderEpochs(lambda: max([0, *(each.epoch for each in begun)]), obey, decided)
    first = [asyncio.ensure_future(epochs.take(Ping(number))) for number in (6, 7, 99, 8)]
    await asyncio.sleep(0)
    late = asyncio.ensure_future(epochs.take(Ping(99)))
    looks[0].set_result(8)
    await asyncio.sleep(0.01)
    assert begun == [Ping(6), Ping(7), Ping(8)]
    assert await first[0] == Pong("w", 6)
    with pytest.raises(HeadraceError, match="seven"):
        await first[1]
    with pytest.raises(BadRequest):
        await first[2]
    assert await first[3] == Pong("w", 8)
    assert not late.done(), "it came after the state was read, and asks again"
    monkeypatch.setattr(waits, "WAITING_MAX", 1)
    with pytest.raises(Overloaded, match="wait for ZooKeeper"):
        epochs.take(Ping(100))
    looks[1].set_result(99)
    assert await late == Pong("w", 99)


def test_the_epoch_of_a_state_is_read_without_its_recipe() -> None:
    recipe = Recipe((RecipeEntry(("CREATE TABLE t (a INT COMMENT '\"epoch\": 77, ')",)),) * 50)
    assert epoch_of(None) == 0
    assert epoch_of(b"no state") == 0
    assert epoch_of(ClusterState("main", 4, 3, 123_456, recipe=recipe).encode()) == 123_456
