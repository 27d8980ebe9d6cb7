"""When the cluster noticed: what ZooKeeper announces is noted with its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.cluster.state import ClusterState
from domains.errors import HeadraceError
from zookeeper.cluster_authority import Change
from zookeeper.errors import AuthorityError
from zookeeper.kazoo_authority import KazooAuthority


@dataclass(frozen=True, slots=True)
class Sight:
    """What was decided and who led, at a time of the loop's clock (the machine's monotonic one)."""

    at: float
    epoch: int
    placement: dict[int, tuple[str, int]]
    """Domain → worker and incarnation."""
    leader: tuple[str, int] | None
    """Name and process number."""


@dataclass
class Observer:
    """From ``start`` to ``close``; looks again whenever something is announced."""

    authority: KazooAuthority
    sights: list[Sight] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, zookeeper: str, deployment: str) -> Observer:
        observer = cls(KazooAuthority(zookeeper, deployment))
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

    def _heard(self, change: Change) -> None:
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
