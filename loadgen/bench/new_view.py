"""A view that is new on a table of a million rows: until its first answer.

Against it stands the same view computed whole: CREATE TABLE AS in DuckDB, in memory, with all of the machine's cores,
in a process of its own. Ours is the whole way through the deployment: parse, plan, migrate, first read of a key (a
miss, its upquery, its fill). The base tables have the indexes that the view pulls by, as they have where an INDEX was
declared or another view has brought one; without, building one would be most of the time.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import median

from controller.embedded.local import LocalDeployment
from domains.language.types import Row
from headrace.errors import HeadraceError
from loadgen.bench.measurement import Measurement
from loadgen.bench.program import load, story
from worker.service.system import expect_long_lives

# The peer: DuckDB computes the view whole, in a process of its own.
#
# ``python -m loadgen.bench.new_view DIR`` loads ``DIR/stories.csv`` and ``DIR/votes.csv``, says ``ready``, and
# computes the SELECT of each line that it reads; the answer is how many seconds that took, without the way to here.


class Recomputation:
    """The process as its caller sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def seconds(self, select: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(select.split()) + "\n")
        self._process.stdin.flush()
        return float(self.line())

    def line(self) -> str:
        """The child's next line. Raises ChildProcessError if it has ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError("the process of DuckDB has ended")
        return line.strip()


@contextmanager
def recomputation(directory: Path) -> Iterator[Recomputation]:
    """Over the files in the directory; it is ready when this begins."""
    command = [sys.executable, "-m", "loadgen.bench.new_view", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = Recomputation(process)
            assert found.line() == "ready"
            yield found
        finally:
            process.kill()


def _compute(directory: Path) -> None:
    import duckdb

    peer = duckdb.connect()
    peer.execute("CREATE TABLE stories (id INTEGER PRIMARY KEY, author INTEGER, title VARCHAR, url VARCHAR)")
    peer.execute("CREATE TABLE votes (user_id INTEGER, story_id INTEGER)")
    for name in ("stories", "votes"):
        peer.execute(f"COPY {name} FROM '{directory / name}.csv' (HEADER false)")
    print("ready", flush=True)
    for select in sys.stdin:
        begun = time.perf_counter()
        peer.execute(f"CREATE TABLE fresh AS {select}")
        taken = time.perf_counter() - begun
        peer.execute("DROP TABLE fresh")
        print(taken, flush=True)


GOAL = 20.0

TABLES = """
CREATE TABLE stories (id int PRIMARY KEY, author int, title text, url text, INDEX (author));
CREATE TABLE votes (user int, story_id int, INDEX (story_id));
"""
SELECT = """
SELECT id, author, title, url, vcount FROM stories
  JOIN (SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id) AS counted ON counted.story_id = stories.id
"""


class DuckDBMissing(HeadraceError):
    """The peer is a development dependency."""

    code = "duckdb_missing"


def measure(directory: Path, quick: bool) -> Measurement:
    if find_spec("duckdb") is None:
        raise DuckDBMissing("this measurement needs duckdb", hint="pip install headrace[dev]")
    return asyncio.run(_measure(directory, quick))


async def _measure(directory: Path, quick: bool) -> Measurement:
    votes, stories, rounds = (50_000, 50_000, 3) if quick else (1_000_000, 1_000_000, 7)

    def story_rows() -> Iterator[Row]:
        return (story(number) for number in range(1, stories + 1))

    def vote_rows() -> Iterator[Row]:
        random = Random(1)
        return ((random.randrange(1_000_000), random.randrange(stories) + 1) for _ in range(votes))

    deployment = await LocalDeployment.open(directory / "ours", memory_limit=2**32)
    await deployment.execute(TABLES)
    loading = time.perf_counter()
    await load(deployment, "stories", story_rows())
    await load(deployment, "votes", vote_rows())
    loading = time.perf_counter() - loading
    _write_files(directory, story_rows(), vote_rows())
    expect_long_lives()  # As ``headrace serve`` does.
    ours: list[float] = []
    theirs: list[float] = []
    with recomputation(directory) as peer:
        for number in range(rounds):
            begun = time.perf_counter()
            await deployment.execute(f"CREATE VIEW Fresh{number} AS {SELECT} WHERE stories.author = ?")
            page = await deployment.page(f"Fresh{number}", {"author": [str(number + 1)]})
            ours.append(time.perf_counter() - begun)
            assert page.startswith(b'{"id":'), page[:80]
            await deployment.execute(f"DROP VIEW Fresh{number}")
            theirs.append(peer.seconds(SELECT))
    await deployment.close()
    return Measurement(
        "new-view",
        f"new partial view on {votes:,} votes and {stories:,} stories, until its first answer",
        "CREATE TABLE AS of all of it in DuckDB",
        f"{median(ours) * 1000:.1f} ms",
        f"{median(theirs) * 1000:.1f} ms",
        median(b / a for a, b in zip(ours, theirs, strict=True)),
        GOAL,
        details={
            "rounds": rounds,
            "our_milliseconds": [round(each * 1000, 2) for each in ours],
            "their_milliseconds": [round(each * 1000, 2) for each in theirs],
            "loading_rows_per_second": round((votes + stories) / loading),
        },
    )


def _write_files(directory: Path, stories: Iterator[Row], votes: Iterator[Row]) -> None:
    """The same rows for DuckDB: a million INSERTs would take longer than all the rest.

    Neither side's rows stay in this process as Python objects, of which each collection of garbage would visit all.
    """
    for name, rows in (("stories", stories), ("votes", votes)):
        with open(directory / f"{name}.csv", "w", encoding="utf-8") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in rows)


if __name__ == "__main__":
    _compute(Path(sys.argv[1]))
