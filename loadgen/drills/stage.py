"""The stage of a fault: the cluster, its observers, and the notes of one round."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from controller.cluster.state import ClusterState
from headrace.errors import HeadraceError
from loadgen.drills.analysis import Fault
from loadgen.drills.cluster import DrillCluster, DrillFailed, DrillLoadProcess, missing, placement, uneven
from zookeeper.authority import StateChange
from zookeeper.errors import AuthorityError
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.secret import Secret

# When the cluster noticed: what ZooKeeper announces is noted with its time.


@dataclass(frozen=True, slots=True)
class Sight:
    """The decision and the leader at a time of the loop's clock (the machine's monotonic one)."""

    at: float
    epoch: int
    placement: dict[int, tuple[str, int]]
    """Domain → worker and incarnation."""
    leader: tuple[str, int] | None
    """Name and process number."""


@dataclass
class Observer:
    """Reads ZooKeeper's state at each of its changes, from ``start`` to ``close``."""

    authority: KazooAuthority
    sights: list[Sight] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, zookeeper: str, deployment: str, secret: Secret | None) -> Observer:
        observer = cls(KazooAuthority(zookeeper, deployment, secret=secret))
        await observer.authority.start()
        observer.authority.on_change(observer._heard)
        observer._news.set()
        observer._task = asyncio.create_task(observer._look_on())
        return observer

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.authority.close()

    def latest(self) -> Sight | None:
        return self.sights[-1] if self.sights else None

    def first(self, since: float, wanted: Callable[[Sight], bool]) -> float | None:
        """When something was seen first, after a moment."""
        return next((sight.at for sight in self.sights if sight.at >= since and wanted(sight)), None)

    def _heard(self, change: StateChange) -> None:
        self._news.set()

    async def _look_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            at = asyncio.get_running_loop().time()
            try:
                data, _ = await self.authority.read()
                leader = await self.authority.leader()
                state = None if data is None else ClusterState.decode(data, self.authority.deployment)
            except (AuthorityError, HeadraceError):
                continue  # Away: when it is back, that is announced.
            if state is not None:
                placement = {int(domain): (each.worker, each.incarnation) for domain, each in state.placement.items()}
                led = None if leader is None else (leader.name, leader.pid)
                self.sights.append(Sight(at, state.epoch, placement, led))


# What a drill needs of the machine, and whether it may have it.


class NotPossible(HeadraceError):
    """This machine does not allow the drill. Nothing was started."""

    code = "not_possible"


def need_root(drill: str, what: str) -> None:
    if os.geteuid() != 0:
        raise NotPossible(f'"{drill}" is not possible here, because {what} takes root', hint="run it as root")


def need_program(drill: str, name: str) -> None:
    if shutil.which(name) is None:
        raise NotPossible(f'"{drill}" is not possible here, because there is no program "{name}"')


def need_module(drill: str, name: str) -> None:
    if find_spec(name) is None:
        raise NotPossible(f'"{drill}" is not possible here, because there is no module "{name}"')


def run(*command: str) -> None:
    """Run a command of the system. Raises NotPossible with what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossible(f'not possible here, because "{" ".join(command)}" says: {done.stderr.strip()[:300]}')


def run_anyway(*command: str) -> None:
    """Run a command for tidying up, whose failure does not matter."""
    subprocess.run(command, capture_output=True, check=False)


WHOLE_SECONDS = 60.0
"""A cluster that is not whole again by then has failed the drill."""
DETECTION_SECONDS = 15.0
"""A fault that the cluster has not noticed by then is not going to be noticed."""
LOOK_AGAIN = 0.05

LINKS_ONLY = frozenset({-1})
"""No shard is lost, only packets between two: pages that need all shards are touched, others are not."""


@dataclass
class DrillStage:
    cluster: DrillCluster
    observer: Observer
    random: Random
    directory: Path
    """A fault's files on disk."""
    tell: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """A drill's own figures for its result."""
    broken: list[str] = field(default_factory=list)
    """Violations, in words; each makes the drill fail."""
    means: dict[str, Any] = field(default_factory=dict)
    """Preparations from before the cluster's start: proxies, namespaces, a small disk."""
    load: DrillLoadProcess | None = None
    """The load process; None only in tests without a cluster."""

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(range(self.cluster.shape.shards))

    async def hosted_by(self, worker: str) -> frozenset[int]:
        """The shards of a worker, as the cluster has them now. Raises DrillFailed."""
        return frozenset(domain for domain, name in (await self.placement()).items() if name == worker)

    async def placement(self) -> dict[int, str]:
        deadline = self.now + WHOLE_SECONDS
        while self.now < deadline:
            status = await self.cluster.status()  # None where it came too late: the machine may be busy.
            if status is not None:
                return placement(status)
            await asyncio.sleep(LOOK_AGAIN)
        raise DrillFailed("the cluster does not say where its domains are")

    async def a_worker(self) -> str:
        """One at random that hosts something."""
        return self.random.choice(sorted(set((await self.placement()).values())))

    async def leader(self) -> tuple[str, int]:
        """Name and process number. Raises DrillFailed."""
        deadline = self.now + WHOLE_SECONDS
        while self.now < deadline:
            sight = self.observer.latest()
            if sight is not None and sight.leader is not None:
                return sight.leader
            await asyncio.sleep(LOOK_AGAIN)
        raise DrillFailed("nobody leads")

    def begin(self, lost: Collection[int]) -> float:
        """Note that the fault is done now; the moment."""
        at = self.now
        self.faults.append(Fault(at, frozenset(lost)))
        return at

    def amend(self, **moments: float | None) -> None:
        """Set moments of the fault that was begun last, those that are known."""
        known: dict[str, Any] = {name: at for name, at in moments.items() if at is not None}
        self.faults[-1] = replace(self.faults[-1], **known)

    @property
    def epoch(self) -> int:
        """The last epoch seen of the cluster's state in ZooKeeper; 0 before."""
        sight = self.observer.latest()
        return 0 if sight is None else sight.epoch

    async def until_noticed(self, epoch: int) -> None:
        """Until the cluster has decided something since the epoch, which is when it has detected the fault."""
        self.amend(detected=await self.until_seen(lambda sight: sight.epoch > epoch, DETECTION_SECONDS))

    async def until_seen(self, wanted: Callable[[Sight], bool], within: float) -> float | None:
        """When ZooKeeper first said so since the fault began; None if it did not in so many seconds."""
        since = self.faults[-1].at
        deadline = self.now + within
        while (at := self.observer.first(since, wanted)) is None and self.now < deadline:
            await asyncio.sleep(LOOK_AGAIN)
        return at

    async def until_whole(self) -> float:
        """When the cluster first said again that all is there. Raises DrillFailed after ``WHOLE_SECONDS``."""
        return await self._until(lambda status: missing(status, self.cluster.shape))

    async def until_settled(self) -> float:
        """When the cluster was also evenly loaded. Raises DrillFailed after ``WHOLE_SECONDS``."""
        return await self._until(lambda status: missing(status, self.cluster.shape) or uneven(status))

    async def _until(self, lacks: Callable[[dict[str, Any]], list[str]]) -> float:
        deadline = self.now + WHOLE_SECONDS
        while True:
            at = self.now
            status = await self.cluster.status()
            lacking = ["no answer"] if status is None else lacks(status)
            lacking += [f"{name} does not run" for name in self.cluster.away()]
            if not lacking:
                return at
            if self.now > deadline:
                raise DrillFailed(f"the cluster is not whole {WHOLE_SECONDS:g} s later: {', '.join(lacking)}")
            await asyncio.sleep(LOOK_AGAIN)
