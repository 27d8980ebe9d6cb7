"""The automatic views of one leader's term: made for api processes that ask for them, and gone with anything else.

::

    api ── keep: SELECT, how often it was asked ──► in the migrator's turn, and while there is calm: nodes added ─► told
        ── used: view → how often since ──────────► which of them goes
        ◄── what there is now, and of which recipe

They are in this object's memory and nowhere else (``migrations/flow/automatic.py`` says why that is right):

* *A change of the recipe*: they are removed before it begins (``ClusterExecutor.ready``), so no plan meets them.
* *A recovery, of whatever cause*: they are forgotten at once (``Leader.disturb``), and its first round removes them.
  While one is being made that begins a recovery too if it cannot be finished.
* *Another leader*: it never knew them, and begins with a recovery. Until then they get updates and may be read as ever;
  workers that have heard of it refuse the former leader.

They are made again when they are asked for again, under other numbers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from controller.cluster.leader.fleet import together
from controller.cluster.leader.performing import ClusterBook, ClusterExecutor
from controller.cluster.state import AutomaticList
from controller.migrating.executor import Interrupted
from controller.migrating.migrator import Migrator
from controller.statements.shapes import AskedShapes, Variant
from domains.errors import HeadraceError, Unavailable
from domains.plan.graph import NodeIndex
from migrations.flow.automatic import AutomaticView, numbers_of, plan_automatic
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name

_log = logging.getLogger("headrace.controller")


class AutomaticViews:
    """The automatic views of one leader. ``disturb`` begins a recovery."""

    def __init__(
        self, executor: ClusterExecutor, book: ClusterBook, migrator: Migrator, disturb: Callable[[str], None]
    ) -> None:
        """The executor is theirs alone."""
        self.views: dict[str, AutomaticView] = {}
        """Keyed by name: all of their nodes are there, and serve."""
        self.changing: tuple[AutomaticView, ...] = ()
        """The views that are being made or removed: some of their nodes may be there."""
        self._executor = executor
        self._book = book
        self._migrator = migrator
        self._disturb = disturb
        self._next = NodeIndex(0)
        self._asked = AskedShapes(now=asyncio.get_running_loop().time)
        self._written: dict[str, int] = {}
        """How often each table was written to, at least."""
        self._tasks: set[asyncio.Task[None]] = set()

    def told(self) -> AutomaticList:
        views = tuple((view.definition.sql, view.first, view.check) for view in self.views.values())
        return AutomaticList(self._book.recipe.changes, views)

    def used(self, times: Mapping[str, int], written: Mapping[str, int]) -> None:
        """How often an api process has asked them since it last told, and how often tables were written to so far, as
        it has heard. What costs writes more than it saves is removed."""
        for name, count in times.items():
            self._asked.asked_elsewhere(name, count)
        for table, count in written.items():
            self._written[table] = max(count, self._written.get(table, 0))
        dear = self._asked.too_dear(lambda tables: sum(self._written.get(table, 0) for table in tables))
        if dear:
            _log.info("automatic views are removed that cost writes more than they save: %d", len(dear))
            self._shrink(dear)

    async def keep(self, sql: str, lately: int) -> None:
        """Have a view of the SELECT, which was asked so often lately. It is made to its end, whoever goes on waiting.

        :raises Unavailable: not now: a migration or a recovery goes on, or others are asked as often.
        :raises HeadraceError: there is no such view.
        """
        making = asyncio.create_task(self._keep(sql, lately))
        self._tasks.add(making)
        making.add_done_callback(self._tasks.discard)
        try:
            await asyncio.shield(making)
        except asyncio.CancelledError:
            if not making.cancelled():
                raise  # Only whoever waits has gone.
            raise Unavailable("this controller no longer leads", hint="it is answered without a view") from None

    async def _keep(self, sql: str, lately: int) -> None:
        name = ad_hoc_name(sql)
        if name in self.views:
            return
        self._check_quiet()
        async with self._migrator.turn:
            await self._executor.begin()
            if name in self.views:
                return
            if self._asked.obstacle:
                raise Unavailable(self._asked.obstacle, hint="it is answered without a view")
            numbers = numbers_of(self._executor.epoch)
            view = plan_automatic(self._book.state, sql, NodeIndex(max(self._next, numbers.start)))
            after = NodeIndex(view.nodes[-1] + 1)
            if after > numbers.stop:
                raise Unavailable(
                    "this leader has given all numbers of its epoch", hint="it is answered without a view"
                )
            variant = Variant(sql, True, lately=lately)
            going = self._asked.going(variant, view.tables)
            if going is None:
                raise Unavailable(variant.waits, hint="it is answered without a view")
            self._next = after
            await self._make(view)
            self.views[name] = view
            self._asked.keep(name, variant, view.tables)
            await self._remove(going)

    def _check_quiet(self) -> None:
        if self._migrator.busy or not self._executor.is_calm:
            raise Unavailable("tables, views or workers are being changed", hint="it is answered without a view")

    async def _make(self, view: AutomaticView) -> None:
        self.changing = (view,)
        try:
            for step in view.steps:
                await self._executor.command(step.domain, step.command)
            self._executor.still_calm()
        except BaseException:
            self._take_back("an automatic view was not finished")
            raise
        finally:
            self.changing = ()

    async def _remove(self, names: list[str]) -> None:
        """In the migrator's turn, and while there is calm. Raises Interrupted if a recovery does it."""
        self.changing = tuple(self.views.pop(name) for name in names if name in self.views)
        for view in self.changing:
            self._asked.kept.pop(view.name, None)
        steps = [step for view in self.changing for step in view.removal]
        try:
            await together(self._executor.command(step.domain, step.command) for step in steps)
        except BaseException as error:
            self._take_back("automatic views were not removed everywhere")
            if not isinstance(error, HeadraceError):
                raise
            raise Interrupted("a recovery removes automatic views") from error
        finally:
            self.changing = ()

    def _take_back(self, why: str) -> None:
        """Take the change back by a recovery, which removes what no recipe has."""
        try:
            self._executor.still_calm()
        except Interrupted:
            return  # One has begun since.
        self._disturb(why)

    async def give_way_to_change(self) -> None:
        """In the migrator's turn. Raises Interrupted if a recovery removes them."""
        if self.views:
            await self._executor.begin()
            await self._remove(list(self.views))

    def forget(self) -> None:
        """A recovery begins, which removes them."""
        self.views.clear()
        self._asked.kept.clear()

    def memory_is_short(self, worker: str) -> None:
        """The view that was asked longest ago goes, if nothing else goes on. (Told at each heartbeat.)"""
        self._asked.short_at = self._asked.now()
        if self.views and not self._tasks:
            _log.info('memory is short at worker "%s": an automatic view is removed', worker)
            self._shrink(list(self._asked.kept)[:1])

    def _shrink(self, names: list[str]) -> None:
        """Unless something is changed now, which removes them too."""
        if not self._migrator.busy and self._executor.is_calm:
            task = asyncio.create_task(self._removed(names))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _removed(self, names: list[str]) -> None:
        async with self._migrator.turn:
            try:
                await self._executor.begin()
                await self._remove(names)
            except HeadraceError as error:
                _log.warning("automatic views are not removed by hand: %s", error.message)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
