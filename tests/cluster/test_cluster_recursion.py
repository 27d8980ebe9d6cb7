"""Recursive views over several workers: right after each change, and again once a worker was killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict

from running_cluster import DEADLINE, Launch

from headrace import connect
from headrace.errors import HeadraceError

SCHEMA = """
CREATE TABLE edge (id INT PRIMARY KEY, src INT, dst INT, KEY (src));
CREATE EXT VIEW reach AS
  WITH RECURSIVE r (source, target) AS (
    SELECT src, dst FROM edge UNION SELECT r.source, e.dst FROM r JOIN edge e ON e.src = r.target)
  SELECT target FROM r WHERE source = ?;
CREATE EXT VIEW counts AS
  WITH RECURSIVE r (source, target) AS (
    SELECT src, dst FROM edge UNION SELECT r.source, e.dst FROM r JOIN edge e ON e.src = r.target)
  SELECT source, COUNT(*) AS n FROM r GROUP BY source
"""
NODES, EDGES = 12, 16


def reached(edges: dict[int, tuple[int, int]]) -> dict[int, set[int]]:
    leads: dict[int, set[int]] = defaultdict(set)
    for source, target in edges.values():
        leads[source].add(target)
    found: dict[int, set[int]] = {}
    for source in leads:
        there, pending = set[int](), [*leads[source]]
        while pending:
            at = pending.pop()
            if at not in there:
                there.add(at)
                pending += leads.get(at, ())
        found[source] = there
    return found


def test_recursive_views_over_workers(launch: Launch) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng, edges = random.Random(seed), dict[int, tuple[int, int]]()
    running = launch("--workers", "2", "--controllers", "1", "--shards", "4").serves()
    with connect(running.url, read_your_writes=True, timeout=60) as db:
        db.execute_all(SCHEMA)

        def changed() -> None:
            id = rng.randrange(EDGES)
            if edges.pop(id, None) is not None:
                db.execute(f"DELETE FROM edge WHERE id = {id}")
            if rng.random() < 0.7:
                edges[id] = rng.randrange(NODES), rng.randrange(NODES)
                db.execute(f"INSERT INTO edge VALUES ({id}, {edges[id][0]}, {edges[id][1]})")

        def compare() -> None:
            expected, key = reached(edges), rng.randrange(NODES)
            found = {row["target"] for row in db.view("reach").lookup(source=key)}
            assert found == expected.get(key, set()), (key, edges)
            counts = {row["source"]: row["n"] for row in db.view("counts").lookup()}
            assert counts == {source: len(there) for source, there in expected.items()}, edges

        for number in range(40):
            changed()
            compare()
            if number % 8 == 7:
                db.view("reach").evict([{"source": rng.randrange(NODES)}])
        os.kill(running.pids()["worker-1"], signal.SIGKILL)
        until = time.monotonic() + DEADLINE
        while True:
            try:
                compare()
                break
            except HeadraceError:
                assert time.monotonic() < until, "the views are not served again"
                time.sleep(0.05)
        for _ in range(10):
            changed()
            compare()
