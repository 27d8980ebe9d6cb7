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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import psutil
import uvloop
from rich.console import Console
from websockets.frames import Frame, Opcode

from loadgen.peers.headrace import HeadraceConnection, request
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
WRITERS = 64
"""Connections for writes."""
OPENING = 64
"""Connections that are opened at once."""
LATE_SECONDS = 10.0
"""For the last events, after the last write."""


@dataclass(slots=True)
class EventArrivals:
    """What all subscriptions have heard, and when. While it comes it is only cut into events: the clients share the
    processors with the server, and are not to measure themselves. What the events say is read afterwards."""

    sent: dict[str, float] = field(default_factory=dict)
    """The moment of each write, by its token."""
    answered: list[float] = field(default_factory=list)
    """Seconds to the answers to writes."""
    heard: list[tuple[int, float, bytes]] = field(default_factory=list)
    """The connection, the moment, and the JSON of each event."""
    packets: int = 0
    """How often something has come."""
    changes: int = 0
    """Of these events, those with rows."""

    def read(self, first: int, last: int | None = None) -> HeardEvents:
        """What these of the events say."""
        found = HeardEvents()
        for number, now, text in self.heard[first:last]:
            if text[:1] == b"{":
                found.places += 1
                continue
            messages = orjson.loads(text)
            found.steps += bool(messages)
            for each in messages:
                if "value" not in each:
                    continue
                found.votes[number, each["type"]] = each["value"]["votes"]
                if token := each["headers"].get("txid"):
                    found.events += 1
                    # A token of several writes is of none of them.
                    found.seconds += [now - self.sent[token]] if token in self.sent else []
        return found


@dataclass(slots=True)
class HeardEvents:
    seconds: list[float] = field(default_factory=list)
    """From a write to its event."""
    events: int = 0
    """Of writes, with what several have changed together as one."""
    steps: int = 0
    places: int = 0
    votes: dict[tuple[int, str], int] = field(default_factory=dict)
    """By connection and subscription."""


class FollowedConnection(asyncio.Protocol):
    """One connection, by server-sent events, which is one answer: first it is made, then it is asked for what it
    follows."""

    def __init__(self, arrivals: EventArrivals, number: int, host: str, port: int) -> None:
        self._arrivals = arrivals
        self._number = number
        self._host, self._port = host, port
        self._transport: Any = None
        self._data = b""
        self._takes: Callable[[bytes], bytes] = lambda data: data
        """Takes what is whole of what has come, and gives back the rest."""
        self._missing = 0
        self._ready = asyncio.Event()
        self._head = b""

    async def connect(self) -> None:
        """As far as a connection goes that nobody follows anything by."""
        await self._ask(b"GET /healthz HTTP/1.1\r\nHost: %b\r\n\r\n" % self._host.encode(), b" 200 ")

    async def follow(self, keys: Sequence[int]) -> None:
        line = f"GET /v1/views/Counted/live?id={keys[0]}&live=sse HTTP/1.1\r\nHost: {self._host}\r\n\r\n"
        await self._begin(line.encode(), len(keys))

    async def _ask(self, request: bytes, wanted: bytes) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, self._host, self._port)
        self._takes = self._answer
        self._transport.write(request)
        await self._ready.wait()
        if wanted not in self._head.split(b"\r\n", 1)[0]:
            raise LoadRunError(f"the server answers {self._head[:100].decode('latin-1')}")

    async def _begin(self, request: bytes, snapshots: int) -> None:
        self._missing = snapshots
        self._takes = self._events
        self._ready.clear()
        self._transport.write(request)
        await self._ready.wait()
        if self._missing > 0:
            raise LoadRunError("the server has closed a connection")

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._ready.set()

    def data_received(self, data: bytes) -> None:
        self._arrivals.packets += 1
        self._data = self._takes(self._data + data if self._data else data)

    def _answer(self, data: bytes) -> bytes:
        head, end, rest = data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or len(rest) < (int(length[1]) if length else 0):
            return data
        self._head = head
        self._ready.set()
        return b""

    def _events(self, data: bytes) -> bytes:
        """Of each event its data. What is between, of chunks and of heads, is no line that begins as they do."""
        *events, rest = data.split(b"\n\n")
        for event in events:
            at = event.rfind(b"data: ")
            if at >= 0:
                self._hear(event[at + 6 :])
        return rest

    def _hear(self, text: bytes) -> None:
        if self._missing > 0:
            self._missing -= b'"snapshot-end"' in text
            if not self._missing:
                self._ready.set()
        self._arrivals.changes += text[:1] == b"["
        self._arrivals.heard.append((self._number, time.perf_counter(), text))

    def close(self) -> None:
        self._transport.abort()


class FollowedSocket(FollowedConnection):
    """By a WebSocket, which is many answers."""

    async def connect(self) -> None:
        head = f"GET /v1/live HTTP/1.1\r\nHost: {self._host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        await self._ask((head + key).encode(), b" 101 ")

    async def follow(self, keys: Sequence[int]) -> None:
        asked = [{"view": "Counted", "parameters": {"id": key}, "name": f"{key}"} for key in keys]
        said = orjson.dumps({"subscribe": asked})
        await self._begin(Frame(Opcode.TEXT, said).serialize(mask=True), len(keys))

    def _events(self, data: bytes) -> bytes:
        """Each text; pings are answered."""
        at, end = 0, len(data)
        while end - at >= 2:
            kind, size, begin = data[at] & 0x0F, data[at + 1], at + 2
            if size > 125:
                width = 2 if size == 126 else 8
                size, begin = int.from_bytes(data[begin : begin + width], "big"), begin + width
            if begin + size > end:
                break
            payload, at = data[begin : begin + size], begin + size
            if kind == Opcode.TEXT:
                self._hear(payload)
            elif kind == Opcode.PING:
                self._transport.write(Frame(Opcode.PONG, payload).serialize(mask=True))
        return data[at:]


Opened = tuple[FollowedConnection, int, Sequence[int]]
"""A connection, its number, and the stories that it follows."""


def run(*, subscriptions: int, single: int, keys: int, rate: float, seconds: float, out: Path | None) -> None:
    console = Console()
    found = uvloop.run(_measured(subscriptions, single, keys, rate, seconds, console.print))
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
    place = urlsplit(str(http.base_url))
    host, port = place.hostname or "", place.port or 80
    writes = await Writes.open(host, port, keys)
    tell("writes without readers …")
    unread = EventArrivals()
    alone, _ = await _cpu(process, writes.run(rate, seconds, unread))
    arrivals = EventArrivals()
    before = process.memory_info().rss
    readers = _connections(host, port, arrivals, subscriptions, single, keys)
    await _all([reader.connect for reader, _, _ in readers])
    bare = process.memory_info().rss
    await _all([partial(reader.follow, group) for reader, _, group in readers])
    size = process.memory_info().rss - bare
    tell(f"{subscriptions} subscriptions are open; writes …")
    first, packets = len(arrivals.heard), arrivals.packets
    used, took = await _cpu(process, writes.run(rate, seconds, arrivals))
    last, packets = len(arrivals.heard), arrivals.packets - packets
    await _quiet(arrivals)
    wrong = await _wrong(http, arrivals.read(0).votes, readers, keys)
    for reader, _, _ in readers:
        reader.close()
    tell("polling the same answers …")
    polled = await _polled(http, process, keys, min(seconds, 5.0))
    within, all_of_it = arrivals.read(first, last), arrivals.read(first)
    times, answered = sorted(all_of_it.seconds), sorted(arrivals.answered)
    return {
        "subscriptions": subscriptions,
        "connections": len(readers),
        "writes/s": round(len(arrivals.sent) / took, 1),
        "events": all_of_it.events,
        "write to event p50, ms": round(1000 * times[len(times) // 2], 1),
        "write to event p99, ms": round(1000 * times[len(times) * 99 // 100], 1),
        "write to answer p50, ms": round(1000 * answered[len(answered) // 2], 1),
        "write to answer p99, ms": round(1000 * answered[len(answered) * 99 // 100], 1),
        "the same without readers, p50, ms": round(1000 * sorted(unread.answered)[len(unread.answered) // 2], 1),
        "events that only moved the offset": within.places - within.steps,
        "events a packet": round(within.places / packets, 2),
        "server CPU an event, µs": round(1e6 * (used - alone) / within.places, 1),
        "server CPU an event with rows, µs": round(1e6 * (used - alone) / within.steps, 1),
        "server CPU share": round(used / took, 2),
        "server CPU share of the writes alone": round(alone / seconds, 2),
        "bytes a subscription": round(size / subscriptions),
        "bytes a connection before that": round((bare - before) / len(readers)),
        "answers that differ from a read": wrong,
        "polling: CPU a poll, µs": round(1e6 * polled, 1),
        "polling all each second: CPU share": round(polled * subscriptions, 2),
    }


async def _quiet(arrivals: EventArrivals) -> None:
    """Until a second has brought no change of an answer, after the last write."""
    until, seen = time.perf_counter() + LATE_SECONDS, -1
    while seen < (seen := arrivals.changes) and time.perf_counter() < until:
        await asyncio.sleep(1.0)


class Writes:
    """Votes for random stories at a rate, each on a connection that nothing else is on its way on."""

    def __init__(self, host: str, idle: list[HeadraceConnection], keys: int) -> None:
        self._host = host
        self._idle = idle
        self._keys = keys
        self._number = 0
        self._random = Random(1)

    @classmethod
    async def open(cls, host: str, port: int, keys: int) -> Writes:
        return cls(host, [await HeadraceConnection.connect(host, port) for _ in range(WRITERS)], keys)

    async def run(self, rate: float, seconds: float, arrivals: EventArrivals) -> None:
        began, tasks = time.perf_counter(), list[asyncio.Task[None]]()
        turn = asyncio.Semaphore(len(self._idle))
        for at in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + at / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(self._one(arrivals, turn)))
        await asyncio.gather(*tasks)

    async def _one(self, arrivals: EventArrivals, turn: asyncio.Semaphore) -> None:
        self._number += 1
        row = {"id": self._number, "story": self._random.randrange(self._keys)}
        began = time.perf_counter()
        async with turn:
            connection = self._idle.pop()
            body = orjson.dumps({"rows": [row]})
            (answer,) = await connection.ask([request("POST", "/v1/tables/votes/rows", self._host, body)])
            self._idle.append(connection)
        if answer.status != 200:
            raise LoadRunError(f"a write is answered {answer.status}: {answer.body[:200].decode(errors='replace')}")
        arrivals.sent[orjson.loads(answer.body)["token"]] = began
        arrivals.answered.append(time.perf_counter() - began)


async def _cpu(process: psutil.Process, work: Any) -> tuple[float, float]:
    """Seconds of the server's processor time, and of the clock."""
    times, began = process.cpu_times(), time.perf_counter()
    await work
    after = process.cpu_times()
    return after.user + after.system - times.user - times.system, time.perf_counter() - began


def _connections(
    host: str, port: int, arrivals: EventArrivals, subscriptions: int, single: int, keys: int
) -> list[Opened]:
    """Each connection, its number, and the stories that it is to follow."""
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
    votes: Mapping[tuple[int, str], int],
    readers: Sequence[Opened],
    keys: int,
) -> int:
    answer = await http.post("/v1/views/Counted/lookup", json={"keys": [[key] for key in range(keys)]})
    right = [rows[0]["votes"] for rows in answer.raise_for_status().json()["results"]]
    shown = [
        (votes[number, "Counted" if len(group) == 1 else str(key)], right[key])
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
