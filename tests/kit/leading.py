"""The controller that leads, in the process of the test: the real one, asked through its control interface."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack

import httpx

from api.control import create_control_app
from controller.cluster.leader.candidate import Candidate
from controller.cluster.leader.fleet import Timing, Wire
from controller.cluster.leader.leader import Leader, LeaderSettings
from controller.cluster.serving.directory import Directory
from domains.plan.graph import DomainIndex
from headrace.cluster.api_process import LeaderClient
from zookeeper.authority import ClusterAuthority
from zookeeper.registration import ControllerDescriptor

TIMING = Timing(dead_after=60.0, rebalance_after=30.0)
"""As ever, but that nothing moves in the middle of a test, and that nobody is given up for a busy machine: all
parts are on one loop, and are silent together."""
READY_SECONDS = 60.0


class Leading:
    """A controller that leads from ``begin`` until ``end``."""

    def __init__(self, authority: ClusterAuthority, shards: int, quorum: int) -> None:
        descriptor = ControllerDescriptor("c1", "127.0.0.1", 1, os.getpid())
        settings = LeaderSettings("c1", shards, quorum, TIMING)
        self.candidate = Candidate(authority, Wire("main", "c1", 1, authority.secret), settings, descriptor)
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, around: AsyncExitStack) -> None:
        """Returns when it has taken over."""
        self._task = asyncio.create_task(self.candidate.run(self._stopping))
        around.push_async_callback(self.end)
        async with asyncio.timeout(READY_SECONDS):
            while self.candidate.leader is None or self.candidate.leader.migrator is None:
                await asyncio.sleep(0.002)
            await self.candidate.leader.calm.wait()

    @property
    def leader(self) -> Leader:
        found = self.candidate.leader
        assert found is not None
        return found

    async def move(self, domain: DomainIndex, worker: str) -> None:
        """As it moves one to a worker that has joined."""
        self.leader._moves = {domain: worker}
        self.leader.disturb("a test moves a shard")
        await self.leader.until_calm()
        assert self.leader.ledger.decided.placement[domain].worker == worker

    async def again(self, around: AsyncExitStack) -> None:
        """It resigns, and takes over in another term."""
        await self.end()
        self._stopping = asyncio.Event()
        await self.begin(around)

    async def end(self) -> None:
        self._stopping.set()
        if self._task is not None:
            await self._task

    def door(self, directory: Directory) -> LeaderClient:
        return LeaderClient(directory, httpx.ASGITransport(create_control_app(self.candidate)))
