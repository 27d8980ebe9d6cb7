"""A SELECT whose text is long, parsed and planned in a process of its own, as ``read_alone`` does with a write.

Its trees, hundreds of megabytes of small objects, go with what that process gives back. What comes over is the plan:
nodes and expressions of ours, pickled, since to make thousands of objects again takes 20 ms. No view is kept of such a
text, and none answers it, so its constants stay in it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from domains.engine.evaluation import EvaluationPlan
from domains.errors import Unsupported
from domains.plan.estimates import Statistics
from migrations.catalog import ViewDefinition
from migrations.flow.evaluation_plan import explained, plan_evaluation
from migrations.flow.explain import explain
from migrations.flow.plan import State, one_domain, plan_readers
from migrations.query.view import PlannedView
from migrations.statements.adhoc.shapes_of_selects import exact_arguments, shape_text, verbatim
from migrations.statements.constants import Argument, miscounted
from migrations.statements.interpret import split
from migrations.statements.prepared import PreparedStatement
from migrations.statements.statement import ConstantSelect, Explain, SelectStatement


@dataclass(frozen=True, slots=True)
class PlannedAlone:
    """What a SELECT is evaluated by. Picklable."""

    planned: PlannedView
    plan: EvaluationPlan
    arguments: tuple[Argument, ...]
    name: str
    shape: str
    """Its text with a ``?`` for each constant."""
    told: str
    """What EXPLAIN says of it behind its first line; empty where that was not asked."""


def plan_alone(
    sql: str, params: Sequence[Any], state: bytes, now: str, statistics: Statistics | None
) -> Iterator[bytes]:
    """The pickled :class:`PlannedAlone`, or :class:`ConstantSelect`, of a text that is one SELECT, or EXPLAIN of one;
    nothing where it is something else.

    ``state`` is a pickled :class:`State`, which is made once for many texts; ``statistics`` decide the order of joins.

    :raises HeadraceError: what is wrong with it.
    """
    parsed = split(sql)
    if len(parsed) != 1:
        return
    prepared, known = PreparedStatement(parsed[0]), pickle.loads(state)
    assert isinstance(known, State)
    if prepared.parameters != len(params):
        raise miscounted("text", prepared.parameters, len(params))
    statement = prepared.interpret(known.catalog, params, now)
    if isinstance(statement, ConstantSelect):
        yield pickle.dumps(statement, pickle.HIGHEST_PROTOCOL)
    select = statement.target if isinstance(statement, Explain) else statement
    if not isinstance(select, SelectStatement) or (isinstance(statement, Explain) and statement.analyze):
        return
    ad_hoc = verbatim(select.query, known.catalog, select.params)
    ad_hoc = replace(ad_hoc, reusable=not select.params)
    planned, plan = plan_evaluation(known, ad_hoc.meant(), statistics)
    arguments = exact_arguments(ad_hoc.bind(select.params), planned.placeholders, planned.parameters) or ()
    told = explained_as_view(known, ad_hoc.definition(), plan) if isinstance(statement, Explain) else ""
    shape = shape_text(ad_hoc.view_sql)
    made = PlannedAlone(planned, replace(plan, grows=True), arguments, ad_hoc.name, shape, told)
    yield pickle.dumps(made, pickle.HIGHEST_PROTOCOL)


def explained_as_view(state: State, definition: ViewDefinition, plan: EvaluationPlan) -> str:
    """How a SELECT is evaluated, and the dataflow that a view of it would have."""
    try:
        after, _ = plan_readers(state, [definition], one_domain)
    except Unsupported as error:
        return f"{explained(plan)}\na view of it is not possible: {error.message}"
    view = explain(after.flow, after.flow.readers[definition.name])
    return "\n".join((explained(plan), "a view of it would be", view))
