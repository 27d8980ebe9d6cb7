"""What a leader asks while a domain is away waits for no disk: others' writes are synced meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from domains.plan.packets import Insert
from tests.kit.leading_workers import leading
from worker.protocol.messages import Done, LinkPositions, Positions, Reconfigure, Report, WorkerReport
from worker.rocks.store import RocksStore

SQL = "CREATE TABLE votes (story INT, voter INT); CREATE VIEW V AS SELECT story, voter FROM votes WHERE story = ?"
PATIENCE = 10.0


async def test_what_is_asked_of_links_is_answered_while_a_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync, is_syncing, sync = threading.Event(), threading.Event(), RocksStore.sync
    may_sync.set()

    def slow(store: RocksStore) -> None:
        is_syncing.set()
        may_sync.wait()
        sync(store)

    monkeypatch.setattr(RocksStore, "sync", slow)
    async with leading(tmp_path, SQL, names=("a",), shards=2, groups=1) as led:
        may_sync.clear()
        is_syncing.clear()
        try:
            writing = asyncio.ensure_future(led.write(Insert("votes", ((1, 77),))))
            assert await asyncio.to_thread(is_syncing.wait, PATIENCE)
            async with asyncio.timeout(PATIENCE):
                assert isinstance(await led.ask("a", Positions(led.epoch)), LinkPositions)
                assert isinstance(await led.ask("a", Report(led.epoch)), WorkerReport)
                assert await led.ask("a", Reconfigure(led.epoch, led.placement())) == Done()
            assert not writing.done(), "what is on disk is said when it is"
        finally:
            may_sync.set()
        assert await writing
