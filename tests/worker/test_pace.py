"""How large slices are: by a clock that the rows themselves move."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from domains.plan.commands import Feed, Progress
from domains.plan.graph import DomainIndex
from worker.dataflow.batch import Batch
from worker.dataflow.pacing import (
    FIRST_ROWS,
    GROWTH,
    LOCK_SECONDS,
    REST_SECONDS,
    SLICE_SECONDS,
    SLICE_SECONDS_MAX,
    UNRESTED_SECONDS,
    USUAL_LOCK_SECONDS,
    Paces,
    Sliced,
    SlicePace,
)


@dataclass
class Feeding:
    """Rows of which each costs so many seconds, in slices of which each costs ``by_itself`` too."""

    cost: float
    by_itself: float = 0.0
    time: float = 0.0
    slices: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pace = SlicePace(lambda: self.time)

    def feed(self, times: int, *, others: float = 0.0) -> None:
        for _ in range(times):
            self.pace.perform(Feed(2_000), self._fed, others)

    def _fed(self, command: Sliced) -> Progress:
        self.slices.append(command.limit)
        self.time += self.by_itself + command.limit * self.cost
        return Progress(command.limit, False)


def test_a_slice_has_as_many_rows_as_its_time_allows() -> None:
    dear = Feeding(100e-6)
    dear.feed(3)
    assert dear.slices == [FIRST_ROWS, round(SLICE_SECONDS / 100e-6), round(SLICE_SECONDS / 100e-6)]
    dear.cost = 1.0
    dear.feed(3)
    assert dear.slices[-2:] == [1, 1], "and one row at least, or it would never end"


def test_a_slice_that_costs_much_by_itself_has_more_than_one_row() -> None:
    feeding = Feeding(SLICE_SECONDS / 100, by_itself=1.1 * SLICE_SECONDS)
    feeding.feed(80)
    assert 1 in feeding.slices, feeding.slices
    assert min(feeding.slices[-5:]) > 90, feeding.slices


def test_a_slice_grows_by_steps_and_to_the_limit_of_its_command() -> None:
    cheap = Feeding(1e-7)
    cheap.pace.rows = 20
    cheap.feed(5)
    assert cheap.slices == [20, 20 * GROWTH, 20 * GROWTH**2, 20 * GROWTH**3, 2_000]


def test_whoever_keeps_the_thread_busy_leaves_half_of_it() -> None:
    feeding = Feeding(100e-6)
    feeding.feed(3, others=0.02)
    assert feeding.slices[-1] == round(0.02 / 100e-6)
    feeding.feed(3, others=5.0)
    assert feeding.slices[-1] == round(SLICE_SECONDS_MAX / 100e-6)


def test_domains_that_are_fed_side_by_side_do_not_make_each_others_slices_longer() -> None:
    feeding = Feeding(100e-6)
    hosted: Any = SimpleNamespace(perform=lambda domain, command, batch: feeding._fed(command))
    paces = Paces(lambda: feeding.time)
    for _ in range(20):
        for domain in range(4):
            paces.perform(hosted, DomainIndex(domain), Feed(2_000), Batch())
    assert feeding.slices[4:] == [round(SLICE_SECONDS / 100e-6)] * 76


def test_slices_rest_once_what_is_small_would_be_through() -> None:
    feeding = Feeding(SLICE_SECONDS / 10)
    feeding.pace.rows = 10
    rests = []
    for _ in range(30):
        feeding.feed(1)
        rests.append(feeding.pace.rest)
    unrested = round(UNRESTED_SECONDS / SLICE_SECONDS)
    assert set(rests[: unrested - 1]) == {0.0}
    assert set(rests[unrested + 1 :]) == {REST_SECONDS}


def test_a_slice_lends_the_lock_and_nothing_else_does() -> None:
    seen: list[float] = []

    def fail(_: Sliced) -> Progress:
        seen.append(sys.getswitchinterval())
        raise KeyError

    with pytest.raises(KeyError):
        SlicePace(lambda: 0.0).perform(Feed(1), fail, 0.0)
    assert seen == [pytest.approx(LOCK_SECONDS)]
    assert sys.getswitchinterval() == USUAL_LOCK_SECONDS
