"""Waiting until everything that was sent on the links has arrived.

A packet on lane L is sent because of a write, or of packets on lanes below L (a path's lane grows with every link that
it crosses). So the barrier goes lane by lane: what was sent on lane 0 so far is waited for; then everything that it
made anybody send on lane 1 has been sent, and is waited for; and so on. At the end every consequence of what had been
fed when the barrier began is where it belongs, while writes went on all the time: a barrier never waits for what was
sent after it looked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from domains.packets import LinkId, lane_of

Place = tuple[int, int]
"""(epoch, sequence): how far a link is. A greater epoch counts for more: what was sent in an older one is void."""

SLOWER = 50
"""How many times ``poll`` the longest pause between two looks is."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far all links of the cluster are, at their senders and at their receivers."""

    sent: dict[LinkId, Place] = field(default_factory=dict)
    received: dict[LinkId, Place] = field(default_factory=dict)

    def lacks(self, goal: Mapping[LinkId, Place]) -> list[LinkId]:
        # Over a link that has sent nothing there is nothing to wait for, and its receiver may not know of it.
        return [link for link, at in goal.items() if at[1] and self.received.get(link, (0, 0)) < at]


Look = Callable[[], Awaitable[Reached]]


async def all_lanes(look: Look, poll: float) -> None:
    """Returns when every consequence of what was done before the call has arrived.

    The look that finds a lane arrived is the goal of the next one, too: a worker tells what it has received and what it
    has sent because of it in one answer.
    """
    reached, lane = await look(), 0
    while any(lane_of(link) >= lane for link in reached.sent):
        goal = {link: place for link, place in reached.sent.items() if lane_of(link) == lane}
        reached = await _arrived(goal, reached, look, poll)
        lane += 1


async def everything_sent(look: Look, poll: float) -> None:
    """Returns when what had been sent before the call has arrived, whatever it made others send."""
    reached = await look()
    await _arrived(reached.sent, reached, look, poll)


async def _arrived(goal: Mapping[LinkId, Place], reached: Reached, look: Look, poll: float) -> Reached:
    """The first look, from ``reached`` on, that finds the goal reached."""
    pause = poll
    while reached.lacks(goal):
        await asyncio.sleep(pause)
        pause = min(2 * pause, SLOWER * poll)
        reached = await look()
    return reached
