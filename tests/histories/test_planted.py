"""Each planted anomaly is found by its name, and by each level that forbids it; the history without it has none."""

from __future__ import annotations

from functools import cache

import pytest

from tests.histories.anomalies import LEVELS
from tests.histories.checker import check
from tests.histories.events import Event
from tests.histories.planted import BOTH, LISTS, Planter
from tests.histories.workload import Workload, modelled

SEEDS = (1,)
CASES = [(name, True) for name in LISTS] + [(name, False) for name in BOTH]


@cache
def clean(seed: int, lists: bool) -> tuple[Event, ...]:
    return tuple(modelled("serializable", Workload(seed, lists=lists, most=180), unknown=0.05))


@pytest.mark.parametrize("lists", [True, False])
def test_without_one_nothing_is_found(lists: bool) -> None:
    for seed in SEEDS:
        report = check(clean(seed, lists), "strict-serializable")
        assert not report.found, str(report)
        assert min(report.outcomes[each] for each in ("committed", "aborted", "unknown")) > 0


@pytest.mark.parametrize(("name", "lists"), CASES)
def test_a_planted_anomaly_is_found(name: str, lists: bool) -> None:
    for seed in SEEDS:
        run = Planter(clean(seed, lists), seed, lists=lists)
        LISTS[name](run)
        report = check(run.events, "strict-serializable")
        assert name in report.found, f"seed {seed}: {report}"
        for level, forbidden in LEVELS.items():
            at_level = check(run.events, level)
            assert at_level.holds == forbidden.isdisjoint(at_level.found)
            assert not (name in forbidden and at_level.holds), f"seed {seed}, {level}: {at_level}"
