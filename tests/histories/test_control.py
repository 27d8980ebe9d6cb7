"""MariaDB shows at each of its levels what the level permits, and not what it forbids."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.bench import servers
from tests.histories.control import CONTROL, Expected, judged, run_on_mariadb
from tests.histories.mariadb import Kept
from tests.histories.workload import Workload

MISSING = servers.missing("mariadb")
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

TRANSACTIONS = 300
WITHIN = 60.0


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("histories")
    with servers.mariadb(folder, durable=False) as url:
        yield int(url.rstrip("/").rsplit(":", 1)[1])


@pytest.mark.parametrize("kept", ["texts", "registers"])
@pytest.mark.parametrize("expected", CONTROL, ids=lambda each: each.isolation)
def test_control(expected: Expected, kept: Kept, port: int) -> None:
    missing, seed, until = set(expected.shown), 1, time.monotonic() + WITHIN
    while seed == 1 or (missing and time.monotonic() < until):
        print(f"seed {seed}")
        events = run_on_mariadb(port, expected, kept, Workload(seed, lists=kept == "texts", most=TRANSACTIONS))
        report = judged(events, expected)
        assert not expected.broken(report, kept), str(report)
        assert report.outcomes["committed"] > TRANSACTIONS / 4
        missing -= report.found.keys()
        seed += 1
    assert not missing
