"""What the disk fails after a commit stops the worker, or in a cluster the domain: the client hears that the outcome is
unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domains.commands import Activate
from domains.domain import Domain
from domains.errors import OutcomeUnknown, StorageFailure, Unavailable
from domains.graph import DomainIndex
from domains.memory_store import MemoryStore
from domains.packets import Insert
from domains.sharding import shard_of
from domains.types import BIGINT, TableColumn, TableSchema
from worker.batch import Batch
from worker.dataflow import Dataflow
from worker.hosted import Hosted
from worker.messages import NotHere


def test_an_error_after_the_commit_is_an_unknown_outcome_and_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    store.create_table(TableSchema("t", (TableColumn("n", BIGINT),)))
    dataflow = Dataflow(tmp_path / "readers", memory_limit=2**30)
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
    dataflow = Dataflow(tmp_path / "readers", memory_limit=2**30, deliver=lambda sends: None)
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

    def reopen(hosted: Hosted, batch: Batch) -> None:
        hosted.close(broken, batch)
        hosted.open(broken, stores[broken], shard=0, shards=2, incarnation=6)
        hosted.reconfigure({broken: 6, whole: 5}, {}, batch)

    dataflow.control(reopen).result(10)
    assert not dataflow.hosted.broken
    assert dataflow.write(broken, Insert("t", rows[broken])).result(10)
    dataflow.close()
