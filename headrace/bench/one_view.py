"""One view read in a process of its own, which says how much memory that took.

``python -m headrace.bench.one_view full|limited DIR STORIES LIMIT READS_BEFORE READS`` prints figures as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import psutil

from controller.embedded.local import LocalDeployment
from domains.plan.graph import DomainIndex
from headrace.bench.program import VIEW, VIEWS, zipf
from worker.service.allocator import give_back_early

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
        "keys": max(len(index) for vertex in vertices for index in vertex.indexes.values()),
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


if __name__ == "__main__":
    kind, directory, *numbers = sys.argv[1:]
    print(json.dumps(asyncio.run(_measure(kind, Path(directory), *map(int, numbers)))))
