"""A controller process: it stands for leader, leads while it is elected, and stands again when that is over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.cluster.following import Follower
from controller.cluster.handles import Connect
from controller.cluster.leader import Leader, LeaderSettings
from controller.cluster.leader_status import status_of
from domains.errors import HeadraceError, Unavailable
from zookeeper.cluster_authority import ClusterAuthority, Election
from zookeeper.descriptors import ControllerDescriptor
from zookeeper.errors import AuthorityError

FOLLOW_SECONDS = 0.5
"""Between two candidacies that could not begin, because ZooKeeper does not answer."""

_log = logging.getLogger("headrace.controller")


class NotLeading(Unavailable):
    """This controller does not lead: nothing was changed."""

    code = "not_leading"


class Candidate:
    """``leader`` is there while this process leads. One term of office follows another, each with a Leader of its
    own: what one knew may be old by the next."""

    def __init__(
        self,
        authority: ClusterAuthority,
        connect: Connect,
        settings: LeaderSettings,
        descriptor: ControllerDescriptor,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.descriptor = descriptor
        self.leader: Leader | None = None
        self.terms = 0
        self._authority = authority
        self._connect = connect
        self._settings = settings
        self._now = now
        self._began = now()
        self._follower = Follower(authority)

    async def run(self, stopping: asyncio.Event) -> None:
        """Until ``stopping`` is set: then it resigns, so that another leads at once."""
        stop = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                election = self._authority.candidate(self.descriptor)
                try:
                    await self._stand(election, stop)
                except AuthorityError as error:
                    _log.warning("cannot stand for leader: %s", error)
                    await asyncio.wait([stop], timeout=FOLLOW_SECONDS)
                finally:
                    await _quietly(election)
        finally:
            stop.cancel()

    async def _stand(self, election: Election, stop: asyncio.Task[Any]) -> None:
        elected = asyncio.create_task(election.elected())
        self._follower.start()
        await asyncio.wait([elected, stop], return_when=asyncio.FIRST_COMPLETED)
        replica = await self._follower.stop()
        if not elected.done():
            elected.cancel()
            await asyncio.gather(elected, return_exceptions=True)
            return
        elected.result()
        self.terms += 1
        settings = replace(self._settings, term=self.terms)
        self.leader = Leader(self._authority, self._connect, settings, replica)
        leading = asyncio.create_task(self.leader.lead(election.lost))
        try:
            await asyncio.wait([leading, stop], return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
            else:
                _log.info('controller "%s" gives the lead up', self.descriptor.name)
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)
        finally:
            self.leader = None

    async def leading(self) -> Leader:
        """The leader that this process has. Raises NotLeading with the name of who leads."""
        if self.leader is not None:
            return self.leader
        try:
            other = await self._authority.leader()
        except AuthorityError as error:
            raise NotLeading(f"it is not known who leads: {error.message}", hint="try again") from error
        if other is None or other == self.descriptor:
            raise NotLeading("no controller leads at the moment", hint="one is being elected; try again")
        raise NotLeading(
            f'controller "{other.name}" leads, and not "{self.descriptor.name}"', hint=f"ask {other.host}:{other.port}"
        )

    def status(self) -> dict[str, Any]:
        """As JSON: of this process, and of the cluster as its leader sees it."""
        shown: dict[str, Any] = {
            "controller": self.descriptor.name,
            "leads": self.leader is not None,
            "terms": self.terms,
            "uptime": round(self._now() - self._began, 3),
            "connected": self._authority.connected,
        }
        if self.leader is not None:
            shown.update(status_of(self.leader))
        return shown


async def _quietly(election: Election) -> None:
    """A candidacy that ZooKeeper cannot be told to end, ends with its session."""
    try:
        await election.resign()
    except (AuthorityError, HeadraceError) as error:
        _log.info("the candidacy ends with its session: %s", error)
