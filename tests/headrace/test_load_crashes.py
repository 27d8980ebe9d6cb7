"""``headrace load`` with kill -9 of the loader, then of the server, in the middle: every row is there once."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import pytest
from headrace_client.connection import Connection
from serving_process import Launch

from tests.told_process import ToldProcess

ROWS = 8_000
CHUNK = 100
WAITING = Path(__file__).with_name("waiting_loader.py")
DEADLINE = 120.0
"""Seconds; for each thing that is waited for."""

SCHEMA = """
CREATE TABLE keyed (id INT PRIMARY KEY, n INT);
CREATE TABLE bag (id INT, n INT);
CREATE VIEW Sums AS SELECT n, COUNT(*) AS c, SUM(id) AS s FROM bag WHERE n = ? GROUP BY n
"""


class Loader(ToldProcess):
    """``last``: the chunk before whose successor it waits to be killed, however late that is."""

    def __init__(self, table: str, file: Path, rejects: Path, url: str, last: int = ROWS // CHUNK) -> None:
        options = ["--chunk-rows", str(CHUNK), "--rejects", str(rejects), "--url", url]
        super().__init__([str(WAITING), "load", table, str(file), *options], {"LAST_CHUNK": str(last)})

    def result(self) -> str:
        """All that it has said, once it has ended well."""
        code, output, errors = self.finish(DEADLINE)
        self.kill()
        assert code == 0, errors
        return output + errors


def eventually(holds: Callable[[], bool], loader: Loader) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert loader.popen.poll() is None, loader.finish()
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


@pytest.mark.parametrize("table", ["keyed", "bag"])
def test_the_loader_and_the_server_are_killed(launch_local: Launch, tmp_path: Path, table: str) -> None:
    file, rejects = tmp_path / "rows.csv", tmp_path / "bad.jsonl"
    with file.open("w", newline="") as opened:
        # Every thousandth row has a value that does not fit; in the bag many rows are equal.
        rows = [(i if table == "keyed" else i % 50, "x" if i % 1000 == 999 else i % 7) for i in range(ROWS)]
        csv.writer(opened).writerows([("id", "n"), *rows])
    server = launch_local("--shards", "2")
    url, port = server.url, str(urlparse(server.url).port)
    with Connection(url) as db:
        db.execute(SCHEMA)

        def chunks() -> int:
            return max(db.table(table).streams().values(), default=0)

        seen = 0
        for _ in range(2):
            loader = Loader(table, file, rejects, url, last=seen + 25)
            eventually(lambda seen=seen: chunks() >= seen + 5, loader)  # type: ignore[misc]
            loader.kill()
            assert seen < chunks() <= seen + 25
            seen = chunks()
        loader = Loader(table, file, rejects, url)
        eventually(lambda: chunks() >= seen + 5, loader)
        server.kill()
        launch_local("--shards", "2", "--port", port)
        output = loader.result()
        assert chunks() == ROWS // CHUNK
        good = [(id, n) for id, n in rows if n != "x"]
        assert list(db.execute(f"SELECT COUNT(*), SUM(id), SUM(n) FROM {table}")) == [
            (len(good), *(sum(each) for each in zip(*good, strict=True)))
        ]
        for n in range(7):
            of_n = [id for id, each in good if each == n]
            expected = [{"n": n, "c": len(of_n), "s": sum(of_n)}] if table == "bag" else []
            assert db.view("Sums").lookup(n=n) == expected
    set_aside = [json.loads(line)["row"] for line in rejects.read_text().splitlines()]
    assert set_aside == list(range(1000, ROWS + 1, 1000))
    assert "rows loaded into" in output
    assert "were read before" in output
    assert f"{len(set_aside)} rows were set aside" in output
