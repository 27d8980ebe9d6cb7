"""Random dataflows, placed at random: the rules of design section 3 hold after every step, and every answer is right.

``HEADRACE_SEED`` chooses where to begin; the long mode (``-m long``) runs ``HEADRACE_GRAPHS`` graphs from there. A
failure names its seed: ``random_graphs.run(seed, steps)`` is the whole reproduction.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.random_graphs import run

FIRST = int(os.environ.get("HEADRACE_SEED", "0"))
GRAPHS = int(os.environ.get("HEADRACE_GRAPHS", "20000"))
STEPS = 80
"""A step is some 0.1 ms with its checks; what breaks at all broke within 60 steps in every mutation that was tried."""
BATCHES, BATCH = 8, 60
"""In CI: about 8 seconds in all."""


def graphs(first: int, number: int, steps: int, *, bulk: bool = False) -> None:
    for seed in range(first, first + number):
        try:
            run(seed, steps, bulk=bulk)
        except Exception as error:
            error.add_note(f"reproduce with tests.simulation.random_graphs.run({seed}, {steps}, bulk={bulk})")
            raise


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs_keep_the_rules(batch: int) -> None:
    graphs(FIRST + batch * BATCH, BATCH, STEPS)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs_whose_states_come_in_bulk_keep_the_rules(batch: int) -> None:
    graphs(FIRST + batch * BATCH, BATCH, STEPS, bulk=True)


@pytest.mark.long
def test_many_random_graphs_keep_the_rules() -> None:
    graphs(FIRST, GRAPHS, 2 * STEPS)
    graphs(FIRST, GRAPHS // 4, 2 * STEPS, bulk=True)
