"""All processes of a cluster, and what is done to them from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from controller.cluster.state import ClusterState
from domains.plan.graph import DomainIndex
from tests.cluster_simulation.archive import SimulatedArchive
from tests.cluster_simulation.bulk import bulk_settings
from tests.cluster_simulation.controller import SimulatedController
from tests.cluster_simulation.loop import Condition, Process, VirtualLoop
from tests.cluster_simulation.network import Network
from tests.cluster_simulation.rebuilds import Losses
from tests.cluster_simulation.storage import Disks
from tests.cluster_simulation.worker import SimulatedWorker
from zookeeper.errors import AuthorityError
from zookeeper.memory import MemoryAuthority, MemoryZooKeeper
from zookeeper.secret import Secret

NO_LIMIT = 1 << 40


class Cluster:
    """``random`` decides everything that is left to chance, in the order in which it is asked."""

    name = "main"

    def __init__(
        self,
        loop: VirtualLoop,
        random: Random,
        *,
        shards: int,
        quorum: int,
        archive: SimulatedArchive | None = None,
    ) -> None:
        self.loop, self.random = loop, random
        self.shards, self.quorum = shards, quorum
        self.network = Network(loop, random)
        self.zookeeper = MemoryZooKeeper(delay=random.choice((0.002, 0.005, 0.02)))
        self.zookeeper.secret = Secret(None, ("of a deployment that is simulated",))
        self.disks = Disks(random, self.kill)
        self.archive = archive
        self.bulk = bulk_settings(archive)
        self.losses = Losses()
        self.workers: dict[str, SimulatedWorker] = {}
        """By name, the process that was started last."""
        self.every_worker: list[SimulatedWorker] = []
        """The dead ones too."""
        self.controllers: dict[str, SimulatedController] = {}
        self.authorities: dict[Process, MemoryAuthority] = {}
        self.trace: list[tuple[float, str]] = []
        self.memory_limit = NO_LIMIT
        self.check_share = 0.0
        """How many of the flushes are followed by a check of the invariants."""
        self.ambushes: list[Callable[[object, SimulatedWorker], bool]] = []
        """Asked of everything that a leader says to a worker, until one of them answers True and is done."""
        self.directories = ("/data",)
        """Data directories, each on a host of its own."""
        self._data: dict[str, str] = {}
        self._incarnations = 0
        self._directories = 0
        """How many were lost."""

    def say(self, text: str) -> None:
        self.trace.append((self.loop.time() - 1000.0, text))

    def is_check_due(self) -> bool:
        return self.check_share > 0 and self.random.random() < self.check_share

    def meet(self, message: object, worker: SimulatedWorker) -> None:
        """A worker is about to do what a leader says."""
        self.ambushes = [met for met in self.ambushes if not met(message, worker)]

    # --- processes ------------------------------------------------------------------------------------------------

    def authority(self, process: Process) -> MemoryAuthority:
        """A process's authority, whose watches are run by the process."""
        authority = self.zookeeper.authority(self.name)
        fire = authority.session.fire
        authority.session.fire = lambda watches, path: process.context.copy().run(fire, watches, path)  # type: ignore[method-assign]
        if process not in self.authorities:
            process.at_death.append(lambda: self.authorities[process].cut())
        self.authorities[process] = authority
        return authority

    async def joined(self, process: Process, *, create: bool = False) -> MemoryAuthority:
        """A started authority, tried as often as it takes: a process that cannot begin is started again."""
        while True:
            authority = self.authority(process)
            try:
                await authority.start(create=create)
                return authority
            except AuthorityError as error:
                self.say(f"{process} cannot begin: {error}")
                await asyncio.sleep(0.5)

    def start_worker(self, name: str) -> SimulatedWorker:
        """A process under this name; the one before it, if any, is dead or about to be replaced."""
        self._incarnations += 1
        process = Process(self.loop, f"{name}.{self._incarnations}")
        worker = process.context.copy().run(
            SimulatedWorker, self, process, name, self._incarnations, self._data_of(name)
        )
        self.workers[name] = worker
        self.every_worker.append(worker)
        process.at_death.append(lambda: self._crashed(process))
        process.spawn(worker.run())
        self.say(f"{process} starts")
        return worker

    def _data_of(self, name: str) -> str:
        """A worker's data directory, the same at each start."""
        return self._data.setdefault(name, self.random.choice(self.directories))

    def start_controller(self, name: str) -> SimulatedController:
        self._incarnations += 1
        process = Process(self.loop, f"{name}.{self._incarnations}")
        controller = process.context.copy().run(SimulatedController, self, process, name, self._incarnations)
        self.controllers[name] = controller
        process.spawn(controller.run())
        self.say(f"{process} starts")
        return controller

    def _crashed(self, process: Process) -> None:
        lost = self.disks.crash(process)
        if lost:
            self.say(f"{process} had not synced {lost} steps, they are lost")

    def kill(self, process: Process, why: str = "kill -9") -> None:
        if not process.is_dead:
            self.say(f"{process} dies: {why}")
            process.die()

    def vanish(self, process: Process) -> None:
        """Its machine is gone: nobody is told."""
        self.network.vanishing = True
        self.kill(process, "its machine is gone")
        self.network.vanishing = False

    def lose(self, data: str) -> None:
        """A data directory is gone, and who has it open; workers of its names come again with another one, and nobody
        with this one: a directory that was made anew is another."""
        names = [name for name, own in self._data.items() if own == data]
        for worker in self.every_worker:
            if worker.data == data:
                self.kill(worker.process, "its disk is gone")
        for place in [place for place in self.disks.disks if place[0] == data]:
            self.losses.disks.setdefault(place[1], []).append(self.disks.disks.pop(place).store)
        self.say(f"{data} is gone with its disk")
        self._directories += 1
        another = f"{data}.{self._directories}"
        self._data.update((name, another) for name in names)
        self.directories = tuple(another if each == data else each for each in self.directories)

    def stop(self, process: Process) -> None:
        if process.condition is Condition.RUNNING:
            self.say(f"{process} is stopped")
            process.stop()
            self.authorities[process].cut()

    def wake(self, process: Process) -> None:
        if process.condition is Condition.STOPPED:
            self.say(f"{process} wakes")
            process.wake()
            self.mend(process)

    def mend(self, process: Process) -> None:
        if process.condition is Condition.RUNNING and not self.authorities[process].session.reachable:
            process.context.copy().run(self.authorities[process].mend)

    def living(self) -> list[Process]:
        return [each.process for each in (*self.every_worker, *self.controllers.values()) if not each.process.is_dead]

    # --- who leads ------------------------------------------------------------------------------------------------

    def leader(self) -> Any:
        """The leader that is in office, as far as it knows itself; None where there is none."""
        for controller in self.controllers.values():
            if controller.process.condition is Condition.RUNNING and controller.leader is not None:
                return controller
        return None

    def decided(self) -> ClusterState | None:
        """What ZooKeeper has, whoever knows of it."""
        znode = self.zookeeper._znodes.get(f"/headrace/{self.name}/state")
        return None if znode is None else ClusterState.decode(znode.data, self.name)

    def files_left(self) -> str:
        """What jobs have left; nothing where each directory is gone."""
        left = [] if self.archive is None else [*self.archive.staging, *self.archive.runs]
        return f"files of jobs are left: {left}" if left else ""

    async def at(self, process: Process, act: Callable[[], Any], timeout: float) -> Any:
        """What a coroutine of another process answers; TimeoutError where it does not."""
        future = self.loop.create_future()

        async def run() -> None:
            try:
                result = await act()
            except BaseException as error:
                if not future.done():
                    future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                if not future.done():
                    future.set_result(result)

        process.spawn(run())
        async with asyncio.timeout(timeout):
            return await future

    def hosted(self, domain: DomainIndex) -> list[SimulatedWorker]:
        """The living workers that have the domain open."""
        return [
            worker
            for worker in self.every_worker
            if not worker.process.is_dead and worker.is_up and domain in worker.dataflow.hosted.hosts
        ]
