"""Memory of a view under a limit, against the same view full; each in a process of its own over the same base tables.

The reads are Zipf(1.15) over all stories. The limit is a share of what the full view is accounted. Two figures of
memory: *accounted*, which is what the limit is held against, and *resident*, by which the process has grown since
it had the base tables open and no view (all pages of the reader map among it, mapped or not).
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import psutil

from controller.embedded.local import LocalDeployment
from domains.plan.graph import DomainIndex
from headrace.sizes import format_size
from loadgen.bench.measurement import Measurement
from loadgen.bench.program import INDEXED_TABLES, VIEW, VIEWS, ZIPF, load, story, zipf
from worker.service.system import give_back_early

# The measured process reads one view and says how much memory that took.
# ``python -m loadgen.bench.memory full|limited DIR STORIES LIMIT READS_BEFORE READS`` prints figures as JSON.

KEYS = 1_000
"""Reads to a request."""


async def _measure(kind: str, directory: Path, stories: int, limit: int, warm: int, reads: int) -> dict[str, Any]:
    give_back_early()  # As ``headrace serve`` does.
    deployment = await LocalDeployment.open(
        directory / "data", memory_limit=limit, partial=kind != "full", read_timeout=60.0
    )
    take = zipf(stories, Random(1))
    before = _resident(deployment)
    begun = time.perf_counter()
    await deployment.execute(VIEWS)
    (page,) = await deployment.pages(VIEW, [[1]])
    assert page, "the first story has a vote"
    hits = 0
    for total in (warm, reads):
        lookup: Any = deployment.prepare(VIEW)
        earlier = lookup.hits
        for _ in range(total // KEYS):
            await deployment.pages(VIEW, [[number] for number in take(KEYS)])
        hits = lookup.hits - earlier
    dataflow = deployment.dataflow
    vertices = dataflow.domains[DomainIndex(0)].vertices
    figures = {
        "accounted": sum(domain.accounted_bytes() for domain in dataflow.domains.values()),
        "resident": _resident(deployment) - before,
        "reader_map": dataflow.reader_map.file_bytes(),
        "keys": max(len(index) for vertex in vertices.values() for index in vertex.indexes.values()),
        "hits": hits,
        "seconds": round(time.perf_counter() - begun, 1),
        "plan": deployment.explain(VIEW).split("\n"),
    }
    await deployment.execute(f"DROP VIEW {VIEW}; DROP VIEW VoteCount")
    await deployment.close()
    return figures


def _resident(deployment: LocalDeployment) -> int:
    """Bytes of the process, with all pages of the reader map that are in use.

    Those that the process happens to have mapped would say less of a larger map: each time that it grows it is mapped
    anew, and what was written before is in memory all the same.
    """
    gc.collect()
    process = psutil.Process()
    mapped: int = sum(each.rss for each in process.memory_maps() if each.path.endswith("/readers/data.mdb"))
    held: int = process.memory_info().rss
    return held - mapped + deployment.dataflow.reader_map.file_bytes()


GOAL = 0.25
HITS = 0.95
SHARE = 0.245
"""The limit's share of the full view's accounted bytes: a little below the goal, so that resident memory, which does
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
    command = [sys.executable, "-m", "loadgen.bench.memory", kind, str(directory)]
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


if __name__ == "__main__":
    kind, directory, *numbers = sys.argv[1:]
    print(json.dumps(asyncio.run(_measure(kind, Path(directory), *map(int, numbers)))))
