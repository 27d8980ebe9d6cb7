"""An api process of a cluster: HTTP in front of what it knows of the cluster. Any of them answers any request.

It needs ZooKeeper to start, and neither ZooKeeper nor a controller to go on. One that starts before the cluster has
waits for it: it answers at once, and says so.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable

from api.app import create_app
from controller.cluster.deployment import ClusterDeployment
from headrace.cluster.leader_client import LeaderClient
from headrace.errors import BadRequest, HeadraceError
from headrace.listening import StartFailed, address, listen
from headrace.server import Running, Server, config
from headrace.settings import Settings
from worker.garbage import expect_long_lives
from worker.messages import Role
from worker.wire import greeting
from zookeeper.errors import AuthorityError
from zookeeper.kazoo_authority import KazooAuthority

_log = logging.getLogger("headrace.api")


async def run(settings: Settings, fd: int | None = None, started: Callable[[Running], None] | None = None) -> None:
    """Serve until SIGINT, SIGTERM, SIGHUP or ``Running.stop``; ``started`` is called once, when requests are taken.

    ``fd`` is a listening socket to take over, which several processes may share. Raises StartFailed.
    """
    if settings.zookeeper is None:
        raise BadRequest("an api process needs the address of ZooKeeper", hint="--zookeeper host:port")
    listening = listen(settings.host, settings.port) if fd is None else socket.socket(fileno=fd)
    with listening:
        authority = KazooAuthority(
            settings.zookeeper,
            settings.deployment,
            session_timeout=settings.session_timeout,
            auth=settings.zookeeper_auth,
        )
        try:
            await _serve(settings, authority, listening, started or _tell)
        except (AuthorityError, HeadraceError) as error:
            raise StartFailed(error.message, hint=error.hint) from error
        finally:
            await authority.close()


async def _serve(
    settings: Settings, authority: KazooAuthority, listening: socket.socket, started: Callable[[Running], None]
) -> None:
    await authority.start()
    name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
    hello = greeting(settings.deployment, Role.API, name, time.time_ns() // 1_000_000)
    deployment = await ClusterDeployment.open(authority, hello, LeaderClient, read_timeout=settings.read_timeout)
    try:
        app = create_app(deployment, max_body=settings.max_body_size, slow=settings.slow_request)
        expect_long_lives()
        await Server(config(app, settings), address(listening), started).serve([listening])
    finally:
        await deployment.close()


def _tell(running: Running) -> None:
    _log.info("answers at %s", running.url)


__all__ = ["run"]
