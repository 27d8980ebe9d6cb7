"""Starts a cluster's parts in order, keeps them running, and stops them in the opposite order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

import httpx

from controller.access.keeper import Keeper
from headrace.cluster.child import Backoff, ClusterPart, PartProcess
from headrace.cluster.directory import ClusterDirectory, as_begun, keep_zookeeper, servers_in, shards_of, whence
from headrace.cluster.kept_state import take_up
from headrace.serving.certificates import context_of
from headrace.serving.listening import (
    GRACE_SECONDS,
    StartFailed,
    address,
    check_exposed,
    hosts_of,
    is_public,
    listen,
    listen_for_mysql,
)
from headrace.settings import CLUSTER_SHARDS, Settings
from worker.belonging import claim
from worker.service.system import allow_open_files, on_hang_up, stop_signals, unless
from zookeeper.errors import AuthorityError, AuthorityUnavailable, ServerFailed
from zookeeper.kazoo_authority import KazooAuthority, authority_of
from zookeeper.secret import FILE as SECRET
from zookeeper.secret import make_secret
from zookeeper.server import Ensemble

READY_SECONDS = 120.0
"""Limit for the start of all processes. On a quiet machine it takes two or three seconds."""
LOOK_AGAIN = 0.05

WORKER_GRACE = 20.0
"""A worker that stops writes out what it has; a controller has nothing to write."""
CONTROLLER_GRACE = 5.0

HOST = "127.0.0.1"
"""The parts are for each other; only the api processes listen at the given address."""

PROGRAM = (sys.executable, "-m", "headrace")
"""The beginning of the parts' commands."""

Tell = Callable[[str], None]
NO_SOCKETS: Mapping[str, int] = {}
NOT_WAITED_FOR = "storage,shards,leader,changes"
"""Reasons not to be ready. A cluster is up once it answers: a lost disk or shard of it is shown by its status."""


@dataclass(frozen=True, slots=True)
class Up:
    """A cluster that serves."""

    url: str
    mysql: str
    """Where MySQL's clients are answered; "" where they are not."""
    zookeeper: str
    pids: dict[str, int]


@dataclass
class Supervisor:
    settings: Settings
    tell: Tell
    """Told in a line what happens to the parts."""
    altered: Callable[[ClusterPart], ClusterPart] = lambda part: part
    """How a part is started in another way than usual: a drill has some behind a proxy, or in a namespace."""
    _directory: ClusterDirectory = field(init=False)
    _children: list[PartProcess] = field(default_factory=list)
    """Parts in the order in which they are stopped."""
    _ensemble: Ensemble | None = None
    _zookeeper: str = ""
    _url: str = ""
    _mysql: str = ""
    _hosts: list[str] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a part has ended without having been asked to."""

    async def run(self, started: Callable[[Up], None], stop: asyncio.Event) -> None:
        """Until ``stop`` is set. ``started`` is called once, when requests are answered. Raises StartFailed."""
        self._directory = ClusterDirectory(self.settings.data)
        left = await asyncio.to_thread(self._directory.take)
        try:
            self.settings = as_begun(self.settings, self._directory.path)
            if self.settings.secret_file is None:
                secret = self._directory.path / SECRET
                make_secret(secret)
                self.settings = self.settings.model_copy(update={"secret_file": secret})
            if left:
                self.tell(f"ended what an earlier headrace up had left running: {', '.join(left)}")
            with listen(self.settings.host, self.settings.port) as listening, listen_for_mysql(self.settings) as mysql:
                self._mysql = "" if mysql is None else address(mysql, "mysql").partition("://")[2]
                self._hosts = hosts_of(self.settings, listening)
                self._url = address(listening, "http" if context_of(self.settings) is None else "https")
                try:
                    if await unless(stop, self._start(listening, mysql)):
                        started(Up(self._url, self._mysql, self._zookeeper, self._pids()))
                        await stop.wait()
                finally:
                    await self._stop()
        except AuthorityUnavailable as error:
            raise StartFailed(f"{error}{whence(self._directory.path, self.settings.zookeeper)}") from error
        except AuthorityError as error:
            raise StartFailed(str(error)) from error
        finally:
            self._directory.release()

    def read_certificates(self) -> None:
        """Have the api processes read the files of TLS again."""
        for child in self._children:
            if child.part.name.startswith("api-"):
                child.hang_up()

    def hurry(self) -> None:
        """While it stops: kill what still runs."""
        for child in self._children:
            child.kill()

    # --- start ----------------------------------------------------------------------------------------------

    async def _start(self, listening: socket.socket, mysql: socket.socket | None) -> None:
        settings = self.settings
        # The workers inherit the limit. ZooKeeper, which knows how many shards there are, needs files itself.
        allow_open_files(ceil((settings.shards or CLUSTER_SHARDS) / settings.workers))
        if settings.zookeeper is None:
            self._ensemble = Ensemble(servers_in(self._directory.path), settings.zookeepers or 1, tell=self.tell)
            await self._ensemble.start()
            self._zookeeper = self._ensemble.address
            self._tasks.append(asyncio.create_task(self._keep_zookeeper(self._ensemble), name="zookeeper"))
        else:
            self._zookeeper = settings.zookeeper
        await take_up(settings.model_copy(update={"zookeeper": self._zookeeper}), self._directory.path)
        authority = authority_of(settings.model_copy(update={"zookeeper": self._zookeeper}))
        await authority.start(create=True)
        try:
            claim(self._directory.path, authority.deployment, authority.deployment_id)
            if settings.zookeeper is not None:
                keep_zookeeper(self._directory.path, settings.zookeeper)
            await self._check_exposed(listening, authority)
            shards = await shards_of(settings, authority)
            allow_open_files(ceil(shards / settings.workers))
            self.settings = settings.model_copy(update={"shards": shards})
            self._children = [PartProcess(part, self.tell, self._changed) for part in self._parts(listening, mysql)]
            for child in reversed(self._children):
                await child.start()
            if not await unless(self._ended, self._until_there(authority)):
                raise self._not_started()
        finally:
            await authority.close()

    async def _check_exposed(self, listening: socket.socket, authority: KazooAuthority) -> None:
        """Before the api processes do: they would start in vain, again and again."""
        if not is_public(listening):
            return
        keeper = Keeper(authority.accounts())
        try:
            await keeper.start()
            where = self.settings.model_copy(update={"zookeeper": self._zookeeper})
            check_exposed(listening, where, accounts=keeper.closed)
        finally:
            await keeper.close()

    def _parts(self, listening: socket.socket, mysql: socket.socket | None) -> list[ClusterPart]:
        """In the order in which they are stopped."""
        settings = self.settings
        sockets = {"--fd": listening.fileno()} | ({} if mysql is None else {"--mysql-fd": mysql.fileno()})
        api = [
            self._part("api", number, settings.read_timeout + GRACE_SECONDS, sockets)
            for number in range(1, settings.apis + 1)
        ]
        controllers = [self._part("controller", each, CONTROLLER_GRACE) for each in range(1, settings.controllers + 1)]
        workers = [self._part("worker", each, WORKER_GRACE) for each in range(1, settings.workers + 1)]
        return [*api, *controllers, *workers]

    def _part(self, kind: str, number: int, grace: float, sockets: Mapping[str, int] = NO_SOCKETS) -> ClusterPart:
        """``sockets``: what it inherits, by the option that names it."""
        options = [word for option, number in sockets.items() for word in (option, str(number))]
        name = f"{kind}-{number}"
        part = ClusterPart(
            name,
            (*PROGRAM, kind, "--name", name, "--supervised", *options),
            {**os.environ, **self._environment()},
            self._directory.logs / f"{name}.log",
            grace,
            tuple(sockets.values()),
        )
        return self.altered(part)

    def _environment(self) -> dict[str, str]:
        """All settings as the parts shall have them, whatever the environment and the settings file say. Not on their
        command lines: those are for everybody to read, and one of the settings is a password."""
        settings = self.settings
        given = settings.model_dump(exclude={"name", "url"}, exclude_none=True)
        given |= {
            "data": self._directory.path,
            "secret_file": settings.secret_file.absolute() if settings.secret_file is not None else "",
            "host": HOST,
            "advertise": HOST,
            "worker_port": 0,
            "controller_port": 0,
            "api_port": 0,
            "allowed_hosts": self._hosts,  # An api process knows no name but that of the parts.
            "zookeeper": self._zookeeper,
            "quorum": settings.workers,
        }
        texts = {name: json.dumps(each) if isinstance(each, list) else str(each) for name, each in given.items()}
        return {f"HEADRACE_{name.upper()}": text for name, text in texts.items()} | {"PYTHONUNBUFFERED": "1"}

    async def _until_there(self, authority: KazooAuthority) -> None:
        """Returns when all parts are there and requests are answered. Raises StartFailed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_SECONDS
        while missing := await self._missing(authority):
            if loop.time() > deadline:
                raise StartFailed(
                    f"after {READY_SECONDS:g} s there is still no {missing}", hint=f'see "{self._directory.logs}"'
                )
            await asyncio.sleep(LOOK_AGAIN)

    def _not_started(self) -> StartFailed:
        child = next(child for child in self._children if child.ends)
        return StartFailed(f"{child.part.name} does not start: {child.last_words}", hint=f'see "{child.part.log}"')

    async def _missing(self, authority: KazooAuthority) -> str:
        """Missing parts; empty if all are there. A name that is registered may still be a dead process's."""
        try:
            there = {
                **{name: worker.pid for name, worker in (await authority.workers()).items()},
                **{name: controller.pid for name, controller in (await authority.candidates()).items()},
            }
            for child in self._children:
                registers = not child.part.name.startswith("api-")
                if child.pid is None or (registers and there.get(child.part.name) != child.pid):
                    return child.part.name
            leader = await authority.leader()
        except AuthorityUnavailable as error:
            return f"ZooKeeper: {error}"
        if leader is None or there.get(leader.name) != leader.pid:
            return "leader"
        return "" if await self._answers() else f"answer at {self._url}"

    async def _answers(self) -> bool:
        try:
            # It is our own, and reading the certificates of the web takes longer than the answer.
            async with httpx.AsyncClient(timeout=self.settings.read_timeout, verify=False) as client:
                return (await client.get(f"{self._url}/readyz?exclude={NOT_WAITED_FOR}")).is_success
        except httpx.HTTPError:
            return False

    # --- while it runs --------------------------------------------------------------------------------------

    async def _keep_zookeeper(self, ensemble: Ensemble) -> None:
        loop = asyncio.get_running_loop()
        backoffs: dict[int, Backoff] = {}
        began = loop.time()
        while True:
            number = await ensemble.ended()
            wait = backoffs.setdefault(number, Backoff()).after(loop.time() - began)
            self.tell(f"zookeeper-{number} has ended; it is started again in {wait:.1f} s")
            await asyncio.sleep(wait)
            began = loop.time()
            try:
                await ensemble.restart(number)
            except ServerFailed as error:
                self.tell(f"zookeeper-{number}: {error}")
            self._record()

    def _pids(self) -> dict[str, int]:
        pids = {child.part.name: child.pid for child in self._children if child.pid is not None}
        if self._ensemble is not None:
            pids |= {f"zookeeper-{number}": pid for number, pid in self._ensemble.pids.items()}
        return dict(sorted(pids.items()))

    def _changed(self) -> None:
        if any(child.ends for child in self._children):
            self._ended.set()
        self._record()

    def _record(self) -> None:
        try:
            self._directory.record({"url": self._url, "zookeeper": self._zookeeper}, self._pids())
        except OSError as error:
            # The parts matter more than the list of them; without it a supervisor that is killed leaves them running.
            self.tell(f"cannot write down what runs: {error.strerror or error}")

    # --- stop -----------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Parts stop before the parts that they ask: api, controllers, workers, ZooKeeper."""
        for kind in ("api", "controller", "worker"):
            await asyncio.gather(*(each.stop() for each in self._children if each.part.name.startswith(kind)))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._ensemble is not None:
            await self._ensemble.stop()
        self._record()


def up(
    settings: Settings,
    started: Callable[[Up], None],
    tell: Tell,
    altered: Callable[[ClusterPart], ClusterPart] = lambda part: part,
) -> None:
    """Run a cluster until SIGINT, SIGTERM or SIGHUP; a second one kills what is not stopped yet. With TLS,
    SIGHUP has the certificate read again. Raises StartFailed."""

    async def main() -> None:
        stop = asyncio.Event()
        supervisor = Supervisor(settings, tell, altered)

        def signalled() -> None:
            if stop.is_set():
                supervisor.hurry()
            else:
                stop.set()
                tell("stopping")

        loop = asyncio.get_running_loop()
        for each in stop_signals():
            loop.add_signal_handler(each, signalled)
        if settings.tls_cert is not None:
            loop.add_signal_handler(signal.SIGHUP, on_hang_up(loop, supervisor.read_certificates, signalled))
        await supervisor.run(started, stop)

    asyncio.run(main())
