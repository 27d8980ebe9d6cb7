"""A controller of a cluster as a process: its control interface, its candidacy, and a clean stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time

from api.control import create_control_app
from api.limits import Limits
from controller.cluster.leader.building import BulkSettings
from controller.cluster.leader.candidate import Candidate
from controller.cluster.leader.fleet import Timing, Wire
from controller.cluster.leader.leader import LeaderSettings
from controller.cluster.serving.archiving import archive_led
from headrace.cluster.control_links import behind_gate
from headrace.cluster.directory import shards_of
from headrace.errors import BadRequest, HeadraceError
from headrace.serving.listening import StartFailed, address, listen
from headrace.serving.opening import bulk_runners, rebuild_folder
from headrace.serving.server import HttpServer, Running, config
from headrace.settings import CLUSTER_SHARDS, Settings
from zookeeper.errors import AuthorityError, AuthorityUnavailable
from zookeeper.kazoo_authority import KazooAuthority, authority_of
from zookeeper.registration import ControllerDescriptor, advertised, check_name

# The leader keeps recipe and cuts beside the archive: a worker, who archives tables, knows of no recipe and no
# others.
#
# In every interval the leader has all workers archive (``archive_led``), and records that as a cut, with the recipe
# where it is another than before. So what is restored as of a time is what all workers had archived together.
#
# How far back the archive reaches is the workers' setting. A controller that is not given the same lets no recipe go.


async def keep_recipes(candidate: Candidate, settings: Settings) -> None:
    """Runs as long as the process, whenever it leads. An error is logged, and the work tried again."""
    assert settings.archive is not None, "there is no archive to keep it in"
    retention = settings.archive_retention if "archive_retention" in settings.model_fields_set else None
    while True:
        await asyncio.sleep(settings.archive_interval)
        leader = candidate.leader
        if leader is None or leader.ledger.state is None:
            continue
        try:
            await archive_led(leader, retention, urgent=False)
        except HeadraceError as error:
            _log.warning("no cut was recorded in the archive: %s", error)
        except Exception:  # Nobody waits for this task: what ended it would be seen when an archive is restored.
            _log.exception("no cut was recorded in the archive, for a reason that nobody foresaw")


_log = logging.getLogger("headrace.controller")


async def run(settings: Settings) -> None:
    """Stand for leader, and lead when elected, until SIGINT, SIGTERM or SIGHUP. Raises StartFailed."""
    if settings.zookeeper is None:
        raise BadRequest("a controller needs the address of ZooKeeper", hint="--zookeeper host:port")
    with listen(settings.host, settings.controller_port, "--controller-port") as listening:
        try:
            authority = authority_of(settings)
        except AuthorityError as error:
            raise StartFailed(error.message, hint=error.hint) from error
        try:
            await authority.start(create=True)
            await _serve(settings, authority, listening)
        except (AuthorityError, HeadraceError) as error:
            raise StartFailed(error.message, hint=error.hint) from error
        finally:
            await authority.close()


async def _serve(settings: Settings, authority: KazooAuthority, listening: socket.socket) -> None:
    shards = await _shards(settings, authority)
    descriptor = _descriptor(settings, listening)
    timing = Timing(dead_after=settings.dead_after, heartbeat=settings.dead_after / 4)
    process = time.time_ns() // 1_000_000
    leading = LeaderSettings(
        descriptor.name,
        shards,
        settings.quorum,
        timing,
        process,
        bulk=_bulk(settings),
        collation=settings.collation,
    )
    wire = Wire(settings.deployment, descriptor.name, process, authority.secret)
    candidate = Candidate(authority, wire, leading, descriptor)
    stopping = asyncio.Event()
    standing = asyncio.create_task(candidate.run(stopping))
    http = behind_gate(config(create_control_app(candidate, Limits.of(settings)), settings), authority.secret)
    server = HttpServer(http, address(listening), _tell)
    keeping = None if settings.archive is None else asyncio.create_task(keep_recipes(candidate, settings))
    standing.add_done_callback(lambda _: server.handle_exit(0, None))
    try:
        await server.serve([listening])
    finally:
        if keeping is not None:
            keeping.cancel()
        stopping.set()
        await standing


async def _shards(settings: Settings, authority: KazooAuthority) -> int:
    """Number of shards of a new deployment. Raises StartFailed if an existing one has another number."""
    try:
        return await shards_of(settings, authority)
    except AuthorityUnavailable as error:
        # As everything else here it goes on while ZooKeeper is away; what was decided counts in any case.
        _log.warning("the number of shards is not compared with what was decided: %s", error)
        return settings.shards or CLUSTER_SHARDS


def _bulk(settings: Settings) -> BulkSettings:
    return BulkSettings(settings.archive, bulk_runners(settings), settings.spark_threshold, rebuild_folder(settings))


def _descriptor(settings: Settings, listening: socket.socket) -> ControllerDescriptor:
    port = listening.getsockname()[1]
    try:
        host = advertised(settings.host, settings.advertise)
        name = check_name(settings.name or f"{host}-{port}", "controller")
    except ValueError as error:
        raise BadRequest(str(error), hint="--name and --advertise say how it is called and reached") from error
    return ControllerDescriptor(name, host, port, os.getpid())


def _tell(running: Running) -> None:
    _log.info("control interface at %s", running.url)
