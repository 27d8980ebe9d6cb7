"""The leader's automatic views as one api process knows them, which may be a moment ago.

::

    keep, used ──► leader ──► AutomaticList ──► planned over this process's recipe ──► shown beside the declared views
                                                  another recipe, or another plan: not shown

An api process asks for a view where a shape pays by its own count, and tells every few seconds how often it has asked
those that it knows, if it knows any. It need not be right about what there is: numbers are given once, so a view that
is gone has no reader anywhere, and whoever asked it forgets all of them, evaluates the SELECT, and asks the leader
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from controller.cluster.serving.directory import Directory
from controller.cluster.state import AutomaticList
from domains.errors import HeadraceError
from domains.plan.graph import NodeIndex
from migrations.flow.automatic import AutomaticView, plan_automatic, with_automatic
from migrations.flow.plan import State

TELL_SECONDS = 2.0
"""Seconds between two reports of an api process: what the leader drops first need not be known better."""

_log = logging.getLogger("headrace.api")


class AutomaticDoor(Protocol):
    """The leader; see ``deployment.LeaderDoor``."""

    async def keep(self, sql: str, lately: int) -> AutomaticList:
        """Have an automatic view of a SELECT that was asked so often lately. Raises why there is none."""

    async def automatic(self, used: Mapping[str, int], written: Mapping[str, int]) -> AutomaticList:
        """Tell how often each view was asked, and how often tables were written to; what there is."""


class ShownViews:
    """What is shown beside the declared views; nothing of it outlives a change of the recipe."""

    def __init__(
        self,
        directory: Directory,
        leader: AutomaticDoor,
        changed: Callable[[State, State], None],
        uses: Callable[[], Mapping[str, int]],
        writes: Callable[[str], int],
    ) -> None:
        """``changed`` hears of each state that is shown (before, after); ``uses`` says how often each view was asked
        since it was last called, and ``writes`` how often a table, of this lower-case name, was written to so far, as
        far as this process has heard."""
        self.views: Mapping[str, AutomaticView] = {}
        self._directory = directory
        self._leader = leader
        self._changed = changed
        self._uses = uses
        self._writes = writes
        self._state: State | None = None
        """None: what is declared, alone."""
        self._telling: asyncio.Task[None] | None = None
        self._at_once = asyncio.Event()

    @property
    def state(self) -> State:
        return self._state or self._directory.state

    def declared_anew(self, before: State, after: State) -> None:
        """There is another recipe: the leader removed all of them before it was decided."""
        before = self._state or before
        self._state, self.views = None, {}
        self._changed(before, after)

    async def keep(self, sql: str, lately: int) -> None:
        """Have the view, if the leader will. Raises why there is none."""
        await self._adopt(await self._leader.keep(sql, lately))
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="automatic views")

    def gone(self, node: NodeIndex) -> None:
        """A reader is nowhere any more."""
        if any(node in view.nodes for view in self.views.values()):
            self._show({})
            self._at_once.set()

    async def _tell(self) -> None:
        """Tell the leader how often its views were asked, as long as there are any."""
        while True:
            try:
                async with asyncio.timeout(TELL_SECONDS):
                    await self._at_once.wait()
            except TimeoutError:
                pass  # It is time to tell.
            again = self._at_once.is_set()
            self._at_once.clear()
            try:
                tables = frozenset[str]().union(*(view.tables for view in self.views.values()))
                written = {table: self._writes(table) for table in tables}
                await self._adopt(await self._leader.automatic(self._uses(), written))
            except HeadraceError as error:
                _log.info("the leader is not told of automatic views: %s", error.message)
                continue  # They serve on without a leader.
            if not self.views and not again:
                return

    async def _adopt(self, told: AutomaticList) -> None:
        recipe = self._directory.recipe
        if recipe is not None and recipe.changes < told.changes:
            await self._directory.refresh()
            recipe = self._directory.recipe
        if recipe is None or recipe.changes != told.changes:
            return  # It is told again.
        declared = self._directory.state
        views: dict[str, AutomaticView] = {}
        known = {view.first: view for view in self.views.values()}
        for sql, first, check in told.views:
            view = known.get(NodeIndex(first))
            try:
                view = view or plan_automatic(declared, sql, NodeIndex(first))
            except HeadraceError as error:
                _log.warning("an automatic view of the leader cannot be planned: %s", error.message)
                continue
            if view.check != check:
                _log.warning("an automatic view is planned otherwise here than by the leader: %s", sql)
                continue
            views[view.name] = view
            await asyncio.sleep(0)
            if self._directory.state is not declared:
                return
        if views.keys() != self.views.keys() or any(views[name] is not self.views[name] for name in views):
            self._show(views)

    def _show(self, views: Mapping[str, AutomaticView]) -> None:
        before, declared = self.state, self._directory.state
        self.views = views
        self._state = with_automatic(declared, views.values()) if views else None
        self._changed(before, self.state)

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)


__all__ = ["AutomaticDoor", "ShownViews"]
