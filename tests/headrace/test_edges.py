"""Bad circumstances on the real server: each ends in a clear error or a clean stop, and nothing is lost."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
from serving_process import Launch, ahead_of

SCHEMA = """
CREATE TABLE t (a INT PRIMARY KEY, b INT, c TEXT);
CREATE VIEW ByB AS SELECT a, c FROM t WHERE b = ?;
CREATE VIEW Two AS SELECT a FROM t WHERE b = ? AND c = ?
"""


def start(url: str) -> httpx.Client:
    http = httpx.Client(base_url=url, timeout=60)
    assert sql(http, SCHEMA).status_code == 200
    rows = [{"a": n, "b": n % 50, "c": f"text {n}"} for n in range(500)]
    assert http.post("/v1/tables/t/rows", json={"rows": rows}).status_code == 200
    return http


def sql(http: httpx.Client, text: str) -> httpx.Response:
    return http.post("/v1/sql", json={"sql": text})


def error(answer: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    assert "Traceback" not in answer.text
    return found


def test_a_limit_smaller_than_anything_still_answers_every_read(launch_local: Launch) -> None:
    """The limit evicts each key as soon as it was filled; a read that waits is answered before (``Look``)."""
    http = start(launch_local("--memory-limit", "1kB", "--read-timeout", "60", "--domains", "2").url)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: http.get(f"/v1/views/ByB?b={n % 50}"), range(200)))
    assert {answer.status_code for answer in answers} == {200}
    assert {len(answer.json()["rows"]) for answer in answers} == {10}
    many = http.post("/v1/views/ByB/lookup", json={"keys": [[n] for n in range(50)]})
    assert [len(page) for page in many.json()["results"]] == [10] * 50


def test_concurrent_misses_of_one_key_are_one_fill(served_local: str) -> None:
    http = start(served_local)
    before = http.get("/v1/status").json()["counters"]
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: http.get("/v1/views/ByB?b=7"), range(200)))
    assert all(len(answer.json()["rows"]) == 10 for answer in answers)
    assert http.get("/v1/status").json()["counters"]["fills"] - before["fills"] <= 2  # the reader's and its parent's


def test_null_in_an_equality_finds_nothing(served_local: str) -> None:
    http = start(served_local)
    sql(http, "INSERT INTO t VALUES (1000, NULL, NULL)")
    for _ in range(2):
        answer = http.post("/v1/views/Two/lookup", json={"keys": [[None, "x"], [1, None], [None, None], [1, "text 1"]]})
        assert answer.json() == {"results": [[], [], [], [{"a": 1}]]}
        assert http.post("/v1/views/ByB/lookup", json={"keys": [{"b": None}]}).json() == {"results": [[]]}


def test_the_directory_of_a_running_server_is_refused(launch_local: Launch) -> None:
    http = start(launch_local().url)
    code, _, err = launch_local(wait=False).finish()
    assert code == 1
    assert "in use by another process" in err
    assert "Traceback" not in err
    assert len(http.get("/v1/views/ByB?b=1").json()["rows"]) == 10


def test_a_damaged_recipe_is_refused(launch_local: Launch, tmp_path: Path) -> None:
    process = launch_local()
    with httpx.Client(base_url=process.url, timeout=60) as http:
        assert sql(http, SCHEMA).status_code == 200
    process.popen.send_signal(signal.SIGTERM)
    process.finish()
    recipe = tmp_path / "data" / "recipe.json"
    kept = recipe.read_bytes()
    recipe.write_bytes(kept[:-9])
    code, _, err = launch_local(wait=False).finish()
    assert code == 1
    assert "the recipe is damaged" in err
    assert "Traceback" not in err
    recipe.write_bytes(kept)
    assert len(httpx.get(f"{launch_local().url}/v1/tables", timeout=60).json()["tables"]) == 1


def test_a_stop_during_writes_is_clean(launch_local: Launch) -> None:
    process = launch_local()
    acknowledged: list[int] = []
    enough, numbers = Event(), iter(range(1, 10**6))
    with httpx.Client(base_url=process.url, timeout=60) as http, ThreadPoolExecutor(4) as pool:
        assert sql(http, SCHEMA).status_code == 200

        def write() -> None:
            try:
                for number in numbers:
                    answer = http.post("/v1/tables/t/rows", json={"rows": [{"a": number, "b": 1}]})
                    if answer.status_code != 200:
                        return
                    acknowledged.append(number)
                    if len(acknowledged) > 20:
                        enough.set()
            except httpx.TransportError:
                return
            finally:
                enough.set()

        writing = [pool.submit(write) for _ in range(1)]
        assert enough.wait(60)
        process.popen.send_signal(signal.SIGTERM)
        code, _, err = process.finish()
        assert code == 0
        assert all(" INFO " in line for line in err.splitlines()), err
        for each in writing:
            each.result()
    rows = httpx.get(f"{launch_local().url}/v1/views/ByB?b=1", timeout=60).json()["rows"]
    assert set(acknowledged) <= {row["a"] for row in rows}


def test_tokens_of_another_deployment_time_out(launch_local: Launch) -> None:
    http = start(launch_local("--read-timeout", "0.1").url)
    written = http.post("/v1/tables/t/rows", json={"rows": [{"a": 1000}]}).json()["token"]
    answer = http.get("/v1/views/ByB?b=1", headers={"Headrace-Token": ahead_of(written)})
    assert answer.status_code == 504


def test_bodies_that_are_too_large_or_no_json(served_local: str) -> None:
    http = start(served_local)
    assert sql(http, "SELECT '" + "x" * 200_000 + "'").status_code == 413
    for path in ("/v1/sql", "/v1/tables/t/rows", "/v1/migrations", "/v1/views/ByB/lookup"):
        assert error(http.post(path, content=b'{"sql": '))["code"] == "bad_request"


def test_definitions_that_come_again(served_local: str) -> None:
    http = start(served_local)
    refused = sql(http, "DROP TABLE t")
    assert refused.status_code == 409
    assert '"ByB"' in error(refused)["message"]
    http.get("/v1/views/ByB?b=1")
    assert sql(http, "CREATE OR REPLACE VIEW ByB AS SELECT a + 1 AS a FROM t WHERE b = ?").status_code == 200
    assert {"a": 2} in http.get("/v1/views/ByB?b=1").json()["rows"]
    assert sql(http, "DROP VIEW ByB; DROP VIEW Two").status_code == 200
    assert http.get("/v1/views/ByB?b=1").status_code == 404
    assert sql(http, "DROP TABLE t; CREATE TABLE t (b INT)").status_code == 200
    assert sql(http, "CREATE VIEW ByB AS SELECT b FROM t WHERE b = ?").status_code == 200
    assert http.get("/v1/views/ByB?b=1").json() == {"rows": []}


def test_a_view_that_is_dropped_while_it_is_read(served_local: str) -> None:
    http = start(served_local)
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(http.get, f"/v1/views/ByB?b={n % 50}") for n in range(200)]
        sql(http, "DROP VIEW ByB")
        statuses = {read.result().status_code for read in reads}
    assert statuses <= {200, 404}
    assert http.get("/v1/views/ByB?b=1").status_code == 404


def test_migrations_queue_and_a_cancelled_one_leaves_the_old_graph(served_local: str) -> None:
    http = start(served_local)
    nodes = len(http.get("/v1/graph").json()["nodes"])
    view = "CREATE EXT VIEW W{0} AS SELECT b + {0} AS x, COUNT(*) AS n FROM t GROUP BY x"
    ids = [http.post("/v1/migrations", json={"sql": view.format(n)}).json()["id"] for n in range(4)]
    http.delete(f"/v1/migrations/{ids[-1]}")
    states: list[str] = []
    for id in ids:
        state = "queued"
        while state in ("queued", "running"):
            state = http.get(f"/v1/migrations/{id}").json()["state"]
        states.append(state)
    assert states[:3] == ["done"] * 3
    assert states[3] in ("cancelled", "done")
    there = http.get("/v1/views/W3").status_code
    assert there == (404 if states[3] == "cancelled" else 200)
    for n in range(3 if states[3] == "cancelled" else 4):
        assert sql(http, f"DROP VIEW W{n}").status_code == 200
    assert len(http.get("/v1/graph").json()["nodes"]) == nodes
