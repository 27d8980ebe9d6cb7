"""Placement: what is lost goes where there is least, what is there stays, and a worker that joins costs few moves."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from controller.cluster.leader.placing import place, rebalance
from controller.cluster.state import Assignment
from domains.plan.graph import DomainIndex

DOMAINS = [DomainIndex(number) for number in range(12)]


def given(hosts: dict[int, str], data: str = "") -> dict[DomainIndex, Assignment]:
    return {DomainIndex(domain): Assignment(worker, 1, data) for domain, worker in hosts.items()}


def workers(*names: str, data: str = "") -> dict[str, str]:
    return dict.fromkeys(names, data)


def test_a_first_start_spreads_evenly() -> None:
    found = place(DOMAINS, workers("a", "b", "c"), {})
    assert Counter(found.values()) == {"a": 4, "b": 4, "c": 4}


def test_what_is_lost_goes_where_there_is_least() -> None:
    placement = given({0: "a", 1: "a", 2: "b", 3: "gone"})
    assert place([DomainIndex(3)], workers("a", "b"), placement) == {3: "b"}


def test_weight_decides_between_equals_only() -> None:
    placement = given({0: "a", 1: "b", 2: "gone"})
    load = {DomainIndex(0): 9.0, DomainIndex(1): 1.0}
    assert place([DomainIndex(2)], workers("a", "b"), placement, load=load) == {2: "b"}
    assert place([DomainIndex(2)], workers("a", "b", "c"), placement, load=load) == {2: "c"}


def test_a_domain_goes_only_where_its_rows_are() -> None:
    placement = given({0: "gone"}, data="disk1")
    assert place([DomainIndex(0)], {"a": "disk2"}, placement) == {}
    assert place([DomainIndex(0)], {"a": "disk2", "b": "disk1"}, placement) == {0: "b"}


def test_who_has_refused_is_asked_last() -> None:
    placement = given({0: "a"})
    refused = {("a", DomainIndex(0)): 7.0}
    assert place([DomainIndex(0)], workers("a", "b"), placement, refused=refused) == {0: "b"}
    assert place([DomainIndex(0)], workers("a"), placement, refused=refused) == {0: "a"}
    both = {("a", DomainIndex(0)): 7.0, ("b", DomainIndex(0)): 6.0}
    assert place([DomainIndex(0)], workers("a", "b"), placement, refused=both) == {0: "b"}, "they take turns"


def test_a_worker_that_came_back_is_given_its_own() -> None:
    placement = given({0: "a", 1: "b", 2: "c"})
    assert place([DomainIndex(1)], workers("a", "b", "c"), placement) == {1: "b"}


@pytest.mark.parametrize("seed", range(50))
def test_a_balance_takes_the_fewest_moves(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"w{number}" for number in range(rng.randint(1, 6))]
    hosts = {domain: rng.choice(names) for domain in range(rng.randint(1, 40))}
    names += [f"new{number}" for number in range(rng.randint(0, 3))]
    moves = rebalance(workers(*names), given(hosts))
    counts = Counter(dict.fromkeys(names, 0))
    counts.update({**hosts, **{int(domain): name for domain, name in moves.items()}}.values())
    assert max(counts.values()) - min(counts.values()) <= 1
    before = Counter(hosts.values())
    low, more = divmod(len(hosts), len(names))
    # Those that have most keep one more each; what is above that has to go, and nothing else.
    kept = sorted((before[name] for name in names), reverse=True)
    needed = sum(max(0, count - low - (place < more)) for place, count in enumerate(kept))
    assert len(moves) == needed, f"seed {seed}"


@pytest.mark.parametrize("lost", [0, 2, 3])
def test_what_was_lost_moves_on_to_who_comes_back(lost: int) -> None:
    """Of four domains on three workers one or two are lost; whoever returns is given none of the others."""
    hosts = {0: "a", 1: "a", 2: "b", 3: "c"}
    back = hosts[lost]
    placement = given(hosts)
    homeless = [domain for domain, each in placement.items() if each.worker == back]
    load = {domain: float(domain) for domain in placement}
    for domain, worker in place(homeless, workers(*({"a", "b", "c"} - {back})), placement, load=load).items():
        placement[domain] = Assignment(worker, 2)
    moves = rebalance(workers("a", "b", "c"), placement, load=load)
    assert len(moves) == 1
    assert moves.keys() <= set(homeless)


def test_what_is_drained_is_not_balanced() -> None:
    placement = given({0: "drained", 1: "drained", 2: "drained", 3: "a", 4: "b"})
    assert rebalance(workers("a", "b"), placement) == {}


def test_a_balance_keeps_to_data_directories() -> None:
    placement = {DomainIndex(d): Assignment("a", 1, "disk1") for d in range(4)}
    assert rebalance({"a": "disk1", "b": "disk2"}, placement) == {}
    assert len(rebalance({"a": "disk1", "b": "disk1"}, placement)) == 2
