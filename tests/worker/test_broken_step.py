"""What the disk fails after a commit stops the worker, or in a cluster the domain: the client hears that the outcome is
unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domains.engine.domain import Domain
from domains.errors import OutcomeUnknown, StorageFailure, Unavailable
from domains.language.types import BIGINT, TableColumn, TableSchema
from domains.plan.commands import Activate
from domains.plan.graph import DomainIndex
from domains.plan.packets import Insert
from domains.plan.sharding import shard_of
from domains.store.memory_store import MemoryStore
from tests.kit.leading_workers import leading
from worker.dataflow.batch import Batch
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.thread import DataflowThread
from worker.protocol.messages import NotHere, Ping, Pong
from worker.rocks.store import RocksStore


def test_an_error_after_the_commit_is_an_unknown_outcome_and_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    store.create_table(TableSchema("t", (TableColumn("n", BIGINT),)))
    dataflow = DataflowThread(tmp_path / "readers", memory_limit=2**30)
    dataflow.hosted.open(DomainIndex(0), store, linked=True)
    dataflow.start()
    assert dataflow.write(DomainIndex(0), Insert("t", ((1,),))).result(10)
    assert dataflow.health == "ok"

    def fail(*_: Any) -> None:
        raise StorageFailure("cannot read from 7.sst")

    monkeypatch.setattr(Domain, "spread", fail)
    with pytest.raises(OutcomeUnknown, match=r"7\.sst"):
        dataflow.write(DomainIndex(0), Insert("t", ((2,),))).result(10)
    assert sorted(row for row, _ in store.table("t").find((), ())) == [(1,), (2,)], "the row is there"
    assert "7.sst" in dataflow.health
    with pytest.raises(Unavailable):
        dataflow.write(DomainIndex(0), Insert("t", ((3,),))).result(10)
    dataflow.close()


def test_where_a_leader_opens_it_again_only_the_domain_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, whole = DomainIndex(0), DomainIndex(1)
    dataflow = DataflowThread(tmp_path / "readers", memory_limit=2**30, deliver=lambda sends: None)
    stores = {index: MemoryStore() for index in (broken, whole)}
    for index, store in stores.items():
        store.create_table(TableSchema("t", (TableColumn("n", BIGINT),)))
        dataflow.hosted.open(index, store, shard=index, shards=2, incarnation=5)
        dataflow.hosted.known[index] = 5
        dataflow.hosted.hosts[index].linked = True
    dataflow.start()
    spread = Domain.spread

    def fail(domain: Domain, *given: Any) -> None:
        if domain.index == broken:
            raise StorageFailure("cannot read from 7.sst")
        spread(domain, *given)

    rows = {index: tuple((n,) for n in range(40) if shard_of(n, 2) == index) for index in stores}
    with monkeypatch.context() as patched:
        patched.setattr(Domain, "spread", fail)
        with pytest.raises(OutcomeUnknown, match=r"7\.sst"):
            dataflow.write(broken, Insert("t", rows[broken])).result(10)
    assert sum(weight for _, weight in stores[broken].table("t").find((), ())) == len(rows[broken]), (
        "the rows are there"
    )
    assert dataflow.hosted.broken == {broken: 5}
    with pytest.raises(NotHere):
        dataflow.write(broken, Insert("t", rows[broken])).result(10)
    with pytest.raises(NotHere):
        dataflow.command(broken, Activate()).result(10)
    assert dataflow.write(whole, Insert("t", rows[whole])).result(10)
    # Whoever says again where all domains are does not make it whole; the next incarnation is.
    dataflow.control(lambda hosted, batch: hosted.reconfigure({broken: 5, whole: 5}, {}, batch)).result(10)
    with pytest.raises(NotHere):
        dataflow.write(broken, Insert("t", rows[broken])).result(10)

    def reopen(hosted: DomainHost, batch: Batch) -> None:
        hosted.close(broken, batch)
        hosted.open(broken, stores[broken], shard=0, shards=2, incarnation=6)
        hosted.reconfigure({broken: 6, whole: 5}, {}, batch)

    dataflow.control(reopen).result(10)
    assert not dataflow.hosted.broken
    assert dataflow.write(broken, Insert("t", rows[broken])).result(10)
    dataflow.close()


VOTES = """
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL) SHARD BY (story);
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story
"""


async def test_a_worker_tells_its_leader_and_serves_the_shard_when_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the wire, with RocksDB: the store is closed and opened within the process, with the row that it has."""
    broken = DomainIndex(0)
    here = next(story for story in range(9) if shard_of(story, 2) == broken)
    elsewhere = next(story for story in range(9) if shard_of(story, 2) != broken)
    async with leading(tmp_path, VOTES, names=("a",), shards=2, groups=1) as led:
        await led.write(Insert("votes", ((here, 1), (elsewhere, 1))))
        for story in (here, elsewhere):
            assert json.loads(await led.page("VoteCount", (story,)))["n"] == 1

        def fail(*_: Any) -> None:
            raise StorageFailure("cannot read from 7.sst")

        with monkeypatch.context() as patched:
            patched.setattr(Domain, "spread", fail)
            with pytest.raises(OutcomeUnknown, match=r"7\.sst"):
                await led.write(Insert("votes", ((here, 2),)))
        assert await led.ask("a", Ping(led.epoch)) == Pong(
            "a", led.workers["a"].incarnation, {broken: led.homes[broken][1]}
        )
        with pytest.raises(NotHere):
            await led.page("VoteCount", (here,))
        token = await led.write(Insert("votes", ((elsewhere, 2),)))
        assert json.loads(await led.page("VoteCount", (elsewhere,), token))["n"] == 2
        dataflow = led.own["a"].dataflow
        store = dataflow.hosted.hosts[broken].domain.store
        assert isinstance(store, RocksStore)
        store._database.cannot_read("7.sst")
        await led.place({broken: "a"})
        assert not (await led.ask("a", Ping(led.epoch))).broken
        assert dataflow.hosted.hosts[broken].domain.store is not store
        (alarm,) = dataflow.alarms()
        assert "7.sst" in alarm["error"], "what is damaged is so still"
        assert json.loads(await led.page("VoteCount", (here,)))["n"] == 2
        token = await led.write(Insert("votes", ((here, 3),)))
        assert json.loads(await led.page("VoteCount", (here,), token))["n"] == 3
