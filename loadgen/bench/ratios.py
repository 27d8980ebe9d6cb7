"""``headrace bench``: measure, print the table of ratios, and write them; with ``--guard``, fail on a regression.

::

    baseline.json      writes 0.48   reads 0.70   lookups 0.47       committed, taken by the command itself
    now, quick         writes 0.50   reads 0.40   lookups 0.45       a ratio below its floor is measured again
                                          └──► worse than the baseline by more than TOLERANCE: exit code 1

The guard compares ratios by processor time only: other work on the machine changes them less than those by the clock.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from rich.table import Table

from headrace.errors import BadRequest, HeadraceError
from headrace.render import console
from loadgen.bench import measurement, memory, new_view, nulls, reads, votes
from loadgen.bench.beside_mariadb import adhoc, contention, inserts, transactions
from loadgen.bench.measurement import Measurement, table, yes_or_no
from loadgen.bench.servers import missing

MEASUREMENTS: dict[str, Callable[[Path, bool], Measurement]] = {
    "writes": votes.measure,
    "reads": reads.measure_one,
    "keyed": reads.measure_keyed,
    "lookups": reads.measure_many,
    "new-view": new_view.measure,
    "nulls": nulls.measure,
    "memory": memory.measure,
    "insert": inserts.measure,
    "contention": contention.measure,
    "transaction": transactions.measure,
    "adhoc": adhoc.measure,
}
PEERS = {"insert": "mariadb", "contention": "mariadb", "transaction": "mariadb", "adhoc": "mariadb"}
"""The server that a measurement needs as its peer. Without it, the measurement is left out."""
GUARDED = {name: MEASUREMENTS[name] for name in ("writes", "reads", "lookups")}
"""Measurements whose peer is a loop written by hand, in this process or under the same server."""


def run(only: str | None, out: Path | None, quick: bool) -> None:
    """Measure, print the table, and write the JSON file if one is named. BadRequest where ``only`` is unknown."""
    taken = []
    for name, measure in _chosen(MEASUREMENTS, only):
        if name in PEERS and (why := missing(PEERS[name])) is not None:
            _tell(f"{name} is left out: {why}")
            continue
        _tell(f"measuring {name} …")
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
            taken.append(measure(Path(directory), quick))
    console().print(measurement.results(taken))
    if out is not None:
        measurement.write(out, measurement.document(taken, quick))
        _tell(f"wrote {out}")


def _chosen(
    measurements: Mapping[str, Callable[[Path, bool], Measurement]], only: str | None
) -> Iterator[tuple[str, Callable[[Path, bool], Measurement]]]:
    if only is not None and only not in measurements:
        raise BadRequest(f'no measurement "{only}"', hint="there are " + ", ".join(measurements))
    return ((name, measure) for name, measure in measurements.items() if only in (None, name))


def _tell(text: str) -> None:
    console(stderr=True).print(text, markup=False)


# --guard

TOLERANCE = 1 / 3
"""A ratio may fall by so much of itself. Of four quick runs of one and the same program, on two cores with a load of 10
to 17, the lowest was 12 to 25 % below the highest: less would be heard too often."""
ATTEMPTS = 3
"""How often a ratio that falls short is measured in all before it counts as that."""

RATIO = "ratio_by_processor_time"


class Regressed(HeadraceError):
    """A ratio has become worse than the baseline by more than the tolerance."""

    code = "regressed"


@dataclass(frozen=True, slots=True)
class Compared:
    name: str
    before: float
    now: float

    @property
    def floor(self) -> float:
        """The least that is not a regression."""
        return self.before * (1 - TOLERANCE)

    @property
    def held(self) -> bool:
        return self.now >= self.floor


def compare(baseline: Mapping[str, float], now: Mapping[str, float]) -> list[Compared]:
    """Each present measurement beside its baseline, in the order of ``now``. BadRequest where there is none."""
    unknown = [name for name in now if name not in baseline]
    if unknown:
        raise BadRequest(
            f"the baseline has no ratio of {', '.join(unknown)}",
            hint="take a new one: headrace bench --guard --out loadgen/bench/baseline.json",
        )
    return [Compared(name, baseline[name], ratio) for name, ratio in now.items()]


def baseline() -> dict[str, float]:
    """The committed ratios. BadRequest where the file is none."""
    text = files("loadgen.bench").joinpath("baseline.json").read_text("utf-8")
    try:
        ratios = json.loads(text)["ratios"]
        return {str(name): float(ratio) for name, ratio in ratios.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest("loadgen/bench/baseline.json is not a baseline of ratios") from error


def best_of(measure: Callable[[], float], enough: float) -> float:
    """The greatest of at most ``ATTEMPTS`` measurements, of which none is made after one that reaches ``enough``."""
    best = measure()
    for _ in range(ATTEMPTS - 1):
        if best >= enough:
            break
        best = max(best, measure())
    return best


def run_guard(only: str | None, out: Path | None) -> None:
    """Measure, print the table, write the ratios if a file is named. Raises Regressed, BadRequest."""
    before = baseline()
    now: dict[str, float] = {}
    for name, measure in _chosen(GUARDED, only):
        _tell(f"measuring {name} …")
        now[name] = best_of(partial(_ratio, measure), before.get(name, 0.0) * (1 - TOLERANCE))
    if out is not None:
        measurement.write(out, {"machine": measurement.machine(), "ratios": now})
        _tell(f"wrote {out}")
    compared = compare(before, now)
    console().print(guard_table(compared))
    worse = [each.name for each in compared if not each.held]
    if worse:
        raise Regressed(
            f"slower than the baseline by more than {TOLERANCE:.0%}: {', '.join(worse)}",
            hint="docs/performance.md says how to find the cause, and how to take a new baseline",
        )


def _ratio(measure: Callable[[Path, bool], Measurement]) -> float:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        return float(measure(Path(directory), True).details[RATIO])


def guard_table(compared: list[Compared]) -> Table:
    return table(
        "ratios to hand-written loops, by processor time",
        ("what", "baseline", "now", "at least", "held?"),
        [
            (each.name, f"{each.before:.2f}", f"{each.now:.2f}", f"{each.floor:.2f}", yes_or_no(each.held))
            for each in compared
        ],
    )
