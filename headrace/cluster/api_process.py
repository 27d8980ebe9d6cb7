"""An api process of a cluster: HTTP in front of what it knows of the cluster. Any of them answers any request.

It needs ZooKeeper to start, and neither ZooKeeper nor a controller to go on. While it starts, and where it starts
before the cluster has, it answers with what it waits for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from controller.access.keeper import Keeper
from controller.cluster.leader.candidate import NotLeading
from controller.cluster.leader.fleet import Deposed
from controller.cluster.serving.connections import no_leader
from controller.cluster.serving.deployment import ClusterDeployment
from controller.cluster.serving.directory import Directory
from controller.cluster.state import AutomaticList
from controller.deployment import BackfillStatus, MigrationStatus
from controller.embedded.opening import Opening
from domains.errors import Cancelled, LeaderLost
from domains.plan.packets import Insert
from headrace.cluster.control_links import to_controllers
from headrace.errors import BadRequest, HeadraceError, rebuild
from headrace.serving.access import begin_audit, begin_tokens
from headrace.serving.listening import StartFailed, listen, listen_for_mysql
from headrace.serving.opening import spark_selects
from headrace.serving.server import Running, answer
from headrace.settings import Settings
from migrations.filling import fill_to_json
from migrations.recipe import RecipeEntry
from worker.adhoc.pool import Budget
from worker.protocol.messages import Role
from worker.service.system import unless
from worker.wire.connection import greeting
from zookeeper.address import joined
from zookeeper.errors import AuthorityError
from zookeeper.kazoo_authority import KazooAuthority, authority_of
from zookeeper.registration import ControllerDescriptor

# The way from an api process to the controller that leads: HTTP to its control interface.

LOOK_SECONDS = 0.5
"""Seconds between two looks whether the asked controller still leads."""
CONNECT_SECONDS = 1.0
"""A controller that runs takes a connection at once."""


class LeaderClient:
    """See :class:`controller.cluster.serving.deployment.LeaderDoor`, which it implements."""

    def __init__(self, directory: Directory, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._directory = directory
        # How long a migration takes nobody knows: it is over when the leader says so, or is lost.
        transport = transport or to_controllers(directory.authority.secret)
        self._http = httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None, connect=CONNECT_SECONDS))

    async def run(self, entry: RecipeEntry, sql: str, rows: Insert | None = None) -> None:
        asked = {"entry": entry.document(), "sql": sql, "wait": True}
        if rows is not None:
            asked["rows"] = fill_to_json(rows)
        started = await self._ask("POST", "/v1/migrations", asked)
        error = _status(started).error
        if error is not None:
            raise _error(*error)

    async def start(self, sql: str) -> MigrationStatus:
        asked = {"entry": RecipeEntry((sql,)).document(), "sql": sql, "wait": False}
        return _status(await self._ask("POST", "/v1/migrations", asked))

    async def migrations(self) -> list[MigrationStatus]:
        return list(map(_status, await self._ask("GET", "/v1/migrations")))

    async def migration(self, id: str) -> MigrationStatus:
        return _status(await self._ask("GET", f"/v1/migrations/{quote(id, safe='')}"))

    async def cancel(self, id: str) -> MigrationStatus:
        return _status(await self._ask("DELETE", f"/v1/migrations/{quote(id, safe='')}"))

    async def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = await self._ask("GET", "/v1/status")
        return shown

    async def keep(self, sql: str, lately: int) -> AutomaticList:
        return _automatic(await self._ask("POST", "/v1/automatic", {"keep": sql, "lately": lately}))

    async def automatic(self, used: Mapping[str, int], written: Mapping[str, int]) -> AutomaticList:
        told = {"used": dict(used), "written": dict(written)}
        return _automatic(await self._ask("POST", "/v1/automatic", told))

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        leader = self._directory.leader
        if leader is None:
            raise no_leader("none was ever heard of")
        if not self._leads(leader):  # One that hangs takes connections still.
            raise no_leader(f'"{leader.name}" did last, and no longer leads')
        url = f"http://{joined(leader.host, leader.port)}{path}"
        asking = asyncio.ensure_future(self._http.request(method, url, json=body))
        try:
            while not (await asyncio.wait([asking], timeout=LOOK_SECONDS))[0]:
                if not self._leads(leader):  # It hangs, or is cut off: it would never answer.
                    raise _lost(leader, "another leads now" if self._directory.led else "it no longer leads")
            answer = asking.result()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise no_leader(f'controller "{leader.name}" does not answer: {error}') from error
        except httpx.HTTPError as error:
            raise _lost(leader, str(error)) from error
        finally:
            asking.cancel()
        return _read(answer)

    def _leads(self, leader: ControllerDescriptor) -> bool:
        return self._directory.led and self._directory.leader == leader


def _lost(leader: ControllerDescriptor, why: str) -> LeaderLost:
    return LeaderLost(
        f'controller "{leader.name}" was lost while it was asked: {why}',
        hint="the next one carries on what was decided: look at the tables and views before you ask again",
    )


def _read(answer: httpx.Response) -> Any:
    """The answer, or the error that it is."""
    try:
        document = answer.json()
    except ValueError as error:
        raise LeaderLost(f"the leader answered {answer.status_code} and no JSON") from error
    if answer.is_success:
        return document
    told = document["error"]
    raise _error(told["code"], told["message"], told["hint"], answer.status_code)


def _error(code: str, message: str, hint: str | None, status: int = 500) -> HeadraceError:
    """A controller that does not lead, or no more, says so by its own errors; to us they say where to ask."""
    if code == NotLeading.code:
        return no_leader(message)
    if code == Deposed.code:
        return LeaderLost(message, hint=hint)
    return rebuild(code, message, hint, status=status)


def _automatic(document: dict[str, Any]) -> AutomaticList:
    return AutomaticList(document["changes"], tuple((sql, first, check) for sql, first, check in document["views"]))


def _status(document: dict[str, Any]) -> MigrationStatus:
    error, backfill = document["error"], document.get("backfill")
    return MigrationStatus(
        document["id"],
        document["sql"],
        document["state"],
        document["step"],
        document["progress"],
        tuple(document["steps"]),
        None if error is None else (error[0], error[1], error[2]),
        None if backfill is None else BackfillStatus(**backfill),
    )


SHARED_SECONDS = 2.0
"""How long a process leaves a socket that it was given alone while it opens, several times what that takes: others take
from it too, or whoever connects waits for this moment, which is better than a 503."""

_log = logging.getLogger("headrace.api")


async def run(
    settings: Settings,
    fd: int | None = None,
    started: Callable[[Running], None] | None = None,
    mysql_fd: int | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM, SIGHUP or ``Running.stop``; ``started`` is called once, when the deployment serves.

    ``fd`` is a listening socket to take over, which several processes may share; ``mysql_fd`` one for MySQL's clients.
    Raises StartFailed.
    """
    if settings.zookeeper is None:
        raise BadRequest("an api process needs the address of ZooKeeper", hint="--zookeeper host:port")
    try:
        authority = authority_of(settings)
    except AuthorityError as error:
        raise StartFailed(error.message, hint=error.hint) from error
    listening = listen(settings.host, settings.port) if fd is None else socket.socket(fileno=fd)
    mysql_listening = listen_for_mysql(settings) if mysql_fd is None else socket.socket(fileno=mysql_fd)
    with listening, mysql_listening as mysql:
        opening = Opening()
        deployment = asyncio.create_task(_open(settings, authority, opening))
        try:
            if fd is not None:
                await asyncio.wait([deployment], timeout=SHARED_SECONDS)
            await answer(settings, listening, started or _tell, opening, lambda: deployment, mysql)
        except (AuthorityError, HeadraceError) as error:
            raise StartFailed(error.message, hint=error.hint) from error
        finally:
            await authority.close()


async def _open(settings: Settings, authority: KazooAuthority, opening: Opening) -> ClusterDeployment:
    """Raises Cancelled, AuthorityError, HeadraceError."""
    opening.begin(f"asking ZooKeeper at {settings.zookeeper}")
    if not await unless(opening.stop, authority.start()):
        raise Cancelled("the start was given up")
    name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
    hello = greeting(settings.deployment, Role.API, name, time.time_ns() // 1_000_000)
    deployment = await ClusterDeployment.open(
        authority,
        hello,
        LeaderClient,
        read_timeout=settings.read_timeout,
        opening=opening,
        ad_hoc=settings.ad_hoc,
        budget=Budget.of(settings),
    )
    keeper = Keeper(authority.accounts())
    try:
        keeper.tokens = await begin_tokens(settings)
        await keeper.start()
        keeper.audit = begin_audit(settings, settings.name)
    except BaseException:
        await keeper.close()
        await deployment.close()
        raise
    deployment.accounts = keeper
    deployment.selects.by_spark = spark_selects(settings)
    deployment.snapshots.take_every(settings.snapshot_every)
    await deployment.meet_others(hello, settings.host, settings.api_port, settings.advertise)
    return deployment


def _tell(running: Running) -> None:
    _log.info("answers at %s%s", running.url, running.mysql and f", MySQL's clients at {running.mysql}")


__all__ = ["run"]
