"""What comes in, and what goes out as JSON."""

import base64
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar_cases import is_canonical

from domains.errors import TypeViolation
from domains.language.coercion import coerce, coercer, json_encoder, json_value, row_coercer
from domains.language.types import (
    BIGINT,
    BLOB,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    NULL,
    TEXT,
    TIME,
    Column,
    Kind,
    SqlType,
    decimal_type,
)

INT = SqlType(Kind.INTEGER, "INT", low=-(2**31), high=2**31 - 1)
VARCHAR = SqlType(Kind.TEXT, "VARCHAR(4)", length=4)
BINARY = SqlType(Kind.BLOB, "VARBINARY(2)", length=2)
TWO = decimal_type(2)
PRICE = SqlType(Kind.DECIMAL, "DECIMAL(5,2)", length=5, scale=2)

ACCEPTED = [
    (7, INT, 7),
    (True, INT, 1),
    (False, BOOL, 0),
    ("42", INT, 42),
    (" 4.5e1 ", INT, 45),
    (1.5, INT, 2),
    (-1.5, INT, -2),
    (2.5, INT, 3),
    (Decimal("0.4"), INT, 0),
    ("1e-999999999", INT, 0),
    (2**31 - 1, INT, 2**31 - 1),
    (7, DOUBLE, 7.0),
    (True, DOUBLE, 1.0),
    ("1.5", DOUBLE, 1.5),
    (-0.0, DOUBLE, 0.0),
    (Decimal("0.1"), DOUBLE, 0.1),
    (1, TWO, Decimal("1.00")),
    (0.1, TWO, Decimal("0.10")),
    ("1.005", TWO, Decimal("1.01")),
    (Decimal("-0.001"), TWO, Decimal("0.00")),
    ("-1.005", TWO, Decimal("-1.01")),
    (999.994, PRICE, Decimal("999.99")),
    ("abcd", VARCHAR, "abcd"),
    ("éèàç", VARCHAR, "éèàç"),
    (12, TEXT, "12"),
    (True, TEXT, "1"),
    (1.0, TEXT, "1"),
    (Decimal("1.50"), TEXT, "1.50"),
    ("-838:59:59", TIME, -timedelta(hours=838, minutes=59, seconds=59)),
    (101112, TIME, timedelta(hours=10, minutes=11, seconds=12)),
    ("1 2:03", TIME, timedelta(days=1, hours=2, minutes=3)),
    (time(10, 30), TIME, timedelta(hours=10, minutes=30)),
    (b"abc", TEXT, "abc"),
    (date(2026, 1, 31), TEXT, "2026-01-31"),
    (b"ab", BINARY, b"ab"),
    (bytearray(b"ab"), BLOB, b"ab"),
    ("é", BLOB, "é".encode()),
    ("2026-01-31", DATE, "2026-01-31"),
    ("2026-1-5", DATE, "2026-01-05"),
    ("2026-01-31T08:00:00Z", DATE, "2026-01-31"),
    (date(2026, 1, 31), DATE, "2026-01-31"),
    (datetime(2026, 1, 31, 8), DATE, "2026-01-31"),
    ("2026-01-31", DATETIME, "2026-01-31 00:00:00"),
    ("2026-01-31 08:00:00", DATETIME, "2026-01-31 08:00:00"),
    ("2026-01-31 08:00", DATETIME, "2026-01-31 08:00:00"),
    ("2026-01-31T08:00:00.5Z", DATETIME, "2026-01-31 08:00:00.500000"),
    ("2026-01-31T08:00:00.000", DATETIME, "2026-01-31 08:00:00"),
    ("2026-01-31T08:00:00.1234567", DATETIME, "2026-01-31 08:00:00.123456"),
    ("2026-01-31T08:00:00+02:00", DATETIME, "2026-01-31 06:00:00"),
    ("2026-01-31T23:30:00-0100", DATETIME, "2026-02-01 00:30:00"),
    (date(2026, 1, 31), DATETIME, "2026-01-31 00:00:00"),
    (datetime(2026, 1, 31, 8, tzinfo=timezone(timedelta(hours=2))), DATETIME, "2026-01-31 06:00:00"),
    (datetime(2026, 1, 31, 8, 0, 0, 5, tzinfo=UTC), DATETIME, "2026-01-31 08:00:00.000005"),
    (None, INT, None),
    (None, NULL, None),
]

REFUSED = [
    (2**31, INT, "out of range"),
    ("2147483648", INT, "out of range"),
    (2147483647.5, INT, "out of range"),
    ("1e999999999", INT, "out of range"),
    (float("nan"), INT, "not a finite number"),
    (Decimal("sNaN"), TWO, "not a finite number"),
    ("839:00:00", TIME, "out of range"),
    (timedelta(days=35), TIME, "out of range"),
    ("10:60:00", TIME, "not a valid time"),
    ("10:00:00+02:00", TIME, "not a valid time"),
    ("abc", INT, "not a number"),
    ("12abc", INT, "not a number"),
    ("", INT, "not a number"),
    ("１", INT, "not a number"),
    (b"1", INT, "not a number"),
    ([1], INT, "not a number"),
    (float("inf"), DOUBLE, "not a finite number"),
    ("1e400", DOUBLE, "not a finite number"),
    (10**400, DOUBLE, "not a finite number"),
    ("nan", DOUBLE, "not a number"),
    (1000, PRICE, "out of range"),
    (999.995, PRICE, "out of range"),
    (10**65, TWO, "out of range"),
    ("abcde", VARCHAR, "5 characters"),
    ("\ud800", TEXT, "surrogate"),
    (b"\xff", TEXT, "not UTF-8"),
    ({"a": 1}, TEXT, "not a scalar"),
    (float("nan"), TEXT, "not a finite number"),
    (b"abc", BINARY, "3 bytes"),
    ("2026-02-30", DATE, "not a valid date"),
    ("2026-13-01", DATE, "not a valid date"),
    ("0000-00-00", DATE, "not a valid date"),
    ("tomorrow", DATETIME, "not a valid datetime"),
    ("0001-01-01T00:00:00+02:00", DATETIME, "not a valid datetime"),
    (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), DATETIME, "not a valid datetime"),
    (20260131, DATE, "not a valid date"),
    ("2026-01-31 24:00:00", DATETIME, "not a valid datetime"),
    (1, NULL, "only NULL"),
]


@pytest.mark.parametrize(("value", "declared", "expected"), ACCEPTED)
def test_accepted(value: object, declared: SqlType, expected: object) -> None:
    for result in (coerce(value, declared), coercer(declared)(value), row_coercer([declared], ["c"])([value])[0]):
        assert (result, str(result), type(result)) == (expected, str(expected), type(expected))


@pytest.mark.parametrize(("value", "declared", "why"), REFUSED)
def test_refused(value: object, declared: SqlType, why: str) -> None:
    for attempt in (
        lambda: coerce(value, declared, column="total"),
        lambda: coercer(declared, column="total")(value),
        lambda: row_coercer([BIGINT, declared], ["id", "total"])([1, value]),
    ):
        with pytest.raises(TypeViolation, match=why) as refusal:
            attempt()
        assert f'does not fit type {declared} of column "total"' in refusal.value.message
        assert refusal.value.hint


def test_blobs_are_base64_in_json() -> None:
    assert coerce("AP8=", BLOB, from_json=True) == b"\x00\xff"
    assert row_coercer([BLOB], ["b"], from_json=True)(["AP8="]) == (b"\x00\xff",)
    with pytest.raises(TypeViolation, match="not base64"):
        coercer(BLOB, from_json=True)("é")


def test_an_object_in_json_names_the_type_that_its_value_has() -> None:
    assert coerce({"BLOB": "AP8="}, BLOB, from_json=True) == b"\x00\xff"
    assert row_coercer([TEXT, PRICE], ["a", "b"], from_json=True)([{"BLOB": "w6k="}, {"DECIMAL": "1.10"}]) == (
        "é",
        Decimal("1.10"),
    )
    for value, type, says in (
        ({"BLOB": "/w=="}, TEXT, 'column "c": it is not UTF-8 text'),
        ({"BLOB": "MTI="}, INT, 'column "c": it is not a number'),
        ({"BLOB": "?"}, TEXT, 'column "c": it is not base64'),
        ({"DECIMAL": "1e9"}, PRICE, 'column "c": it is not a number'),
        ({"BLOB": "", "DECIMAL": "1"}, TEXT, 'column "c": it is not a scalar value'),
    ):
        with pytest.raises(TypeViolation, match=says):
            coercer(type, column="c", from_json=True)(value)
    with pytest.raises(TypeViolation, match="not a scalar value"):
        coerce({"BLOB": "AP8="}, TEXT)


def test_rows_of_another_width() -> None:
    to_row = row_coercer([INT, TEXT], ["a", "b"])
    assert to_row([1, "x"]) == (1, "x")
    assert to_row((None, None)) == (None, None)
    assert row_coercer([], [])([]) == ()
    with pytest.raises(TypeViolation, match="a row of 2 values is expected, not of 3"):
        to_row([1, "x", 2])


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(TypeViolation) as refusal:
        coerce("x" * 10_000, INT)
    assert len(refusal.value.message) < 200


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.text(),
    st.sampled_from(["12", "-1.50", "2026-01-31", "2026-01-31T08:00:00.250+01:00", "1e5"]),
    st.binary(max_size=8),
    st.dates(),
    st.datetimes(),
)
TYPES = [BIGINT, INT, BOOL, DOUBLE, TWO, PRICE, decimal_type(0), TEXT, VARCHAR, BLOB, BINARY, DATE, DATETIME]


@settings(deadline=None)
@given(ANYTHING, st.sampled_from(TYPES))
def test_coercion_is_idempotent(value: object, declared: SqlType) -> None:
    try:
        once = coerce(value, declared)
    except TypeViolation:
        with pytest.raises(TypeViolation):
            coercer(declared)(value)
        return
    assert is_canonical(once, declared)
    for again in (coerce(once, declared), coercer(declared)(once), row_coercer([declared], ["c"])([value])[0]):
        assert (again, str(again), type(again)) == (once, str(once), type(once))


# --- JSON -----------------------------------------------------------------------------------------------------------

CANONICAL = {
    BIGINT: st.one_of(st.integers(-(2**63), 2**64), st.integers()),
    DOUBLE: st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    TWO: st.integers(-(10**30), 10**30).map(lambda n: Decimal(n).scaleb(-2)),
    TEXT: st.one_of(st.text(), st.just("\ud800 alone")),
    BLOB: st.binary(),
    DATETIME: st.datetimes().map(str),
}


@settings(deadline=None)
@given(st.data(), st.lists(st.sampled_from(list(CANONICAL)), max_size=5), st.text(max_size=5).filter(str.isprintable))
def test_encoded_rows_read_back(data: st.DataObject, types: list[SqlType], prefix: str) -> None:
    columns = [Column(f"{prefix}{i}", declared) for i, declared in enumerate(types)]
    row = tuple(data.draw(st.one_of(st.none(), CANONICAL[declared])) for declared in types)
    encoded = json_encoder(columns)(row)
    assert isinstance(encoded, bytes)
    assert json.loads(encoded) == {c.name: json_value(v) for c, v in zip(columns, row, strict=True)}
    assert list(json.loads(encoded)) == [c.name for c in columns]


def test_json_values() -> None:
    assert json_value(Decimal("3.5000")) == "3.5000"
    assert json_value(Decimal("0E-10")) == "0.0000000000"
    assert json_value(b"\x00\xff") == base64.b64encode(b"\x00\xff").decode()
    assert json_encoder([Column('a"b', TWO), Column("n", BIGINT)])((Decimal("1.50"), 2)) == b'{"a\\"b":"1.50","n":2}'
