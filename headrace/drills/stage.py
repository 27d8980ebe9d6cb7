"""What a fault is done on: the cluster, who watches it, and the notes of one round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from headrace.drills.cluster import Cluster, missing, placement, uneven
from headrace.drills.loading import DrillFailed, LoadProcess
from headrace.drills.observer import Observer, Sight
from loadgen.drills.analysis import Fault

WHOLE_SECONDS = 60.0
"""A cluster that is not whole again by then has failed the drill."""
LOOK_AGAIN = 0.05

LINKS_ONLY = frozenset({-1})
"""Lost are no shards, but what goes from one to another: pages that need all shards are touched, others are not."""


@dataclass
class Stage:
    cluster: Cluster
    observer: Observer
    random: Random
    directory: Path
    """For what a fault needs on disk."""
    tell: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """What a drill has to say besides, into its result."""
    broken: list[str] = field(default_factory=list)
    """What was not as it must be, in words; each makes the drill fail."""
    means: dict[str, Any] = field(default_factory=dict)
    """What was prepared before the cluster was started: proxies, namespaces, a small disk."""
    load: LoadProcess | None = None
    """Under way while a fault is done; None only where nothing is carried out."""

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

    def amend(
        self,
        *,
        detected: float | None = None,
        healed: float | None = None,
        whole: float | None = None,
        settled: float | None = None,
    ) -> None:
        """Say more of the fault that was begun last."""
        last = self.faults[-1]
        self.faults[-1] = replace(
            last,
            detected=last.detected if detected is None else detected,
            healed=last.healed if healed is None else healed,
            whole=last.whole if whole is None else whole,
            settled=last.settled if settled is None else settled,
        )

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
        """When, besides, every worker had its part of the domains. Raises DrillFailed after ``WHOLE_SECONDS``."""
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
