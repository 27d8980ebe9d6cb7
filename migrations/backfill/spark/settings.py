"""Which Spark runs the jobs, and how large it may be: plain values that go to the child as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

SPARK_THRESHOLD = 1_000_000
"""Base rows. From about so many on Spark builds an aggregated view on two cores as soon as slices do: these take some
20 µs of the worker's processor a row, in which others notice it; Spark begins with some twenty seconds for Java, and
most of what follows is beside the worker. docs/performance.md, "Replay", has the figures."""

By = Literal["auto", "spark", "worker"]
"""The way in which an operator wants the archive of lost shards folded; ``auto`` goes by the threshold."""


DRIVER_MEMORY = 1 * 2**30
"""Bytes of the driver's heap, which in local mode is the executors' too. What a job holds in it is one task's shuffle
buffers a core, which spill to disk; with 512 MB a sort of 10 M rows spends its time spilling, and more than 1 GB has
not been seen to help on two cores."""

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``headrace.settings`` has the same as ``--spark-master``, ``--spark-conf`` and ``--spark-memory``."""

    master: str = ""
    """``local[N]``, ``spark://host:port``, …; empty: ``local`` with every core of this machine."""
    conf: tuple[tuple[str, str], ...] = ()
    """Spark's own settings, over ours."""
    memory: int = DRIVER_MEMORY

    @property
    def is_local(self) -> bool:
        return not self.master or self.master.startswith(LOCAL)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> SparkSettings:
        conf = tuple((str(name), str(value)) for name, value in document.get("conf", ()))
        return cls(document.get("master", ""), conf, document.get("memory", DRIVER_MEMORY))
