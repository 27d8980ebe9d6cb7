"""Rounds of load, kill, look and restart on one data directory."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from random import Random
from typing import Any

import httpx

from domains.plan.deltas import consolidate
from tests.crash.killed_server import KilledServer
from tests.crash.ledger import Ledger
from tests.crash.load import BULK_ROWS, KINDS, SCHEMA, Load, stage_of
from worker.rocks.store import RocksStore

Rows = list[tuple[Any, ...]]


class Rounds:
    """``run`` is one round; the ledger goes on from one to the next."""

    def __init__(self, data: Path, seed: int, *options: str) -> None:
        self._data = data
        self._seed = seed
        self._options = options
        self._random = Random(f"crash {seed}")
        self._ledger = Ledger()
        self._next_batch = 1
        self._server = KilledServer(data, *options)
        self.rounds = 0
        self.acknowledged = 0
        with httpx.Client(base_url=self._server.url, timeout=60) as http:
            assert http.post("/v1/sql", json={"sql": SCHEMA}).status_code == 200
            rows = [{"id": n, "kind": n % KINDS, "weight": n % 11} for n in range(BULK_ROWS)]
            assert http.post("/v1/tables/bulk/rows", json={"rows": rows}).status_code == 200

    def run(self) -> None:
        load = Load(self._server.url, self._ledger, f"{self._seed} {self.rounds}", self._next_batch)
        self._let_live(self._random.randint(0, 20))
        self._server.kill()
        load.join()
        self._next_batch = load.next_batch
        self.acknowledged = sum(bool(batch.stored) for batch in self._ledger.batches.values())
        stored = self._stored()
        self._ledger.check([(row[0], row[1], row[2]) for row in stored["events"]])
        assert len(stored["bulk"]) == BULK_ROWS
        assert stored.get("passing", []) in ([], [(1, "here")])
        self._server = KilledServer(self._data, *self._options)
        self._compare(stored)
        self.rounds += 1

    def _let_live(self, answers: int) -> None:
        """Until so many more batches were acknowledged, or for a second and a half where the machine is slow."""
        known, deadline = self._answered(), time.monotonic() + 1.5
        while self._answered() < known + answers and time.monotonic() < deadline:
            time.sleep(0.002)

    def _answered(self) -> int:
        with self._ledger.lock:
            return sum(batch.stored is not None for batch in self._ledger.batches.values())

    def _stored(self) -> dict[str, Rows]:
        """The rows of the tables as they lie on the disk, which are also what their logs come to."""
        store = RocksStore(self._data / "base", create=False)
        try:
            found: dict[str, Rows] = {}
            for schema in store.tables():
                deltas = store.table(schema.name).find((), ())
                if schema.name in ("events", "marks"):
                    logged = [delta for _, entry in store.log(schema.name, 0, 10**9) for delta in entry]
                    assert dict(consolidate(logged)) == dict(consolidate(deltas)), f"the log of {schema.name} differs"
                assert store.table(schema.name).row_count == sum(weight for _, weight in deltas)
                found[schema.name] = [row for row, weight in deltas for _ in range(weight)]
            return found
        finally:
            store.close()

    def _compare(self, stored: dict[str, Rows]) -> None:
        """Every view against SQLite on the stored rows."""
        judge = sqlite3.connect(":memory:")
        judge.execute("CREATE TABLE events (id, batch, ordinal, kind)")
        judge.execute("CREATE TABLE marks (batch, weight)")
        judge.execute("CREATE TABLE bulk (id, kind, weight)")
        judge.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", stored["events"])
        judge.executemany("INSERT INTO marks VALUES (?, ?)", stored["marks"])
        judge.executemany("INSERT INTO bulk VALUES (?, ?, ?)", [row[:3] for row in stored["bulk"]])
        with httpx.Client(base_url=self._server.url, timeout=60) as http:
            for kind in range(KINDS):
                expected = judge.execute(
                    "SELECT kind, COUNT(*), MIN(batch), MAX(batch) FROM events WHERE kind = ? GROUP BY kind", [kind]
                )
                assert _rows(http, f"PerKind?kind={kind}") == expected.fetchall()
            batches = [number for (number,) in judge.execute("SELECT DISTINCT batch FROM events")]
            for batch in self._random.sample(batches, min(5, len(batches))):
                expected = judge.execute(
                    "SELECT batch, COUNT(*), SUM(ordinal) FROM events WHERE batch = ? GROUP BY batch", [batch]
                )
                assert _rows(http, f"PerBatch?batch={batch}") == expected.fetchall()
            expected = judge.execute(
                "SELECT e.kind, COUNT(*), SUM(m.weight) FROM events e JOIN marks m ON m.batch = e.batch GROUP BY e.kind"
            )
            assert sorted(_rows(http, "Weights")) == sorted(expected.fetchall())
            stage_of(http)
            if any(view["name"] == "Totals" for view in http.get("/v1/views").json()["views"]):
                expected = judge.execute("SELECT kind, COUNT(*), SUM(weight) FROM bulk GROUP BY kind")
                assert sorted(_rows(http, "Totals")) == sorted(expected.fetchall())
        judge.close()

    def close(self) -> None:
        assert self._server.stop() == 0, "the last server did not stop cleanly"


def _rows(http: httpx.Client, view: str) -> Rows:
    answer = http.get(f"/v1/views/{view}")
    assert answer.status_code == 200, answer.text
    return [tuple(row.values()) for row in answer.json()["rows"]]
