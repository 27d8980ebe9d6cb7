"""The rules of hosting one by one: what is held, dropped, refused and answered, and in which order it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from domains.errors import Unavailable
from domains.plan.commands import Activate, AddNodes, CreateTable, Feed, RemoveNodes
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Filled, Insert, LinkUpdate, Publish, Upquery, Written, link_between
from domains.store.memory_store import MemoryStore
from migrations.flow.plan import plan_start
from tests.kit.leading_workers import planned
from worker.dataflow.batch import Batch, Drop, LinkPacket, Look, Reveal
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.hosted_domain import TokenWait
from worker.dataflow.memory_limiter import relieve
from worker.protocol.messages import NotHere, StaleEpoch
from worker.service.status import link_positions, worker_report

PARTIAL = """
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL);
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story
"""
SQL = f"{PARTIAL}; CREATE EXT VIEW Total AS SELECT COUNT(*) AS n FROM votes"
BASE, VIEWS = DomainIndex(0), DomainIndex(1)


def nothing(_: Any) -> None:
    """Nobody waits for the answer."""


class Alone:
    """Two hosts: one has the bases, the other the views."""

    def __init__(self, sql: str = SQL) -> None:
        self.state = planned(sql, shards=1, groups=2)
        self.base, self.views = DomainHost(memory_limit=2**40), DomainHost(memory_limit=2**40)
        self.closed: list[str] = []
        self.sent: list[LinkPacket] = []
        """By the base, and not received yet."""
        self.store = MemoryStore()
        self.base.open(BASE, self.store, incarnation=5, sync=self._sync, close=lambda: self.closed.append("base"))
        self.views.open(VIEWS, MemoryStore(), incarnation=5)
        self.do(self.base, lambda hosted, batch: hosted.perform(BASE, CreateTable(self.table), batch))

    def _sync(self) -> None:
        """The disk."""

    @property
    def table(self) -> Any:
        return self.state.catalog.table("votes")

    def do(self, hosted: DomainHost, act: Callable[[DomainHost, Batch], Any]) -> Batch:
        batch = Batch()
        act(hosted, batch)
        hosted.finish(batch)
        if hosted is self.base:
            self.sent += packets(batch)
        return batch

    def build(self, *kinds: type) -> None:
        """The plan's commands of these kinds."""
        for step in plan_start(self.state.flow).steps:
            if isinstance(step.command, kinds):
                hosted = self.base if step.domain == BASE else self.views
                self.do(hosted, lambda h, b, step=step: h.perform(step.domain, step.command, b))  # type: ignore[misc]

    def link(self, hosted: DomainHost, **later: int) -> Batch:
        incarnations = {BASE: later.get("base", 5), VIEWS: later.get("views", 5)}
        return self.do(hosted, lambda h, batch: h.reconfigure(incarnations, {}, batch))

    def write(self, story: int = 1) -> Batch:
        insert = Insert("votes", ((story, 1),))
        return self.do(self.base, lambda hosted, batch: hosted.write(BASE, insert, nothing, batch))

    def receive(self, packets: list[LinkPacket]) -> Batch:
        return self.do(self.views, lambda hosted, batch: hosted.receive(packets, batch))

    def deliver(self) -> Batch:
        sent, self.sent = self.sent, []
        return self.receive(sent)

    def reader(self, view: str) -> NodeIndex:
        return self.state.flow.readers[view]


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.fixture
def partial() -> Alone:
    """Without full state."""
    return Alone(PARTIAL)


# --- links --------------------------------------------------------------------------------------------------------


def packets(batch: Batch) -> list[LinkPacket]:
    return [packet for _, packet in batch.sends]


def test_what_a_domain_sends_before_it_is_linked_waits(alone: Alone) -> None:
    alone.store.table("votes").stage([((7, 1), 1)])
    alone.store.commit([("votes", 1, [((7, 1), 1)])])
    alone.build(AddNodes, Feed)
    assert alone.sent == []
    sent = packets(alone.link(alone.base))
    assert [packet.sequence for packet in sent if isinstance(packet, LinkUpdate)] == list(range(1, len(sent) + 1))
    rows = [rows for packet in sent if isinstance(packet, LinkUpdate) for _, rows in packet.deltas]
    assert (((7, 1), 1),) in rows
    assert all(receiver == VIEWS for receiver, _ in alone.write().sends)


def test_what_comes_before_a_domain_is_linked_waits_and_keeps_its_order(alone: Alone) -> None:
    alone.build(AddNodes)
    alone.link(alone.base)
    alone.write()
    alone.write(2)
    sent = list(alone.sent)
    assert len(sent) >= 2
    host = alone.views.hosts[VIEWS]
    for packet in sent:
        alone.receive([packet])
    assert host.held == sent
    assert alone.views.counters.held == len(sent)
    alone.link(alone.views)
    assert host.held == []
    assert link_positions(alone.views).received == link_positions(alone.base).sent


def test_packets_of_another_time_are_dropped_or_held(partial: Alone) -> None:
    partial.build(AddNodes)
    partial.link(partial.base)
    partial.link(partial.views)
    host, link = partial.views.hosts[VIEWS], link_between(BASE, VIEWS)
    partial.deliver()
    partial.receive([LinkUpdate(link, 17, 4, {}), Upquery(link_between(VIEWS, BASE), 4, NodeIndex(1), (0,), ())])
    assert (partial.views.counters.stale, partial.views.counters.held) == (2, 0)
    newer: list[LinkPacket] = [LinkUpdate(link, 1, 6, {}), LinkUpdate(link, 2, 6, {})]
    newest = LinkUpdate(link, 1, 7, {})
    partial.receive([*newer, newest])
    assert host.held == [*newer, newest]
    partial.link(partial.views, base=6)
    assert host.held == [newest]
    assert link_positions(partial.views).received[link] == (6, 2)
    partial.link(partial.views, base=8)
    assert host.held == []
    assert partial.views.counters.stale == 3


def test_what_is_given_up_is_forgotten_once_its_next_incarnation_is_known(partial: Alone) -> None:
    """What came late of the one before is dropped all the same, also by a host that is opened after that."""
    partial.build(AddNodes, Activate)
    partial.link(partial.base)
    partial.link(partial.views)
    partial.write()
    late = partial.sent
    assert late
    views = partial.views
    views.known.give_up({BASE: 8})
    partial.receive(late)
    partial.link(views, base=7)
    assert views.known._given_up, "7 is not the one that is waited for"
    partial.link(views, base=8)
    assert not views.known._given_up
    partial.receive(late)
    assert views.counters.stale == 2 * len(late)
    partial.do(views, lambda hosted, batch: hosted.close(VIEWS, batch))
    views.open(VIEWS, MemoryStore(), incarnation=5)
    partial.receive(late)
    assert views.counters.held == len(late), "it is not linked"
    partial.link(views, base=8)
    assert views.counters.stale == 3 * len(late)


def test_what_is_for_a_domain_that_is_not_here_is_dropped(alone: Alone) -> None:
    alone.receive([LinkUpdate(link_between(VIEWS, BASE), 1, 5, {})])
    assert alone.views.counters.unhosted == 1


# --- requests -----------------------------------------------------------------------------------------------------


def test_requests_are_refused_where_the_domain_is_not_or_not_linked(alone: Alone) -> None:
    look = Look(lambda: None)
    acts: list[Callable[[DomainHost, Batch], Any]] = [
        lambda hosted, batch: hosted.write(BASE, Insert("votes", ((1, 1),)), nothing, batch),
        lambda hosted, batch: hosted.read(BASE, NodeIndex(1), ((1,),), look, nothing, batch),
        lambda hosted, batch: hosted.evict(BASE, NodeIndex(1), ((1,),), nothing, batch),
        lambda hosted, batch: hosted.reached(BASE, TokenWait(NodeIndex(1), {}, nothing, lambda: False)),
    ]
    for hosted, why in ((alone.base, "not linked yet"), (alone.views, "not hosted")):
        hosted.epoch = 9
        for act in acts:
            batch = Batch()
            with pytest.raises(NotHere, match=why) as raised:
                act(hosted, batch)
            assert raised.value.epoch == 9
            assert batch == Batch(), "nothing was done"
        assert len(hosted.requests) == 0
    with pytest.raises(NotHere):
        alone.views.perform(BASE, Activate(), Batch())
    alone.views.touch(BASE, NodeIndex(1), ((1,),), Batch())
    assert alone.store.position("votes") == 0


def test_a_domain_that_went_on_elsewhere_is_not_used_any_more(alone: Alone) -> None:
    alone.link(alone.base)
    alone.write()
    alone.link(alone.base, base=6)
    with pytest.raises(NotHere):
        alone.write()
    alone.do(alone.base, lambda hosted, batch: hosted.reconfigure({BASE: 5}, {}, batch))
    with pytest.raises(NotHere):
        alone.write()
    assert not worker_report(alone.base, "w").domains[BASE].linked


def test_who_waits_at_a_domain_that_is_closed_is_answered(partial: Alone) -> None:
    partial.build(AddNodes)
    partial.link(partial.views)
    answers: list[Any] = []
    node = partial.reader("votecount")

    def ask(hosted: DomainHost, batch: Batch) -> None:
        hosted.read(VIEWS, node, ((1,),), Look(lambda: None), answers.append, batch)
        hosted.reached(VIEWS, TokenWait(node, {"votes": 3}, answers.append, lambda: False))

    partial.do(partial.views, ask)
    assert answers == []
    batch = partial.do(partial.views, lambda hosted, batch: hosted.close(VIEWS, batch))
    for answer, outcome in batch.answers:
        answer(outcome)
    assert [type(answer.error) for answer in answers] == [NotHere, NotHere]
    assert {entry.layout.reader.view for entry in batch.visible if isinstance(entry, Drop)} == {"VoteCount"}
    assert not partial.views.hosts
    assert not partial.views.layouts
    partial.do(partial.views, lambda hosted, batch: hosted.close(VIEWS, batch))


def test_a_store_is_closed_after_its_last_sync(alone: Alone) -> None:
    alone.link(alone.base)
    closers: list[Any] = []

    def act(hosted: DomainHost, batch: Batch) -> None:
        hosted.write(BASE, Insert("votes", ((1, 1),)), nothing, batch)
        closers.append(hosted.close(BASE, batch))

    batch = alone.do(alone.base, act)
    assert list(batch.syncs) == [alone._sync]
    assert alone.closed == [], "that is for whoever waits for the batch"
    closers[0]()
    assert alone.closed == ["base"]
    assert not batch.positions, "nobody asks for the positions of what is not here"
    assert any(isinstance(outcome, Written) for _, outcome in batch.answers)


def test_everybody_is_told_when_nothing_goes_on(partial: Alone) -> None:
    partial.build(AddNodes)
    partial.link(partial.views)
    answers: list[Any] = []

    def ask(hosted: DomainHost, batch: Batch) -> None:
        hosted.read(VIEWS, partial.reader("votecount"), ((1,),), Look(lambda: None), answers.append, batch)
        wait = TokenWait(partial.reader("votecount"), {"votes": 3}, answers.append, lambda: False)
        hosted.reached(VIEWS, wait)

    partial.do(partial.views, ask)
    partial.views.fail(Unavailable("over"))
    assert [answer.error.message for answer in answers] == ["over", "over"]


# --- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_reached_in_the_batch_that_publishes_it(alone: Alone) -> None:
    alone.build(AddNodes, Feed, Activate)
    alone.link(alone.base)
    alone.link(alone.views)
    answers: list[Any] = []
    given_up: list[Any] = []
    node = alone.reader("votecount")

    def wait(hosted: DomainHost, _: Batch) -> None:
        hosted.reached(VIEWS, TokenWait(node, {"votes": 2, "other": 99}, answers.append, lambda: False))
        hosted.reached(VIEWS, TokenWait(node, {"votes": 2}, given_up.append, lambda: True))

    alone.do(alone.views, wait)
    assert len(alone.views.waits) == 1
    alone.write()
    assert not alone.deliver().answers
    alone.write()
    batch = alone.deliver()
    assert batch.answers == [(answers.append, Filled())]
    assert len(alone.views.waits) == 0
    assert given_up == []


def test_a_token_is_not_waited_for_at_a_reader_that_has_gone(partial: Alone) -> None:
    partial.build(AddNodes)
    partial.link(partial.views)
    answers: list[Any] = []
    node = partial.reader("votecount")
    wait = TokenWait(node, {"votes": 2}, answers.append, lambda: False)
    assert not partial.do(partial.views, lambda hosted, _: hosted.reached(VIEWS, wait)).answers
    batch = partial.do(partial.views, lambda hosted, batch: hosted.perform(VIEWS, RemoveNodes((node,)), batch))
    assert (answers.append, Filled()) in batch.answers


# --- graphs -------------------------------------------------------------------------------------------------------


def test_a_full_reader_is_concealed_until_it_is_complete(alone: Alone) -> None:
    alone.build(AddNodes)
    total, count = (alone.views.layouts[VIEWS, alone.reader(view)] for view in ("total", "votecount"))
    assert total.concealed
    assert not count.concealed
    alone.link(alone.base)
    alone.link(alone.views)
    answers: list[Any] = []
    look = Look(lambda: "found")
    node = alone.reader("total")
    alone.do(alone.views, lambda hosted, batch: hosted.read(VIEWS, node, ((),), look, answers.append, batch))
    alone.build(Feed)
    alone.deliver()
    batch = alone.do(alone.views, lambda hosted, batch: hosted.perform(VIEWS, Activate(), batch))
    assert [type(entry) for entry in batch.visible] == [Reveal, Look], "who waited finds it"
    assert batch.visible == [Reveal(total), look]
    assert batch.answers == [(answers.append, Filled())]


def test_a_reader_that_is_built_again_in_one_batch_begins_empty(alone: Alone) -> None:
    alone.build(AddNodes, Feed, Activate)
    add = next(s.command for s in plan_start(alone.state.flow).steps if s.domain == VIEWS)
    assert isinstance(add, AddNodes)

    def again(hosted: DomainHost, batch: Batch) -> None:
        hosted.perform(VIEWS, RemoveNodes(tuple(node.index for node in add.nodes)), batch)
        hosted.perform(VIEWS, add, batch)
        hosted.perform(VIEWS, Feed(10), batch)

    before = dict(alone.views.layouts)
    batch = alone.do(alone.views, again)
    kinds = [entry[0] if isinstance(entry, tuple) else type(entry) for entry in batch.visible]
    after = alone.views.layouts[VIEWS, alone.reader("total")]
    assert kinds[:2] == [Drop, Drop]
    assert set(kinds[2:]) == {after}
    assert after.reader_id == before[VIEWS, alone.reader("total")].reader_id
    assert after.concealed
    published = batch.visible[2]
    assert isinstance(published, tuple)
    assert isinstance(published[1], Publish)


def test_only_the_present_leader_is_obeyed(alone: Alone) -> None:
    alone.base.fence(7)
    alone.base.fence(7)
    alone.base.check(7)
    for refuse in (alone.base.fence, alone.base.check):
        with pytest.raises(StaleEpoch, match="follows 7") as raised:
            refuse(6)
        assert raised.value.epoch == 7
    alone.base.check(8)
    assert alone.base.epoch == 7


# --- memory -------------------------------------------------------------------------------------------------------


@dataclass
class Weight:
    """Of a ``HostedDomain`` what relief asks of it; ``parts`` can be evicted, one at a time."""

    rest: int
    parts: list[int]
    evictions: int = 0

    @property
    def domain(self) -> Any:
        return SimpleNamespace(counters=self)

    def weigh(self) -> int:
        return self.rest + sum(self.parts)

    def partial_bytes(self) -> int:
        return sum(self.parts)

    def evict(self, _: int) -> None:
        if self.parts:
            self.parts.pop()
            self.evictions += 1


@pytest.mark.parametrize(
    ("limit", "reserve", "left"),
    [
        (10_000, 0, [1000, 300, 210]),
        (1510, 0, [1000, 300, 210]),
        (1509, 0, [1000, 200, 210]),
        (1400, 0, [1000, 200, 110]),
        (0, 0, [1000, 100, 10]),
        (0, 150, [1000, 100, 110]),
        (0, 400, [1000, 300, 210]),
        (1400, 100, [1000, 200, 110]),
    ],
)
def test_who_holds_most_evicts_first_and_who_cannot_is_passed_over(limit: int, reserve: int, left: list[int]) -> None:
    weights = {DomainIndex(0): Weight(1000, []), VIEWS: Weight(100, [100, 100]), DomainIndex(2): Weight(10, [100, 100])}
    relieve(weights, limit, lambda host, excess: host.evict(excess), reserve=reserve)  # type: ignore[arg-type,attr-defined]
    assert [weight.weigh() for weight in weights.values()] == left


def test_the_limit_is_obeyed_at_the_end_of_each_batch(partial: Alone) -> None:
    partial.build(AddNodes)
    partial.link(partial.base)
    partial.link(partial.views)
    for story in range(20):
        partial.write(story)
    partial.deliver()
    read = [((story,),) for story in range(20)]
    node = partial.reader("votecount")
    sends = [
        partial.do(partial.views, lambda h, b, keys=keys: h.read(VIEWS, node, keys, Look(list), nothing, b)).sends  # type: ignore[misc]
        for keys in read
    ]
    for upqueries in sends:
        partial.do(partial.base, lambda h, b, some=upqueries: h.receive([packet for _, packet in some], b))  # type: ignore[misc]
    partial.deliver()
    host = partial.views.hosts[VIEWS]
    held = host.weigh()
    assert held > 0
    partial.views.memory_limit = held // 2
    batch = partial.do(partial.views, lambda hosted, batch: None)
    assert 0 < host.weigh() <= held // 2
    assert any(isinstance(entry, tuple) and entry[1].evicted for entry in batch.visible)
