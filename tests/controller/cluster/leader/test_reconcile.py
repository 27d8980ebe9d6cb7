"""What a recovery rebuilds: as much as must be, and no more."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from controller.cluster.leader.reconcile import Repair, drop_steps, homeless, repair, superfluous, table_steps
from controller.cluster.state import Assignment, ClusterState
from domains.language.types import TableSchema
from domains.plan.commands import AddNodes, AlterTable, CreateTable, DropTable
from domains.plan.graph import DomainIndex, Ingress, Materialization, NodeIndex
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe, RecipeEntry
from tests.played_recipe import play
from worker.protocol.messages import DomainReport, WorkerReport

SHARDS = 3
TABLES = """CREATE TABLE stories (id BIGINT PRIMARY KEY, author TEXT);
CREATE TABLE votes (user_id BIGINT, story_id BIGINT, PRIMARY KEY (user_id, story_id))"""
PARTIAL = "CREATE VIEW by_story AS SELECT story_id, COUNT(*) AS n FROM votes WHERE story_id = ? GROUP BY story_id"
FULL = "CREATE EXT VIEW counts AS SELECT story_id, COUNT(*) AS n FROM votes GROUP BY story_id"


def planned(*views: str) -> State:
    return play(Recipe((RecipeEntry((TABLES,)), *(RecipeEntry((view,)) for view in views))), one_domain, shards=SHARDS)


def report(
    state: State, domain: int, *, without: Iterable[int] = (), extra: Iterable[int] = (), building: Iterable[int] = ()
) -> DomainReport:
    there = {index for index in state.flow.nodes if domain in state.flow.places(index)}
    nodes = frozenset(NodeIndex(n) for n in (there - set(without)) | set(extra))
    tables = tuple(state.catalog.tables.values())
    return DomainReport(1, True, nodes, frozenset(NodeIndex(n) for n in building), tables, {})


def lose(state: State, *lost: int) -> Repair:
    opened = [DomainIndex(domain) for domain in lost]
    survivors = {DomainIndex(d): report(state, d) for d in range(SHARDS) if d not in lost}
    return repair(state, survivors, opened)


def added(found: Repair) -> dict[int, set[int]]:
    nodes: dict[int, set[int]] = {}
    for step in (*found.fresh, *found.again):
        assert isinstance(step.command, AddNodes)
        nodes.setdefault(step.domain, set()).update(node.index for node in step.command.nodes)
    return nodes


def test_nothing_is_done_where_nothing_is_wrong() -> None:
    found = lose(planned(PARTIAL, FULL))
    assert (found.fresh, found.removals, found.again, found.feeds, found.activations) == ((), {}, (), (), ())


def test_survivors_keep_what_is_partial() -> None:
    state = planned(PARTIAL)
    found = lose(state, 1)
    assert not found.removals
    assert not found.again
    assert added(found) == {1: {index for index in state.flow.nodes if 1 in state.flow.places(index)}}


def test_full_state_below_a_shuffle_is_built_again_everywhere() -> None:
    state = planned(PARTIAL, FULL)
    found = lose(state, 1)
    full = {i for i, node in state.flow.nodes.items() if node.materialization is Materialization.FULL}
    shuffled = {
        i for i in full if any(isinstance(state.flow.nodes[a].operator, Ingress) for a in state.flow.ancestors(i))
    }
    assert shuffled
    for domain in (0, 2):
        gone = set(found.removals[DomainIndex(domain)])
        assert {i for i in shuffled if domain in state.flow.places(i)} <= gone
        assert added(found)[domain] == gone, "what is removed comes back"
        assert state.flow.readers["by_story"] not in gone
    assert [step.domain for step in found.feeds] == [0, 1, 2]
    assert [step.domain for step in found.activations] == [0, 1, 2]


def test_an_egress_that_feeds_again_feeds_new_ingresses_only() -> None:
    state = planned(PARTIAL, FULL)
    for lost in ([0], [1], [2], [0, 1], [1, 2]):
        found = lose(state, *lost)
        new = {(node, domain) for domain, nodes in added(found).items() for node in nodes}
        for step in (*found.fresh, *found.again):
            assert isinstance(step.command, AddNodes)
            for route in step.command.outgoing:
                if state.flow.nodes[route.ingress].materialization is Materialization.FULL:
                    assert all((route.ingress, d) in new for d in state.flow.places(route.ingress))
            for route in step.command.incoming:
                node = state.flow.nodes[route.ingress]
                if node.materialization is Materialization.FULL:
                    senders = state.flow.places(route.egress)
                    assert all((route.egress, d) in new for d in senders)


def test_what_no_recipe_knows_is_removed() -> None:
    state = planned(PARTIAL)
    survivors = {DomainIndex(d): report(state, d, extra=[90, 91] if d == 2 else [90]) for d in range(SHARDS)}
    found = repair(state, survivors, [])
    assert found.removals == {0: (90,), 1: (90,), 2: (90, 91)}
    assert not found.again
    assert not found.feeds


@pytest.mark.parametrize("how", ["missing", "building"])
def test_what_another_leader_left_half_built_is_built_again(how: str) -> None:
    state = planned(PARTIAL, FULL)
    reader = state.flow.readers["counts"]
    (domain, *_) = state.flow.places(reader)
    half = {"without": [reader]} if how == "missing" else {"building": [reader]}
    survivors = {
        DomainIndex(d): report(state, d, **half) if d == domain else report(state, d)  # type: ignore[arg-type]
        for d in range(SHARDS)
    }
    found = repair(state, survivors, [])
    assert reader in added(found)[domain]
    assert domain in [step.domain for step in found.activations]
    assert state.flow.readers["by_story"] not in added(found)[domain]


def test_only_what_stands_on_full_state_is_held() -> None:
    state = planned(PARTIAL, FULL)
    found = lose(state, 0, 1, 2)
    commands = [step.command for step in found.fresh if isinstance(step.command, AddNodes)]
    assert len(commands) == SHARDS, "one to each domain: its worker is waited for once"
    held = {node for command in commands for node in command.held}
    free = {node.index for command in commands for node in command.nodes} - held
    assert state.flow.readers["by_story"] in free
    assert state.flow.readers["counts"] in held


# --- domains and tables ---------------------------------------------------------------------------------------------


def cluster(hosts: dict[int, tuple[str, int]]) -> ClusterState:
    placement = {DomainIndex(d): Assignment(worker, incarnation) for d, (worker, incarnation) in hosts.items()}
    return ClusterState("main", SHARDS, 1, 9, placement)


def worker(name: str, domains: dict[int, int], *, linked: bool = True) -> WorkerReport:
    reports = {DomainIndex(d): DomainReport(i, linked, frozenset(), frozenset(), (), {}) for d, i in domains.items()}
    return WorkerReport(name, 9, reports)


def test_who_is_homeless() -> None:
    state = cluster({0: ("a", 2), 1: ("b", 3), 2: ("b", 3)})
    assert homeless(state, {"a": worker("a", {0: 2}), "b": worker("b", {1: 3, 2: 3})}) == []
    assert homeless(state, {"a": worker("a", {0: 2})}) == [1, 2], "a worker is lost"
    assert homeless(state, {"a": worker("a", {}), "b": worker("b", {1: 3, 2: 3})}) == [0], "it was started anew"
    assert homeless(state, {"a": worker("a", {0: 1}), "b": worker("b", {1: 3, 2: 3})}) == [0], "an older incarnation"
    unlinked = {"a": worker("a", {0: 2}), "b": worker("b", {1: 3, 2: 3}, linked=False)}
    assert homeless(state, unlinked) == [1, 2], "it has never served"


def test_what_is_superfluous() -> None:
    state = cluster({0: ("a", 2), 1: ("b", 3), 2: ("b", 3)})
    reports = {"a": worker("a", {0: 1, 1: 1}), "b": worker("b", {1: 3, 2: 3})}
    assert superfluous(state, reports) == [("a", 0), ("a", 1)]


def test_tables_become_what_was_decided() -> None:
    state = planned()
    stories, votes = state.catalog.tables.values()
    other = TableSchema("votes", votes.columns[:1])
    there = DomainReport(1, True, frozenset(), frozenset(), (other, TableSchema("old", votes.columns)), {})
    commands = [step.command for step in table_steps(state, DomainIndex(0), there)]
    assert commands == [CreateTable(stories), AlterTable(votes)]
    assert [step.command for step in drop_steps(state, DomainIndex(0), there)] == [DropTable("old")]


def test_tables_that_others_refer_to_from_now_on_are_made_first() -> None:
    refer = "CREATE TABLE p (x INT PRIMARY KEY); ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (x)"
    entries = tuple(RecipeEntry((text,)) for text in ("CREATE TABLE c (x INT)", refer))
    before, after = (play(Recipe(entries[:count]), one_domain) for count in (1, 2))
    steps = table_steps(after, DomainIndex(0), report(before, 0))
    tables = after.catalog.table
    assert [step.command for step in steps] == [CreateTable(tables("p")), AlterTable(tables("c"))]


def test_a_table_that_was_dropped_before_another_of_its_name_was_made_is_not_altered_into_it() -> None:
    former = play(Recipe((RecipeEntry((TABLES,)),)), one_domain, shards=SHARDS)
    again = Recipe(
        (RecipeEntry((TABLES,)), RecipeEntry(("DROP TABLE votes",)), RecipeEntry((TABLES.partition(";\n")[2],)))
    )
    now = play(again, one_domain, shards=SHARDS)
    steps = table_steps(now, DomainIndex(0), report(former, 0))
    assert [step.command for step in steps] == [DropTable("votes"), CreateTable(now.catalog.table("votes"))]
    assert table_steps(now, DomainIndex(0), report(now, 0)) == []
