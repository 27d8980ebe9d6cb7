"""The rows that ``replay.py`` reads back: made from a seed and written without HTTP, into a folder that may be kept."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from controller.embedded.local import LocalDeployment
from domains.language.types import Row
from headrace.bench.program import load
from headrace.errors import BadRequest
from headrace.sizes import format_size

Tell = Callable[[str], None]

PROGRAM = """
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE stories (id INT PRIMARY KEY, author INT, INDEX (author));
CREATE TABLE votes (user INT, story INT, INDEX (story));
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n FROM votes WHERE story = ?;
"""

TELL_SECONDS = 30.0
"""Between two lines of how far something is: what is done with ten million rows takes minutes."""
TELL_ROWS = 1_000
"""Between two looks at the clock."""
BYTES_PER_ROW = 600
"""Of the disk at the peak: 180 in RocksDB, 20 archived, 100 of what is folded; RocksDB needs as much again while it
compacts, and what a bulk job spools."""


def ready(folder: Path, rows: int, tell: Tell) -> float | None:
    """See to it that ``folder/data`` has so many rows: of a hundred, 94 are votes, five stories and one is a user. The
    seconds that it took, None where they were there. What a run left that was broken off meanwhile is made anew."""
    mark = folder / "rows"
    if mark.exists() and mark.read_text("utf-8") == str(rows):
        tell(f"the {rows:,} rows in {folder} are there")
        return None
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise BadRequest(f'"{folder}" is not empty, and not of a former run', hint="name a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text("", "utf-8")
    for each in ("data", "archive"):
        shutil.rmtree(folder / each, ignore_errors=True)
    free, needed = shutil.disk_usage(folder).free, rows * BYTES_PER_ROW
    if free < needed:
        raise BadRequest(f'"{folder}" has {format_size(free)} free of some {format_size(needed)}', hint="--folder DIR")
    tell(f"loading {rows:,} rows …")
    began = time.perf_counter()
    asyncio.run(_fill(folder / "data", rows, tell))
    mark.write_text(str(rows), "utf-8")
    return time.perf_counter() - began


async def _fill(path: Path, rows: int, tell: Tell) -> None:
    stories, users, random = rows // 20, rows // 100, Random(1)
    votes, told = rows - stories - users, seldom(tell)

    def counted(table: str, of: int, each: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(each):
            if number % TELL_ROWS == 0:
                told(f"{table}: {number:,} of {of:,}")
            yield row

    deployment = await LocalDeployment.open(path)
    try:
        await deployment.execute(PROGRAM)
        await load(deployment, "users", counted("users", users, ((i, f"user{i}") for i in range(users))))
        made = ((i, random.randrange(users)) for i in range(stories))
        await load(deployment, "stories", counted("stories", stories, made))
        cast = ((random.randrange(10**9), random.randrange(stories)) for _ in range(votes))
        await load(deployment, "votes", counted("votes", votes, cast))
    finally:
        await deployment.close()


def seldom(tell: Tell) -> Tell:
    """Tells of what it is told once in ``TELL_SECONDS``, with the seconds since this was called."""
    began = told = time.perf_counter()

    def tell_now(text: str) -> None:
        nonlocal told
        if time.perf_counter() - told > TELL_SECONDS:
            told = time.perf_counter()
            tell(f"  {told - began:.0f} s: {text}")

    return tell_now
