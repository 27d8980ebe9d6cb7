"""``disk-loss``: a worker dies and its disk with it; an operator gives the disk up; the archive has all but the tail.
``disk-loss-spark``: the same, and Spark folds the archive.

::

    the load writes ─► it rests ─► everything is archived ─► the tail: writes and transactions that are counted
        ─► the worker's directory is gone, kill -9 ─► its views wait, the others serve ─► headrace rebuild --lost
        ─► the load writes again ─► judged: the load's writes are there; of the tail, what was named is not, the rest is

Each worker has a data directory of its own, and only the drill starts an archiving. So the drill knows the shard and
position of each write of the tail, and which of them the command has to name as lost. A transaction is not lost where
one of its shards has its disk still.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from headrace_client import tokens

from domains.engine.clock import latest
from domains.errors import Unavailable
from domains.plan.packets import Clock
from loadgen.drills.cluster import DrillCluster, DrillFailed, asked, headrace, missing
from loadgen.drills.stage import LOOK_AGAIN, WHOLE_SECONDS, DrillStage, NotPossible
from migrations.backfill.spark.launching import check_java

NEVER = 86_400
"""Seconds between two archivings by themselves, the most that the setting allows: none is done while a drill lasts."""
TAIL = 24
"""Writes that are not archived: some for each shard, so that there is something to lose and something to keep."""
PAIRS = 12
"""Transactions that are not archived either, of two rows each."""
MARKS = 32
"""Keys of the view that moves rows between all shards: so many that each shard has some."""

SCHEMA = """
CREATE TABLE tail (id BIGINT NOT NULL PRIMARY KEY, mark BIGINT NOT NULL);
CREATE VIEW TailOf AS SELECT id FROM tail WHERE id = ?;
CREATE VIEW TailMarks AS SELECT mark, COUNT(*) AS n FROM tail WHERE mark = ? GROUP BY mark;
"""


@dataclass(frozen=True, slots=True)
class TailWrite:
    """One write of the tail, or a transaction, acknowledged."""

    ids: tuple[int, ...]
    positions: Clock

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(int(base.rpartition("@")[2]) for base in self.positions)


@asynccontextmanager
async def means(cluster: DrillCluster, by: str = "worker") -> AsyncIterator[dict[str, Any]]:
    disks = (cluster.data / "disks").absolute()
    archive = {"HEADRACE_ARCHIVE": str((cluster.data / "archive").absolute())}
    cluster.started_with("controller", archive)
    for name in (f"worker-{number}" for number in range(1, cluster.shape.workers + 1)):
        own = {"HEADRACE_ARCHIVE_INTERVAL": str(NEVER), "HEADRACE_DATA": str(disks / name)}
        cluster.special[name] = {"environment": {**archive, **own}}
    yield {"disks": disks, "by": by}


def means_by_spark(cluster: DrillCluster) -> AbstractAsyncContextManager[dict[str, Any]]:
    try:
        check_java()
    except Unavailable as error:
        raise NotPossible(error.message, hint=error.hint) from error
    return means(cluster, "spark")


async def prepare(stage: DrillStage) -> None:
    stage.notes |= {"kept_writes": 0, "lost_writes": 0, "brought_back": 0, "named_writes": 0, "next_id": 1}
    stage.notes |= {"rebuilt": [], "rebuild_s": []}
    async with stage.cluster.client() as client:
        await asked(client, "/v1/sql", {"sql": SCHEMA})


async def lose(stage: DrillStage) -> None:
    assert stage.load is not None
    first = stage.notes["next_id"]
    stage.notes["next_id"] = first + 2 * TAIL + 2 * PAIRS
    worker = await stage.a_worker()
    async with stage.cluster.client() as client:
        await stage.load.order("rest")
        kept = await _write_tail(client, first)
        archived: Clock = (await asked(client, "/v1/archive", None))["positions"]
        tail = await _write_tail(client, first + TAIL, pairs=PAIRS)
        lost = await stage.hosted_by(worker)
        last = latest(each.positions for each in tail)
        expected = {base: at for base, at in last.items() if int(base.rpartition("@")[2]) in lost}
        await _destroy(stage, worker, lost)
        began = stage.now
        told = await _rebuild(stage)
        stage.notes["rebuild_s"].append(round(stage.now - began, 3))
        await stage.load.order("resume")
        _judge_names(stage, told, archived, expected)
        await stage.until_whole()
        kept += [each for each in tail if not each.shards <= lost]
        for each in tail:
            what = "lost_writes" if each.shards <= lost else "brought_back"
            stage.notes[what] += len(each.shards & lost)
        await _judge_rows(stage, client, kept, tail)


async def _write_tail(client: httpx.AsyncClient, first: int, pairs: int = 0) -> list[TailWrite]:
    """TAIL writes, one by one, and transactions; returns when all domains have heard of all of them."""
    tail: list[TailWrite] = []
    for number in range(first, first + TAIL):
        answer = await asked(client, "/v1/tables/tail/rows", {"rows": [{"id": number, "mark": number % MARKS}]})
        tail.append(TailWrite((number,), tokens.decode(answer["token"])))
    for number in range(first + TAIL, first + TAIL + 2 * pairs, 2):
        ids = number, number + 1
        text = "; ".join(f"INSERT INTO tail VALUES ({id}, {id % MARKS})" for id in ids)
        answer = await asked(client, "/v1/sql", {"sql": text, "atomic": True})
        tail.append(TailWrite(ids, tokens.decode(answer["token"])))
    keys, clock = [[mark] for mark in range(MARKS)], latest(each.positions for each in tail)
    await asked(client, "/v1/views/TailMarks/lookup", {"keys": keys}, str(tokens.encode(clock)))
    return tail


async def _destroy(stage: DrillStage, worker: str, lost: frozenset[int]) -> None:
    """First the directory and then the process: what the supervisor starts in its place finds nothing."""
    disk: Path = stage.means["disks"] / worker
    epoch, pid = stage.epoch, stage.cluster.pids()[worker]
    gone = disk.with_name(f"{worker}-gone")
    disk.rename(gone)
    stage.begin(lost)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(shutil.rmtree, gone)
    await stage.until_noticed(epoch)
    deadline = stage.now + WHOLE_SECONDS
    while True:  # An operator would have the machine back, with a new disk, before anything is given up.
        status = await stage.cluster.status()
        if status is not None and not any(
            "workers are away" in words for words in missing(status, stage.cluster.shape)
        ):
            return
        if stage.now > deadline:
            raise DrillFailed(f'worker "{worker}" did not come back with a new disk')
        await asyncio.sleep(LOOK_AGAIN)


async def _rebuild(stage: DrillStage) -> list[dict[str, Any]]:
    """Run the operator's command, again until the leader has noticed the loss."""
    deadline = stage.now + WHOLE_SECONDS
    where = ("--url", stage.cluster.url, "--secret-file", stage.cluster.data / "secret")
    while True:
        try:
            told: list[dict[str, Any]] = json.loads(
                await headrace("rebuild", "--lost", "--json", *where, "--by", stage.means["by"])
            )
            return told
        except DrillFailed:
            if stage.now > deadline:
                raise
        await asyncio.sleep(LOOK_AGAIN)


def _judge_names(stage: DrillStage, told: list[dict[str, Any]], archived: Clock, expected: Clock) -> None:
    """The writes that the command calls lost are exactly those after the last archiving."""
    strange = {each["by"] for each in told if each["position"]} - {stage.means["by"]}
    if strange:
        stage.broken.append(f"rebuilt by {strange}, and should be by {stage.means['by']}")
    for each in told:
        base = each["base"]
        last = expected.get(base, archived.get(base, 0))
        if (each["position"], each["known"]) != (archived.get(base, 0), last):
            stage.broken.append(f"{base}: archived up to {archived.get(base, 0)}, written up to {last}, named: {each}")
    unnamed = expected.keys() - {each["base"] for each in told}
    if unnamed:
        stage.broken.append(f"nothing is said of {', '.join(sorted(unnamed))}")
    stage.notes["rebuilt"].append(told)
    stage.notes["named_writes"] += sum(each["lost"] for each in told)


async def _judge_rows(
    stage: DrillStage, client: httpx.AsyncClient, kept: list[TailWrite], tail: list[TailWrite]
) -> None:
    """Exactly the writes that were archived, or whose shards were not lost, must be there."""
    wanted = {id for each in kept for id in each.ids}
    written = sorted(wanted | {id for each in tail for id in each.ids})
    there = {row["id"] for row in await _looked_up(client, "TailOf", written)}
    if there != wanted:
        stage.broken.append(f"of the tail {sorted(there)} are there, and should be {sorted(wanted)}")
    counted = sum(row["n"] for row in await _looked_up(client, "TailMarks", range(MARKS)))
    stage.notes["kept_writes"] += len(wanted)
    if counted != stage.notes["kept_writes"]:
        stage.broken.append(f"{counted} rows are counted by their marks, and {stage.notes['kept_writes']} should be")


async def _looked_up(client: httpx.AsyncClient, view: str, keys: Iterable[int]) -> list[dict[str, Any]]:
    answer = await asked(client, f"/v1/views/{view}/lookup", {"keys": [[key] for key in keys]})
    return [row for rows in answer["results"] for row in rows]
