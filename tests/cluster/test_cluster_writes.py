"""Writes whose rows a SELECT chooses, by several clients of real processes: none is lost, and none done twice."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from running_cluster import Launch

from headrace import connect

SCHEMA = """
CREATE TABLE counters (id INT PRIMARY KEY, n INT NOT NULL, twice INT AS (2 * n), CHECK (n < 1000));
CREATE TABLE steps (id INT PRIMARY KEY, size INT NOT NULL);
CREATE TABLE jobs (id INT PRIMARY KEY AUTO_INCREMENT, name TEXT NOT NULL);
CREATE EXT VIEW by_twice AS SELECT id FROM counters WHERE twice = ?;
INSERT INTO counters (id, n) VALUES (1, 0), (2, 0), (3, 0);
INSERT INTO steps VALUES (1, 1), (2, 10), (3, 5)
"""
CLIENTS, TIMES = 3, 8


def test_several_clients_choose_the_same_rows(launch: Launch) -> None:
    running = launch("--workers", "2", "--controllers", "1", "--shards", "2").serves()
    with connect(running.url, read_your_writes=True) as db:
        db.execute_all(SCHEMA)
        names = [f"job {number}" for number in range(CLIENTS * TIMES)]
        made = [
            row
            for name in names
            for row in db.execute("INSERT INTO jobs (name) VALUES (?) RETURNING id, UPPER(name)", [name]).rows
        ]
        assert sorted(each[1] for each in made) == sorted(name.upper() for name in names)

        def work(client: int) -> list[str]:
            taken: list[str] = []
            with connect(running.url) as own:
                for turn in range(TIMES):
                    counter = (client + turn) % 2 + 1
                    own.execute(
                        "UPDATE counters c JOIN steps s ON s.id = c.id SET c.n = c.n + s.size WHERE c.id = ?", [counter]
                    )
                    found = own.execute("DELETE FROM jobs ORDER BY id LIMIT 1 RETURNING name").rows
                    taken += [row[0] for row in found]
            return taken

        with ThreadPoolExecutor(CLIENTS) as pool:
            taken = [name for some in pool.map(work, range(CLIENTS)) for name in some]
        assert Counter(taken) == Counter(names), "each job goes to one client"
        expected = [(1, 12, 24), (2, 120, 240), (3, 0, 0)]
        assert sorted(tuple(row) for row in db.execute("SELECT id, n, twice FROM counters").rows) == expected
        assert [dict(row) for row in db.view("by_twice").lookup(twice=240)] == [{"id": 2}]
