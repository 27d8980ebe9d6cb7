"""SELECTs that are followed as live views: each by the view that answers it, which is made where there is none.

Such a view is an automatic one (``shapes.py``), but that it is made at the first asking, and stays while somebody
follows it; then it goes. Where memory is short it may go before, as all of them do, and who follows it is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controller.access.session import Caller
from controller.deployment import RequestMoment
from controller.lookups.binding import Binding
from controller.statements.planning import PreparedSelect, SentSelect, StatementPort
from controller.statements.selects import Selects
from controller.statements.sequence import Statements
from controller.statements.shapes import FOLLOWED_ASKINGS, LISTED_CHARACTERS, AdHocMode, Variant, never_kept
from domains.errors import BadRequest, HeadraceError, LimitExceeded, Unavailable, Unsupported
from migrations.access.rights import Right
from migrations.statements.constants import Argument
from migrations.statements.statement import SelectStatement
from worker.reader_map import BoundLookup

_log = logging.getLogger("headrace.controller")


@dataclass(frozen=True, slots=True)
class FollowedSelect:
    """A SELECT as a look-up of a view."""

    view: str
    needed: frozenset[Right]
    """What who follows it may, of the tables and views that it reads."""
    arguments: Sequence[Argument]

    def bind(self, binding: Binding, moment: RequestMoment) -> BoundLookup:
        return binding.from_arguments(self.arguments, moment)


class FollowedSelects:
    """Of one deployment."""

    def __init__(self, deployment: StatementPort, statements: Statements, selects: Selects) -> None:
        self._deployment = deployment
        self._statements = statements
        self._selects = selects
        self._going: set[asyncio.Task[None]] = set()

    async def follow(self, sql: str, params: Sequence[Any], caller: Caller, most: int) -> FollowedSelect:
        """The view, which counts as followed once more; ``leave`` it. ``most``: views that are there for this.

        :raises Unsupported: no view can answer it, and why.
        """
        await self._statements.check(sql, caller)
        sent, needed = await self._sent(sql, params, caller)
        if await self._selects.plans.apart(sent) is not None:
            raise Unsupported(
                "to follow a SELECT of tables whose policies do not apply to who asks",
                hint="send claims (Headrace-Claims), or follow a declared view",
            )
        select = await self._selects.prepared(sent)
        view = self._selects.plans.view_of(select) or await self._made(sent, select, most)
        if view in self._selects.shapes.kept:
            self._selects.shapes.kept[view].followed += 1
        return FollowedSelect(view, needed, select.arguments)

    async def _sent(self, sql: str, params: Sequence[Any], caller: Caller) -> tuple[SentSelect, frozenset[Right]]:
        statements = await self._statements.texts.statements(sql)
        if len(statements) != 1 or not statements[0].reads or statements[0].parsed.account is not None:
            raise BadRequest("what is followed is one SELECT", hint="send each as a subscription of its own")
        (prepared,) = statements
        statement = await self._statements.interpreted(prepared, params, caller)
        if not isinstance(statement, SelectStatement):
            raise Unsupported("to follow what reads no table", hint="follow a SELECT with FROM")
        if never := never_kept(statement):
            raise Unsupported(f"to follow this SELECT: {never}", hint="give the moment as a parameter")
        rights, _ = prepared.needed(self._deployment.state.catalog)
        return SentSelect(sql, statement, asker=caller), frozenset(rights)

    async def _made(self, sent: SentSelect, select: PreparedSelect, most: int) -> str:
        shapes, ad_hoc = self._selects.shapes, select.ad_hoc
        if shapes.mode is not AdHocMode.KEEP:
            raise Unsupported(
                f"to follow a SELECT that no view answers: ad_hoc is {shapes.mode}",
                hint=f"CREATE EXT VIEW name AS {ad_hoc.view_sql}",
            )
        if sum(each.is_for_followers for each in shapes.kept.values()) >= most:
            raise LimitExceeded(
                f'"max_live_selects", {most} SELECTs, are followed that no declared view answers',
                hint="declare views of them, or start the server with a greater max_live_selects",
            )
        variant = Variant(ad_hoc.view_sql[:LISTED_CHARACTERS], reusable=True)
        variant.is_for_followers, variant.lately = True, FOLLOWED_ASKINGS
        await self._selects.keep(select, variant)
        view = self._selects.plans.view_of(select)
        if view is not None and view in shapes.kept:
            return view
        if variant.refused:
            raise Unsupported(f"to follow this SELECT: {variant.refused}", hint="follow one that reads by a key")
        raise Unavailable(f"no view of this SELECT is made now: {variant.waits}", hint="try again")

    def hold(self, view: str) -> None:
        """It is followed once more."""
        kept = self._selects.shapes.kept.get(view)
        if kept is not None:
            kept.followed += 1

    def leave(self, view: str) -> None:
        """It is followed once less. A view that was made for this goes with the last one."""
        kept = self._selects.shapes.kept.get(view)
        if kept is None:
            return
        kept.followed = max(0, kept.followed - 1)
        # In a cluster the leader, which knows all api processes, drops what is not asked any more.
        if kept.is_for_followers and not kept.followed and self._selects.keeper is None:
            task = asyncio.create_task(self._forget(view))
            self._going.add(task)
            task.add_done_callback(self._going.discard)

    async def _forget(self, view: str) -> None:
        try:
            await self._selects.forget(view)
        except HeadraceError as error:
            _log.warning("a view that nobody follows any more is not dropped: %s", error.message)
