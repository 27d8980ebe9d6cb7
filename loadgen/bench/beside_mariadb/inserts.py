"""One client inserts one row after the other, over HTTP and into MariaDB: how much each waits for the disk.

Both sides are spoken to through a bare socket, so that no driver's time is in the figures, and both answer when the row
is on disk (MariaDB with ``innodb_flush_log_at_trx_commit=1``). The third figure is the floor: as many bytes appended to
a file in the same directory, and ``fdatasync``.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

import orjson

from loadgen.bench.measurement import Measurement
from loadgen.bench.reads import post, running
from loadgen.bench.servers import mariadb

GOAL = 1.5
QUICK, WHOLE = (3, 200), (20, 400)
"""Rounds, and inserts of each side in a round."""
CREATE = "CREATE TABLE inserted (id INT PRIMARY KEY, author INT, title VARCHAR(100))"
TITLE = "A story with a title of usual length"

_PROTOCOL_41, _SECURE_CONNECTION = 0x200, 0x8000
_PACKET_MAX = 2**24 - 1
_UTF8MB4_BIN = 46
_QUERY, _PREPARE = b"\x03", b"\x16"
_ERROR, _END = 0xFF, 0xFE


class MariaDbError(Exception):
    """The server's error, by its number."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{number}: {text}")
        self.number = number


class MariaDb:
    """A connection of ``root`` without a password, which can send a statement and wait until it is done. MariaDB's, or
    that of whoever speaks its protocol."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._receive()
        flags = struct.pack("<IIB23x", _PROTOCOL_41 | _SECURE_CONNECTION, _PACKET_MAX, _UTF8MB4_BIN)
        self._send(flags + b"root\0" + b"\0", 1)
        self._receive()

    def do(self, statement: str) -> None:
        """Raises MariaDbError."""
        self._send(_QUERY + statement.encode(), 0)
        self._receive()

    def rows(self, select: str) -> int:
        """How many rows it answers."""
        self._send(_QUERY + select.encode(), 0)
        data, at, ends, rows = b"", 0, 0, 0
        while ends < 2:
            packet, data, at = self._packet(data, at)
            assert packet[0] != _ERROR, packet[:200]
            if packet[0] == _END and len(packet) < 9:
                ends += 1
            else:
                rows += ends
        return rows

    def prepare(self, sql: str) -> int:
        """The number of the prepared statement. Both kinds of definitions are read, each with its end."""
        self._send(_PREPARE + sql.encode(), 0)
        head, data, at = self._packet(b"", 0)
        assert head[0] != _ERROR, head[:200]
        columns, parameters = struct.unpack_from("<HH", head, 5)
        for some in (parameters, columns):
            for _ in range(some and some + 1):
                _, data, at = self._packet(data, at)
        return int.from_bytes(head[1:5], "little")

    def handed_over(self) -> socket.socket:
        """Its socket, for whoever goes on with it."""
        self._socket.setblocking(False)
        return self._socket

    def _packet(self, data: bytes, at: int) -> tuple[bytes, bytes, int]:
        """The next packet's payload, with what was received and where the one after it begins."""
        while len(data) < at + 4 or len(data) < at + 4 + int.from_bytes(data[at : at + 3], "little"):
            more = self._socket.recv(65_536)
            assert more, "the server closed the connection"
            data, at = data[at:] + more, 0
        end = at + 4 + int.from_bytes(data[at : at + 3], "little")
        return data[at + 4 : end], data, end

    def _send(self, payload: bytes, number: int) -> None:
        self._socket.sendall(len(payload).to_bytes(3, "little") + bytes([number]) + payload)

    def _receive(self) -> None:
        data = self._socket.recv(65_536)
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:3], "little"):
            more = self._socket.recv(65_536)
            assert more, "the server closed the connection"
            data += more
        if data[4] == _ERROR:
            raise MariaDbError(int.from_bytes(data[5:7], "little"), data[7:200].decode("utf-8", "replace"))

    def close(self) -> None:
        self._socket.close()


def measure(directory: Path, quick: bool) -> Measurement:
    rounds, inserts = QUICK if quick else WHOLE
    numbers = count(1)
    with (
        running("headrace", 10, directory) as (client, _),
        mariadb(directory) as url,
        (directory / "floor").open("wb", buffering=0) as floor,
    ):
        client.ask(post("/v1/sql", orjson.dumps({"sql": CREATE})))
        other = MariaDb(urlsplit(url).port or 0)
        for statement in ("CREATE DATABASE bench", "USE bench", CREATE):
            other.do(statement)

        def ours() -> None:
            row = {"id": next(numbers), "author": 7, "title": TITLE}
            client.ask(post("/v1/tables/inserted/rows", orjson.dumps({"rows": [row]})))

        def theirs() -> None:
            other.do(f"INSERT INTO inserted VALUES ({next(numbers)}, 7, '{TITLE}')")

        def appended() -> None:
            floor.write(bytes(128))
            os.fdatasync(floor.fileno())

        sides = (ours, theirs, appended)
        times: list[list[list[float]]] = [[], [], []]
        for act in sides:
            timed(act, inserts // 2)
        for _ in range(rounds):
            for act, into in zip(sides, times, strict=True):
                into.append(timed(act, inserts))
        other.close()
    return _measurement(times)


def timed(act: Callable[[], None], times: int) -> list[float]:
    """Milliseconds of each call."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(1e3 * (time.perf_counter() - began))
    return taken


def _measurement(times: list[list[list[float]]]) -> Measurement:
    ours, theirs, floor = ([median(each) for each in rounds] for rounds in times)
    p99 = [median(quantiles(each, n=100)[98] for each in rounds) for rounds in times]
    return Measurement(
        "insert",
        "one client inserts one row after the other over HTTP",
        "MariaDB, innodb_flush_log_at_trx_commit=1, on the same disk",
        f"{median(ours):.2f} ms",
        f"{median(theirs):.2f} ms",
        median(a / b for a, b in zip(ours, theirs, strict=True)),
        GOAL,
        at_most=True,
        details={
            "rounds": len(ours),
            "inserts_a_round": len(times[0][0]),
            "our_p99_ms": round(p99[0], 3),
            "their_p99_ms": round(p99[1], 3),
            "ratio_of_p99": round(p99[0] / p99[1], 3),
            "append_and_fdatasync_ms": round(median(floor), 3),
            "append_and_fdatasync_p99_ms": round(p99[2], 3),
        },
    )
