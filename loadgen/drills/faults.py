"""Faults that need only the numbers of processes, and a full disk. Each function does one round: it breaks something,
and mends it if the fault is to end. The drill then waits until the cluster is whole again."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from loadgen.drills.cluster import DrillCluster
from loadgen.drills.stage import (
    DETECTION_SECONDS,
    WHOLE_SECONDS,
    DrillStage,
    Sight,
    need_program,
    need_root,
    run,
    run_anyway,
)

# ``disk-full``: the base tables stand on a small file system of their own, and something else fills it.

SIZE = "640m"
"""What workers keep free (``disk_reserve``, 256 MB), and four shards, each with its write-ahead log and what RocksDB
allocates in advance."""
FULL_SECONDS = 4.0
CHUNK = bytes(1 << 20)


@asynccontextmanager
async def means(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    need_root("disk-full", "to mount a small file system")
    need_program("disk-full", "mount")
    shards = cluster.data / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "headrace-drill", str(shards))
    try:
        yield {"disk": shards}
    finally:
        run_anyway("umount", "-l", str(shards))


async def fill(stage: DrillStage) -> None:
    ballast: Path = stage.means["disk"] / "ballast"
    try:
        await asyncio.to_thread(_fill, ballast)
        stage.begin(stage.shards)
        await asyncio.sleep(FULL_SECONDS)
    finally:
        ballast.unlink()
    stage.amend(healed=stage.now)


def _fill(ballast: Path) -> None:
    """Write until the disk is full to the last byte."""
    size = len(CHUNK)
    with ballast.open("ab", buffering=0) as file:
        while size:
            try:
                file.write(CHUNK[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2


HANG_SECONDS = 8.0
"""Longer than a worker may be silent, so that it wakes up as one that has been replaced."""
REFUSAL_SECONDS = 15.0
"""Limit for the refusal of a change: an api process looks for a leader as long as a read may take."""
AWAY_SECONDS = 5.0
"""How long all of ZooKeeper is stopped."""


async def kill_worker(stage: DrillStage) -> None:
    worker = await stage.a_worker()
    lost, epoch, pid = await stage.hosted_by(worker), stage.epoch, stage.cluster.pids()[worker]
    stage.begin(lost)
    os.kill(pid, signal.SIGKILL)
    await stage.until_noticed(epoch)


async def hang_worker(stage: DrillStage) -> None:
    worker = await stage.a_worker()
    lost, epoch, pid = await stage.hosted_by(worker), stage.epoch, stage.cluster.pids()[worker]
    at = stage.begin(lost)
    os.kill(pid, signal.SIGSTOP)
    try:
        await stage.until_noticed(epoch)
        await asyncio.sleep(max(0.0, at + HANG_SECONDS - stage.now))
    finally:
        with suppress(ProcessLookupError):  # The worker that took its shards over has killed it, as it should.
            os.kill(pid, signal.SIGCONT)
    stage.amend(healed=stage.now)


async def kill_leader(stage: DrillStage) -> None:
    name, pid = await stage.leader()
    stage.begin(())
    os.kill(pid, signal.SIGKILL)
    stage.amend(detected=await stage.until_seen(_led_by_another(pid), DETECTION_SECONDS))
    if stage.faults[-1].detected is None:
        stage.broken.append(f'nobody led within {DETECTION_SECONDS:g} s after "{name}" was killed')


async def kill_zookeeper(stage: DrillStage) -> None:
    names = [name for name in stage.cluster.pids() if name.startswith("zookeeper-")]
    name = stage.random.choice(sorted(names))
    stage.begin(())
    stage.cluster.signal([name], signal.SIGKILL)


async def stop_zookeeper(stage: DrillStage) -> None:
    """All of it, for a while: first stopped, so that nobody starts it again at once, then killed."""
    names = [name for name in stage.cluster.pids() if name.startswith("zookeeper-")]
    stage.begin(())
    stage.cluster.signal(names, signal.SIGSTOP)
    await asyncio.sleep(AWAY_SECONDS / 2)
    await _refused_meanwhile(stage)
    await asyncio.sleep(max(0.0, stage.faults[-1].at + AWAY_SECONDS - stage.now))
    stage.cluster.signal(names, signal.SIGKILL)
    stage.amend(healed=stage.now)


async def _refused_meanwhile(stage: DrillStage) -> None:
    """A change of the graph, which cannot be made now, has to be refused soon."""
    sql = f"CREATE TABLE made_meanwhile_{len(stage.faults)} (id BIGINT NOT NULL PRIMARY KEY)"
    async with httpx.AsyncClient(base_url=stage.cluster.url, timeout=REFUSAL_SECONDS) as client:
        try:
            answer = await client.post("/v1/sql", json={"sql": sql})
        except httpx.HTTPError as error:
            stage.broken.append(f"a change while ZooKeeper was away was not answered: {error!r}")
            return
    stage.notes["change while it was away"] = f"{answer.status_code} {answer.text[:300]}"
    if answer.status_code != 503:
        stage.broken.append(f"a change while ZooKeeper was away was not refused: {answer.text[:300]}")


async def restart_all(stage: DrillStage) -> None:
    """kill -9 to everything at once, the supervisor too, and `headrace up` again on the same data."""
    stage.begin(stage.shards)
    await stage.cluster.kill_all()
    stage.amend(healed=stage.now)
    await stage.cluster.start()


async def rolling_restart(stage: DrillStage) -> None:
    """Each part in turn is asked to end and comes back; the next one follows when all is whole."""
    for name in sorted(stage.cluster.pids(), key=_order_of_restart):
        pid, answered = stage.cluster.pids()[name], stage.cluster.answers(name)
        stage.begin(await stage.hosted_by(name) if name.startswith("worker-") else ())
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(WHOLE_SECONDS):
            while stage.cluster.pids().get(name, pid) == pid:
                await asyncio.sleep(0.02)
            while name.startswith("api-") and stage.cluster.answers(name) == answered:
                await asyncio.sleep(0.02)
        stage.amend(whole=await stage.until_whole())
        stage.amend(settled=await stage.until_settled())
        # What follows at once would be counted to the outage before it.
        await asyncio.sleep(SETTLE_SECONDS)


SETTLE_SECONDS = 2.5


def _order_of_restart(name: str) -> tuple[int, str]:
    kinds = ("worker", "controller", "api", "zookeeper")
    return kinds.index(name.partition("-")[0]), name


def _led_by_another(pid: int) -> Callable[[Sight], bool]:
    return lambda sight: sight.leader is not None and sight.leader[1] != pid
