"""Boxes and intervals: whatever a condition is true for lies in them, and walks come in the order that is wanted.

The judge is the condition itself, compiled, over all rows.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, product
from random import Random

import pytest

from domains.language.collating.collation import Collation
from domains.language.compile import compile_predicate
from domains.language.encoding import encode_order, row_encoder
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import (
    BIGINT,
    BOOL,
    TEXT,
    Column,
    Row,
    TableColumn,
    TableSchema,
    collations_of,
    decimal_type,
)
from domains.plan.deltas import key_function
from domains.plan.graph import OrderTerm
from domains.store.memory_store import MemoryStore
from domains.store.walking import EVERYWHERE, MOST_BOXES, Walk, both, boxes_of, exactly, narrowest, walk_in_order

TYPES = (BIGINT, BIGINT, replace(TEXT, collation=Collation.GENERAL_CI), decimal_type(1))
VALUES = (
    (0, 1, 2, 3),
    (None, 0, 1, 2),
    (None, "a", "A", "b", "Bc"),
    (None, Decimal("0.5"), Decimal("1.0"), Decimal(2)),
)
COLUMNS = tuple(Column(name, type) for name, type in zip("iabc", TYPES, strict=True))
SCHEMA = TableSchema(
    "t",
    tuple(TableColumn(column.name, column.type) for column in COLUMNS),
    primary_key=(0, 1),
    indexes=((1,), (2, 1), (3, 0)),
)
CONSTANTS = (
    (Constant(1, BIGINT), Constant(9, BIGINT), Constant(Decimal("1.5"), decimal_type(1)), Constant(None, BIGINT)),
    (Constant(0, BIGINT), Constant(2, BIGINT), Constant(Decimal("0.5"), decimal_type(1))),
    (Constant("a", TYPES[2]), Constant("B", TYPES[2]), Constant("b!", TYPES[2])),
    (Constant(1, BIGINT), Constant(Decimal("0.5"), decimal_type(1)), Constant(Decimal("0.75"), decimal_type(2))),
)


def store(random: Random) -> MemoryStore:
    made = MemoryStore()
    rows: dict[tuple[object, ...], Row] = {}
    for _ in range(60):
        row = (random.randrange(40), random.choice((0, 1, 2)), *(random.choice(VALUES[at]) for at in (2, 3)))
        rows[row[:2]] = row
    made.create_table(SCHEMA).stage([(row, 1) for row in rows.values()])
    made.commit([("t", 1, [])])
    return made


def condition(random: Random, depth: int = 2) -> Expression:
    if depth and random.random() < 0.7:
        name = random.choice(("and", "and", "or", "not"))
        parts = tuple(condition(random, depth - 1) for _ in range(1 if name == "not" else 2))
        return Call(name, parts, BOOL)
    at = random.randrange(4)
    field, constants = Field(at, TYPES[at]), CONSTANTS[at]
    name = random.choice(("eq", "lt", "le", "gt", "ge", "ne", "in", "between"))
    if name in ("in", "between"):
        return Call(name, (field, random.choice(constants), random.choice(constants)), BOOL)
    pair = (field, random.choice(constants))
    return Call(name, pair if random.random() < 0.7 else pair[::-1], BOOL)


def walked(made: MemoryStore, walk: Walk) -> list[Row]:
    parts = [
        made.table("t").walk(walk.order, interval, 2, 5, descending=walk.descending)
        for interval in (reversed(walk.intervals) if walk.descending else walk.intervals)
    ]
    return [row for some in parts for part in some for row, _ in part]


@pytest.mark.parametrize("seed", range(400))
def test_a_walk_meets_all_rows_of_a_condition_in_order(seed: int) -> None:
    random = Random(seed)
    made, where = store(random), condition(random)
    table, holds, boxes = made.table("t"), compile_predicate(where), boxes_of(where, COLUMNS)
    wanted = {row for row, _ in table.find((), ()) if holds(row)}
    for ranged in (False, True):
        walk = narrowest(table.orders, boxes, ranged=ranged)
        if walk is not None:
            rows = walked(made, walk)
            assert len(set(rows)) == len(rows)
            assert wanted <= set(rows)
    terms = [OrderTerm(at, random.random() < 0.5) for at in random.sample(range(4), random.randrange(1, 4))]
    walk = walk_in_order(table.orders, SCHEMA.primary_key, boxes, terms)
    if walk is not None:
        rows = walked(made, walk)
        assert len(set(rows)) == len(rows)
        assert wanted <= set(rows)
        order_of = key_function(tuple(term.column for term in terms), collations_of(COLUMNS))
        ranks = [encode_order(order_of(row), [term.descending for term in terms]) for row in rows if row in wanted]
        assert ranks == sorted(ranks)


def test_what_ranges_are_walked_by_which_index() -> None:
    one, two, seven = (exactly(row_encoder((0,), (BIGINT,))((n,))) for n in (1, 2, 7))
    orders = store(Random(1)).table("t").orders
    above = {0: ((seven[0][0], False), None)}
    assert [narrowest(orders, boxes) for boxes in (EVERYWHERE, ({0: one},), ({3: one}, {1: one}))] == [None] * 3
    for boxes, order in ((({**above},), (0, 1)), (({3: one, **above},), (3, 0, 0, 1)), (({2: one, **above},), None)):
        walk = narrowest(orders, boxes)
        assert (None if walk is None else walk.order) == order
    assert narrowest(orders, ({0: one}, above)) is not None, "one of several boxes is a range"
    for terms, boxes, order, down in (
        ([(0, True), (1, True)], EVERYWHERE, (0, 1), True),
        ([(0, False), (1, True)], EVERYWHERE, None, False),
        ([(3, False)], EVERYWHERE, (3, 0, 0, 1), False),
        ([(1, True), (0, True), (2, False)], EVERYWHERE, (1, 0, 1), True),
        ([(0, False), (2, True)], ({3: two},), None, False),
        ([(3, True), (0, False)], ({3: two},), (3, 0, 0, 1), False),
        ([(3, True), (0, False)], ({3: two}, {3: one}), None, False),
    ):
        walk = walk_in_order(orders, SCHEMA.primary_key, boxes, [OrderTerm(*term) for term in terms])
        assert (None if walk is None else (walk.order, walk.descending)) == (order and (order, down)), terms


def test_boxes_stay_few_and_empty_ones_go() -> None:
    values = [row_encoder((0,), (BIGINT,))((n,)) for n in range(20)]
    many = tuple({0: exactly(value)} for value in values)
    assert both(many, many) == many or len(both(many, many)) <= MOST_BOXES
    assert both(many[:2], many[2:4]) == ()
    for low, high in product((True, False), repeat=2):
        met = both(({0: ((values[1], low), None)},), ({0: (None, (values[1], high))},))
        assert bool(met) == (low and high)
    assert all(one < other for one, other in pairwise(values))
