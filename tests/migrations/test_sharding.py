"""SQL in, sharding out: the pairs of ``shardings.txt``, and how plans and routes come to single domains.

The tables stand in four shards, ``stories`` by ``id``, ``votes`` by ``story_id``, ``users`` by ``id`` in two of them
and ``tags`` in one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from domains.plan.commands import Activate, AddNodes, BuildIndex, CreateTable, DropTable, Feed, Part, RemoveNodes
from domains.plan.graph import DomainIndex, Ingress, Materialization, NodeIndex, Sharding
from domains.plan.packets import receiver_of, sender_of
from migrations.change import change_of
from migrations.flow.dataflow import Dataflow
from migrations.flow.explain import explain
from migrations.flow.plan import PlanStep, State, one_domain, plan_removal, plan_start, spread_over
from migrations.recipe import RecipeEntry

TABLES = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT, title TEXT);
CREATE TABLE votes (user INT, story_id INT, PRIMARY KEY (user, story_id)) SHARD BY (story_id);
CREATE TABLE users (id INT PRIMARY KEY, name TEXT) SHARD BY (id) SHARDS 2;
CREATE TABLE tags (tag TEXT, story_id INT) SHARD BY (story_id) SHARDS 1
"""
SHARDS = 4


def state_of(*statements: str, shards: int = SHARDS, groups: int = 1) -> State:
    placement = one_domain if groups == 1 else spread_over(groups)
    state = State(shards=shards)
    for sql in (*TABLES.split(";"), *statements):
        state = change_of(state, RecipeEntry((sql,)), placement).state
    return state


def pairs() -> list[tuple[str, str, str]]:
    found = []
    for block in (Path(__file__).parent / "shardings.txt").read_text().strip().split("\n\n"):
        asked, _, expected = block.strip().partition("\n---\n")
        title, _, sql = asked.partition("\n")
        found.append((title.removeprefix("-- "), sql, expected))
    return found


@pytest.mark.parametrize(("title", "sql", "expected"), pairs(), ids=lambda value: value[:40])
def test_sharding(title: str, sql: str, expected: str) -> None:
    state = state_of(f"CREATE EXT VIEW v AS {sql}")
    assert explain(state.flow, state.flow.readers["v"]) == expected, title


def ingresses(flow: Dataflow) -> list[NodeIndex]:
    return [node.index for node in flow.nodes.values() if isinstance(node.operator, Ingress)]


def pairs_of(flow: Dataflow, ingress: NodeIndex) -> list[tuple[int, int]]:
    return [(sender_of(route.link), receiver_of(route.link)) for route in flow.routes[ingress]]


# --- routes ---------------------------------------------------------------------------------------------------------


def test_a_shuffle_has_a_link_for_each_pair_and_each_takes_its_part() -> None:
    flow = state_of("CREATE EXT VIEW v AS SELECT name, id FROM users WHERE name = ?").flow
    (ingress,) = ingresses(flow)
    assert flow.sharding[ingress] == Sharding(2, frozenset((0,)))
    assert pairs_of(flow, ingress) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [route.part for route in flow.routes[ingress]] == [
        Part(0, 2, 0),
        Part(0, 2, 0),
        Part(0, 2, 1),
        Part(0, 2, 1),
    ]


def test_from_two_shards_to_four() -> None:
    flow = state_of(
        "CREATE EXT VIEW v AS SELECT s.id, name FROM stories s JOIN users u ON u.id = s.id WHERE s.id = ?"
    ).flow
    (ingress,) = ingresses(flow)
    assert pairs_of(flow, ingress) == [(sender, receiver) for receiver in range(4) for sender in range(2)]
    node = flow.node(ingress).operator
    assert isinstance(node, Ingress)
    assert node.by is not None, "the sharding of the source decides which shard is asked"
    assert flow.node(node.source).columns[node.by].name == "id"


def test_from_four_shards_to_one_everything_goes() -> None:
    flow = state_of("CREATE EXT VIEW v AS SELECT * FROM stories").flow
    (ingress,) = ingresses(flow)
    gathered = flow.sharding[ingress].first
    assert pairs_of(flow, ingress) == [(sender, gathered) for sender in range(4)]
    assert {route.part for route in flow.routes[ingress]} == {None}


def test_from_one_shard_to_four() -> None:
    flow = state_of(
        "CREATE EXT VIEW v AS SELECT s.id, tag FROM stories s JOIN tags t ON t.story_id = s.id WHERE s.id = ?"
    ).flow
    (ingress,) = ingresses(flow)
    assert pairs_of(flow, ingress) == [(0, receiver) for receiver in range(4)]
    assert {route.part for route in flow.routes[ingress]} == {Part(1, 4, number) for number in range(4)}


def test_between_groups_that_stand_alike_each_shard_has_its_own_link() -> None:
    flow = state_of("CREATE EXT VIEW v AS SELECT id, author FROM stories WHERE id = ?", groups=2).flow
    (ingress,) = ingresses(flow)
    assert pairs_of(flow, ingress) == [(shard, 4 + shard) for shard in range(4)]
    operator = flow.node(ingress).operator
    assert isinstance(operator, Ingress)
    assert operator.by is None
    assert {route.part for route in flow.routes[ingress]} == {None}


def test_what_a_route_carries_the_clock_of() -> None:
    """Up to a shuffle a shard knows its own base shards; below one, all of them."""
    flow = state_of("CREATE EXT VIEW v AS SELECT author, COUNT(*) FROM stories GROUP BY author").flow
    shuffled, gathered = ingresses(flow)
    assert [route.bases for route in flow.routes[shuffled][:4]] == [{f"stories@{shard}"} for shard in range(4)]
    everything = {f"stories@{shard}" for shard in range(4)}
    assert {route.bases for route in flow.routes[gathered]} == {frozenset(everything)}
    assert flow.bases_of(flow.readers["v"], flow.sharding[gathered].first) == everything


def test_a_path_gets_a_lane_higher_with_every_link() -> None:
    flow = state_of("CREATE EXT VIEW v AS SELECT author, COUNT(*) FROM stories GROUP BY author").flow
    assert [{route.link % 64 for route in flow.routes[ingress]} for ingress in ingresses(flow)] == [{0}, {1}]


def test_gathered_views_are_not_all_in_one_shard() -> None:
    queries = ("SELECT * FROM stories", "SELECT * FROM votes", "SELECT title FROM stories", "SELECT user FROM votes")
    flow = state_of(*(f"CREATE EXT VIEW v{i} AS {sql}" for i, sql in enumerate(queries))).flow
    assert sorted(flow.sharding[reader].first for reader in flow.readers.values()) == [0, 1, 2, 3]


# --- plans ----------------------------------------------------------------------------------------------------------


def steps_of(kind: type, steps: tuple[PlanStep, ...]) -> list[DomainIndex]:
    return [step.domain for step in steps if isinstance(step.command, kind)]


def test_a_table_is_made_in_each_of_its_shards() -> None:
    state = State(shards=SHARDS)
    for sql, domains in zip(TABLES.split(";"), ([0, 1, 2, 3], [0, 1, 2, 3], [0, 1], [0]), strict=True):
        change = change_of(state, RecipeEntry((sql,)), one_domain)
        assert steps_of(CreateTable, change.steps) == domains
        state = change.state
    dropped = change_of(state, RecipeEntry(("DROP TABLE users",)), one_domain)
    assert steps_of(DropTable, dropped.steps) == [0, 1]


def test_an_index_is_built_in_each_shard() -> None:
    change = change_of(state_of(), RecipeEntry(("CREATE INDEX by_name ON users (name)",)), one_domain)
    assert steps_of(BuildIndex, change.steps) == [0, 1]


def test_a_node_comes_into_all_its_shards_and_leaves_them() -> None:
    state = state_of()
    change = change_of(
        state, RecipeEntry(("CREATE EXT VIEW v AS SELECT id, name FROM users WHERE id = ?",)), one_domain
    )
    added = [step for step in change.steps if isinstance(step.command, AddNodes)]
    assert [step.domain for step in added] == [0, 1]
    assert len({step.command for step in added}) == 1, "the same nodes in both, and no link"
    _, removal = plan_removal(change.state, ["v"])
    assert steps_of(RemoveNodes, removal.steps) == steps_of(RemoveNodes, change.views.undo) == [0, 1]


def test_only_domains_that_build_something_are_fed() -> None:
    """Of a full view over users, in two shards, and gathered in a third."""
    state = state_of()
    change = change_of(state, RecipeEntry(("CREATE EXT VIEW v AS SELECT id, name FROM users",)), one_domain)
    gathered = change.state.flow.sharding[change.state.flow.readers["v"]].first
    expected = sorted({0, 1, gathered})
    assert sorted(steps_of(Feed, change.steps)) == sorted(steps_of(Activate, change.steps)) == expected
    partial = change_of(
        state, RecipeEntry(("CREATE EXT VIEW v AS SELECT id, name FROM users WHERE id = ?",)), one_domain
    )
    assert not steps_of(Feed, partial.steps)
    assert not steps_of(Activate, partial.steps)


def test_the_same_recipe_gives_the_same_plan() -> None:
    views = [f"CREATE EXT VIEW v{number} AS {sql}" for number, (_, sql, _) in enumerate(pairs())]
    one, other = (plan_start(state_of(*views, groups=3).flow) for _ in range(2))
    assert one == other
    assert str(one) == str(other)


def test_a_view_that_stands_is_used_however_it_stands() -> None:
    """A running node serves a further view, which shuffles what it needs."""
    count = "CREATE VIEW counted AS SELECT author, COUNT(*) AS n FROM stories GROUP BY author"
    state = state_of(
        count,
        "CREATE EXT VIEW one AS SELECT * FROM counted",
        "CREATE EXT VIEW two AS SELECT n, author FROM counted WHERE author = ?",
    )
    flow = state.flow
    assert sum(type(node.operator).__name__ == "Aggregate" for node in flow.nodes.values()) == 1
    assert flow.node(flow.readers["two"]).materialization is Materialization.PARTIAL


def test_one_shard_has_nothing_to_shuffle() -> None:
    """The same views, planned for one shard: no links, and not a word about shards."""
    state = State()
    for sql in (
        *TABLES.replace(" SHARDS 2", "").split(";"),
        *(f"CREATE EXT VIEW v{i} AS {q}" for i, (_, q, _) in enumerate(pairs())),
    ):
        state = change_of(state, RecipeEntry((sql,)), one_domain).state
    assert not state.flow.routes
    assert set(state.flow.sharding.values()) == {Sharding()}
    assert "shard" not in "".join(explain(state.flow, reader) for reader in state.flow.readers.values())
