"""The rounds' JSONs as the table of ``docs/benchmarks.md``, and the pictures beside it.

The page has prose that people write and one part that is written here, between two marks; pictures go to ``img/``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

BEGIN = "<!-- written by make bench-peers: begin -->"
END = "<!-- written by make bench-peers: end -->"
DRAWN_WITHIN = 120

Result = dict[str, Any]


def write(out: Path, docs: Path) -> None:
    """Puts the table of all JSONs in ``out`` into ``docs/benchmarks.md``."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(out.glob("*.json"))}
    results = {name: each for name, each in found.items() if not name.endswith("-half")}
    if not results:
        print("nothing was measured, so nothing is written")
        return
    halves = {name.removesuffix("-half"): each for name, each in found.items() if name.endswith("-half")}
    page = docs / "benchmarks.md"
    text = page.read_text("utf-8")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    pictures = _pictures(results, docs / "img")
    page.write_text(f"{before}{BEGIN}\n\n{report(results, halves, pictures)}\n{END}{after}", encoding="utf-8")
    print(f"written: {page}")


def report(results: dict[str, Result], halves: dict[str, Result], pictures: Sequence[str]) -> str:
    """Markdown: where and when, one table a workload, ratios, settings."""
    first = next(iter(results.values()))
    machine = first["machine"]
    dates = sorted(str(each["date"])[:10] for each in results.values())
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    parts = [
        f"Measured {when} on {machine['cpus']} cores of {machine['processor']}, {machine['system']}, Python "
        f"{machine['python']}; data scale {first['options']['data_scale']:g}, {first['options']['runtime']:g} s a rate."
    ]
    for workload in dict.fromkeys(each["options"]["workload"] for each in results.values()):
        own = {name: each for name, each in results.items() if each["options"]["workload"] == workload}
        parts += [f"### {workload}", _sustained(own, halves)]
        ratios = _ratios(own)
        if ratios:
            parts.append(ratios)
    parts += [f"![{name}](img/{name}.svg)" for name in pictures]
    parts += ["### Settings", _settings(results)]
    return "\n\n".join(parts) + "\n"


def best(result: Result) -> Result | None:
    """The fastest point that was sustained."""
    held = [each for each in result["points"] if each["sustained"]]
    return max(held, key=lambda each: each["offered"]) if held else None


def _sustained(results: dict[str, Result], halves: dict[str, Result]) -> str:
    unit = next(iter(results.values()))["unit"]
    header = (
        "round",
        f"sustained {unit}/s",
        "server CPU ms each",
        "p95 ms there",
        "p95 ms at half",
        "Story, Frontpage p95 at half",
        "largest RSS MB",
        "generator CPU",
        "remarks",
    )
    rows = []
    for name, result in results.items():
        point, half = best(result), halves.get(name)
        shown = point or result["points"][-1]
        at_half = half["points"][-1] if half else None
        kinds = at_half["kinds"] if at_half else {}
        pages = ", ".join(f"{kinds[each]['sojourn']['p95']:.1f}" for each in ("Story", "Frontpage") if each in kinds)
        cpu = shown["server_cpu_ms_each"]
        rows.append(
            (
                name,
                f"{point['offered']:,.0f}" if point else "none",
                "–" if cpu is None else f"{cpu:.3f}",
                f"{shown['all']['sojourn']['p95']:.1f}",
                f"{at_half['all']['sojourn']['p95']:.1f}" if at_half else "–",
                pages or "–",
                f"{sum(each['resident_max'] for each in shown['servers']) / 1e6:,.0f}" if shown["servers"] else "–",
                f"{shown['generator_cpu']:.0%}",
                _remarks(result, shown),
            )
        )
    return _markdown(header, rows)


def _remarks(result: Result, point: Result) -> str:
    told = []
    busy = [each for each in result["points"] if any("bottleneck" in doubt for doubt in each["doubts"])]
    if busy:
        told.append("the generator was the limit above this")
    part = point["notes"].get("stale_part")
    if part is not None:
        told.append(f"{part:.2%} of the cached reads were stale")
    if result["cut"]:
        told.append("ended early")
    return "; ".join(told)


def _ratios(results: dict[str, Result]) -> str:
    """Headrace's natural program against each other round: rate, and processor time each."""
    ours = next((each for name, each in results.items() if name.split("-")[1] == "headrace"), None)
    point = best(ours) if ours else None
    if point is None:
        return ""
    rows = []
    for name, result in results.items():
        other = best(result)
        if result is ours or other is None or name.split("-")[1] in ("null", "headrace"):
            continue
        own_cpu, their_cpu = point["server_cpu_ms_each"], other["server_cpu_ms_each"]
        cpu = f"{their_cpu / own_cpu:.2f}×" if own_cpu and their_cpu else "–"
        rows.append((name, f"{point['offered'] / other['offered']:.2f}×", cpu))
    return _markdown(("Headrace against", "sustained rate", "server CPU each, less by"), rows) if rows else ""


def _settings(results: dict[str, Result]) -> str:
    rows = []
    for name, result in results.items():
        told = {key: value for key, value in result["target"].items() if key != "server"}
        rows.append((name, result["target"]["server"], ", ".join(f"{key} {value}" for key, value in told.items())))
    return _markdown(("round", "server", "settings"), rows)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def _pictures(results: dict[str, Result], directory: Path) -> list[str]:
    """One of throughput against latency a workload; the memory of Headrace's last point."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for workload in dict.fromkeys(each["options"]["workload"] for each in results.values()):
        own = [each for each in results.values() if each["options"]["workload"] == workload and each["points"]]
        own.sort(key=lambda each: each["name"].split("-")[1] != "headrace")
        with TemporaryDirectory() as scratch:
            files = [Path(scratch, f"{number}.json") for number in range(len(own))]
            for path, result in zip(files, own, strict=True):
                path.write_text(json.dumps(result), encoding="utf-8")
            command = [sys.executable, "-m", "loadgen.report.curves", scratch, *map(str, files)]
            subprocess.run(command, check=True, timeout=DRAWN_WITHIN)
            for kind in ("latency", "memory"):
                shutil.copyfile(Path(scratch, f"{kind}.svg"), directory / f"{workload}-{kind}.svg")
                made.append(f"{workload}-{kind}")
    return made
