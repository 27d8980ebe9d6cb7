"""The whole program goes through the planner, and what should be partial is."""

from __future__ import annotations

import pytest

from domains.plan.graph import Aggregate, Base, Join, Materialization, Node, ParameterKind, Project, Reader
from loadgen.peers.store import parse_queries
from lobsters import program
from migrations.change import change_of
from migrations.flow.explain import explain
from migrations.flow.plan import State, one_domain
from migrations.recipe import RecipeEntry

LISTS = {"frontpage_ids", "recent_ids", "newest_comment_ids"}
"""The views without a parameter: their answer is one, over all rows."""


@pytest.fixture(scope="module")
def state() -> State:
    return change_of(State(), RecipeEntry((program.program(),)), one_domain).state


def readers(state: State) -> dict[str, Node]:
    return {name: state.flow.node(index) for name, index in state.flow.readers.items()}


BY_USER = {(table, ("user_id",)) for table in ("votes", "hidden_stories", "saved_stories")}
"""Indexes for what is partial by the user. The schema has longer keys that begin so, which is what a database looks up
by; one more would only cost it."""


def test_it_has_the_tables_and_views_that_it_promises(state: State) -> None:
    assert {table.name for table in state.catalog.tables.values()} == set(program.TABLES)
    views = state.catalog.views.values()
    assert sum(not view.external for view in views) == 25
    assert sum(view.external for view in views) == 32


def test_each_page_query_has_a_reader(state: State) -> None:
    assert set(readers(state)) == {name for name, view in state.catalog.views.items() if view.external}


def test_all_that_has_a_parameter_is_partial(state: State) -> None:
    full = {name for name, node in readers(state).items() if node.materialization is Materialization.FULL}
    assert full == LISTS


def test_every_parameter_is_a_key(state: State) -> None:
    """None is left to be found by walking, but for what is sought among one user's marks: all have a provenance."""
    for name, node in readers(state).items():
        assert isinstance(node.operator, Reader)
        columns = {parameter.column for parameter in node.operator.parameters}
        assert columns == {*node.operator.key, *node.operator.seek}, name
        if node.operator.seek:
            assert [node.columns[column].name for column in node.operator.key] == ["user_id"]
            assert len(node.operator.seek) == 1
        assert {parameter.kind for parameter in node.operator.parameters} <= {ParameterKind.EQUAL, ParameterKind.IN}


def test_only_what_the_front_pages_need_is_full(state: State) -> None:
    """And no join is: a full join would keep every comment's text."""
    needed = {index for view in LISTS for index in state.flow.ancestors(state.flow.readers[view])}
    full = [node for node in state.flow.nodes.values() if node.materialization is Materialization.FULL]
    assert {node.index for node in full} <= needed
    assert not [node for node in full if isinstance(node.operator, Join)]


def test_of_votes_and_comments_little_is_full(state: State) -> None:
    """One sum by story, and the comments of stories' own authors: not a sum for each comment or commenter."""
    full = [node for node in state.flow.nodes.values() if node.materialization is Materialization.FULL]
    sums = [node for node in full if isinstance(node.operator, Aggregate)]
    assert [[column.name for column in node.columns][:1] for node in sums] == [["story_id"]]
    joined = [node for node in full if isinstance(node.operator, Project)]
    assert [[column.name for column in node.columns] for node in joined] == [["id", "story_id"]]


def test_the_indexes_that_the_views_look_up_by_are_declared(state: State) -> None:
    """An index that the schema lacks is built when the views are made, over whatever is stored by then."""
    missing = {
        (base.operator.table, tuple(base.columns[column].name for column in columns))
        for base in state.flow.nodes.values()
        if isinstance(base.operator, Base)
        for columns in base.indexes
        if not _is_declared(state, base.operator, columns)
    }
    assert missing == BY_USER


def _is_declared(state: State, base: Base, columns: tuple[int, ...]) -> bool:
    schema = state.catalog.table(base.table)
    stored = {base.columns[column] for column in columns}
    if schema.primary_key and stored >= set(schema.primary_key):
        return True  # one row at most, whatever else is asked for
    return any(stored == set(index) for index in (*schema.unique, *schema.indexes))


def test_every_page_as_one_answer_is_partial_and_no_node_above_it_is_full() -> None:
    """Each look-up of a page by what it shows. The lists of ids rank all stories: the natural program's, and full."""
    views, queries = program.page_views()
    texts = (program.schema(), program.natural_views(), views, queries)
    state = State()
    for text in texts:
        state = change_of(state, RecipeEntry((text,)), one_domain).state
    assert set(readers(state)) == set(parse_queries(queries))
    for name, index in state.flow.readers.items():
        above = {index, *state.flow.ancestors(index)}
        full = [node for node in map(state.flow.node, above) if node.materialization is Materialization.FULL]
        stateful = [node for node in full if not isinstance(node.operator, Base)]
        assert bool(stateful) == (name in LISTS), (name, stateful)
        if name == "story_page":
            array = "γ story_id; JSON_ARRAYAGG(computed_1 by score DESC, id)  partial by (story_id)"
            assert f"{array}; a change renders its text anew, 0.2 µs an element" in explain(state.flow, index)
        assert ("full" in explain(state.flow, index)) == (name in LISTS), name
