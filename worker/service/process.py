"""The worker as a process: from its settings to a port that answers, and to the end.

It registers once its port answers. From then on it needs neither ZooKeeper nor a controller to go on: it answers, and
its domains send to each other, until a leader commands otherwise. It ends

* on a signal (SIGTERM, SIGINT, SIGHUP): it handles and answers what has come, and closes its shards;
* if a step met a bug, or a sync failed: then nothing that it holds can be trusted. It ends with an error, and other
  workers take its domains over. (A step that could not read breaks only its own domain, which the leader opens again:
  ``DomainHost.broken``);
* if a newer process has registered as the same worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

from domains.errors import BadRequest, Cancelled, HeadraceError, StorageFailure, Unavailable
from worker.archive.options import ArchiveOptions, ArchiveSettings
from worker.belonging import claim
from worker.dataflow.thread import DataflowThread
from worker.protocol.messages import Role
from worker.service.archiving import start_archiver
from worker.service.cycles import CycleCollector
from worker.service.server import WorkerServer
from worker.service.system import COUNT_SECONDS, bytes_beyond, expect_long_lives, make_private, stop_signals, unless
from worker.service.waits import decided_epochs
from worker.wire.connection import greeting
from worker.wire.peers import Peers
from worker.wire.server import WireServer, serve
from zookeeper.authority import ClusterAuthority
from zookeeper.errors import AuthorityError, ForeignDeployment
from zookeeper.kazoo_authority import AuthoritySettings, authority_of
from zookeeper.registration import WorkerDescriptor, advertised, check_name

RESERVE = 8 * 2**20
"""Bytes that partial state may always have, however much full state takes: some 20,000 keys, more than the reads that
are under way at any time ask for. Less would save little."""
LAST_TURNS = 20
"""Turns of the event loop between the end of the dataflow and that of the connections. The last answers are in memory
then, and each goes through a future or two until it is written."""

_log = logging.getLogger("headrace.worker")


class WorkerSettings(ArchiveSettings, AuthoritySettings, Protocol):
    """A worker's settings; ``headrace.settings`` has all settings."""

    @property
    def name(self) -> str | None:
        """Unique in the deployment, and the same after a restart. None: host and port."""

    @property
    def data(self) -> Path:
        """The directory of the shards. Workers that share it can take over each other's shards."""

    @property
    def host(self) -> str:
        """The address to listen on."""

    @property
    def worker_port(self) -> int:
        """0: any free port."""

    @property
    def advertise(self) -> str | None:
        """The address that others reach it at, if that is not ``host``."""

    @property
    def memory_limit(self) -> int: ...

    @property
    def disk_reserve(self) -> int: ...

    @property
    def max_evaluation_size(self) -> int:
        """Bytes that a process beside may hold that evaluates a part of a SELECT."""

    @property
    def max_automatic_size(self) -> int:
        """Bytes that automatic views may hold together."""


async def run(settings: WorkerSettings) -> None:
    """Be a worker until a signal comes.

    :raises HeadraceError: it could not start, or failed in a way that it cannot recover from.
    """
    if settings.zookeeper is None:
        raise BadRequest("a worker needs the address of ZooKeeper", hint="--zookeeper host:port")
    with as_headrace_errors():
        authority = authority_of(settings)
    try:
        with as_headrace_errors():
            await authority.start()
        await work(settings, authority)
    finally:
        await authority.close()


async def work(
    settings: WorkerSettings, authority: ClusterAuthority, ready: Callable[[Worker], None] = lambda worker: None
) -> None:
    """``run`` with an authority that is started; ``ready`` is called once the worker is registered."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stopping.set)
    expect_long_lives()
    collector = CycleCollector(lambda: False)  # Who asks it is not known here.
    collector.begin()
    async with AsyncExitStack() as opened:
        try:
            worker = await opened.enter_async_context(running(settings, authority, stopping))
        except Cancelled:
            return
        ready(worker)
        await _first(stopping, worker.failed, authority.superseded)
        # It leaves ZooKeeper first, so that nobody is sent here any more.
        await authority.close()
        if worker.dataflow.failure is not None:
            _log.critical('worker "%s" cannot go on: %s', worker.descriptor.name, worker.dataflow.failure)
            raise worker.dataflow.failure
        if authority.superseded.is_set():
            raise Unavailable(f'a newer process is worker "{worker.descriptor.name}"; this one ends')
        _log.info('worker "%s" stops', worker.descriptor.name)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


class Worker:
    """A worker that runs; see ``running``."""

    def __init__(
        self, dataflow: DataflowThread, peers: Peers, server: WireServer, descriptor: WorkerDescriptor
    ) -> None:
        self.dataflow = dataflow
        self.peers = peers
        self.server = server
        self.descriptor = descriptor
        self.failed = asyncio.Event()
        """Set when the dataflow has failed; ``dataflow.failure`` says why."""
        loop = asyncio.get_running_loop()

        def progressed() -> None:
            if dataflow.failure is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self.failed.set)

        dataflow.listeners.append(progressed)


@asynccontextmanager
async def running(
    settings: WorkerSettings, authority: ClusterAuthority, stopping: asyncio.Event | None = None
) -> AsyncIterator[Worker]:
    """A registered worker, until the block ends. The authority is started, and stays the caller's.

    :raises Cancelled: ``stopping`` was set before it was registered.
    :raises HeadraceError: the port is taken, the data directory cannot be used or belongs to another deployment, or
        another worker has the name.
    """
    name, host = _called(settings)
    with as_headrace_errors():
        settings.data.mkdir(parents=True, exist_ok=True)
        make_private(settings.data)
        directory = claim(settings.data, authority.deployment, authority.deployment_id)
    incarnation = time.time_ns() // 1_000_000  # A restart takes longer than a millisecond.
    readers = settings.data / "workers" / name / f"readers-{incarnation}"
    async with AsyncExitStack() as opened:
        opened.callback(shutil.rmtree, readers, ignore_errors=True)
        worker = await _open(settings, authority, name, host, incarnation, readers, directory, opened)
        with as_headrace_errors():
            if not await unless(stopping or asyncio.Event(), authority.register_worker(worker.descriptor)):
                raise Cancelled("it was stopped before it was registered")
        # Nobody asks an earlier process of this name any more.
        for older in readers.parent.glob("readers-*"):
            if older != readers:
                shutil.rmtree(older, ignore_errors=True)
        yield worker


def _called(settings: WorkerSettings) -> tuple[str, str]:
    """Its name, and the host that others reach it at. Raises BadRequest."""
    name = settings.name or f"{socket.gethostname()}-{settings.worker_port or os.getpid()}"
    try:
        return check_name(name, "worker"), advertised(settings.host, settings.advertise)
    except ValueError as error:
        raise BadRequest(str(error), hint="--name and --advertise say how it is called and reached") from error


async def _open(
    settings: WorkerSettings,
    authority: ClusterAuthority,
    name: str,
    host: str,
    incarnation: int,
    readers: Path,
    directory: str,
    opened: AsyncExitStack,
) -> Worker:
    """The dataflow, its peers and its port. ``opened`` closes them, after what has come is handled and answered."""
    peers: Peers
    dataflow = await asyncio.to_thread(
        DataflowThread,
        readers,
        memory_limit=settings.memory_limit,
        deliver=lambda sends: peers.send(sends),
        outbound_waiting=lambda: peers.waiting_bytes,
        reserve=RESERVE,
    )
    hello = greeting(authority.deployment, Role.WORKER, name, incarnation)
    peers = Peers(hello, dataflow.receive, authority.secret)
    opened.push_async_callback(peers.close)
    servers: list[WireServer] = []

    async def close() -> None:
        try:
            await asyncio.to_thread(dataflow.close)
        except HeadraceError as error:
            _log.error("not closed as it should: %s", error)
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)
        for server in servers:
            await server.close()

    opened.push_async_callback(close)
    dataflow.start()
    opened.callback(_count_beyond(dataflow))
    archiver = start_archiver(dataflow, ArchiveOptions.of(settings))
    if archiver is not None:
        opened.push_async_callback(asyncio.to_thread, archiver.close)
    handler = WorkerServer(
        *(dataflow, peers, name, incarnation, settings.data, archiver, settings.disk_reserve),
        settings.max_evaluation_size,
        settings.max_automatic_size,
        decided_epochs(authority),
    ).handle
    server = await serve(
        *(settings.host, settings.worker_port, authority.deployment, handler),
        name=name,
        incarnation=incarnation,
        secret=authority.secret,
    )
    servers.append(server)
    _log.info('worker "%s" listens on %s:%d', name, settings.host, server.port)
    descriptor = WorkerDescriptor(
        name,
        host,
        server.port,
        incarnation,
        os.getpid(),
        directory,
        str(readers.resolve()),
    )
    return Worker(dataflow, peers, server, descriptor)


def _count_beyond(dataflow: DataflowThread) -> Callable[[], None]:
    """Have state, now and then from here on, give way to what else the process takes. Answers how to end that."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def count() -> None:
        dataflow.hosted.outside = dataflow.waiting_bytes + bytes_beyond(dataflow.memory_limit)
        timers[:] = [loop.call_later(COUNT_SECONDS, count)]

    count()
    return lambda: timers[0].cancel()


@contextmanager
def as_headrace_errors() -> Iterator[None]:
    """Turn errors of ZooKeeper and of the disk into those that users see."""
    try:
        yield
    except ForeignDeployment as error:
        raise BadRequest(error.message, hint=error.hint) from error
    except AuthorityError as error:
        raise Unavailable(error.message, hint=error.hint) from error
    except OSError as error:
        raise StorageFailure(f"cannot use the data directory: {error}") from error
