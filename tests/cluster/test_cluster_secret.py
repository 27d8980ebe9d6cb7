"""The secret of a real cluster: ``headrace up`` makes it, every port asks for it, and it is replaced as all serve."""

from __future__ import annotations

import asyncio
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from running_cluster import Launch, Running, until

from domains.errors import HeadraceError
from headrace import connect
from headrace.cluster.control_links import as_operator
from worker.protocol.messages import Ping, Role
from worker.wire import connection as wire
from worker.wire.frames import framed
from worker.wire.proof import ANSWER_BYTES, MAGIC, Asking
from worker.wire.vocabulary import PROTOCOL
from zookeeper.errors import AccessRefused
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.secret import FILE, Secret
from zookeeper.session import NoNode

SIZE = ("--workers", "2", "--controllers", "1", "--shards", "2")
TOLD = (b"main", b"worker-1", b"controller-1", b"api-1", PROTOCOL.encode(), b"votes")
SLOWLY, STRANGERS = (False, True), 16
SETTLE_SECONDS = 3.0
"""In which all processes have read a file that is another one: they look once a second."""


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from running_cluster import launching

    for launch in launching(tmp_path_factory.mktemp("secret"), "real"):
        cluster = launch(*SIZE).serves()
        with connect(cluster.url) as db:
            db.execute("CREATE TABLE votes (id INT PRIMARY KEY, story INT)")
            db.execute("CREATE VIEW counted AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story")
        yield cluster
        assert cluster.stop()[0] == 0


def shown(running: Running) -> dict[str, Any]:
    with connect(running.url) as db:
        return dict(db.status())


def ports(running: Running) -> dict[str, list[int]]:
    """By part, every port that it listens on, but those of its clients."""
    public = int(running.url.rpartition(":")[2])
    found: dict[str, list[int]] = {}
    for name, pid in running.pids().items():
        if not name.startswith("zookeeper"):
            there = psutil.Process(pid).net_connections("inet")
            listens = {each.laddr.port for each in there if each.status == psutil.CONN_LISTEN}
            found[name] = sorted(listens - {public})
    return found


def serves(running: Running) -> None:
    with connect(running.url, read_your_writes=True) as db:
        before = len(db.execute("SELECT id FROM votes").rows)
        db.table("votes").insert({"id": before, "story": 1})
        assert db.view("counted").lookup(story=1) == [{"story": 1, "n": before + 1}]
        db.execute("CREATE TABLE passing (a INT PRIMARY KEY)")
        db.execute("DROP TABLE passing")


def test_it_is_made_for_its_owner_alone_and_stays(running: Running) -> None:
    file = running.data / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text().strip()
    assert len(text) == 64
    for pid in running.pids().values():
        words = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert text.encode() not in words
    for log in (running.data / "logs").iterdir():
        assert text not in log.read_text(errors="replace")
    assert text not in str(shown(running))


def heard(port: int, data: bytes, slowly: bool) -> bytes:
    """What a stranger hears who sends this."""
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
        if slowly:
            for each in data[:30]:
                stranger.sendall(bytes([each]))
                time.sleep(0.02)
        else:
            stranger.sendall(data)
        while more := stranger.recv(1 << 16):
            answer += more
    return answer


def test_a_stranger_hears_nothing_at_any_port(running: Running) -> None:
    hello = framed(1, wire.greeting("main", Role.CONTROLLER, "stranger", 1))
    other = Secret(None, (secrets.token_hex(32),))
    first = Asking(other, Role.CONTROLLER, Role.WORKER).first()
    found = ports(running)
    assert sorted(found) == ["api-1", "controller-1", "worker-1", "worker-2"]
    assert all(found.values()), found
    said = (
        hello + framed(2, Ping(2**60)),
        b"POST /v1/migrations HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"\xff" * (1 << 20),
        first + bytes(32),
        first[:20],
        b"",
    )
    tries = [(name, port, data, slowly) for name in found for port in found[name] for data in said for slowly in SLOWLY]
    with ThreadPoolExecutor(STRANGERS) as pool:  # Who says too little is waited for.
        for asked, answer in zip(tries, pool.map(lambda each: heard(*each[1:]), tries), strict=True):
            assert answer == b"" or (answer.startswith(MAGIC) and len(answer) == ANSWER_BYTES), asked
            assert not [each for each in TOLD if each in answer], asked
    serves(running)
    assert {each["health"] for each in shown(running)["workers"]} == {"ok"}
    assert all(each["refused"] > 0 for each in shown(running)["workers"])


async def greeted(port: int, role: Role, secret: Secret | None) -> bool:
    hello = wire.greeting("main", role, "test", 1)
    try:
        link = await wire.connect("127.0.0.1", port, hello, secret=secret)
    except HeadraceError:
        return False
    link.close()
    await link.closed.wait()
    return True


async def enters(running: Running, secret: Secret) -> bool:
    """Whether ZooKeeper shows the state to who has this secret."""
    authority = KazooAuthority(running.zookeeper(), "main", secret=secret)
    try:
        await authority.start()
        await authority.read()
    except Exception:
        return False
    finally:
        await authority.close()
    return True


async def reads(running: Running) -> list[str]:
    """The znodes that a stranger reads, of all that there are."""
    ours = KazooAuthority(running.zookeeper(), "main", secret=running.secret)
    theirs = KazooAuthority(running.zookeeper(), "main")
    await ours.start()
    await theirs.session.start()
    read, waiting = [], ["/headrace"]
    while waiting:
        path = waiting.pop()
        with suppress(NoNode):
            waiting += [f"{path}/{name}" for name in await ours.session.children(path)]
        with suppress(Exception):
            await theirs.session.get(path)
            read.append(path)
    await ours.close()
    await theirs.session.close()
    return read


async def test_zookeeper_shows_a_stranger_nothing(running: Running) -> None:
    assert await reads(running) == []
    theirs = KazooAuthority(running.zookeeper(), "main").session
    await theirs.start()
    for act in (theirs.create("/mine", b""), theirs.delete("/headrace"), theirs.protect("/"), theirs.children("/")):
        with pytest.raises(AccessRefused):
            await act
    await theirs.close()
    assert running.secret is not None
    assert await enters(running, running.secret)
    assert not await enters(running, Secret(None, (secrets.token_hex(32),)))


async def test_it_is_replaced_while_the_cluster_serves(running: Running) -> None:
    file = running.data / FILE
    old, new = file.read_text().strip(), secrets.token_hex(32)
    before, port = running.pids(), shown(running)["workers"][0]["port"]
    only_old, only_new = Secret(None, (old,)), Secret(None, (new,))
    assert await greeted(port, Role.API, only_old)
    assert not await greeted(port, Role.API, only_new)
    for texts, takes_new, takes_old in (((old, new), True, True), ((new, old), True, True), ((new,), True, False)):
        beside = file.with_name("beside")
        beside.touch(0o600)
        beside.write_text("\n".join(texts) + "\n")
        beside.replace(file)
        await asyncio.to_thread(serves, running)
        await asyncio.sleep(SETTLE_SECONDS)
        await asyncio.to_thread(serves, running)
        assert await greeted(port, Role.API, only_new) == takes_new
        assert await greeted(port, Role.API, only_old) == takes_old
        assert await enters(running, only_new) == takes_new
        assert await enters(running, only_old) == takes_old
    assert running.pids() == before, "nobody was started again"
    leader = shown(running)["cluster"]["leader"]
    url = f"http://{leader['host']}:{leader['port']}/v1/status"
    with httpx.Client(transport=as_operator(only_new)) as controller:
        assert (await asyncio.to_thread(controller.get, url)).json()["leads"]
    with httpx.Client(transport=as_operator(only_old)) as controller, pytest.raises(httpx.TransportError):
        await asyncio.to_thread(controller.get, url)
    assert await reads(running) == []


async def test_a_cluster_that_was_open_is_closed_at_its_next_start(launch: Launch) -> None:
    """As an earlier version has left it: all znodes are for everybody."""
    first = launch(*SIZE).serves()
    authority = KazooAuthority(first.zookeeper(), "main", secret=first.secret)
    await authority.start()
    authority.session.allow([])
    waiting, opened = ["/headrace"], []
    while waiting:
        path = waiting.pop()
        with suppress(NoNode):
            waiting += [f"{path}/{name}" for name in await authority.session.children(path)]
            await authority.session.protect(path)
            opened.append(path)
    assert {"/headrace", "/headrace/main", "/headrace/main/state", "/headrace/main/accounts/0"} >= set(opened[:2])
    await authority.close()
    assert await reads(first) != []
    (first.data / FILE).unlink()
    assert (await asyncio.to_thread(first.stop))[0] == 0
    again = await asyncio.to_thread(lambda: launch(*SIZE).serves())
    assert await reads(again) == []
    until(lambda: shown(again)["cluster"]["leader"])


def test_a_part_without_a_secret_is_for_its_own_machine(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from headrace.cli import app

    for part in ("worker", "controller", "api"):
        arguments = [part, "--zookeeper", "127.0.0.1:1", "--host", "0.0.0.0", "--advertise", "x"]
        told = CliRunner().invoke(app, [*arguments, "--data", str(tmp_path)] if part == "worker" else arguments)
        assert told.exit_code != 0
        assert "--secret-file" in told.output + str(getattr(told.exception, "hint", ""))
