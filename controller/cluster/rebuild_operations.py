"""Rebuilds as they are asked for and looked at: each a task of its leader, with an id, a state, and an end."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from controller.cluster.rebuild_runs import By, Rebuilding
from controller.cluster.rebuilding import rebuild_lost
from domains.errors import Cancelled, HeadraceError, NotFound, Unavailable
from domains.packets import Clock

if TYPE_CHECKING:
    from controller.cluster.leader import Leader

REMEMBERED = 100
"""Of those that ended."""

_log = logging.getLogger("headrace.controller")


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
        try:
            one.rebuilt = await rebuild_lost(self._leader, shards, known, by, one)
            one.state, one.step = "done", ""
        except HeadraceError as error:
            one.state = "cancelled" if isinstance(error, Cancelled) else "failed"
            one.error = error
        except asyncio.CancelledError:
            one.state = "failed"
            what = "the next one goes on with it" if one.decided else "nothing is given up"
            one.error = Unavailable(f"the leader is succeeded: {what}", hint="look at the status, ask again")
            raise
        except Exception as error:
            _log.exception("rebuild %s failed", one.id)
            one.state = "failed"
            one.error = Unavailable(f"the rebuild failed on an internal error: {error}")
        finally:
            one.ended.set()
