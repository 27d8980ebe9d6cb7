"""Comparison, three-valued logic, choice and CAST, with the results of the MySQL 8 manual."""

from itertools import product

import pytest
from scalar_cases import Day, Moment, agreed, dec, evaluate

from domains.language.expressions import Constant, Field
from domains.language.functions import UNSIGNED, call, common_type, comparison_type, result_type
from domains.language.types import (
    BIGINT,
    BLOB,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    NULL,
    TEXT,
    Kind,
    SqlType,
    Value,
    decimal_type,
)

COMPARISONS = [
    ("eq", (1, 0), 0),
    ("eq", ("0", 0), 1),
    ("eq", ("0.0", 0), 1),
    ("eq", ("0.01", 0), 0),
    ("eq", (".01", dec("0.01")), 1),
    ("eq", ("abc", 0), 1),
    ("eq", ("a", "A"), 0),
    ("eq", ("a", "a "), 0),
    ("eq", (dec("1.0"), 1), 1),
    ("eq", (dec("0.1"), 0.1), 1),
    ("eq", (2**53 + 1, float(2**53)), 1),
    ("eq", (2**53 + 1, str(2**53 + 1)), 1),
    ("eq", (2**53 + 1, str(2**53)), 0),
    ("lt", (2**53, b"9007199254740993"), 1),
    ("eq", (2**53, "9007199254740992.0000000000000000000000000000000000001"), 0),
    ("lt", (2**64, "1e999999999999999999999"), 1),
    ("gt", (-(2**64), "-1e999999999999999999999"), 1),
    ("eq", (0, "-1e-999999999999999999999"), 1),
    ("eq", (0, "0e999999999999999999999"), 1),
    ("eq", (dec("0.1"), "0.1000000000000000055"), 0),
    ("eq", (Moment("2026-01-31 00:00:00"), 20260131), 1),
    ("eq", (Moment("2026-01-31 08:00:00.5"), 20260131080000), 0),
    ("eq", (Moment("2026-01-31 08:00:00.5"), dec("20260131080000.5")), 1),
    ("lt", (Day("2026-02-01"), 20260131080000), 0),
    ("lt", (Day("2026-01-31"), 20260131080000), 1),
    ("lt", (Day("2026-01-31"), 20260199.0), 1),
    ("gt", (Day("0001-01-01"), 0), 1),
    ("eq", (None, None), None),
    ("eq", (None, 1), None),
    ("eq", (b"abc", "abc"), 1),
    ("eq", (Day("2026-01-31"), "2026-1-31"), 1),
    ("eq", (Day("2026-01-31"), "2026-01-31 00:00:01"), 0),
    ("eq", (Day("2026-01-31"), Moment("2026-01-31 00:00:00")), 1),
    ("eq", (Day("2026-01-31"), 20260131), 1),
    ("eq", (Day("2026-01-31"), "nonsense"), None),
    ("lt", (Moment("2026-01-31 08:00:00"), "2026-01-31T08:00:00.5"), 1),
    ("ne", (".01", "0.01"), 1),
    ("ne", (dec("0.01"), "0.01"), 0),
    ("lt", (2, 2), 0),
    ("le", (2, 2), 1),
    ("gt", ("b", "B"), 1),
    ("gt", (10, "9"), 1),
    ("gt", ("10", "9"), 0),
    ("ge", (dec("2.50"), 2), 1),
    ("lt", (None, 1), None),
    ("null_safe_eq", (1, 1), 1),
    ("null_safe_eq", (None, None), 1),
    ("null_safe_eq", (1, None), 0),
    ("null_safe_eq", ("1", 1), 1),
    ("between", (2, 1, 3), 1),
    ("between", (2, 3, 1), 0),
    ("between", ("b", "a", "c"), 1),
    ("between", (2, 2, "3"), 1),
    ("between", (2, None, 3), None),
    ("between", (4, None, 3), 0),
    ("between", (None, 1, 3), None),
    ("in", (2, 0, 3, 5, 7), 0),
    ("in", (5, 0, 3, 5, 7), 1),
    ("in", ("wefwf", "wee", "wefwf", "weg"), 1),
    ("in", (2, None, 3), None),
    ("in", (2, None, 2), 1),
    ("in", (None, 1, 2), None),
    ("in", (2, "2", dec("3.00")), 1),
    ("in", (2, 1, dec("2.00")), 1),
    ("in", ("2", 1, 2), 1),
    ("in", (dec("2.50"), 2.5), 1),
    ("in", (Day("2026-01-31"), "2026-01-31", "2026-02-01 10:00:00"), 1),
    ("in", (Day("2026-01-31"), "2026-02-31", "2026-02-01"), None),
]

CHOICES = [
    ("if", (1, 2, 3), 2),
    ("if", (0, 2, 3), 3),
    ("if", (None, "yes", "no"), "no"),
    ("if", ("abc", "yes", "no"), "no"),
    ("if", ("1abc", "yes", "no"), "yes"),
    ("if", (0.4, "yes", "no"), "yes"),
    ("if", (dec("0.0"), "yes", "no"), "no"),
    ("if", (Day("2026-01-31"), "yes", "no"), "yes"),
    ("if", (1, 1, dec("2.50")), dec("1.00")),
    ("if", (1, 1, 2.5), 1.0),
    ("if", (1, 1, "x"), "1"),
    ("if", (1, 1.0, "x"), "1"),
    ("if", (1, Day("2026-01-31"), Moment("2026-01-31 08:00:00")), "2026-01-31 00:00:00"),
    ("if", (1, Day("2026-01-31"), 1), "2026-01-31"),
    ("if", (1, 1, b"x"), b"1"),
    ("case", (0, "a", 1, "b", "c"), "b"),
    ("case", (0, "a", None, "b", "c"), "c"),
    ("case", (0, "a"), None),
    ("case", (1, None, 2), None),
    ("coalesce", (None, 1), 1),
    ("coalesce", (None, None, None), None),
    ("coalesce", (1, dec("2.50")), dec("1.00")),
    ("coalesce", (None, None, dec("2.50"), 1), dec("2.50")),
    ("coalesce", ("x", 1), "x"),
    ("ifnull", (1, 0), 1),
    ("ifnull", (None, 10), 10),
    ("ifnull", (1, "yes"), "1"),
    ("nullif", (1, 1), None),
    ("nullif", (1, 2), 1),
    ("nullif", (1, None), 1),
    ("nullif", (None, 1), None),
    ("nullif", ("a", 0), None),
    ("greatest", (2, 0), 2),
    ("greatest", (34.0, 3, 5, 767), 767.0),
    ("greatest", ("B", "A", "C"), "C"),
    ("greatest", (1, None), None),
    ("greatest", (10, "9"), "9"),
    ("least", (2, dec("0.5")), dec("0.5")),
    ("least", (Day("2026-01-31"), Moment("2026-01-31 08:00:00")), "2026-01-31 00:00:00"),
]

SHORT = SqlType(Kind.TEXT, "CHAR(3)", length=3)
TINY = SqlType(Kind.INTEGER, "TINYINT", low=-128, high=127)
TWO = decimal_type(2)
NARROW = SqlType(Kind.DECIMAL, "DECIMAL(4,1)", length=4, scale=1)
WIDE = SqlType(Kind.DECIMAL, "DECIMAL(65,30)", length=65, scale=30)

CASTS = [
    ("12abc", BIGINT, 12),
    ("  -12.9", BIGINT, -12),
    ("", BIGINT, 0),
    ("9" * 5000, BIGINT, 2**63 - 1),
    (dec("1.5"), BIGINT, 2),
    (dec("-1.5"), BIGINT, -2),
    (2.5, BIGINT, 2),
    (1e30, BIGINT, 2**63 - 1),
    (-1, UNSIGNED, 2**64 - 1),
    ("-5", UNSIGNED, 2**64 - 5),
    (2**64 - 1, BIGINT, -1),
    (300, TINY, 127),
    (Day("2026-01-31"), BIGINT, 20260131),
    (1, DOUBLE, 1.0),
    ("1e400", DOUBLE, 1.7976931348623157e308),
    (dec("1.25"), DOUBLE, 1.25),
    (1, TWO, dec("1.00")),
    ("1.005", TWO, dec("1.01")),
    (1.005, TWO, dec("1.01")),
    (dec("-0.001"), TWO, dec("0.00")),
    ("abc", TWO, dec("0.00")),
    (b"1.5", TWO, dec("1.50")),
    (Day("2026-01-31"), TWO, dec("20260131.00")),
    (1e300, TWO, dec("9" * 65 + ".00")),
    (1234, NARROW, dec("999.9")),
    (-1e300, WIDE, dec("-" + "9" * 35 + "." + "9" * 30)),
    (dec("-1234.56"), NARROW, dec("-999.9")),
    ("abcdef", SHORT, "abc"),
    (1.5, TEXT, "1.5"),
    (dec("1E+3").quantize(dec("1")), TEXT, "1000"),
    (b"\xff", TEXT, None),
    ("é", BLOB, "é".encode()),
    (12, BLOB, b"12"),
    ("2026-01-31 08:00:00", DATE, "2026-01-31"),
    ("2026-01-31", DATETIME, "2026-01-31 00:00:00"),
    (20260131080000, DATETIME, "2026-01-31 08:00:00"),
    (20260131.0, DATE, "2026-01-31"),
    (b"2026-01-31", DATE, "2026-01-31"),
    ("31.01.2026", DATE, None),
    (Moment("2026-01-31 08:00:00.500000"), DATE, "2026-01-31"),
    (None, DATE, None),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), COMPARISONS + CHOICES)
def test_result(name: str, arguments: tuple[Value, ...], expected: Value) -> None:
    result = evaluate(name, *arguments)
    assert (result, str(result), result.__class__) == (expected, str(expected), plain_class(expected))


def plain_class(value: Value) -> type:
    return str if isinstance(value, str) else type(value)


@pytest.mark.parametrize(("value", "target", "expected"), CASTS)
def test_cast(value: Value, target: SqlType, expected: Value) -> None:
    result = evaluate("cast", value, type=target)
    assert (result, str(result)) == (expected, str(expected))


# --- truth tables ---------------------------------------------------------------------------------------------------

KLEENE = {None: 0.5, 0: 0.0, 1: 1.0}
TRUTHS: dict[float, int | None] = {truth: value for value, truth in KLEENE.items()}


@pytest.mark.parametrize(("x", "y"), list(product((1, 0, None), repeat=2)))
def test_three_valued_logic(x: int | None, y: int | None) -> None:
    a, b = KLEENE[x], KLEENE[y]
    assert evaluate("and", x, y) == TRUTHS[min(a, b)]
    assert evaluate("or", x, y) == TRUTHS[max(a, b)]
    assert evaluate("not", x) == TRUTHS[1 - a]
    assert evaluate("xor", x, y) == (None if None in (x, y) else int(x != y))
    assert evaluate("is_null", x) == int(x is None)
    assert evaluate("is_not_null", x) == int(x is not None)
    assert evaluate("is_true", x) == int(x == 1)
    assert evaluate("is_false", x) == int(x == 0)


@pytest.mark.parametrize("values", list(product((1, 0, None), repeat=4)))
def test_nested_chains(values: tuple[int | None, ...]) -> None:
    """However a condition is nested, every form of it agrees with the value computed step by step."""
    a, b, c, d = (Field(i, BOOL) for i in range(4))
    x, y, z, w = (KLEENE[v] for v in values)
    inner = call("and", call("or", a, call("not", b)), call("and", c, d))
    assert agreed(inner, values) == TRUTHS[min(max(x, 1 - y), z, w)]
    outer = call("not", call("or", inner, call("or", a, d)))
    assert agreed(outer, values) == TRUTHS[1 - max(min(max(x, 1 - y), z, w), x, w)]
    with_constant = call("or", a, call("and", b, Constant(None, NULL)), Constant(0, BOOL))
    assert agreed(with_constant, values) == TRUTHS[max(x, min(y, 0.5))]


@pytest.mark.parametrize("values", list(product((1, 2, None), repeat=3)))
def test_membership_among_columns(values: tuple[int | None, ...]) -> None:
    """``x IN (y, z, 1)`` is ``x = y OR x = z OR x = 1``, and NOT IN its negation."""
    x, y, z = (Field(i, BIGINT) for i in range(3))
    one = Constant(1, BIGINT)
    member = call("in", x, y, one, z)
    spelt = call("or", call("eq", x, y), call("eq", x, z), call("eq", x, one))
    assert agreed(member, values) == agreed(spelt, values)
    computed = call("in", call("add", x, one), y, one, z)
    spelt = call("or", *(call("eq", call("add", x, one), other) for other in (y, z, one)))
    assert agreed(computed, values) == agreed(spelt, values)


@pytest.mark.parametrize("chain", ["and", "or"])
def test_what_a_chain_comes_to_may_be_null(chain: str) -> None:
    """It is written as a call of something bound by name, as constants are, which are never NULL."""
    unknown = call(chain, Field(0, BIGINT), Field(1, BIGINT))
    for choice in ("coalesce", "ifnull"):
        assert agreed(call(choice, unknown, Constant(7, BIGINT)), (None, None)) == 7
    assert agreed(call("eq", unknown, call(chain, Field(1, BIGINT), Field(0, BIGINT))), (None, None)) is None


# --- types ----------------------------------------------------------------------------------------------------------


def test_common_type() -> None:
    assert common_type(()) == NULL
    assert common_type((NULL, NULL)) == NULL
    assert common_type((NULL, SHORT)) == SHORT
    assert common_type((BOOL, BOOL)) == BOOL
    assert common_type((BOOL, BIGINT)) == BIGINT
    assert common_type((TWO, BIGINT, decimal_type(4))) == decimal_type(4)
    assert common_type((TWO, DOUBLE, NULL)) == DOUBLE
    assert common_type((DATE, DATETIME)) == DATETIME
    assert common_type((DATE, BIGINT)) == TEXT
    assert common_type((SHORT, TEXT)) == TEXT
    assert common_type((BLOB, TEXT)) == BLOB


def test_comparison_type() -> None:
    assert comparison_type(TEXT, DOUBLE) == DOUBLE
    assert comparison_type(TEXT, TWO) == decimal_type(30)
    assert comparison_type(BIGINT, TWO) == TWO
    assert comparison_type(DATE, TEXT) == DATETIME
    assert comparison_type(DATE, DATETIME) == DATETIME
    assert comparison_type(DATE, BIGINT) == BIGINT
    assert comparison_type(BLOB, TEXT) == BLOB
    assert comparison_type(NULL, DATE) == DATE


def test_types_of_choices() -> None:
    assert result_type("case", (BOOL, BIGINT, BOOL, TWO, NULL)) == TWO
    assert result_type("case", (BOOL, BIGINT)) == BIGINT
    assert result_type("if", (TEXT, BIGINT, BIGINT)) == BIGINT
    assert result_type("nullif", (SHORT, BIGINT)) == SHORT
    assert result_type("eq", (TEXT, BIGINT)) == BOOL
