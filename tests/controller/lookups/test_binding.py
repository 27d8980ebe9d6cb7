"""Parameters bound to a view's key: compared as on the number line, and whole numbers the short way."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from itertools import product
from operator import eq, ge, gt, le, lt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.embedded.local import LocalDeployment
from controller.lookups.binding import Binding
from domains.errors import BadRequest, HeadraceError, TypeViolation
from domains.language.types import BIGINT, DATE, Kind, SqlType, Value, decimal_type
from domains.plan.graph import Parameter, ParameterKind, Reader
from worker.reader_map import BoundLookup

COMPARISONS = {
    ParameterKind.EQUAL: eq,
    ParameterKind.LESS: lt,
    ParameterKind.LESS_EQUAL: le,
    ParameterKind.GREATER: gt,
    ParameterKind.GREATER_EQUAL: ge,
}
TINYINT = SqlType(Kind.INTEGER, "TINYINT", low=-128, high=127)
CENTS = SqlType(Kind.DECIMAL, "DECIMAL(3,2)", length=3, scale=2)
WHOLE = decimal_type(0)
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    300,
    2**64,
    -(2**70),
    0.5,
    1.0,
    "1.00",
    "-0.5",
    "1.005",
    "-1.005",
    "1e3",
    "1e-400",
    "-1e-400",
]
NUMBERS += [Decimal("0.999"), Decimal("1E+70"), "-1e80", "1e999999999", "-1e999999999", True]
COLUMN_VALUES: dict[SqlType, list[Value]] = {
    TINYINT: [-128, -2, -1, 0, 1, 2, 127],
    WHOLE: [Decimal(value) for value in (-(10**64), -2, -1, 0, 1, 2, 10**64)],
    CENTS: [Decimal(value) for value in ("-9.99", "-1.01", "-1.00", "-0.01", "0.00", "0.99", "1.00", "1.01", "9.99")],
}


def holds(bound: BoundLookup, value: Value) -> bool:
    """Whether a look-up in a full view, whose parameters are no key, takes a row with this value."""
    if not bound.keys:
        return False
    ((sought),) = bound.seeks
    if sought:
        return sought[0] == value
    above = bound.low is None or bound.low[0] < value or (bound.low[0] == value and bound.low[1])  # type: ignore[operator]
    below = bound.high is None or value < bound.high[0] or (bound.high[0] == value and bound.high[1])  # type: ignore[operator]
    return above and below


def binding(kind: ParameterKind, type: SqlType) -> Binding:
    parameters = (Parameter("x", kind, 0, type),)
    return Binding("v", Reader("v", (), (0,), (), 1, parameters), parameters)


def exactly(given: Any) -> Decimal:
    return Decimal(int(given)) if isinstance(given, int) else Decimal(str(given))


@pytest.mark.parametrize("type", COLUMN_VALUES, ids=str)
@pytest.mark.parametrize("kind", COMPARISONS)
def test_numbers_compare_as_on_the_number_line(kind: ParameterKind, type: SqlType) -> None:
    bind = binding(kind, type)
    for asked, value in product(NUMBERS, COLUMN_VALUES[type]):
        expected = COMPARISONS[kind](exactly(value), exactly(asked))
        assert holds(bind.from_json([asked]), value) == expected, (value, kind, asked)
        if isinstance(asked, str):
            assert holds(bind.from_text({"x": [asked]}), value) == expected, (value, kind, asked)


@pytest.mark.parametrize("kind", COMPARISONS)
def test_a_day_compares_with_a_time_as_its_midnight(kind: ParameterKind) -> None:
    bind = binding(kind, DATE)
    for asked in ("2026-01-31", "2026-01-31 00:00:00", "2026-01-31 08:00:00", "2026-01-31T00:00:00.000001"):
        for day in ("2026-01-30", "2026-01-31", "2026-02-01"):
            expected = COMPARISONS[kind](datetime.fromisoformat(day), datetime.fromisoformat(asked))
            assert holds(bind.from_json([asked]), day) == expected, (day, kind, asked)


def test_of_an_in_list_what_cannot_be_equal_drops_out() -> None:
    parameters = (Parameter("id", ParameterKind.IN, 0, TINYINT),)
    bind = Binding("v", Reader("v", (0,), (), (), 1, parameters), parameters)
    assert bind.from_json([[1, 1.5, "7", 99999, None]]).keys == ((1,), (7,), (99999,))
    assert bind.from_text({"id": ["1.5"]}).keys == ()


def test_a_parameter_that_is_named_in_two_cases() -> None:
    """The last one alone was taken."""
    parameters = (Parameter("id", ParameterKind.IN, 0, TINYINT),)
    bind = Binding("v", Reader("v", (0,), (), (), 1, parameters), parameters)
    assert bind.from_text({"id": ["7"], "ID": ["8"]}).keys == ((7,), (8,))
    with pytest.raises(BadRequest, match="twice"):
        bind.from_json({"id": 7, "ID": 8})


@pytest.mark.parametrize("asked", ["x", "", "1,5", float("nan"), float("inf"), [1], b"\xff"])
@pytest.mark.parametrize("type", COLUMN_VALUES, ids=str)
def test_what_is_no_number_is_refused(type: SqlType, asked: Any) -> None:
    with pytest.raises((TypeViolation, BadRequest)) as caught:
        binding(ParameterKind.EQUAL, type).from_arguments([(asked,)])
    assert "x" in caught.value.message


@pytest.mark.parametrize("asked", [-1, 1.5, None, 2**63, "1e400"])
def test_limit_is_a_whole_number(asked: Any) -> None:
    parameters = (Parameter("limit", ParameterKind.LIMIT, None, BIGINT),)
    bind = Binding("v", Reader("v", (), (), (), 1, parameters), parameters)
    assert bind.from_json(["3"]).limit == 3
    with pytest.raises(BadRequest, match="whole number"):
        bind.from_json([asked])


async def test_look_ups_of_what_fits_no_column(tmp_path: Any) -> None:
    """As the campaign found it: ROUND to no digits is DECIMAL(65,0), and is compared with 1.25."""
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, price DECIMAL(8,2), day DATE);"
            "CREATE EXT VIEW above AS SELECT id FROM (SELECT id, ROUND(price, 0) AS whole FROM t) AS r WHERE whole > ?;"
            "CREATE EXT VIEW by_id AS SELECT id FROM t WHERE id = ?;"
            "CREATE EXT VIEW by_day AS SELECT id FROM t WHERE day = ?;"
            "CREATE EXT VIEW summed AS SELECT SUM(id) AS n FROM t WHERE id = ? LIMIT ?;"
            "INSERT INTO t VALUES (1, 0.90, '2026-01-31'), (2, 1.60, '2026-01-31')"
        )
        assert await deployment.pages("above", [["1.25"], [0.5], [2]]) == [b'{"id":2}', b'{"id":1},{"id":2}', b""]
        assert await deployment.pages("by_id", [[1.0], [1.5], [2**70]]) == [b'{"id":1}', b"", b""]
        assert await deployment.pages("summed", [[None, 1], [None, 0], [3, 0]]) == [b'{"n":null}', b"", b""]
        assert await deployment.pages("by_day", [["2026-01-31 08:00:00"]]) == [b""]
    finally:
        await deployment.close()


# --- keys that are whole numbers ----------------------------------------------------------------------------------


VALUES = st.one_of(
    st.integers(-130, 130), st.sampled_from([None, True, 1.0, 1.5, "1", "-3", 2**63, -(2**70)]), st.integers(0, 3)
)
KEYS = st.tuples(*[st.one_of(VALUES, st.lists(VALUES, max_size=4))] * 2)


def bindings() -> list[Binding]:
    equal = Parameter("user_id", ParameterKind.EQUAL, 1, TINYINT)
    many = Parameter("story_id", ParameterKind.IN, 0, BIGINT)
    return [Binding("v", keyed(0, 1), [equal, many]), Binding("v", keyed(1, 0), [many, equal])]


def keyed(*key: int) -> Reader:
    return Reader("v", key, seek=(), order=(), visible=2)


def said(bind: Any, given: Any) -> Any:
    try:
        return bind(given)
    except HeadraceError as error:
        return error.code, error.message


@given(KEYS)
def test_the_short_way_is_the_general_one(key: Any) -> None:
    for binding in bindings():
        assert binding.integers
        given = [list(value) if isinstance(value, list) else [value] for value in key]
        assert said(binding._bind, given) == said(binding._bind_any, given)


def test_what_is_no_key_alone_goes_the_general_way() -> None:
    later = Parameter("story_id", ParameterKind.GREATER, 0, BIGINT)
    equal = Parameter("story_id", ParameterKind.EQUAL, 0, BIGINT)
    for parameters in ([equal, later], [later], [equal, equal]):
        assert not Binding("v", keyed(0), parameters).integers
    with pytest.raises(BadRequest, match="takes one value"):
        Binding("v", keyed(0), [equal]).from_json([[1, 2]])
