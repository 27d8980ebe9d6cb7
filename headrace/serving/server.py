"""Runs a deployment behind uvicorn in this process, from a free port to a clean stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn

from api.app import create_app
from api.doors.asgi import AsgiDoor
from api.doors.opening import OpeningDoor
from api.doors.tls import Tls, TlsConnection
from api.doors.wire_http import WireHttp
from api.limits import Admission, Limits
from api.mysql.door import MysqlDoor
from api.mysql.shared import MysqlShared
from controller.deployment import Deployment
from controller.embedded.opening import Opening
from domains.errors import Cancelled
from headrace.errors import HeadraceError, named
from headrace.serving.access import upstream_of
from headrace.serving.certificates import context_of, read_again
from headrace.serving.listening import (
    GRACE_SECONDS,
    StartFailed,
    address,
    check_exposed,
    hosts_of,
    listen,
    listen_for_mysql,
    log_to_standard_error,
)
from headrace.serving.opening import open_deployment
from headrace.settings import Settings
from worker.service.cycles import CycleCollector
from worker.service.system import (
    COUNT_SECONDS,
    end_at_once,
    expect_long_lives,
    give_back_early,
    on_hang_up,
    stop_signals,
)
from zookeeper.accounts import FILE as ACCOUNTS


@dataclass(frozen=True, slots=True)
class Running:
    """A server that takes requests."""

    url: str
    mysql: str
    """Where MySQL's clients are answered, ``127.0.0.1:3306``; "" where they are not."""
    stop: Callable[[], None]
    """Begins a clean stop, as a signal does."""


class HttpServer(uvicorn.Server):
    """uvicorn, but it says when it serves, and a signal that stopped it is not raised again: the exit code is 0."""

    def __init__(
        self,
        config: uvicorn.Config,
        url: str,
        started: Callable[[Running], None],
        stopping: Callable[[], None] = lambda: None,
        reload: Callable[[], None] | None = None,
        mysql: str = "",
    ) -> None:
        """``reload``: called on SIGHUP, which stops the server otherwise."""
        super().__init__(config)
        self._reload = reload
        self._tell_stopping = stopping
        self._running = Running(url, mysql, self._stop)
        self._tell_started = started

    def _stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell_started(self._running)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._tell_stopping()  # First: a request that waits for a migration would be waited for.
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        before = {each: signal.signal(each, self.handle_exit) for each in stop_signals()}
        if self._reload is not None:
            reloads = on_hang_up(asyncio.get_running_loop(), self._reload, self._stop)
            was = signal.signal(signal.SIGHUP, lambda *_: reloads())
            before.setdefault(signal.SIGHUP, was)
        try:
            yield
        finally:
            for each, handler in before.items():
                # A second signal, while all is closed, is not a start that is given up.
                signal.signal(each, signal.SIG_DFL if handler is end_at_once else handler)


def config(app: object, settings: Settings, tls: Tls | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=WireHttp if tls is None else partial(TlsConnection, tls, WireHttp),  # type: ignore[arg-type]
        loop="auto",
        ws="none",  # ``HttpProtocol`` has its own.
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        log_config=None,
        timeout_keep_alive=settings.idle_timeout,  # type: ignore[arg-type]  # As a timer takes it.
        timeout_graceful_shutdown=int(settings.read_timeout) + GRACE_SECONDS,
    )


def serve(settings: Settings, started: Callable[[Running], None]) -> None:
    """Serve until SIGINT, SIGTERM, SIGHUP or ``Running.stop``; ``started`` is called once, when the deployment serves.
    With TLS, SIGHUP has the certificate read again.

    Raises StartFailed. On a stop no new connections are taken, migrations are cancelled, other requests under way are
    finished, and the deployment is closed.
    """
    give_back_early()
    log_to_standard_error(settings)
    loop_factory = config(None, settings).get_loop_factory()
    with listen(settings.host, settings.port) as listening, listen_for_mysql(settings) as mysql:
        if not (settings.data / ACCOUNTS).exists():  # Now, and not after hours of opening.
            check_exposed(listening, settings, accounts=False)
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_serve(settings, listening, mysql, started))


async def _serve(
    settings: Settings, listening: socket.socket, mysql: socket.socket | None, started: Callable[[Running], None]
) -> None:
    try:
        opening = Opening()
        await answer(settings, listening, started, opening, lambda: open_deployment(settings, opening), mysql)
    except HeadraceError as error:
        raise StartFailed(str(error)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartFailed(f'cannot use the data directory "{settings.data}": {reason}') from error


def _collect(admission: Admission) -> None:
    expect_long_lives()
    admission.collector = CycleCollector(lambda: not admission.waiting)
    admission.collector.begin()


async def answer(
    settings: Settings,
    listening: socket.socket,
    started: Callable[[Running], None],
    opening: Opening,
    open_it: Callable[[], Awaitable[Deployment]],
    mysql: socket.socket | None = None,
) -> None:
    """Answer from the first moment on: how far the start is, and once a deployment is open, for that. Raises what keeps
    it from being opened. A stop before that gives the start up, which is no error."""
    admission = Admission(Limits.of(settings))
    context = context_of(settings)
    tls = None if context is None else Tls(context, admission)
    door = OpeningDoor(opening, admission)
    http = config(door, settings, tls)
    tasks: list[asyncio.Task[Deployment]] = []
    doors: list[AsgiDoor | MysqlDoor] = []
    timers: list[asyncio.TimerHandle] = []

    async def open_behind(running: Running) -> Deployment:
        try:
            deployment = await _opened(open_it, listening, settings)
        except BaseException:
            running.stop()
            raise
        if not opening.given_up:
            app = http.loaded_app = _app(deployment, admission, settings, listening)
            doors.append(app)
            door.end(app)
            if mysql is not None:
                doors.insert(0, await _mysql_door(deployment, app, settings, tls, mysql))
            _collect(admission)
            count(deployment)
            started(running)
        return deployment

    def count(deployment: Deployment) -> None:
        deployment.count_outside(admission.bytes())
        timers[:] = [asyncio.get_running_loop().call_later(COUNT_SECONDS, count, deployment)]

    def stopping() -> None:
        opening.give_up()
        door.end()
        for task in tasks:
            if task.done() and task.exception() is None:
                task.result().stopping()

    server = HttpServer(
        http,
        address(listening, "http" if tls is None else "https"),
        lambda running: tasks.append(asyncio.create_task(open_behind(running))),
        stopping,
        None if tls is None else partial(_read_again, settings, tls),
        "" if mysql is None else address(mysql, "mysql").partition("://")[2],
    )
    try:
        # In a task of its own: it wakes ten times a second, and what opens a deployment need not.
        await asyncio.create_task(server.serve([listening]))
    finally:
        opening.give_up()
        if tls is not None:
            tls.close()
        if admission.collector is not None:
            admission.collector.end()
        for timer in timers:
            timer.cancel()
        await _close(doors, tasks)


async def _close(doors: Sequence[AsgiDoor | MysqlDoor], opened: Sequence[asyncio.Task[Deployment]]) -> None:
    for door in doors:
        await door.close()
    for task in opened:
        try:
            deployment = await task
        except Cancelled:
            continue
        await deployment.close()


def _read_again(settings: Settings, tls: Tls) -> None:
    tls.context = read_again(settings, tls.context)


def _app(deployment: Deployment, admission: Admission, settings: Settings, listening: socket.socket) -> AsgiDoor:
    return create_app(
        deployment,
        admission=admission,
        slow=settings.slow_request,
        proxies=settings.trusted_proxy,
        hosts=hosts_of(settings, listening),
        origins=settings.cors_origins,
        drills=settings.drills,
        backups=None if settings.backups is None else partial(_backups, settings.backups),
    )


async def _mysql_door(
    deployment: Deployment, app: AsgiDoor, settings: Settings, tls: Tls | None, listening: socket.socket
) -> MysqlDoor:
    shared = MysqlShared(
        deployment,
        app.endpoints,
        app.requests,
        tls=tls,
        version=settings.mysql_version,
        max_prepared=settings.max_prepared,
        upstream=upstream_of(settings),
    )
    door = MysqlDoor(shared)
    await door.listen(listening)
    return door


def _backups(url: str) -> list[dict[str, Any]]:
    with named():
        from headrace.backup.choosing import listed  # Late: it loads pyarrow.
    return listed(url)


async def _opened(
    open_it: Callable[[], Awaitable[Deployment]], listening: socket.socket, settings: Settings
) -> Deployment:
    """The deployment, if it may be reached as it will be. Raises StartFailed, and what keeps it from being opened."""
    deployment = await open_it()
    try:
        accounts = deployment.accounts
        check_exposed(listening, settings, accounts=accounts is not None and accounts.closed)
    except BaseException:
        await deployment.close()
        raise
    return deployment
