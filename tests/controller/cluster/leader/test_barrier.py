"""The barrier: it waits for what was sent before, lane by lane, and for nothing that was sent later. And how a change
waits for calm."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from controller.cluster.leader.fleet import Fleet, Timing
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.leader.performing import (
    ClusterExecutor,
    Reached,
    StableEpoch,
    all_lanes,
    everything_sent,
    look,
)
from controller.cluster.state import Assignment, ClusterState
from domains.plan.graph import DomainIndex
from domains.plan.packets import LinkId, link_between
from worker.protocol.messages import LinkPositions, Positions


def link(sender: int, receiver: int, lane: int = 0) -> LinkId:
    return link_between(DomainIndex(sender), DomainIndex(receiver), lane)


class Links:
    """Each look shows the next scene; the last stays."""

    def __init__(self, *scenes: tuple[dict[LinkId, tuple[int, int]], dict[LinkId, tuple[int, int]]]) -> None:
        self.scenes = [Reached(*scene) for scene in scenes]
        self.looks = 0

    async def look(self) -> Reached:
        self.looks += 1
        if self.looks > 1000:
            raise TimeoutError
        return self.scenes[min(self.looks, len(self.scenes)) - 1]


A, B, UP = link(0, 1), link(1, 0), link(1, 0, 1)


async def test_nothing_is_waited_for_where_there_is_nothing() -> None:
    links = Links(({}, {}))
    await all_lanes(links.look, 0.0)
    await everything_sent(links.look, 0.0)


async def test_what_was_sent_is_waited_for_and_not_what_comes_after() -> None:
    links = Links(({A: (1, 3)}, {A: (1, 1)}), ({A: (1, 9)}, {A: (1, 2)}), ({A: (1, 20)}, {A: (1, 3)}))
    await everything_sent(links.look, 0.0)
    assert links.looks == 3


async def test_lanes_are_waited_for_in_order() -> None:
    """What arrives on lane 0 has more sent on lane 1, which is waited for too."""
    links = Links(
        ({A: (1, 3), UP: (1, 1)}, {A: (1, 2), UP: (1, 1)}),
        ({A: (1, 3), UP: (1, 2)}, {A: (1, 3), UP: (1, 1)}),
        ({A: (1, 3), UP: (1, 2)}, {A: (1, 3), UP: (1, 1)}),
        ({A: (1, 3), UP: (1, 2)}, {A: (1, 3), UP: (1, 1)}),
        ({A: (1, 3), UP: (1, 2)}, {A: (1, 3), UP: (1, 2)}),
    )
    await all_lanes(links.look, 0.0)
    assert links.looks == 5


async def test_one_look_is_enough_where_all_has_arrived() -> None:
    """Views wait for it, and each look is a question to every worker."""
    links = Links(({A: (1, 3), UP: (1, 2)}, {A: (1, 3), UP: (1, 2)}))
    await all_lanes(links.look, 0.0)
    assert links.looks == 1
    await everything_sent(links.look, 0.0)
    assert links.looks == 2


async def test_what_a_lane_made_others_send_is_waited_for_as_of_the_look_that_found_it_arrived() -> None:
    """What is sent on the next lane after that look has another cause."""
    links = Links(
        ({A: (1, 3), UP: (1, 1)}, {A: (1, 2), UP: (1, 1)}),
        ({A: (1, 3), UP: (1, 2)}, {A: (1, 3), UP: (1, 1)}),
        ({A: (1, 9), UP: (1, 8)}, {A: (1, 9), UP: (1, 2)}),
    )
    await all_lanes(links.look, 0.0)
    assert links.looks == 3


async def test_a_link_that_began_again_is_past_what_it_was() -> None:
    links = Links(({A: (1, 30)}, {A: (2, 0)}))
    await everything_sent(links.look, 0.0)


async def test_an_older_epoch_is_not_enough() -> None:
    links = Links(({A: (2, 1)}, {A: (1, 50)}))
    with pytest.raises(TimeoutError):
        await everything_sent(links.look, 0.0)


async def test_a_link_that_said_nothing_is_not_waited_for() -> None:
    links = Links(({A: (3, 0), B: (1, 1)}, {B: (1, 1)}))
    await all_lanes(links.look, 0.0)


async def test_each_end_of_a_link_is_told_of_by_who_is_to_have_it() -> None:
    """A worker that came back has ends of before, which are neither waited for nor taken for what arrived."""

    class Told:
        def names(self) -> list[str]:
            return ["w1", "w2"]

        async def ask(self, name: str, message: Positions) -> LinkPositions:
            assert message.epoch == 5
            new, old = LinkPositions({A: (4, 7)}, {A: (4, 6), B: (4, 1)}), LinkPositions({A: (2, 90)}, {A: (2, 80)})
            return new if name == "w1" else old

    placement = {DomainIndex(domain): Assignment("w1", 4, "/data") for domain in (0, 1)}
    decided = ClusterState("main", 2, 1, 5, placement=placement)
    assert await look(Told(), decided) == Reached({A: (4, 7)}, {A: (4, 6), B: (4, 1)})  # type: ignore[arg-type]


async def test_calm_that_ends_while_it_is_confirmed_is_waited_for_again() -> None:
    """Domains are moved a second after workers have joined: what was asked for just then was refused."""
    calm = StableEpoch()
    confirmed: list[int] = []

    class Ledger:
        async def confirm(self) -> None:
            confirmed.append(calm.number)
            if len(confirmed) < 3:
                calm.disturb()
                asyncio.get_running_loop().call_soon(calm.begin, calm.number)

    ledger = cast(StateLedger, Ledger())
    executor = ClusterExecutor(cast(Fleet, None), ledger, calm, Timing(), lambda why: None, lambda: "")
    calm.begin(0)
    await executor.ready()
    executor.still_calm()
    assert confirmed == [0, 1, 2]
