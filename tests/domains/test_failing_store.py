"""Every call of the store fails in turn: a write is refused as if it had not been, or its domain serves no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count as numbers
from typing import Any

import pytest

from domains.engine.domain import Domain
from domains.errors import StorageFailure
from domains.plan.graph import NodeIndex
from domains.plan.packets import (
    Delete,
    Failed,
    Filled,
    Insert,
    Operation,
    Read,
    Reply,
    RequestId,
    Update,
    Write,
    Written,
)
from domains.store.memory_store import MemoryStore, MemoryTable
from tests.domains.graphs import Flow, constant, count

CALLS = ((MemoryTable, "find"), (MemoryTable, "find_many"), (MemoryTable, "count_many"), (MemoryStore, "commit"))
WRITES: dict[str, Operation] = {
    "insert": Insert("votes", ((1, 9),)),
    "delete": Delete("votes", Flow._is((1, 5))),
    "update": Update("votes", Flow._is((1, 5)), ((1, constant(2)),)),
    "update of the other side": Update("stories", Flow._is((1, 7)), ((1, constant(8)),)),
    "delete of the other side": Delete("stories", Flow._is((1, 7))),
}


class Faults:
    """Makes the call fail that is the ``left``-th from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for kind, name in CALLS:
            monkeypatch.setattr(kind, name, self._failing(getattr(kind, name)))

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*arguments: Any) -> Any:
            if self.left:
                self.left -= 1
                if not self.left:
                    raise StorageFailure("injected")
            return call(*arguments)

        return failing


def new_flow(*, check: bool = True) -> Flow:
    """Writes to it look up the other side of a join, and refill the first rows of a group."""
    flow = Flow(check=check)
    stories, votes = flow.table("stories", "id", "author", key=(0,)), flow.table("votes", "story", "user")
    joined = flow.join(votes, stories, (0, 0))
    flow.reader("joined", joined, 0)
    flow.reader("latest", flow.top(votes, (0,), 1, 1), 0)
    flow.start()
    flow.insert("stories", (1, 7), (2, 8))
    flow.insert("votes", (1, 3), (1, 4), (1, 5), (2, 3))
    for view in ("joined", "latest"):
        for key in (1, 2):
            flow.read(view, key)
    return flow


def rows(flow: Flow) -> dict[str, Counter[Any]]:
    store = flow.simulation.stores[0]
    return {name: Counter(dict(store.table(name).find((), ()))) for name in ("stories", "votes")}


def fail_every_call_of(faults: Faults, operation: Operation) -> tuple[int, int]:
    """How often the write was refused, and how often the domain broke."""
    refused = broke = 0
    for number in numbers(1):
        flow = new_flow()
        before, domain = rows(flow), flow.simulation.domains[0]
        faults.left = number
        try:
            effects = domain.handle(Write(RequestId(9_999), operation))
        except StorageFailure:
            faults.left = 0
            broke += 1
            assert rows(flow) != before, "what is not committed is refused"
            with pytest.raises(StorageFailure):
                domain.handle(Read(RequestId(10_000), NodeIndex(0), ((1,),)))
            continue
        fired, faults.left = not faults.left, 0
        (outcome,) = [effect.outcome for effect in effects if isinstance(effect, Reply)]
        if isinstance(outcome, Written):
            assert not fired, "it is answered as done though something failed"
            return refused, broke
        assert isinstance(outcome, Failed)
        refused += 1
        assert rows(flow) == before
        for view in ("joined", "latest"):
            flow.read(view, 1)  # Compared with what is stored.
    raise AssertionError


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_refused_whole_or_the_domain_serves_nothing_more(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    refused, broke = fail_every_call_of(Faults(monkeypatch), WRITES[name])
    assert refused >= 1, "its commit"
    assert broke >= 1, "a look-up after it"


def test_without_the_rule_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = property(lambda self: None, lambda self, error: None)
    monkeypatch.setattr(Domain, "broken", forgotten, raising=False)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        fail_every_call_of(Faults(monkeypatch), WRITES["delete"])


def test_a_read_that_cannot_be_answered_says_so_and_the_next_one_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(monkeypatch)
    for number in numbers(1):
        flow = new_flow(check=False)  # What checks has the store's rows read, too.
        flow.insert("stories", (3, 7))
        flow.insert("votes", (3, 1))
        faults.left = number
        request = flow.ask("joined", 3)
        fired, faults.left = not faults.left, 0
        if not fired:
            assert number > 1
            return
        outcome = flow.simulation.outcomes.pop(request)
        assert isinstance(outcome, Failed)
        assert flow.read("joined", 3) == [(3, 1, 3, 7)]
        flow.insert("votes", (3, 2))
        assert len(flow.read("joined", 3)) == 2


# --- upqueries ----------------------------------------------------------------------------------------------------


class Unreadable:
    """Makes the look-ups of one shard's table fail for some keys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: MemoryTable, *keys: Any) -> None:
        self.keys = {(key,) for key in keys}
        find_many = MemoryTable.find_many

        def failing(asked: MemoryTable, columns: Any, keys: Any) -> Any:
            if asked is table and self.keys.intersection(keys):
                raise StorageFailure("cannot read from 7.sst")
            return find_many(asked, columns, keys)

        monkeypatch.setattr(MemoryTable, "find_many", failing)


def sharded_totals() -> Flow:
    """Votes in two shards (domains 0 and 1), and views in two other groups: what a read asks for goes two links up."""
    flow = Flow(domains=3, shards=2, check=False)
    votes = flow.table("votes", "user", "story", by=0)
    totals = flow.group(votes, (1,), count(), at=1)
    flow.reader("totals", totals, 0, at=2)
    flow.reader("twice", flow.join(totals, totals, (0, 0), at=2), 0, at=2)
    flow.start()
    flow.insert("votes", (2, 7), (3, 7), (2, 8), (3, 8), (2, 9), (3, 9))
    flow.settle()
    return flow


@pytest.mark.parametrize("view", ["totals", "twice"])
def test_an_upquery_that_cannot_be_read_is_answered_and_the_hole_stays(
    monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    flow = sharded_totals()
    broken = Unreadable(monkeypatch, flow.simulation.stores[1].table("votes"), 7)
    waiting = [flow.ask(view, 7), flow.ask(view, 7), flow.ask(view, 9)]
    flow.settle()
    outcomes = [flow.simulation.outcomes.pop(request) for request in waiting]
    for outcome in outcomes[:2]:
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, StorageFailure)
        assert 'table "votes"' in str(outcome.error)
        assert "7.sst" in str(outcome.error)
    assert isinstance(outcomes[2], Filled), "what does not read it is served"
    assert not any(domain.ingresses.pending for domain in flow.simulation.domains)
    assert not flow.has(view, 7)
    flow.insert("votes", (4, 7))
    broken.keys.clear()
    flow.simulation.checking = True
    assert [row[1] for row in flow.read(view, 7)] == [3]
    assert [row[1] for row in flow.read(view, 9)] == [2]


def test_of_the_keys_of_one_upquery_those_that_can_be_read_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(domains=2, check=False)
    flow.reader("votes", flow.table("votes", "user", "story"), 1, at=1)
    flow.start()
    flow.insert("votes", (2, 7), (3, 8))
    flow.settle()
    Unreadable(monkeypatch, flow.simulation.stores[0].table("votes"), 7)
    both, one = flow.ask("votes", 7, 8), flow.ask("votes", 8)
    assert flow.under_way() == 1, "one upquery for both keys"
    flow.settle()
    assert isinstance(flow.simulation.outcomes[both], Failed)
    assert isinstance(flow.simulation.outcomes[one], Filled)


def test_a_shard_that_has_failed_is_asked_again_with_its_next_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shard has said that it cannot read, the other has yet to answer: the first begins anew, and can."""
    flow = sharded_totals()
    broken = Unreadable(monkeypatch, flow.simulation.stores[1].table("votes"), 7)
    request = flow.ask("totals", 7)
    holder = flow.domain_of("totals", (7,)) - 2
    flow.deliver_upquery(holder + 2, holder, lane=1)
    flow.deliver_upquery(holder, 1)
    flow.settle_link(1, holder)
    broken.keys.clear()
    flow.restart(1)
    flow.settle()
    assert isinstance(flow.simulation.outcomes[request], Filled)
    assert flow.read("totals", 7) == [(7, 2)]
