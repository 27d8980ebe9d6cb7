"""From how many base rows on a full part is computed in bulk, and by whom a lost shard may be folded. By itself:
settings and commands know it, and nothing else here."""

from __future__ import annotations

from typing import Literal

SPARK_THRESHOLD = 1_000_000
"""Base rows. From about so many on Spark builds an aggregated view on two cores as soon as slices do: these take some
20 µs of the worker's processor a row, in which others notice it; Spark begins with some twenty seconds for Java, and
most of what follows is beside the worker. docs/performance.md, "Replay", has the figures."""

By = Literal["auto", "spark", "worker"]
"""Who folds the archive of lost shards, as an operator asks for it; ``auto`` goes by the threshold."""
