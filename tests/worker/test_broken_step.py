"""What the disk fails after a commit stops the worker: the client hears that the outcome is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domains.domain import Domain
from domains.errors import OutcomeUnknown, StorageFailure, Unavailable
from domains.graph import DomainIndex
from domains.memory_store import MemoryStore
from domains.packets import Insert
from domains.types import BIGINT, TableColumn, TableSchema
from worker.dataflow import Dataflow


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
