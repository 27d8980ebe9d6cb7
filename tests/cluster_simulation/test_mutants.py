"""The simulation finds mistakes that were made on purpose: see ``mutants.py``."""

from __future__ import annotations

import pytest

from tests.cluster_simulation.mutants import FOUND_BY, MUTANTS, NOT_FOUND_YET, mutated
from tests.cluster_simulation.run import run_seed

FIRST = 6000
QUICK = ("answers-before-the-sync",)
"""Found by nearly every seed in which a worker dies."""
QUICK_SEEDS = 12
SEEDS = 60


def is_found(name: str, seeds: int) -> bool:
    with mutated(name):
        return any(run_seed(seed, only=FOUND_BY.get(name, ())) is not None for seed in range(FIRST, FIRST + seeds))


@pytest.mark.parametrize("name", QUICK)
def test_a_gross_mistake_is_found_soon(name: str) -> None:
    assert is_found(name, QUICK_SEEDS)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - {*QUICK, *NOT_FOUND_YET}))
def test_a_mistake_is_found(name: str) -> None:
    assert is_found(name, SEEDS)
