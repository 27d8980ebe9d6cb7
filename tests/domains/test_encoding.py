"""The key encoding against Python's own order, with NULL first."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from domains.language.encoding import encode_key, encode_order, key_encoder, row_encoder
from domains.language.ordered import encode_value, value_end
from domains.language.types import BIGINT, BLOB, DATE, DOUBLE, NULL, TEXT, TIME, Row, SqlType, Value, decimal_type

VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    BIGINT: st.one_of(
        st.integers(),
        st.integers(-(2**63) - 2, -(2**63) + 2),
        st.integers(2**63 - 2, 2**63 + 2),
        st.integers(-300, 300),
    ),
    DOUBLE: st.floats(allow_nan=False),
    decimal_type(3): st.decimals(allow_nan=False, allow_infinity=False),
    TEXT: st.one_of(st.text(), st.text(alphabet="\x00\x01ab\xff\ud800")),
    DATE: st.dates().map(str),
    BLOB: st.one_of(st.binary(), st.lists(st.sampled_from([0, 1, 254, 255])).map(bytes)),
    TIME: st.timedeltas(),
    NULL: st.none(),
}


def rank(value: Value, down: bool) -> tuple[bool, Any]:
    """A sort key with NULL first ascending and last descending; equal where the encoding must be equal."""
    return (value is None) == down, value if value is not None else 0


def smaller(left: Row, right: Row, descending: tuple[bool, ...]) -> bool:
    for a, b, down in zip(left, right, descending, strict=True):
        x, y = rank(a, down), rank(b, down)
        if x != y:
            return x < y if x[0] != y[0] or not down else x > y
    return False


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[SqlType], Row, Row, tuple[bool, ...]]:
    types = draw(st.lists(st.sampled_from(list(VALUES)), max_size=4))
    columns = [st.none() | VALUES[type_] for type_ in types]
    left = draw(st.tuples(*columns))
    # Half of the values are shared, else the first column would decide nearly always.
    right = tuple(draw(st.just(value) | column) for value, column in zip(left, columns, strict=True))
    return types, left, right, tuple(draw(st.booleans()) for _ in types)


# The first text that is drawn builds hypothesis's table of characters, which takes longer than the check allows.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(pairs(), st.binary(max_size=3), st.binary(max_size=3))
def test_byte_order_is_value_order(
    pair: tuple[list[SqlType], Row, Row, tuple[bool, ...]], tail: bytes, other_tail: bytes
) -> None:
    _, left, right, descending = pair
    x, y = encode_order(left, descending), encode_order(right, descending)
    assert (x == y) == (left == right)
    assert (x < y) == smaller(left, right, descending)
    if left != right:  # whatever follows changes nothing: every value ends by itself
        assert (x + tail < y + other_tail) == (x < y)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(pairs())
def test_specialised_encoders_agree_with_the_general_ones(
    pair: tuple[list[SqlType], Row, Row, tuple[bool, ...]],
) -> None:
    types, left, right, descending = pair
    assert key_encoder(types)(left) == encode_key(left)
    wide = ("x", *left, *right)
    positions = [*range(1 + len(left), 1 + 2 * len(left)), *range(1, 1 + len(left))]
    encode = row_encoder(positions, [*types, *types], descending * 2)
    assert encode(wide) == encode_order(right + left, descending * 2)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(pairs())
@example(([BIGINT], (2**70,), (-(2**70),), (False,)))
def test_values_end_where_they_say(pair: tuple[list[SqlType], Row, Row, tuple[bool, ...]]) -> None:
    _, left, right, _ = pair
    encoded = encode_key(left + right)
    at = 0
    for value in left + right:
        end = value_end(encoded, at)
        assert encoded[at:end] == encode_value(value)
        at = end
    assert at == len(encoded)


def test_equal_values_have_equal_bytes() -> None:
    assert encode_key((0.0,)) == encode_key((-0.0,))
    assert encode_key((Decimal("1.0"),)) == encode_key((Decimal("1.00"),))
    assert encode_key((Decimal("0.00"),)) == encode_key((Decimal("-0"),))
    assert key_encoder([])(()) == b""


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_value([])  # type: ignore[arg-type]
