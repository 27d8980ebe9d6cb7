"""A controller process: it stands for leader, leads while it is elected, and stands again when that is over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.cluster.leader.fleet import Connect
from controller.cluster.leader.leader import Leader, LeaderSettings, status_of
from controller.cluster.state import ClusterState, Replica
from domains.errors import HeadraceError, Unavailable
from zookeeper.authority import ClusterAuthority, Election, StateChange
from zookeeper.errors import AuthorityError
from zookeeper.registration import ControllerDescriptor


class Follower:
    """Plans the recipe as it grows while this controller stands by, so that it can lead at once. Planning takes some 10
    ms an entry: with a hundred views that is a second without a leader.

    ``replica`` is the result; nobody else touches it between ``start`` and the end of ``stop``.
    """

    def __init__(self, authority: ClusterAuthority) -> None:
        self.replica: Replica | None = None
        self._authority = authority
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        authority.on_change(self._announced)

    def start(self) -> None:
        self._changed.set()
        self._task = asyncio.create_task(self._follow(), name="follower")

    async def stop(self) -> Replica | None:
        """The recipe as far as it was planned."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        return self.replica

    def _announced(self, change: StateChange) -> None:
        if change in (StateChange.STATE, StateChange.CONNECTION):
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._play()
            except (AuthorityError, HeadraceError) as error:
                # It is only a head start: the leader plans it again, and reports what is wrong with it.
                _log.info("cannot follow what is decided: %s", error)

    async def _play(self) -> None:
        data, _ = await self._authority.read()
        if data is None:
            return
        state = ClusterState.decode(data, self._authority.deployment)
        if self.replica is None or self.replica.shards != state.shards:
            self.replica = Replica(state.shards)
        await self.replica.follow(state.recipe)


FOLLOW_SECONDS = 0.5
"""Seconds between two candidacies that could not begin since ZooKeeper does not answer."""

_log = logging.getLogger("headrace.controller")


class NotLeading(Unavailable):
    """This controller does not lead: nothing was changed."""

    code = "not_leading"


class Candidate:
    """``leader`` is set while this process leads. Each term has a Leader of its own: what the last one knew may be
    outdated."""

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
        """Run until ``stopping`` is set; then resign, so that another leads at once."""
        stop = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                election = self._authority.candidate(self.descriptor)
                try:
                    await self._stand(election, stop)
                except AuthorityError as error:
                    _log.warning("cannot take part in the election of a leader: %s", error)
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
        """This process's leader. Raises NotLeading, with the name of the controller that leads."""
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
        """This process, and the cluster as its leader sees it. As JSON."""
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
    """Resign; if ZooKeeper does not answer, the candidacy ends with its session."""
    try:
        await election.resign()
    except (AuthorityError, HeadraceError) as error:
        _log.info("the candidacy ends with its session: %s", error)
