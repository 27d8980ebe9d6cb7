"""A cluster's transactions hold what their level promises, over HTTP and by MySQL's protocol, while its parts are
killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.running_cluster import NO_JAVA
from tests.histories.clustered import Clustered
from tests.histories.mariadb import Kept
from tests.histories.served import SERIALIZABLE, Asked, recorded_beside_kills
from tests.histories.workload import Workload

pytest.importorskip("pymysql")
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH")]

TRANSACTIONS, KILLED_EVERY = 80, 60
CASES: tuple[tuple[Kept, Asked, bool], ...] = (
    ("texts", SERIALIZABLE, False),
    ("texts", SERIALIZABLE, True),
    ("texts", Asked("repeatable-read"), True),
    ("texts", Asked("read-committed"), True),
    ("registers", Asked("repeatable-read", locking=True), True),
)


def test_its_histories_hold(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async def run() -> None:
        system = Clustered(tmp_path / "data")
        await system.create()
        try:
            for number, (kept, how, by_mysql) in enumerate(CASES):
                workload = Workload(number, lists=kept != "registers", most=TRANSACTIONS, block=1_000 * number)
                system.asked(kept, workload.keys, how, by_mysql=by_mysql)
                await system.serves()
                events = await recorded_beside_kills(system, workload, kills=True, every=KILLED_EVERY)
                with subtests.test(msg=str(how), kept=kept, by_mysql=by_mysql):
                    for report in how.judged(events, kept):
                        assert report.holds, str(report)
                        assert report.outcomes["committed"] > TRANSACTIONS / 4, report.outcomes
            assert system.kills >= len(CASES)
        finally:
            await system.stop()

    asyncio.run(run())
