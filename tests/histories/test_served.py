"""Headrace's transactions are strictly serializable, also where its server is killed; and below that as it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.checker import check
from tests.histories.mariadb import Kept
from tests.histories.served import Asked, run_on_headrace
from tests.histories.workload import Workload

TRANSACTIONS = 200


@pytest.mark.parametrize("kept", ["texts", "rows", "registers"])
def test_its_histories_hold(kept: Kept, tmp_path: Path) -> None:
    events, _ = run_on_headrace(tmp_path, kept, Workload(1, lists=kept != "registers", most=TRANSACTIONS))
    report = check(events, "strict-serializable")
    assert report.holds, str(report)
    assert report.outcomes["committed"] > TRANSACTIONS / 4


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    "how",
    [Asked("repeatable-read"), Asked("read-committed"), Asked("repeatable-read", True), Asked("read-committed", True)],
    ids=str,
)
def test_below_serializable_they_hold_what_they_promise(how: Asked, shards: int, tmp_path: Path) -> None:
    """With all reads FOR SHARE they are strictly serializable: then whatever is read is locked, what is absent too."""
    events, _ = run_on_headrace(tmp_path, "texts", Workload(3, most=TRANSACTIONS), shards=shards, how=how)
    for report in how.judged(events, "texts"):
        assert report.holds, str(report)
        assert report.outcomes["committed"] > TRANSACTIONS / 4


@pytest.mark.long
@pytest.mark.parametrize("kept", ["texts", "rows", "registers"])
def test_and_where_its_server_is_killed(kept: Kept, tmp_path: Path) -> None:
    events, kills = run_on_headrace(tmp_path, kept, Workload(2, lists=kept != "registers"), seconds=30, kills=True)
    report = check(events, "strict-serializable")
    assert report.holds, str(report)
    assert kills > 1
