"""The simulation finds mistakes that were made on purpose: see ``mutants.py``."""

from __future__ import annotations

import pytest

from tests.cluster_simulation.mutants import MUTANTS, mutated
from tests.cluster_simulation.run import run_seed

FIRST = 6000
QUICK = ("answers-before-the-sync",)
"""Found by nearly every seed in which a worker dies."""
QUICK_SEEDS = 12
SEEDS = 60
HARD = ("no-barrier-before-activation", "no-barrier-before-nodes-come-again", "links-keep-their-epoch")
HARD += ("old-leaders-are-obeyed", "shards-are-not-fenced")
"""What each excludes is so narrow a moment that it takes hundreds of seeds: ``--mutant`` looks for them."""


def is_found(name: str, seeds: int) -> bool:
    with mutated(name):
        return any(run_seed(seed) is not None for seed in range(FIRST, FIRST + seeds))


@pytest.mark.parametrize("name", QUICK)
def test_a_gross_mistake_is_found_soon(name: str) -> None:
    assert is_found(name, QUICK_SEEDS)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - {*QUICK, *HARD}))
def test_a_mistake_is_found(name: str) -> None:
    assert is_found(name, SEEDS)
