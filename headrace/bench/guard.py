"""``headrace bench --guard``: have the ratios to the hand-written loops become worse than they were?

::

    baseline.json      writes 0.48   reads 0.70   lookups 0.47       committed, taken by the command itself
    now, quick         writes 0.50   reads 0.40   lookups 0.45       what falls short is measured again
                                          └──► worse than the baseline by more than TOLERANCE: exit code 1

Only ratios by processor time are compared: what else runs on the machine slows the clock more than it changes them.
A measurement that falls short is repeated, since a regression is there every time and a busy minute is not.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from rich.table import Table
from rich.text import Text

from headrace.bench import measurement, reads, votes
from headrace.bench.measurement import Measurement
from headrace.errors import BadRequest, HeadraceError
from headrace.render import console

GUARDED: dict[str, Callable[[Path, bool], Measurement]] = {
    "writes": votes.measure,
    "reads": reads.measure_one,
    "lookups": reads.measure_many,
}
"""Those whose peer is a loop written by hand, in this process or under the same server."""

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
            hint="take a new one: headrace bench --guard --out headrace/bench/baseline.json",
        )
    return [Compared(name, baseline[name], ratio) for name, ratio in now.items()]


def baseline() -> dict[str, float]:
    """The committed ratios. BadRequest where the file is none."""
    text = files("headrace.bench").joinpath("baseline.json").read_text("utf-8")
    try:
        ratios = json.loads(text)["ratios"]
        return {str(name): float(ratio) for name, ratio in ratios.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest("headrace/bench/baseline.json is not a baseline of ratios") from error


def best_of(measure: Callable[[], float], enough: float) -> float:
    """The greatest of at most ``ATTEMPTS`` measurements, of which none is made after one that reaches ``enough``."""
    best = measure()
    for _ in range(ATTEMPTS - 1):
        if best >= enough:
            break
        best = max(best, measure())
    return best


def run(only: str | None, out: Path | None) -> None:
    """Measure, print the table, write the ratios if a file is named. Raises Regressed, BadRequest."""
    if only is not None and only not in GUARDED:
        raise BadRequest(f'no guarded measurement "{only}"', hint="there are " + ", ".join(GUARDED))
    before = baseline()
    printer = console(stderr=True)
    now: dict[str, float] = {}
    for name, measure in GUARDED.items():
        if only in (None, name):
            printer.print(f"measuring {name} …")
            now[name] = best_of(partial(_ratio, measure), before.get(name, 0.0) * (1 - TOLERANCE))
    if out is not None:
        out.write_text(json.dumps({"machine": measurement.machine(), "ratios": now}, indent=2) + "\n")
        printer.print(f"wrote {out}")
    compared = compare(before, now)
    console().print(table(compared))
    worse = [each.name for each in compared if not each.held]
    if worse:
        raise Regressed(
            f"slower than the baseline by more than {TOLERANCE:.0%}: {', '.join(worse)}",
            hint="docs/performance.md says how to find what it was, and how to take a new baseline",
        )


def _ratio(measure: Callable[[Path, bool], Measurement]) -> float:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        return float(measure(Path(directory), True).details[RATIO])


def table(compared: list[Compared]) -> Table:
    shown = Table(header_style="bold", title="ratios to hand-written loops, by processor time")
    shown.add_column("what")
    for name in ("baseline", "now", "at least", "held?"):
        shown.add_column(name, justify="right")
    for each in compared:
        held = Text("yes", style="green") if each.held else Text("no", style="red")
        shown.add_row(each.name, f"{each.before:.2f}", f"{each.now:.2f}", f"{each.floor:.2f}", held)
    return shown
