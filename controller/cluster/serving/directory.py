"""A serving process's knowledge of the cluster: a copy of the decided state, and the workers' addresses.

It may be outdated without harm: a worker that no longer hosts a domain says so, and then the copy is read again, as at
each change that ZooKeeper announces. Without ZooKeeper, or without a leader, it stays as it is, and reads and writes go
on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controller.cluster.state import Assignment, ClusterState, Replica
from controller.embedded.opening import PLANNING, Opening
from domains.errors import Cancelled, HeadraceError, Unavailable
from domains.plan.graph import DomainIndex
from migrations.flow.plan import State
from migrations.recipe import Recipe
from zookeeper.authority import ClusterAuthority, StateChange
from zookeeper.errors import AuthorityError
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor

RETRY_SECONDS = 0.5
"""Until a failed read is repeated; it is also repeated when ZooKeeper is back."""
CATCH_UP_SECONDS = 0.2
"""Seconds for ZooKeeper to answer, which takes some 2 ms: requests must not wait long for it."""

UNLED_SECONDS = 5.0
"""Seconds without a leader until that is a reason not to be ready. An election takes one to three, and a balancer must
not turn away what reads and writes meanwhile."""

_log = logging.getLogger("headrace.api")

StateListener = Callable[[State, State], None]
"""Called with each new state of the dataflow: (before, after)."""
MovedListener = Callable[[], None]


@dataclass(slots=True)
class Directory:
    authority: ClusterAuthority
    on_state: list[StateListener] = field(default_factory=list)
    on_moved: list[MovedListener] = field(default_factory=list)
    """Called when domains or workers have moved."""
    cluster: ClusterState | None = None
    """The last known decision; None before the cluster's first start."""
    workers: dict[str, WorkerDescriptor] = field(default_factory=dict)
    """The registered ones, and former ones that still have domains: ZooKeeper may have lost sight of a worker that
    everybody else reaches."""
    registered: frozenset[str] = frozenset()
    leader: ControllerDescriptor | None = None
    """The last one that was known."""
    led: bool = False
    """Whether there is a leader, by ZooKeeper's last answer."""
    _unled_since: float | None = None
    """The loop's time since which no leader is known, or ZooKeeper does not say."""
    connected: bool = True
    """Whether ZooKeeper answered last."""
    damage: HeadraceError | None = None
    """Why the decided state cannot be followed; reads and writes go on with the one before."""
    _replica: Replica | None = None
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """Callers that wait for a read which began after their request."""
    _task: asyncio.Task[None] | None = None

    async def start(self, opening: Opening | None = None) -> None:
        """Read the state, and follow it from then on; ``opening`` is told of the progress.

        Raises AuthorityUnavailable, StorageFailure, Cancelled.
        """
        self.authority.on_change(self._announced)
        await self._read(opening)
        if self.damage is not None:
            raise self.damage
        self._task = asyncio.create_task(self._follow())
        self._task.add_done_callback(lambda _: self._not_followed())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def state(self) -> State:
        """The dataflow. Raises Unavailable before the cluster's first start."""
        if self._replica is None:
            raise Unavailable(
                "the cluster has not started yet", hint="it begins when a controller and enough workers are there"
            )
        return self._replica.state

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of ``state``; that of ``cluster`` may be a moment ahead."""
        return None if self._replica is None else self._replica.recipe

    def assignment(self, domain: DomainIndex) -> Assignment | None:
        return None if self.cluster is None else self.cluster.placement.get(domain)

    def owner(self, domain: DomainIndex) -> WorkerDescriptor | None:
        """The worker that hosts a domain; None if it has none, or its address is unknown."""
        given = self.assignment(domain)
        return None if given is None else self.workers.get(given.worker)

    def unled(self) -> str | None:
        """Why nothing can be changed or recovered, if that has been so for long."""
        since = self._unled_since
        if since is None or asyncio.get_running_loop().time() - since < UNLED_SECONDS:
            return None
        why = "no controller leads" if self.connected else "ZooKeeper does not answer"
        return f"{why}: tables and views cannot be changed, and lost shards not taken over"

    # --- following ----------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Returns when the copy is at least as new as the call, or ZooKeeper has not answered. Once this is closed it
        returns at once: a request that is stopped last must not wait for a read that nobody begins."""
        if self._task is None or self._task.done():
            return
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(read)
        self._wanted.set()
        await read

    async def catch_up(self) -> None:
        """``refresh``, unless ZooKeeper does not answer soon."""
        refreshing = asyncio.ensure_future(self.refresh())
        if self.connected:
            await asyncio.wait([refreshing], timeout=CATCH_UP_SECONDS)
        refreshing.cancel()

    def _announced(self, change: StateChange) -> None:
        self._wanted.set()

    async def _follow(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self._read()
                self.connected = True
            except AuthorityError as error:
                if self.connected:
                    self._unled_since = self._unled_since or asyncio.get_running_loop().time()
                    _log.warning("ZooKeeper does not answer; the last known state of the cluster is kept: %s", error)
                self.connected = False
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._wanted.set)
            finally:
                _release(waiting)

    def _not_followed(self) -> None:
        self.connected = False
        waiting, self._waiting = self._waiting, []
        _release(waiting)

    async def _read(self, opening: Opening | None = None) -> None:
        data, _ = await self.authority.read()
        registered = dict(await self.authority.workers())
        leader = await self.authority.leader()
        self.leader, self.led = leader or self.leader, leader is not None
        self._unled_since = None if self.led else self._unled_since or asyncio.get_running_loop().time()
        try:
            decided = None if data is None else ClusterState.decode(data, self.authority.deployment)
            self._move(decided, registered)
            if decided is not None:
                await self._play(decided, opening)
            self.damage = None
        except Cancelled:
            raise
        except HeadraceError as error:
            _log.error("what the cluster has decided cannot be followed: %s", error)
            self.damage = error

    def _move(self, decided: ClusterState | None, registered: Mapping[str, WorkerDescriptor]) -> None:
        """Called before the recipe is planned: reads and writes wait for a new placement during a recovery."""
        before = (self.cluster.placement if self.cluster is not None else None, self.workers)
        self.cluster = decided or self.cluster
        placement = self.cluster.placement if self.cluster is not None else {}
        placed = {given.worker for given in placement.values()}
        self.registered = frozenset(registered)
        self.workers = {**{name: each for name, each in self.workers.items() if name in placed}, **registered}
        if before != (placement, self.workers):
            for tell in self.on_moved:
                tell()

    async def _play(self, decided: ClusterState, opening: Opening | None) -> None:
        if self._replica is None:
            self._replica = Replica(decided.shards)
        before = self._replica.state
        if opening is None:
            after = await self._replica.follow(decided.recipe)
        else:
            opening.begin(PLANNING, len(decided.recipe.entries))
            after = await self._replica.follow(decided.recipe, opening.went)
        if after is not before:
            for tell in self.on_state:
                tell(before, after)


def _release(waiting: list[asyncio.Future[None]]) -> None:
    """Let callers of ``refresh`` go on, those that have not left."""
    for read in waiting:
        if not read.done():
            read.set_result(None)
