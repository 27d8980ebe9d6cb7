"""Many clients change few rows: committed transactions a second, optimistic and with locks, beside MariaDB.

Both servers are spoken to by MySQL's protocol, through bare sockets; each client sends BEGIN, an UPDATE of one of the
hot rows, and COMMIT, one after the other, and does a transaction again that was refused. Both are durable. Four sides
take turns: Headrace at SERIALIZABLE, where who commits second does it again, and at REPEATABLE READ, where it waits;
and MariaDB at both, where it waits. What the rows have in the end is what was committed: nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import median
from urllib.parse import urlsplit

from loadgen.bench.beside_mariadb.inserts import MariaDb, MariaDbError
from loadgen.bench.measurement import Measurement
from loadgen.bench.servers import free_port, headrace, mariadb

GOAL = 0.5
CLIENTS, HOT = 32, 10
QUICK, WHOLE = (1, 1.0), (7, 5.0)
"""Rounds, and seconds of each side in a round."""
LEVELS = ("SERIALIZABLE", "REPEATABLE READ")
AGAIN = (1213, 1205)
"""A deadlock or a conflict; a lock that was not free in time."""


class Contending:
    """The clients of one server, and what they have done."""

    def __init__(self, port: int, setup: Sequence[str]) -> None:
        self._clients = [MariaDb(port) for _ in range(CLIENTS)]
        self._draws = [Random(number) for number in range(CLIENTS)]
        for statement in setup:
            self._clients[0].do(statement)
        for client in self._clients if "USE bench" in setup else ():
            client.do("USE bench")
        values = ", ".join(f"({number}, 0)" for number in range(HOT))
        self._clients[0].do("CREATE TABLE hot (id INT PRIMARY KEY, n INT NOT NULL)")
        self._clients[0].do(f"INSERT INTO hot VALUES {values}")
        self.committed = self.again = 0

    def rate(self, level: str, seconds: float) -> float:
        """Committed transactions a second, by all clients together."""
        for client in self._clients:
            client.do(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        began = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            done = list(pool.map(lambda number: self._run(number, began + seconds), range(CLIENTS)))
        took = time.perf_counter() - began
        self.committed += sum(committed for committed, _ in done)
        self.again += sum(again for _, again in done)
        return sum(committed for committed, _ in done) / took

    def _run(self, number: int, until: float) -> tuple[int, int]:
        client, draws, committed, again = self._clients[number], self._draws[number], 0, 0
        while time.perf_counter() < until:
            row = draws.randrange(HOT)
            try:
                client.do("BEGIN")
                client.do(f"UPDATE hot SET n = n + 1 WHERE id = {row}")
                client.do("COMMIT")
                committed += 1
            except MariaDbError as refused:
                if refused.number not in AGAIN:
                    raise
                again += 1
                client.do("ROLLBACK")
        return committed, again

    def close(self) -> None:
        """AssertionError: a committed change is not there."""
        assert self._clients[0].rows(f"SELECT 1 FROM (SELECT SUM(n) AS s FROM hot) x WHERE s = {self.committed}") == 1
        for client in self._clients:
            client.close()


def measure(directory: Path, quick: bool) -> Measurement:
    rounds, seconds = QUICK if quick else WHOLE
    port = free_port()
    with headrace(directory, more=["--mysql-port", str(port)]), mariadb(directory) as url:
        ours = Contending(port, [])
        theirs = Contending(urlsplit(url).port or 0, ["CREATE DATABASE bench", "USE bench"])
        sides = [(side, level) for side in (ours, theirs) for level in LEVELS]
        rates: list[list[float]] = [[] for _ in sides]
        again: list[int] = [0 for _ in sides]
        for _ in range(rounds):
            for number, (side, level) in enumerate(sides):
                before = side.again
                rates[number].append(side.rate(level, seconds))
                again[number] += side.again - before
        ours.close()
        theirs.close()
    optimistic, locks, serializable, repeatable = map(median, rates)
    return Measurement(
        "contention",
        f"{CLIENTS} clients change {HOT} rows at REPEATABLE READ: transactions/s",
        "MariaDB, innodb_flush_log_at_trx_commit=1, REPEATABLE READ",
        f"{locks:,.0f}",
        f"{repeatable:,.0f}",
        median(a / b for a, b in zip(rates[1], rates[3], strict=True)),
        GOAL,
        details={
            "rounds": rounds,
            "seconds_a_round": seconds,
            "our_serializable": round(optimistic, 1),
            "our_serializable_again": round(again[0] / (sum(rates[0]) * seconds), 2),
            "our_repeatable_read_again": again[1],
            "their_serializable": round(serializable, 1),
            "their_repeatable_read_again": again[3],
            "ratio_of_serializable": round(median(a / b for a, b in zip(rates[0], rates[2], strict=True)), 3),
            "locks_to_optimistic": round(median(a / b for a, b in zip(rates[1], rates[0], strict=True)), 2),
            "locks_to_their_serializable": round(median(a / b for a, b in zip(rates[1], rates[2], strict=True)), 3),
        },
    )
