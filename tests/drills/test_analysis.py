"""What a fault did, out of made-up records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadgen.drills.analysis import (
    DURING,
    QUIET,
    Fault,
    examine,
    outage_end,
    percentile,
    pooled,
    timeline,
    touched,
)
from loadgen.drills.load import ledger
from loadgen.drills.load.ledger import Record

SHARDS = 4
FAULT = Fault(at=100.0, lost=frozenset({1}), detected=100.4, whole=101.5)


def steady(low: float = 90.0, high: float = 110.0) -> list[Record]:
    """A read of each of four stories in every tenth of a second, one of a user, and a write of story 2."""
    made = []
    for step in range(int((high - low) * 10)):
        due = low + step / 10
        made += [Record(due, 0.002, "StoryTotals", key, "ok") for key in range(4)]
        made += [Record(due, 0.003, "UserTotals", 0, "ok"), Record(due, 0.004, "insert", 2, "ok")]
    return made


def broken(between: tuple[float, float] = (100.0, 101.2)) -> list[Record]:
    """Reads of story 1 fail, and those of users wait, in that time."""
    low, high = between
    return [
        each._replace(outcome="error")
        if low <= each.due < high and each.kind == "StoryTotals" and each.key == 1
        else each._replace(latency=high - each.due)
        if low <= each.due < high and each.kind == "UserTotals"
        else each
        for each in steady()
    ]


@pytest.mark.parametrize(
    ("share", "expected"), [(0.99, 99), (0.5, 50), (1.0, 100), (0.001, 1)], ids=["p99", "median", "max", "least"]
)
def test_percentiles(share: float, expected: int) -> None:
    assert percentile(range(1, 101), share) == expected


def test_percentiles_of_few() -> None:
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.99) is None


def test_whom_a_request_needs() -> None:
    def one(kind: str, key: int) -> bool:
        return touched(Record(0, 0, kind, key, "ok"), {1}, SHARDS)

    assert one("StoryTotals", 5)
    assert one("insert", 1)
    assert not one("StoryTotals", 6)
    assert one("UserTotals", 6), "its rows come from all shards"
    assert one("Totals", -1)
    assert not touched(Record(0, 0, "Totals", -1, "ok"), frozenset(), SHARDS), "nothing is lost"


def test_an_outage_lasts_until_nobody_fails_or_waits() -> None:
    assert outage_end(steady(), 100.0) == 100.0
    assert outage_end(broken(), 100.0) == pytest.approx(101.2)


def test_what_goes_wrong_long_after_is_not_of_the_outage() -> None:
    late = Record(101.2 + QUIET + 0.5, 0.01, "StoryTotals", 1, "error")
    assert outage_end([*broken(), late], 100.0) == pytest.approx(101.2)
    soon = Record(101.2 + QUIET - 0.5, 0.01, "StoryTotals", 1, "error")
    assert outage_end([*broken(), soon], 100.0) == pytest.approx(soon.end)


def test_an_outage_may_begin_later_than_its_fault() -> None:
    assert outage_end(broken((102.5, 103.5)), 100.0) == pytest.approx(103.5)
    assert outage_end(broken((103.5, 104.5)), 100.0) == 100.0


def test_a_round() -> None:
    seen = examine(broken(), FAULT, SHARDS)
    assert seen.outage_s == pytest.approx(1.2)
    assert (seen.detected_s, seen.whole_s, seen.healed_s) == (0.4, 1.5, None)
    assert seen.untouched_before.errors == seen.untouched_during.errors == 0
    assert seen.untouched_during.p99_ms == 4.0
    assert seen.untouched_during.requests == pytest.approx(DURING * 10 * 4, abs=4)
    assert seen.touched_during.errors == 12
    assert seen.slowest_during_ms == pytest.approx(1200)


def test_on_a_busy_machine_who_takes_long_has_not_waited() -> None:
    """Answers that take 40 ms before make 100 ms no outage, and 121 ms one."""
    busy = [each._replace(latency=0.04) for each in steady()]
    for latency, outage in ((0.1, 0.0), (0.121, 0.621)):
        late = Record(100.5, latency, "StoryTotals", 1, "ok")
        seen = examine([*busy, late], FAULT, SHARDS)
        assert (seen.slow_ms, seen.outage_s) == (120.0, pytest.approx(outage))


def test_an_error_of_those_who_should_not_notice_is_counted() -> None:
    spoiled = [*broken(), Record(100.5, 0.5, "Newest", 2, "error")]
    assert examine(spoiled, FAULT, SHARDS).untouched_during.errors == 1
    before, during = pooled(spoiled, [FAULT], SHARDS)
    assert (before.errors, during.errors) == (0, 1)


def test_rounds_are_told_apart() -> None:
    second = Fault(at=105.0, lost=frozenset({2}))
    assert examine(broken(), second, SHARDS).outage_s == 0.0


def test_a_timeline_counts_every_request_once() -> None:
    line = timeline(broken(), [FAULT], SHARDS)
    series = line["series"]
    assert sum(sum(each["ok"]) for each in series.values()) == len(steady()) - 12
    assert sum(sum(each["errors"]) for each in series.values()) == 12
    assert sum(series["other reads"]["errors"]) == 0
    assert line["start"] == -10.0
    at = int((100.95 - 90.0) / line["bucket"])
    assert sum(series["reads that need what was lost"]["ok"][at : at + 2]) == 0, "they wait, and story 1 fails"


def test_a_long_timeline_has_no_more_buckets_than_a_picture_shows() -> None:
    line = timeline(steady(0, 2000), [FAULT], SHARDS)
    assert all(len(each["ok"]) <= 1_501 for each in line["series"].values())


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    for part in (steady()[:3], steady()[3:]):
        ledger.write(file, part)
    assert ledger.read(file) == steady()


def test_the_picture(tmp_path: Path) -> None:
    from loadgen.drills.timeline import draw  # Late: matplotlib takes a second.

    result = {
        "drill": "worker-kill",
        "seed": 1,
        "rounds": [{"at": 0.0, "outage_s": 1.2, "detected_s": 0.4, "whole_s": 1.5}],
        "timeline": timeline(broken(), [FAULT], SHARDS),
    }
    draw(json.loads(json.dumps(result)), tmp_path / "drill.png")
    assert (tmp_path / "drill.png").read_bytes().startswith(b"\x89PNG")
