"""Which recipe was in force at a position, or at a time."""

from __future__ import annotations

import pytest

from domains.packets import Clock
from worker.archive.recipes import RecipeRecord, record_at

FORMER, LATER = "2026-01-31T08:00:00.000Z", "2026-01-31T09:00:00.000Z"
RECORDS = [
    RecipeRecord(FORMER, {"t": 3}, {"t": "a"}, 1, "t"),
    RecipeRecord(LATER, {"t~1": 1, "u": 5}, {"t~1": "b", "u": "c"}, 1, "DROP TABLE t, and another one"),
]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ({"t": 2}, FORMER),
        ({"t": 3}, FORMER),
        ({"t~1": 1}, LATER),
        ({"u": 5}, LATER),
        ({"u": 9, "t~1": 1}, LATER),
    ],
)
def test_a_position_of_a_table_that_was_dropped_is_one_of_when_it_was_there(positions: Clock, expected: str) -> None:
    found = record_at(RECORDS, positions=positions)
    assert found is not None
    assert found.time == expected


def test_at_a_time_and_at_the_end() -> None:
    assert record_at(RECORDS, time="2026-01-31T08:59:59.000Z") is RECORDS[0]
    assert record_at(RECORDS) is RECORDS[1]
    assert record_at([]) is None
