"""One candidacy for leader.

There are two or three candidates, so they simply race for the znode ``controller``: whoever makes it leads, the others
watch it and race again when it goes. A queue of sequential znodes would save a handful of requests once in a while, and
cost a second step between being next in line and being visible as the leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from zookeeper.errors import AuthorityError, AuthorityUnavailable
from zookeeper.session import BadVersion, Link, NodeExists, NoNode, Session

REPEAT_SECONDS = 1.0
"""Between attempts where ZooKeeper answers, but with an error that will not go away by itself."""

_log = logging.getLogger("headrace.zookeeper")


class SessionElection:
    """See :class:`zookeeper.cluster_authority.Election`, which it implements."""

    def __init__(
        self, session: Session, path: str, name: str, data: bytes, check: Callable[[], Awaitable[None]]
    ) -> None:
        """``check`` raises AuthorityError where the deployment is no longer the one that the candidate knows."""
        self._session = session
        self._check = check
        self._controller = f"{path}/controller"
        self._candidate = f"{path}/candidates/{name}"
        self._data = data
        self._led_by: int | None = None
        """The session that made the znode: the lead ends with it."""
        self._leads = asyncio.Event()
        self._lost = asyncio.Event()
        session.listen(self._linked)
        self._task = asyncio.create_task(self._run(), name="election")

    @property
    def lost(self) -> asyncio.Event:
        return self._lost

    async def elected(self) -> None:
        waits = [asyncio.create_task(each.wait()) for each in (self._leads, self._lost)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self._lost.is_set():
            raise AuthorityError("the candidacy is over", hint="stand again")

    async def resign(self) -> None:
        self.stop()
        await asyncio.gather(self._task, return_exceptions=True)
        for path in (self._controller, self._candidate):
            try:
                node = await self._session.get(path)
                if node.owner == self._session.id:
                    await self._session.delete(path, node.version)
            except (NoNode, BadVersion):
                continue
            except AuthorityUnavailable as error:
                _log.warning("resigned, but ZooKeeper does not know yet: %s", error)
                return

    def stop(self) -> None:
        """End it here; the znodes go with the session."""
        self._task.cancel()
        self._lost.set()

    def _linked(self, link: Link) -> None:
        if link is Link.LOST and self._led_by is not None:
            self._lost.set()

    async def _run(self) -> None:
        while not self._lost.is_set():
            fired = asyncio.Event()
            try:
                if await self._look(fired):
                    await fired.wait()
            except AuthorityUnavailable:
                await self._session.until_connected()
            except (AuthorityError, NoNode) as error:
                _log.error("cannot stand for leader: %s", error)
                await asyncio.sleep(REPEAT_SECONDS)

    async def _look(self, fired: asyncio.Event) -> bool:
        """One look at who leads, and what follows from it; whether there is something to wait for now."""
        node = await self._session.look(self._controller, fired.set)
        if self._led_by is not None:
            if node is None or node.owner != self._led_by:
                self._lost.set()
            return not self._lost.is_set()
        await self._check()
        await self._stand()
        if node is None:
            try:
                await self._session.create(self._controller, self._data, ephemeral=True)
            except NodeExists:
                return False  # Another was first; look who.
            return False  # Looked at once more: then there is a watch on it.
        if node.owner == self._session.id:
            self._led_by = node.owner
            self._leads.set()
        return True

    async def _stand(self) -> None:
        """The candidate's own znode, for those who list the candidates. One that a dead namesake left makes room."""
        try:
            await self._session.create(self._candidate, self._data, ephemeral=True)
        except NodeExists:
            try:
                node = await self._session.get(self._candidate)
                if node.owner != self._session.id:
                    await self._session.delete(self._candidate, node.version)
                    await self._session.create(self._candidate, self._data, ephemeral=True)
            except (NoNode, NodeExists, BadVersion):
                return  # It changes under our hands; it is only for show, and the next look tries again.
