"""One result as one file of HTML: what was run, whether it is valid, the tables, the pictures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222; }
table { display: block; overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.doubt { background: #fdecea; padding: .6rem 1rem; border-left: 4px solid #b2182b; }
.good { background: #edf7ed; padding: .6rem 1rem; border-left: 4px solid #1b7837; }
svg { max-width: 100%; height: auto; }
"""
DRAWN_WITHIN = 120
"""Seconds that the pictures may take; a second is usual."""


def write(result: dict[str, Any], path: Path) -> None:
    """``result`` is the document of a run's JSON."""
    path.write_text(page(result, _pictures(result)), encoding="utf-8")


def page(result: dict[str, Any], pictures: dict[str, str]) -> str:
    options = result["options"]
    title = f"{options['workload']} on {result['target'].get('server', options['target'])}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        _verdict(result),
        "<h2>Points</h2>",
        _points(result),
    ]
    if len(result["points"]) > 1 and "latency" in pictures:
        parts += ["<h2>Throughput and latency</h2>", pictures["latency"]]
    if result["points"]:
        last = result["points"][-1]
        parts += [f"<h2>By kind, at {last['offered']:g} {escape(result['unit'])} a second</h2>", _kinds(last)]
        parts += ["<h2>Over time</h2>", _settled(last), pictures.get("timeline", "")]
        parts += ["<h2>Memory</h2>", pictures.get("memory", ""), _servers(last)]
        if last["errors"]:
            parts += ["<h2>Errors</h2>", _table(("error", "times"), list(last["errors"].items()))]
    parts += ["<h2>What was run</h2>", _facts(result)]
    return "\n".join(parts) + "\n</html>\n"


def _verdict(result: dict[str, Any]) -> str:
    points, unit = result["points"], escape(result["unit"])
    lines = []
    if result["cut"]:
        lines.append("The run was ended early; this is what was measured until then.")
    if not points:
        return f'<p class="doubt">{" ".join(lines) or "Nothing was measured."}</p>'
    if len(points) > 1:
        best = result["sustained"]
        told = "no rate" if best is None else f"{best:,.0f} {unit} a second"
        lines.append(f"Sustained with a mean sojourn time of at most 50 ms: {told}.")
        doubts: Sequence[str] = [] if best is not None else points[-1]["doubts"]
    else:
        doubts = points[0]["doubts"]
        lines.append("Not valid: " + "; ".join(doubts) + "." if doubts else "Valid.")
    good = not doubts and not result["cut"]
    return f'<p class="{"good" if good else "doubt"}">{escape(" ".join(lines))}</p>'


def _points(result: dict[str, Any]) -> str:
    header = (
        f"offered {result['unit']}/s",
        "achieved",
        "mean ms",
        "p50",
        "p95",
        "p99",
        "max",
        "failed",
        "server CPU ms each",
        "generator CPU",
        "sustained",
        "valid",
    )
    rows = []
    for each in result["points"]:
        times, cpu = each["all"]["sojourn"], each["server_cpu_ms_each"]
        rows.append(
            (
                f"{each['offered']:,.1f}",
                f"{each['achieved']:,.1f}",
                *(f"{times[name]:,.2f}" for name in ("mean", "p50", "p95", "p99", "max")),
                each["failed"],
                "–" if cpu is None else f"{cpu:.3f}",
                f"{each['generator_cpu']:.0%}",
                "yes" if each["sustained"] else "no",
                "yes" if each["valid"] else "no",
            )
        )
    return _table(header, rows)


def _kinds(point: dict[str, Any]) -> str:
    header = ("kind", "count", *(f"{time} {part}" for time in ("sojourn", "service") for part in ("p50", "p95", "p99")))
    rows = [
        (
            kind,
            times["service"]["count"],
            *(f"{times[time][part]:,.2f}" for time in ("sojourn", "service") for part in ("p50", "p95", "p99")),
        )
        for kind, times in point["kinds"].items()
    ]
    return _table(header, rows)


def _settled(point: dict[str, Any]) -> str:
    after = point["settled_after_s"]
    if after is None:
        return "<p>The run is too short to tell when it had settled.</p>"
    return f"<p>From second {after} of the load on, p95 stayed within twice its steady value.</p>"


def _servers(point: dict[str, Any]) -> str:
    rows = [
        (f"{each['pid']}: {each['name']}", f"{each['cpu_s']:.2f}", f"{each['resident_max'] / 1e6:,.0f}")
        for each in point["servers"]
    ]
    missing = "".join(f"<p>Nothing is known of the processes of {escape(each)}.</p>" for each in point["unseen"])
    return (_table(("process", "CPU s", "largest resident MB"), rows) if rows else "") + missing


def _facts(result: dict[str, Any]) -> str:
    facts = {**result["target"], **result["machine"], **result["options"], "date": result["date"]}
    return _table(("", ""), list(facts.items()))


def _table(header: Iterable[Any], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(str(each))}</th>" for each in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(each))}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _pictures(result: dict[str, Any]) -> dict[str, str]:
    """SVG texts by name; none where there is nothing to draw, or no matplotlib."""
    if not result["points"]:
        return {}
    with TemporaryDirectory() as directory:
        source = Path(directory, "result.json")
        source.write_text(json.dumps(result), encoding="utf-8")
        command = [sys.executable, "-m", "loadgen.report.curves", directory, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRAWN_WITHIN, check=False)
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or ["?"]
            return {"timeline": f"<p>The pictures could not be drawn: {escape(reason[0])}</p>"}
        names = ("latency", "memory", "timeline")
        return {name: _inline(Path(directory, f"{name}.svg").read_text("utf-8")) for name in names}


def _inline(svg: str) -> str:
    """The SVG without its XML prologue, which is for separate files."""
    return re.sub(r"^.*?(?=<svg)", "", svg, count=1, flags=re.DOTALL)
