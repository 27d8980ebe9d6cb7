"""Live views under load: how long from a write to the event, what an event costs the server, and what a subscription
takes; beside polling the same answers each second.

One server, in a process of its own, with its clients in this one, on the same machine. Stories have a vote count each;
every subscription follows one story. Some have a connection of their own, the others share some. Each write is a vote,
and an event's ``txid`` says of which write it is, so each arrival is held against the moment at which its write was
sent. In the end each subscription must show what a read shows.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import psutil
from rich.console import Console

from loadgen.peers.store import LoadRunError

SCHEMA = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, title VARCHAR(80));
CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT);
CREATE EXT VIEW Counted AS SELECT s.id AS id, s.title AS title, COUNT(v.id) AS votes FROM stories s
  LEFT JOIN votes v ON v.story = s.id WHERE s.id = ? GROUP BY s.id, s.title
"""
_ANSWERS = re.compile(r"answers at (https?://\S+)")
TOGETHER = 100
"""Subscriptions on a shared connection."""
OPENING = 64
"""Connections that are opened at once."""
LATE_SECONDS = 10.0
"""For the last events, after the last write."""


class EventArrivals:
    """What all subscriptions have heard: the moment of each write by its token, and how long its events took."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}
        self.early: dict[str, list[float]] = {}
        self.seconds: list[float] = []
        self.answered: list[float] = []
        """Seconds to the answers to writes."""
        self.events = self.steps = self.places = 0
        self.votes: dict[tuple[int, str], int] = {}
        """By connection and subscription."""

    def heard(self, token: str, now: float) -> None:
        self.events += 1
        began = self.sent.get(token)
        if began is None:  # The event overtakes the answer to the write.
            self.early.setdefault(token, []).append(now)
        else:
            self.seconds.append(now - began)

    def wrote(self, token: str, began: float) -> None:
        self.sent[token] = began
        self.answered.append(time.perf_counter() - began)
        self.seconds += [at - began for at in self.early.pop(token, ())]


class FollowedConnection:
    """One connection, read as it comes."""

    def __init__(self, arrivals: EventArrivals, number: int) -> None:
        self._arrivals = arrivals
        self._number = number
        self._task: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int, request: bytes, snapshots: int) -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=2**20)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise LoadRunError(f"the server answers {head[:100].decode('latin-1')}")
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._read(reader, writer, snapshots, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, snapshots: int, ready: asyncio.Event
    ) -> None:
        arrivals = self._arrivals
        try:
            while line := await reader.readline():
                if not line.startswith(b"data: ["):
                    arrivals.places += line.startswith(b"data: {")
                    continue
                arrivals.steps += 1
                now = time.perf_counter()
                messages = orjson.loads(line[6:])
                snapshots -= "control" in messages[0]["headers"]
                if snapshots <= 0:
                    ready.set()
                for each in messages:
                    if "value" in each:
                        arrivals.votes[self._number, each["type"]] = each["value"]["votes"]
                        if token := each["headers"].get("txid"):
                            arrivals.heard(token, now)
        finally:
            writer.close()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


Opened = tuple[FollowedConnection, int, Sequence[int]]
"""A connection, its number, and the stories that it follows."""


def run(*, subscriptions: int, single: int, keys: int, rate: float, seconds: float, out: Path | None) -> None:
    console = Console()
    found = asyncio.run(_measured(subscriptions, single, keys, rate, seconds, console.print))
    for name, value in found.items():
        console.print(f"{name:34} {value}")
    if out is not None:
        out.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


async def _measured(
    subscriptions: int, single: int, keys: int, rate: float, seconds: float, tell: Callable[[str], Any]
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "headrace", "serve", "--port", "0", "--data", data]
        limits = ["--max-connections-per-address", "20000", "--max-connections", "20000"]
        server = subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            url = next(said[1] for line in server.stdout if (said := _ANSWERS.search(line)))
            async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
                return await _with(http, psutil.Process(server.pid), subscriptions, single, keys, rate, seconds, tell)
        finally:
            server.terminate()
            server.wait()


async def _with(
    http: httpx.AsyncClient,
    process: psutil.Process,
    subscriptions: int,
    single: int,
    keys: int,
    rate: float,
    seconds: float,
    tell: Callable[[str], Any],
) -> dict[str, Any]:
    (await http.post("/v1/sql", json={"sql": SCHEMA})).raise_for_status()
    stories = [{"id": key, "title": f"a story of some length, {key}"} for key in range(keys)]
    (await http.post("/v1/tables/stories/rows", json={"rows": stories})).raise_for_status()
    wanted = {"keys": [[key] for key in range(keys)]}
    (await http.post("/v1/views/Counted/lookup", json=wanted)).raise_for_status()
    writes = Writes(http, keys)
    tell("writes without readers …")
    alone, _ = await _cpu(process, writes.run(rate, seconds, EventArrivals()))
    arrivals = EventArrivals()
    before = process.memory_info().rss
    readers = await _opened(str(http.base_url), arrivals, subscriptions, single, keys)
    size = process.memory_info().rss - before
    tell(f"{subscriptions} subscriptions are open; writes …")
    used, took = await _cpu(process, writes.run(rate, seconds, arrivals))
    until = time.perf_counter() + LATE_SECONDS
    while time.perf_counter() < until and arrivals.events < len(arrivals.sent) * subscriptions // keys // 2:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    wrong = await _wrong(http, arrivals, readers, keys)
    for reader, _, _ in readers:
        reader.close()
    tell("polling the same answers …")
    polled = await _polled(http, process, keys, min(seconds, 5.0))
    times, answered = sorted(arrivals.seconds), sorted(arrivals.answered)
    delivered = max(arrivals.steps, arrivals.places)
    return {
        "subscriptions": subscriptions,
        "connections": len(readers),
        "writes/s": round(len(arrivals.sent) / took, 1),
        "events": arrivals.events,
        "write to event p50, ms": round(1000 * times[len(times) // 2], 1),
        "write to event p99, ms": round(1000 * times[len(times) * 99 // 100], 1),
        "write to answer p50, ms": round(1000 * answered[len(answered) // 2], 1),
        "write to answer p99, ms": round(1000 * answered[len(answered) * 99 // 100], 1),
        "events that only moved the offset": delivered - arrivals.steps,
        "server CPU an event, µs": round(1e6 * (used - alone) / delivered, 1),
        "server CPU share": round(used / took, 2),
        "bytes a subscription": round(size / subscriptions),
        "answers that differ from a read": wrong,
        "polling: CPU a poll, µs": round(1e6 * polled, 1),
    }


class Writes:
    """Votes for random stories at a rate, a few on their way at once."""

    def __init__(self, http: httpx.AsyncClient, keys: int) -> None:
        self._http = http
        self._keys = keys
        self._number = 0
        self._random = Random(1)

    async def run(self, rate: float, seconds: float, arrivals: EventArrivals) -> None:
        began, tasks = time.perf_counter(), list[asyncio.Task[None]]()
        for at in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + at / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(self._one(arrivals)))
        await asyncio.gather(*tasks)

    async def _one(self, arrivals: EventArrivals) -> None:
        self._number += 1
        row = {"id": self._number, "story": self._random.randrange(self._keys)}
        began = time.perf_counter()
        answer = await self._http.post("/v1/tables/votes/rows", json={"rows": [row]})
        arrivals.wrote(answer.raise_for_status().json()["token"], began)


async def _cpu(process: psutil.Process, work: Any) -> tuple[float, float]:
    """Seconds of the server's processor time, and of the clock."""
    times, began = process.cpu_times(), time.perf_counter()
    await work
    after = process.cpu_times()
    return after.user + after.system - times.user - times.system, time.perf_counter() - began


async def _opened(url: str, arrivals: EventArrivals, subscriptions: int, single: int, keys: int) -> list[Opened]:
    """Each connection, its number, and the stories that it follows."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    turn = asyncio.Semaphore(OPENING)
    groups = [[at % keys] for at in range(single)]
    shared = [at % keys for at in range(single, subscriptions)]
    groups += [shared[at : at + TOGETHER] for at in range(0, len(shared), TOGETHER)]

    async def one(number: int, group: list[int]) -> Opened:
        reader = FollowedConnection(arrivals, number)
        if number < single:
            head = f"GET /v1/views/Counted/live?id={group[0]}&live=sse HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        else:
            asked = [{"view": "Counted", "parameters": {"id": key}, "name": f"{key}"} for key in group]
            body = json.dumps({"subscriptions": asked}).encode()
            start = f"POST /v1/live HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
            head = start.encode() + body
        async with turn:
            await reader.open(host, port, head, len(group))
        return reader, number, group

    return list(await asyncio.gather(*(one(number, group) for number, group in enumerate(groups))))


async def _wrong(
    http: httpx.AsyncClient,
    arrivals: EventArrivals,
    readers: Sequence[Opened],
    keys: int,
) -> int:
    answer = await http.post("/v1/views/Counted/lookup", json={"keys": [[key] for key in range(keys)]})
    right = [rows[0]["votes"] for rows in answer.raise_for_status().json()["results"]]
    shown = [
        (arrivals.votes[number, "Counted" if len(group) == 1 else str(key)], right[key])
        for _, number, group in readers
        for key in group
    ]
    return sum(has != is_right for has, is_right in shown)


async def _polled(http: httpx.AsyncClient, process: psutil.Process, keys: int, seconds: float) -> float:
    """Processor time of one read of an answer."""
    count = 0

    async def polls(turn: int) -> None:
        nonlocal count
        until, key = time.perf_counter() + seconds, turn
        while time.perf_counter() < until:
            (await http.get(f"/v1/views/Counted?id={key % keys}")).raise_for_status()
            count, key = count + 1, key + 7

    used, _ = await _cpu(process, asyncio.gather(*(polls(turn) for turn in range(8))))
    return used / count
