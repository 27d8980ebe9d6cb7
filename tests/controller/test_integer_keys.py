"""The short way of keys that are whole numbers says what the general one says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.lookups.binding import Binding
from domains.errors import BadRequest, HeadraceError
from domains.language.types import BIGINT, Kind, SqlType
from domains.plan.graph import Parameter, ParameterKind, Reader

TINYINT = SqlType(Kind.INTEGER, "TINYINT", low=-128, high=127)

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
