"""Compiled expressions: every form agrees, whatever the tree; and the tree's own questions and rewritings."""

from decimal import Decimal

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scalar_cases import agreed, evaluate, is_canonical

from domains.errors import HeadraceError, TypeViolation, Unsupported
from domains.language.compile import (
    compile_expression,
    compile_filter_batch,
    compile_predicate,
    compile_project_batch,
    describe,
    fields_of,
    fold,
    is_constant,
    remap,
)
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import FUNCTIONS, call
from domains.language.functions.temporal.intervals import COMPOUND
from domains.language.rewriting import FoldBudget, emitter
from domains.language.types import (
    BIGINT,
    BLOB,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    NULL,
    TEXT,
    Delta,
    Row,
    SqlType,
    Value,
    decimal_type,
)

ID, TITLE = Field(0, BIGINT), Field(1, TEXT)


def number(value: int) -> Constant:
    return Constant(value, BIGINT)


def text(value: str) -> Constant:
    return Constant(value, TEXT)


def source_of(e: Expression) -> str:
    """The Python that an expression becomes."""
    return emitter().value(e)


# --- the shape of the generated code --------------------------------------------------------------------------------


def test_plain_comparisons_are_written_in_place() -> None:
    assert source_of(Field(3, BIGINT)) == "r[3]"
    assert source_of(call("add", ID, number(1))) == "(None if r[0] is None else r[0] + k0)"
    assert source_of(call("is_null", ID)) == "(1 if (r[0] is None) else 0)"


def test_nothing_of_the_users_stands_in_the_source() -> None:
    hostile = "'); import os; ('"
    for e in (
        call("concat", TITLE, text(hostile)),
        call("eq", TITLE, text(hostile)),
        call("like", TITLE, text(hostile)),
    ):
        assert "import" not in source_of(e)
    assert compile_expression(call("concat", TITLE, text(hostile)))((1, "x")) == "x" + hostile


def test_equal_expressions_share_a_function() -> None:
    assert compile_expression(call("add", ID, number(1))) is compile_expression(call("add", ID, number(1)))
    assert compile_filter_batch(call("eq", ID, number(1))) is compile_filter_batch(call("eq", ID, number(1)))
    assert compile_project_batch([ID]) is compile_project_batch((ID,))


def test_projection_shapes() -> None:
    row = (7, "a", None)
    batch: list[Delta] = [(row, 2), ((8, "b", None), -1)]
    assert compile_project_batch([TITLE])(batch) == [(("a",), 2), (("b",), -1)]
    computed = [ID, call("add", ID, number(1)), Constant(None, NULL)]
    assert compile_project_batch(computed)(batch) == [((7, 8, None), 2), ((8, 9, None), -1)]
    assert compile_project_batch([TITLE, ID])(batch) == [(("a", 7), 2), (("b", 8), -1)]
    assert compile_project_batch([])(batch) == [((), 2), ((), -1)]


def test_a_declared_type_is_kept() -> None:
    """Where a call declares another type than its own, the value is converted to it."""
    assert compile_expression(Call("add", (ID, ID), decimal_type(2)))((1,)) == Decimal("2.00")
    assert str(compile_expression(Call("add", (ID, ID), decimal_type(2)))((1,))) == "2.00"
    assert compile_expression(Call("eq", (ID, ID), TEXT))((1,)) == "1"


def test_unknown_functions_are_refused_when_compiled() -> None:
    with pytest.raises(Unsupported, match='"frobnicate"'):
        compile_expression(Call("frobnicate", (ID,), BIGINT))
    with pytest.raises(TypeViolation, match='"add" takes 2 arguments'):
        compile_predicate(Call("add", (ID,), BIGINT))


@pytest.mark.parametrize("depth", [11, 12, 13, 50, 300])
def test_deep_expressions(depth: int) -> None:
    e: Expression = ID
    for i in range(depth):
        e = call("add", e, number(i % 3)) if i % 2 else call("subtract", number(0), call("negate", e))
    expected = sum(i % 3 for i in range(1, depth, 2))
    assert agreed(e, (5,)) == 5 + expected
    assert agreed(e, (None,)) is None


@pytest.mark.parametrize("name", ["or", "and"])
def test_long_chains(name: str) -> None:
    """A chain of 400 conditions, nested to one side as a parser nests it."""
    e: Expression = call("eq", ID, number(0))
    for i in range(1, 400):
        e = call(name, e, call("eq" if name == "or" else "ne", ID, number(i)))
    assert agreed(e, (399,)) == (1 if name == "or" else 0)
    assert agreed(e, (400,)) == 0
    assert agreed(e, (None,)) is None


def test_a_long_case() -> None:
    branches = [part for i in range(1000) for part in (call("eq", ID, number(i)), text(f"v{i}"))]
    e = call("case", *branches, text("else"))
    assert [agreed(e, (i,)) for i in (0, 23, 24, 999, 1000, None)] == ["v0", "v23", "v24", "v999", "else", "else"]
    without_else = call("case", *branches)
    assert [agreed(without_else, (i,)) for i in (0, 47, 999, 1000)] == ["v0", "v47", "v999", None]


def test_arguments_that_are_used_twice_are_evaluated_once() -> None:
    computed = call("modulo", ID, number(10))
    e = call("between", computed, call("between", computed, number(0), number(1)), number(5))
    assert agreed(e, (13,)) == 1
    assert agreed(e, (17,)) == 0
    assert source_of(call("between", computed, number(1), number(5))).count("r[0]") == 2


# --- every form agrees, for any tree --------------------------------------------------------------------------------

TYPES = (BIGINT, BOOL, DOUBLE, decimal_type(0), decimal_type(3), TEXT, BLOB, DATE, DATETIME, NULL)
COLUMNS = [Field(i, declared) for i, declared in enumerate(TYPES)]

TEXTS = st.one_of(
    st.sampled_from(["", "abc", "12", "-3.5x", "2026-01-31", "2026-02-30", "2026-01-31T08:00:00Z", "%a_", "a%", "é(["]),
    st.text(max_size=6).filter(lambda s: s.isprintable()),
)
VALUES: dict[SqlType, st.SearchStrategy[Value]] = {
    BIGINT: st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)),
    BOOL: st.integers(0, 1),
    DOUBLE: st.one_of(
        st.sampled_from([0.0, 1.0, -2.5, 1e300]),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    ),
    decimal_type(0): st.integers(-50, 50).map(Decimal),
    decimal_type(3): st.integers(-(10**20), 10**20).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -3))
    ),
    TEXT: TEXTS,
    BLOB: st.binary(max_size=4),
    DATE: st.dates().map(str),
    DATETIME: st.datetimes().map(str),
    NULL: st.none(),
}
ROWS = st.tuples(*(st.one_of(st.none(), VALUES[declared]) for declared in TYPES))
CONSTANTS = st.one_of(*(values.map(lambda v, t=declared: Constant(v, t)) for declared, values in VALUES.items()))
UNITS = st.sampled_from(["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"]).map(text)
COMPOUND_UNITS = st.sampled_from(sorted(COMPOUND)).map(text)
CAST_TARGETS = (BIGINT, BOOL, DOUBLE, decimal_type(2), TEXT, BLOB, DATE, DATETIME, SqlType(TEXT.kind, "CHAR(2)", 2))
RETURNED = (BIGINT, DOUBLE, decimal_type(2), TEXT, DATE, DATETIME)


PAIRED = ("json_array_append", "json_array_insert", "json_insert", "json_object", "json_replace", "json_set")
"""Functions that take two further arguments at a time."""


@st.composite
def calls(draw: st.DrawFn, below: st.SearchStrategy[Expression]) -> Expression:
    # COLLATE of a constant stays what it is: fold() would not end in a constant.
    name = draw(st.sampled_from(sorted(FUNCTIONS.keys() - {"collate"})))
    if name in ("cast", "equal_to"):
        return call(name, draw(below), type=draw(st.sampled_from(CAST_TARGETS)))
    least, most = FUNCTIONS[name].arity
    count = draw(st.integers(least, least + 3 if most is None else most))
    if name in PAIRED:
        count += (count - least) % 2
    arguments = [draw(below) for _ in range(count)]
    if name in ("date_add", "date_sub"):
        arguments[2] = draw(st.one_of(UNITS, COMPOUND_UNITS))
    elif name == "timestampdiff":
        arguments[0] = draw(UNITS)
    elif name == "extract":
        arguments[0] = draw(COMPOUND_UNITS)
    elif name == "char":
        arguments[0] = text(draw(st.sampled_from(["", "utf8mb4", "utf16"])))
    elif name == "json_value_as":  # For an empty document, and one that does not fit: of the type that is returned.
        arguments[2:] = [Constant(None, draw(st.sampled_from(RETURNED)))] * 2
    try:
        return call(name, *arguments)
    except HeadraceError:  # A pattern that is no regular expression is refused where it is planned.
        reject()


LEAVES: st.SearchStrategy[Expression] = st.one_of(st.sampled_from(COLUMNS), CONSTANTS)
EXPRESSIONS = st.recursive(LEAVES, calls, max_leaves=8)


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, ROWS)
def test_every_form_agrees(e: Expression, row: Row) -> None:
    """Value, truth, falsity, batches and folding give one answer, of the declared type, and nothing raises."""
    value = agreed(e, row)
    constants: list[Expression] = [Constant(v, declared) for v, declared in zip(row, TYPES, strict=True)]
    folded = fold(substituted(e, constants), FoldBudget(bytes=1 << 40))
    assert isinstance(folded, Constant)
    assert is_canonical(folded.value, e.type)
    assert str(folded.value) == str(value)


def substituted(e: Expression, values: list[Expression]) -> Expression:
    if isinstance(e, Field):
        return values[e.position]
    if isinstance(e, Call):
        return Call(e.function, tuple(substituted(a, values) for a in e.arguments), e.type)
    return e


def test_a_key_of_an_object_that_is_null_is_null_as_a_constant_too() -> None:
    """`test_every_form_agrees` found a constant key NULL written as "null"."""
    by_column = call("json_object", ID, number(1))
    folded = fold(substituted(by_column, [Constant(None, BIGINT)]), FoldBudget(bytes=1 << 10))
    assert folded == Constant(None, by_column.type)
    assert agreed(by_column, (None,)) is None


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.lists(st.tuples(ROWS, st.integers(-3, 3)), max_size=6))
def test_a_batch_is_its_rows(e: Expression, batch: list[Delta]) -> None:
    is_true, value = compile_predicate(e), compile_expression(e)
    assert compile_filter_batch(e)(batch) == [d for d in batch if is_true(d[0])]
    assert compile_project_batch([COLUMNS[0], e])(batch) == [((row[0], value(row)), weight) for row, weight in batch]


# --- the tree -------------------------------------------------------------------------------------------------------


def test_fields_and_remap() -> None:
    e = call("and", call("eq", Field(2, BIGINT), number(7)), call("like", Field(5, TEXT), text("a%")))
    assert fields_of(e) == {2, 5}
    moved = remap(e, {2: 0, 5: 1})
    assert fields_of(moved) == {0, 1}
    assert compile_predicate(moved)((7, "abc"))
    with pytest.raises(KeyError):
        remap(e, {2: 0})


def test_folding() -> None:
    assert fold(call("add", number(1), number(2))) == number(3)
    assert fold(call("eq", ID, call("add", number(1), number(2)))) == call("eq", ID, number(3))
    is_seven, true, false = call("eq", ID, number(7)), Constant(1, BOOL), Constant(0, BOOL)
    assert fold(call("and", is_seven, true)) == call("and", is_seven)
    assert fold(call("and", is_seven, false)) == false
    assert fold(call("or", is_seven, text("1x"))) == true
    assert fold(call("and", is_seven, Constant(None, NULL))) == call("and", is_seven, Constant(None, NULL))
    assert is_constant(call("pi"))
    assert not is_constant(is_seven)


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (call("eq", ID, number(7)), "stories.id = 7"),
        (call("in", ID, number(1), Constant(None, NULL)), "stories.id IN (1, NULL)"),
        (call("like", TITLE, text("it's%")), "title LIKE 'it''s%'"),
        (call("like", TITLE, text("a|%"), text("|")), "title LIKE 'a|%' ESCAPE '|'"),
        (call("multiply", call("add", ID, number(1)), number(2)), "(stories.id + 1) * 2"),
        (call("add", call("multiply", ID, number(2)), number(1)), "stories.id * 2 + 1"),
        (call("subtract", ID, call("subtract", ID, number(1))), "stories.id - (stories.id - 1)"),
        (call("negate", call("add", ID, ID)), "-(stories.id + stories.id)"),
        (
            call("and", call("or", call("is_null", ID), call("eq", ID, number(1))), call("not", call("is_true", ID))),
            "(stories.id IS NULL OR stories.id = 1) AND NOT stories.id IS TRUE",
        ),
        (call("not", call("and", ID, ID)), "NOT (stories.id AND stories.id)"),
        (call("eq", call("eq", ID, number(1)), Constant(0, BOOL)), "(stories.id = 1) = 0"),
        (call("between", ID, number(1), number(2)), "stories.id BETWEEN 1 AND 2"),
        (
            call("case", call("eq", ID, number(1)), text("a"), text("b")),
            "CASE WHEN stories.id = 1 THEN 'a' ELSE 'b' END",
        ),
        (call("cast", ID, type=decimal_type(2)), "CAST(stories.id AS DECIMAL(65,2))"),
        (
            call("date_add", Field(9, DATE), number(1), text("day")),
            "DATE_ADD(#9, INTERVAL 1 DAY)",
        ),
        (call("timestampdiff", text("month"), Field(9, DATE), text("x")), "TIMESTAMPDIFF(MONTH, #9, 'x')"),
        (call("concat", TITLE, Constant(b"\x01", BLOB), Constant(1.5, DOUBLE)), "CONCAT(title, x'01', 1.5)"),
    ],
)
def test_description(e: Expression, expected: str) -> None:
    assert describe(e, ["stories.id", "title"]) == expected


def test_evaluation_helper_sees_disagreement() -> None:
    """The tables rest on ``agreed``: it must not be vacuous."""
    with pytest.raises(AssertionError):
        agreed(Field(0, decimal_type(2)), (Decimal("1.5"),))
    assert evaluate("add", 1, 2) == 3
