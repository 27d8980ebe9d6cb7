"""The control: MariaDB at each isolation level, judged by what the level promises and by what it does not.

A checker that has only ever said that nothing is wrong proves nothing. At READ COMMITTED and at REPEATABLE READ the
runs have to show the anomalies that these levels permit, at SERIALIZABLE none.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadgen.bench import servers
from tests.histories.anomalies import LEVELS
from tests.histories.checker import Report, check
from tests.histories.events import Event, write
from tests.histories.mariadb import Kept, MariaDB
from tests.histories.system import System
from tests.histories.workload import Recorder, Workload, client

CLIENTS = 8


@dataclass(frozen=True)
class Expected:
    isolation: str
    level: str
    """The strictest that it keeps."""
    shown: frozenset[str] = frozenset()
    """What the runs have to show, of what it permits."""
    unjudged: frozenset[Kept] = frozenset()
    """What is no list at this isolation."""

    def broken(self, report: Report, kept: Kept) -> set[str]:
        return set() if kept in self.unjudged else LEVELS[self.level] & report.found.keys()


CONTROL = (
    Expected("READ COMMITTED", "read-committed", frozenset({"G-single", "lost-update", "G2-item"})),
    Expected("REPEATABLE READ", "read-committed", frozenset({"lost-update", "G2-item"}), frozenset({"rows"})),
    Expected("SERIALIZABLE", "strict-serializable"),
)
"""MariaDB's REPEATABLE READ is no snapshot isolation: a write sees what was committed since the snapshot, without a
conflict (``innodb_snapshot_isolation`` is off before 11.6), so that updates are lost. An own row may there stand behind
rows that the transaction does not see: then a read shows no beginning of the list, and what follows from that is not
certain."""


async def recorded(system: System, workload: Workload, clients: int = CLIENTS) -> list[Event]:
    """The history of a run with so many connections."""
    events: list[Event] = []
    record = Recorder(events.append, clients)
    await asyncio.gather(*(client(number, system, workload, record) for number in range(clients)))
    return events


def run_on_mariadb(port: int, expected: Expected, kept: Kept, workload: Workload) -> list[Event]:
    async def run() -> list[Event]:
        system = MariaDB(port, expected.isolation, kept, workload.keys)
        await system.create()
        return await recorded(system, workload)

    return asyncio.run(run())


def judged(events: list[Event], expected: Expected) -> Report:
    """With all that can be found: of each register alone, nothing is taken for granted that its level does not give."""
    return check(events, "strict-serializable", spans=None if expected.level == "strict-serializable" else "none")


def control(seconds: float, seed: int, keep: Path | None, tell: Callable[[str], None]) -> bool:
    """Is all as expected? Each level with each way to keep a list or a register, for equal parts of the time."""
    kept: tuple[Kept, ...] = ("texts", "rows", "registers")
    right = True
    with tempfile.TemporaryDirectory() as folder, servers.mariadb(Path(folder), durable=False) as url:
        port = int(url.rstrip("/").rsplit(":", 1)[1])
        for expected in CONTROL:
            shown: set[str] = set()
            for way in kept:
                until = time.monotonic() + seconds / len(kept) / len(CONTROL)
                goes_on = lambda until=until: time.monotonic() < until
                workload = Workload(seed, lists=way != "registers", go_on=goes_on)
                events = run_on_mariadb(port, expected, way, workload)
                if keep is not None:
                    write(keep / f"{expected.isolation.lower().replace(' ', '-')}-{way}.json", events)
                report = judged(events, expected)
                shown |= report.found.keys()
                broken = expected.broken(report, way)
                found = ", ".join(f"{name} {count:,}" for name, count in report.found.most_common()) or "no anomaly"
                done = ", ".join(f"{count:,} {name}" for name, count in report.outcomes.most_common())
                tell(f"{expected.isolation}, {way}: {done}: {found}")
                for finding in report.findings:
                    if finding.name in broken:
                        tell(f"NOT PERMITTED {finding}")
                right &= not broken
            if missing := expected.shown - shown:
                tell(f"NOT SHOWN at {expected.isolation}: {', '.join(sorted(missing))}")
                right = False
    return right
