"""Clients that write, read, delete and migrate at once, until the server no longer answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from threading import Event, Thread
from typing import Any

import httpx

from tests.crash.ledger import Ledger

SCHEMA = """
CREATE TABLE events (
  id BIGINT PRIMARY KEY AUTO_INCREMENT, batch BIGINT NOT NULL, ordinal INT NOT NULL, kind INT NOT NULL, INDEX (batch));
CREATE TABLE marks (batch BIGINT NOT NULL, weight INT);
CREATE TABLE bulk (id INT PRIMARY KEY, kind INT NOT NULL, weight INT NOT NULL);
CREATE VIEW PerBatch AS SELECT batch, COUNT(*) AS n, SUM(ordinal) AS total FROM events WHERE batch = ? GROUP BY batch;
CREATE VIEW PerKind AS SELECT kind, COUNT(*) AS n, MIN(batch) AS low, MAX(batch) AS high
  FROM events WHERE kind = ? GROUP BY kind;
CREATE EXT VIEW Weights AS SELECT e.kind AS kind, COUNT(*) AS n, SUM(m.weight) AS weight
  FROM events e JOIN marks m ON m.batch = e.batch GROUP BY e.kind;
"""
KINDS = 5
BULK_ROWS = 5_000
"""Some slices of a backfill."""

CHANGES = (
    "CREATE EXT VIEW Totals AS SELECT kind, COUNT(*) AS n, SUM(weight) AS weight FROM bulk GROUP BY kind",
    "ALTER TABLE bulk ADD COLUMN extra INT DEFAULT 7",
    "CREATE TABLE passing (id INT PRIMARY KEY, note TEXT); INSERT INTO passing VALUES (1, 'here')",
    "CREATE INDEX by_kind ON bulk (kind)",
    "DROP TABLE passing",
    "DROP VIEW Totals",
    "DROP INDEX by_kind ON bulk",
    "ALTER TABLE bulk DROP COLUMN extra",
)
"""A ring of changes. Killed within one, the server has either what was before it or what is after it."""


class Load:
    """The threads of one round. ``fault`` is what went wrong that is not the server's death."""

    def __init__(self, url: str, ledger: Ledger, seed: str, first_batch: int) -> None:
        self.ledger = ledger
        self.next_batch = first_batch
        self.faults: list[BaseException] = []
        self._url = url
        self._stop = Event()
        work: list[Callable[[httpx.Client, Random], None]] = [self._write, self._write, self._write_marks]
        work += [self._delete, self._read, self._migrate]
        self._threads = [
            Thread(target=self._run, args=(each, Random(f"{seed} {number}")), daemon=True)
            for number, each in enumerate(work)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
        if self.faults:
            raise self.faults[0]

    def _run(self, work: Callable[[httpx.Client, Random], None], random: Random) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as http:
            try:
                while not self._stop.is_set():
                    work(http, random)
            except httpx.TransportError:
                return  # the server is dead, which is what the round is about
            except BaseException as fault:
                self.faults.append(fault)

    def _batch(self, rows: int) -> int:
        with self.ledger.lock:
            batch, self.next_batch = self.next_batch, self.next_batch + 1
        self.ledger.ask(batch, rows)
        return batch

    def _write(self, http: httpx.Client, random: Random) -> None:
        count = random.choice((1, 2, 5, 40))
        batch = self._batch(count)
        rows = ", ".join(f"({batch}, {n}, {random.randrange(KINDS)})" for n in range(count))
        if random.random() < 0.1:
            rows += ", (NULL, 0, 0)"
            answer = http.post("/v1/sql", json={"sql": f"INSERT INTO events (batch, ordinal, kind) VALUES {rows}"})
            assert answer.status_code == 409, answer.text
            self.ledger.refuse(batch)
            return
        [result] = _sql(http, f"INSERT INTO events (batch, ordinal, kind) VALUES {rows}")
        self.ledger.acknowledge(batch, result["first_id"])

    def _write_marks(self, http: httpx.Client, random: Random) -> None:
        known = list(self.ledger.batches)[-20:]
        rows = [{"batch": random.choice(known), "weight": random.randrange(9)} for _ in range(3)] if known else []
        if rows:
            answer = http.post("/v1/tables/marks/rows", json={"rows": rows})
            assert answer.status_code == 200, answer.text

    def _delete(self, http: httpx.Client, random: Random) -> None:
        with self.ledger.lock:
            there = [number for number, batch in self.ledger.batches.items() if batch.stored]
        if len(there) > 10:
            batch = random.choice(there)
            self.ledger.begin_delete(batch)
            _sql(http, f"DELETE FROM events WHERE batch = {batch}")
            self.ledger.deleted(batch)

    def _read(self, http: httpx.Client, random: Random) -> None:
        known = list(self.ledger.batches)[-8:]
        if known:
            batch = random.choice(known)
            answer = http.get(f"/v1/views/PerBatch?batch={batch}")
            assert answer.status_code == 200, answer.text
            for row in answer.json()["rows"]:
                self.ledger.saw(batch, row["n"])
        assert http.get(f"/v1/views/PerKind?kind={random.randrange(KINDS)}").status_code == 200

    def _migrate(self, http: httpx.Client, random: Random) -> None:
        _sql(http, CHANGES[stage_of(http)])


def stage_of(http: httpx.Client) -> int:
    """Which of the changes is the next. Raises AssertionError where the server has neither an old nor a new state."""
    tables = {each["name"]: each for each in http.get("/v1/tables").json()["tables"]}
    views = {each["name"] for each in http.get("/v1/views").json()["views"]}
    there = (
        "Totals" in views,
        any(column["name"] == "extra" for column in tables["bulk"]["columns"]),
        "passing" in tables,
        bool(_key_of_kind(http)),
    )
    stages = [
        (False, False, False, False),
        (True, False, False, False),
        (True, True, False, False),
        (True, True, True, False),
        (True, True, True, True),
        (True, True, False, True),
        (False, True, False, True),
        (False, True, False, False),
    ]
    assert there in stages, f"neither an old nor a new state: {there}"
    return stages.index(there)


def _key_of_kind(http: httpx.Client) -> str:
    [described] = _sql(http, "DESCRIBE bulk")
    return next(str(row[3]) for row in described["rows"] if row[0] == "kind")


def _sql(http: httpx.Client, sql: str) -> list[dict[str, Any]]:
    answer = http.post("/v1/sql", json={"sql": sql})
    assert answer.status_code == 200, (sql[:200], answer.text)
    results: list[dict[str, Any]] = answer.json()["results"]
    return results
