"""A client that costs next to nothing: raw sockets, every connection with one request under way.

At 6 µs a request it is several times faster than any server in Python, so that it is the server that is measured.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

CONNECTIONS = 32
"""Enough that the server never waits for the client."""
_LENGTH = b"content-length: "
_END = b"\r\n\r\n"


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
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


# Starts the servers of ``serving.py``, each in a process of its own, and stops them.


@contextmanager
def running(kind: str, stories: int, directory: Path) -> Iterator[tuple[Client, psutil.Process]]:
    """A server of this kind, a client of it, and its process."""
    command = [sys.executable, "-m", "headrace.bench.serving", kind, str(stories), str(directory / kind)]
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
