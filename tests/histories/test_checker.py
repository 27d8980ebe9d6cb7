"""The checker: long runs in pieces, the search for cycles in large components, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories import checker, cycles, graph
from tests.histories.anomalies import LEVELS
from tests.histories.checker import Checker, check
from tests.histories.events import BadHistory, Event
from tests.histories.graph import components
from tests.histories.planted import LISTS, Planter
from tests.histories.workload import Workload, modelled


def run(level: str, seed: int, transactions: int, *, lists: bool = True) -> list[Event]:
    return list(modelled(level, Workload(seed, lists=lists, most=transactions)))


KEPT = {
    "read-uncommitted": None,
    "read-committed": "read-committed",
    "snapshot": "snapshot",
    "serializable": "strict-serializable",
}


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("modelled_level", KEPT)
def test_each_level_of_the_model_keeps_what_it_promises_and_no_more(modelled_level: str, lists: bool) -> None:
    events = run(modelled_level, 7, 400, lists=lists)
    levels = list(LEVELS)
    kept = KEPT[modelled_level]
    for level in levels:
        report = check(events, level)
        expected = kept is not None and levels.index(level) <= levels.index(kept)
        assert report.holds == expected, str(report)


# --- in pieces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_no_piece_ends_within_what_belongs_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found are the same, whether pieces are of five events or all is one."""
    planter = Planter(run("serializable", 1, 150), 4, lists=True)
    LISTS[name](planter)
    whole = check(planter.events, "strict-serializable")
    monkeypatch.setattr(checker, "PIECE", 5)
    monkeypatch.setattr(graph, "FEWEST", 1)
    in_pieces = check(planter.events, "strict-serializable")
    assert not whole.holds
    assert in_pieces.found == whole.found


def test_all_that_a_weak_level_shows_is_found_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    events = run("read-uncommitted", 5, 300)
    whole = check(events, "serializable")
    monkeypatch.setattr(checker, "PIECE", 20)
    monkeypatch.setattr(graph, "FEWEST", 1)
    in_pieces = check(events, "serializable")
    assert in_pieces.found.keys() == whole.found.keys()
    for name in whole.found.keys() - {
        "G-nonadjacent",
        "G2-item",
    }:  # Beside a G-single they are looked for a while only.
        assert in_pieces.found[name] == whole.found[name]


def test_memory_follows_the_keys_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "PIECE", 100)
    short, long = (check(run("serializable", 1, count), "strict-serializable") for count in (400, 2_000))
    assert long.holds
    assert long.most_nodes < 1.5 * short.most_nodes


def test_a_key_that_was_retired_does_not_come_again() -> None:
    one = Checker()
    one.take({"process": 0, "type": "invoke", "value": [["append", 1, 1]]})
    one.take({"process": 0, "type": "ok", "value": [["append", 1, 1]]})
    one.retire([1])
    one.take({"process": 0, "type": "invoke", "value": [["r", 1, None]]})
    with pytest.raises(BadHistory, match="key 1 is used again"):
        one.take({"process": 0, "type": "ok", "value": [["r", 1, [1]]]})


def test_what_is_never_completed_may_have_been_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "PIECE", 1)
    write, read = [["append", 1, 1]], [["r", 1, [1]]]
    unheard = [
        {"process": 0, "type": "invoke", "value": write},
        {"process": 1, "type": "invoke", "value": [["r", 1, None]]},
        {"process": 1, "type": "ok", "value": read},
    ]
    for follows in ([], [{"process": 0, "type": "invoke", "value": [["r", 2, None]]}]):
        report = check([*unheard, *follows], "strict-serializable")
        assert report.holds
        assert report.outcomes["unknown"] == 1 + len(follows)


@pytest.mark.parametrize(
    ("events", "word"),
    [
        ([(0, "ok", [["r", 1, []]])], "not invoked"),
        ([(0, "invoke", [["append", 1, 1]]), (0, "done", [["append", 1, 1]])], "invoke, ok, fail, info"),
        ([(0, "invoke", 5)], "no transaction"),
        ([(0, "invoke", [["append", 1, 1], ["append", 1, 1]]), (0, "ok", None)], "twice"),
        ([(0, "invoke", [["append", 1, 1], ["w", 1, 2]]), (0, "ok", None)], "either append and r"),
    ],
)
def test_what_is_no_history_is_refused(events: list[tuple[int, str, Any]], word: str) -> None:
    history = [{"process": process, "type": kind, "value": value} for process, kind, value in events]
    with pytest.raises(BadHistory, match=word):
        check(history)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(BadHistory, match="levels are read-committed"):
        Checker("linearizable")


# --- graphs -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 7), max_size=4), min_size=8, max_size=8))
def test_components(ends: Sequence[Sequence[int]]) -> None:
    reached = {node: {node} for node in range(8)}
    for _ in range(8):
        for node in range(8):
            reached[node] |= {far for end in ends[node] for far in reached[end]}
    expected = {frozenset(far for far in reached[node] if node in reached[far]) for node in range(8)}
    found = components(range(8), lambda node: ends[node])
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    places = {node: place for place, component in enumerate(found) for node in component}
    assert all(places[end] <= places[node] for node in range(8) for end in ends[node])


def test_a_long_cycle_needs_no_recursion() -> None:
    assert len(components(range(50_000), lambda node: [(node + 1) % 50_000])) == 1


def test_anti_dependencies_are_followed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    events = run("snapshot", 2, 600)
    skewed = Planter(events, 2, lists=True)
    LISTS["G-single"](skewed)
    monkeypatch.setattr(cycles, "BLOCK", 1)
    assert "G-single" not in check(events).found
    assert check(skewed.events).found["G-single"] == 1
