"""The picture of a drill, out of its JSON: ``python -m loadgen.drills.timeline drill.json drill.png``.

Like Figure 5-3 of the Noria thesis (J. Gjengset, *Partial State in Dataflow-Based Materialized Views*): throughput over
time, with the moments of the fault and of the recovery; and below it errors, and the slowest answers. A program of its
own, so that nothing else waits for matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # Into a file: there may be no screen.

from matplotlib import pyplot
from matplotlib.axes import Axes

COLOURS = {"other reads": "#1b7837", "reads that need what was lost": "#2166ac", "writes": "#b35806"}
MARKS = (
    ("at", "fault", "#b2182b", "-"),
    ("detected_s", "detected", "#ef8a62", "--"),
    ("outage_s", "full service", "#1a9850", "-"),
    ("whole_s", "cluster whole again", "#878787", ":"),
    ("settled_s", "load even again", "#bababa", ":"),
)
ROUNDS_MARKED = 6
"""The most rounds that are marked; with more, only the faults are."""
INCHES = (11.0, 7.5)


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the timeline of one drill's result as PNG."""
    line = result["timeline"]
    figure, (throughput, errors, latency) = pyplot.subplots(
        3, 1, figsize=INCHES, sharex=True, height_ratios=(3, 1, 2), layout="constrained"
    )
    bucket = line["bucket"]
    for name, series in line["series"].items():
        times = [line["start"] + (place + 0.5) * bucket for place in range(len(series["ok"]))]
        colour = COLOURS.get(name)
        throughput.plot(times, [count / bucket for count in series["ok"]], label=name, color=colour, linewidth=1)
        errors.bar(times, [count / bucket for count in series["errors"]], width=bucket, color=colour)
        shown = [(time, slowest) for time, slowest in zip(times, series["slowest_ms"], strict=True) if slowest]
        latency.plot([x for x, _ in shown], [y for _, y in shown], color=colour, linewidth=0.8)
    throughput.set_ylabel("answers / s")
    errors.set_ylabel("errors / s")
    latency.set_ylabel("slowest answer, ms")
    latency.set_yscale("log")
    latency.set_xlabel("seconds since the fault" if len(result["rounds"]) == 1 else "seconds since the first fault")
    for axes in (throughput, errors, latency):
        _mark(axes, result["rounds"])
        axes.grid(alpha=0.25)
        axes.set_ylim(bottom=None if axes is latency else 0)
    figure.legend(*throughput.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=4)
    throughput.set_title(_title(result), fontsize=10)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _mark(axes: Axes, rounds: list[dict[str, Any]]) -> None:
    named: set[str] = set()
    for number, each in enumerate(rounds):
        for key, label, colour, style in MARKS:
            after = 0.0 if key == "at" else each.get(key)
            if after is None or (number >= ROUNDS_MARKED and key != "at"):
                continue
            axes.axvline(
                each["at"] + after,
                color=colour,
                linestyle=style,
                linewidth=1,
                label=None if label in named else label,
            )
            named.add(label)


def _title(result: dict[str, Any]) -> str:
    outages = [each["outage_s"] for each in result["rounds"]]
    longest = f"; without full service for {max(outages):.2f} s at most" if outages else ""
    return f"{result['drill']}, seed {result['seed']}, {len(outages)} round{'s' if len(outages) != 1 else ''}{longest}"


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
