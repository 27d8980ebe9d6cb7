"""SELECTs that no view answers, asked of real processes while others write: filters, joins, sums, LIMIT, KILL."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from headrace_client.connection import Connection
from running_cluster import Launch, until

from headrace import connect
from headrace.errors import Cancelled

SCHEMA = """
CREATE TABLE items (id INT PRIMARY KEY, kind INT NOT NULL, n INT NOT NULL);
CREATE TABLE kinds (id INT PRIMARY KEY, name TEXT NOT NULL)
"""
KINDS = 5
FIXED = 2_000
"""Rows that are there before and stay: answers over them are known."""
AT_ONCE = 10


class Writer:
    """Inserts items behind the fixed ones, and changes them, until it is told to end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.written = 0
        self.ended = threading.Event()

    def run(self) -> None:
        with connect(self.url) as db:
            while not self.ended.is_set():
                ids = range(FIXED + self.written, FIXED + self.written + AT_ONCE)
                db.table("items").insert([{"id": id, "kind": id % KINDS, "n": id} for id in ids])
                db.execute("UPDATE items SET n = n + 1000000 WHERE id = ?", [ids[0]])
                self.written += AT_ONCE


@contextmanager
def writing(url: str) -> Iterator[Writer]:
    writer = Writer(url)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(writer.run)
        try:
            yield writer
        finally:
            writer.ended.set()
        done.result()


def rows(db: Connection, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.execute(sql, list(params)).rows]


def test_selects_while_others_write(launch: Launch) -> None:
    running = launch("--workers", "2", "--controllers", "1", "--shards", "2").serves()
    with connect(running.url, read_your_writes=True) as db:
        db.execute(SCHEMA)
        db.table("kinds").insert([{"id": kind, "name": f"kind {kind}"} for kind in range(KINDS)])
        for start in range(0, FIXED, 1_000):
            db.table("items").insert([{"id": id, "kind": id % KINDS, "n": id} for id in range(start, start + 1_000)])
        workers = until(lambda: [each for each in db.status()["workers"] if each["domains"]])
        assert len(workers) == 2, "each has a shard"
        with writing(running.url) as writer:
            until(lambda: writer.written)
            counted = 0
            for turn in range(6):
                low = 100 * turn
                filtered = rows(db, "SELECT id, n FROM items WHERE n >= ? AND n < ? AND kind <> ?", low, low + 50, 3)
                assert sorted(filtered) == [(id, id) for id in range(low, low + 50) if id % KINDS != 3]
                assert rows(db, f"SELECT id FROM items WHERE id >= {low} ORDER BY id LIMIT 7") == [
                    (id,) for id in range(low, low + 7)
                ]
                assert rows(
                    db,
                    "SELECT k.name, COUNT(*), SUM(i.n) FROM items i JOIN kinds k ON k.id = i.kind "
                    "WHERE i.id BETWEEN 0 AND ? GROUP BY k.name ORDER BY k.name",
                    FIXED - 1,
                ) == [(f"kind {kind}", FIXED // KINDS, sum(range(kind, FIXED, KINDS))) for kind in range(KINDS)]
                # All of it, at one position of each shard: each item meets itself as it is.
                before = FIXED + writer.written
                sql = "SELECT COUNT(*), COUNT(b.id), SUM(a.n - b.n) FROM items a LEFT JOIN items b ON a.id = b.id"
                ((all_of_them, met, apart),) = rows(db, sql)
                assert (met, apart) == (all_of_them, 0)
                assert all_of_them >= max(counted, before), "what was there or shown once is missing"
                counted = all_of_them
                # Its own write is in the next answer.
                db.execute("INSERT INTO items VALUES (?, 0, 7)", [-1 - turn])
                assert rows(db, "SELECT COUNT(*) FROM items WHERE id < 0") == [(turn + 1,)]
            assert writer.written > AT_ONCE, "nobody wrote meanwhile"
            killed(running.url)
        assert rows(db, "SELECT COUNT(*) FROM items WHERE id >= 0") == [(FIXED + writer.written,)]
        assert not db.status().get("views"), "no SELECT was made a view"
    code, _, err = running.stop()
    assert (code, err) == (0, "")


def killed(url: str) -> None:
    """A SELECT that would run for long ends when somebody else stops it, and nothing of it is left."""
    heavy = "SELECT COUNT(*) FROM items a JOIN items b ON a.n <> b.n JOIN items c ON b.n <> c.n"
    with connect(url) as one, connect(url) as other, ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        asked = pool.submit(one.execute, heavy)

        def listed() -> list[Any]:
            return [row[0] for row in other.execute("SHOW PROCESSLIST").rows if heavy in row]

        (id,) = until(listed)
        other.execute(f"KILL {id}")
        with pytest.raises(Cancelled, match="KILL"):
            asked.result()
        print(f"a killed SELECT ended {time.monotonic() - began:.2f} s after it was asked")
        until(lambda: not listed())


def test_automatic_views_come_and_go(launch: Launch) -> None:
    """While others write, a worker dies, and tables change: each answer is right, and none is an error."""
    running = launch("--workers", "2", "--controllers", "1", "--shards", "2").serves()
    with connect(running.url, read_your_writes=True) as db:
        db.execute(SCHEMA)
        db.execute("CREATE INDEX by_kind ON items (kind)")
        for start in range(0, FIXED, 1_000):
            db.table("items").insert([{"id": id, "kind": id % KINDS, "n": id} for id in range(start, start + 1_000)])

        def asked(kind: int) -> int:
            ((count, least),) = rows(db, f"SELECT COUNT(*), MIN(id) FROM items WHERE kind = {kind}")
            assert count >= FIXED // KINDS
            assert least == kind
            return int(count)

        def kept() -> list[Any]:
            for kind in range(KINDS):
                asked(kind)
            queries = db.execute("SHOW QUERIES").rows
            return [row for row in queries if "MIN(id)" in row[0] and row[4] is not None]

        until(kept)
        with writing(running.url) as writer:
            until(lambda: writer.written)
            db.execute("CREATE TABLE other (id INT PRIMARY KEY)")
            until(kept)
        until(lambda: sum(asked(kind) for kind in range(KINDS)) == FIXED + writer.written)
        os.kill(running.pids()["worker-1"], signal.SIGKILL)
        ended = time.monotonic() + 10.0
        while time.monotonic() < ended:
            asked(random.randrange(KINDS))
        until(kept)
        db.execute("INSERT INTO items VALUES (-1, 3, 0)")
        assert rows(db, "SELECT COUNT(*), MIN(id) FROM items WHERE kind = 3")[0][1] == -1
        assert [row[0] for row in db.execute("SHOW TABLES").rows] == ["items", "kinds", "other"]
    running.stop()
