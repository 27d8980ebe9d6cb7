"""Arithmetic, rounding and bits, with the results of the MySQL 8 manual (sections 14.6, 14.12 and 12.24)."""

import pytest
from scalar_cases import Day, Moment, dec, evaluate

from domains.errors import TypeViolation, Unsupported
from domains.language.functions import call, result_type
from domains.language.types import BIGINT, DOUBLE, TEXT, Value, decimal_type

ARITHMETIC = [
    ("add", (3, 5), 8),
    ("add", (2**62, 2**62), 2**63),
    ("add", (dec("1.50"), 1), dec("2.50")),
    ("add", (dec("1.5"), dec("0.25")), dec("1.75")),
    ("add", (1.5, 1), 2.5),
    ("add", ("1.5abc", 1), 2.5),
    ("add", ("abc", 1), 1.0),
    ("add", ("  -2e1x", 0), -20.0),
    ("add", (Day("2026-01-31"), 0), 20260131),
    ("add", (Moment("2026-01-31 08:00:00.500000"), 0), 20260131080000),
    ("add", (None, 1), None),
    ("add", (1.7e308, 1.7e308), None),
    ("add", (b"12", 1), 13.0),
    ("subtract", (3, 5), -2),
    ("subtract", (dec("1.00"), dec("1.00")), dec("0.00")),
    ("subtract", (0.0, 0.0), 0.0),
    ("multiply", (3, 5), 15),
    ("multiply", (0.0, -1), 0.0),
    ("multiply", (dec("0.00"), -1), dec("0.00")),
    ("multiply", (dec("1.10"), dec("1.10")), dec("1.2100")),
    ("multiply", (dec("-2.314"), 1.0), -2.314),
    ("multiply", (dec("0." + "1" * 20), dec("0." + "5" + "0" * 14)), dec("0.055555555555555555555000000000")),
    ("multiply", (dec("9" * 40 + ".9"), 10), dec("9" * 41 + ".0")),
    ("multiply", (2**60, 2**60), 2**120),
    ("multiply", (10**18 * 10**15, 10**32), None),
    ("multiply", (dec("9" * 60 + ".0"), dec("9" * 10 + ".0")), None),
    ("divide", (dec("9" * 60 + ".0"), dec("0." + "0" * 20 + "1")), None),
    ("int_divide", (1e300, 1e-300), None),
    ("divide", (3, 5), dec("0.6000")),
    ("divide", (102, 1), dec("102.0000")),
    ("divide", (1, 3), dec("0.3333")),
    ("divide", (-2, 3), dec("-0.6667")),
    ("divide", (-1, 100000), dec("0.0000")),
    ("divide", (dec("1.00"), 3), dec("0.333333")),
    ("divide", (1, dec("3.00")), dec("0.3333")),
    ("divide", (1.0, 4), 0.25),
    ("divide", ("3", 2), 1.5),
    ("divide", (102, 0), None),
    ("divide", (1.0, 0.0), None),
    ("divide", (dec("1.0"), dec("0.0")), None),
    ("int_divide", (5, 2), 2),
    ("int_divide", (-5, 2), -2),
    ("int_divide", (5, -2), -2),
    ("int_divide", (-5, -2), 2),
    ("int_divide", (-4, 2), -2),
    ("int_divide", (0, -2), 0),
    ("int_divide", (dec("5.5"), dec("2.0")), 2),
    ("int_divide", (7.9, 2.0), 3),
    ("int_divide", (1, 0), None),
    ("modulo", (253, 7), 1),
    ("mod", (29, 9), 2),
    ("modulo", (-7, 3), -1),
    ("modulo", (7, -3), 1),
    ("mod", (dec("34.5"), 3), dec("1.5")),
    ("mod", (dec("-4.0"), 2), dec("0.0")),
    ("mod", (34.5, 3), 1.5),
    ("mod", (1, 0), None),
    ("negate", (2,), -2),
    ("negate", (0.0,), 0.0),
    ("negate", (dec("0.00"),), dec("0.00")),
    ("negate", ("3",), -3.0),
    ("negate", (dec("1." + "0" * 28 + "1"),), dec("-1." + "0" * 28 + "1")),
]

NUMERIC = [
    ("abs", (-32,), 32),
    ("abs", (dec("-9" * 1 + "9" * 35),), dec("9" + "9" * 35)),
    ("abs", ("-2.5",), 2.5),
    ("ceil", (dec("1.23"),), 2),
    ("ceil", (dec("-1.23"),), -1),
    ("ceil", (-0.5,), 0.0),
    ("ceil", (7,), 7),
    ("floor", (dec("1.23"),), 1),
    ("floor", (dec("-1.23"),), -2),
    ("floor", (-1.5,), -2.0),
    ("round", (dec("-1.23"),), dec("-1")),
    ("round", (dec("-1.58"),), dec("-2")),
    ("round", (dec("1.58"),), dec("2")),
    ("round", (dec("1.298"), 1), dec("1.3")),
    ("round", (dec("1.298"), 0), dec("1")),
    ("round", (dec("23.298"), -1), dec("20")),
    ("round", (dec("2.5"),), dec("3")),
    ("round", (dec("-2.5"),), dec("-3")),
    ("round", (dec("1.5"), 5), dec("1.5")),
    ("round", (2.5,), 2.0),
    ("round", (3.5,), 4.0),
    ("round", (1.15, 1), 1.2),
    ("round", (-0.2,), 0.0),
    ("round", (1e300, 20), 1e300),
    ("round", (12345.0, -2), 12300.0),
    ("round", (1.0, -400), 0.0),
    ("round", (1.7e308, -308), 1.7976931348623157e308),
    ("round", (145,), 145),
    ("round", (145, -1), 150),
    ("round", (-145, -1), -150),
    ("round", (145, 2), 145),
    ("round", (145, -10), 0),
    ("round", (None,), None),
    ("round", (1, None), None),
    ("truncate", (dec("1.223"), 1), dec("1.2")),
    ("truncate", (dec("1.999"), 1), dec("1.9")),
    ("truncate", (dec("1.999"), 0), dec("1")),
    ("truncate", (dec("-1.999"), 1), dec("-1.9")),
    ("truncate", (122, -2), 100),
    ("truncate", (10.28 * 100, 0), 1028.0),
    ("sign", (-32,), -1),
    ("sign", (0,), 0),
    ("sign", (dec("0.1"),), 1),
    ("pow", (2, 2), 4.0),
    ("pow", (2, -2), 0.25),
    ("pow", (0, -1), None),
    ("pow", (10, 400), None),
    ("sqrt", (4,), 2.0),
    ("sqrt", (-16,), None),
    ("exp", (0,), 1.0),
    ("exp", (1000,), None),
    ("ln", (-2,), None),
    ("ln", (1,), 0.0),
    ("log", (2, 65536), 16.0),
    ("log", (1, 100), None),
    ("log", (1,), 0.0),
    ("log2", (65536,), 16.0),
    ("log10", (100,), 2.0),
    ("log10", (0,), None),
    ("pi", (), 3.141592653589793),
    ("bit_and", (29, 15), 13),
    ("bit_or", (29, 15), 31),
    ("bit_xor", (11, 3), 8),
    ("bit_and", (-1, -1), 2**64 - 1),
    ("shift_left", (1, 2), 4),
    ("shift_left", (1, 64), 0),
    ("shift_left", (1, 63), 2**63),
    ("shift_right", (4, 2), 1),
    ("shift_right", (-1, 63), 1),
    ("bit_not", (0,), 2**64 - 1),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), ARITHMETIC + NUMERIC)
def test_result(name: str, arguments: tuple[Value, ...], expected: Value) -> None:
    result = evaluate(name, *arguments)
    assert (result, str(result)) == (expected, str(expected))


def test_types_of_results() -> None:
    two = decimal_type(2)
    assert result_type("divide", (BIGINT, BIGINT)) == decimal_type(4)
    assert result_type("divide", (two, BIGINT)) == decimal_type(6)
    assert result_type("multiply", (two, decimal_type(3))) == decimal_type(5)
    assert result_type("multiply", (decimal_type(20), decimal_type(20))) == decimal_type(30)
    assert result_type("add", (two, decimal_type(3))) == decimal_type(3)
    assert result_type("add", (BIGINT, TEXT)) == DOUBLE
    assert result_type("floor", (two,)) == BIGINT


def test_unknown_names_and_wrong_counts() -> None:
    with pytest.raises(Unsupported, match='function "subtrac" is not supported'):
        call("subtrac")
    with pytest.raises(TypeViolation, match='"pow" takes 2 arguments, not 1'):
        result_type("pow", (BIGINT,))
    with pytest.raises(TypeViolation, match='"round" takes 1 to 2 arguments, not 0'):
        result_type("round", ())
    with pytest.raises(TypeViolation, match='"concat" takes at least 1 arguments, not 0'):
        result_type("concat", ())
