"""Live views under load: how long from a write to the event, what an event costs the server, and what a subscription
takes; beside polling the same answers each second.

One server, in a process of its own, with its clients in this one, on the same machine. Stories have a vote count each;
every subscription follows one story. Some have a connection of their own, by server-sent events, the others share
WebSockets. Each write is a vote, and an event's ``txid`` says of which write it is, so each arrival is held against the
moment at which its write was sent. In the end each subscription must show what a read shows.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import psutil
from rich.console import Console
from websockets.frames import Frame, Opcode

from loadgen.peers.store import LoadRunError

SCHEMA = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, title VARCHAR(80));
CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT);
CREATE EXT VIEW Counted AS SELECT s.id AS id, s.title AS title, COUNT(v.id) AS votes FROM stories s
  LEFT JOIN votes v ON v.story = s.id WHERE s.id = ? GROUP BY s.id, s.title
"""
_ANSWERS = re.compile(r"answers at (https?://\S+)")
_LENGTH = re.compile(rb"content-length: (\d+)", re.I)
TOGETHER = 100
"""Subscriptions on a WebSocket."""
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
    """One connection, read as it comes: first it is made, then it is asked for what it follows."""

    def __init__(self, arrivals: EventArrivals, number: int, host: str, port: int) -> None:
        self._arrivals = arrivals
        self._number = number
        self._host, self._port = host, port
        self._task: asyncio.Task[None] | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> None:
        """As far as a connection goes that nobody follows anything by."""
        await self._ask(b"GET /healthz HTTP/1.1\r\nHost: %b\r\n\r\n" % self._host.encode(), b" 200 ")

    async def follow(self, keys: Sequence[int]) -> None:
        """By server-sent events, which is one answer."""
        line = f"GET /v1/views/Counted/live?id={keys[0]}&live=sse HTTP/1.1\r\nHost: {self._host}\r\n\r\n"
        self._writer.write(line.encode())
        await self._head(b" 200 ")
        await self._begin(len(keys))

    async def _ask(self, request: bytes, wanted: bytes) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=2**20)
        self._writer.write(request)
        head = await self._head(wanted)
        if length := _LENGTH.search(head):
            await self._reader.readexactly(int(length[1]))

    async def _head(self, wanted: bytes) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        if wanted not in head.split(b"\r\n", 1)[0]:
            raise LoadRunError(f"the server answers {head[:100].decode('latin-1')}")
        return head

    async def _begin(self, snapshots: int) -> None:
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._read(snapshots, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def _next(self) -> bytes:
        """The JSON of the next event; empty at the end."""
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                return line[6:]
        return b""

    async def _read(self, snapshots: int, ready: asyncio.Event) -> None:
        arrivals = self._arrivals
        try:
            while text := await self._next():
                if text[:1] == b"{":
                    arrivals.places += 1
                    continue
                now = time.perf_counter()
                messages = orjson.loads(text)
                if not messages:
                    continue
                arrivals.steps += 1
                snapshots -= "control" in messages[0]["headers"]
                if snapshots <= 0:
                    ready.set()
                for each in messages:
                    if "value" in each:
                        arrivals.votes[self._number, each["type"]] = each["value"]["votes"]
                        if token := each["headers"].get("txid"):
                            arrivals.heard(token, now)
        finally:
            self._writer.close()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


class FollowedSocket(FollowedConnection):
    """By a WebSocket, which is many answers."""

    async def connect(self) -> None:
        head = f"GET /v1/live HTTP/1.1\r\nHost: {self._host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        await self._ask((head + key).encode(), b" 101 ")

    async def follow(self, keys: Sequence[int]) -> None:
        asked = [{"view": "Counted", "parameters": {"id": key}, "name": f"{key}"} for key in keys]
        said = orjson.dumps({"subscribe": asked})
        self._writer.write(Frame(Opcode.TEXT, said).serialize(mask=True))
        await self._begin(len(keys))

    async def _next(self) -> bytes:
        """The next text; pings are answered."""
        reader = self._reader
        while True:
            try:
                first, size = await reader.readexactly(2)
                if size > 125:
                    size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
                payload = await reader.readexactly(size)
            except asyncio.IncompleteReadError:
                return b""
            if first & 0x0F == Opcode.TEXT:
                return payload
            if first & 0x0F == Opcode.CLOSE:
                return b""
            if first & 0x0F == Opcode.PING:
                self._writer.write(Frame(Opcode.PONG, payload).serialize(mask=True))


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
    readers = _connections(str(http.base_url), arrivals, subscriptions, single, keys)
    await _all([reader.connect for reader, _, _ in readers])
    bare = process.memory_info().rss
    await _all([partial(reader.follow, group) for reader, _, group in readers])
    size = process.memory_info().rss - bare
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
        "bytes a connection before that": round((bare - before) / len(readers)),
        "answers that differ from a read": wrong,
        "polling: CPU a poll, µs": round(1e6 * polled, 1),
        "polling all each second: CPU share": round(polled * subscriptions, 2),
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


def _connections(url: str, arrivals: EventArrivals, subscriptions: int, single: int, keys: int) -> list[Opened]:
    """Each connection, its number, and the stories that it is to follow."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    shared = [at % keys for at in range(single, subscriptions)]
    groups = [shared[at : at + TOGETHER] for at in range(0, len(shared), TOGETHER)]
    alone: list[Opened] = [(FollowedConnection(arrivals, at, host, port), at, [at % keys]) for at in range(single)]
    sockets = [(FollowedSocket(arrivals, at, host, port), at, group) for at, group in enumerate(groups, single)]
    return [*alone, *sockets]


async def _all(works: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Some at once."""
    turn = asyncio.Semaphore(OPENING)

    async def one(work: Callable[[], Awaitable[None]]) -> None:
        async with turn:
            await work()

    await asyncio.gather(*(one(work) for work in works))


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
