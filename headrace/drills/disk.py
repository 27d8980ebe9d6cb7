"""``disk-full``: the base tables stand on a small file system of their own, and something else fills it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.drills.cluster import Cluster
from headrace.drills.possible import need_program, need_root, run, run_anyway
from headrace.drills.stage import Stage

SIZE = "256m"
"""Four shards, each with its write-ahead log and what RocksDB allocates in advance."""
FULL_SECONDS = 4.0
CHUNK = bytes(1 << 20)


@asynccontextmanager
async def means(cluster: Cluster) -> AsyncIterator[dict[str, Any]]:
    need_root("disk-full", "to mount a small file system")
    need_program("disk-full", "mount")
    shards = cluster.data / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "headrace-drill", str(shards))
    try:
        yield {"disk": shards}
    finally:
        run_anyway("umount", "-l", str(shards))


async def fill(stage: Stage) -> None:
    ballast: Path = stage.means["disk"] / "ballast"
    try:
        await asyncio.to_thread(_fill, ballast)
        stage.begin(stage.shards)
        await asyncio.sleep(FULL_SECONDS)
    finally:
        ballast.unlink()
    stage.amend(healed=stage.now)


def _fill(ballast: Path) -> None:
    """To the last byte."""
    size = len(CHUNK)
    with ballast.open("ab", buffering=0) as file:
        while size:
            try:
                file.write(CHUNK[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
