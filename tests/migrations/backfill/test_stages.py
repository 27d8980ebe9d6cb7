"""Stages give what the in-worker backfill gives, state by state: over random graphs, sharded and over several groups.

``HEADRACE_SEED`` chooses where to begin. A failure names its seed: ``compare(seed)`` is the whole reproduction.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from domains.language.types import Delta
from migrations.backfill.stages import obstacle, stages_of
from migrations.backfill.task import gates_of
from tests.domains.graphs import Flow, aggregate, count
from tests.migrations.backfill.comparing import computed, held
from tests.migrations.backfill.in_process import run_locally
from tests.simulation.random_graphs import RandomGraph, RandomRun

FIRST = int(os.environ.get("HEADRACE_SEED", "0"))
BATCHES, BATCH = 6, 60


def folded(flow: Flow, base: str) -> list[Delta]:
    """The rows of a base shard as they are now."""
    table, _, shard = base.partition("@")
    return flow.simulation.stores[int(shard or 0)].table(table).find((), ())


def row_counts(flow: Flow) -> dict[str, int]:
    shards = flow.running.shards
    return {
        name if shards == 1 else f"{name}@{at}": store.table(name).row_count
        for at, store in enumerate(flow.simulation.stores[:shards])
        for name in flow.tables
        if name in {schema.name for schema in store.tables()}
    }


def full_keyless(graph: RandomGraph, views: int) -> None:
    """Views without a key, so that all below them is full."""
    nodes = sorted(graph.factors)[2:] or sorted(graph.factors)
    for _ in range(views):
        graph.flow.reader(f"view{graph.views}", graph.rng.choice(nodes), at=graph.place())
        graph.views += 1


def compare(seed: int) -> int:
    """How many full states were compared."""
    rng = Random(seed)
    graph = RandomGraph(rng)
    graph.grow(rng.randrange(2, 10))
    full_keyless(graph, rng.randrange(1, 4))
    flow = graph.flow
    life = RandomRun(graph, rng)
    for _ in range(rng.randrange(25)):
        life.write()
    plan = flow.plan()
    assert obstacle(flow.running, plan) == ""
    flow.simulation.migrate(plan)
    flow.settle(rng)
    stages = stages_of(flow.running, plan, flow.tables, row_counts(flow))
    states = computed(flow.simulation, run_locally(stages, lambda base: folded(flow, base)))
    expected = held(flow.simulation)
    assert states.keys() == expected.keys()
    for place, state in expected.items():
        assert states[place] == state, place
    return len(states)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_stages_give_the_states_that_a_backfill_in_the_worker_gives(batch: int) -> None:
    compared = 0
    for seed in range(FIRST + batch * BATCH, FIRST + (batch + 1) * BATCH):
        try:
            compared += compare(seed)
        except Exception as error:
            error.add_note(f"reproduce with tests.migrations.backfill.test_stages.compare({seed})")
            raise
    assert compared > BATCH


def test_a_table_that_is_only_aggregated_passes_through() -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story")
    stories = flow.table("stories", "id", "title:text", key=(0,))
    counts = flow.group(votes, (1,), count(), aggregate("max", 0))
    flow.reader("ranking", flow.join(stories, counts, (0, 0)))
    flow.insert("votes", (1, 7), (2, 7), (1, 8))
    flow.insert("stories", (7, "seven"))
    plan = flow.plan()
    (stage,) = stages_of(flow.running, plan, flow.tables, {"votes": 3, "stories": 1})
    (task,) = stage.tasks
    assert [(table.base, table.kept) for table in task.tables] == [("stories", True), ("votes", False)]


def test_a_migration_over_state_that_runs_has_no_stages() -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count())
    flow.reader("all", counts)
    flow.start()
    flow.reader("top", flow.top(counts, (), 1, 3))
    plan = flow.plan()
    assert "has state already" in obstacle(flow.running, plan)


def test_below_an_aggregate_without_groups_nothing_waits() -> None:
    """Its row over nothing was said, and counted below, before any row came; to say all again would count twice."""
    flow = Flow()
    votes = flow.table("votes", "user", "story")
    total = flow.group(votes, (), count(), aggregate("max", 0), scalar=True)
    again = flow.group(total, (1, 0), count())
    flow.reader("numbers", flow.group(again, (2,), count()))
    flow.insert("votes", (1, 7), (2, 7))
    plan = flow.plan()
    flow.simulation.migrate(plan)
    stages = stages_of(flow.running, plan, flow.tables, {})
    assert gates_of(stages[0].tasks[0]) == {}
    assert computed(flow.simulation, run_locally(stages, lambda base: folded(flow, base))) == held(flow.simulation)


def test_what_an_aggregate_says_goes_on_once() -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story")
    stories = flow.table("stories", "id", "author", key=(0,))
    joined = flow.join(stories, flow.group(votes, (1,), count()), (0, 0))
    flow.reader("ranking", flow.group(joined, (1,), aggregate("sum", 3)))
    plan = flow.plan()
    (stage,) = stages_of(flow.running, plan, flow.tables, {"votes": 9, "stories": 3})
    assert list(gates_of(stage.tasks[0]).values()) == [{"votes"}, {"votes", "stories"}]
