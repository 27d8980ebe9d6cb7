"""All lines at once beside a client that polls a view, for as long as wanted, while the server's size is looked at.

What they insert is dropped now and then: the disk is not what is tried here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from pathlib import Path

import httpx

from tests.hostile.lines import LINES, Line, Target, post
from tests.hostile.run import beginning, children, prepare, resident, server

LIMIT_BYTES = 256_000_000
OVER = 1.25
"""Times the limit, beyond what the process took when it was empty."""
CHILD_BYTES = 60_000_000
"""That a child without work takes for itself: the interpreter, and the code that it has loaded."""
LOOK_SECONDS = 0.5
TELL_SECONDS = 60.0
SWEEP_SECONDS = 30.0
REST_SECONDS = 90.0
"""After the last request: longer than processes beside stay without work, and than old cycles do."""


async def _again(line: Line, target: Target) -> None:
    """A client whose connection is cut comes again."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await line(target)
        await asyncio.sleep(0.1)


async def _sweeping(target: Target) -> None:
    """The table that rows are inserted into goes, and comes empty."""
    sql = json.dumps({"sql": "DROP TABLE bag; CREATE TABLE bag (a BIGINT, b BIGINT)"}).encode()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        await post(target, "/v1/sql", sql)


async def _memory(http: httpx.AsyncClient) -> str:
    """As the server says it; it may have no connection left."""
    try:
        found = await http.get("/v1/status")
        return str(found.json().get("memory", found.text))
    except httpx.HTTPError as error:
        return repr(error)


async def soak(directory: Path, seconds: float, seed: int) -> list[str]:
    """What is wrong. Prints sizes in MB: the process's, and with the children that it has."""
    async with server(directory, "--memory-limit", str(LIMIT_BYTES)) as (port, pid):
        own = resident(pid, whole=False)
        await prepare(port)
        poller = await beginning(port)
        targets = {name: Target(port, random.Random(f"{seed} {name}")) for name in (*LINES, "sweeping")}
        lines = {**{name: line for name, (line, _) in LINES.items()}, "sweeping": _sweeping}
        clients = [asyncio.create_task(_again(line, targets[name])) for name, line in lines.items()]
        most = told = 0.0
        whole, began = 0, time.monotonic()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            while (passed := time.monotonic() - began) < seconds:
                await asyncio.wait(clients, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for each in clients:
                    if each.done():
                        each.result()
                size = resident(pid, whole=False)
                most, whole = max(most, size), max(whole, resident(pid))
                if passed >= told:
                    told += TELL_SECONDS
                    print(f"{passed:6.0f} s {size / 1e6:5.0f} MB {await _memory(http)}", flush=True)
        for each in clients:
            each.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        told_by_poller, _ = await poller.communicate(b"stop\n")
        await asyncio.sleep(min(REST_SECONDS, seconds))
        left, left_whole, others = resident(pid, whole=False), resident(pid), children(pid)
    polls = sorted(json.loads(told_by_poller))
    bound = int(OVER * LIMIT_BYTES) + own
    bound_whole = bound + len(others) * CHILD_BYTES
    print(
        f"process {own / 1e6:.0f} MB at the start, at most {most / 1e6:.0f}, {left / 1e6:.0f} at the end (bound "
        f"{bound / 1e6:.0f}); with its children at most {whole / 1e6:.0f}, {left_whole / 1e6:.0f} at the end with "
        f"{len(others)} of them (bound {bound_whole / 1e6:.0f})\n"
        f"poller: {len(polls)} answers, p50 {polls[len(polls) // 2] * 1e3:.1f} "
        f"p99 {polls[int(len(polls) * 0.99)] * 1e3:.1f} max {polls[-1] * 1e3:.0f} ms"
    )
    for name, target in targets.items():
        print(f"{name:20} {target.heard} {target.said[:90]}", file=sys.stderr)
    sizes = {"": (left, bound), " with the children": (left_whole, bound_whole)}
    return [f"{size:,} bytes are left{what}" for what, (size, most) in sizes.items() if size > most]
