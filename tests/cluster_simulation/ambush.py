"""Faults at a certain moment: just when a worker is told a certain thing, which is when something is half done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from domains.plan.commands import (
    Activate,
    AddNodes,
    BuildIndex,
    CreateTable,
    Feed,
    Follow,
    LoadState,
    RemoveNodes,
    StartReplay,
)
from tests.cluster_simulation.loop import Process
from worker.protocol.messages import CloseDomain, OpenDomain, Perform, Positions, Reconfigure, Report
from worker.protocol.operations import FlushDomain, RebuildShard

if TYPE_CHECKING:
    from tests.cluster_simulation.faults import Faults
    from tests.cluster_simulation.worker import SimulatedWorker

AMBUSHED = (
    OpenDomain,
    FlushDomain,
    CloseDomain,
    Reconfigure,
    Report,
    Positions,
    CreateTable,
    AddNodes,
    BuildIndex,
    Feed,
    Activate,
    RemoveNodes,
    LoadState,
    StartReplay,
    Follow,
    RebuildShard,
)
"""What a leader says when it repairs or changes something: the moments at which things are half done."""


class Ambush:
    def __init__(self, faults: Faults) -> None:
        self.faults, self.cluster, self.random = faults, faults.cluster, faults.random

    def lay(self) -> None:
        """Something goes wrong just when a worker is told a certain thing for the so manieth time from now."""
        kind, left = self.random.choice(AMBUSHED), self.random.choice((1, 1, 2, 3, 6))
        acts = (
            "kill_it",
            "kill_leader",
            "kill_both",
            "stop_it",
            "stop_leader",
            "cut",
            "part",
            "kill_other",
            "expire_leader",
            "isolate_leader",
            "isolate_leader",
            "late_leader",
        )
        act = self.random.choice(acts)

        def met(message: object, worker: SimulatedWorker) -> bool:
            nonlocal left
            what = message.command if isinstance(message, Perform) else message
            if not isinstance(what, kind):
                return False
            left -= 1
            if left:
                return False
            self.cluster.say(f"ambush at {worker.process}, {kind.__name__}: {act}")
            loop = asyncio.get_running_loop()
            late = self.random.choice((0.0, 0.0, 0.001, 0.01))
            loop.call_later(late, self._spring, act, worker.process, context=self.cluster.network.context.copy())
            return True

        self.cluster.ambushes.append(met)

    def _spring(self, act: str, process: Process) -> None:
        cluster = self.cluster
        leader = cluster.leader()
        if act in ("kill_it", "kill_both"):
            cluster.kill(process)
            self.faults._later(self.faults._revive())
        if act in ("kill_leader", "kill_both") and leader is not None:
            cluster.kill(leader.process)
            self.faults._later(self.faults._revive())
        if act == "kill_other":
            self.faults._later(self.faults._kill_worker())
        if act == "stop_it":
            self.faults._later(self.faults._stop(process))
        if act == "stop_leader":
            self.faults._later(self.faults._stop_controller())
        if act == "cut":
            cluster.network.cut_some(1.0)
        if act == "part" and leader is not None:
            self.faults._later(self.faults._part_pair(leader.process, process))
        if act == "expire_leader" and leader is not None and cluster.zookeeper.running:
            leader.process.context.copy().run(cluster.authorities[leader.process].expire)

        if act == "late_leader":
            self.faults._later(self.faults._late_leader())
        if act == "isolate_leader" and leader is not None:
            self.faults._later(self.faults._cut_off(leader.process))
