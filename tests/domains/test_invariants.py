"""The invariant checker fails when a rule is broken: each test breaks one by hand and sees it found.

A checker that never fails proves nothing, and every other test of the engine leans on this one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from domains.engine.forward import ForwardPass
from domains.engine.invariants import check_links
from domains.language.types import Row
from domains.operators.operator import Vertex
from domains.operators.state import RowIndex
from domains.operators.topk import TopIndex
from domains.operators.whole_groups import WholeGroups
from domains.plan.graph import DomainIndex
from tests.domains.graphs import Flow, count


class Joined:
    """Stories ⋈ their vote counts by author, over a link, with one filled entry of every kind of state."""

    def __init__(self) -> None:
        flow = self.flow = Flow(domains=2)
        stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
        counts = flow.group(votes, (1,), count(), at=1)
        top = flow.top(votes, (1,), 0, 1, at=1)
        flow.reader("by_author", flow.left_join(stories, counts, (0, 0), at=1), 1, at=1)
        flow.reader("top", top, 1, at=1)
        flow.start()
        flow.insert("stories", (7, 1), (8, 1))
        flow.insert("votes", (4, 7), (5, 7))
        assert flow.read("by_author", 1) == [(7, 1, 7, 2), (8, 1, None, None)]
        assert flow.read("by_author", 2) == []
        assert flow.read("top", 7) == [(5, 7)]
        self.stories, self.votes = flow.vertex(stories, seen_at=1), flow.vertex(votes, seen_at=1)
        self.counts, self.top = flow.vertex(counts), flow.vertex(top)
        reader = flow.reader_node("by_author")
        self.reader: Vertex = flow.simulation.domains[1].vertices[reader.index]
        self.shown = flow.simulation.readers[DomainIndex(1), reader.index]

    def check(self) -> None:
        self.flow.simulation.check()
        check_links(self.flow.simulation.domains)


@pytest.fixture
def joined() -> Joined:
    made = Joined()
    made.check()
    return made


def rows(vertex: Vertex, columns: tuple[int, ...]) -> dict[Row, dict[Row, int]]:
    index = vertex.indexes[columns]
    assert isinstance(index, RowIndex)
    return index.entries


def test_a_corrupted_entry(joined: Joined) -> None:
    """Rule 1, across a link: the ingress holds a row that its source never sent."""
    rows(joined.votes, (1,))[7,][9, 7] = 1
    with pytest.raises(AssertionError, match=r"rule 1|differs from its source"):
        joined.check()


def test_a_row_too_often(joined: Joined) -> None:
    rows(joined.stories, (0,))[7,][7, 1] += 1
    with pytest.raises(AssertionError, match="differs from its source"):
        check_links(joined.flow.simulation.domains)


def test_a_corrupted_group(joined: Joined) -> None:
    index = joined.counts.indexes[0,]
    assert isinstance(index, WholeGroups)
    group = index.entries[7,]
    assert group is not None
    group.row = (7, 3)
    with pytest.raises(AssertionError, match=r"\(rule 1\)"):
        joined.flow.simulation.check()


def test_a_group_that_should_be_gone(joined: Joined) -> None:
    index = joined.counts.indexes[0,]
    assert isinstance(index, WholeGroups)
    index.entries[8,] = index.entries[7,]
    with pytest.raises(AssertionError, match=r"\(rule 1\)"):
        joined.flow.simulation.check()


def test_a_ranked_row_that_should_be_shown(joined: Joined) -> None:
    index = joined.top.indexes[1,]
    assert isinstance(index, TopIndex)
    del index.entries[7,][7,].ranked[0]
    with pytest.raises(AssertionError, match=r"\(rule 1\)"):
        joined.flow.simulation.check()


def test_a_reader_row_that_is_wrong(joined: Joined) -> None:
    joined.shown[1,][7, 1, 7, 5] += 1
    with pytest.raises(AssertionError, match=r"\(rule 1\)"):
        joined.flow.simulation.check()


def test_a_reader_row_that_is_missing(joined: Joined) -> None:
    joined.shown[1,].clear()
    with pytest.raises(AssertionError, match=r"\(rule 1\)"):
        joined.flow.simulation.check()


def test_a_key_that_is_filled_here_and_a_hole_in_the_reader_map(joined: Joined) -> None:
    del joined.shown[2,]
    with pytest.raises(AssertionError, match="a hole in the reader map"):
        joined.flow.simulation.check()


@pytest.mark.parametrize("key", [(7,), (8,)], ids=["with rows", "known empty"])
@pytest.mark.parametrize("side", ["stories", "counts"])
def test_an_ancestor_that_is_evicted_alone(joined: Joined, side: str, key: Row) -> None:
    """Rules 2, 3 and 7: what was consulted stays filled, on both sides of a join, also where it is empty."""
    vertex: Vertex = getattr(joined, side)
    vertex.indexes[0,].evict(key)
    with pytest.raises(AssertionError, match=r"stands on a hole"):
        joined.flow.simulation.check()


def test_an_entry_whose_source_has_lost_it(joined: Joined) -> None:
    """Rule 2 over a link: the source's entry is evicted, and the link does not say so."""
    flow = Flow(domains=2)
    counts = flow.group(flow.table("votes", "user", "story"), (1,), count())
    flow.reader("counts", counts, 0, at=1)
    flow.start()
    flow.insert("votes", (1, 7))
    flow.read("counts", 7)
    flow.vertex(counts).indexes[0,].evict((7,))
    with pytest.raises(AssertionError, match="lost something"):
        check_links(flow.simulation.domains)


def test_an_update_that_is_dropped(joined: Joined) -> None:
    """A packet's rows are lost on the link (its number is kept, or the link itself would refuse the next)."""
    flow = joined.flow
    flow.insert("votes", (6, 7))
    queue = next(queue for queue in flow.simulation.links.values() if queue)
    packet = queue.popleft()
    object.__setattr__(packet, "deltas", ())
    queue.append(packet)
    with pytest.raises(AssertionError, match="differs from its source"):
        flow.settle()


def test_a_lost_packet_is_refused_by_its_link(joined: Joined) -> None:
    flow = joined.flow
    flow.insert("votes", (6, 7))
    next(queue for queue in flow.simulation.links.values() if queue).popleft()
    flow.insert("votes", (6, 7))
    with pytest.raises(AssertionError, match="follows"):
        flow.settle()


def test_an_update_that_a_vertex_drops(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 4, broken: the row meets a filled entry and does not go on."""
    monkeypatch.setattr(joined.counts.operator, "forward", lambda inputs, act: [])
    joined.flow.insert("votes", (6, 7))
    with pytest.raises(AssertionError, match=r"\(rule 1\)"):
        joined.flow.settle()


def test_an_eviction_that_nobody_below_hears(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2, broken in the act itself."""
    drop: Callable[..., object] = ForwardPass._drop

    def silent(self: ForwardPass, *place: object) -> list[object]:
        drop(self, *place)
        return []

    monkeypatch.setattr(ForwardPass, "_drop", silent)
    with pytest.raises(AssertionError, match="stands on a hole"):
        joined.flow.evict(joined.counts, 7)


def test_a_pending_hole_that_is_filled(joined: Joined) -> None:
    joined.flow.ask("by_author", 3)
    (vertex, columns, key), *_ = joined.flow.simulation.domains[1].ingresses.pending
    vertex.indexes[columns].fill(key, [])
    with pytest.raises(AssertionError, match="filled and pending"):
        joined.flow.simulation.check()


def test_bytes_that_drift(joined: Joined) -> None:
    joined.stories.indexes[0,].bytes = -1
    with pytest.raises(AssertionError, match="bytes"):
        joined.flow.simulation.check()


class Full:
    """The same, whole: nobody asks by a key, so there are no holes."""

    def __init__(self) -> None:
        flow = self.flow = Flow()
        votes = flow.table("votes", "user", "story")
        counts, top = flow.group(votes, (1,), count()), flow.top(votes, (1,), 0, 1)
        flow.reader("all", flow.left_join(flow.table("stories", "id", "author"), counts, (0, 0)))
        flow.reader("top", top)
        flow.start()
        flow.insert("stories", (7, 1), (8, 1))
        flow.insert("votes", (4, 7), (5, 7))
        self.counts, self.top = flow.vertex(counts), flow.vertex(top)
        index = flow.reader_node("all").index
        self.shown = flow.simulation.readers[DomainIndex(0), index]
        assert not any(each.partial for vertex in (self.counts, self.top) for each in vertex.indexes.values())

    def check(self) -> None:
        self.flow.simulation.check()


@pytest.fixture
def full() -> Full:
    made = Full()
    made.check()
    return made


def test_a_full_group_that_is_wrong(full: Full) -> None:
    (index,) = full.counts.indexes.values()
    assert isinstance(index, WholeGroups)
    group = index.entries[7,]
    assert group is not None
    group.row = (7, 3)
    with pytest.raises(AssertionError, match=r"\(rule 1\)"):
        full.check()


@pytest.mark.parametrize("state", ["counts", "top"])
def test_a_full_group_that_is_missing(full: Full, state: str) -> None:
    vertex: Vertex = getattr(full, state)
    (index,) = vertex.indexes.values()
    index.evict((7,))
    with pytest.raises(AssertionError, match=r"which is full, .*\(rule 1\)"):
        full.check()


def test_a_full_reader_that_lacks_a_row(full: Full) -> None:
    del full.shown[()][8, 1, None, None]
    with pytest.raises(AssertionError, match=r"which is full, .*\(rule 1\)"):
        full.check()
