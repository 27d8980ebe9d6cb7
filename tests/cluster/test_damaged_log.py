"""Shards of a cluster, damaged or gone: not opened, named, and brought back as docs/operations.md says."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from headrace_client.calls import archive
from typer.testing import CliRunner

from headrace import Connection, connect
from headrace.cli import app
from tests.cluster.running_cluster import NO_JAVA, Launch, Running, until

pytestmark = pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH")

ARCHIVED, BEHIND = 40, 30
DAMAGES = ("flip", "delete", "cut", "folder")
"""Shard by shard."""


def headrace(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def log_of(data: Path, shard: int) -> Path:
    """The newest: those before it have nothing that is not in files."""
    return max((data / "shards" / f"{shard:04}" / "base").glob("*.log"))


def damage(data: Path, how: str, shard: int) -> None:
    log = log_of(data, shard)
    content = bytearray(log.read_bytes())
    match how:
        case "flip":
            content[len(content) // 2] ^= 0x10
            log.write_bytes(content)
        case "cut":
            log.write_bytes(content[: len(content) * 5 // 6])  # What was archived is before it.
        case "delete":
            log.unlink()
        case "folder":
            shutil.rmtree(log.parents[1])


def alarms(db: Connection) -> dict[str, str]:
    """By shard, why it is not served."""
    cluster = db.status()["cluster"]
    closed: dict[str, str] = cluster.get("closed", {})
    assert bool(closed) == ("alarm" in cluster)
    assert all(f"shard {shard} is not served: {why}" in cluster["alarm"] for shard, why in closed.items())
    return closed


def healthy(running: Running, db: Connection) -> bool:
    """Whether its health check and its status say so; both must, or neither."""
    answer = httpx.get(f"{running.url}/readyz", timeout=60)
    assert answer.is_success or "not served" in answer.text, answer.text
    return answer.is_success and bool(db.status()["health"] == "ok")


def rows(db: Connection) -> set[int]:
    return {row[0] for row in db.execute("SELECT id FROM t").rows}


def losses(db: Connection) -> list[Any]:
    return [alarm for worker in db.status()["workers"] for alarm in worker.get("storage_alarms", ())]


def start(launch: Launch) -> Running:
    """It archives when it is asked to."""
    shape = ("--workers", "1", "--controllers", "1", "--shards", str(len(DAMAGES)), "--archive", "archive")
    return launch(*shape, HEADRACE_ARCHIVE_INTERVAL="86400").serves()


def killed(launch: Launch) -> Running:
    """A cluster of which every process was killed, with rows in its archive and rows that are not there."""
    running = start(launch)
    with connect(running.url) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        db.table("t").insert([{"id": number, "n": 1} for number in range(ARCHIVED)])
        db.send(archive())
        for number in range(ARCHIVED, ARCHIVED + BEHIND):
            db.execute(f"INSERT INTO t VALUES ({number}, 2)")
    running.kill()
    return running


def test_damaged_logs_are_named_and_the_shards_are_brought_back(launch: Launch) -> None:
    running = killed(launch)
    for shard, how in enumerate(DAMAGES):
        damage(running.data, how, shard)

    running = start(launch)
    with connect(running.url) as db:
        until(lambda: alarms(db).keys() == {"0", "1", "2", "3"})
        assert "is missing: there were tables in it" in alarms(db)["3"]
        for shard in ("0", "1", "2"):
            why = alarms(db)[shard]
            assert "acknowledged writes" in why
            assert 'of table "t"' in why
        until(lambda: not healthy(running, db))
        until(lambda: "shard 3 is not served" in db.status()["health"])
        assert "not served" in headrace("status", "--url", running.url)

        # From the archive, by its number: what was not archived is named.
        assert "not archived" in headrace(
            "rebuild", "0", "1", "3", "--url", running.url, "--secret-file", str(running.data / "secret")
        )
        until(lambda: alarms(db).keys() == {"2"})
    assert running.stop(signal.SIGTERM)[0] == 0

    # Without it: on with what can be read.
    assert 'of table "t"' in headrace("accept-loss", "--data", str(running.data))
    running = start(launch)
    with connect(running.url) as db:
        until(lambda: not alarms(db))
        assert set(range(ARCHIVED)) <= until(lambda: rows(db)) < set(range(ARCHIVED + BEHIND))
        (loss,) = until(lambda: losses(db))
        assert 'of table "t"' in loss["error"]
        assert "it is served without" in headrace("status", "--url", running.url)
        assert 'of table "t"' in headrace("acknowledge-loss", "--data", str(running.data))
        until(lambda: not losses(db))
        until(lambda: healthy(running, db))
        db.execute("INSERT INTO t VALUES (1000, 3), (1001, 3), (1002, 3), (1003, 3)")
        assert {1000, 1001, 1002, 1003} <= rows(db)
    assert running.stop(signal.SIGTERM)[0] == 0
