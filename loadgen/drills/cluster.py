"""A real cluster for a drill: ``headrace up`` as a process of its own, and the numbers of all that it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from headrace.errors import HeadraceError
from headrace.serving.listening import listen
from worker.service.shards import started_at
from zookeeper.secret import Secret, secret_of

# The load's process, as the drill sees it: orders in, answers out.

ORDER_SECONDS = 120.0
"""Limit for an order. A cluster is never so slow: then the load process hangs."""
LINE_MAX = 1 << 20


class DrillFailed(HeadraceError):
    """The drill itself could not be carried out, so it says nothing about the cluster."""

    code = "drill_failed"


@dataclass
class DrillLoadProcess:
    records: Path
    _process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, url: str, seed: str, records: Path, rates: tuple[float, float]) -> DrillLoadProcess:
        reads, writes = rates
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loadgen.drills.load", "--url", url, "--seed", seed, "--records", str(records)),
            *("--reads", str(reads), "--writes", str(writes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_MAX,
            start_new_session=True,  # Ctrl-C is for the drill, which ends it.
        )
        return cls(records, process)

    async def order(self, do: str, **more: Any) -> dict[str, Any]:
        """The load's answer. Raises DrillFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
            async with asyncio.timeout(ORDER_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise DrillFailed(f'the load did not "{do}" within {ORDER_SECONDS:g} s') from None
        except OSError as error:
            raise DrillFailed(f"the load has ended: {error}") from error
        if not line:
            raise DrillFailed(f'the load ended instead of answering to "{do}"')
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise DrillFailed(f'the load could not "{do}": {answer["failed"]}')
        return answer

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


HOST = "127.0.0.1"
DEPLOYMENT = "main"
"""The default of the setting: a drill's cluster has a ZooKeeper of its own."""
START_SECONDS = 90.0
STARTS_MAX = 3
"""A port that was free a moment ago may be taken by another program before the cluster listens there."""
IN_USE = "Address already in use"
STOP_SECONDS = 60.0
LOOK_AGAIN = 0.05
ANSWERS = "headrace.api: answers at"
ASK_SECONDS = 60.0
STATUS_SECONDS = 3.0
"""More than an api process waits for a worker that hangs."""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """How large a drill's cluster is. Four shards on three workers: one of them has two."""

    workers: int = 3
    shards: int = 4
    controllers: int = 2
    zookeepers: int = 1
    apis: int = 1


@dataclass
class DrillCluster:
    """A running ``headrace up``. ``special``: parts that are started in another way (``supervised.py``)."""

    data: Path
    shape: ClusterShape
    special: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    zookeeper: str | None = None
    """Address of an existing ZooKeeper; None: the supervisor starts its own."""
    port: int = 0
    mysql_port: int = 0
    """Where MySQL's clients are answered; 0: nowhere."""
    _process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def start(self) -> None:
        """Start it, or start it again on its data; returns when it serves. Raises DrillFailed."""
        self.data.mkdir(parents=True, exist_ok=True)
        starts = 1 if self.port else STARTS_MAX
        while True:
            if not self.port:
                with listen(HOST, 0) as free:
                    self.port = free.getsockname()[1]
            with (self.data / "up.log").open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command(), stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
                )
            starts -= 1
            try:
                return await self._until_serving()
            except DrillFailed:
                if not starts or IN_USE not in self._last_words():
                    raise
            self.port = 0

    def _command(self) -> list[str]:
        program = ["loadgen.drills.supervised", json.dumps(self.special)] if self.special else ["headrace", "up"]
        shape = self.shape
        options = {
            "--data": self.data,
            "--port": self.port,
            "--workers": shape.workers,
            "--shards": shape.shards,
            "--controllers": shape.controllers,
            "--apis": shape.apis,
            **({"--mysql-port": self.mysql_port} if self.mysql_port else {}),
            **({"--zookeeper": self.zookeeper} if self.zookeeper else {"--zookeepers": shape.zookeepers}),
        }
        return [sys.executable, "-m", *program, *(str(word) for option in options.items() for word in option)]

    async def _until_serving(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while True:
            status = await self.status()
            if status is not None and not missing(status, self.shape):
                return
            if self._process.returncode is not None:
                raise DrillFailed(f"the cluster did not start: {self._last_words()}", hint=f'see "{self.data}"')
            if loop.time() > deadline:
                what = "no answer" if status is None else ", ".join(missing(status, self.shape))
                raise DrillFailed(f"the cluster is not whole after {START_SECONDS:g} s: {what}")
            await asyncio.sleep(LOOK_AGAIN)

    def _last_words(self) -> str:
        lines = (self.data / "up.log").read_text(errors="replace").strip().splitlines()
        return " ".join(lines[-2:]) if lines else "it said nothing"

    async def stop(self) -> None:
        """Stop it as Ctrl-C would, and if that takes too long, by force."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                await self.kill_all()
        self._process = None

    async def kill_all(self) -> None:
        """kill -9 to the supervisor and everything that it started, at once."""
        assert self._process is not None
        pids = self.pids()
        for pid in (self._process.pid, *pids.values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._process.wait()

    # --- what there is ------------------------------------------------------------------------------------------

    @property
    def secret(self) -> Secret | None:
        return secret_of(None, self.data)

    @property
    def address_of_zookeeper(self) -> str:
        return str(self._record()["zookeeper"])

    def pids(self) -> dict[str, int]:
        """Part → process number, of those that run. A part that died a moment ago may still be named."""
        return {name: int(part["pid"]) for name, part in self._record()["parts"].items()}

    def answers(self, api: str) -> int:
        """The number of times that an api process of this name has begun to answer. All of them answer at one address,
        so only its log shows it."""
        log = self.data / "logs" / f"{api}.log"
        return log.read_text(errors="replace").count(ANSWERS) if log.exists() else 0

    def away(self) -> list[str]:
        """Parts that do not run at this moment."""
        shape, parts = self.shape, self._record()["parts"]
        counts = {"worker": shape.workers, "controller": shape.controllers, "api": shape.apis}
        if self.zookeeper is None:
            counts["zookeeper"] = shape.zookeepers
        names = [f"{kind}-{number}" for kind, count in counts.items() for number in range(1, count + 1)]
        return [name for name in names if name not in parts or started_at(parts[name]["pid"]) != parts[name]["started"]]

    def signal(self, names: Iterable[str], how: signal.Signals) -> None:
        """Send a signal to parts by name; those that are gone already are left out."""
        pids = self.pids()
        for name in names:
            if name in pids:
                with suppress(ProcessLookupError):
                    os.kill(pids[name], how)

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.data / "up.json").read_text())
        return record

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=ASK_SECONDS)

    def started_with(self, kind: str, environment: Mapping[str, str]) -> None:
        """Parts of this kind are to be started with this, too, in their environment."""
        shape = self.shape
        count = {"worker": shape.workers, "controller": shape.controllers, "api": shape.apis}[kind]
        for number in range(1, count + 1):
            before = self.special.get(f"{kind}-{number}", {})
            both = {**before.get("environment", {}), **environment}
            self.special[f"{kind}-{number}"] = {**before, "environment": both}

    async def status(self) -> dict[str, Any] | None:
        """``GET /v1/status``; None where there is no answer."""
        try:
            async with httpx.AsyncClient(timeout=STATUS_SECONDS) as client:
                answer = await client.get(f"{self.url}/v1/status")
        except httpx.HTTPError:
            return None
        return answer.json() if answer.is_success else None


async def asked(client: httpx.AsyncClient, path: str, body: Any, token: str = "") -> Any:
    """The answer to a POST. Raises DrillFailed if it is an error."""
    answer = await client.post(path, json=body, headers={"Headrace-Token": token} if token else None)
    if not answer.is_success:
        raise DrillFailed(f"{path} {json.dumps(body)[:100]}: {answer.text[:300]}")
    return answer.json()


async def headrace(*words: object) -> str:
    """The output of the command that an operator types. Raises DrillFailed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", *map(str, words)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate()
    if process.returncode != 0:
        raise DrillFailed(f"headrace {words[0]} fails: {said.decode(errors='replace').strip()}")
    return out.decode()


def missing(status: Mapping[str, Any], shape: ClusterShape) -> list[str]:
    """Everything that the cluster lacks, in words; empty for a whole cluster."""
    cluster = status.get("cluster", {})
    words = [] if cluster.get("leader") else ["no leader"]
    if cluster.get("zookeeper") != "connected":
        words.append("ZooKeeper is away")
    there = {
        each["worker"]
        for each in status.get("workers", ())
        if each["registered"] and each["health"] not in ("silent", "failed")
    }
    if len(there) < shape.workers:
        words.append(f"{shape.workers - len(there)} of {shape.workers} workers are away")
    hosted = placement(status)
    linked = {
        each["domain"]
        for each in status.get("domains", ())
        if each["linked"] and hosted.get(each["domain"]) == each["worker"]
    }
    if len(linked) < shape.shards:
        words.append(f"{shape.shards - len(linked)} of {shape.shards} domains are not served")
    return words


def placement(status: Mapping[str, Any]) -> dict[int, str]:
    """Domain → the worker that is to host it."""
    return {domain: each["worker"] for each in status.get("workers", ()) for domain in each["domains"]}


def uneven(status: Mapping[str, Any]) -> list[str]:
    """Whether one worker has two domains more than another, in words."""
    counts = [len(each["domains"]) for each in status.get("workers", ())]
    return ["domains are to be moved"] if counts and max(counts) - min(counts) > 1 else []
