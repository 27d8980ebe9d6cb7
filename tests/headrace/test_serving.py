"""A real process with a real uvicorn: how it starts, serves, refuses and stops."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
from pathlib import Path

import httpx
import pytest
from serving_process import SCHEMA, Launch

from headrace import connect
from headrace.errors import SqlError


def test_says_where_it_answers_and_stops_cleanly(launch_fake: Launch, tmp_path: Path) -> None:
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = launch_fake()
        assert httpx.get(f"{process.url}/healthz", timeout=60).json() == {"status": "ok"}
        process.popen.send_signal(stop)
        code, out, err = process.finish()
        assert code == 0, err
        assert str(tmp_path / "data") in out
        assert "stop with Ctrl-C" in out
        assert out.index("deployment closed") < out.index("headrace has stopped")
        assert err == ""


def test_a_stop_finishes_requests_under_way(launch_fake: Launch) -> None:
    process = launch_fake(SLOW="0.5")
    with connect(process.url) as db, concurrent.futures.ThreadPoolExecutor() as pool:
        db.execute(SCHEMA)
        page = pool.submit(db.view("StoriesWithVC").lookup, id=1)
        process.read_until("page begun")
        process.popen.send_signal(signal.SIGTERM)
        assert page.result() == []
        code, out, _ = process.finish()
    assert code == 0
    assert "deployment closed" in out


def test_a_stop_does_not_wait_for_a_migration(launch_fake: Launch) -> None:
    process = launch_fake()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        built = pool.submit(httpx.post, f"{process.url}/v1/sql", json={"sql": "BUILD"}, timeout=60)
        process.read_until("build begun")
        process.popen.send_signal(signal.SIGTERM)
        assert built.result().json()["error"]["code"] == "cancelled"
        code, _, err = process.finish()
    assert (code, err) == (0, "")


def test_contract_over_a_socket(served: str) -> None:
    """The essentials of tests/api once more, through uvicorn's parser and its chunks."""
    with httpx.Client(base_url=served, timeout=60) as http:
        assert http.post("/v1/sql", json={"sql": SCHEMA}).status_code == 200
        row = {"id": 1, "title": "é"}
        token = http.post("/v1/tables/stories/rows", json={"rows": [row]}).json()["token"]
        for headers in ({"headrace-token": token}, {}):
            answer = http.get("/v1/views/StoriesWithVC?id=1", headers=headers)
            assert answer.json() == {"rows": [{**row, "vcount": 0}]}
            assert answer.headers["content-length"] == str(len(answer.content))
        pages = http.post("/v1/views/StoriesWithVC/lookup", json={"keys": [[1], [2]]})
        assert pages.json() == {"results": [[{**row, "vcount": 0}], []]}
        many = http.post("/v1/views/StoriesWithVC/lookup", json={"keys": [[n] for n in range(10_000)]})
        assert len(many.json()["results"]) == 10_000
        assert http.request("DELETE", "/v1/tables/stories/rows", json={"key": {"id": 1}}).json()["rows_affected"] == 1
        for path in ("/v1/sql", "/v1/views/StoriesWithVC/lookup"):
            large = http.post(path, content=b" " * 200_000)
            assert large.status_code == 413
            assert large.json()["error"]["code"] == "limit_exceeded"
        assert http.get("/nowhere").status_code == 404
        assert http.get("/v1/views/StoriesWithVC?id=%ff").status_code == 400
        assert http.get("/docs").status_code == 200
        assert "headrace_http_seconds_bucket" in http.get("/metrics").text


def test_port_taken(launch_fake: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = launch_fake("--port", str(port), wait=False).finish()
    assert code == 1
    assert f"127.0.0.1:{port}: Address already in use" in err
    assert "--port" in err
    assert "Traceback" not in err


def test_address_that_is_not_ours(launch_fake: Launch) -> None:
    code, _, err = launch_fake("--host", "192.0.2.1", wait=False).finish()
    assert code == 1
    assert err.startswith("error: cannot listen on 192.0.2.1:0")
    assert err.count("\n") == 1


def test_data_directory_in_use(launch_fake: Launch, tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    code, _, err = launch_fake("--data", str(tmp_path), wait=False).finish()
    assert code == 1
    assert "in use" in err
    assert "Traceback" not in err


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a directory that nobody can write")
def test_data_directory_unwritable(launch_fake: Launch) -> None:
    code, _, err = launch_fake("--data", "/proc/headrace", wait=False).finish()
    assert code == 1
    assert err.startswith('error: cannot use the data directory "/proc/headrace"')
    assert err.count("\n") == 1


def test_settings_of_serve(launch_fake: Launch, tmp_path: Path) -> None:
    code, _, err = launch_fake("--memory-limit", "lots", wait=False).finish()
    assert code == 1
    assert '"lots" is not a size' in err
    config = tmp_path / "other.toml"
    config.write_text(f'data = "{tmp_path / "of the file"}"\nlog_level = "debug"')
    process = launch_fake("--data", str(tmp_path / "given"), "--config", str(config), HEADRACE_MEMORY_LIMIT="1MiB")
    os.kill(process.popen.pid, signal.SIGTERM)
    _, out, _ = process.finish()
    assert "memory limit 1 MB" in out
    assert str(tmp_path / "given") in out


def test_the_log_tells_of_definitions_and_slow_requests_as_json(launch_local: Launch) -> None:
    process = launch_local("--log-format", "json", "--log-level", "debug", "--slow-request", "0.000001")
    with connect(process.url) as db:
        db.execute("CREATE TABLE t (a INT);\nCREATE VIEW v AS SELECT a FROM t WHERE a = ?")
        db.execute("SELECT a FROM t")
        with pytest.raises(SqlError):
            db.execute("SELECT nothing FROM t")
    process.popen.send_signal(signal.SIGTERM)
    code, _, err = process.finish()
    assert code == 0
    lines = [json.loads(line) for line in err.splitlines()]
    said = [(line["level"], line["message"]) for line in lines if line["logger"].startswith("headrace")]
    assert any(level == "info" and " done in " in text and "CREATE VIEW v" in text for level, text in said), said
    assert any(
        level == "warning" and "slow request: POST /v1/sql" in text and "SELECT a" in text for level, text in said
    )
    assert any(level == "debug" and "refused" in text and "nothing" in text for level, text in said)
    assert all(line["logger"].startswith("headrace") for line in lines)
