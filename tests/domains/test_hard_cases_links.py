"""The hard cases of the eight rules of ``domains/`` for links: pieces, races, detours and restarts, one test each.

Packets are delivered one at a time; the invariants run after every step, and ``settle`` compares both ends of each
link.
"""

from __future__ import annotations

import random

import pytest

from domains.plan.commands import RemoveNodes
from domains.plan.graph import NodeIndex
from domains.plan.packets import Filled, link_between
from tests.domains.graphs import Flow, aggregate, count


def sharded_counts() -> tuple[Flow, NodeIndex]:
    """Votes by user in two shards (domains 0 and 1), counted there by user and story, and summed by story in two others
    (domains 2 and 3)."""
    flow = Flow(domains=2, shards=2)
    votes = flow.table("votes", "user", "story", by=0)
    counts = flow.group(votes, (0, 1), count())
    flow.reader("totals", flow.group(counts, (1,), aggregate("sum", 2), at=1), 0, at=1)
    flow.start()
    flow.settle()
    return flow, counts


EVEN, ODD = 0, 1
"""The shards of the votes, by whose users they hold."""
TOTAL = 3
"""The shard that has the total of story 7."""


def test_a_piece_whose_shard_evicts_meanwhile_is_discarded() -> None:
    """A key awaits two shards; one has answered, then evicts and drops an update; the other answers. Were the first
    piece kept, the entry would fill without that update. The piece is discarded, and that shard asked again."""
    flow, counts = sharded_counts()
    flow.insert("votes", (2, 7), (3, 7))
    flow.ask("totals", 7)
    flow.deliver_upquery(TOTAL, EVEN)
    flow.settle_link(EVEN, TOTAL)
    flow.evict(flow.vertex(counts), 7, at=EVEN)
    flow.insert("votes", (4, 7))
    flow.settle_link(EVEN, TOTAL)
    flow.deliver_upquery(TOTAL, ODD)
    flow.settle_link(ODD, TOTAL)
    assert not flow.has("totals", 7)
    assert flow.read("totals", 7) == [(7, 3)]


def test_updates_meanwhile_go_into_the_piece_of_a_shard_that_has_answered_and_only_there() -> None:
    """One shard has answered: what it sends is folded into its piece. The other has not: its piece will hold what it
    sends, so that is dropped, or it would count twice."""
    flow = Flow(domains=2, shards=2)
    flow.reader("totals", flow.group(flow.table("votes", "user", "story", by=0), (1,), count(), at=1), 0, at=1)
    flow.start()
    flow.insert("votes", (2, 7), (3, 7))
    flow.settle()
    flow.ask("totals", 7)
    flow.deliver_upquery(TOTAL, EVEN)
    flow.settle_link(EVEN, TOTAL)
    flow.insert("votes", (4, 7), (5, 7))
    flow.delete("votes", (2, 7))
    flow.settle_link(EVEN, TOTAL)
    flow.settle_link(ODD, TOTAL)
    assert not flow.has("totals", 7)
    assert flow.read("totals", 7) == [(7, 3)]


def test_one_upquery_a_hole_however_many_wait() -> None:
    """Three reads wait for one hole: one upquery, one fill, three answers. (A second fill would be ignored.)"""
    flow, _ = sharded_counts()
    flow.insert("votes", (2, 7))
    for _ in range(3):
        flow.ask("totals", 7)
    assert flow.under_way() == 2  # an upquery to each shard; the write met a hole
    assert len(flow.simulation.domains[TOTAL].parked) == 3
    assert flow.read("totals", 7) == [(7, 1)]


@pytest.mark.parametrize("answered", [False, True])
def test_a_shard_restarts_with_a_fill_under_way(answered: bool) -> None:
    """The fill is lost with the link, or its piece is there and its sender has forgotten that it must keep it fresh.
    PeerReset voids what came from that shard, and what awaits it is asked for again."""
    flow, _ = sharded_counts()
    flow.insert("votes", (2, 7), (3, 7), (2, 8))
    assert flow.read("totals", 8) == [(8, 1)]
    flow.ask("totals", 7)
    flow.deliver_upquery(TOTAL, EVEN)
    if answered:
        flow.settle_link(EVEN, TOTAL)
    flow.restart(EVEN)
    flow.settle()
    assert not flow.has("totals", 8)
    flow.insert("votes", (4, 7))
    assert flow.read("totals", 7) == [(7, 3)]
    assert flow.read("totals", 8) == [(8, 1)]


def test_a_link_may_be_reset_before_its_first_packet() -> None:
    flow = Flow(domains=2)
    flow.reader("votes", flow.table("votes", "user", "story"), 1, at=1)
    flow.start()
    flow.restart(0)
    flow.insert("votes", (1, 7))
    assert flow.read("votes", 7) == [(1, 7)]


def test_an_eviction_races_a_fill() -> None:
    """The fill is on its way when its sender evicts what it was made from, and drops an update. Both take the same
    link in order: the entry is filled, then evicted, and the reader does not stay with the old count (rule 2 over
    links)."""
    flow = Flow(domains=3)
    votes = flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count(), at=1)
    flow.reader("counts", counts, 0, at=2)
    flow.start()
    flow.insert("votes", (1, 7))
    flow.settle()
    flow.ask("counts", 7)
    flow.deliver_upquery(2, 1, lane=1)
    flow.deliver_upquery(1, 0)
    flow.settle_link(0, 1)
    flow.evict(flow.vertex(counts), 7)
    flow.insert("votes", (2, 7))
    flow.settle()
    assert not flow.has("counts", 7)
    assert flow.read("counts", 7) == [(7, 2)]


def test_a_union_has_one_side_when_the_key_is_evicted_on_it() -> None:
    """A union above which nothing is kept is pulled from two domains. One side has come when it is evicted again, the
    other is still on its way: there is no buffer to go stale, the read is tried again from the start."""
    flow = Flow(domains=3)
    votes = flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count(), at=1)
    both = flow.union(flow.project(votes, 1, 0), counts, at=2)
    flow.reader("both", both, 0, at=2)
    flow.start()
    flow.insert("votes", (1, 7))
    flow.settle()
    flow.ask("both", 7)
    flow.deliver_upquery(2, 0)
    flow.settle_link(0, 2)  # the union's one side is filled
    near = next(
        v for v in flow.simulation.domains[2].vertices.values() if v.indexes and any(map(len, v.indexes.values()))
    )
    flow.evict(near, 7)
    flow.insert("votes", (2, 7))
    assert flow.read("both", 7) == [(7, 1), (7, 2), (7, 2)]
    flow.ask("both", 8)
    flow.deliver_upquery(2, 1, lane=1)
    flow.deliver_upquery(1, 0)
    flow.settle_link(0, 1)
    flow.evict(flow.vertex(counts), 8)
    flow.insert("votes", (8, 8))
    assert flow.read("both", 8) == [(8, 1), (8, 8)]


def test_unions_of_unions() -> None:
    """Eight paths lead from the table to one reader, over three domains. Each update comes eight times and each pull
    too, and a key is whole only when all eight are there."""
    flow = Flow(domains=4)
    one = flow.table("votes", "user", "story")
    for at in (1, 2, 3):
        one = flow.union(one, one, at=at)
    flow.reader("eight", one, 1, at=3)
    flow.start()
    flow.insert("votes", (1, 7))
    assert flow.read("eight", 7) == [(1, 7)] * 8
    flow.insert("votes", (2, 7))
    flow.ask("eight", 8)
    flow.insert("votes", (2, 8))
    assert len(flow.read("eight", 7)) == 16
    assert len(flow.read("eight", 8)) == 8
    flow.evict_memory(2)
    flow.delete("votes", (1, 7))
    assert flow.read("eight", 7) == [(2, 7)] * 8


def test_a_path_from_a_domain_to_another_and_back() -> None:
    """Stories are joined in domain 0 with counts that domain 1 makes from domain 0's own votes. An update reaches the
    join twice, now and later by the detour; the entry reflects what its links have delivered, and no wait goes in a
    circle."""
    flow = Flow(domains=2)
    stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count(), at=1)
    flow.reader("counted", flow.left_join(stories, counts, (0, 0)), 0)
    flow.start()
    flow.insert("stories", (7, 1))
    flow.insert("votes", (1, 7))
    assert flow.read("counted", 7) == [(7, 1, 7, 1)]
    flow.insert("votes", (2, 7))
    flow.evict(flow.vertex(counts), 7)
    flow.update("stories", (7, 1), (7, 2))
    flow.settle()
    assert flow.read("counted", 7) == [(7, 2, 7, 2)]
    flow.ask("counted", 8)
    flow.insert("stories", (8, 1))
    flow.insert("votes", (1, 8))
    assert flow.read("counted", 8) == [(8, 1, 8, 1)]


def test_memory_is_evicted_while_upqueries_are_under_way() -> None:
    """All partial state of every domain goes while a key awaits two links: what had come is asked for again."""
    flow = Flow(domains=3)
    stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count(), at=1)
    flow.reader("counted", flow.join(stories, counts, (0, 0), at=2), 1, at=2)
    flow.start()
    flow.insert("stories", (7, 1), (8, 1))
    flow.insert("votes", (4, 7), (5, 8), (6, 8))
    flow.ask("counted", 1)
    rng = random.Random(1)
    for _ in range(20):
        for domain in range(3):
            flow.evict_memory(domain)
        for _ in range(3):
            flow.simulation.deliver(rng)
    assert flow.read("counted", 1) == [(7, 1, 7, 1), (8, 1, 8, 2)]
    for domain in range(3):
        flow.evict_memory(domain)
    assert flow.accounted() == 0


@pytest.mark.parametrize("first", ["upquery", "fill", "update"])
def test_a_view_is_dropped_while_its_packets_are_on_their_way(first: str) -> None:
    """The upquery finds no egress any more, the fill or the update no ingress: all are let go, and the other view
    that uses the same link goes on."""
    flow = Flow(domains=2)
    votes = flow.table("votes", "user", "story")
    flow.reader("kept", flow.group(votes, (0,), count(), at=1), 0, at=1)
    flow.start()
    flow.insert("votes", (1, 7))
    assert flow.read("kept", 1) == [(1, 1)]
    flow.reader("dropped", flow.group(flow.project(votes, 1), (0,), count(), at=1), 0, at=1)
    flow.start()
    flow.settle()
    request = flow.ask("dropped", 7)
    if first == "fill":
        flow.deliver_upquery(1, 0)
    if first == "update":
        flow.settle()
        flow.insert("votes", (2, 7))
    flow.drop("dropped")
    assert flow.simulation.outcomes[request] == Filled()
    flow.insert("votes", (1, 8))
    flow.settle_link(0, 1)
    assert flow.read("kept", 1) == [(1, 2)]
    assert not any(domain.parked or domain.ingresses.pending for domain in flow.simulation.domains)


def test_deltas_that_come_before_their_ingress_are_kept_for_it() -> None:
    """A migration adds the egress first; its domain is fed what was full already at once, and a scalar aggregate is
    born. The ingress is added by a later command, to a domain that has received those deltas before it."""
    flow = Flow(domains=2)
    votes = flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count())
    flow.reader("all", counts)
    flow.start()
    flow.insert("votes", (1, 7), (2, 7))
    flow.reader("far", counts, at=1)
    flow.reader("how_many", flow.group(votes, (), count(), scalar=True), at=1)
    plan = flow.plan()
    for step in plan.steps:
        while not flow.simulation.command(step.domain, step.command) and step.sliced:
            pass
        flow.settle()
    assert flow.read("far") == [(7, 2)]
    assert flow.read("how_many") == [(2,)]


def test_another_domain_feeds_before_the_first_slice_here() -> None:
    """A join is built over state that was full before and over what another domain feeds, which comes first. If it met
    that state before it was fed, it would meet it again when it is: rows twice."""
    flow = Flow(domains=2)
    votes, stories = flow.table("votes", "user", "story"), flow.table("stories", "story", "author")
    counts = flow.group(votes, (1,), count(), at=1)
    flow.reader("all counts", counts, at=1)
    flow.start()
    flow.insert("votes", (1, 7), (2, 7))
    flow.insert("stories", (7, 1))
    flow.settle()
    flow.reader("joined", flow.join(stories, counts, (0, 0), at=1), at=1)
    for step in flow.plan().steps:
        while not flow.simulation.command(step.domain, step.command) and step.sliced:
            pass
        flow.settle()
    flow.ready = list(flow.running.readers)
    assert flow.read("joined") == [(7, 1, 7, 2)]


def test_what_is_removed_piece_by_piece_does_not_claim_to_reflect_what_nobody_sends_it() -> None:
    """The egress of one view is gone, and the link goes on for another. Whoever has not heard of it yet and reads the
    first with a token must not be given an old answer for a new one: its clock stands still."""
    flow = Flow(domains=2)
    votes = flow.table("votes", "user", "story")
    counts = flow.group(votes, (0,), count())
    flow.reader("going", counts, 0, at=1)
    flow.reader("staying", flow.group(votes, (1,), count(), at=1), 0, at=1)
    flow.start()
    flow.insert("votes", (1, 7))
    assert flow.read("going", 1) == [(1, 1)]
    assert flow.read("staying", 7) == [(7, 1)]
    base, views = flow.simulation.domains
    going, staying = (views.vertices[flow.reader_node(view).index] for view in ("going", "staying"))
    (egress,) = flow.vertex(counts, seen_at=1).node.parents
    flow.simulation.command(base.index, RemoveNodes((egress,)))
    flow.insert("votes", (1, 8))
    flow.settle_link(0, 1)
    assert views.clocks.of(going) == {"votes": 1}
    assert views.clocks.of(staying) == {"votes": 2}
    flow.drop("going")
    assert flow.read("staying", 8) == [(8, 1)]
    assert views.clocks.links.keys() == {link_between(base.index, views.index)}
