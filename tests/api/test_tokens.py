from __future__ import annotations

import pytest
from headrace_client.tokens import decode, encode, merge
from hypothesis import given
from hypothesis import strategies as st

from domains.errors import BadRequest

clocks = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**63))


@given(clocks)
def test_round_trip(clock: dict[str, int]) -> None:
    token = encode(clock)
    assert decode(token) == clock
    assert token.isascii()
    assert not set(token) & set(" =+/\n")


@given(clocks, clocks, clocks)
def test_merge_is_a_least_upper_bound(a: dict[str, int], b: dict[str, int], c: dict[str, int]) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a
    assert all(merge(a, b)[shard] >= position for shard, position in a.items())


@given(st.text())
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        decode("x" + text)
