"""A cluster of processes with accounts, attacked from outside and by its own users."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import httpx
import psutil
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError

from migrations.access.rights import EVERYTHING, Privilege
from tests.attack.stranger import attack
from tests.attack.who_may import ANYBODY, ENDPOINTS, FOLLOWED, OTHERS, POLICED, READS, SCHEMA, STATEMENTS, WRITES
from tests.hostile.run import resident
from tests.told_process import ToldProcess
from worker.wire.vocabulary import PROTOCOL

GROWTH_BYTES = 150_000_000
"""Of one process, that strangers may leave behind."""
SERVE_SECONDS = 60.0
"""After an attack, until a change is answered again."""
PASSWORD = "a long one"
WORD = "abracadabra"
"""Stored where nobody but an administrator may read it."""
REFUSED = (401, 403)
NUMBERS = count(1)


class Cluster:
    """``headrace up`` in a directory of its own, with an administrator."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        size = ("--workers", "2", "--shards", "2")
        arguments = ["-m", "headrace", "up", "--data", str(self.data), "--port", "0", *size, "--mysql-port", "0"]
        self.process = ToldProcess(arguments, {"HEADRACE_READ_TIMEOUT": "30"}, directory)
        self.url: str = self.process.read_until(r"answers at (http://\S+)")[1]
        self.process.read_until("stop with Ctrl-C")
        self.zookeeper: str = json.loads((self.data / "up.json").read_text())["zookeeper"]

    def processes(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.popen.pid)
        return [own, *own.children(recursive=True)]

    def ports(self) -> dict[int, str]:
        """Every port that a process of the cluster listens on, with the end of its command line."""
        return {
            each.laddr.port: " ".join(process.cmdline())[-60:]
            for process in self.processes()
            for each in process.net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        }

    def command(self, *arguments: str) -> str:
        """Its standard output. The password is what it is given to read."""
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *arguments],
            input=f"{PASSWORD}\n",
            env={**os.environ, "HEADRACE_URL": self.url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self) -> None:
        self.process.popen.send_signal(signal.SIGINT)
        code, output, errors = self.process.finish()
        assert code == 0, (code, output, errors)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    made = Cluster(directory)
    try:
        yield made
        made.stop()
    finally:
        for each in made.processes() if made.process.popen.poll() is None else []:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        made.process.kill()


async def run(directory: Path, seconds: float, seed: int) -> list[str]:
    """What is wrong. ``seconds``: of strangers at the ports."""
    with cluster(directory) as attacked:
        attacked.command("admin", "ann", *administers(attacked))
        key = attacked.command("key", "create", "--for", "ann", "--login", "ann")
        client = partial(httpx.AsyncClient, base_url=attacked.url, timeout=60)
        async with client(headers=bearer(key)) as http, client() as nobody:
            await _done(http, SCHEMA)
            faults = [*await _strangers(attacked, http, seconds, seed), *_without_secret(attacked)]
            return [*faults, *await _users(http, nobody)]


def administers(attacked: Cluster) -> tuple[str, ...]:
    return "--zookeeper", attacked.zookeeper, "--data", str(attacked.data)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def _done(http: httpx.AsyncClient, sql: str) -> dict[str, Any]:
    answer = await http.post("/v1/sql", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


# --- strangers --------------------------------------------------------------------------------------------------------


async def _strangers(attacked: Cluster, http: httpx.AsyncClient, seconds: float, seed: int) -> list[str]:
    """At every port; afterwards all is as it was."""
    before = {each.pid: resident(each.pid, whole=False) for each in attacked.processes()}
    ports = attacked.ports()
    leader = await _epoch(http)
    told = (b"ByAuthor", b"secrets", WORD.encode(), b"deployment", PROTOCOL.encode())
    heard = await attack(sorted(ports), seconds, seed, told)
    for port, each in heard.items():
        print(f"{port:6} {each.conversations:7,} conversations {each.bytes:10,} bytes  …{ports[port]}", flush=True)
    faults = [f"{ports[port]}: {fault}" for port, each in heard.items() for fault in sorted(each.faults)]
    faults += [f"nobody spoke to port {port}" for port, each in heard.items() if not each.conversations]
    after = {each.pid: resident(each.pid, whole=False) for each in attacked.processes()}
    faults += [f"process {pid} has ended" for pid in before if pid not in after]
    faults += [
        f"process {pid} grew from {before[pid]:,} to {size:,} bytes"
        for pid, size in after.items()
        if pid in before and size - before[pid] > GROWTH_BYTES
    ]
    try:
        async with asyncio.timeout(SERVE_SECONDS):
            await _done(http, "CREATE EXT VIEW Late AS SELECT id FROM stories WHERE title = ?; DROP VIEW Late")
    except TimeoutError:
        faults.append("the cluster does not change any more")
    if await _epoch(http) != leader:
        faults.append("the cluster has another leader")
    return faults


async def _epoch(http: httpx.AsyncClient) -> object:
    return (await http.get("/v1/status")).json().get("epoch")


def _without_secret(attacked: Cluster) -> list[str]:
    """Of ZooKeeper's znodes a stranger reads and changes none."""
    faults = []
    client = KazooClient(attacked.zookeeper)
    client.start(timeout=SERVE_SECONDS)
    try:
        for path in _below(client, "/headrace"):
            for call in (client.get, client.delete, lambda path: client.set(path, b""), client.get_children):
                with suppress(NoAuthError):
                    call(path)
                    faults.append(f"a stranger reads or changes {path}")
                    break
        with suppress(NoAuthError):
            client.create("/headrace/stranger", b"")
            faults.append("a stranger creates znodes")
    except KazooException as error:
        faults.append(f"a stranger's ZooKeeper client: {error!r}")
    finally:
        client.stop()
        client.close()
    return faults


def _below(client: KazooClient, path: str) -> Iterator[str]:
    """What a stranger finds, and the paths that anybody knows who has the program."""
    yield path
    with suppress(NoAuthError):
        yield from chain.from_iterable(_below(client, f"{path}/{each}") for each in client.get_children(path))


# --- users ------------------------------------------------------------------------------------------------------------


async def _users(http: httpx.AsyncClient, nobody: httpx.AsyncClient) -> list[str]:
    """Of each right at every endpoint, and of all rights but one with every statement; none of them sees the word."""
    faults = []
    keys: dict[str, set[Privilege]] = {}
    for privilege in Privilege:
        keys[await _key(http, {(privilege, "*")})] = {privilege}
    for route, (path, body, needed) in ENDPOINTS.items():
        method = route.split()[0]
        status = (await nobody.request(method, path, json=body)).status_code
        if (status in REFUSED) != (needed != ANYBODY):
            faults.append(f"{route}: nobody gets {status}")
        for key, held in keys.items():
            answer = await http.request(method, path, json=body, headers=bearer(key))
            may = isinstance(needed, str) or needed <= held
            if (answer.status_code == 403) == may:
                faults.append(f"{route}: {held} gets {answer.status_code}")
    listed = await _done(http, "SHOW TABLES")
    there = {str(row[0]).lower() for row in listed["results"][-1]["rows"]} | {EVERYTHING}
    for name in sorted({on for _, needed in STATEMENTS for _, on in needed} - there):
        await _done(http, f"CREATE TABLE {name} (id INT PRIMARY KEY)")  # Rights on a table need that it is there.
    for sql, needed in STATEMENTS:
        for missing in sorted(needed):
            answer = await http.post("/v1/sql", json={"sql": sql}, headers=bearer(await _key(http, needed - {missing})))
            if answer.status_code != 403 or WORD in answer.text:
                faults.append(f"{sql}: without {missing} it gets {answer.status_code}")
    return [*faults, *await _under_policies(http)]


async def _under_policies(http: httpx.AsyncClient) -> list[str]:
    """A user who has all rights but to bypass policies, among rows of others."""
    await _done(http, POLICED)
    all_but = {(each, "*") for each in Privilege} - {(Privilege.BYPASS_POLICIES, "*")}
    seven = {**bearer(await _key(http, all_but)), "Headrace-Claims": '{"sub": 7}'}
    before = [(await _done(http, sql))["results"] for sql in OTHERS]
    heard = bytearray()
    following = asyncio.create_task(_follow(http, seven, heard))
    faults = []
    for method, path, body, status in READS:
        answer = await http.request(method, path, json=body, headers=seven)
        if answer.status_code != status or WORD in answer.text:
            faults.append(f"{path} {body}: under policies it gets {answer.status_code}, {answer.text}")
    for method, path, body, wanted in WRITES:
        answer = await http.request(method, path, json=body, headers=seven)
        told = answer.json()
        affected = told.get("results", [told])[-1].get("rows_affected")
        if (answer.status_code, affected == 0) != ((200, True) if wanted is None else (wanted, False)):
            faults.append(f"{body}: under policies it gets {answer.status_code}, {answer.text}")
        if WORD in answer.text or [(await _done(http, sql))["results"] for sql in OTHERS] != before:
            faults.append(f"{body}: it comes to rows of others: {answer.text}")
    await _done(http, f"INSERT INTO mails VALUES (90, 8, '{WORD}'), (91, 7, 'the end')")
    with suppress(TimeoutError):
        async with asyncio.timeout(SERVE_SECONDS):
            while b"the end" not in heard and not following.done():
                await asyncio.sleep(0.05)
    following.cancel()
    if b"the end" not in heard or WORD.encode() in heard:
        faults.append(f"who follows live views is sent {heard.decode()}")
    return faults


async def _follow(http: httpx.AsyncClient, headers: dict[str, str], heard: bytearray) -> None:
    """Live views of a user, while others write."""
    async with http.stream("POST", "/v1/live", json=FOLLOWED, headers=headers) as stream:
        async for piece in stream.aiter_bytes():
            heard += piece


async def _key(http: httpx.AsyncClient, held: Set[tuple[Privilege, str]]) -> str:
    """Of a new account with these rights."""
    name = f"user{next(NUMBERS)}"
    grants = [f"CREATE ROLE {name}"]
    for privilege, on in sorted(held):
        if privilege is not Privilege.GRANT_OPTION:
            option = " WITH GRANT OPTION" if (Privilege.GRANT_OPTION, on) in held else ""
            grants.append(f"GRANT {privilege} ON {on} TO {name}{option}")
    answer = await _done(http, "; ".join((*grants, f"CREATE API KEY '' FOR {name}")))
    return str(answer["results"][-1]["rows"][0][1])
