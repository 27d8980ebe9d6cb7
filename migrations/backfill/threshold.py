"""From how many base rows on a full part is computed in bulk, and by whom a lost shard may be folded. By itself:
settings and commands know it, and nothing else here."""

from __future__ import annotations

from typing import Literal

SPARK_THRESHOLD = 500_000
"""Base rows. In slices each takes some 20 µs of the worker's processor, so this many take ten seconds, in which others
notice it: writes and reads that miss wait behind slices. A bulk job takes more processor in all, most of it beside the
worker, and Spark's begins with some ten seconds for Java. docs/performance.md, "Replay", has the figures."""

By = Literal["auto", "spark", "worker"]
"""Who folds the archive of lost shards, as an operator asks for it; ``auto`` goes by the threshold."""
