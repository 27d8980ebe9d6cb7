"""A lost disk of a real cluster: a Spark driver that is killed gives nothing up; asked again, Spark has it rebuilt, and
the full states that stand on it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_client.calls import Call
from headrace_client.connection import Connection
from headrace_client.encoding import to_json
from headrace_client.results import Progress
from running_cluster import NO_JAVA, Running, until

from headrace import connect
from headrace.cli.rebuild import Operation, at_leader
from headrace.errors import BadRequest, Unavailable
from migrations.backfill.runner import BulkFailed
from tests.told_process import ToldProcess

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH"),
]

ARCHIVED, TAIL, THRESHOLD = 300, 40, 20
LOST = "worker-2"


class OnDisks(Running):
    """Each worker has a directory of its own, and the archive is written when it is asked for."""

    def __init__(self, data: Path) -> None:
        self.data = data
        archive = {"HEADRACE_ARCHIVE": str(data / "archive"), "HEADRACE_ARCHIVE_INTERVAL": "86400"}
        special: dict[str, Any] = {
            name: {"environment": {**archive, "HEADRACE_DATA": str(data / name)}} for name in ("worker-1", LOST)
        }
        spark = {"HEADRACE_SPARK_MASTER": "local[1]", "HEADRACE_SPARK_THRESHOLD": str(THRESHOLD)}
        special["controller-1"] = {"environment": {**archive, **spark}}
        shape = ("--workers", "2", "--shards", "2", "--controllers", "1", "--port", "0")
        program = ["-m", "loadgen.drills.supervised", json.dumps(special), "--data", str(data), *shape]
        ToldProcess.__init__(self, program, {}, data.parent)
        self.url = self.read_until(r"http://\S+")[0]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[OnDisks]:
    cluster = OnDisks(tmp_path / "data")
    yield cluster
    cluster.kill()


def lose(cluster: OnDisks) -> None:
    (cluster.data / LOST).rename(cluster.data / "gone")
    os.kill(cluster.pids()[LOST], signal.SIGKILL)


def begun(controller: Connection) -> Operation:
    """Asked for until the leader knows what is lost."""

    def ask() -> Operation | None:
        body = {"shards": [], "known": {}, "by": "auto", "wait": False}
        one = Operation(controller, controller.send(Call("POST", "/v1/rebuild", dict, to_json(body))))
        try:
            return one if until(lambda: step(one)).startswith("fold and sort") else None
        except (BadRequest, Unavailable):
            return None

    found: Operation = until(ask)
    return found


def step(one: Operation) -> str:
    """What it does; raises its error."""
    told: list[Progress] = []

    def tell(progress: Progress) -> None:
        told.append(progress)
        if not progress.finished and progress.backfill is not None:
            raise StopIteration

    try:
        one.wait(tell)
    except StopIteration:
        return told[-1].step
    return told[-1].state


def drivers() -> list[int]:
    """The processes of Spark jobs that fold."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"migrations.backfill.spark" in words and b"rebuild" in words:
            found.append(int(path.parent.name))
    return found


def test_a_killed_driver_gives_nothing_up_and_the_next_has_it_rebuilt(running: OnDisks) -> None:
    with connect(running.url, read_your_writes=True) as db:
        db.execute("CREATE TABLE votes (id INT PRIMARY KEY, story INT)")
        db.execute("CREATE VIEW of_id AS SELECT id FROM votes WHERE id = ?")
        db.execute("CREATE VIEW counted AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story")
        db.execute("CREATE EXT VIEW ranking AS SELECT story, COUNT(*) AS n, MAX(id) AS last FROM votes GROUP BY story")
        db.execute("CREATE EXT VIEW every AS SELECT id, story FROM votes")
        db.table("votes").insert([{"id": n, "story": n % 7} for n in range(ARCHIVED)])
        archived = db.send(Call("POST", "/v1/archive", dict))["positions"]
        for n in range(ARCHIVED, ARCHIVED + TAIL):
            db.table("votes").insert({"id": n, "story": n % 7})
        known = db.status()["cluster"]["acknowledged"]
        lose(running)
        with at_leader(db.status()["cluster"], running.secret) as controller:
            first = begun(controller)
            (driver,) = until(lambda: [pid for pid in drivers() if parent(pid) == running.pids()["controller-1"]])
            os.kill(driver, signal.SIGKILL)
            with pytest.raises(Unavailable, match="was killed by SIGKILL") as caught:
                first.wait(lambda _: None)
            assert caught.value.code == BulkFailed.code
            assert "--by worker" in str(caught.value.hint)

            told: list[Progress] = []
            body = {"shards": [], "known": known, "by": "auto", "wait": False}
            again = Operation(controller, controller.send(Call("POST", "/v1/rebuild", dict, to_json(body))))
            done = again.wait(told.append)
        assert (done.backfill, done.state) == ("spark", "done")
        assert "more than the threshold of 20" in str(done.why)
        assert any(each.ui and each.ui.startswith("http") for each in told)
        assert done.steps[-1].startswith("build full states in bulk (spark: ")
        assert any("compute full states from the archive (spark)" in each.step for each in told)
        (votes,) = again.rebuilt
        base = votes["base"]
        assert (votes["by"], votes["position"], votes["known"]) == ("spark", archived[base], known[base])
        shard = int(base.rpartition("@")[2])
        lost = {n for n in range(ARCHIVED, ARCHIVED + TAIL) if n % 2 == shard}
        assert votes["lost"] == len(lost)
        kept = set(range(ARCHIVED + TAIL)) - lost
        found = db.view("of_id").lookup_many([[n] for n in range(ARCHIVED + TAIL)])
        assert {row["id"] for rows in found for row in rows} == kept
        assert db.view("counted").lookup(story=3)[0]["n"] == sum(n % 7 == 3 for n in kept)
        ranking = {row["story"]: (row["n"], row["last"]) for row in db.view("ranking").lookup()}
        stories = {story: [n for n in kept if n % 7 == story] for story in range(7)}
        assert ranking == {story: (len(ids), max(ids)) for story, ids in stories.items()}
        assert sorted(row["id"] for row in db.view("every").lookup()) == sorted(kept)
        assert not list((running.data / "archive" / "_rebuild").iterdir())
        assert not list((running.data / "archive" / "_bulk").iterdir())


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
