"""Everything that goes wrong, at times drawn from the seed: also while something else is being repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING

from domains.errors import HeadraceError
from migrations.recipe import RecipeEntry
from tests.cluster_simulation.ambush import Ambush
from tests.cluster_simulation.disk_faults import DiskFaults
from tests.cluster_simulation.loop import Condition, Process
from tests.cluster_simulation.network import Weather
from tests.cluster_simulation.program import LEDGER_VIEWS

if TYPE_CHECKING:
    from tests.cluster_simulation.cluster import Cluster
    from tests.cluster_simulation.controller import SimulatedController

KINDS = {
    "kill_worker": 6,
    "vanish_worker": 2,
    "stop_worker": 3,
    "kill_controller": 4,
    "stop_controller": 2,
    "cut": 5,
    "part": 4,
    "zookeeper": 3,
    "expire": 3,
    "isolate": 4,
    "weather": 2,
    "memory": 3,
    "join": 2,
    "drain": 2,
    "kill_all": 1,
    "namesake": 2,
    "disk": 2,
    "betrayal": 5,
    "late_packets": 5,
    "slow_links": 4,
    "late_rows": 3,
    "loss_in_change": 2,
    "late_leader": 4,
    "ambush": 12,
    "lose_disk": 4,
    "late_loss": 3,
    "archive_away": 2,
    "failing_calls": 3,
}

FAILING = 0.2
"""Of the clusters, where some call of the stores fails now and then, whatever else goes wrong."""


class Faults(DiskFaults):
    def __init__(
        self, cluster: Cluster, random: Random, calls: Random, count: int, seconds: float, only: Sequence[str] = ()
    ) -> None:
        self.cluster, self.random, self.calls = cluster, random, calls
        self.count, self.seconds = count, seconds
        kinds = list(only or [kind for kind in KINDS if kind != "failing_calls"])
        self._failing = not only and count > 0 and calls.random() < FAILING
        """Beside the others, by chances of their own: seeds of clusters whose disks are whole are what they were."""
        self._kinds = random.sample(kinds, min(len(kinds), random.choice((1, 2, 4, len(kinds)))))
        if not only and random.random() < 0.5 and "ambush" not in self._kinds:
            self._kinds.append("ambush")
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        times = sorted(self.random.random() * self.seconds for _ in range(self.count))
        if self.random.random() < 0.4:  # In a cluster of each other: while the one before is being repaired.
            times = [times[0] + (each - times[0]) * 0.15 for each in times] if times else []
        if self._failing:
            self._later(self._failing_calls())
        for at in times:
            await asyncio.sleep(max(0.0, began + at - loop.time()))
            kind = self.random.choices(self._kinds, [KINDS[kind] for kind in self._kinds])[0]
            self._tasks.append(asyncio.ensure_future(getattr(self, f"_{kind}")()))
        await asyncio.sleep(max(0.0, began + self.seconds - loop.time()))

    def heal(self) -> None:
        """Everything is as it should be again, and whoever is dead is started anew."""
        cluster = self.cluster
        for task in self._tasks:
            task.cancel()
        cluster.network.weather = Weather()
        cluster.network.is_healed = True
        cluster.network.late.clear()
        for worker in cluster.workers.values():
            if worker.is_up:
                worker.dataflow.memory_limit = cluster.memory_limit
        cluster.network.join()
        if not cluster.zookeeper.running:
            cluster.zookeeper.start()
        for process in cluster.living():
            cluster.wake(process)
        for process in list(cluster.authorities):
            cluster.mend(process)
        cluster.ambushes.clear()
        cluster.disks.refused.clear()
        cluster.disks.fuse.left = 0
        if cluster.archive is not None:
            cluster.archive.reachable = True
        self._start_the_dead()

    async def _ambush(self) -> None:
        Ambush(self).lay()

    def _later(self, coroutine: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.ensure_future(coroutine))

    async def _part_pair(self, one: Process, other: Process) -> None:
        self.cluster.network.part(one, other)
        await asyncio.sleep(self._pause())
        self.cluster.network.join()

    async def _revive(self) -> None:
        await asyncio.sleep(self._pause())
        self._start_the_dead()

    def _start_the_dead(self) -> None:
        cluster = self.cluster
        for name, worker in list(cluster.workers.items()):
            if worker.process.is_dead:
                cluster.start_worker(name)
        for name, controller in list(cluster.controllers.items()):
            if controller.process.is_dead:
                cluster.start_controller(name)

    # --- kinds ----------------------------------------------------------------------------------------------------

    def _some_worker(self) -> str | None:
        names = [name for name, worker in self.cluster.workers.items() if not worker.process.is_dead]
        return self.random.choice(names) if names else None

    async def _kill_worker(self) -> None:
        name = self._some_worker()
        if name is not None:
            self.cluster.kill(self.cluster.workers[name].process)
            await self._again(name)

    async def _again(self, name: str) -> None:
        await asyncio.sleep(self._pause())
        if self.cluster.workers[name].process.is_dead:
            self.cluster.start_worker(name)

    async def _vanish_worker(self) -> None:
        name = self._some_worker()
        if name is not None:
            self.cluster.vanish(self.cluster.workers[name].process)
            await self._again(name)

    async def _namesake(self) -> None:
        """A process is started under the name of one that is still there, as when a machine comes back."""
        name = self._some_worker()
        if name is not None:
            self.cluster.start_worker(name)

    async def _kill_all(self) -> None:
        names = [name for name, worker in self.cluster.workers.items() if not worker.process.is_dead]
        for name in names:
            self.cluster.kill(self.cluster.workers[name].process, "all are killed")
        for name in names:
            await self._again(name)

    async def _stop_worker(self) -> None:
        name = self._some_worker()
        if name is not None:
            await self._stop(self.cluster.workers[name].process)

    async def _stop(self, process: Process) -> None:
        if process.condition is Condition.RUNNING:
            self.cluster.stop(process)
            await asyncio.sleep(self._pause())
            self.cluster.wake(process)

    async def _kill_controller(self) -> None:
        controller = self.cluster.leader() or self.random.choice(list(self.cluster.controllers.values()))
        if not controller.process.is_dead:
            self.cluster.kill(controller.process)
            await asyncio.sleep(self._pause())
            if self.cluster.controllers[controller.name].process.is_dead:
                self.cluster.start_controller(controller.name)

    async def _stop_controller(self) -> None:
        controller = self.cluster.leader()
        if controller is not None:
            await self._stop(controller.process)

    async def _cut(self) -> None:
        share = self.random.choice((0.1, 0.5, 1.0))
        for _ in range(self.random.choice((1, 1, 4))):
            cut = self.cluster.network.cut_some(share)
            self.cluster.say(f"{cut} connections are cut")
            await asyncio.sleep(self.random.random() * 0.1)

    async def _part(self) -> None:
        living = self.cluster.living()
        if len(living) < 2:
            return
        one = self.random.choice(living)
        others = self.random.sample(living, self.random.randint(1, len(living)))
        if self.random.random() < 0.3:
            others += [process for process in self.cluster.authorities if process.name.startswith("client")]
        self.cluster.say(f"{one} is parted from {others}")
        for other in others:
            self.cluster.network.part(one, other)
        await asyncio.sleep(self._pause())
        self.cluster.say("all are joined again")
        self.cluster.network.join()

    async def _zookeeper(self) -> None:
        cluster = self.cluster
        if cluster.zookeeper.running:
            cluster.say("ZooKeeper is away")
            cluster.zookeeper.stop()
            await asyncio.sleep(self._pause())
            cluster.say("ZooKeeper is back")
            cluster.zookeeper.start()

    async def _expire(self) -> None:
        process = self.random.choice(self.cluster.living() or [None])  # type: ignore[list-item]
        running = self.cluster.zookeeper.running  # Its time stands still while it is away.
        if running and process is not None and process.condition is Condition.RUNNING:
            self.cluster.say(f"the session of {process} expires")
            process.context.copy().run(self.cluster.authorities[process].expire)

    async def _isolate(self) -> None:
        """A process loses ZooKeeper, and nothing else: a client then knows only what was, a leader commands on."""
        clients = [process for process in self.cluster.authorities if process.name.startswith("client")]
        await self._cut_off(self.random.choice(self.cluster.living() + clients))

    async def _betrayal(self) -> None:
        """A worker that no controller reaches any more, and a client that does not hear that it has a successor."""
        cluster, name = self.cluster, self._some_worker()
        if name is None:
            return
        process = cluster.workers[name].process
        cluster.say(f"{process} is parted from the controllers, and the clients from ZooKeeper")
        for controller in cluster.controllers.values():
            cluster.network.part(process, controller.process)
        clients = [each for each in cluster.authorities if each.name.startswith("client")]
        for each in clients:
            cluster.authorities[each].cut()
        await asyncio.sleep(2.0 + 2 * self._pause())
        for each in clients:
            cluster.mend(each)
        cluster.network.join()

    async def _late_packets(self) -> None:
        """What a worker has sent is still on its way when its domains have gone on elsewhere."""
        cluster = self.cluster
        names = [name for name, worker in cluster.workers.items() if not worker.process.is_dead]
        if len(names) < 2:
            return
        one, *others = self.random.sample(names, len(names))
        cluster.say(f"what {one} sends to other workers is late")
        for other in others:
            cluster.network.part(cluster.workers[one].process, cluster.workers[other].process)
        await asyncio.sleep(0.3)
        controller = cluster.leader()
        if controller is not None:
            controller.process.spawn(self._drained(controller, one))
        await asyncio.sleep(self.random.random())
        cluster.network.join()

    async def _late_leader(self) -> None:
        """What a leader has said arrives when another one leads: it loses ZooKeeper, and its words take their time."""
        leader = self.cluster.leader()
        if leader is None:
            return
        late = self.random.choice((1.0, 2.0, 4.0, 8.0))
        self.cluster.say(f"what {leader.process} says to workers takes {late} s longer")
        for worker in self.cluster.every_worker:
            self.cluster.network.late[leader.process, worker.process] = late
        # It is told to change something meanwhile, perhaps; and it goes on until its session is over.
        await asyncio.sleep(self.random.random() * self.random.choice((0.5, 2.0)))
        await self._cut_off(leader.process)
        self.cluster.network.late.clear()

    async def _cut_off(self, process: Process) -> None:
        self.cluster.say(f"{process} is cut off from ZooKeeper")
        self.cluster.authorities[process].cut()
        await asyncio.sleep(self._pause())
        self.cluster.mend(process)

    async def _slow_links(self) -> None:
        """What workers send one another takes long; what leaders and clients say does not."""
        cluster, late = self.cluster, self.random.choice((0.1, 0.5, 2.0))
        cluster.say(f"whatever goes from worker to worker takes {late} s longer")
        self._slow_down(late)
        await asyncio.sleep(2.0 + self._pause())
        cluster.network.late.clear()
        cluster.say("links are as fast as before")

    async def _late_rows(self) -> None:
        """Workers are lost, one after another, while much is on its way between the others: also of what is built again
        then, and was sent before."""
        cluster, late = self.cluster, self.random.choice((0.1, 0.5, 2.0))
        for _ in range(4):
            self._slow_down(late)
            await asyncio.sleep(0.2 + self.random.random())
            name = self._some_worker()
            if name is not None:
                cluster.kill(cluster.workers[name].process)
                await asyncio.sleep(0.2 * self.random.random())
                self._start_the_dead()
        cluster.network.late.clear()

    async def _loss_in_change(self) -> None:
        """A worker is lost while a change waits for rows that are long on their way, and nobody is asked anything."""
        cluster, late = self.cluster, self.random.choice((0.5, 1.0, 2.0))
        self._slow_down(late)
        for number in range(6):
            controller, name = cluster.leader(), self._some_worker()
            if controller is not None:
                view = f"more{number} AS {LEDGER_VIEWS[self.random.choice(('all_tags', 'total', 'counts'))]}"
                controller.process.spawn(self._changed(controller, f"CREATE EXT VIEW {view}"))
            await asyncio.sleep(late * self.random.random())
            if name is not None:
                cluster.kill(cluster.workers[name].process)
            await asyncio.sleep(late)
            self._start_the_dead()
            await asyncio.sleep(late * self.random.random())
        cluster.network.late.clear()

    async def _changed(self, controller: SimulatedController, sql: str) -> None:
        try:
            await controller.change(RecipeEntry((sql,)), sql)
        except HeadraceError as error:
            self.cluster.say(f"{sql[:30]} … ends: {error}")

    def _slow_down(self, late: float) -> None:
        for one, other in permutations([worker.process for worker in self.cluster.workers.values()], 2):
            self.cluster.network.late[one, other] = late

    async def _weather(self) -> None:
        self.cluster.network.weather = Weather(
            self.random.choice((0.0001, 0.01, 0.05)),
            self.random.choice((0.001, 0.05, 0.3)),
            self.random.choice((0, 0.01)),
        )
        await asyncio.sleep(self._pause())
        self.cluster.network.weather = Weather()

    async def _memory(self) -> None:
        for worker in self.cluster.workers.values():
            if worker.is_up:
                worker.dataflow.memory_limit = self.random.choice((1, 1000, 5000))
        await asyncio.sleep(self._pause())
        for worker in self.cluster.workers.values():
            if worker.is_up:
                worker.dataflow.memory_limit = self.cluster.memory_limit

    async def _join(self) -> None:
        name = f"w{len(self.cluster.workers)}"
        if len(self.cluster.workers) < 6:
            self.cluster.start_worker(name)

    async def _drain(self) -> None:
        controller, name = self.cluster.leader(), self._some_worker()
        if controller is not None and name is not None and len(self.cluster.workers) > 1:
            self.cluster.say(f"{name} is to be drained")
            controller.process.spawn(self._drained(controller, name))

    async def _drained(self, controller: SimulatedController, name: str) -> None:
        try:
            await controller.drain(name)
        except HeadraceError as error:
            self.cluster.say(f"{name} is not drained: {error}")
