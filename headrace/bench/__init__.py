"""``headrace bench``: how fast the engine is, as ratios to what one would otherwise write or run.

Absolute figures say more about the machine than about the program. So each measurement has a peer that does the same
work on the same machine in the same run, turn and turn about, and what counts is the ratio of the medians of the
rounds. A machine that is busy with other things slows both sides; figures by processor time are in the JSON beside
those by the clock.

::

    writes     Dataflow over RocksDB    against    dicts and the same RocksDB writes
    reads      GET of one key           against    constant bytes under the same uvicorn
    lookups    1,000 keys a request     against    a dict under the same uvicorn
    new-view   CREATE VIEW, first read  against    CREATE TABLE AS in DuckDB
    memory     a view under a limit     against    the same view full
    insert     one row after the other  against    MariaDB, where it is installed

``headrace bench scale`` (``scaling/``) measures what a request costs on clusters of 1, 2 and 4 workers, ``headrace
bench replay`` (``replaying/``) how fast base logs are read back, with Spark and without, and ``headrace bench rebuild``
(``rebuilding/``) how fast a cluster has a lost disk back from the archive, in the same two ways.

``headrace bench --guard`` (``guard.py``) compares the quick ratios of the first three with committed ones, and fails.

``docs/performance.md`` and ``docs/scaling.md`` have the figures, and where the time goes. Nothing else here fails
because a machine is slow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.bench import inserts, measurement, memory, new_view, reads, votes
from headrace.bench.measurement import Measurement
from headrace.errors import BadRequest
from headrace.render import console
from loadgen.bench.servers import missing

MEASUREMENTS: dict[str, Callable[[Path, bool], Measurement]] = {
    "writes": votes.measure,
    "reads": reads.measure_one,
    "lookups": reads.measure_many,
    "new-view": new_view.measure,
    "memory": memory.measure,
    "insert": inserts.measure,
}
PEERS = {"insert": "mariadb"}
"""Of a measurement whose peer is a server: which. It is left out where that is not installed."""


def run(only: str | None, out: Path | None, quick: bool) -> None:
    """Measure, print the table, and write the JSON file if one is named. BadRequest where ``only`` is unknown."""
    if only is not None and only not in MEASUREMENTS:
        raise BadRequest(f'no measurement "{only}"', hint="there are " + ", ".join(MEASUREMENTS))
    printer = console(stderr=True)
    taken = []
    for name, measure in MEASUREMENTS.items():
        if only in (None, name):
            if name in PEERS and (why := missing(PEERS[name])) is not None:
                printer.print(f"{name} is left out: {why}")
                continue
            printer.print(f"measuring {name} …")
            with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
                taken.append(measure(Path(directory), quick))
    console().print(measurement.table(taken))
    if out is not None:
        measurement.write(out, taken, quick)
        printer.print(f"wrote {out}")
