"""The pictures of load runs, out of their JSON: ``python -m loadgen.report.curves OUT RESULT.json …``.

``latency.svg`` has throughput against latency, one set of lines a result: flat, until the target does not keep up
("hockey sticks", as Figure 5-1 of the Noria thesis). ``memory.svg`` and ``timeline.svg`` are of the first result's last
point: resident memory of each server process, and the times by the second. A program of its own, so that
nothing else waits for matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # Into a file: there may be no screen.

from matplotlib import pyplot
from matplotlib.figure import Figure

# Text stays text, and two runs on the same numbers give the same bytes.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 9})

INCHES = (7.5, 4.2)
COLOURS = ("#2166ac", "#b2182b", "#1b7837", "#b35806", "#762a83", "#4d4d4d", "#35978f", "#c51b7d")
LINES = (("p50", "-"), ("p95", "--"), ("p99", ":"))
SUSTAINED_MS = 50.0


def latency(results: list[dict[str, Any]], path: Path) -> None:
    """p50, p95 and p99 of the sojourn time by achieved rate."""
    figure, axes = pyplot.subplots(figsize=INCHES, layout="constrained")
    for result, colour in zip(results, COLOURS * len(results), strict=False):
        points = sorted((each for each in result["points"] if each["answered"]), key=lambda each: each["achieved"])
        rates = [each["achieved"] for each in points]
        for part, style in LINES:
            values = [max(each["all"]["sojourn"][part], 0.01) for each in points]
            label = f"{name_of(result)}, {part}"
            axes.plot(rates, values, style, color=colour, marker=".", markersize=4, linewidth=1, label=label)
        doubted = [each for each in points if not each["valid"]]
        axes.plot(
            [each["achieved"] for each in doubted],
            [max(each["all"]["sojourn"]["p50"], 0.01) for each in doubted],
            "x",
            color=colour,
        )
    axes.axhline(SUSTAINED_MS, color="#bababa", linewidth=0.8)
    axes.set_yscale("log")
    if len(results) > 1:
        axes.set_xscale("log")
    axes.set_xlabel(f"{results[0]['unit']} a second, achieved (x: not valid)")
    axes.set_ylabel("sojourn time, ms")
    axes.legend(fontsize=7)
    _save(figure, path)


def memory(result: dict[str, Any], path: Path) -> None:
    """Resident memory of each server process over time."""
    figure, axes = pyplot.subplots(figsize=INCHES, layout="constrained")
    servers = [each for each in result["points"][-1]["servers"] if each["memory"]]
    largest = sorted(servers, key=lambda each: -each["resident_max"])[: len(COLOURS)]
    for server, colour in zip(largest, COLOURS, strict=False):
        times = [each["at"] for each in server["memory"]]
        label = f"{server['pid']}: {server['name'][:48]}"
        axes.plot(times, [each["resident"] / 1e6 for each in server["memory"]], color=colour, linewidth=1, label=label)
    if not largest:
        axes.text(0.5, 0.5, "no server process could be looked at", ha="center", transform=axes.transAxes)
    else:
        axes.legend(fontsize=7)
    axes.set_xlabel("seconds since the measurement began")
    axes.set_ylabel("resident, MB")
    # Room for the legend above the highest line.
    axes.set_ylim(bottom=0, top=1.25 * max((each["resident_max"] / 1e6 for each in largest), default=1.0))
    _save(figure, path)


def timeline(result: dict[str, Any], path: Path) -> None:
    """Answers and times by the second of arrival, warm-up included."""
    figure, (rate, times) = pyplot.subplots(2, 1, figsize=INCHES, sharex=True, layout="constrained")
    seconds = result["points"][-1]["timeline"]
    at = [each["second"] for each in seconds]
    rate.step(at, [each["answered"] for each in seconds], where="post", color=COLOURS[0], linewidth=1)
    rate.step(at, [each["errors"] for each in seconds], where="post", color=COLOURS[1], linewidth=1, label="errors")
    rate.set_ylabel("answered / s")
    rate.set_ylim(bottom=0)
    for part, style in (("p50_ms", "-"), ("p95_ms", "--")):
        times.plot(at, [max(each[part], 0.01) for each in seconds], style, color=COLOURS[0], label=part[:3])
    times.set_yscale("log")
    times.set_ylabel("sojourn, ms")
    times.set_xlabel("seconds since the load began")
    times.legend(fontsize=7)
    _save(figure, path)


def name_of(result: dict[str, Any]) -> str:
    options = result["options"]
    server = result["target"].get("server", options["target"])
    return result.get("name") or f"{server}, {options['variant']}"


def _save(figure: Figure, path: Path) -> None:
    for axes in figure.axes:
        axes.grid(alpha=0.25)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw(results: list[dict[str, Any]], directory: Path) -> None:
    """All three, into a directory that is there."""
    latency(results, directory / "latency.svg")
    memory(results[0], directory / "memory.svg")
    timeline(results[0], directory / "timeline.svg")


if __name__ == "__main__":
    draw([json.loads(Path(name).read_text("utf-8")) for name in sys.argv[2:]], Path(sys.argv[1]))
