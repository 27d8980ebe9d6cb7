"""Memory of a view under a limit, against the same view full; each in a process of its own over the same base tables.

The reads are Zipf(1.15) over all stories. The limit is a share of what the full view is accounted. Two figures of
memory: *accounted*, which is what the limit is held against, and *resident*, by which the process has grown since
it had the base tables open and no view (all pages of the reader map among it, mapped or not).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from controller.embedded.local import LocalDeployment
from headrace.bench.measurement import Measurement
from headrace.bench.program import INDEXED_TABLES, ZIPF, load, story
from headrace.sizes import format_size

GOAL = 0.25
HITS = 0.95
SHARE = 0.245
"""Of the full view's accounted bytes, given as the limit: a little below the goal, so that resident memory, which does
not follow the accounts to the byte, has room."""
UNLIMITED = 2**40


def measure(directory: Path, quick: bool) -> Measurement:
    stories, warm, reads = (20_000, 400_000, 100_000) if quick else (1_000_000, 5_000_000, 1_000_000)
    asyncio.run(_load(directory, stories))
    full = _run("full", directory, stories, UNLIMITED, 0, 0)
    limited = _run("limited", directory, stories, int(full["accounted"] * SHARE), warm, reads)
    accounted = limited["accounted"] / full["accounted"]
    resident = limited["resident"] / full["resident"]
    hits = limited["hits"] / reads
    return Measurement(
        "memory",
        f"memory of Zipf({ZIPF}) reads over {stories:,} stories under a limit, {hits:.1%} of them hits",
        f"the same view full ({HITS:.0%} hits or more are asked for)",
        f"{format_size(limited['accounted'])} ({format_size(limited['resident'])} resident)",
        f"{format_size(full['accounted'])} ({format_size(full['resident'])} resident)",
        max(accounted, resident) if hits >= HITS else float("inf"),
        GOAL,
        at_most=True,
        details={
            "hits": round(hits, 4),
            "accounted_share": round(accounted, 3),
            "resident_share": round(resident, 3),
            "full": full,
            "limited": limited,
            "reads_before": warm,
            "reads": reads,
        },
    )


def _run(kind: str, directory: Path, stories: int, limit: int, warm: int, reads: int) -> dict[str, Any]:
    """Measure in a process of its own, so that nothing but the view is in its memory."""
    command = [sys.executable, "-m", "headrace.bench.one_view", kind, str(directory)]
    command += [str(number) for number in (stories, limit, warm, reads)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    figures: dict[str, Any] = json.loads(printed)
    return figures


async def _load(directory: Path, stories: int) -> None:
    """Every story has one vote, so that the view has a row for each."""
    deployment = await LocalDeployment.open(directory / "data", memory_limit=UNLIMITED)
    await deployment.execute(INDEXED_TABLES)
    await load(deployment, "stories", (story(number) for number in range(1, stories + 1)))
    await load(deployment, "votes", ((number, number) for number in range(1, stories + 1)))
    await deployment.close()
