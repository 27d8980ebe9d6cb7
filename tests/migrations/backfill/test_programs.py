"""Stages give the states that running domains hold, over SQL: every operator, type and aggregate that campaigns write.

``HEADRACE_SEED`` chooses where to begin. A failure names its seed: ``compare(seed)`` is the whole reproduction.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from domains.language.types import Delta
from migrations.backfill.stages import stages_of
from migrations.flow.plan import plan_start
from tests.campaign.cases import case_of
from tests.campaign.execution import Execution
from tests.campaign.judge import Judge
from tests.campaign.simulated import Simulated
from tests.campaign.statements import Compare, Restart
from tests.campaign.subject import Setting
from tests.migrations.backfill.comparing import computed, held
from tests.migrations.backfill.in_process import run_locally

FIRST = int(os.environ.get("HEADRACE_SEED", "0"))
BATCHES, BATCH = 4, 6


def compare(seed: int) -> int:
    """One case of the campaign, all of its views full; how many states were compared."""
    random = Random(seed)
    setting = Setting(seed, partial=False, domains=random.choice((1, 2, 3)), shards=random.choice((1, 2, 3, 4)))
    subject, judge = Simulated(setting), Judge()
    try:
        # A restart builds all anew: then its states would be compared, and not what writes made of them. Answers are
        # compared by the campaign itself.
        operations = [op for op in case_of(seed, setting).operations if not isinstance(op, Restart | Compare)]
        Execution(subject, judge, seed).run(operations)
    finally:
        judge.close()
    subject.settle()
    flow, stores = subject.state.flow, subject.simulation.stores
    schemas = {schema.name: schema for schema in subject.state.catalog.tables.values()}

    def fold(base: str) -> list[Delta]:
        table, _, shard = base.partition("@")
        return stores[int(shard or 0)].table(table).find((), ())

    states = computed(subject.simulation, run_locally(stages_of(flow, plan_start(flow), schemas, {}), fold))
    expected = held(subject.simulation)
    assert states.keys() == expected.keys()
    for place, state in expected.items():
        assert states[place] == state, place
    return len(states)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_stages_give_the_states_that_running_domains_hold(batch: int) -> None:
    compared = 0
    for seed in range(FIRST + batch * BATCH, FIRST + (batch + 1) * BATCH):
        try:
            compared += compare(seed)
        except Exception as error:
            error.add_note(f"reproduce with tests.migrations.backfill.test_programs.compare({seed})")
            raise
    assert compared > BATCH
