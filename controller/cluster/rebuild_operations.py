"""Rebuilds as they are asked for and looked at: each a task of its leader, with an id, a state, and an end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from controller.cluster.rebuild_progress import Rebuilding
from controller.cluster.rebuilding import rebuild_lost
from domains.errors import NoLeader, NotFound
from domains.packets import Clock
from migrations.backfill.threshold import By

if TYPE_CHECKING:
    from controller.cluster.leader import Leader

REMEMBERED = 100
"""Of those that ended."""


class RebuildOperations:
    """Those of one leader, which ends them with itself: what it had not decided by then is not done."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._numbers = itertools.count(1)
        self._all: dict[str, Rebuilding] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, shards: Sequence[int], known: Clock, by: By) -> Rebuilding:
        """See ``rebuild_lost``, whose errors the answer has when it has ended."""
        self._leader.serving()
        if self._leader.is_over:  # A task of after ``close`` would be nobody's.
            raise NoLeader("the leader is succeeded", hint="try again")
        named = ", ".join(map(str, shards)) or "all that are lost"
        # An epoch is one leader's alone.
        one = Rebuilding(f"{self._leader.epoch}-r{next(self._numbers)}", f"rebuild shards: {named}", "running")
        self._all[one.id] = one
        for id in list(self._all)[:-REMEMBERED]:
            if self._all[id].ended.is_set():
                del self._all[id]
        task = asyncio.create_task(self._run(one, shards, known, by))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return one

    def get(self, id: str) -> Rebuilding:
        if id not in self._all:
            raise NotFound(f'no rebuild "{id}"', hint="its id is in the answer to POST /v1/rebuild")
        return self._all[id]

    def cancel(self, id: str) -> Rebuilding:
        """One that has ended is left as it is. One that is decided goes on, and feeds full states in slices."""
        one = self.get(id)
        one.cancelled = True
        if one.filling is not None:
            one.filling.cancelled = True
        return one

    @property
    def running(self) -> list[str]:
        return [id for id, one in self._all.items() if not one.ended.is_set()]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, one: Rebuilding, shards: Sequence[int], known: Clock, by: By) -> None:
        with one.ending():
            one.rebuilt = await rebuild_lost(self._leader, shards, known, by, one)
