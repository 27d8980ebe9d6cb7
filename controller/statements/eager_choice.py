"""The choice whether a new view sums below its joins (``migrations/query/eager.py``), by what its tables hold.

Let the tables of a view have N rows together, and its joins J. Each joined row is made of one row of each of the k
tables, so the write of a row, any as likely as another, meets k·J/N joined rows on average. With sums below the joins
it meets a sum and a row at each table on its way, at most 2·k. So sums pay from J > 2·N on; a sum is state for each of
its keys, and one more step for each row that is summed, so they are chosen where J is twice as much again::

    γ tag ─ taggings ⋈ votes    3 tags a story, 100,000 stories, 1 million votes    J = 3 M,  N = 1.3 M    joined
    γ tag ─ taggings ⋈ votes    20 tags a story                                     J = 20 M, N = 3 M      summed

Estimates are those of the planner (``domains/plan/estimates.py``) over samples of the tables as they are when the view
is made. The choice is written into the text of the view as a hint with both figures, so that it is seen where the
definition is, and a recipe that is played again chooses nothing. A text with a hint of its own is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from controller.statements.planning import StatementPort
from domains.engine.evaluation import EvaluationPlan
from domains.errors import HeadraceError
from domains.plan.estimates import Statistics
from domains.plan.graph import Node, NodeIndex
from domains.plan.traits import traits_of
from migrations.flow.evaluation_plan import plan_evaluation
from migrations.flow.plan import State
from migrations.parse.reading import Parsed, exp, parse
from migrations.statements.definitions.ddl import create_view

JOINED_RATIO = 4
"""Joined rows for each row of the tables from which on sums are made below the joins."""
LEAST_JOINED = 1_000
"""Joined rows, below which it does not matter."""
LONGEST = 10_000
"""Characters of a definition for which it is tried: it is planned up to three times."""

_SELECT = re.compile(r"SELECT\b", re.IGNORECASE)


async def with_choices(deployment: StatementPort, definitions: Sequence[Parsed]) -> tuple[str, ...]:
    """The texts of definitions, each view's with the hint where sums below its joins pay."""
    return tuple([await _with_choice(deployment, parsed) for parsed in definitions])


async def chosen_text(deployment: StatementPort, sql: str) -> str:
    """The same for the text of a migration, which may have several statements."""
    if len(sql) > LONGEST:
        return sql
    try:
        definitions = parse(sql)
    except HeadraceError:
        return sql
    texts = await with_choices(deployment, definitions)
    return sql if texts == tuple(parsed.sql for parsed in definitions) else ";\n".join(texts)


async def _with_choice(deployment: StatementPort, parsed: Parsed) -> str:
    hinted = _hinted(parsed, "")
    if hinted is None:
        return parsed.sql
    state = deployment.state
    try:
        plan = _planned(state, parse(hinted)[0])
        statistics = await deployment.statistics(plan.tables)
        joined = _joined(_planned(state, parsed, statistics))
    except HeadraceError:
        # There is nothing to sum, or the statement is wrong, which whoever performs it says better.
        return parsed.sql
    stored = sum(known.rows for known in statistics.values())
    if joined <= max(LEAST_JOINED, JOINED_RATIO * stored):
        return parsed.sql
    return _hinted(parsed, f"(about {joined:.0f} rows joined of {stored})") or parsed.sql


def _hinted(parsed: Parsed, figures: str) -> str | None:
    """The definition of a view with the hint; None where it is no candidate: no view over joins, or a text that says
    itself what it wants."""
    create = parsed.expression
    query = create.args.get("expression") if isinstance(create, exp.Create) else None
    if not isinstance(query, exp.Select) or not query.args.get("joins") or query.args.get("hint") is not None:
        return None
    start = parsed.sql.rfind(parsed.query)
    select = _SELECT.match(parsed.query)
    if len(parsed.sql) > LONGEST or start < 0 or select is None:
        return None
    at = start + select.end()
    return f"{parsed.sql[:at]} /*+ EAGER_AGGREGATION{figures} */{parsed.sql[at:]}"


def _planned(state: State, parsed: Parsed, statistics: Statistics | None = None) -> EvaluationPlan:
    return plan_evaluation(state, create_view(parsed, state.catalog).definition, statistics)[1]


def _joined(plan: EvaluationPlan) -> float:
    """The rows of the joins below the last GROUP BY that has some."""
    nodes = {node.index: node for node in plan.nodes}

    def joins(index: NodeIndex) -> bool:
        node = nodes[index]
        traits = traits_of(node.operator)
        return traits.matching is not None or (traits.groups_by is None and any(map(joins, node.parents)))

    def groups(node: Node) -> bool:
        return traits_of(node.operator).groups_by is not None and joins(node.parents[0])

    return next((plan.estimates[node.parents[0]].rows for node in reversed(plan.nodes) if groups(node)), 0.0)
