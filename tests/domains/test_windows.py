"""Window functions kept up to date equal their definitions, whatever comes and goes; and they revise no more than they
have to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from domains.language.types import BIGINT, Column, Delta, Row, decimal_type
from domains.operators.over import OverIndex, OverOperator
from domains.operators.windows import ExtremumFold, Fold, SumFold
from domains.plan.deltas import consolidate
from domains.plan.graph import BoundKind, Frame, FrameBound, OrderTerm, Over, WindowCall, WindowFunction
from tests.migrations.evaluate import over

PARENT = tuple(Column(name, BIGINT) for name in ("partition", "sorted", "value", "low", "high"))
RANKS = (
    *(WindowFunction.ROW_NUMBER, WindowFunction.RANK, WindowFunction.DENSE_RANK),
    *(WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST),
)
FRAMED = tuple(
    each
    for each in WindowFunction
    if each not in RANKS
    and each not in (WindowFunction.NTILE, WindowFunction.LAG, WindowFunction.LEAD, WindowFunction.JSON_OBJECTAGG)
)
KINDS = list(BoundKind)


def typed(function: WindowFunction) -> WindowCall:
    if function in RANKS:
        return WindowCall(function, None, BIGINT)
    type_ = decimal_type(4) if function is WindowFunction.AVG else BIGINT
    return WindowCall(function, None if function is WindowFunction.COUNT_ROWS else 2, type_)


def drawn_frame(random: Random, *, ranged: bool) -> Frame:
    """Any frame that SQL allows; where ``ranged``, columns 3 and 4 are the bounds."""
    rows = not ranged or random.random() < 0.5
    kinds = (
        KINDS if rows or ranged else [each for each in KINDS if each not in (BoundKind.PRECEDING, BoundKind.FOLLOWING)]
    )
    while True:
        start, end = random.choice(kinds), random.choice(kinds)
        if (
            start is BoundKind.UNBOUNDED_FOLLOWING
            or end is BoundKind.UNBOUNDED_PRECEDING
            or KINDS.index(start) > KINDS.index(end)
        ):
            continue
        if not rows and start is end and start in (BoundKind.PRECEDING, BoundKind.FOLLOWING):
            continue  # There is one column for each direction.
        return Frame(rows, bound(random, start, rows=rows), bound(random, end, rows=rows))


def bound(random: Random, kind: BoundKind, *, rows: bool) -> FrameBound:
    if kind not in (BoundKind.PRECEDING, BoundKind.FOLLOWING):
        return FrameBound(kind)
    if rows:
        return FrameBound(kind, random.randrange(4))
    return FrameBound(kind, 3 if kind is BoundKind.PRECEDING else 4)


def drawn(random: Random) -> Over:
    ranged = random.random() < 0.5
    down = random.random() < 0.5
    order = (
        (OrderTerm(1, down),)
        if ranged
        else random.choice([(), (OrderTerm(1, down),), (OrderTerm(1), OrderTerm(2, down))])
    )
    calls = [typed(random.choice(RANKS))]
    for _ in range(3):
        function = random.choice(FRAMED)
        call = typed(function)
        calls.append(
            WindowCall(function, call.argument, call.type, drawn_frame(random, ranged=ranged), random.randrange(1, 4))
        )
    lag = random.choice((WindowFunction.LAG, WindowFunction.LEAD))
    calls.append(WindowCall(lag, 2, BIGINT, number=random.randrange(3), default=random.choice((None, 1))))
    calls.append(WindowCall(WindowFunction.NTILE, None, BIGINT, number=random.randrange(1, 5)))
    return Over(random.choice([(), (0,)]), order, tuple(calls))


def drawn_row(random: Random, *, down: bool) -> Row:
    value = random.choice((None, *range(8)))
    far = random.randrange(3)
    low, high = (None, None) if value is None else (value - far, value + far)
    # How far a frame reaches is the same for all rows: 1 here, so that bounds go forth with the rows.
    low, high = (None, None) if value is None else (value - 1, value + 1)
    return (random.randrange(2), value, random.choice((None, 0, 1, 2, 5)), high if down else low, low if down else high)


@pytest.mark.parametrize("seed", range(150))
def test_a_partition_kept_up_to_date_has_what_the_definition_gives(seed: int) -> None:
    random = Random(seed)
    operator = drawn(random)
    down = bool(operator.order) and operator.order[0].descending
    index = OverIndex(operator.partition, False, OverOperator(operator, PARENT).windows)
    held: Counter[Row] = Counter()
    shown: Counter[Row] = Counter()
    for _ in range(25):
        deltas: list[Delta] = [(drawn_row(random, down=down), 1) for _ in range(random.choice((1, 1, 2, 12)))]
        leaving = random.sample(sorted(held.elements(), key=repr), min(held.total(), random.choice((0, 1, 2, 9))))
        deltas += [(row, -1) for row in leaving]
        random.shuffle(deltas)
        for row, weight in consolidate(deltas):
            held[row] += weight
        held = +held
        for row, weight in index.apply(deltas):
            shown[row] += weight
        assert all(count >= 0 for count in shown.values())
        shown = +shown
        assert shown == over(operator, held), operator
        assert Counter(dict(delta for key in list(index.keys()) for delta in index.get(key) or ())) == shown
    for key in list(index.keys()):
        index.evict(key)
    assert index.bytes == 0


COST = 2000


@pytest.mark.parametrize(
    ("call", "place", "said", "added"),
    [
        (WindowCall(WindowFunction.ROW_NUMBER, None, BIGINT), COST, 1, 0),
        (WindowCall(WindowFunction.SUM, 2, BIGINT), COST, 1, 1),
        (WindowCall(WindowFunction.SUM, 2, BIGINT), 0, 2 * COST + 1, COST + 1),
        (WindowCall(WindowFunction.MAX, 2, BIGINT), COST // 2, 1, 2),
        (WindowCall(WindowFunction.SUM, 2, BIGINT, Frame(True, FrameBound(BoundKind.PRECEDING, 2))), COST // 2, 5, 5),
        (WindowCall(WindowFunction.LAG, 2, BIGINT), COST // 2, 3, 0),
        (
            WindowCall(
                WindowFunction.SUM,
                2,
                BIGINT,
                Frame(False, FrameBound(BoundKind.CURRENT_ROW), FrameBound(BoundKind.UNBOUNDED_FOLLOWING)),
            ),
            0,
            1,
            1,
        ),
        (
            WindowCall(WindowFunction.MAX, 2, BIGINT, Frame(False, end=FrameBound(BoundKind.UNBOUNDED_FOLLOWING))),
            COST // 2,
            1,
            0,
        ),
    ],
)
def test_a_row_costs_what_it_can_change(
    call: WindowCall, place: int, said: int, added: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``said``: deltas of the output; ``added``: rows that go into sums (those that leave a frame are not counted)."""
    operator = Over((0,), (OrderTerm(1),), (call,))
    index = OverIndex((0,), False, OverOperator(operator, PARENT).windows)
    index.apply([((0, 2 * at, at + 1, None, None), 1) for at in range(COST)])
    adds = []
    for fold in (SumFold, ExtremumFold):

        def counted(self: Fold, state: object, row: Row, weight: int, add: Callable[..., object] = fold.add) -> object:
            adds.extend([row] * (weight > 0))
            return add(self, state, row, weight)

        monkeypatch.setattr(fold, "add", counted)
    output = index.apply([((0, 2 * place - 1, 1, None, None), 1)])
    assert (len(output), len(adds)) == (said, added)
