"""The hard cases of the eight rules of ``domains/`` for joins, one test each. The invariants run after every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from domains.plan.graph import NodeIndex
from domains.store.memory_store import MemoryTable
from tests.domains.graphs import Flow, call, column, count


def a_and_b(*key: int) -> tuple[Flow, NodeIndex, NodeIndex]:
    """A(j, y) ⋈ B(j, x), joined in a domain of its own, so that both sides are partial there."""
    flow = Flow(domains=2)
    a = flow.table("a", "j", "y")
    b = flow.table("b", "j", "x")
    flow.reader("view", flow.join(a, b, (0, 0), at=1), *key, at=1)
    flow.start()
    return flow, a, b


# --- cases that broke the first wording of the rules --------------------------------------------------------------


def test_an_update_that_the_other_side_completes_still_evicts_where_its_own_side_has_a_hole() -> None:
    """The reader is on B.x; x=3 is filled and empty; A is filled at j=8, B is a hole there. B(8,3) comes: A hits, so it
    seems complete. Then A(8) comes: B misses, the key has no column of A, nothing is evicted, and x=3 is stale for
    ever. Hence *either* in rule 5: already B(8,3) evicts x=3."""
    flow, _, b = a_and_b(3)
    flow.insert("a", (8, 0))
    flow.insert("b", (8, 5))
    assert flow.read("view", 5) == [(8, 0, 8, 5)]
    assert flow.read("view", 3) == []
    flow.delete("a", (8, 0))
    flow.settle()
    flow.evict(flow.vertex(b, seen_at=1), 8)
    assert flow.has("view", 3)
    flow.insert("b", (8, 3))
    flow.settle()
    assert not flow.has("view", 3)
    flow.insert("a", (8, 1))
    assert flow.read("view", 3) == [(8, 1, 8, 3)]


def test_evicting_a_join_key_evicts_what_found_it_empty() -> None:
    """The reader is on j, known-empty at 8, both sides filled and empty. Evict A at 8: no rows, so nothing is named.
    Were the reader to stay, A and B that arrive at 8 would be dropped. Hence *j itself* in rule 6, and rule 7."""
    flow, a, b = a_and_b(0)
    assert flow.read("view", 8) == []
    assert all((8,) in flow.vertex(side, seen_at=1).indexes[0,] for side in (a, b))  # rule 3: both sides, if empty
    flow.evict(flow.vertex(a, seen_at=1), 8)
    assert not flow.has("view", 8)
    flow.insert("a", (8, 1))
    flow.insert("b", (8, 2))
    assert flow.read("view", 8) == [(8, 1, 8, 2)]


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_on_base_tables_what_has_no_row_to_join_looks_nothing_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 3 is about state. Where neither side can have a hole, the other side of an empty one need not be asked."""
    looked_up: list[str] = []

    def counted(table: MemoryTable, columns: Any, keys: Sequence[Any]) -> Any:
        looked_up.extend(table.schema.name for _ in keys)
        return find_many(table, columns, keys)

    find_many = MemoryTable.find_many
    monkeypatch.setattr(MemoryTable, "find_many", counted)
    flow = Flow(check=False)
    a = flow.table("a", "j", "y")
    b = flow.table("b", "j", "x")
    flow.reader("view", getattr(flow, kind)(a, b, (0, 0)), 0)
    flow.start()
    flow.insert("b", (7, 1), (8, 1))
    looked_up.clear()
    assert flow.read("view", 7) == []
    assert looked_up == ["a"]
    flow.insert("a", (7, 3))
    assert flow.read("view", 7) == [(7, 3, 7, 1)]


@pytest.mark.parametrize("beside", [True, False], ids=["beside_its_tables", "behind_links"])
def test_a_join_over_a_join_rests_on_state_or_on_tables(beside: bool) -> None:
    """A join over a join without state reconstructs its side as it was before the step from what the lower join finds
    now, which is false where holes above have dropped part of what changed: one packet moves a row between its keys.
    Rule 3, third sentence: the lower has state. Base tables have no holes, so on them alone it needs none."""
    flow = Flow(domains=2)
    at = 0 if beside else 1
    a, b, c = flow.table("a", "j", "k"), flow.table("b", "j", "z"), flow.table("c", "k", "w")
    lower = flow.join(a, b, (0, 0), at=at)
    flow.reader("view", flow.join(lower, c, (1, 0), at=at), 4, at=at)
    flow.start()
    assert ((1,) in flow.vertex(lower).indexes) is not beside
    flow.insert("a", (8, 1))
    flow.insert("b", (8, 0), (9, 5))
    flow.insert("c", (1, 4), (2, 4))
    assert flow.read("view", 1) == [(8, 1, 8, 0, 1, 4)]
    flow.update("a", (8, 1), (9, 2))
    assert flow.read("view", 2) == [(9, 2, 9, 5, 2, 4)]
    flow.update("a", (9, 2), (8, 1))
    assert flow.read("view", 1) == [(8, 1, 8, 0, 1, 4)]
    assert flow.read("view", 2) == []


def test_is_null_over_a_left_join_is_asked_from_the_left() -> None:
    """``x IS NULL`` asked from the right of a LEFT JOIN misses the rows without a match: no right row is NULL. Keys
    hold no NULL (rule 3), so what asks for the unmatched rows is keyed from the left, its filter above the join."""
    flow = Flow(domains=2)
    stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
    joined = flow.left_join(stories, votes, (0, 1), at=1)
    flow.reader("unvoted", flow.filter(joined, call("is_null", column(2)), at=1), 1, at=1)
    flow.start()
    flow.insert("stories", (7, 1), (8, 1))
    assert flow.read("unvoted", 1) == [(7, 1, None, None), (8, 1, None, None)]
    flow.insert("votes", (4, 7))
    assert flow.read("unvoted", 1) == [(8, 1, None, None)]
    flow.insert("votes", (None, 8))  # a match whose column is NULL looks the same, and is one
    assert flow.read("unvoted", 1) == [(8, 1, None, 8)]
    flow.delete("votes", (4, 7))
    assert flow.read("unvoted", 1) == [(7, 1, None, None), (8, 1, None, 8)]


# --- cases that broke earlier systems ----------------------------------------------------------------------------


def test_a_left_join_asked_from_the_right_side() -> None:
    """The view is keyed by a column of the right side. Rows without a match have NULL there, which no key equals, so a
    pull that is driven from the right finds all; a match that comes or goes moves rows in and out of keys."""
    flow = Flow(domains=2)
    stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
    flow.reader("by_user", flow.left_join(stories, votes, (0, 1), at=1), 2, at=1)
    flow.reader("by_voted_story", flow.left_join(stories, votes, (0, 1), at=1), 3, at=1)
    flow.reader("by_author_and_voted_story", flow.left_join(stories, votes, (0, 1), at=1), 1, 3, at=1)
    flow.start()
    flow.insert("votes", (4, 7), (4, None))
    assert flow.read("by_user", 4) == []
    assert flow.read("by_voted_story", 7) == []
    flow.insert("stories", (7, 1))
    assert flow.read("by_user", 4) == [(7, 1, 4, 7)]
    assert flow.read("by_voted_story", 7) == [(7, 1, 4, 7)]
    flow.evict(flow.vertex(stories, seen_at=1), 7)
    assert not flow.has("by_user", 4)
    flow.delete("votes", (4, 7))
    assert flow.read("by_user", 4) == []
    assert flow.read("by_author_and_voted_story", 1, 7) == []  # driven from the left, where the story is
    flow.insert("votes", (5, 7))
    assert flow.read("by_user", 5) == [(7, 1, 5, 7)]
    assert flow.read("by_author_and_voted_story", 1, 7) == [(7, 1, 5, 7)]


def test_a_self_join_on_one_column_sees_both_sides_at_once() -> None:
    """Both sides change in the same step: ΔL⋈R' + L⋈ΔR with L as it was before. Counting the pair of new rows twice, or
    not at all, is the glitch that one visit a step excludes."""
    flow = Flow(domains=2)
    votes = flow.table("votes", "user", "story")
    flow.reader("pairs", flow.join(votes, votes, (1, 1), at=1), 1, at=1)
    flow.start()
    assert flow.read("pairs", 7) == []
    flow.insert("votes", (1, 7), (2, 7))
    assert len(flow.read("pairs", 7)) == 4
    flow.insert("votes", (1, 7))
    assert len(flow.read("pairs", 7)) == 9
    assert flow.read("pairs", 8) == []
    flow.update("votes", (2, 7), (2, 8))
    assert len(flow.read("pairs", 7)) == 4
    assert flow.read("pairs", 8) == [(2, 8, 2, 8)]
    flow.evict(flow.vertex(votes, seen_at=1), 8)
    flow.delete("votes", (2, 8))
    assert flow.read("pairs", 8) == []


@pytest.mark.parametrize("evicted", ["stories", "votes", None])
def test_a_story_changes_its_author_under_a_view_keyed_by_author(evicted: str | None) -> None:
    """The join column (id) is not the key (author). Where the join key is a hole on either side the change cannot be
    completed, and the row names by its author the entries that may be wrong: the old author's and the new one's, for
    the retraction is no exception (rule 5)."""
    flow = Flow(domains=2)
    tables = {"stories": flow.table("stories", "id", "author"), "votes": flow.table("votes", "user", "story")}
    flow.reader("by_author", flow.join(tables["stories"], tables["votes"], (0, 1), at=1), 1, at=1)
    flow.start()
    flow.insert("stories", (7, 1), (8, 2))
    flow.insert("votes", (4, 7), (5, 8))
    assert flow.read("by_author", 1) == [(7, 1, 4, 7)]
    assert flow.read("by_author", 2) == [(8, 2, 5, 8)]
    assert flow.read("by_author", 3) == []
    if evicted is not None:
        flow.evict(flow.vertex(tables[evicted], seen_at=1), 7)
        assert not flow.has("by_author", 1)
    flow.update("stories", (7, 1), (7, 2))
    flow.settle()
    assert flow.has("by_author", 2) == (evicted is None)
    assert flow.has("by_author", 3)
    assert flow.read("by_author", 2) == [(7, 2, 4, 7), (8, 2, 5, 8)]
    assert flow.read("by_author", 1) == []


def test_overlapping_compound_keys() -> None:
    """One node is looked up by ``(a)`` and by ``(a, b)``. An update that only one of the indexes holds goes on, and
    reaches the reader that was filled from it (rule 4, *any index*); evicting one is no eviction of the other."""
    flow = Flow(domains=2)
    rows = flow.table("rows", "a", "b", "c")
    joined = flow.left_join(rows, rows, (2, 2), at=1)
    flow.reader("by_a", joined, 0, at=1)
    flow.reader("by_a_b", joined, 0, 1, at=1)
    flow.start()
    flow.insert("rows", (1, 2, 3))
    assert flow.read("by_a_b", 1, 2) == [(1, 2, 3, 1, 2, 3)]
    assert not flow.has("by_a", 1)
    flow.insert("rows", (1, 2, 4))
    assert len(flow.read("by_a_b", 1, 2)) == 2
    assert len(flow.read("by_a", 1)) == 2
    flow.evict(flow.vertex(rows, seen_at=1), 1, 2)
    assert flow.has("by_a", 1)
    assert not flow.has("by_a_b", 1, 2)
    flow.insert("rows", (1, 2, 5), (1, 9, 5))
    assert len(flow.read("by_a", 1)) == 6
    assert len(flow.read("by_a_b", 1, 2)) == 4
    assert len(flow.read("by_a_b", 1, 9)) == 2
    flow.evict(flow.vertex(rows, seen_at=1), 1)
    assert not flow.has("by_a", 1)


def test_an_update_that_no_index_holds_goes_no_further() -> None:
    """Rule 4, last clause: where all indexes of a state have a hole, nothing below can have been computed from it."""
    flow = Flow(domains=3)
    rows = flow.table("rows", "a", "b")
    counts = flow.distinct(flow.filter(rows, call("is_not_null", column(0)), at=1), at=1)
    flow.reader("by_a", counts, 0, at=2)
    flow.reader("by_b", counts, 1, at=2)
    flow.reader("rows_by_a", flow.filter(rows, call("is_not_null", column(0)), at=1), 0, at=2)
    flow.reader("rows_by_b", flow.filter(rows, call("is_not_null", column(0)), at=1), 1, at=2)
    flow.start()
    for view in ("by_a", "by_b", "rows_by_a", "rows_by_b"):
        assert flow.read(view, 1) == []
    flow.insert("rows", (7, 7))
    flow.settle_link(0, 1)
    assert not any(packet.deltas for packet in flow.updates(1, 2, lane=1))
    flow.settle()
    flow.insert("rows", (7, 1))
    flow.settle_link(0, 1)
    assert any(packet.deltas for packet in flow.updates(1, 2, lane=1))
    assert flow.read("by_b", 1) == [(7, 1)]


def test_overlapping_compound_keys_of_an_aggregate() -> None:
    """The same with groups, of which an entry by ``(a)`` holds several and one by ``(a, b)`` one."""
    flow = Flow(domains=2)
    rows = flow.table("rows", "a", "b")
    counts = flow.group(rows, (0, 1), count(), at=1)
    flow.reader("by_a", counts, 0, at=1)
    flow.reader("by_a_b", counts, 0, 1, at=1)
    top = flow.top(rows, (0, 1), 0, 1, at=1)
    flow.reader("top_by_a", top, 0, at=1)
    flow.reader("top_by_a_b", top, 0, 1, at=1)
    flow.start()
    assert flow.read("top_by_a", 1) == flow.read("top_by_a_b", 1, 2) == []
    flow.insert("rows", (1, 2), (1, 3))
    assert flow.read("top_by_a", 1) == [(1, 2), (1, 3)]
    assert flow.read("top_by_a_b", 1, 2) == [(1, 2)]
    assert flow.read("by_a", 1) == [(1, 2, 1), (1, 3, 1)]
    assert flow.read("by_a_b", 1, 3) == [(1, 3, 1)]
    flow.insert("rows", (1, 2), (1, 3))
    assert flow.read("by_a", 1) == [(1, 2, 2), (1, 3, 2)]
    flow.evict(flow.vertex(counts), 1)
    flow.insert("rows", (1, 3))
    assert flow.read("by_a_b", 1, 3) == [(1, 3, 3)]
    assert flow.read("by_a", 1) == [(1, 2, 2), (1, 3, 3)]


def test_two_readers_of_one_node_with_different_keys() -> None:
    """One join, read by story and by author. Each row is held by either index or both, and a hole in one loses nothing
    of the other (rule 4); what a reader's entry needs stays filled as long as it does (rule 2)."""
    flow = Flow(domains=3)
    stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
    joined = flow.join(stories, votes, (0, 1), at=1)
    flow.reader("by_story", joined, 0, at=2)
    flow.reader("by_author", joined, 1, at=2)
    flow.start()
    flow.insert("stories", (7, 1), (8, 1))
    flow.insert("votes", (4, 7), (5, 8))
    assert flow.read("by_author", 1) == [(7, 1, 4, 7), (8, 1, 5, 8)]
    flow.insert("votes", (6, 7))
    assert flow.read("by_story", 7) == [(7, 1, 4, 7), (7, 1, 6, 7)]
    flow.evict("by_author", 1)
    flow.insert("votes", (7, 7), (7, 8))
    assert len(flow.read("by_story", 7)) == 3
    assert len(flow.read("by_author", 1)) == 5
    flow.evict(flow.vertex(joined, seen_at=2), 7)
    assert not flow.has("by_story", 7)
    assert flow.has("by_author", 1)
    flow.evict(flow.vertex(votes, seen_at=1), 8)
    flow.settle()
    assert not flow.has("by_author", 1)
    assert len(flow.read("by_author", 1)) == 5
