"""A fixed number of seeds in CI; ``make simulate`` goes on for as long as one likes.

``HEADRACE_SEED`` chooses where to begin. A failure prints its trace and the command that runs its seed again.
"""

from __future__ import annotations

import os

import pytest

from tests.cluster_simulation.run import run_seed

FIRST = int(os.environ.get("HEADRACE_SEED", "1"))
BATCHES, BATCH = 6, 8
"""Some 25 seconds in all."""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_clusters_survive(batch: int) -> None:
    for seed in range(FIRST + batch * BATCH, FIRST + (batch + 1) * BATCH):
        problem = run_seed(seed)
        assert problem is None, f"{problem}\nagain: python -m tests.cluster_simulation --replay {seed} --trace"
