"""A server of live views, over sockets."""

from __future__ import annotations

import select
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest

SECONDS = 60.0


def subscriptions(server: str) -> int:
    return int(httpx.get(f"{server}/v1/status", timeout=SECONDS).json()["live"]["subscriptions"])


def until(server: str, count: int) -> None:
    deadline = time.monotonic() + SECONDS
    while subscriptions(server) != count:
        assert time.monotonic() < deadline, f"{subscriptions(server)} subscriptions, not {count}"
        time.sleep(0.02)


@pytest.mark.parametrize("way", ["sse", "long-poll"])
def test_a_client_that_goes_leaves_nothing(served_local: str, way: str) -> None:
    """It only closes its socket, of which the server hears no more than that it sends nothing else."""
    sql = "CREATE TABLE t (id INT PRIMARY KEY, g INT); CREATE VIEW v AS SELECT id FROM t WHERE g = ?"
    httpx.post(f"{served_local}/v1/sql", json={"sql": sql}, timeout=SECONDS).raise_for_status()
    url = "/v1/views/v/live?g=1"
    where = urlsplit(served_local)
    gone = 0
    while gone < 3:
        offset = httpx.get(f"{served_local}{url}", timeout=SECONDS).headers["stream-next-offset"]
        client = socket.create_connection((where.hostname, where.port), timeout=SECONDS)
        client.sendall(f"GET {url}&offset={offset}&live={way} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        while not (there := subscriptions(served_local) == 1):
            if way == "long-poll" and select.select([client], [], [], 0.02)[0]:
                break  # The offset has moved since it was told, so the poll is answered: once more.
        client.close()
        until(served_local, 0)
        gone += there
