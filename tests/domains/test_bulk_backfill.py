"""Bulk backfill, case by case: what is loaded as of a position, and what the log after it makes of that."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, product

import pytest

from domains.archive.rows import BLOCK_ITEMS, blocks_of, decode_block, encode_block
from domains.engine.control import perform
from domains.engine.lifecycle.life import TRANSITIONS, Life, LifeCycle
from domains.engine.lifecycle.replay import Later, Replay, exported, load, rows_of_state
from domains.language.types import Row
from domains.plan.commands import Activate, AddNodes, Feed, Follow, LoadState, StartReplay
from domains.plan.graph import Aggregate
from migrations.backfill.stages import stages_of
from migrations.flow.plan import MigrationPlan
from tests.domains.graphs import Flow, aggregate, count
from tests.migrations.backfill.in_process import run_locally


class Bulk:
    """A flow of one domain and its bulk migration, step by step."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.plan: MigrationPlan = flow.plan()
        self.store = flow.simulation.stores[0]

    def add(self) -> None:
        for step in self.plan.steps:
            if not isinstance(step.command, (Feed, Activate)):
                command = step.command
                if isinstance(command, AddNodes):
                    command = replace(command, bulk=True)
                self.flow.simulation.command(step.domain, command)

    def load(self) -> dict[str, int]:
        """As of now; answers the positions."""
        flow = self.flow
        positions = {schema.name: self.store.position(schema.name) for schema in self.store.tables()}
        stages = stages_of(flow.running, self.plan, flow.tables, {})
        for (domain, node), blocks in run_locally(stages, lambda base: self.store.table(base).find((), ())).items():
            for block in blocks:
                flow.simulation.command(domain, LoadState(node, block))
        return positions

    def start(self, positions: dict[str, int]) -> None:
        assert self.flow.simulation.command(0, StartReplay(positions, 1000))

    def follow(self, limit: int = 1000) -> bool:
        return self.flow.simulation.command(0, Follow(limit))

    def activate(self) -> None:
        self.flow.simulation.command(0, Activate())
        self.flow.ready = list(self.flow.running.readers)

    @property
    def replay(self) -> Replay:
        backfill = self.flow.simulation.domains[0].backfill
        assert isinstance(backfill, Replay)
        return backfill


def joined() -> Flow:
    """Votes with the title of their story, all of them."""
    flow = Flow()
    votes = flow.table("votes", "user", "story")
    stories = flow.table("stories", "id", "title", key=(0,))
    flow.reader("titles", flow.join(votes, stories, (1, 0)))
    flow.insert("stories", (7, 70), (8, 80))
    flow.insert("votes", (1, 7))
    return flow


def shown(flow: Flow) -> list[Row]:
    return sorted(flow.held("titles")[()].elements())


def test_nothing_reaches_what_is_built_before_it_is_loaded() -> None:
    flow = joined()
    bulk = Bulk(flow)
    bulk.add()
    flow.insert("votes", (2, 8))
    assert shown(flow) == []
    positions = bulk.load()
    flow.insert("votes", (3, 8))
    assert shown(flow) == [(1, 7, 7, 70), (2, 8, 8, 80)]
    bulk.start(positions)
    flow.insert("votes", (4, 7))
    assert shown(flow) == [(1, 7, 7, 70), (2, 8, 8, 80)]
    assert bulk.follow()
    bulk.activate()
    flow.compare()


def test_a_look_up_during_the_replay_sees_the_other_table_as_of_then() -> None:
    """A vote that is replayed meets the title that its story had, though the story has another one now, or is gone."""
    flow = joined()
    bulk = Bulk(flow)
    bulk.add()
    positions = bulk.load()
    flow.insert("votes", (2, 7))
    flow.update("stories", (7, 70), (7, 71))
    flow.delete("stories", (8, 80))
    flow.insert("votes", (3, 8))
    bulk.start(positions)
    assert not bulk.follow(1)  # One slice is one row of votes: the stories are as they were.
    assert shown(flow) == [(1, 7, 7, 70), (2, 7, 7, 70)]
    while not bulk.follow(1):
        assert all(weight > 0 for weight in flow.held("titles")[()].values())
    bulk.activate()
    assert shown(flow) == [(1, 7, 7, 71), (2, 7, 7, 71)]
    flow.compare()


def test_what_is_written_while_the_log_is_read_is_in_it_once() -> None:
    flow = joined()
    bulk = Bulk(flow)
    bulk.add()
    positions = bulk.load()
    for number in range(6):
        flow.insert("votes", (10 + number, 7))
    assert not flow.simulation.command(0, StartReplay(positions, 4))
    flow.update("stories", (7, 70), (7, 71))
    while not flow.simulation.command(0, StartReplay(positions, 4)):
        flow.insert("votes", (20, 8))
    flow.update("stories", (7, 71), (7, 72))
    while not bulk.follow(2):
        if bulk.replay.rows < 8:
            flow.insert("votes", (30, 7))
    bulk.activate()
    flow.compare()


def test_from_the_step_that_catches_up_on_writes_go_on_at_once() -> None:
    flow = joined()
    bulk = Bulk(flow)
    bulk.add()
    positions = bulk.load()
    flow.insert("votes", (2, 7))
    bulk.start(positions)
    assert bulk.follow(1)
    flow.insert("votes", (3, 7))
    assert shown(flow) == [(1, 7, 7, 70), (2, 7, 7, 70), (3, 7, 7, 70)]
    assert bulk.follow()
    bulk.activate()
    flow.compare()


def test_a_replay_catches_up_with_whoever_writes_more_than_a_slice() -> None:
    flow = joined()
    bulk = Bulk(flow)
    bulk.add()
    positions = bulk.load()
    for number in range(40):
        flow.insert("votes", (100 + number, 7))
    finished = [False, False]
    for number in range(50):
        flow.insert("votes", *((1000 + 10 * number + n, 7) for n in range(10)))  # Ten rows to each slice of two.
        if not finished[0]:
            finished[0] = flow.simulation.command(0, StartReplay(positions, 2))
        elif not finished[1]:
            finished[1] = bulk.follow(2)
    assert finished == [True, True]
    bulk.activate()
    flow.compare()


def test_the_log_is_needed_from_the_replayed_position_on() -> None:
    flow = joined()
    domain = flow.simulation.domains[0]
    assert domain.log_needed("votes") is None
    bulk = Bulk(flow)
    bulk.add()
    assert (domain.log_needed("votes"), domain.log_needed("stories")) == (1, 1)
    flow.insert("votes", (2, 7))
    positions = bulk.load()
    flow.insert("votes", (3, 7))
    flow.insert("votes", (4, 7))
    bulk.start(positions)
    assert domain.log_needed("votes") == 2
    assert not bulk.follow(1)
    assert domain.log_needed("votes") == 3
    assert bulk.follow()
    assert domain.log_needed("votes") is None


def test_taking_it_back_gives_up_the_log() -> None:
    flow = joined()
    bulk = Bulk(flow)
    bulk.add()
    bulk.load()
    for step in bulk.plan.undo:
        flow.simulation.command(step.domain, step.command)
    assert flow.simulation.domains[0].backfill is None
    assert flow.simulation.domains[0].log_needed("votes") is None


def test_state_that_runs_is_empty_to_the_job_and_fed_whole_when_the_replay_begins() -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story")
    stories = flow.table("stories", "id", "title", key=(0,))
    counts = flow.group(votes, (1,), count())
    flow.reader("counts", counts)
    flow.insert("stories", (7, 70), (8, 80))
    flow.insert("votes", (1, 7), (2, 8))
    flow.start()
    flow.reader("titles", flow.join(stories, counts, (0, 0)))
    bulk = Bulk(flow)
    bulk.add()
    flow.insert("votes", (3, 7))  # Its count runs, and has changed before anybody below it may see that.
    positions = bulk.load()
    assert shown(flow) == []
    flow.update("stories", (8, 80), (8, 81))
    flow.insert("votes", (4, 8))
    bulk.start(positions)
    assert shown(flow) == []
    flow.insert("stories", (9, 90))
    while not bulk.follow(1):
        assert shown(flow), "what ran before was not fed"
        flow.insert("votes", (5, 7))
    assert shown(flow)
    bulk.activate()
    flow.insert("votes", (6, 9))
    flow.compare()


def test_rows_that_come_before_the_load_are_refused() -> None:
    """The controller begins no replay before all domains are loaded; else a state would meet a row twice."""
    flow = Flow(2)
    votes = flow.table("votes", "user", "story")
    flow.reader("counts", flow.group(votes, (1,), count(), at=1), at=1)
    flow.insert("votes", (1, 7))
    bulk = Bulk(flow)
    bulk.add()
    positions = bulk.load()
    # Domain 1 was not told that all are loaded, as domain 0 was.
    flow.insert("votes", (2, 7))
    bulk.start(positions)
    assert bulk.follow()
    with pytest.raises(AssertionError, match="from loading to replaying"):
        flow.settle()


@pytest.mark.parametrize("functions", [("min", "max"), ("count_distinct", "sum_distinct"), ("avg", "sum"), ()])
def test_a_state_that_is_loaded_is_the_state_that_was_exported(functions: tuple[str, ...]) -> None:
    def built() -> Flow:
        flow = Flow()
        votes = flow.table("votes", "user", "story")
        flow.reader("grouped", flow.group(votes, (1,), count(), *(aggregate(f, 0) for f in functions)))
        return flow

    one, other = built(), built()
    one.insert("votes", (1, 7), (1, 7), (2, 7), (None, 8), (5, None))
    one.start()
    one.delete("votes", (2, 7))
    other.start()
    group = next(v for v in one.simulation.domains[0].vertices.values() if isinstance(v.node.operator, Aggregate))
    twin = other.simulation.domains[0].vertices[group.index]
    items = list(exported(group))
    rows = load(twin, decode_block(encode_block(items)))
    assert list(exported(twin)) == items
    assert Counter(rows) == Counter(rows_of_state(group))
    assert sum(index.bytes for index in twin.indexes.values()) > 0


def test_the_rows_before_are_those_now_without_what_came_later() -> None:
    later = Later([(0,)], ())
    later.add([((7, 1), 1), ((7, 2), -1)])
    assert later.before((0,), (7,), [((7, 1), 1), ((7, 3), 2)]) == [((7, 3), 2), ((7, 2), 1)]
    assert later.before((0,), (8,), [((8, 1), 1)]) == [((8, 1), 1)]
    assert later.before((1,), (2,), []) == [((7, 2), 1)]  # A way that nobody had foreseen.
    later.add([((7, 1), 1), ((7, 2), -1)], -1)
    assert not later


def test_a_block_has_every_value_as_it_was() -> None:
    rows = [((1, 2**80, -1.5, "half \ud800", b"\0", None), 1)]
    assert decode_block(encode_block(rows)) == rows
    decimals = [((Decimal("1.50"), ((Decimal(0), 2),)), 1), ((None, "1.50"), 2)]
    assert decode_block(encode_block(decimals)) == decimals
    assert str(decode_block(encode_block(decimals))[0][0][0]) == "1.50"
    assert [len(block) for block in blocks_of(range(2 * BLOCK_ITEMS + 1))] == [BLOCK_ITEMS, BLOCK_ITEMS, 1]


# --- the table of a domain's life ---------------------------------------------------------------------------------


IN_SLICES = (Life.ACTIVE, Life.BUILDING, Life.FEEDING, Life.FOLLOWING, Life.ACTIVE)
IN_BULK = (Life.ACTIVE, Life.LOADING, Life.READING, Life.READY, Life.REPLAYING, Life.FOLLOWING, Life.ACTIVE)


def test_a_life_has_these_transitions_and_no_others() -> None:
    built = {*pairwise(IN_SLICES), *pairwise(IN_BULK), *((Life.HELD, one) for one in TRANSITIONS[Life.ACTIVE])}
    again = {(Life.ACTIVE, Life.ACTIVE), (Life.ACTIVE, Life.HELD)}
    taken_back = {(one, after) for one in Life for after in (Life.ACTIVE, Life.HELD)}
    for before, after in product(Life, Life):
        life = LifeCycle()
        life.state = before
        if (before, after) in built | again | taken_back:
            life.to(after)
            assert life.state is after
        else:
            with pytest.raises(AssertionError, match=f"from {before.value} to {after.value}"):
                life.to(after)
            assert life.state is before


def test_a_bulk_migration_goes_through_its_life() -> None:
    flow = joined()
    domain, bulk = flow.simulation.domains[0], Bulk(flow)
    seen = [domain.life.state]
    bulk.add()
    seen.append(domain.life.state)
    for command in (Activate(), Feed(10), Follow(10)):
        with pytest.raises(AssertionError):
            perform(domain, command)
        assert domain.life.state is Life.LOADING
    positions = bulk.load()
    bulk.start(positions)
    seen.append(domain.life.state)
    bulk.follow()
    seen.append(domain.life.state)
    bulk.activate()
    seen.append(domain.life.state)
    assert seen == [Life.ACTIVE, Life.LOADING, Life.READY, Life.FOLLOWING, Life.ACTIVE]


def test_a_migration_in_slices_goes_through_its_life() -> None:
    flow = joined()
    simulation, domain = flow.simulation, flow.simulation.domains[0]
    seen = [domain.life.state]
    for step in flow.plan().steps:
        command = Feed(1) if isinstance(step.command, Feed) else step.command
        finished = False
        while not finished:
            finished = simulation.command(step.domain, command)
            if domain.life.state is not seen[-1]:
                seen.append(domain.life.state)
    assert tuple(seen) == IN_SLICES
