"""Which drills there are: what each does, what it needs, and what is to hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from loadgen.drills import backup, disk_loss, faults, links, migration, transfers
from loadgen.drills.cluster import ClusterShape, DrillCluster
from loadgen.drills.stage import DrillStage

RECOVERY_SECONDS = 1.5
"""Seconds from the detection of a lost worker, or from its kill, until its views answer again."""
ELECTION_SECONDS = 2.5
PAUSE_MS = 100.0
"""Goals for a controller's loss, which clients must not notice."""
DEAD_AFTER = 2.0
"""The default of the setting ``dead_after``."""


@dataclass(frozen=True, slots=True)
class Goals:
    """Limits of one round; None: the drill has none there."""

    outage_s: float | None = None
    detected_s: float | None = None
    slowest_ms: float | None = None
    """Limit for every request."""
    untouched: bool = True
    """Requests that do not need what was lost have no error, and a p99 of at most twice what it was."""


SHAPE = ClusterShape()


@dataclass(frozen=True, slots=True)
class Drill:
    name: str
    says: str
    """One line."""
    act: Callable[[DrillStage], Awaitable[None]]
    goals: Goals = Goals()
    shape: ClusterShape = SHAPE
    prepare: Callable[[DrillStage], Awaitable[None]] | None = None
    """Runs once, when the cluster serves, before the load begins."""
    means: Callable[[DrillCluster], AbstractAsyncContextManager[dict[str, Any]]] = lambda cluster: nullcontext({})
    """Around everything, before the cluster is started: what the fault needs of the machine. Raises NotPossible."""


_GONE = Goals(outage_s=RECOVERY_SECONDS)
_SILENT = Goals(outage_s=DEAD_AFTER + RECOVERY_SECONDS)
_UNNOTICED = Goals(slowest_ms=PAUSE_MS)

DRILLS = {
    drill.name: drill
    for drill in (
        Drill("worker-kill", "kill -9 a worker at random", faults.kill_worker, _GONE),
        Drill(
            "worker-hang",
            "stop a worker (SIGSTOP), and let it go on when it has been replaced",
            faults.hang_worker,
            _SILENT,
        ),
        Drill(
            "controller-kill",
            "kill -9 the controller that leads",
            faults.kill_leader,
            Goals(slowest_ms=PAUSE_MS, detected_s=ELECTION_SECONDS),
        ),
        Drill(
            "controller-kill-mid-migration",
            "kill -9 the controller that leads while it builds a view",
            migration.kill_leader_mid_migration,
            Goals(detected_s=ELECTION_SECONDS),
            prepare=migration.load_bulk,
        ),
        Drill(
            "zookeeper-kill",
            "kill -9 one ZooKeeper server of three",
            faults.kill_zookeeper,
            _UNNOTICED,
            ClusterShape(zookeepers=3),
        ),
        Drill("zookeeper-kill-all", "all of ZooKeeper is away for five seconds", faults.stop_zookeeper, _UNNOTICED),
        Drill(
            "partition",
            "cut a worker's network off, so that nothing it sends arrives",
            links.cut_off,
            _SILENT,
            means=links.partition_means,
        ),
        Drill(
            "link-cut", "cut the connections between two workers for two seconds", links.cut, Goals(), means=links.means
        ),
        Drill(
            "slow-link",
            "what two workers send to each other arrives 100 ms late",
            links.slow,
            Goals(),
            means=links.means,
        ),
        Drill(
            "restart-all", "kill -9 everything at once, and start it again", faults.restart_all, Goals(untouched=False)
        ),
        Drill(
            "rolling-restart",
            "restart every part in turn, as for a new version",
            faults.rolling_restart,
            Goals(untouched=False),
            ClusterShape(apis=2),
        ),
        Drill(
            "disk-full",
            "the disk under the base tables is full for four seconds",
            faults.fill,
            Goals(untouched=False),
            means=faults.means,
        ),
        Drill(
            "disk-loss",
            "kill -9 a worker, delete its directory, and rebuild its shards from the archive",
            disk_loss.lose,
            Goals(),
            prepare=disk_loss.prepare,
            means=disk_loss.means,
        ),
        Drill(
            "disk-loss-spark",
            "the same, and Spark folds the archive",
            disk_loss.lose,
            Goals(),
            prepare=disk_loss.prepare,
            means=disk_loss.means_by_spark,
        ),
        Drill(
            "backup",
            "take back-ups while tables are written and replaced, and restore each",
            backup.take,
            Goals(untouched=False),
            prepare=backup.prepare,
            means=backup.means,
        ),
        Drill(
            "transactions",
            "kill -9 workers, the leader and api processes amid transactions over all shards",
            transfers.kill_amid_transfers,
            Goals(untouched=False),
            ClusterShape(apis=2),
            prepare=transfers.prepare,
            means=transfers.means,
        ),
        Drill(
            "transactions-partition",
            "cut a worker's network off amid the same transactions",
            transfers.cut_off_amid_transfers,
            Goals(untouched=False),
            ClusterShape(apis=2),
            prepare=transfers.prepare,
            means=transfers.means_of_partition,
        ),
    )
}

SHORT = ("worker-kill", "controller-kill", "link-cut", "restart-all")
"""The drills of CI: one round each, in less than 90 s together."""
