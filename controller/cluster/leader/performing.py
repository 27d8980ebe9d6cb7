"""A migration's hands in a cluster: domains at workers, and the cluster's state as its book.

A change is made in a time of *calm*: from the end of one recovery to the beginning of the next. Each such time has a
number; what was begun in one of them is never gone on with in another. So a recovery never meets a migration's next
command, and a migration never builds on nodes that a recovery has removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.cluster.leader.fleet import Fleet, Timing
from controller.cluster.leader.handles import Deposed
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.replica import Replica
from controller.cluster.state import ClusterState
from controller.migrating.executor import Interrupted
from domains.errors import HeadraceError, Unavailable
from domains.plan.commands import BuildIndex, Command, Feed, Progress
from domains.plan.graph import DomainIndex
from domains.plan.packets import LinkId, lane_of, receiver_of, sender_of
from migrations.flow.plan import PlanStep, State
from migrations.recipe import Recipe
from worker.protocol.messages import LinkPositions, NotHere, Perform, Positions, RowCounts, RowsRequest

# Waiting until everything that was sent on the links has arrived.
#
# A packet on lane L is sent because of a write, or of packets on lanes below L (a path's lane grows with every link
# that it crosses). So the barrier goes lane by lane: what was sent on lane 0 so far is waited for; then everything
# that it made anybody send on lane 1 has been sent, and is waited for; and so on. At the end every consequence of
# what had been fed when the barrier began is where it belongs, while writes went on all the time: a barrier never
# waits for what was sent after it looked.

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


class StableEpoch:
    """Whether the graph is as it was decided; ``number`` grows whenever that may have ceased to be so."""

    def __init__(self) -> None:
        self.number = 0
        self.ended = False
        self._is_calm = False
        self._changed = asyncio.Event()

    def __bool__(self) -> bool:
        return self._is_calm

    def disturb(self) -> None:
        self.number += 1
        self._is_calm = False
        self._changed.set()

    def begin(self, number: int) -> None:
        """The recovery that began as this number has found everything right; unless it was disturbed since."""
        if number == self.number:
            self._is_calm = True
            self._changed.set()

    def end(self) -> None:
        """This leader leads no more: there will be no calm."""
        self.ended = True
        self.disturb()

    def check(self, number: int) -> None:
        """Raises Interrupted where this time is over."""
        if number != self.number:
            raise Interrupted("a worker was lost, or another recovery began meanwhile")

    async def wait(self) -> int:
        """The number of the present time of calm, when there is one. Raises Deposed where there will be none."""
        while not self._is_calm:
            if self.ended:
                raise Deposed("this controller no longer leads", hint="ask again; another takes over")
            self._changed.clear()
            await self._changed.wait()
        return self.number


class ClusterExecutor:
    """See :class:`controller.migrating.executor.Executor`. ``disturb`` has a recovery begin; ``trouble`` says why none
    ends."""

    def __init__(
        self,
        fleet: Fleet,
        ledger: StateLedger,
        calm: StableEpoch,
        timing: Timing,
        disturb: Callable[[str], None],
        trouble: Callable[[], str],
        number: int = 0,
    ) -> None:
        """``number`` is that of the time in which a recovery acts by it: it needs no ``ready``."""
        self._fleet = fleet
        self._ledger = ledger
        self._calm = calm
        self._timing = timing
        self._disturb = disturb
        self._trouble = trouble
        self._number = number

    async def ready(self) -> None:
        try:
            async with asyncio.timeout(self._timing.calm_patience):
                self._number = await self._calm.wait()
        except TimeoutError:
            raise Unavailable(
                f"the cluster is being brought back: {self._trouble()}", hint="try again when `headrace status` is ok"
            ) from None
        await self._ledger.confirm()
        self.still_calm()

    def still_calm(self) -> None:
        """Raises Interrupted where the time for which ``ready`` has returned is over."""
        self._calm.check(self._number)

    def check(self) -> None:
        self.still_calm()

    @property
    def epoch(self) -> int:
        return self._ledger.decided.epoch

    def command(self, domain: DomainIndex, command: Command) -> Awaitable[Progress]:
        return asyncio.create_task(self._perform(self._number, domain, command))

    async def _perform(self, number: int, domain: DomainIndex, command: Command) -> Progress:
        self._calm.check(number)
        state = self._ledger.decided
        try:
            progress: Progress = await self._fleet.ask(
                state.placement[domain].worker, Perform(state.epoch, domain, command)
            )
        except NotHere as error:
            raise Interrupted(f"domain {domain} is not where it was decided to be: {error.message}") from error
        self._calm.check(number)
        return progress

    async def rows(self, domain: DomainIndex, command: Command) -> int:
        counts = await self.table_rows(domain)
        match command:
            case BuildIndex(table=table):
                return counts.get(table, 0)
            case Feed():
                return sum(counts.values())
        return 0

    async def table_rows(self, domain: DomainIndex) -> Mapping[str, int]:
        """It is only for showing progress and for choosing a way, which goes by who does not tell, too."""
        try:
            counts: RowCounts = await self._fleet.ask(
                self._ledger.decided.placement[domain].worker, RowsRequest(domain)
            )
        except HeadraceError:
            return {}
        return counts.rows

    async def arrived(self) -> None:
        await all_lanes(self._look, self._timing.poll)

    async def _look(self) -> Reached:
        self.still_calm()
        return await look(self._fleet, self._ledger.decided)

    async def take_back(self, steps: Sequence[PlanStep]) -> None:
        """By a recovery: it removes what the recipe does not have, and waits until nothing of it is on its way, so
        that the next migration may use the same numbers."""
        del steps
        self._disturb("a change is taken back, or carried on")
        try:
            await self._calm.wait()
        except Deposed:
            return  # The next leader's recovery does it.


class ClusterBook:
    """See :class:`controller.migrating.executor.Book`. The replica is the leader's: recoveries follow the recipe by it
    too."""

    def __init__(self, ledger: StateLedger, replica: Replica, executor: ClusterExecutor, timing: Timing) -> None:
        self._ledger = ledger
        self._replica = replica
        self._executor = executor
        self._timing = timing

    @property
    def recipe(self) -> Recipe:
        return self._replica.recipe

    @property
    def state(self) -> State:
        return self._replica.state

    async def enter(self, recipe: Recipe, state: State) -> None:
        def decide(before: ClusterState) -> ClusterState:
            # A recovery that has begun removes the nodes that this would have everybody use.
            self._executor.still_calm()
            return before.with_recipe(recipe)

        await self._ledger.amend(decide, patience=self._timing.commit_patience)
        if self._ledger.decided.recipe == recipe:
            self._replica.adopt(recipe, state)


async def look(fleet: Fleet, decided: ClusterState) -> Reached:
    """How far all links are, by the word of the workers that are to have their ends: one that came back may have
    ends of before. Raises Interrupted, Deposed."""
    names = fleet.names()
    answers: list[LinkPositions] = await asyncio.gather(*(fleet.ask(name, Positions(decided.epoch)) for name in names))
    reached = Reached()
    for name, each in zip(names, answers, strict=True):
        own = {domain for domain, given in decided.placement.items() if given.worker == name}
        reached.sent.update((link, at) for link, at in each.sent.items() if sender_of(link) in own)
        reached.received.update((link, at) for link, at in each.received.items() if receiver_of(link) in own)
    return reached
