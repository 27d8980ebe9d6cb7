"""The checker beside all orders of small histories: what has one that explains it is called serializable, no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories.checker import check
from tests.histories.events import Event

EXAMPLES = 80


@dataclass(frozen=True)
class Small:
    """One transaction: its micro-operations, how it ended, and when, among all beginnings and ends."""

    value: tuple[tuple[str, int, Any], ...]
    outcome: str
    began: int
    ended: int


def events_of(small: Sequence[Small]) -> list[Event]:
    moments: list[tuple[int, Event]] = []
    for process, each in enumerate(small):
        value = [list(operation) for operation in each.value]
        asked = [[what, key, None if what == "r" else written] for what, key, written in value]
        moments.append((each.began, {"process": process, "type": "invoke", "value": asked}))
        moments.append((each.ended, {"process": process, "type": each.outcome, "value": value}))
    return [{"index": index, **event} for index, (_, event) in enumerate(sorted(moments, key=lambda moment: moment[0]))]


def has_order(small: Sequence[Small], *, by_clock: bool) -> bool:
    sure = [each for each in small if each.outcome == "ok"]
    unsure = [each for each in small if each.outcome == "info"]
    return any(
        _runs(order)
        for count in range(len(unsure) + 1)
        for some in combinations(unsure, count)
        for order in permutations([*sure, *some])
        if not by_clock or _in_time(order)
    )


def _in_time(order: Sequence[Small]) -> bool:
    return not any(later.outcome == "ok" and later.ended < each.began for each, later in combinations(order, 2))


def _runs(order: Sequence[Small]) -> bool:
    """One after the other, does each read what it did?"""
    state: dict[int, Any] = {}
    for each in order:
        for what, key, value in each.value:
            if what == "append":
                state[key] = [*state.get(key, []), value]
            elif what == "w":
                state[key] = value
            elif each.outcome == "ok" and (state.get(key) or None) != (value or None):
                return False
    return True


@st.composite
def drawn(draw: st.DrawFn, *, lists: bool) -> list[Small]:
    count = draw(st.integers(2, 4))
    shapes = [
        [(draw(st.booleans()), draw(st.integers(0, 1))) for _ in range(draw(st.integers(1, 3)))] for _ in range(count)
    ]
    outcomes = draw(st.lists(st.sampled_from(["ok"] * 6 + ["info", "fail"]), min_size=count, max_size=count))
    written: dict[int, list[int]] = {0: [], 1: []}
    values: list[list[Any]] = []
    for shape in shapes:
        values.append([])
        for writes, key in shape:
            if not lists and writes:  # A write is after a read in each transaction: then versions have one order.
                values[-1].append(["r", key, None])
            values[-1].append(["append" if lists else "w", key, len(written[key]) + 1] if writes else ["r", key, None])
            if writes:
                written[key].append(len(written[key]) + 1)
    orders = {key: draw(st.permutations(each)) for key, each in written.items()}
    for value in values:
        own: dict[int, Any] = {}
        seen: dict[int, int] = {}
        for operation in value:
            what, key, each = operation
            if what != "r":
                own[key] = [*own.get(key, []), each] if lists else each
                continue
            if key not in seen or draw(st.integers(0, 9)) == 0:
                seen[key] = draw(st.integers(0, len(orders[key])))
            shown = list(orders[key][: seen[key]])
            if lists:
                operation[2] = [*(e for e in shown if e not in own.get(key, [])), *own.get(key, [])]
            else:
                operation[2] = own.get(key, shown[-1] if shown else None)
    moments = draw(st.permutations(range(2 * count)))
    return [
        Small(tuple(map(tuple, value)), outcomes[n], *sorted(moments[2 * n : 2 * n + 2]))
        for n, value in enumerate(values)
    ]


LEVELS = {"serializable": False, "strict-serializable": True}


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(small=drawn(lists=True))
def test_lists(level: str, small: list[Small]) -> None:
    report = check(events_of(small), level)
    assert report.holds == has_order(small, by_clock=LEVELS[level]), str(report)


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(small=drawn(lists=False))
def test_registers_that_are_read_before_each_write(level: str, small: list[Small]) -> None:
    report = check(events_of(small), level)
    assert report.holds == has_order(small, by_clock=LEVELS[level]), str(report)


@st.composite
def blind(draw: st.DrawFn) -> list[Small]:
    small = draw(drawn(lists=False))
    return [
        Small(tuple(each for each in one.value if each[0] == "w" or draw(st.booleans())) or one.value[:1], *_rest(one))
        for one in small
    ]


def _rest(one: Small) -> Iterator[Any]:
    return iter((one.outcome, one.began, one.ended))


@settings(max_examples=EXAMPLES, deadline=None)
@given(small=blind())
def test_registers_that_are_written_blindly(small: list[Small]) -> None:
    """Their versions have no order that could be known: nothing is called an anomaly that is none."""
    report = check(events_of(small), "strict-serializable")
    assert report.holds or not has_order(small, by_clock=True), str(report)
