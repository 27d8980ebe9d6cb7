"""``headrace bench mysql``: look-ups and inserts over MySQL's protocol, beside the same over HTTP, and in MariaDB.

Each client is a bare socket that sends the next request when it has the whole answer to the last one, so that no
driver's time is in the figures; all of them are one event loop, in this process. Rounds take turns between the sides,
and what is shown is the median of a side's rounds: the server's processor time for a request, and how long one took.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import orjson
from rich.table import Table

from headrace.errors import BadRequest
from headrace.render import console
from loadgen.bench import measurement
from loadgen.bench.beside_mariadb.inserts import TITLE, MariaDb
from loadgen.bench.measurement import machine, table
from loadgen.bench.program import story
from loadgen.bench.reads import get, post
from loadgen.bench.servers import free_port, headrace, mariadb, missing
from loadgen.pace.processes import ProcessWatch
from loadgen.peers.store import PeerServer

STORIES, VOTES = 1_000, 5_000
CLIENTS = (1, 32)
QUICK, WHOLE = (1, 0.5), (3, 3.0)
"""Rounds of each side, and seconds of one."""
SIDES = ("http", "mysql", "mariadb")
TABLES = """CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(100), url VARCHAR(100));
CREATE TABLE votes (user INT, story_id INT, INDEX (story_id));
CREATE TABLE inserted (id INT PRIMARY KEY, author INT, title VARCHAR(100));
CREATE VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id"""
POINT = "SELECT id, author, title, url FROM stories WHERE id = "
LISTING = (
    "SELECT id, author, title, url, vcount FROM stories JOIN VoteCount ON VoteCount.story_id = stories.id "
    "WHERE stories.id = "
)
VIEWS = f"CREATE EXT VIEW StoryById AS {POINT}?; CREATE EXT VIEW StoriesWithVC AS {LISTING}?"
_END, _ERROR, _OK = 0xFE, 0xFF, 0

Requests = Callable[[MariaDb | None], Callable[[int], bytes]]
"""What a client sends, by a number that no other request has; first it may prepare a statement."""


def _http(view: str) -> Requests:
    return lambda _: lambda number: get(f"/v1/views/{view}?id={number % STORIES + 1}")


def _text(select: str) -> Requests:
    return lambda _: lambda number: _packet(b"\x03" + f"{select}{number % STORIES + 1}".encode())


def _prepared(select: str) -> Requests:
    def begin(connection: MariaDb | None) -> Callable[[int], bytes]:
        assert connection is not None
        head = b"\x17" + struct.pack("<IBI", connection.prepare(f"{select}?"), 0, 1) + b"\0\x01\x03\0"
        return lambda number: _packet(head + struct.pack("<i", number % STORIES + 1))

    return begin


def _insert_over_http(_: MariaDb | None) -> Callable[[int], bytes]:
    return lambda number: post(
        "/v1/tables/inserted/rows", orjson.dumps({"rows": [{"id": number, "author": 7, "title": TITLE}]})
    )


def _insert(_: MariaDb | None) -> Callable[[int], bytes]:
    return lambda number: _packet(b"\x03" + f"INSERT INTO inserted VALUES ({number}, 7, '{TITLE}')".encode())


@dataclass(frozen=True, slots=True)
class Work:
    http: Requests
    mysql: Requests
    """Of Headrace's port and of MariaDB."""


WORK = {
    "prepared look-up": Work(_http("StoryById"), _prepared(POINT)),
    "text look-up": Work(_http("StoryById"), _text(POINT)),
    "Listing 3.1": Work(_http("StoriesWithVC"), _prepared(LISTING)),
    "insert": Work(_insert_over_http, _insert),
}


@dataclass(frozen=True, slots=True)
class Served:
    """One round: microseconds of the server's processor and of the clock, of a request."""

    cpu: float
    half: float
    p99: float
    rate: float


def _packet(payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + b"\0" + payload


def _is_http_answer(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    assert head.startswith(b"HTTP/1.1 2"), data[:500]
    return len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])


def _is_mysql_answer(data: bytes) -> bool:
    """Whether it is one OK, or rows with an end behind the columns and another behind themselves."""
    at = ends = 0
    while at + 5 <= len(data):
        size, first = int.from_bytes(data[at : at + 3], "little"), data[at + 4]
        at += 4 + size
        if at > len(data):
            return False
        assert first != _ERROR, data[:500]
        if first == _OK and not ends:
            return True
        ends += first == _END and size < 9
        if ends == 2:
            return True
    return False


class LoopClient(asyncio.Protocol):
    """A client that asks again as soon as it has its answer."""

    def __init__(self, request: Callable[[int], bytes], numbers: Iterator[int], is_whole: Callable[[bytes], bool]):
        self._request, self._numbers, self._is_whole = request, numbers, is_whole
        self.taken: list[float] = []
        self.over = asyncio.get_running_loop().create_future()
        self.is_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._data, self._began = b"", time.perf_counter()
        self._transport.write(self._request(next(self._numbers)))

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            if not self._is_whole(self._data):
                return
        except AssertionError as error:
            self.over.set_exception(error)
            self._transport.close()
            return
        self.taken.append(time.perf_counter() - self._began)
        if self.is_last:
            self.over.set_result(None)
            self._transport.close()
        else:
            self._ask()


class ProtocolSides:
    """The servers, by the ports that are spoken to."""

    def __init__(self, ports: Mapping[str, int], listening: Mapping[str, int]) -> None:
        self._ports, self._listening = ports, listening
        self.names = [side for side in SIDES if side in ports]
        self._numbers = count(1)

    def connection(self, side: str) -> MariaDb:
        """Of MySQL's protocol, in the database of the bench."""
        opened = MariaDb(self._ports[side])
        if side == "mariadb":
            opened.do("CREATE DATABASE IF NOT EXISTS bench")
            opened.do("USE bench")
        return opened

    async def round(self, side: str, work: Work, clients: int, seconds: float) -> Served:
        loop, is_http = asyncio.get_running_loop(), side == "http"
        is_whole = _is_http_answer if is_http else _is_mysql_answer
        opened: list[LoopClient] = []
        for _ in range(clients):
            if is_http:
                where: dict[str, Any] = {"host": "127.0.0.1", "port": self._ports[side]}
                request = work.http(None)
            else:
                connection = self.connection(side)
                request = work.mysql(connection)
                where = {"sock": connection.handed_over()}
            make = lambda request=request: LoopClient(request, self._numbers, is_whole)
            opened.append((await loop.create_connection(make, **where))[1])
        await asyncio.sleep(seconds / 5)  # All keys and plans are there then.
        for client in opened:
            client.taken.clear()
        watch, began = ProcessWatch([PeerServer("127.0.0.1", self._listening[side], side)]), time.perf_counter()
        watch.start()
        await asyncio.sleep(seconds)
        taken = [each for client in opened for each in client.taken]
        watch.look()
        spent, lasted = sum(use.cpu_s for use in watch.uses), time.perf_counter() - began
        for client in opened:
            client.is_last = True
        await asyncio.gather(*(client.over for client in opened))
        p99 = quantiles(taken, n=100)[98]
        return Served(1e6 * spent / len(taken), 1e6 * median(taken), 1e6 * p99, len(taken) / lasted)


def _filled(sides: ProtocolSides) -> None:
    for side in sides.names:
        if side == "http":
            continue
        connection = sides.connection(side)
        for statement in [*TABLES.split(";"), *(VIEWS.split(";") if side == "mysql" else ())]:
            connection.do(statement)
        for at in range(1, STORIES + 1, 250):
            rows = ", ".join(str(story(number)) for number in range(at, at + 250))
            connection.do(f"INSERT INTO stories VALUES {rows}")
        for at in range(0, VOTES, 500):
            rows = ", ".join(f"({user}, {user % STORIES + 1})" for user in range(at, at + 500))
            connection.do(f"INSERT INTO votes VALUES {rows}")
        for select in (POINT, LISTING):
            for number in range(1, STORIES + 1):
                assert connection.rows(f"{select}{number}") == 1
        connection.close()


def run(out: Path | None, quick: bool, only: str | None) -> None:
    """Measure, print the table, and write the figures if a file is named. BadRequest where ``only`` is unknown."""
    if only is not None and only not in WORK:
        raise BadRequest(f'no work "{only}"', hint="there are " + ", ".join(WORK))
    rounds, seconds = QUICK if quick else WHOLE
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="headrace-bench-")))
        port = free_port()
        url = stack.enter_context(headrace(directory, more=("--mysql-port", str(port))))
        http = urlsplit(url).port or 0
        ports, listening = {"http": http, "mysql": port}, {"http": http, "mysql": http}
        if (why := missing("mariadb")) is None:
            other = urlsplit(stack.enter_context(mariadb(directory))).port or 0
            ports["mariadb"] = listening["mariadb"] = other
        else:
            console(stderr=True).print(f"MariaDB is left out: {why}", markup=False)
        sides = ProtocolSides(ports, listening)
        _filled(sides)
        found: dict[tuple[str, int], dict[str, Served]] = {}
        for name, work in WORK.items():
            for clients in CLIENTS if only in (None, name) else ():
                console(stderr=True).print(f"measuring {name}, {clients} clients …", markup=False)
                taken: dict[str, list[Served]] = {side: [] for side in sides.names}
                for _ in range(rounds):
                    for side in sides.names:
                        taken[side].append(asyncio.run(sides.round(side, work, clients, seconds)))
                found[name, clients] = {side: _median(each) for side, each in taken.items()}
    console().print(_shown(found))
    if out is not None:
        rows = [
            {"work": name, "clients": clients, "side": side, "cpu_us": each.cpu, "median_us": each.half}
            | {"p99_us": each.p99, "a_second": each.rate}
            for (name, clients), by_side in found.items()
            for side, each in by_side.items()
        ]
        measurement.write(out, {"machine": machine(), "quick": quick, "measured": rows})


def _median(rounds: list[Served]) -> Served:
    return Served(*(median(getattr(each, name) for each in rounds) for name in Served.__slots__))


def _shown(found: Mapping[tuple[str, int], Mapping[str, Served]]) -> Table:
    rows = []
    for (name, clients), by_side in found.items():
        ours = by_side["mysql"]
        for side, each in by_side.items():
            figures = (f"{each.cpu:.0f}", f"{each.half:.0f}", f"{each.p99:.0f}", f"{each.rate:,.0f}")
            against = (f"{ours.cpu / each.cpu:.2f}", f"{ours.half / each.half:.2f}") if side != "mysql" else ("", "")
            rows.append((name, str(clients), side, *figures, *against))
    columns = ("work", "clients", "side", "CPU µs", "median µs", "p99 µs", "a second", "mysql ÷ it, CPU", "median")
    return table("", columns, rows, texts=3, group=3)
