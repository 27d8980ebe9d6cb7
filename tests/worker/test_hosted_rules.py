"""The rules of hosting one by one: what is held, dropped, refused and answered, and in which order it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from leading import planned

from domains.commands import Activate, AddNodes, CreateTable, Feed, RemoveNodes
from domains.errors import Unavailable
from domains.graph import DomainIndex, NodeIndex
from domains.memory_store import MemoryStore
from domains.packets import Filled, Insert, LinkUpdate, Publish, Upquery, Written, link_between
from migrations.plan import State, plan_start
from worker.batch import Batch, Drop, LinkPacket, Look, Reveal
from worker.hosted import Hosted
from worker.messages import NotHere, StaleEpoch
from worker.reporting import link_positions, worker_report
from worker.token_waits import TokenWait

SQL = """
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL);
CREATE EXT VIEW Total AS SELECT COUNT(*) AS n FROM votes;
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story
"""
BASE, VIEWS = DomainIndex(0), DomainIndex(1)


def nothing(_: Any) -> None:
    """Nobody waits for the answer."""


class Alone:
    """Two hosts: one has the bases, the other the views."""

    def __init__(self) -> None:
        self.state = planned(SQL, shards=1, groups=2)
        self.base, self.views = Hosted(memory_limit=2**40), Hosted(memory_limit=2**40)
        self.closed: list[str] = []
        self.store = MemoryStore()
        self.base.open(BASE, self.store, incarnation=5, sync=self._sync, close=lambda: self.closed.append("base"))
        self.views.open(VIEWS, MemoryStore(), incarnation=5)
        self.do(self.base, lambda hosted, batch: hosted.perform(BASE, CreateTable(self.table), batch))

    def _sync(self) -> None:
        """The disk."""

    @property
    def table(self) -> Any:
        return self.state.catalog.table("votes")

    def do(self, hosted: Hosted, act: Callable[[Hosted, Batch], Any]) -> Batch:
        batch = Batch()
        act(hosted, batch)
        hosted.finish(batch)
        return batch

    def build(self, *kinds: type) -> list[LinkPacket]:
        """The plan's commands of these kinds; what they send."""
        sent: list[LinkPacket] = []
        for step in plan_start(self.state.flow).steps:
            if isinstance(step.command, kinds):
                hosted = self.base if step.domain == BASE else self.views
                batch = self.do(hosted, lambda h, b, step=step: h.perform(step.domain, step.command, b))  # type: ignore[misc]
                sent += [packet for _, packet in batch.sends]
        return sent

    def link(self, hosted: Hosted, **later: int) -> Batch:
        incarnations = {BASE: later.get("base", 5), VIEWS: later.get("views", 5)}
        return self.do(hosted, lambda h, batch: h.reconfigure(incarnations, {}, batch))

    def write(self, story: int = 1) -> Batch:
        insert = Insert("votes", ((story, 1),))
        return self.do(self.base, lambda hosted, batch: hosted.write(BASE, insert, nothing, batch))

    def receive(self, packets: list[LinkPacket]) -> Batch:
        return self.do(self.views, lambda hosted, batch: hosted.receive(packets, batch))

    def reader(self, view: str) -> NodeIndex:
        return self.state.flow.readers[view]


@pytest.fixture
def alone() -> Alone:
    return Alone()


# --- links --------------------------------------------------------------------------------------------------------


def packets(batch: Batch) -> list[LinkPacket]:
    return [packet for _, packet in batch.sends]


def test_what_a_domain_sends_before_it_is_linked_waits(alone: Alone) -> None:
    assert alone.build(AddNodes, Feed) == []
    sent = packets(alone.link(alone.base))
    assert sent, "the scalar aggregate's first row at least"
    assert [packet.sequence for packet in sent if isinstance(packet, LinkUpdate)] == list(range(1, len(sent) + 1))
    assert all(receiver == VIEWS for receiver, _ in alone.write().sends)


def test_what_comes_before_a_domain_is_linked_waits_and_keeps_its_order(alone: Alone) -> None:
    alone.build(AddNodes)
    alone.link(alone.base)
    sent = packets(alone.write()) + packets(alone.write(2))
    assert len(sent) >= 2
    host = alone.views.hosts[VIEWS]
    for packet in sent:
        alone.receive([packet])
    assert host.held == sent
    assert alone.views.counters.held == len(sent)
    alone.link(alone.views)
    assert host.held == []
    assert link_positions(alone.views).received == link_positions(alone.base).sent


def test_packets_of_another_time_are_dropped_or_held(alone: Alone) -> None:
    alone.build(AddNodes)
    alone.link(alone.base)
    alone.link(alone.views)
    host, link = alone.views.hosts[VIEWS], link_between(BASE, VIEWS)
    alone.receive([LinkUpdate(link, 17, 4, {}), Upquery(link_between(VIEWS, BASE), 4, NodeIndex(1), (0,), ())])
    assert (alone.views.counters.stale, alone.views.counters.held) == (2, 0)
    newer: list[LinkPacket] = [LinkUpdate(link, 1, 6, {}), LinkUpdate(link, 2, 6, {})]
    newest = LinkUpdate(link, 1, 7, {})
    alone.receive([*newer, newest])
    assert host.held == [*newer, newest]
    alone.link(alone.views, base=6)
    assert host.held == [newest]
    assert link_positions(alone.views).received[link] == (6, 2)
    alone.link(alone.views, base=8)
    assert host.held == []
    assert alone.views.counters.stale == 3


def test_what_is_for_a_domain_that_is_not_here_is_dropped(alone: Alone) -> None:
    alone.receive([LinkUpdate(link_between(VIEWS, BASE), 1, 5, {})])
    assert alone.views.counters.unhosted == 1


# --- requests -----------------------------------------------------------------------------------------------------


def test_requests_are_refused_where_the_domain_is_not_or_not_linked(alone: Alone) -> None:
    look = Look(lambda: None)
    acts: list[Callable[[Hosted, Batch], Any]] = [
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
            assert not batch, "nothing was done"
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


def test_who_waits_at_a_domain_that_is_closed_is_answered(alone: Alone) -> None:
    alone.build(AddNodes)
    alone.link(alone.views)
    answers: list[Any] = []
    node = alone.reader("votecount")

    def ask(hosted: Hosted, batch: Batch) -> None:
        hosted.read(VIEWS, node, ((1,),), Look(lambda: None), answers.append, batch)
        hosted.reached(VIEWS, TokenWait(node, {"votes": 3}, answers.append, lambda: False))

    alone.do(alone.views, ask)
    assert answers == []
    batch = alone.do(alone.views, lambda hosted, batch: hosted.close(VIEWS, batch))
    for answer, outcome in batch.answers:
        answer(outcome)
    assert [type(answer.error) for answer in answers] == [NotHere, NotHere]
    assert {entry.layout.reader.view for entry in batch.visible if isinstance(entry, Drop)} == {"Total", "VoteCount"}
    assert not alone.views.hosts
    assert not alone.views.layouts
    alone.do(alone.views, lambda hosted, batch: hosted.close(VIEWS, batch))


def test_a_store_is_closed_after_its_last_sync(alone: Alone) -> None:
    alone.link(alone.base)

    def act(hosted: Hosted, batch: Batch) -> None:
        hosted.write(BASE, Insert("votes", ((1, 1),)), nothing, batch)
        hosted.close(BASE, batch)

    batch = alone.do(alone.base, act)
    assert batch.syncs == {alone._sync}
    assert alone.closed == []
    assert len(batch.closings) == 1
    assert not batch.positions, "nobody asks for the positions of what is not here"
    assert any(isinstance(outcome, Written) for _, outcome in batch.answers)


def test_everybody_is_told_when_nothing_goes_on(alone: Alone) -> None:
    alone.build(AddNodes)
    alone.link(alone.views)
    answers: list[Any] = []

    def ask(hosted: Hosted, batch: Batch) -> None:
        hosted.read(VIEWS, alone.reader("votecount"), ((1,),), Look(lambda: None), answers.append, batch)
        wait = TokenWait(alone.reader("votecount"), {"votes": 3}, answers.append, lambda: False)
        hosted.reached(VIEWS, wait)

    alone.do(alone.views, ask)
    alone.views.fail(Unavailable("over"))
    assert [answer.error.message for answer in answers] == ["over", "over"]


# --- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_reached_in_the_batch_that_publishes_it(alone: Alone) -> None:
    alone.build(AddNodes, Feed, Activate)
    alone.link(alone.base)
    alone.link(alone.views)
    answers: list[Any] = []
    given_up: list[Any] = []
    node = alone.reader("votecount")

    def wait(hosted: Hosted, _: Batch) -> None:
        hosted.reached(VIEWS, TokenWait(node, {"votes": 2, "other": 99}, answers.append, lambda: False))
        hosted.reached(VIEWS, TokenWait(node, {"votes": 2}, given_up.append, lambda: True))

    alone.do(alone.views, wait)
    assert len(alone.views.waits) == 1
    assert not alone.receive(packets(alone.write())).answers
    batch = alone.receive(packets(alone.write()))
    assert batch.answers == [(answers.append, Filled())]
    assert len(alone.views.waits) == 0
    assert given_up == []


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
    alone.do(alone.views, lambda hosted, batch: hosted.read(VIEWS, total_node, ((),), look, answers.append, batch)) if (
        total_node := alone.reader("total")
    ) else None
    for packet in alone.build(Feed):
        alone.receive([packet])
    batch = alone.do(alone.views, lambda hosted, batch: hosted.perform(VIEWS, Activate(), batch))
    assert [type(entry) for entry in batch.visible] == [Reveal, Look], "who waited finds it"
    assert batch.visible == [Reveal(total), look]
    assert batch.answers == [(answers.append, Filled())]


def test_a_reader_that_is_built_again_in_one_batch_begins_empty(alone: Alone) -> None:
    alone.build(AddNodes, Feed, Activate)
    add = next(s.command for s in plan_start(alone.state.flow).steps if s.domain == VIEWS)
    assert isinstance(add, AddNodes)

    def again(hosted: Hosted, batch: Batch) -> None:
        hosted.perform(VIEWS, RemoveNodes(tuple(node.index for node in add.nodes)), batch)
        hosted.perform(VIEWS, add, batch)
        hosted.perform(VIEWS, Feed(10), batch)

    before = dict(alone.views.layouts)
    batch = alone.do(alone.views, again)
    kinds = [entry[0] if isinstance(entry, tuple) else type(entry) for entry in batch.visible]
    after = alone.views.layouts[VIEWS, alone.reader("total")]
    assert kinds[:2] == [Drop, Drop]
    assert kinds[2:] == [after]
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


def test_a_domain_that_can_evict_does_so_though_another_holds_more() -> None:
    """All of the base's state is full, and more than the limit by itself."""
    state: State = planned(SQL, shards=1, groups=1)
    hosted = Hosted(memory_limit=2**40)
    for index in (BASE, VIEWS):
        hosted.open(index, MemoryStore(), linked=True)
    both = Batch()
    hosted.perform(BASE, CreateTable(state.catalog.table("votes")), both)
    for step in plan_start(state.flow).steps:
        hosted.perform(step.domain, step.command, both)
    for story in range(50):
        hosted.write(BASE, Insert("votes", ((story, 1),)), nothing, both)
    node = state.flow.readers["votecount"]
    hosted.read(BASE, node, tuple((story,) for story in range(50)), Look(lambda: None), nothing, both)
    hosted.finish(both)
    held = hosted.hosts[BASE].weigh()
    hosted.memory_limit = 1
    evicting = Batch()
    hosted.finish(evicting)
    left = hosted.hosts[BASE].weigh()
    assert 0 < left < held, "the aggregate that is full stays"
    assert any(isinstance(entry, tuple) and entry[1].evicted for entry in evicting.visible)
