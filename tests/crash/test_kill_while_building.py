"""A server that is killed while it builds full state behind its start, again and again, under writes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Timer

import httpx

from headrace import embedded
from tests.crash.killed_server import KilledServer

SEED = int(os.environ.get("KILL_SEED", "1"))
ROUNDS = 4
ROWS = 40_000


def test_what_was_acknowledged_while_full_state_was_built_counts_once(tmp_path: Path) -> None:
    random = Random(f"building {SEED}")
    data = tmp_path / "data"
    with embedded(data) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, batch INT NOT NULL, a INT NOT NULL)")
        db.execute("CREATE VIEW OfBatch AS SELECT COUNT(*) AS n FROM t WHERE batch = ?")
        db.execute("CREATE EXT VIEW ByA AS SELECT a, COUNT(*) AS n, MAX(batch) AS last FROM t GROUP BY a")
        db.execute("CREATE EXT VIEW ByBatch AS SELECT batch, COUNT(*) AS n FROM t GROUP BY batch")
        for _ in range(0, ROWS, 5_000):
            db.table("t").insert([{"batch": 0, "a": n % 40} for n in range(5_000)])
    acknowledged: set[int] = {0}
    asked = 0
    met_building = 0
    killing: list[Timer] = []
    for _ in range(ROUNDS):
        server = KilledServer(data)
        with httpx.Client(base_url=server.url, timeout=60) as http, suppress(httpx.TransportError):
            met_building += "building" in http.get("/v1/status").json()
            killing.append(Timer(random.uniform(0.05, 0.6), server.kill))
            killing[-1].start()
            while True:
                asked += 1
                rows = [{"batch": asked, "a": random.randrange(50)} for _ in range(7)]
                answer = http.post("/v1/tables/t/rows", json={"rows": rows})
                assert answer.status_code == 200, answer.text
                acknowledged.add(asked)
        killing[-1].join()
    assert met_building, "no round met a build"
    with embedded(data, read_timeout=60) as db:
        by_batch = {row["batch"]: row["n"] for row in db.view("ByBatch").lookup()}
        stored = {batch: db.view("OfBatch").lookup(batch=batch)[0]["n"] for batch in by_batch}
        assert by_batch == stored, f"KILL_SEED={SEED}"
        assert by_batch.pop(0) == ROWS
        assert acknowledged - {0} <= by_batch.keys(), f"KILL_SEED={SEED}: acknowledged and gone"
        assert set(by_batch.values()) == {7}, f"KILL_SEED={SEED}: a batch is there in part, or twice"
        assert sum(row["n"] for row in db.view("ByA").lookup()) == ROWS + 7 * len(by_batch)
