"""Numbered streams of writes: each number once and in order, whatever is sent twice, lost, or crashes between."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from domains.engine.domain import Domain
from domains.errors import BadRequest, LimitExceeded, OutOfOrder
from domains.language.types import BIGINT, Row, TableColumn, TableSchema
from domains.plan.graph import DomainIndex
from domains.plan.packets import (
    Delete,
    Failed,
    Insert,
    Once,
    Operation,
    Outcome,
    Refused,
    Reply,
    RequestId,
    Write,
    Written,
)
from domains.store import storage
from domains.store.memory_store import MemoryStore
from tests.cluster_simulation.storage import CrashStore

BAG = TableSchema("bag", (TableColumn("a", BIGINT),))
KEYED = TableSchema(
    "keyed",
    (TableColumn("id", BIGINT), TableColumn("b", BIGINT, nullable=False), TableColumn("c", BIGINT)),
    primary_key=(0,),
    unique=((2,),),
)


class Shard:
    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        if not self.store.tables():
            for schema in (BAG, KEYED):
                self.store.create_table(schema)
        self.domain = Domain(DomainIndex(0), self.store)

    def write(self, number: int, *rows: Row, table: str = "bag", stream: str = "s") -> Outcome:
        return self.do(Insert(table, rows, "list"), Once(stream, number))

    def do(self, operation: Operation, once: Once) -> Outcome:
        (reply,) = self.domain.handle(Write(RequestId(1), operation, once))
        assert isinstance(reply, Reply)
        return reply.outcome

    def rows(self, table: str = "bag") -> Counter[Row]:
        return Counter(dict(self.store.table(table).find((), ())))


def test_what_is_sent_again_is_not_done_again() -> None:
    shard = Shard()
    assert shard.write(1, (1,), (1,)) == Written(2, {"bag": 1})
    assert shard.write(1, (1,), (1,)) == Written(0, {"bag": 1}, repeated=True)
    assert shard.write(2) == Written(0, {"bag": 1})
    assert shard.write(3, (2,)) == Written(1, {"bag": 2})
    assert shard.write(2) == Written(0, {"bag": 2}, repeated=True), "an answer covers what it answers for"
    assert shard.do(Delete("bag", None), Once("s", 4)) == Written(3, {"bag": 3})
    assert shard.do(Delete("bag", None), Once("s", 4)) == Written(0, {"bag": 3}, repeated=True)
    assert shard.write(1, (7,), stream="t") == Written(1, {"bag": 4})
    assert shard.rows() == {(7,): 1}


@pytest.mark.parametrize("number", [2, 3, 2**60])
def test_a_number_that_skips_one_is_refused(number: int) -> None:
    shard = Shard()
    outcome = shard.write(number, (1,))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, OutOfOrder)
    assert not shard.rows()
    assert shard.write(1, (1,)) == Written(1, {"bag": 1})


def test_refused_rows_are_all_named_and_use_no_number_up() -> None:
    shard = Shard()
    assert shard.write(1, (1, 1, None), (2, 2, 20), table="keyed") == Written(2, {"keyed": 1})
    rows: list[Row] = [(3, 3, None), (1, 5, None), (4, None, None), (3, 6, None), (5, 7, 20), (6, 8, None)]
    outcome = shard.write(2, *rows, table="keyed")
    assert isinstance(outcome, Refused)
    assert [number for number, _ in outcome.rows] == [2, 3, 4, 5]
    reasons = [reason for _, reason in outcome.rows]
    assert [word in reason for word, reason in zip(('"id"', '"b"', '"id"', '"c"'), reasons, strict=True)] == [True] * 4
    assert not any(reason.startswith("row ") for reason in reasons)
    assert shard.rows("keyed").total() == 2
    assert shard.write(2, rows[0], rows[5], table="keyed") == Written(2, {"keyed": 2})


def test_a_bag_that_takes_no_null_names_its_rows_too() -> None:
    shard = Shard()
    shard.store.create_table(TableSchema("full", (TableColumn("a", BIGINT, nullable=False),)))
    assert shard.write(1, (1,), (None,), (1,), table="full") == Refused(
        ((2, 'column "a" of table "full" must not be NULL'),)
    )
    assert shard.write(1, (1,), (1,), table="full") == Written(2, {"full": 1})


def test_a_stream_is_forgotten_by_number_0_and_with_its_table() -> None:
    shard = Shard()
    assert shard.write(0) == Written(0, {"bag": 0})
    assert shard.write(1, (1,)) == Written(1, {"bag": 1})
    assert shard.write(0) == Written(0, {"bag": 1})
    assert shard.write(1, (1,)) == Written(1, {"bag": 2})
    assert shard.rows() == {(1,): 2}


def test_no_stream_is_forgotten_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "STREAMS_MAX", 3)
    shard = Shard()
    for stream in "abc":
        assert isinstance(shard.write(1, stream=stream), Written)
    outcome = shard.write(1, stream="d")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, LimitExceeded)
    assert isinstance(shard.write(2, stream="a"), Written), "those that are known go on"
    shard.write(0, stream="b")
    assert isinstance(shard.write(1, stream="d"), Written)


@pytest.mark.parametrize("name", ["", "x" * 129, "a/b", "a\nb"])
def test_names_of_streams(name: str) -> None:
    with pytest.raises(BadRequest):
        storage.check_name(name)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_writer_that_sends_again_and_a_shard_that_crashes(seed: int) -> None:
    """A writer that hears nothing sends again; answers are heard only when the step is durable, and may be lost."""
    random = Random(seed)
    for _ in range(60):
        store = CrashStore()
        shard = Shard(store)
        store.sync()
        wanted: Counter[Row] = Counter()
        number, unheard = 1, 0
        batches = [tuple((random.randrange(4),) for _ in range(random.randrange(4))) for _ in range(25)]
        while number <= len(batches):
            outcome = shard.write(number, *batches[number - 1])
            assert isinstance(outcome, Written), outcome
            if random.random() < 0.15:
                shard.write(max(1, number - random.randrange(3)), (99,))  # A duplicate comes late.
            if random.random() < 0.3:
                store.crash(random)
                shard = Shard(store)
                last = store.table("bag").last_number("s")
                assert last in (number - 1, number), "no number that was heard of is lost"
                unheard += 1
                continue
            store.sync()
            if random.random() < 0.8:
                number += 1
        for batch in batches:
            wanted.update(batch)
        assert shard.rows() == wanted
        assert unheard
