"""The measurements as a table on a terminal and as JSON, with the machine that they were taken on."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.bench.measurement import Measurement


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    """As the system names it; Python's own answer on Linux is only the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def document(measurements: Sequence[Measurement], quick: bool) -> dict[str, Any]:
    return {
        "headrace": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "headrace " + " ".join(sys.argv[1:] or ["bench"]),
        "quick": quick,
        "machine": machine(),
        "measurements": [each.as_json() for each in measurements],
    }


def write(path: Path, measurements: Sequence[Measurement], quick: bool) -> None:
    path.write_text(json.dumps(document(measurements, quick), indent=2) + "\n")


def table(measurements: Sequence[Measurement]) -> Table:
    shown = Table(header_style="bold", show_lines=True)
    for name in ("what", "against"):
        shown.add_column(name, ratio=2)
    for name in ("ours", "theirs", "ratio", "goal", "met?"):
        shown.add_column(name, justify="right")
    for each in measurements:
        goal = f"{'≤' if each.at_most else '≥'} {each.goal:g}"
        met = Text("yes", style="green") if each.met else Text("no", style="red")
        shown.add_row(each.what, each.against, each.ours, each.theirs, f"{each.ratio:.2f}", goal, met)
    return shown
