"""How migrations are carried out in a cluster: on domains of workers, with the recipe in the cluster's state.

A change is made in a *stable epoch*, from the end of one recovery to the beginning of the next. Each has a number, and
a change never goes on from one to another. So no command of a migration comes during a recovery, and no migration
builds on nodes that a recovery has removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.cluster.leader.fleet import Deposed, Fleet, Timing
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.state import ClusterState, Replica
from controller.migrating.executor import Interrupted
from domains.errors import HeadraceError, Unavailable
from domains.plan.commands import BuildIndex, CheckRows, Command, Feed, Progress
from domains.plan.graph import DomainIndex
from domains.plan.packets import LinkId, lane_of, receiver_of, sender_of
from migrations.compacting import compaction, removals, worth_compacting
from migrations.flow.dataflow import Placement
from migrations.flow.plan import PlanStep, State
from migrations.recipe import Recipe
from worker.protocol.messages import LinkPositions, NotHere, Perform, Positions, RowCounts, RowsRequest

# The barrier: waiting until everything that was sent on the links has arrived.
#
# A packet on lane L is sent because of a write, or of packets on lanes below L (a path's lane grows with every link
# that it crosses). So the barrier goes lane by lane. It waits for the packets that were sent on lane 0 so far. Then all
# packets that these caused on lane 1 have been sent, and it waits for them; and so on. At the end every consequence of
# what had been fed when the barrier began has arrived, and writes went on all the time, since a barrier never waits for
# packets that were sent after it looked.

Place = tuple[int, int]
"""The position of a link: (epoch, sequence). Packets of an older epoch are void."""

SLOWER = 50
"""The longest pause between two looks, in multiples of ``poll``."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The positions of all links of the cluster, at their senders and at their receivers."""

    sent: dict[LinkId, Place] = field(default_factory=dict)
    received: dict[LinkId, Place] = field(default_factory=dict)

    def lacks(self, goal: Mapping[LinkId, Place]) -> list[LinkId]:
        # The receiver may not know a link that has sent nothing.
        return [link for link, at in goal.items() if at[1] and self.received.get(link, (0, 0)) < at]


Look = Callable[[], Awaitable[Reached]]


async def all_lanes(look: Look, poll: float) -> None:
    """Returns when every consequence of what was done before the call has arrived.

    The look that finds a lane's packets arrived also gives the next lane's goal: a worker's answer has what it has
    received together with what it has sent because of that.
    """
    reached, lane = await look(), 0
    while any(lane_of(link) >= lane for link in reached.sent):
        goal = {link: place for link, place in reached.sent.items() if lane_of(link) == lane}
        reached = await _arrived(goal, reached, look, poll)
        lane += 1


async def everything_sent(look: Look, poll: float) -> None:
    """Returns when what was sent before the call has arrived; not what that makes others send."""
    reached = await look()
    await _arrived(reached.sent, reached, look, poll)


async def _arrived(goal: Mapping[LinkId, Place], reached: Reached, look: Look, poll: float) -> Reached:
    """The first look, beginning with ``reached``, that finds the goal reached."""
    pause = poll
    while reached.lacks(goal):
        await asyncio.sleep(pause)
        pause = min(2 * pause, SLOWER * poll)
        reached = await look()
    return reached


class StableEpoch:
    """True while the graph is as decided (*calm*); ``number`` grows whenever that may have ended."""

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
        """The recovery that began at this number has ended well; nothing happens if it was disturbed since."""
        if number == self.number:
            self._is_calm = True
            self._changed.set()

    def end(self) -> None:
        """This leader's term is over: there will be no calm."""
        self.ended = True
        self.disturb()

    def check(self, number: int) -> None:
        """Raises Interrupted if the stable epoch of that number is over."""
        if number != self.number:
            raise Interrupted("a worker was lost, or another recovery began meanwhile")

    async def wait(self) -> int:
        """Wait for calm; answers its number. Raises Deposed if there will be none."""
        while not self._is_calm:
            if self.ended:
                raise Deposed("this controller no longer leads", hint="ask again; another takes over")
            self._changed.clear()
            await self._changed.wait()
        return self.number


async def _nothing() -> None:
    """There is nothing in the way."""


class ClusterExecutor:
    """See :class:`controller.migrating.executor.Executor`. ``disturb`` begins a recovery; ``trouble`` says why none has
    ended."""

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
        """``number`` is for a recovery, which needs no ``ready``: that at which it began."""
        self._fleet = fleet
        self._ledger = ledger
        self._calm = calm
        self._timing = timing
        self._disturb = disturb
        self._trouble = trouble
        self._number = number
        self.make_way: Callable[[], Awaitable[None]] = _nothing
        """Remove what a change is not to meet. Raises Interrupted if a recovery does that."""

    async def ready(self) -> None:
        await self.begin()
        try:
            await self.make_way()
        except Interrupted:
            await self.begin()

    async def begin(self) -> None:
        """Begin at the present stable epoch, or the next one; one that ends while it is confirmed is passed over."""
        deadline, again = asyncio.get_running_loop().time() + self._timing.calm_patience, True
        while again:
            try:
                async with asyncio.timeout_at(deadline):
                    self._number = await self._calm.wait()
            except TimeoutError:
                raise Unavailable(
                    f"the cluster is being brought back: {self._trouble()}",
                    hint="try again when `headrace status` is ok",
                ) from None
            await self._ledger.confirm()
            again = self._number != self._calm.number

    def still_calm(self) -> None:
        """Raises Interrupted if the stable epoch since ``ready`` is over."""
        self._calm.check(self._number)

    @property
    def is_calm(self) -> bool:
        return bool(self._calm)

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
            case BuildIndex(table=table) | CheckRows(table=table):
                return counts.get(table, 0)
            case Feed():
                return sum(counts.values())
        return 0

    async def table_rows(self, domain: DomainIndex) -> Mapping[str, int]:
        """An estimate, for progress and for the choice of a way: empty if the worker does not answer."""
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
        """Take a migration back by a recovery, which removes nodes that the recipe does not have, and waits until none
        of their packets is on its way, so that the next migration may use the same numbers."""
        del steps
        self._disturb("a change is taken back, or carried on")
        try:
            await self._calm.wait()
        except Deposed:
            return  # The next leader's recovery does it.


@dataclass(slots=True)
class ClusterBook:
    """See :class:`controller.migrating.executor.Book`. The replica is the leader's, which recoveries use, too."""

    _ledger: StateLedger
    _replica: Replica
    _executor: ClusterExecutor
    _timing: Timing
    _left: int = 0
    """Removals of the recipe that were needed when it was last made short."""

    @property
    def recipe(self) -> Recipe:
        return self._replica.recipe

    @property
    def state(self) -> State:
        return self._replica.state

    async def enter(self, recipe: Recipe, state: State) -> None:
        def decide(before: ClusterState) -> ClusterState:
            # A recovery that has begun removes the nodes that this entry would put into use.
            self._executor.still_calm()
            return before.with_recipe(recipe)

        await self._ledger.amend(decide, patience=self._timing.commit_patience)
        if self._ledger.decided.recipe == recipe:
            self._replica.adopt(recipe, state)

    async def compact(self, placement: Placement, go_on: Callable[[], bool], *, full: bool = False) -> bool:
        """Decide on a shorter recipe, as a decision of its own. All processes that follow play the short recipe: what
        is planned after it depends on nothing else."""
        before = self.recipe
        if not (full or worth_compacting(before, self._left)):
            return False
        await self._executor.ready()
        found, steps = None, compaction(before, State(shards=self._replica.shards), placement)
        while go_on():
            try:
                next(steps)
            except StopIteration as ended:
                found = ended.value
                break
            await asyncio.sleep(0)
        if found is not None:
            try:
                await self.enter(*found)
            except Unavailable:
                await self._executor.take_back(())  # A recovery finds out whether it was decided.
        self._left = removals(self.recipe)
        return found is not None


async def look(fleet: Fleet, decided: ClusterState) -> Reached:
    """The positions of all links, as told by the workers that host their ends now: a worker that came back may have old
    ends. Raises Interrupted, Deposed."""
    names = fleet.names()
    answers: list[LinkPositions] = await asyncio.gather(*(fleet.ask(name, Positions(decided.epoch)) for name in names))
    reached = Reached()
    for name, each in zip(names, answers, strict=True):
        own = {domain for domain, given in decided.placement.items() if given.worker == name}
        reached.sent.update((link, at) for link, at in each.sent.items() if sender_of(link) in own)
        reached.received.update((link, at) for link, at in each.received.items() if receiver_of(link) in own)
    return reached
