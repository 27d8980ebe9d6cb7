"""Full state that a start leaves for later: what is ready serves meanwhile, and what is not says how far it is.

Each part (``migrations/flow/dataflow.py``) is built as a migration builds full state, by the same steps and in its
turn: its nodes are added beside the running ones, fed in slices or in bulk, and become visible together. So each write
counts exactly once, whenever it comes. What is being built is nowhere on disk, so after a crash it begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.migrating.execution import Migration
from domains.errors import HeadraceError, Unavailable
from domains.plan.commands import AddNodes, ExtendNodes
from domains.plan.graph import NodeIndex
from migrations.change import Change
from migrations.flow.dataflow import LatePart
from migrations.flow.plan import MigrationPlan, State, plan_addition

RETRY_SECONDS = 30.0
"""Seconds after which a part is tried again that could not be built. Where a disk is full or damaged, each try reads
it."""


@dataclass(slots=True, eq=False)
class UnbuiltPart:
    nodes: frozenset[NodeIndex]
    views: tuple[str, ...]
    migration: Migration | None = None
    """While it is being built."""
    error: HeadraceError | None = None
    """Why it could not be built when that was last tried."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """It is built, or nobody needs it any more."""


class Unbuilt:
    """All parts that are not built yet, in the order in which they will be. ``built`` is called with the views of
    each."""

    def __init__(self, parts: Iterable[LatePart] = (), built: Callable[[Sequence[str]], None] = lambda views: None):
        self.parts = [UnbuiltPart(frozenset(part.nodes), part.views) for part in parts]
        self._of_node = {index: part for part in self.parts for index in part.nodes}
        self._built = built
        self._whole = len(self.parts)

    def __contains__(self, node: NodeIndex) -> bool:
        return node in self._of_node

    def plan(self, part: UnbuiltPart, state: State) -> MigrationPlan:
        """What builds it: what has been dropped since the start is left out."""
        return plan_addition(state.flow, [node for node in state.flow.nodes.values() if node.index in part.nodes], [])

    def done(self, part: UnbuiltPart) -> None:
        """It is built, or nothing of it is left."""
        self.parts.remove(part)
        for index in part.nodes:
            del self._of_node[index]
        part.ended.set()
        self._built(part.views)

    def under(self, change: Change) -> list[UnbuiltPart]:
        """The parts that a change stands on; they are to be built before it."""
        if not self.parts:
            return []
        touched: dict[NodeIndex, None] = {}
        for step in change.views.steps:
            match step.command:
                case AddNodes(nodes=nodes):
                    touched.update((parent, None) for node in nodes for parent in node.parents)
                case ExtendNodes(nodes=nodes):
                    touched.update((node.index, None) for node in nodes)
        return list(dict.fromkeys(self._of_node[index] for index in touched if index in self._of_node))

    async def wait(self, reader: NodeIndex, view: str, seconds: float) -> None:
        """Until the reader is there. Raises Unavailable, with how far it is, where that takes longer."""
        part = self._of_node[reader]
        try:
            async with asyncio.timeout(0.0 if part.error is not None else seconds):
                await part.ended.wait()
        except TimeoutError:
            raise self._not_yet(part, view) from None

    def _not_yet(self, part: UnbuiltPart, view: str) -> Unavailable:
        if part.error is not None:
            why = f'view "{view}" could not be built after the start: {part.error.message}'
            return Unavailable(why, hint=part.error.hint or "see the log; it is tried again")
        if part.migration is None:
            at = f"{self.parts.index(part)} others come before it"
        else:
            at = f"{part.migration.share():.0%} of its rows are read"
        return Unavailable(f'view "{view}" is still being built after the start: {at}', hint="try again later")

    def status(self) -> dict[str, Any] | None:
        """The part of ``/v1/status``; None where there is nothing to build."""
        if not self.parts:
            return None
        now = next((part for part in self.parts if part.migration is not None), None)
        return {
            "views": sum(len(part.views) for part in self.parts),
            "parts": self._whole,
            "parts_left": len(self.parts),
            "now": list(now.views[:10]) if now is not None else [],
            "progress": round(now.migration.share(), 3) if now is not None and now.migration is not None else 0.0,
            "failed": {view: str(part.error) for part in self.parts if part.error is not None for view in part.views},
        }
