"""The hard cases about groups (rule 8: refill where a retraction takes what is held) and about backfilling full
state."""

from __future__ import annotations

import pytest

from tests.domains.graphs import Flow, aggregate, call, column, constant, count

DOMAINS = pytest.mark.parametrize("at", [0, 1], ids=["in one domain", "over a link"])
FULL = pytest.mark.parametrize("key", [(0,), ()], ids=["partial", "full"])


def key_of(key: tuple[int, ...], value: int) -> tuple[int, ...]:
    return (value,) if key else ()


@DOMAINS
@FULL
def test_a_group_of_top_k_falls_below_k(key: tuple[int, ...], at: int) -> None:
    """A TopK holds some more rows than it shows. When all of those are retracted, it asks its parent for the rest;
    earlier systems answered too few rows there."""
    flow = Flow(domains=2)
    rows = flow.table("rows", "g", "score")
    flow.reader("top", flow.top(rows, (0,), 1, 2, offset=1, at=at), *key, at=at)
    flow.start()
    flow.insert("rows", *((1, score) for score in range(60)))
    assert flow.read("top", *key_of(key, 1)) == [(1, 57), (1, 58)]
    for score in range(59, 3, -1):
        flow.delete("rows", (1, score))
    assert flow.read("top", *key_of(key, 1)) == [(1, 1), (1, 2)]
    flow.insert("rows", (1, 100), (1, None))
    assert flow.read("top", *key_of(key, 1)) == [(1, 2), (1, 3)]
    for score in (100, 3, 2, 1):
        flow.delete("rows", (1, score))
    assert flow.read("top", *key_of(key, 1)) == [(1, None)]


def test_a_row_behind_all_that_top_k_holds_is_not_held() -> None:
    """Between the last held row and the new one there may be others that the parent has and the TopK has let go."""
    flow = Flow()
    rows = flow.table("rows", "g", "score")
    flow.reader("top", flow.top(rows, (0,), 1, 2), 0)
    flow.start()
    flow.insert("rows", *((1, score) for score in range(40)))
    assert flow.read("top", 1) == [(1, 38), (1, 39)]
    for score in range(39, 29, -1):
        flow.delete("rows", (1, score))
    flow.insert("rows", (1, -1))
    for score in range(29, 22, -1):
        flow.delete("rows", (1, score))
    assert flow.read("top", 1) == [(1, 21), (1, 22)]
    for score in range(22, 2, -1):
        flow.delete("rows", (1, score))
        assert flow.read("top", 1) == [(1, score - 2), (1, score - 1)]


@DOMAINS
@FULL
def test_the_extremum_is_retracted(key: tuple[int, ...], at: int) -> None:
    """MIN and MAX are held with how often they stand there. When the last copy goes, the next best is asked of the
    parent (partial), or was kept (full)."""
    flow = Flow(domains=2)
    rows = flow.table("rows", "g", "v")
    flow.reader("extrema", flow.group(rows, (0,), aggregate("min", 1), aggregate("max", 1), at=at), *key, at=at)
    flow.start()
    flow.insert("rows", (1, 3), (1, 9), (1, 9), (1, 5), (1, None))
    assert flow.read("extrema", *key_of(key, 1)) == [(1, 3, 9)]
    flow.update("rows", (1, 5), (1, 6))
    flow.delete("rows", (1, 3))
    assert flow.read("extrema", *key_of(key, 1)) == [(1, 6, 9)]
    flow.delete("rows", (1, 9))
    flow.delete("rows", (1, 6))
    assert flow.read("extrema", *key_of(key, 1)) == [(1, None, None)]
    flow.delete("rows", (1, None))
    assert flow.read("extrema", *key_of(key, 1)) == []


@DOMAINS
def test_a_refill_asks_by_the_key_of_the_entry_not_by_the_whole_group(at: int) -> None:
    """The groups are by (g, h), the view's key is g, so the parent has an index by g and none by (g, h). A refill
    that asked by the group's full key would meet no index there, or a hole for ever."""
    flow = Flow(domains=2)
    rows = flow.table("rows", "g", "h", "v")
    flow.reader("extrema", flow.group(rows, (0, 1), aggregate("max", 2), at=at), 0, at=at)
    flow.reader("top", flow.top(rows, (0, 1), 2, 1, at=at), 0, at=at)
    flow.start()
    flow.insert("rows", *((1, h, v) for h in (1, 2, None) for v in range(25)))
    assert flow.read("extrema", 1) == [(1, None, 24), (1, 1, 24), (1, 2, 24)]
    assert flow.read("top", 1) == [(1, None, 24), (1, 1, 24), (1, 2, 24)]
    for v in range(24, 1, -1):
        flow.delete("rows", (1, 2, v))
        flow.delete("rows", (1, None, v))
    assert flow.read("extrema", 1) == [(1, None, 1), (1, 1, 24), (1, 2, 1)]
    assert flow.read("top", 1) == [(1, None, 1), (1, 1, 24), (1, 2, 1)]


@DOMAINS
@FULL
def test_distinct_knows_when_the_last_copy_goes(key: tuple[int, ...], at: int) -> None:
    flow = Flow(domains=2)
    rows = flow.table("rows", "a", "b")
    flow.reader("distinct_b", flow.distinct(flow.project(rows, 0), at=at), *key, at=at)
    flow.reader("counted", flow.group(rows, (0,), aggregate("count_distinct", 1), at=at), *key, at=at)
    flow.start()
    flow.insert("rows", (1, 2), (1, 2), (1, 3), (1, None))
    assert flow.read("distinct_b", *key_of(key, 1)) == [(1,)]
    assert flow.read("counted", *key_of(key, 1)) == [(1, 2)]
    flow.delete("rows", (1, 3))
    flow.update("rows", (1, None), (1, 2))
    assert flow.read("distinct_b", *key_of(key, 1)) == [(1,)]
    assert flow.read("counted", *key_of(key, 1)) == [(1, 1)]
    flow.delete("rows", (1, 2))
    assert flow.read("distinct_b", *key_of(key, 1)) == []
    assert flow.read("counted", *key_of(key, 1)) == []


def test_computed_columns_are_carried_but_not_asked_by() -> None:
    """A view may be partial by a column that has a provenance although others are computed. A join on a computed column
    cannot be pulled, so what it rests on is full, and says why."""
    flow = Flow(domains=2)
    rows = flow.table("rows", "a", "b")
    doubled = flow.project(rows, 0, call("multiply", column(1), constant(2), type=column(0).type), at=1)
    flow.reader("doubled", doubled, 0, at=1)
    flow.reader("met", flow.join(rows, doubled, (1, 1), at=1), 0, at=1)
    flow.start()
    assert flow.reader_node("doubled").materialization.value == "partial"
    assert '"e1" is computed' in flow.vertex(doubled).node.reason
    flow.insert("rows", (1, 2), (1, 4), (2, 4), (3, None))
    assert flow.read("doubled", 1) == [(1, 4), (1, 8)]
    assert flow.read("met", 1) == [(1, 4, 1, 4)]
    flow.evict("met", 1)
    flow.update("rows", (1, 2), (2, 2))
    assert flow.read("doubled", 1) == [(1, 8)]
    assert flow.read("met", 2) == [(2, 4, 2, 4)]
    assert flow.read("met", 3) == []


@DOMAINS
def test_null_is_a_group_of_a_full_aggregate(at: int) -> None:
    """GROUP BY puts the NULLs together. A full state has that group, though no look-up by NULL could ask for it; what
    is retracted from it is refilled from all of the parent."""
    flow = Flow(domains=2)
    rows = flow.table("rows", "g", "v")
    flow.reader("grouped", flow.group(rows, (0,), count(), aggregate("max", 1), at=at), at=at)
    flow.reader("top", flow.top(rows, (0,), 1, 1, at=at), at=at)
    flow.start()
    flow.insert("rows", *((None, v) for v in range(25)), (1, 7))
    assert flow.read("grouped") == [(None, 25, 24), (1, 1, 7)]
    assert flow.read("top") == [(None, 24), (1, 7)]
    for v in range(24, 0, -1):
        flow.delete("rows", (None, v))
    assert flow.read("grouped") == [(None, 1, 0), (1, 1, 7)]
    assert flow.read("top") == [(None, 0), (1, 7)]
    flow.delete("rows", (None, 0))
    assert flow.read("grouped") == [(1, 1, 7)]


@DOMAINS
def test_a_scalar_aggregate_has_its_row_from_birth(at: int) -> None:
    """COUNT(*) without GROUP BY is 0 over nothing. Its row is born once, whether rows came before the view, during its
    backfill, or not at all; and a join with it meets it once."""
    flow = Flow(domains=3)
    rows, others = flow.table("rows", "a", "v"), flow.table("others", "n", "v")
    empty = flow.group(rows, (), count(), aggregate("max", 1), scalar=True, at=at)
    flow.reader("of_nothing", empty, at=2)
    flow.reader("met", flow.join(others, empty, (0, 0), at=2), at=2)
    flow.start()
    assert flow.read("of_nothing") == [(0, None)]
    flow.insert("others", (0, 5), (2, 6))
    assert flow.read("met") == [(0, 5, 0, None)]
    flow.insert("rows", (1, 3), (1, 4))
    assert flow.read("of_nothing") == [(2, 4)]
    assert flow.read("met") == [(2, 6, 2, 4)]
    flow.reader("of_something", flow.group(others, (), count(), scalar=True, at=at), at=2)
    flow.start(lambda: flow.insert("others", (9, 9)), slice=1)
    assert flow.read("of_something") == [(sum(flow.stored["others"].values()),)]
    flow.delete("rows", (1, 4))
    flow.delete("rows", (1, 3))
    assert flow.read("of_nothing") == [(0, None)]


# --- backfills ---------------------------------------------------------------------------------------------------


@DOMAINS
@pytest.mark.parametrize("primary_key", [(), (0,)], ids=["bag", "primary key"])
def test_writes_during_a_backfill(primary_key: tuple[int, ...], at: int) -> None:
    """Between the slices rows come before and behind the cursor, and go, and one moves across it each time, either
    way. A look-up of what is being built sees only what was fed, so nothing counts twice, and in the end nothing is
    missing."""
    flow = Flow(domains=2)
    stories = flow.table("stories", "id", "author", key=primary_key)
    votes = flow.table("votes", "user", "story")
    flow.insert("stories", *((100 * i, i % 3) for i in range(12)))
    flow.insert("votes", *((i, 100 * (i % 12)) for i in range(24)))
    flow.reader("joined", flow.left_join(stories, votes, (0, 1), at=at), at=at)
    flow.reader("pairs", flow.join(stories, stories, (1, 1), at=at), at=at)
    flow.reader("counts", flow.group(votes, (1,), count(), aggregate("max", 0), at=at), at=at)
    turn = 0

    def between() -> None:
        nonlocal turn
        turn += 1
        flow.insert("stories", (turn, 1), (5000 + turn, 2))
        flow.insert("votes", (-turn, 100), (99, turn))
        least, greatest = min(flow.stored["stories"]), max(flow.stored["stories"])
        flow.update("stories", least, (9000 + turn, least[1]))
        flow.update("stories", greatest, (-turn, 0))
        flow.delete("votes", sorted(flow.stored["votes"])[turn])
        flow.simulation.deliver(flow.rng)

    flow.start(between, slice=3)
    assert turn > 8
    for view in ("joined", "pairs", "counts"):
        assert flow.read(view)
    flow.insert("votes", (5, 9001))
    assert flow.read("joined")


def test_two_backfills_after_one_another() -> None:
    """The second view stands on state that the first backfill made full: it is fed from that whole, not from the bases
    again; what the first one shows does not change meanwhile."""
    flow = Flow(domains=2)
    votes = flow.table("votes", "user", "story")
    flow.insert("votes", *((i, i % 5) for i in range(20)))
    counts = flow.group(votes, (1,), count())
    flow.reader("counts", counts, at=1)
    flow.start(slice=4)
    assert len(flow.read("counts")) == 5
    flow.reader("again", flow.join(votes, counts, (1, 0)), at=1)
    flow.reader("how_often", flow.group(counts, (1,), count(), at=1), at=1)
    flow.start(lambda: flow.insert("votes", (100, 3), (101, 77)), slice=4)
    assert flow.read("counts")[-1][0] == 77
    assert len(flow.read("again")) == sum(flow.stored["votes"].values())
    assert flow.read("how_often")
    flow.delete("votes", (0, 0))
    for view in ("counts", "again", "how_often"):
        flow.read(view)


def test_all_but_the_base_tables_is_lost() -> None:
    """A crash with fills under way: the same graph is built again on the stored rows, full state from them, partial
    state as it is asked for."""
    flow = Flow(domains=3)
    stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count(), at=1)
    flow.reader("counted", flow.left_join(stories, counts, (0, 0), at=2), 1, at=2)
    flow.reader("all_counts", flow.group(votes, (0,), count(), at=2), at=2)
    flow.start()
    flow.insert("stories", (7, 1), (8, 1))
    flow.insert("votes", (4, 7), (5, 7))
    assert flow.read("counted", 1) == [(7, 1, 7, 2), (8, 1, None, None)]
    flow.ask("counted", 2)
    flow.insert("votes", (4, 8))
    flow.crash()
    assert flow.read("all_counts") == [(4, 2), (5, 1)]
    assert not flow.has("counted", 1)
    assert flow.read("counted", 1) == [(7, 1, 7, 2), (8, 1, 8, 1)]
    flow.delete("votes", (4, 7))
    assert flow.read("counted", 1) == [(7, 1, 7, 1), (8, 1, 8, 1)]
