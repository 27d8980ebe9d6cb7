"""The laws that every operator keeps, for any batches over two small tables with NULLs, duplicates and empty groups.

* incremental = recompute: after each step every view and entry equals the query over the base rows;
* splitting a batch anywhere does not matter;
* retractions cancel: D, then −D leaves what was there, in rows and bytes; D − D in one step says nothing at all;
* accounted bytes never drift: what an entry took it gives back, so they are 0 when everything is evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domains.engine.domain import Step
from domains.language.types import BIGINT, DOUBLE, Delta, Row, decimal_type
from domains.operators import ranged
from domains.plan.graph import AggregateCall, DomainIndex, JoinKind, NodeIndex, Reader
from domains.plan.packets import Publish
from tests.domains.graphs import Flow, aggregate, call, column, constant, count

Build = Callable[[Flow, NodeIndex, NodeIndex], NodeIndex]
TABLES = ("left", "right")
VALUES = st.none() | st.integers(0, 2)
ROWS = st.tuples(VALUES, VALUES, VALUES)
BATCH = st.lists(st.tuples(st.sampled_from(TABLES), ROWS, st.sampled_from([1, 1, 2, -1, -2])), max_size=8)
CANCELLING = st.lists(ROWS, min_size=1, max_size=3).flatmap(
    lambda rows: st.permutations([(row, weight) for row in rows for weight in (1, -1)])
)
EXAMPLES = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])

CALLS: tuple[AggregateCall, ...] = (
    count(),
    aggregate("count", 1),
    aggregate("sum", 1),
    aggregate("avg", 1, decimal_type(4)),
    aggregate("min", 1),
    aggregate("max", 2),
    aggregate("count_distinct", 1),
    aggregate("sum_distinct", 2),
    aggregate("var_pop", 1, DOUBLE),
    aggregate("stddev_samp", 2, DOUBLE),
    aggregate("bit_and", 1),
    aggregate("bit_or", 2),
    aggregate("bit_xor", 1),
)
SMALLER = call("lt", column(1), column(4))
BETWEEN = call("and", SMALLER, call("le", column(4), call("add", column(0), constant(1), type=BIGINT)))
PLUS_ONE = call("add", column(1), constant(1), type=BIGINT)

OPERATORS: dict[str, Build] = {
    "filter": lambda f, a, b: f.filter(a, call("eq", column(1), constant(1))),
    "filter of null": lambda f, a, b: f.filter(a, call("is_null", column(2))),
    "project": lambda f, a, b: f.project(a, 0, PLUS_ONE),
    "union": lambda f, a, b: f.union(a, b, a),
    "inner join": lambda f, a, b: f.join(a, b, (1, 1)),
    "join on two columns": lambda f, a, b: f.join(a, b, (1, 1), (0, 2)),
    "left join": lambda f, a, b: f.left_join(a, b, (1, 2)),
    "left join with a residual": lambda f, a, b: f.join(a, b, (2, 2), kind=JoinKind.LEFT, residual=SMALLER),
    "mark join": lambda f, a, b: f.join(a, b, (1, 2), kind=JoinKind.MARK),
    "mark join with a residual": lambda f, a, b: f.join(a, b, (2, 2), kind=JoinKind.MARK, residual=SMALLER),
    "join by a range": lambda f, a, b: f.join(a, b, residual=SMALLER),
    "join by a range of each key": lambda f, a, b: f.join(a, b, (0, 0), residual=SMALLER),
    "join by a range of what is projected": lambda f, a, b: f.join(
        f.filter(a, call("ge", column(2), constant(1))), f.project(b, 1, 1, PLUS_ONE), residual=BETWEEN
    ),
    "left join by a range": lambda f, a, b: f.join(a, b, kind=JoinKind.LEFT, residual=BETWEEN),
    "mark join by a range": lambda f, a, b: f.join(
        f.union(a, b), f.project(b, 0, 1), kind=JoinKind.MARK, residual=SMALLER
    ),
    "self-join by a range": lambda f, a, b: f.join(a, a, residual=SMALLER),
    "join of a join by a range": lambda f, a, b: f.join(f.left_join(a, b, (1, 1)), b, (0, 0), residual=BETWEEN),
    "self-join": lambda f, a, b: f.left_join(a, a, (1, 2)),
    "join of a join": lambda f, a, b: f.join(f.left_join(a, b, (1, 1)), b, (2, 0)),
    "aggregate": lambda f, a, b: f.group(a, (0,), *CALLS),
    "counts": lambda f, a, b: f.group(a, (0,), count()),
    "groups of a key": lambda f, a, b: f.group(a, (0, 2), *CALLS),
    "aggregate of a join": lambda f, a, b: f.group(f.left_join(a, b, (1, 1)), (0,), count(), aggregate("max", 4)),
    "distinct": lambda f, a, b: f.distinct(f.project(a, 0, 1)),
    "top": lambda f, a, b: f.top(a, (0,), 1, 2),
    "top after an offset": lambda f, a, b: f.top(f.union(a, b), (0, 2), 1, 1, offset=1, down=False),
}


@pytest.fixture(autouse=True, params=[0, ranged.FEW_ROWS], ids=["in order", "as they are"])
def _few_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "FEW_ROWS", request.param)


def flow_of(name: str) -> Flow:
    """The operator under a full view and under a partial one whose keys are all filled."""
    flow = Flow()
    left, right = flow.table("left", "a", "b", "c"), flow.table("right", "a", "b", "c")
    root = OPERATORS[name](flow, left, right)
    flow.reader("full", root)
    flow.start()
    flow.reader("partial", root, 0)
    flow.start()
    return flow


def partial_of(name: str) -> Flow:
    """Only partial, and over a link, so that there is partial state on the way too."""
    flow = Flow(domains=2)
    flow.at = 1
    left, right = flow.table("left", "a", "b", "c"), flow.table("right", "a", "b", "c")
    flow.reader("partial", OPERATORS[name](flow, left, right), 0)
    flow.start()
    return flow


def fill(flow: Flow) -> None:
    for value in (0, 1, 2):
        flow.read("partial", value)


def step(flow: Flow, table: str, deltas: list[Delta]) -> list[Publish]:
    """One step of any deltas, which a single statement could not always make."""
    domain = flow.simulation.domains[0]
    stored, sequence = domain.store.table(table), domain.store.position(table) + 1
    stored.stage(deltas)
    domain.store.commit([(table, sequence, deltas)])
    domain.clocks.write(domain.base_name(stored.schema), sequence)
    taken = Step(DomainIndex(0))
    domain.spread({table: deltas}, taken)
    effects = domain.close(taken)
    flow.simulation.perform(0, effects)
    for row, weight in deltas:
        flow.stored[table][row] += weight
    flow.stored[table] = +flow.stored[table]
    return [effect for effect in effects if isinstance(effect, Publish)]


def apply(flow: Flow, batch: list[tuple[str, Row, int]]) -> dict[str, list[Delta]]:
    """A step a table with what of the batch can be (a row is not retracted more often than it is there)."""
    applied: dict[str, list[Delta]] = {}
    for table in TABLES:
        change: Counter[Row] = Counter()
        for name, row, weight in batch:
            if name == table and flow.stored[table][row] + change[row] + weight >= 0:
                change[row] += weight
        applied[table] = [(row, weight) for row, weight in change.items() if weight]
        if applied[table]:
            step(flow, table, applied[table])
    flow.settle()
    flow.compare()
    return applied


def shown(flow: Flow) -> dict[str, dict[Row, dict[Row, int]]]:
    return {
        view: {
            key: dict(rows)
            for key, rows in flow.simulation.readers[DomainIndex(0), flow.reader_node(view).index].items()
        }
        for view in flow.running.readers
    }


@pytest.mark.parametrize("name", OPERATORS)
@EXAMPLES
@given(st.lists(BATCH, max_size=4))
def test_incremental_is_recompute(name: str, batches: list[list[tuple[str, Row, int]]]) -> None:
    """Also with what is filled in the middle."""
    for flow in (flow_of(name), partial_of(name)):
        fill(flow)
        for number, batch in enumerate(batches):
            apply(flow, batch)
            if number == 1:
                flow.evict("partial", 1)
                flow.read("partial", 1)


@pytest.mark.parametrize("name", OPERATORS)
@EXAMPLES
@given(BATCH, BATCH)
def test_splitting_a_batch_does_not_matter(
    name: str, before: list[tuple[str, Row, int]], batch: list[tuple[str, Row, int]]
) -> None:
    whole, split = flow_of(name), flow_of(name)
    for flow in (whole, split):
        fill(flow)
        apply(flow, before)
    for table, deltas in apply(whole, batch).items():
        for delta in sorted(deltas, key=lambda delta: -delta[1]):
            for _ in range(abs(delta[1])):
                step(split, table, [(delta[0], 1 if delta[1] > 0 else -1)])
    assert shown(whole) == shown(split)


@pytest.mark.parametrize("name", OPERATORS)
@EXAMPLES
@given(BATCH, BATCH)
def test_retractions_cancel(name: str, before: list[tuple[str, Row, int]], batch: list[tuple[str, Row, int]]) -> None:
    flow = flow_of(name)
    fill(flow)
    empty = state_bytes(flow)
    seeded = apply(flow, before)
    there = shown(flow)
    for table, deltas in reversed(apply(flow, batch).items()):
        if deltas:
            step(flow, table, [(row, -weight) for row, weight in deltas])
    assert shown(flow) == there
    for table, deltas in seeded.items():
        if deltas:
            step(flow, table, [(row, -weight) for row, weight in deltas])
    assert state_bytes(flow) == empty


@pytest.mark.parametrize("name", OPERATORS)
@EXAMPLES
@given(BATCH, CANCELLING)
def test_what_cancels_within_a_step_says_nothing(
    name: str, before: list[tuple[str, Row, int]], deltas: list[Delta]
) -> None:
    """In whatever order: what a join says of one step may retract a row before it inserts it."""
    flow = flow_of(name)
    fill(flow)
    apply(flow, before)
    for table in TABLES:
        taken = Step(DomainIndex(0))
        flow.simulation.domains[0].spread({table: deltas}, taken)
        said = [effect for effect in flow.simulation.domains[0].close(taken) if isinstance(effect, Publish)]
        assert all(not publish.deltas and not publish.evicted for publish in said)
        flow.simulation.perform(0, list(said))
    linked = partial_of(name)
    fill(linked)
    apply(linked, before)
    for table in TABLES:
        taken = Step(DomainIndex(0))
        linked.simulation.domains[0].spread({table: deltas}, taken)
        linked.simulation.perform(0, linked.simulation.domains[0].close(taken))
        linked.settle()
        linked.compare()


WITHOUT_KEY = {
    *("join by a range", "join by a range of what is projected", "left join by a range", "mark join by a range"),
    "self-join by a range",
}
"""Joins whose sides are looked up whole, so that nothing of these goes."""


@pytest.mark.parametrize("name", sorted(OPERATORS.keys() - WITHOUT_KEY))
@EXAMPLES
@given(st.lists(BATCH, max_size=4))
def test_bytes_do_not_drift(name: str, batches: list[list[tuple[str, Row, int]]]) -> None:
    """Updated in place or not: what is accounted for an entry is given back when the entry goes."""
    flow = partial_of(name)
    fill(flow)
    for number, batch in enumerate(batches):
        apply(flow, batch)
        if number == 1:
            flow.evict("partial", 1)
    flow.settle()
    for domain in range(2):
        flow.evict_memory(domain)
        flow.settle()
    assert flow.accounted() == 0
    for batch in batches:
        apply(flow, batch)
    assert flow.accounted() == 0


def state_bytes(flow: Flow) -> dict[tuple[int, tuple[int, ...]], int]:
    """What each index of operators is accounted with. (A reader only estimates: its rows are in the reader map.)"""
    return {
        (vertex.index, columns): index.bytes
        for domain in flow.simulation.domains
        for vertex in domain.vertices.values()
        for columns, index in vertex.indexes.items()
        if not isinstance(vertex.node.operator, Reader)
    }


def test_a_readers_estimate_does_not_add_up() -> None:
    """A row comes wide, is replaced by a narrow one, and goes: each round must give back what it took."""
    flow = Flow()
    stories, votes = flow.table("stories", "id", "author"), flow.table("votes", "user", "story")
    flow.reader("voted", flow.left_join(stories, votes, (0, 1)))
    flow.start()
    before = flow.accounted()
    for _ in range(50):
        flow.insert("votes", (4, 7))
        flow.insert("stories", (7, 1))
        flow.delete("votes", (4, 7))
        flow.delete("stories", (7, 1))
    assert flow.read("voted") == []
    assert flow.accounted() == before
