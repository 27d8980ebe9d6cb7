"""The simulation finds mistakes that were made on purpose: see ``mutants.py``."""

from __future__ import annotations

import pytest

from tests.cluster_simulation.mutants import HUNTS, MUTANTS, Hunt, mutated
from tests.cluster_simulation.run import run_seed


def is_found(name: str) -> bool:
    hunt = HUNTS.get(name, Hunt())
    with mutated(name):
        seeds = range(hunt.first, hunt.first + hunt.seeds)
        return any(run_seed(seed, only=hunt.faults, shape=hunt.shape) is not None for seed in seeds)


@pytest.mark.parametrize("name", [name for name, hunt in HUNTS.items() if hunt.is_quick])
def test_a_mistake_is_found_soon(name: str) -> None:
    assert is_found(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(name for name in MUTANTS if not HUNTS.get(name, Hunt()).is_quick))
def test_a_mistake_is_found(name: str) -> None:
    assert is_found(name)
