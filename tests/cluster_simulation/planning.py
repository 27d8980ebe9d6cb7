"""Planning is a function, and costs more than anything else here: what one process has planned no other plans again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from migrations import change
from migrations.change import Change
from migrations.flow.dataflow import Placement
from migrations.flow.plan import State
from migrations.recipe import RecipeEntry

PLAYED_BY = ("migrations.replaying", "controller.migrating.migrator", "controller.cluster.leader.leader")


SLICED_BY = (
    "migrations.flow.plan.SLICE_ROWS",
    "migrations.change.SLICE_ROWS",
    "controller.cluster.leader.reconcile.SLICE_ROWS",
    "controller.migrating.bulk.building.REPLAY_ROWS",
)


@contextmanager
def planned_once(slice_rows: int) -> Iterator[None]:
    """Within the block the same entry on the same catalog and dataflow is worked out once, and backfills go by slices
    of so few rows that much happens between them."""
    known: dict[tuple[int, RecipeEntry], tuple[State, Change]] = {}
    twins: dict[tuple[int, int, tuple[tuple[str, int], ...]], State] = {}
    plan = change.change_of

    def change_of(
        state: State, entry: RecipeEntry, placement: Placement, parsed: Sequence[Any] | None = None
    ) -> Change:
        if not state.catalog.tables and not state.flow.nodes and not state.catalog.views:
            reached, dropped = state.flow.next_index + len(state.joint), tuple(state.catalog.dropped.items())
            state = twins.setdefault((state.shards, reached, dropped), state)
        found = known.get((id(state), entry))
        if found is None:
            found = known[id(state), entry] = (state, plan(state, entry, placement, parsed))
        return found[1]

    with mock.patch.multiple("migrations.change", change_of=change_of):
        patches: list[Any] = [
            mock.patch.object(module, "change_of", change_of)
            for name in PLAYED_BY
            if (module := sys.modules.get(name)) is not None and hasattr(module, "change_of")
        ]
        patches += [mock.patch(name, slice_rows) for name in SLICED_BY]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
