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
from collections.abc import Callable

from controller.cluster.deployment import ClusterDeployment
from controller.opening import Opening
from domains.errors import Cancelled
from headrace.cluster.leader_client import LeaderClient
from headrace.errors import BadRequest, HeadraceError
from headrace.listening import StartFailed, listen
from headrace.server import Running, answer
from headrace.settings import Settings
from worker.messages import Role
from worker.stopping import unless
from worker.wire import greeting
from zookeeper.errors import AuthorityError
from zookeeper.kazoo_authority import KazooAuthority

SHARED_SECONDS = 2.0
"""How long a process leaves a socket that it was given alone while it opens, several times what that takes: others take
from it too, or whoever connects waits for this moment, which is better than a 503."""

_log = logging.getLogger("headrace.api")


async def run(settings: Settings, fd: int | None = None, started: Callable[[Running], None] | None = None) -> None:
    """Serve until SIGINT, SIGTERM, SIGHUP or ``Running.stop``; ``started`` is called once, when the deployment serves.

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
        opening = Opening()
        deployment = asyncio.create_task(_open(settings, authority, opening))
        try:
            if fd is not None:
                await asyncio.wait([deployment], timeout=SHARED_SECONDS)
            await answer(settings, listening, started or _tell, opening, lambda: deployment)
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
    return await ClusterDeployment.open(
        authority, hello, LeaderClient, read_timeout=settings.read_timeout, opening=opening
    )


def _tell(running: Running) -> None:
    _log.info("answers at %s", running.url)


__all__ = ["run"]
