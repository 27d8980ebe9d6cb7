"""Which joins keep state for a join below them: those that a hole, or a link, may stand above."""

from __future__ import annotations

import pytest

from domains.plan.graph import Aggregate, Base, DomainIndex, Ingress, Materialization, Node, Project, TopK, Union
from migrations.change import change_of
from migrations.flow.plan import State, one_domain
from migrations.recipe import RecipeEntry

TABLES = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, INDEX (author));
CREATE TABLE comments (id INT PRIMARY KEY, story INT NOT NULL, author INT NOT NULL, INDEX (story));
CREATE TABLE votes (comment INT NOT NULL, INDEX (comment));
"""
REPLIES = "SELECT s.author AS reader, c.id FROM stories s JOIN comments c ON c.story = s.id"
NARROW = f"CREATE VIEW replies AS {REPLIES};"
LIKED = """
CREATE EXT VIEW liked AS SELECT r.reader, r.id FROM replies r JOIN votes v ON v.comment = r.id WHERE r.reader = ?;
"""
COUNTED = """
CREATE VIEW counts AS SELECT comment, COUNT(*) AS n FROM votes GROUP BY comment;
CREATE EXT VIEW counted AS SELECT r.reader, r.id, c.n FROM replies r JOIN counts c ON c.comment = r.id WHERE reader = ?;
CREATE EXT VIEW twice AS
SELECT a.reader, a.n, b.id FROM (SELECT r.reader, r.id, c.n FROM replies r JOIN counts c ON c.comment = r.id) a
JOIN comments b ON b.story = a.id WHERE a.reader = ?;
"""


def planned(text: str, *, partial: bool = True) -> list[Node]:
    return list(change_of(State(partial=partial), RecipeEntry((TABLES, text)), one_domain).state.flow.nodes.values())


def kept(nodes: list[Node]) -> set[Materialization]:
    """Of the projections of joins."""
    return {node.materialization for node in nodes if isinstance(node.operator, Project)}


@pytest.mark.parametrize("narrow", [NARROW, f"CREATE VIEW replies AS {REPLIES} UNION ALL {REPLIES};"])
def test_a_join_of_base_tables_is_looked_up_without_state(narrow: str) -> None:
    nodes = planned(narrow + LIKED)
    assert kept(nodes) == {Materialization.NONE}
    assert not any(node.indexes for node in nodes if isinstance(node.operator, Union))


def test_it_is_so_too_where_the_other_side_is_partial() -> None:
    nodes = planned(NARROW + COUNTED)
    above_counts = {node.index for node in nodes if isinstance(node.operator, Aggregate)}
    for node in nodes:  # Parents come first.
        above_counts |= {node.index for parent in node.parents if parent in above_counts}
    held = {node.index for node in nodes if isinstance(node.operator, Project) and node.indexes}
    assert held, "what rests on counts may miss, and is joined again"
    assert held <= above_counts


def test_behind_a_link_it_keeps_state() -> None:
    beside_no_table = change_of(State(), RecipeEntry((TABLES, NARROW + LIKED)), lambda node: DomainIndex(1)).state
    nodes = list(beside_no_table.flow.nodes.values())
    assert any(isinstance(node.operator, Ingress) for node in nodes)
    assert Materialization.PARTIAL in kept(nodes)


def test_where_all_is_full_so_is_it() -> None:
    assert Materialization.FULL in kept(planned(NARROW + LIKED, partial=False))


def test_a_later_view_makes_use_of_the_same_nodes() -> None:
    first = change_of(State(), RecipeEntry((TABLES, NARROW + LIKED)), one_domain).state
    again = LIKED.replace("liked", "liked_again").replace("r.id FROM", "r.id, v.comment FROM")
    both = change_of(first, RecipeEntry((again,)), one_domain).state.flow
    bases = [node for node in both.nodes.values() if isinstance(node.operator, Base)]
    joined = [node for node in both.nodes.values() if {node.parents} & {tuple(base.index for base in bases[:2])}]
    assert len(bases) == 3
    assert len(joined) == 1


CORRELATED = """
CREATE EXT VIEW page AS SELECT s.id, (SELECT COUNT(*) FROM comments c WHERE c.story = s.id) AS comments,
(SELECT MAX(c.id) FROM comments c WHERE c.author = s.author) AS latest,
EXISTS (SELECT 1 FROM votes v WHERE v.comment = s.id) AS liked FROM stories s WHERE s.id = ?;
"""


def test_correlation_by_equality_leaves_no_full_node_and_no_distinct_of_the_outer_rows() -> None:
    nodes = {node.index: node for node in planned(CORRELATED)}
    assert not [node for node in nodes.values() if node.materialization is Materialization.FULL]
    grouped = [node for node in nodes.values() if isinstance(node.operator, Aggregate)]
    tables = [operator.table for node in grouped if isinstance(operator := nodes[node.parents[0]].operator, Base)]
    assert sorted(tables) == ["comments", "comments", "votes"]
    assert all(node.materialization is Materialization.PARTIAL for node in grouped)


LATERAL = """
CREATE EXT VIEW page AS SELECT s.id, x.author, y.n FROM stories s
JOIN LATERAL (SELECT c.author, c.id FROM comments c WHERE c.story = s.id ORDER BY c.id DESC LIMIT 3) AS x ON TRUE
LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM votes v WHERE v.comment = s.id) AS y ON TRUE WHERE s.id = ?;
"""


def test_lateral_by_equality_leaves_no_full_node_and_no_distinct_of_the_rows_to_its_left() -> None:
    nodes = planned(LATERAL)
    assert not [node for node in nodes if node.materialization is Materialization.FULL]
    grouped = [node.operator for node in nodes if isinstance(node.operator, Aggregate)]
    assert [len(operator.calls) for operator in grouped] == [1], "the count of votes, and no DISTINCT"
    (top,) = [node for node in nodes if isinstance(node.operator, TopK)]
    assert top.materialization is Materialization.PARTIAL


MARKED = """
CREATE EXT VIEW answered AS SELECT s.id FROM stories s WHERE s.id = ?
AND NOT EXISTS (SELECT 1 FROM comments c WHERE c.story = s.id AND c.author <> s.author);
"""


def test_a_mark_join_of_base_tables_keeps_nothing() -> None:
    nodes = planned(MARKED)
    assert not [node for node in nodes if node.materialization is Materialization.FULL]
    assert sum(node.materialization is Materialization.PARTIAL for node in nodes) == 1, "the reader"
