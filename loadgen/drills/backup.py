"""``backup``: back-ups are taken while tables are written and replaced; each is restored, and judged by what was
acknowledged before it.

::

    the load                    inserts, deletes and updates of entries and stories, by many clients
    beside it, in turn          INSERT ─► … ─► CREATE TABLE swapped_2, INSERT … SELECT, DROP TABLE swapped_1 ─► …
    meanwhile, several times    headrace backup ─► headrace restore ─► every table that is there is read

Of the load's tables a back-up has what was acknowledged before it was asked for, and nothing that nobody wrote. Of the
tables that replace one another at least one is in it, with all rows that were acknowledged before. What was dropped
before is not in it; what was there all the time is. Names come again: a table is created under that of one that was
dropped. The clocks of all processes are an hour ahead at first, and are set back between two back-ups, each time by
more. And the archive itself, restored as of the time of each back-up when all are taken, has what that has.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from loadgen.drills.cluster import DrillCluster, DrillFailed, asked, headrace
from loadgen.drills.stage import DrillStage
from worker.archive.options import CLOCK_SHIFT

BACKUPS = 3
"""Back-ups in a round."""
AT_ONCE = 20
"""Rows to a write."""
WRITES = 4
"""Writes between two replacements."""
CLOCKS = (3600.0, 3570.0, 0.0)
"""Seconds by which the processes' clocks are wrong, back-up by back-up: a step of 30 s, and one of an hour."""
NAMES = 3
"""Names of the tables that replace one another."""


@dataclass
class History:
    """Requests of the drill, and which of them were acknowledged."""

    number: int = 1
    """Number of the table that is written."""
    asked: int = 0
    """Number of rows sent; rows are numbered from 0."""
    kept: int = 0
    """Number of rows acknowledged, always the first ones."""
    here: set[str] = field(default_factory=set)
    """Tables whose creation was acknowledged and whose drop was not requested."""
    gone: set[str] = field(default_factory=set)
    """Tables whose drop was acknowledged and whose creation was not requested again."""
    made: Counter[str] = field(default_factory=Counter)
    """Number of creations requested of each name."""
    token: str = ""

    @property
    def table(self) -> str:
        return f"swapped_{self.number % NAMES}"


@asynccontextmanager
async def means(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    clock = cluster.data.absolute().parent / "clock"
    clock.write_text(str(CLOCKS[0]))
    archive = {"HEADRACE_ARCHIVE": str((cluster.data / "archive").absolute()), CLOCK_SHIFT: str(clock)}
    for kind in ("worker", "controller", "api"):
        cluster.started_with(kind, archive)
    yield {"clock": clock}


async def prepare(stage: DrillStage) -> None:
    history = stage.means["history"] = History()
    stage.notes |= {"backups": 0, "replaced": 0, "rows": 0, "times": 0}
    async with stage.cluster.client() as client:
        await _create(client, history)


async def take(stage: DrillStage) -> None:
    history: History = stage.means["history"]
    stage.begin(())
    writing = asyncio.create_task(_write_on(stage, history))
    try:
        taken = []
        for number in range(BACKUPS):
            _set_clocks(stage, CLOCKS[number % len(CLOCKS)])
            taken.append(await _take_one(stage, history))
            if writing.done():
                break
        for each in taken:
            await _judge_time(stage, *each)
    finally:
        writing.cancel()
        (ended,) = await asyncio.gather(writing, return_exceptions=True)
    if not isinstance(ended, asyncio.CancelledError):
        raise DrillFailed(f"the tables could not be written and replaced: {ended}")


def _set_clocks(stage: DrillStage, wrong: float) -> None:
    """Replaced as a whole: it is read at any time."""
    clock: Path = stage.means["clock"]
    anew = clock.with_suffix(".new")
    anew.write_text(str(wrong))
    anew.rename(clock)


# --- what is written --------------------------------------------------------------------------------------------------


async def _write_on(stage: DrillStage, history: History) -> None:
    async with stage.cluster.client() as client:
        while True:
            for _ in range(WRITES):
                first = history.asked
                history.asked += AT_ONCE
                values = ", ".join(f"({number})" for number in range(first, history.asked))
                # One that was broken off with the round before may be there already.
                await _sql(client, history, f"REPLACE INTO {history.table} VALUES {values}")
                history.kept = history.asked
            former = history.table
            history.number += 1
            await _create(client, history)
            await _sql(client, history, f"INSERT INTO {history.table} SELECT id FROM {former}")
            history.here.discard(former)
            await _sql(client, history, f"DROP TABLE {former}")
            history.gone.add(former)
            stage.notes["replaced"] += 1


async def _create(client: httpx.AsyncClient, history: History) -> None:
    history.gone.discard(history.table)
    history.made[history.table] += 1
    await _sql(client, history, f"CREATE TABLE {history.table} (id BIGINT NOT NULL PRIMARY KEY)")
    history.here.add(history.table)


async def _sql(client: httpx.AsyncClient, history: History, sql: str) -> None:
    answer = await asked(client, "/v1/sql", {"sql": sql}, history.token)
    history.token = answer.get("token") or history.token


# --- what is restored -------------------------------------------------------------------------------------------------


Tables = dict[str, list[tuple[int, ...]]]


async def _take_one(stage: DrillStage, history: History) -> tuple[str, Tables]:
    """The time of the cut, and what is restored of it."""
    number = stage.notes["backups"] = stage.notes["backups"] + 1
    directory = stage.directory / "backups" / str(number)
    kept, here, gone, made = history.kept, set(history.here), set(history.gone), history.made.copy()
    load = stage.load
    assert load is not None
    await load.order("mark")
    await headrace("backup", directory / "taken", "--url", stage.cluster.url)
    unchanged = {table for table in here | gone if history.made[table] == made[table]}
    sent, here, gone = history.asked, here & history.here & unchanged, gone & unchanged
    time = str(json.loads((directory / "taken" / "backup.json").read_text())["time"])
    found = await _restored(stage, directory / "taken", directory / "data")
    swapped = {name: {row[0] for row in rows} for name, rows in found.items() if name.startswith("swapped_")}
    problems = judge(swapped, kept=kept, asked=sent, here=here, gone=gone)
    judged = await load.order("judge_copy", entries=found["entries"], revisions=found["stories"])
    wrong = {kind: count for kind, count in judged["findings"].items() if count}
    problems += [f"of the load's rows: {wrong}"] if wrong else []
    stage.broken += [f"back-up {number}: {problem}" for problem in problems]
    stage.notes["rows"] += sum(map(len, found.values()))
    if not problems:
        await asyncio.to_thread(shutil.rmtree, directory)
    return time, found


async def _judge_time(stage: DrillStage, time: str, wanted: Tables) -> None:
    """The archive as of the cut of a back-up, when others have been recorded since."""
    directory = stage.directory / "backups" / "as-of"
    archive = stage.cluster.data / "archive"
    found = await _restored(stage, archive, directory, "--as-of", time)
    if found == wanted:
        stage.notes["times"] += 1
        await asyncio.to_thread(shutil.rmtree, directory)
        return
    differ = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
    stage.broken.append(f"as of {time} the archive has not what the back-up of then has: {', '.join(differ)}")


async def _restored(stage: DrillStage, source: Path, data: Path, *options: str) -> Tables:
    await headrace("restore", source, "--data", data, *options)
    return await asyncio.to_thread(_tables, data, stage.cluster.shape.shards)


def judge(found: dict[str, set[int]], *, kept: int, asked: int, here: set[str], gone: set[str]) -> list[str]:
    """What is wrong with a restored back-up, in words. ``kept`` and ``gone`` are of before it was asked for, ``asked``
    of when it was there, ``here`` of both."""
    problems = [f'table "{table}" is missing' for table in sorted(here - found.keys())]
    problems += [f'table "{table}" was dropped before, and is there' for table in sorted(gone & found.keys())]
    rows = set[int]().union(*found.values())
    missing = sorted(set(range(kept)) - rows)
    if missing:
        problems.append(f"{len(missing)} of {kept} acknowledged rows are missing: {missing[:5]} …")
    strange = sorted(rows - set(range(asked)))
    if strange:
        problems.append(f"{len(strange)} rows are there that nobody had sent: {strange[:5]} …")
    return problems


COLUMNS = {"entries": "story_id, id, user_id, amount", "stories": "id, revision"}
"""Columns to read of the load's tables; of the others ``id``."""


def _tables(data: Path, shards: int) -> Tables:
    """All tables, as a server on the restored directory has them."""
    from headrace.embedding import embedded  # Late: only this drill serves in its own process.

    with embedded(data, shards=shards) as db:
        names = [str(table["name"]) for table in db.tables()]
        reads = {name: f"SELECT {COLUMNS.get(name, 'id')} FROM {name}" for name in names}
        return {name: sorted(tuple(map(int, row)) for row in db.execute(sql).rows) for name, sql in reads.items()}
