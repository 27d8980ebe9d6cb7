"""What a cluster of real processes makes of garbage on its ports, of a leader that hung, and of a ZooKeeper that has
lost everything: it says so, loses nothing, and no process ends."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from headrace_client.connection import Connection
from running_cluster import Launch, Running, launching, until

from headrace import connect
from headrace.cluster.control_links import as_operator
from headrace.errors import ConnectionFailed, HeadraceError, Unavailable
from worker.protocol.messages import Ping, Role
from worker.wire.connection import greeting
from worker.wire.frames import BEAT, framed

SCHEMA = """
CREATE TABLE votes (id INT PRIMARY KEY AUTO_INCREMENT, story_id INT);
CREATE EXT VIEW Counted AS SELECT story_id, COUNT(*) AS n FROM votes WHERE story_id = ? GROUP BY story_id
"""
STORIES = 8
SEED = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for launch in launching(tmp_path_factory.mktemp("bad-days")):
        running = launch("--workers", "2", "--controllers", "2", "--shards", "2").serves()
        with connect(running.url) as db:
            db.execute(SCHEMA)
        yield running
        assert running.stop()[0] == 0


def vote(db: Connection) -> None:
    """Each story once: every shard has rows of every vote."""
    db.table("votes").insert([{"story_id": number} for number in range(STORIES)])


def votes(db: Connection) -> int:
    pages = db.view("Counted").lookup_many([[number] for number in range(STORIES)])
    counts = {page[0]["n"] if page else 0 for page in pages}
    assert len(counts) == 1, counts
    return int(counts.pop())


def done(act: Any) -> bool:
    """For ``until``: whether it is done, where being away for a moment is no failure."""
    try:
        act()
    except (Unavailable, ConnectionFailed):
        return False
    return True


def shown(db: Connection) -> dict[str, Any]:
    told: dict[str, Any] = db.status()["cluster"]
    return told


# --- garbage ----------------------------------------------------------------------------------------------------------


def garbage(chance: random.Random) -> list[bytes]:
    """What no port has a use for: other protocols, halves, lengths that are none, also behind a right greeting."""
    hello = framed(1, greeting("main", Role.CONTROLLER, "nobody", 1))
    return [
        b"",
        b"\x00" * 3,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(64),
        b"\xff" * 5000,
        chance.randbytes(5000),
        b"GET / HTTP/1.1\r\nHost: ",
        b"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"POST /v1/migrations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        b"srvr",
        (64 << 20).to_bytes(4, "big") + b"\x00" * 1000,
        hello[:-5],
        hello + b"\x7f\xff\xff\xff" + chance.randbytes(200),
        hello + (1000).to_bytes(4, "big") + b"\x93",
        hello + framed(2, Ping(0))[:-1],
        hello + BEAT * 100 + (5).to_bytes(4, "big") + b"hello",
        framed(1, greeting("other", Role.WORKER, "worker-1", 1)),
    ]


def ports(cluster: Running, db: Connection) -> list[tuple[str, int]]:
    """The api's, the leader's and the workers'."""
    url = httpx.URL(cluster.url)
    leader = until(lambda: shown(db)["leader"])
    workers = [(each["host"], each["port"]) for each in db.status()["workers"]]
    return [(url.host, int(url.port or 0)), (leader["host"], leader["port"]), *workers]


def test_garbage_on_every_port(cluster: Running) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    with connect(cluster.url, read_your_writes=True) as db, ExitStack() as opened:
        before, processes = votes(db), cluster.pids()
        addresses = ports(cluster, db)
        assert len(addresses) == 4
        for address in addresses:
            for data in garbage(chance):
                stranger = opened.enter_context(socket.create_connection(address, timeout=60))
                with suppress(OSError):  # It may be refused before all of it is sent.
                    stranger.sendall(data)
        vote(db)  # While all of them hang about.
        assert votes(db) == before + 1
        opened.close()
        db.execute("CREATE TABLE after_garbage (a INT PRIMARY KEY)")
        vote(db)
        assert votes(db) == before + 2
        assert cluster.pids() == processes
        assert {worker["health"] for worker in until(lambda: all_answer(db))} == {"ok"}


def all_answer(db: Connection) -> list[dict[str, Any]]:
    workers: list[dict[str, Any]] = db.status()["workers"]
    return workers if all(worker["health"] != "silent" for worker in workers) else []


# --- leaders ----------------------------------------------------------------------------------------------------------


def test_a_leader_that_hung_is_not_obeyed(cluster: Running) -> None:
    with connect(cluster.url, read_your_writes=True) as db:
        before = votes(db)
        stale = until(lambda: shown(db)["leader"])
        pid = cluster.pids()[stale["name"]]
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: shown(db)["leader"] not in (None, stale))
            until(lambda: done(lambda: db.execute("CREATE TABLE while_it_hung (a INT PRIMARY KEY)")))
        finally:
            os.kill(pid, signal.SIGCONT)
        at, proven = f"http://{stale['host']}:{stale['port']}", as_operator(cluster.secret)
        with httpx.Client(base_url=at, timeout=60, transport=proven) as controller:
            until(lambda: not controller.get("/v1/status").json()["leads"])
            entry = {"statements": ["DROP TABLE while_it_hung"]}
            answer = controller.post("/v1/migrations", json={"entry": entry, "sql": "DROP", "wait": True})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_leading")
        db.execute("INSERT INTO while_it_hung VALUES (1)")
        vote(db)
        assert votes(db) == before + 1
        assert cluster.pids()[stale["name"]] == pid


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


def state(*arguments: str) -> None:
    from headrace.cli import app

    with suppress(SystemExit):
        app(["state", *arguments], standalone_mode=False)


def test_a_zookeeper_that_has_lost_everything(cluster: Running, tmp_path: Path) -> None:
    """Its clients go on by what they know; when the state is restored they are started again, and nothing is lost."""
    saved = str(tmp_path / "main.state")
    with connect(cluster.url, read_your_writes=True) as db:
        before, parts = votes(db), {name: pid for name, pid in cluster.pids().items() if "zookeeper" not in name}
        state(saved, "--zookeeper", cluster.zookeeper(), "--data", str(cluster.data))
        pid = cluster.pids()["zookeeper-1"]
        os.kill(pid, signal.SIGSTOP)
        shutil.rmtree(cluster.data / "zookeeper" / "1" / "data")
        os.kill(pid, signal.SIGKILL)
        until(lambda: cluster.pids().get("zookeeper-1", pid) != pid)
        until(lambda: shown(db)["zookeeper"] == "away")
        vote(db)
        assert votes(db) == before + 1
        assert parts.items() <= cluster.pids().items(), "nobody has ended"
        with pytest.raises(HeadraceError):
            db.execute("CREATE TABLE too_early (a INT PRIMARY KEY)")
        state(saved, "--restore", "--zookeeper", cluster.zookeeper(), "--data", str(cluster.data))
        for part in parts.values():
            os.kill(part, signal.SIGKILL)
        until(lambda: done(lambda: db.execute("CREATE TABLE restored (a INT PRIMARY KEY)")))
        until(lambda: done(lambda: votes(db)))
        assert votes(db) == before + 1


def test_up_takes_the_state_up_again(launch: Launch, tmp_path: Path) -> None:
    """Its ZooKeeper's directory is lost while it is stopped; its first start after that has made a deployment anew."""
    arguments = ("--workers", "1", "--controllers", "1", "--shards", "2")
    running = launch(*arguments).serves()
    with connect(running.url) as db:
        db.execute(SCHEMA)
        vote(db)
    state(str(tmp_path / "main.state"), "--zookeeper", running.zookeeper(), "--data", str(running.data))
    assert running.stop()[0] == 0
    shutil.rmtree(running.data / "zookeeper")
    code, _, err = launch(*arguments).finish()
    assert code == 1
    assert 'belongs to another deployment "main"' in err
    shutil.copy(tmp_path / "main.state", running.data / "restored.state")
    again = launch(*arguments).serves()
    with connect(again.url, read_your_writes=True) as db:
        until(lambda: done(lambda: votes(db)))
        assert votes(db) == 1
    assert again.stop()[0] == 0
