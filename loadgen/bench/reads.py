"""Reads over HTTP: one key a request against constant bytes, with an API key against without, and a thousand keys
against a dict."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import orjson
import psutil

from loadgen.bench.measurement import Measurement, Rate, ratio, thousands, typical
from loadgen.bench.program import KEY, VIEW, zipf

# The client uses raw sockets, with one request under way on each connection.
#
# At 6 µs a request it is several times faster than any server in Python, so the server is what is measured.

CONNECTIONS = 32
"""Enough that the server never waits for the client."""
_LENGTH = b"content-length: "
_END = b"\r\n\r\n"


def get(path: str, key: str = "") -> bytes:
    credential = f"authorization: Bearer {key}\r\n" if key else ""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{credential}\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Client:
    """Keep-alive connections to a server on this machine."""

    def __init__(self, port: int) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """The body of one answer."""
        self._sockets[0].sendall(request)
        return _receive(self._sockets[0])

    def drive(self, requests: Sequence[bytes], count: int) -> None:
        """``count`` requests, round and round, each connection with one under way."""
        sockets = self._sockets
        for number, each in enumerate(sockets):
            each.sendall(requests[number % len(requests)])
        for number in range(CONNECTIONS, count):
            each = sockets[number % CONNECTIONS]
            _receive(each)
            each.sendall(requests[number % len(requests)])
        for number in range(count, count + CONNECTIONS):
            _receive(sockets[number % CONNECTIONS])

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def _receive(connection: socket.socket) -> bytes:
    """One answer's body; AssertionError unless its status is 200."""
    data = connection.recv(262_144)
    while (end := data.find(_END)) < 0:
        data += _more(connection)
    assert data.startswith(b"HTTP/1.1 200"), data[:300]
    at = data.index(_LENGTH) + len(_LENGTH)
    size = end + 4 + int(data[at : data.index(b"\r", at)])
    if len(data) < size:
        pieces = [data]
        missing = size - len(data)
        while missing > 0:
            pieces.append(_more(connection))
            missing -= len(pieces[-1])
        data = b"".join(pieces)
    return data[end + 4 :]


def _more(connection: socket.socket) -> bytes:
    more = connection.recv(262_144)
    assert more, "the server closed the connection"
    return more


@contextmanager
def running(kind: str, stories: int, directory: Path) -> Iterator[tuple[Client, psutil.Process]]:
    """A server of this kind, a client of it, and its process."""
    command = [sys.executable, "-m", "loadgen.bench.serving", kind, str(stories), str(directory / kind)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, f"the server {kind} did not start"
        client = Client(int(line))
        yield client, psutil.Process(server.pid)
        client.close()
    finally:
        server.terminate()
        server.wait()


GOAL_OF_ONE = 0.6
GOAL_OF_KEYED = 0.9
GOAL_OF_MANY = 0.5
KEYS = 1_000


def measure_one(directory: Path, quick: bool) -> Measurement:
    stories, rounds, count = (2_000, 3, 4_000) if quick else (10_000, 9, 20_000)
    requests = [get(f"/v1/views/{VIEW}?id={number}") for number in zipf(stories, Random(1))(5_000)]
    same = get(f"/v1/views/{VIEW}?id=1")
    ours, theirs = _by_turns(directory, stories, "constant", same, requests, count, rounds)
    return _measurement(
        "reads",
        "GET of one key, one server process",
        "an ASGI app that returns constant bytes under the same uvicorn",
        (ours, theirs, 1),
        GOAL_OF_ONE,
        {"stories": stories, "rounds": rounds, "requests_a_round": count},
    )


def measure_keyed(directory: Path, quick: bool) -> Measurement:
    """What accounts cost on a hit: the same requests go to both, of which one has no accounts and lets all in."""
    stories, rounds, count = (2_000, 3, 4_000) if quick else (10_000, 15, 20_000)
    requests = [get(f"/v1/views/{VIEW}?id={number}", KEY) for number in zipf(stories, Random(1))(5_000)]
    open_to_all, keyed = _by_turns(directory, stories, "keyed", requests[0], requests, count, rounds)
    return _measurement(
        "keyed",
        "GET of one key with an API key, one server process",
        "the same without accounts",
        (keyed, open_to_all, 1),
        GOAL_OF_KEYED,
        {"stories": stories, "rounds": rounds, "requests_a_round": count},
    )


def measure_many(directory: Path, quick: bool) -> Measurement:
    stories, rounds, count = (2_000, 3, 150) if quick else (10_000, 9, 600)
    random, numbers = Random(1), range(1, stories + 1)
    bodies = [orjson.dumps({"keys": [[number] for number in random.sample(numbers, KEYS)]}) for _ in range(50)]
    requests = [post(f"/v1/views/{VIEW}/lookup", body) for body in bodies]
    ours, theirs = _by_turns(directory, stories, "dictionary", requests[0], requests, count, rounds)
    return _measurement(
        "lookups",
        "look-up of 1,000 keys a request, keys a second",
        "an ASGI loop that parses the request, reads a dict and joins bytes",
        (ours, theirs, KEYS),
        GOAL_OF_MANY,
        {"stories": stories, "rounds": rounds, "requests_a_round": count},
    )


def _measurement(
    name: str, what: str, against: str, taken: tuple[list[Rate], list[Rate], int], goal: float, details: dict[str, Any]
) -> Measurement:
    """``taken``: both sides' requests a second, and how many units a request has."""
    ours, theirs, units = taken
    by_clock, by_cpu = ratio(ours, theirs)
    details["ratio_by_processor_time"] = round(by_cpu, 3)
    details["our_processor_us_a_request"] = _microseconds(ours)
    details["their_processor_us_a_request"] = _microseconds(theirs)
    a, b = (thousands(typical(each) * units) for each in (ours, theirs))
    return Measurement(name, what, against, a, b, by_clock, goal, details=details)


def _by_turns(
    directory: Path, stories: int, peer: str, same: bytes, requests: Sequence[bytes], count: int, rounds: int
) -> tuple[list[Rate], list[Rate]]:
    """Headrace's rates and the peer's. Both are to answer ``same`` with the same bytes."""
    rates: tuple[list[Rate], list[Rate]] = ([], [])
    with running("headrace", stories, directory) as ours, running(peer, stories, directory) as theirs:
        assert ours[0].ask(same) == theirs[0].ask(same), "both servers answer the same bytes"
        for client, _ in (ours, theirs):
            client.drive(requests, count // 4)
        for _ in range(rounds):
            for (client, process), into in zip((ours, theirs), rates, strict=True):
                cpu, wall = _cpu(process), time.perf_counter()
                client.drive(requests, count)
                wall, cpu = time.perf_counter() - wall, _cpu(process) - cpu
                into.append(Rate(count / wall, count / max(cpu, 0.01)))
    return rates


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _microseconds(rates: list[Rate]) -> float:
    return round(1e6 / median(each.cpu for each in rates), 1)
