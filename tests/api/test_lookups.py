from __future__ import annotations

from urllib.parse import parse_qs, urlencode

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.encoding import parse, parse_numbers, serialize
from api.lookups.lookups import parse_keys, parse_query
from domains.errors import BadRequest

text = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(text.filter(bool), text)))
def test_query_strings_are_read_as_the_standard_library_does(pairs: list[tuple[str, str]]) -> None:
    query = urlencode(pairs)
    assert parse_query(query.encode()) == parse_qs(query, keep_blank_values=True)


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        (b"", {}),
        (b"&&", {}),
        (b"a", {"a": [""]}),
        (b"a=1&a=&b==", {"a": ["1", ""], "b": ["="]}),
        ("a=é".encode(), {"a": ["é"]}),
        (b"a=%zz", {"a": ["%zz"]}),
    ],
)
def test_query_corners(query: bytes, parameters: dict[str, list[str]]) -> None:
    assert parse_query(query) == parameters


@pytest.mark.parametrize("query", [b"a=\xff", b"a=%ff", b"%c3=1"])
def test_query_must_be_utf8(query: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_query(query)


@given(st.integers())
def test_integers_are_exact_whatever_their_size(number: int) -> None:
    assert parse(b'{"n": %d}' % number) == {"n": number}
    assert serialize({"n": number}) == b'{"n":%d}' % number


def test_numbers_past_the_range_of_a_double_are_refused() -> None:
    with pytest.raises(BadRequest):
        parse(b'{"n": 1e999, "long": 1234567890123456789012}')


NUMBERS = [
    b'{"keys":[[1],[2],[-3],[1]]}',
    b'{"keys":[[0]]}',
    b'{"keys":[[ 1 ],[2\n]]}',
    b'{"keys":[[9223372036854775808]]}',
]
NO_NUMBERS = [
    b'{"keys":[]}',
    b'{"keys":[[]]}',
    b'{"keys":[[1,2],[3]]}',
    b'{"keys":[[1,2],[]]}',
    b'{"keys":[[],[1,2]]}',
    b'{"keys":[[1,2],[],[3]]}',
    b'{"keys":[[[1]]]}',
    b'{"keys":[["1],[2"]]}',
    b'{"keys":[[1]],"keys":[[2]]}',
    b'{"keys":[[true],[1]]}',
    b'{"keys":[[1.0]]}',
    b'{"keys":[[99999999999999999999]]}',
    b'{"keys":[[1], [2]]}',
    b'{"keys":[[1]]} ',
    b'{"keys":[[01]]}',
    b'{"keys":[[1],[2,]]}',
    b'{"keys":[[\xff]]}',
]


@pytest.mark.parametrize("body", NUMBERS)
def test_keys_of_a_number_each_are_read_as_any(body: bytes) -> None:
    assert [[number] for number in parse_numbers(body) or ()] == parse_keys(body)


@pytest.mark.parametrize("body", NO_NUMBERS)
def test_other_keys_are_not_taken_for_numbers(body: bytes) -> None:
    assert parse_numbers(body) is None


@given(st.lists(st.sampled_from(["1", "23", "-4", ",", "],[", "[", "]", " ", '"', "null", "1.5"]), max_size=9))
def test_what_is_taken_for_numbers_is_that(parts: list[str]) -> None:
    body = b'{"keys":[[' + "".join(parts).encode() + b"]]}"
    numbers = parse_numbers(body)
    assert numbers is None or [[number] for number in numbers] == parse_keys(body)


async def test_keys_of_a_number_each_are_answered_as_any(http: httpx.AsyncClient) -> None:
    await http.post("/v1/tables/stories/rows", json={"rows": [{"id": 1, "author": 1, "title": "one"}]})
    for keys in (b"[[1],[2],[1]]", b"[[7]]", b"[[-5]]"):
        plain_body, spaced = (b'{"keys":' + each + b"}" for each in (keys, keys.replace(b"[[", b"[ [")))
        said = [await http.post("/v1/views/StoriesWithVC/lookup", content=each) for each in (plain_body, spaced) * 2]
        assert len({(each.status_code, each.content) for each in said}) == 1
