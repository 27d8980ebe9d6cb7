"""The load of ``headrace bench scale``, in a process of its own: ``python -m loadgen.bench.scaling.mixed_load``.

An order is a line of JSON on standard input, its outcome one on standard output::

    {"port": 8080, "mix": "mix", "table": "votes", "view": "…", "connections": 64, "seconds": 2.0, "seed": 1}
    {"requests": 9120, "rows": 14020, "seconds": 2.003, "by_kind": {"read": {"requests": 6840, "p50": …, "p99": …}, …}}

Connections stay open between orders. Each has one request under way, whoever is answered first goes on first, and an
order ends when the last answer has come. What is asked for comes out of the seed, so that all clusters are asked alike.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import Any

import orjson

from loadgen.bench.program import zipf
from loadgen.bench.reads import get, post

STORIES = 10_000
USERS = 1_000_000
BATCH = 50
"""Votes in one request: what an application gathers in some tens of milliseconds."""
PREPARED = 4_000
"""Different requests of a kind; they are made before the clock runs."""

MIXES: Mapping[str, Mapping[str, int]] = {
    "mix": {"read": 15, "single": 4, "batch": 1},
    "reads": {"read": 1},
    "singles": {"single": 1},
    "batches": {"batch": 1},
}
"""Shares of the kinds of requests. The mix is three reads to a write, far more writes than most applications have (the
thesis's has nineteen reads to a write), so that it is the cluster that is measured and not the reading of one map."""

Prepared = tuple[str, bytes]


@dataclass(slots=True)
class Line:
    """One connection."""

    socket: socket.socket
    kind: str = ""
    began: float = 0.0
    answer: bytearray = field(default_factory=bytearray)


def requests(mix: str, table: str, view: str, seed: int) -> Iterator[Prepared]:
    """Requests without end, the same for the same arguments."""
    random = Random(f"{mix} {table} {seed}")
    take = zipf(STORIES, random)

    def rows(count: int) -> bytes:
        votes = [{"user": random.randrange(USERS), "story_id": number} for number in take(count)]
        return post(f"/v1/tables/{table}/rows", orjson.dumps({"rows": votes}))

    def made(kind: str) -> bytes:
        match kind:
            case "read":
                return get(f"/v1/views/{view}?id={take(1)[0]}")
            case "single":
                return rows(1)
        return rows(BATCH)

    share = MIXES[mix]
    kinds = random.choices(list(share), list(share.values()), k=PREPARED)
    return cycle([(kind, made(kind)) for kind in kinds])


class MixedLoad:
    def __init__(self) -> None:
        self._lines: dict[int, list[Line]] = {}

    def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        lines = self._connected(order["port"], order["connections"])
        asked = requests(order["mix"], order["table"], order["view"], order["seed"])
        taken: dict[str, list[float]] = {}
        began = time.perf_counter()
        until = began + order["seconds"]
        with selectors.DefaultSelector() as selector:
            for line in lines:
                selector.register(line.socket, selectors.EVENT_READ, line)
                _ask(line, next(asked))
            under_way = len(lines)
            while under_way:
                for key, _ in selector.select():
                    line = key.data
                    if not _answered(line):
                        continue
                    now = time.perf_counter()
                    taken.setdefault(line.kind, []).append(now - line.began)
                    if now < until:
                        _ask(line, next(asked))
                    else:
                        under_way -= 1
        return _outcome(taken, time.perf_counter() - began)

    def _connected(self, port: int, count: int) -> list[Line]:
        lines = self._lines.setdefault(port, [])
        while len(lines) < count:
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines.append(Line(connection))
        return lines[:count]


def _ask(line: Line, prepared: Prepared) -> None:
    line.kind, request = prepared
    line.began = time.perf_counter()
    line.socket.sendall(request)


def _answered(line: Line) -> bool:
    """Whether the answer is whole by now. AssertionError unless its status is 200."""
    data = line.socket.recv(262_144)
    assert data, "the server closed the connection"
    line.answer += data
    end = line.answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    assert line.answer.startswith(b"HTTP/1.1 200"), bytes(line.answer[:500]).decode(errors="replace")
    at = line.answer.index(b"content-length: ") + len(b"content-length: ")
    size = end + 4 + int(line.answer[at : line.answer.index(b"\r", at)])
    if len(line.answer) < size:
        return False
    line.answer.clear()
    return True


def _outcome(taken: Mapping[str, list[float]], seconds: float) -> dict[str, Any]:
    counts = {kind: len(times) for kind, times in taken.items()}
    return {
        "requests": sum(counts.values()),
        "writes": counts.get("single", 0) + counts.get("batch", 0),
        "rows": counts.get("single", 0) + BATCH * counts.get("batch", 0),
        "seconds": seconds,
        "by_kind": {
            kind: {"requests": len(times), "p50": _at(times, 0.5), "p99": _at(times, 0.99)}
            for kind, times in sorted(taken.items())
        },
    }


def _at(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 6)


def main() -> None:
    load = MixedLoad()
    for line in sys.stdin:
        print(json.dumps(load.obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
