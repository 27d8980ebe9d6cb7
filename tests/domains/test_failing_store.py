"""Every call of the store fails in turn: a write is refused as if it had not been, or its domain serves no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from domains.domain import Domain
from domains.errors import StorageFailure
from domains.graph import NodeIndex
from domains.memory_store import MemoryStore, MemoryTable
from domains.packets import Delete, Failed, Insert, Operation, Read, Reply, RequestId, Update, Write, Written
from tests.domains.graphs import Flow, constant

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
    for number in count(1):
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
    for number in count(1):
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
