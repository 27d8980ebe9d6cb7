"""``partition``: one worker lives in a network namespace of its own, and the cable to it is cut without a word.

::

    the machine                                namespace
    ZooKeeper, controllers, api  ── bridge ─ veth ═══ veth ── worker-3
    worker-1, worker-2           10.213.77.1               10.213.77.2

A port of the bridge that is disabled drops what comes to it, both ways: no connection is refused and none is reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headrace.drills.cluster import DrillCluster
from headrace.drills.faults import DETECTION_SECONDS, HANG_SECONDS
from headrace.drills.stage import DrillStage, need_program, need_root, run, run_anyway
from zookeeper.server import Ensemble

NAMESPACE = "headrace-drill"
BRIDGE, OUTER, INNER = "hrbr0", "hrveth0", "hrveth1"
HERE, THERE = "10.213.77.1", "10.213.77.2"
NET = "/24"
ALONE = "worker-3"


@asynccontextmanager
async def means(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    need_root("partition", "a network namespace")
    need_program("partition", "ip")
    _remove()
    try:
        run("ip", "netns", "add", NAMESPACE)
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "link", "add", OUTER, "type", "veth", "peer", "name", INNER)
        run("ip", "link", "set", INNER, "netns", NAMESPACE)
        run("ip", "link", "set", OUTER, "master", BRIDGE)
        run("ip", "addr", "add", HERE + NET, "dev", BRIDGE)
        run("ip", "link", "set", OUTER, "up")
        run("ip", "link", "set", BRIDGE, "up")
        inside = ("ip", "-n", NAMESPACE)
        run(*inside, "addr", "add", THERE + NET, "dev", INNER)
        run(*inside, "link", "set", INNER, "up")
        run(*inside, "link", "set", "lo", "up")
        ensemble = Ensemble(cluster.data / "zookeeper", cluster.shape.zookeepers, host=HERE)
        await ensemble.start()
        try:
            cluster.zookeeper = ensemble.address
            cluster.special = _special(cluster)
            yield {}
        finally:
            await ensemble.stop()
    finally:
        _remove()


def _special(cluster: DrillCluster) -> dict[str, dict[str, Any]]:
    here = {"HEADRACE_HOST": HERE, "HEADRACE_ADVERTISE": HERE}
    special: dict[str, dict[str, Any]] = {
        f"worker-{number}": {"environment": here} for number in range(1, cluster.shape.workers + 1)
    }
    there = {"HEADRACE_HOST": THERE, "HEADRACE_ADVERTISE": THERE}
    special[ALONE] = {"environment": there, "prefix": ["ip", "netns", "exec", NAMESPACE]}
    return special


async def cut_off(stage: DrillStage) -> None:
    lost = await stage.hosted_by(ALONE)
    sight = stage.observer.latest()
    epoch = 0 if sight is None else sight.epoch
    at = stage.begin(lost)
    _port("disabled")
    try:
        seen = await stage.until_seen(lambda sight: sight.epoch > epoch, DETECTION_SECONDS)
        stage.amend(detected=seen)
        await asyncio.sleep(max(0.0, at + HANG_SECONDS - stage.now))
    finally:
        _port("forwarding")
    stage.amend(healed=stage.now)


def _port(state: str) -> None:
    run("bridge", "link", "set", "dev", OUTER, "state", {"disabled": "0", "forwarding": "3"}[state])


def _remove() -> None:
    run_anyway("ip", "link", "del", OUTER)
    run_anyway("ip", "link", "del", BRIDGE)
    run_anyway("ip", "netns", "del", NAMESPACE)
