"""A controller that stands by: it plays the recipe as it grows, so that it can lead without planning everything first.

Planning is some 10 ms an entry. With a hundred views that would be a second more without a leader.
"""

from __future__ import annotations

import asyncio
import logging

from controller.cluster.replica import Replica
from controller.cluster.state import ClusterState
from domains.errors import HeadraceError
from zookeeper.cluster_authority import Change, ClusterAuthority
from zookeeper.errors import AuthorityError

_log = logging.getLogger("headrace.controller")


class Follower:
    """``replica`` is what it has played; nobody else touches it between ``start`` and the end of ``stop``."""

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
        """What has been played so far, for whoever leads now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        return self.replica

    def _announced(self, change: Change) -> None:
        if change in (Change.STATE, Change.CONNECTION):
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._play()
            except (AuthorityError, HeadraceError) as error:
                # It is only a head start: whoever leads reads and plays it again, and says what is wrong with it.
                _log.info("cannot follow what is decided: %s", error)

    async def _play(self) -> None:
        data, _ = await self._authority.read()
        if data is None:
            return
        state = ClusterState.decode(data, self._authority.deployment)
        if self.replica is None or self.replica.shards != state.shards:
            self.replica = Replica(state.shards)
        await self.replica.follow(state.recipe)
