"""How far the tables that follow the upstream are: what views may answer with, and the wait for a session's own write.

The follower writes its position, a GTID of the upstream, with the rows that it brings (``headrace_upstream``). That row
is read twice a second, and more often while somebody waits::

    a write passed on ──► its GTID, 0-1-57
    a view is asked ────► the row says 0-1-55: wait │ 0-1-57: the tables' positions of now ──► the view reflects them

A table counts as long as it follows and is copied whole, and nothing does while nothing is heard of the follower.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from time import monotonic

from api.mysql.upstream import UpstreamServer
from controller.deployment import Deployment
from controller.upstreams.following import FollowedUpstreams
from controller.upstreams.positions import GtidPosition
from domains.errors import HeadraceError
from domains.plan.packets import Clock

LOOK_SECONDS = 0.5
WAITING_SECONDS = 0.01
"""Between two looks while somebody waits: each takes some 0.3 ms."""

LAG_SECONDS = 15.0
"""Without a sign of the follower, which gives one every 5 s, no view answers."""

_log = logging.getLogger("headrace.mysql")


class FollowedTables:
    """Of one process."""

    def __init__(self, deployment: Deployment, server: UpstreamServer) -> None:
        self._passing = deployment.passing_on
        self._upstreams: FollowedUpstreams = deployment.upstreams
        self._server = server
        source = server.source.replace("\\", "\\\\").replace("'", "''")
        self._row = f"SELECT reached, applied, stopped FROM headrace_upstream WHERE source = '{source}'"
        self._tables = f"SELECT name FROM headrace_upstream_tables WHERE source = '{source}' AND is_whole = 1"
        self._whole: frozenset[str] = frozenset()
        self._told: tuple[object, ...] = ()
        """The row as it was read last."""
        self._reached = GtidPosition()
        self._changed = 0.0
        """When the row was another than before."""
        self._waiting = 0
        self._looked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task = asyncio.create_task(self._go_on())

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def may_show(self, tables: Collection[str]) -> bool:
        """Whether views of these tables, by their lower-case names, may answer."""
        return bool(tables) and self._whole.issuperset(tables) and monotonic() - self._changed < LAG_SECONDS

    async def reached(self, gtid: str, tables: Collection[str]) -> Clock | None:
        """The positions that these tables have with all that was written upstream up to there. None: it takes longer
        than is waited for, or nothing of the follower is heard."""
        wanted, deadline = GtidPosition.parse(gtid), monotonic() + self._server.wait
        self._waiting += 1
        try:
            while not self._reached.covers(wanted):
                left = deadline - monotonic()
                if left <= 0 or not self.may_show(tables):
                    return None
                looked = self._looked
                self._hurry.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await looked.wait()
            return await self._upstreams.positions(
                schema for schema in self._upstreams.following(self._server.source) if schema.name.lower() in tables
            )
        except HeadraceError as error:
            _log.warning("the tables that follow an upstream cannot be read: %s", error.message)
            return None
        finally:
            self._waiting -= 1

    async def _go_on(self) -> None:
        while True:
            try:
                await self._look()
            except HeadraceError as error:
                self._whole = frozenset()
                _log.debug("no follower of the upstream: %s", error.message)
            except Exception:
                self._whole = frozenset()
                _log.exception("the follower's position cannot be read")
            self._looked.set()
            self._looked = asyncio.Event()
            if self._waiting:
                await asyncio.sleep(WAITING_SECONDS)
            else:
                self._hurry.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._hurry.wait()

    async def _look(self) -> None:
        rows, _ = await self._passing.read(self._row)
        told = tuple(rows[0]) if rows else ()
        if told != self._told:
            gtid = GtidPosition.parse(str(told[0]) if told else "")
            self._reached = gtid
            # At the start nobody knows how long it has been so.
            self._changed = monotonic() if self._told else self._changed
            self._told = told
        if not told or told[2]:
            self._whole = frozenset()
            return
        whole, _ = await self._passing.read(self._tables)
        following = frozenset(schema.name.lower() for schema in self._upstreams.following(self._server.source))
        self._whole = following & {str(name).lower() for (name,) in whole}
