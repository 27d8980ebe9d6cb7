"""What a transaction of two reads and two writes takes, beside one durable UPDATE, and what it takes MariaDB.

One client, which takes turns: an UPDATE by key, and BEGIN, two SELECTs, two UPDATEs and COMMIT in one text over HTTP,
on one shard and over two; and both by MySQL's protocol, packet by packet, here and in MariaDB. All constants are
others each time. Other work on the machine changes the server's processor time less than what the clock says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median
from urllib.parse import urlsplit

import orjson
import psutil

from domains.plan.sharding import shard_of
from loadgen.bench.beside_mariadb.inserts import MariaDb, timed
from loadgen.bench.measurement import Measurement
from loadgen.bench.reads import Client, post
from loadgen.bench.servers import free_port, headrace, mariadb

GOAL, GOAL_OVER_SHARDS = 1.3, 2.2
QUICK, WHOLE = (3, 10), (20, 30)
"""Rounds, and how often each way is gone in a round."""
ROWS, SHARDS = 1_000, 2
CREATE = "CREATE TABLE stock (item INT PRIMARY KEY, n INT NOT NULL)"
ROWS_OF_TABLE = f"INSERT INTO stock VALUES {', '.join(f'({item}, 0)' for item in range(ROWS))}"


class Ways:
    """How an UPDATE, and how a transaction, is done, with the times of each."""

    def __init__(self, update: Callable[[list[str]], None], whole: Callable[[list[str]], None], port: int) -> None:
        self._acts = update, whole
        self._process = next(psutil.Process(each.pid) for each in psutil.net_connections() if _listens(each, port))
        self._draws = Random(port)
        self.clock: tuple[list[float], list[float]] = [], []
        """Milliseconds."""
        self.processor = [0.0, 0.0]

    def go(self, times: int) -> None:
        for act, clock, number in zip(self._acts, self.clock, (0, 1), strict=True):
            before = sum(self._process.cpu_times()[:2])
            clock += timed(lambda act=act: act(self._statements()), times)  # type: ignore[misc]
            self.processor[number] += sum(self._process.cpu_times()[:2]) - before

    def forget(self) -> None:
        self.clock, self.processor = ([], []), [0.0, 0.0]

    def _statements(self) -> list[str]:
        """Of two rows, which are in two shards where there are two."""
        one, other = (self._draws.choice([i for i in range(ROWS) if shard_of(i, SHARDS) == at]) for at in range(SHARDS))
        reads = [f"SELECT n FROM stock WHERE item = {item}" for item in (one, other)]
        return [*reads, *(f"UPDATE stock SET n = n - 1 WHERE item = {item}" for item in (one, other))]

    @property
    def ratio(self) -> float:
        return median(self.clock[1]) / median(self.clock[0])

    def told(self) -> dict[str, float]:
        return {
            "update_ms": round(median(self.clock[0]), 2),
            "transaction_ms": round(median(self.clock[1]), 2),
            "ratio": round(self.ratio, 2),
            "ratio_by_processor_time": round(self.processor[1] / max(0.01, self.processor[0]), 2),
        }


def _listens(connection: psutil._common.sconn, port: int) -> bool:
    return bool(connection.status == psutil.CONN_LISTEN and connection.laddr.port == port)


def _over_http(url: str) -> Ways:
    port = urlsplit(url).port or 0
    client = Client(port)

    def ask(sql: str) -> None:
        answer = client.ask(post("/v1/sql", orjson.dumps({"sql": sql})))
        assert b'"results"' in answer, answer

    ask(f"{CREATE} SHARD BY (item)")
    ask(ROWS_OF_TABLE)
    return Ways(lambda each: ask(each[-1]), lambda each: ask(f"BEGIN; {'; '.join(each)}; COMMIT"), port)


def _by_packets(port: int, setup: tuple[str, ...]) -> Ways:
    server = MariaDb(port)
    for statement in setup:
        server.do(statement)

    def whole(statements: list[str]) -> None:
        server.do("BEGIN")
        for each in statements:
            server.rows(each) if each.startswith("SELECT") else server.do(each)
        server.do("COMMIT")

    return Ways(lambda each: server.do(each[-1]), whole, port)


def measure(directory: Path, quick: bool) -> Measurement:
    rounds, times = QUICK if quick else WHOLE
    with ExitStack() as servers:
        port = free_port()
        for name in ("one", "two"):
            (directory / name).mkdir()
        one = servers.enter_context(headrace(directory / "one", more=["--mysql-port", str(port)]))
        two = servers.enter_context(headrace(directory / "two", more=["--shards", str(SHARDS)]))
        other = urlsplit(servers.enter_context(mariadb(directory))).port or 0
        sides = {
            "one_shard": _over_http(one),
            "two_shards": _over_http(two),
            "packets": _by_packets(port, ()),
            "mariadb": _by_packets(other, ("CREATE DATABASE bench", "USE bench", CREATE, ROWS_OF_TABLE)),
        }
        for number in range(rounds + 1):
            for each in sides.values():
                each.go(times)
                if not number:
                    each.forget()
    single = sides["one_shard"]
    return Measurement(
        "transaction",
        "BEGIN, two SELECTs, two UPDATEs, COMMIT in one text on one shard, median",
        "one durable UPDATE, both over HTTP",
        f"{median(single.clock[1]):.2f} ms",
        f"{median(single.clock[0]):.2f} ms",
        single.ratio,
        GOAL,
        at_most=True,
        details={
            **{name: each.told() for name, each in sides.items()},
            "goal_over_two_shards": GOAL_OVER_SHARDS,
            "packets_to_mariadb": round(median(sides["packets"].clock[1]) / median(sides["mariadb"].clock[1]), 2),
        },
    )
