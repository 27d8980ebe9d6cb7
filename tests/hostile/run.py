"""Runs lines, each beside a client that polls a view, and judges what that client saw."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import httpx

from tests.hostile.lines import LINES, Target

SCHEMA = """CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT); CREATE TABLE bag (a BIGINT, b BIGINT);
CREATE EXT VIEW V AS SELECT id, a FROM t WHERE id = ?; CREATE EXT VIEW Wide AS SELECT b FROM t WHERE id = ?;
CREATE TABLE many (id BIGINT PRIMARY KEY, a BIGINT, b TEXT); CREATE EXT VIEW Whole AS SELECT id, a, b FROM many;
CREATE EXT VIEW Late AS SELECT id, a, b FROM many WHERE a > ? OR b LIKE ? ORDER BY b, id"""
MANY_ROWS = 50_000
LIMITS = ("--request-timeout", "2", "--max-connections-per-address", "300")
"""Beside the defaults, so that what takes a minute takes seconds."""
P99_SECONDS = 0.050
GROWTH_BYTES = 150_000_000
"""That a line may leave behind: the allocator's, RocksDB's, and rows that were inserted."""
START_SECONDS = 60.0


@dataclass(frozen=True)
class Seen:
    line: str
    polls: list[float]
    before: int
    most: int
    after: int
    heard: dict[str, int]
    said: str

    def at(self, share: float) -> float:
        return (
            sorted(self.polls)[min(len(self.polls) - 1, int(share * len(self.polls)))] if self.polls else float("inf")
        )

    def text(self) -> str:
        latency = " ".join(f"{name} {self.at(share) * 1e3:7.1f}" for name, share in (("p50", 0.5), ("p99", 0.99)))
        sizes = " → ".join(f"{size / 1e6:.0f}" for size in (self.before, self.most, self.after))
        return (
            f"{self.line:20} {latency} max {self.at(1) * 1e3:7.1f} ms   {sizes:>16} MB   {self.heard} {self.said[:70]}"
        )

    def faults(self) -> list[str]:
        wanted = LINES[self.line][1]
        return [
            *([f"p99 of the poller is {self.at(0.99) * 1e3:.0f} ms"] if self.at(0.99) > P99_SECONDS else []),
            *([f"{self.after - self.before:,} bytes are left"] if self.after - self.before > GROWTH_BYTES else []),
            *([f"no {wanted} was heard"] if wanted and wanted not in self.heard else []),
        ]


@contextlib.asynccontextmanager
async def server(directory: Path, *options: str) -> AsyncIterator[tuple[int, int]]:
    """Port and process."""
    serve = (sys.executable, "-m", "headrace", "serve", "--data", str(directory / "data"), "--port", "0")
    command = [*serve, *LIMITS, *options]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            assert process.stdout is not None
            port = None
            while port is None:
                line = await asyncio.to_thread(process.stdout.readline)
                assert line, f"the server ended: see {log.name}"
                port = re.search(r"127\.0\.0\.1:(\d+)", line)
            yield int(port[1]), process.pid
        except Exception:
            with contextlib.suppress(subprocess.TimeoutExpired):
                print(f"the server ended with {process.wait(10)}: {Path(log.name).read_text()[-5_000:]}")
            raise
        finally:
            process.terminate()
            process.wait(60)


async def prepare(port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        until = time.monotonic() + START_SECONDS
        while (await http.get("/readyz")).status_code != 200:
            assert time.monotonic() < until, "the server does not serve"
            await asyncio.sleep(0.05)
        (await http.post("/v1/sql", json={"sql": SCHEMA})).raise_for_status()
        rows = [{"id": each, "a": each, "b": "x" * 10_000} for each in range(10)]
        (await http.post("/v1/tables/t/rows", json={"rows": rows})).raise_for_status()
        many = [{"id": each, "a": each % 100, "b": f"{each % 977} of many"} for each in range(MANY_ROWS)]
        (await http.post("/v1/tables/many/rows", json={"rows": many})).raise_for_status()


def children(pid: int) -> list[str]:
    """The processes that it has begun, and that run."""
    found = [path.read_text("ascii").split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return list(chain.from_iterable(found))


def resident(pid: int, *, whole: bool = True) -> int:
    """Of the process, and of the children that it has."""
    total = 0
    for each in (str(pid), *(children(pid) if whole else ())):
        with contextlib.suppress(OSError):
            found = re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{each}/status").read_text("ascii"))
            total += int(found[1]) * 1024 if found else 0  # One that ends has none.
    return total


async def beginning(port: int) -> asyncio.subprocess.Process:
    """The poller, once it polls."""
    poller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.hostile.poller", str(port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert poller.stdout is not None
    await poller.stdout.readline()
    return poller


async def beside(name: str, port: int, pid: int, seconds: float, seed: int) -> Seen:
    """Run the line, and another process that polls."""
    target = Target(port, random.Random(seed))
    before = most = resident(pid)
    poller = await beginning(port)
    line = asyncio.ensure_future(LINES[name][0](target))
    wanted, until = LINES[name][1], time.monotonic() + seconds
    while time.monotonic() < until or (
        wanted and wanted not in target.heard and time.monotonic() < until + 20 * seconds
    ):
        await asyncio.wait([line], timeout=0.1)
        if line.done():
            line.result()
        most = max(most, resident(pid))
    line.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await line
    told, _ = await poller.communicate(b"stop\n")
    await asyncio.sleep(min(3.0, seconds))
    return Seen(name, json.loads(told), before, most, resident(pid), target.heard, target.said)


async def run(directory: Path, names: list[str], seconds: float, seed: int) -> list[Seen]:
    found = []
    async with server(directory) as (port, pid):
        await prepare(port)
        for name in names:
            found.append(await beside(name, port, pid, seconds, seed))
            print(found[-1].text(), flush=True)
    return found
