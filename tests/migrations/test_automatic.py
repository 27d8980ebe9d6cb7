"""Automatic views beside a dataflow: what they stand on, under which numbers, and what keeps one from being made."""

from __future__ import annotations

import pytest

from domains.errors import AlreadyExists, HeadraceError, Unsupported
from domains.plan.commands import AddNodes, RemoveNodes
from domains.plan.graph import NodeIndex, is_automatic
from domains.plan.traits import is_base
from migrations.change import change_of
from migrations.flow.automatic import AutomaticView, numbers_of, plan_automatic, with_automatic
from migrations.flow.plan import State, one_domain
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name

SCHEMA = (
    "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title TEXT, KEY (author))",
    "CREATE TABLE votes (story_id INT, user INT)",
    "CREATE VIEW counted AS SELECT story_id, COUNT(*) AS n FROM votes WHERE story_id = ? GROUP BY story_id",
)
BY_AUTHOR = "SELECT id, title FROM stories WHERE author = ?"
JOINED = "SELECT s.id FROM stories s, votes v WHERE s.id = v.story_id AND s.author = ?"
VOTES_OF = "SELECT COUNT(*) FROM votes WHERE story_id = ?"
FIRST = NodeIndex(numbers_of(7).start)


def played(*statements: str, shards: int = 3) -> State:
    state = State(shards=shards)
    for sql in (*SCHEMA, *statements):
        state = change_of(state, RecipeEntry((sql,)), one_domain).state
    return state


def refusal(sql: str, state: State | None = None) -> HeadraceError:
    with pytest.raises(HeadraceError) as refused:
        plan_automatic(state or played(), sql, FIRST)
    return refused.value


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("sql", [BY_AUTHOR, VOTES_OF, JOINED])
def test_it_stands_on_base_tables_alone(sql: str, shards: int) -> None:
    state = played(shards=shards)
    view = plan_automatic(state, sql, FIRST)
    assert view.nodes == tuple(range(FIRST, FIRST + len(view.nodes)))
    others = [view.flow.nodes[index] for index in view.flow.nodes if index not in view.nodes]
    assert all(is_base(node.operator) for node in others)
    assert all(isinstance(step.command, AddNodes) for step in view.steps)
    added = {node.index for step in view.steps for node in step.command.nodes}  # type: ignore[union-attr]
    removed = {index for step in view.removal if isinstance(step.command, RemoveNodes) for index in step.command.nodes}
    assert added == removed == set(view.nodes)


def test_what_is_declared_stays_what_it_is() -> None:
    state = played()
    before = state.copy()
    view = plan_automatic(state, VOTES_OF, FIRST)
    shown = with_automatic(state, [view])
    assert (state.catalog, state.flow, state.planned) == (before.catalog, before.flow, before.planned)
    assert len(state.joint) == len(before.joint)
    declared = {index: node for index, node in shown.flow.nodes.items() if not is_automatic(index)}
    assert declared == state.flow.nodes
    assert shown.flow.readers == {**state.flow.readers, view.name: view.nodes[-1]}
    assert set(shown.catalog.views) == {*state.catalog.views, ad_hoc_name(VOTES_OF)}


def test_it_is_the_same_wherever_it_is_planned() -> None:
    def planned(state: State, first: int = FIRST) -> AutomaticView:
        return plan_automatic(state, BY_AUTHOR, NodeIndex(first))

    one = planned(played())
    assert planned(played()).check == one.check
    assert planned(played(), FIRST + 1).check != one.check
    assert planned(played("ALTER TABLE stories ADD COLUMN score INT")).check != one.check


def test_numbers_of_epochs_are_apart() -> None:
    assert numbers_of(7).stop == numbers_of(8).start
    assert not is_automatic(NodeIndex(10**9))
    assert is_automatic(NodeIndex(numbers_of(0).start))


def test_it_adds_no_index() -> None:
    refused = refusal("SELECT id FROM stories WHERE title = ?")
    assert isinstance(refused, Unsupported)
    assert 'looks "stories" up by (title)' in refused.message
    assert refused.hint == "CREATE INDEX … ON stories (title)"
    assert plan_automatic(played("CREATE INDEX i ON stories (title)"), "SELECT id FROM stories WHERE title = ?", FIRST)


def test_the_first_columns_of_an_index_will_do() -> None:
    state = played("CREATE TABLE pairs (a INT, b INT, c INT, PRIMARY KEY (a, b), KEY (c, b))")
    for column in ("a", "c"):
        assert plan_automatic(state, f"SELECT c FROM pairs WHERE {column} = ?", FIRST)
    assert "(b)" in refusal("SELECT c FROM pairs WHERE b = ?", state).message


@pytest.mark.parametrize("sql", ["SELECT COUNT(*) FROM votes", "SELECT id FROM stories ORDER BY id LIMIT 3"])
def test_it_has_no_full_state(sql: str) -> None:
    assert "it would hold all of its rows" in refusal(sql).message
    assert "CREATE EXT VIEW" in refusal(sql).message


def test_what_the_recipe_has_is_not_made_twice() -> None:
    state = change_of(played(), RecipeEntry((BY_AUTHOR,), ad_hoc=True), one_domain).state
    assert isinstance(refusal(BY_AUTHOR, state), AlreadyExists)
