"""The planner without the engine: every look-up recomputes the planned query from the stored rows.

Differences found with this subject are the planner's (or the scalar functions'), whatever the engine makes of its
plans::

    python -m tests.campaign --subject tests.campaign.evaluated:evaluated
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from domains.errors import ConstraintViolation
from domains.language.types import Row
from domains.plan.graph import ParameterKind
from migrations.catalog import ViewDefinition
from migrations.change import change_of
from migrations.flow.plan import MigrationPlan
from migrations.joint_graph.graph import JointGraph
from migrations.query.view import PlannedView, plan_view
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.shapes_of_selects import AdHoc
from tests.campaign.planned import Planned
from tests.campaign.subject import Setting
from tests.migrations.evaluate import answer, in_ranges

_COUNTS = (ParameterKind.LIMIT, ParameterKind.OFFSET)


class Evaluated(Planned):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, 1, setting.shards)
        self._plans: dict[str, tuple[JointGraph, PlannedView]] = {}
        """By view, as of its creation: ``SELECT *`` means the columns of then."""

    def read(self, view: str, arguments: Sequence[Any]) -> list[Row]:
        return self._recomputed(*self._plans[view.lower()], arguments)

    def read_ad_hoc(self, ad_hoc: AdHoc, arguments: Sequence[Any]) -> list[Row]:
        return self._recomputed(*self._plan(ad_hoc.definition()), arguments)

    def _plan(self, definition: ViewDefinition) -> tuple[JointGraph, PlannedView]:
        graph = JointGraph()
        return graph, plan_view(
            self.state.catalog, graph, definition.name, definition.relation, columns=definition.columns
        )

    def _recomputed(self, graph: JointGraph, planned: PlannedView, arguments: Sequence[Any]) -> list[Row]:
        reader, arguments = planned.reader, self.whole(planned, arguments)
        ranged = in_ranges(reader)
        if planned.finish is None and any(
            argument is None and parameter.kind not in _COUNTS and number not in ranged
            for number, (argument, parameter) in enumerate(zip(arguments, reader.parameters, strict=True))
        ):
            # A comparison with NULL is never true.
            return [reader.empty[: reader.visible]] if reader.empty is not None else []
        return answer(graph, planned.root, reader, self.stored(), arguments, planned.finish)

    def _migrate(self, entry: RecipeEntry) -> None:
        """Plans all of it, performs what concerns tables."""
        change = change_of(self.state, entry, self.placement)
        try:
            self.simulation.migrate(MigrationPlan((*change.checks, *change.tables, *change.drops), ()))
        except ConstraintViolation:  # Rows are not what is asked of them.
            self.simulation.migrate(MigrationPlan(change.undo, ()))
            raise
        self.state = change.state
        views = self.state.catalog.views
        self._plans = {name: self._plans.get(name) or self._plan(view) for name, view in views.items()}

    def evict(self, view: str, values: Sequence[Any]) -> None:
        """Nothing is kept."""

    def evict_some(self, random: Random) -> None:
        """Nothing is kept."""

    def restart(self) -> None:
        """Nothing but the tables is kept, and they are not this subject's matter."""

    def settle(self) -> None:
        """Nothing is under way."""

    def step(self, random: Random) -> None:
        """Nothing is under way."""

    def check(self) -> None:
        """Nothing is kept."""


def evaluated(setting: Setting) -> Evaluated:
    return Evaluated(setting)
