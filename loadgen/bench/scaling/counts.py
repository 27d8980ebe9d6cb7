"""Counters of a cluster, and their differences between two moments: processor time and messages.

Processor time is what the kernel counted for each process, user and system together, in ticks of 10 ms. Messages and
bytes are the workers' own counters (``worker/service/status.py``), which every worker is asked for over the wire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import psutil

from loadgen.drills.cluster import DrillCluster
from worker.protocol.messages import Role, Status, StatusDocument
from worker.wire.connection import Connection, connect, greeting

KINDS = ("api", "worker", "controller", "zookeeper")
"""Kinds of parts; ``worker-2`` is a worker."""

DEPLOYMENT = "main"
"""The name that ``headrace up`` gives its deployment by default."""

SAID = (
    "packets",
    "beats",
    "sent",
    "frames",
    "sent_bytes",
    "acks",
    "ack_bytes",
    "asked",
    "asked_bytes",
    "batches",
    "syncs",
)
"""Packets of all links, and those of them that only tell a clock; what went to *other* workers: packets, frames, their
bytes, and the other way acknowledgements and theirs; messages and bytes between api and workers, both ways; batches of
the dataflow threads, and syncs to disk."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Counts between two looks at a cluster, or since its start."""

    cpu: Mapping[str, float]
    """Seconds by kind of part."""
    said: Mapping[str, int]
    """See ``SAID``."""

    def since(self, before: Self) -> Spent:
        return Spent(
            {kind: seconds - before.cpu[kind] for kind, seconds in self.cpu.items()},
            {name: count - before.said[name] for name, count in self.said.items()},
        )

    def servers(self) -> float:
        """Seconds of all server processes but ZooKeeper."""
        return sum(seconds for kind, seconds in self.cpu.items() if kind != "zookeeper")

    def everything(self) -> float:
        return sum(self.cpu.values())


class Meter:
    """Reads a cluster's counters, over connections that stay open."""

    def __init__(self, cluster: DrillCluster) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in cluster.pids().items()}
        self._cluster = cluster
        self._connections: list[Connection] = []

    async def open(self) -> None:
        status = await self._cluster.status()
        assert status is not None, "the cluster answers, or it would not have been started"
        hello = greeting(DEPLOYMENT, Role.OPERATOR, "bench", 1)
        secret = self._cluster.secret
        self._connections = [
            await connect(each["host"], each["port"], hello, secret=secret) for each in status["workers"]
        ]

    async def close(self) -> None:
        for each in self._connections:
            each.close()
            await each.closed.wait()

    def cpu(self) -> dict[str, float]:
        """Seconds by kind. A part that was started anew meanwhile makes it wrong: psutil raises NoSuchProcess."""
        seconds = dict.fromkeys(KINDS, 0.0)
        for name, process in self._processes.items():
            times = process.cpu_times()
            seconds[name.partition("-")[0]] += times.user + times.system
        return seconds

    async def said(self) -> dict[str, int]:
        answers: list[StatusDocument] = [await each.ask(Status()) for each in self._connections]
        total = Counter(dict.fromkeys(SAID, 0))
        for answer in answers:
            total.update(_said(answer.document))
        return dict(total)


def _said(document: Mapping[str, Any]) -> dict[str, int]:
    """The counters in one worker's status."""
    links, out, wire = document["links"], document["peers"]["out"].values(), document["wire"]
    nothing = {"messages_in": 0, "messages_out": 0, "bytes_in": 0, "bytes_out": 0}
    workers, api = wire.get(Role.WORKER, nothing), wire.get(Role.API, nothing)
    return {
        "packets": links["packets"],
        "beats": links["beats"],
        "sent": sum(peer["packets"] for peer in out),
        "frames": sum(peer["frames"] for peer in out),
        "sent_bytes": sum(peer["bytes"] for peer in out),
        "acks": workers["messages_out"],
        "ack_bytes": workers["bytes_out"],
        "asked": api["messages_in"] + api["messages_out"],
        "asked_bytes": api["bytes_in"] + api["bytes_out"],
        "batches": document["batches"],
        "syncs": document["syncs"],
    }


@dataclass(frozen=True, slots=True)
class CountSample:
    """One phase of one round on one cluster."""

    requests: int
    writes: int
    rows: int
    seconds: float
    spent: Spent

    @property
    def microseconds(self) -> float:
        """Processor time a request, without ZooKeeper's."""
        return 1e6 * self.spent.servers() / self.requests


@dataclass(slots=True)
class Subject:
    """A cluster that is measured."""

    cluster: DrillCluster
    meter: Meter
    idle: Spent | None = None
    samples: dict[str, list[CountSample]] = field(default_factory=dict)
    """Samples by phase."""

    @property
    def workers(self) -> int:
        return self.cluster.shape.workers

    @property
    def shards(self) -> int:
        return self.cluster.shape.shards
