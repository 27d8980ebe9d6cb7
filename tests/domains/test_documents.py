"""JSON documents: their one form, their order, and how they come out of a page of rows as they went in."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from domains.language.coercion import coerce, json_row_coercer
from domains.language.documents import NotJson, canonical, normal, order_key, text_of_value, value_of
from domains.language.functions.json.paths import found, path_of
from domains.language.json_rows import json_encoder, page_reader, page_values
from domains.language.types import BIGINT, JSON, TEXT, Column

FORMS = {
    ' {"b":1,"aa":[ ],"a":{}} ': '{"a": {}, "b": 1, "aa": []}',
    '{"x":1,"x":"red"}': '{"x": "red"}',
    '{"é":1,"zz":2,"z":3}': '{"z": 3, "zz": 2, "é": 1}',
    "[1.0,1e0,-0.0,1E+2,0.1,1e20,123456789012345678901]": "[1.0, 1.0, -0.0, 100.0, 0.1, 1e20, 1.2345678901234568e20]",
    "18446744073709551615": "18446744073709551615",
    "-9223372036854775808": "-9223372036854775808",
    r'"\u00e9\/\t\u0001\"\\"': '"é/\\t\\u0001\\"\\\\"',
    "null": "null",
}


@pytest.mark.parametrize(("text", "form"), FORMS.items())
def test_a_text_has_one_form(text: str, form: str) -> None:
    assert canonical(text) == form
    assert canonical(form) == form
    assert text_of_value(value_of(form)) == form


@pytest.mark.parametrize(
    "text", ["", "{a:1}", "[1,]", "NaN", "[Infinity]", "1e999", '"\\ud800"', "'a'", "[" * 101 + "]" * 101, "1 2"]
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(NotJson):
        canonical(text)


def test_a_decimal_keeps_its_digits() -> None:
    assert text_of_value(value_of('{"a": 1.50, "b": 1.5, "c": 2.00}')) == '{"a": 1.50, "b": 1.5, "c": 2.00}'


ORDER = ["null", "-1e30", "-1", "0", "0.5", "1", "1e300", '""', '"A"', '"a"', '"aa"', "{}", '{"a": 1}', "[]", "[1]"]
ORDER += ["[1, 1]", "[2]", "[[1]]", "false", "true"]


def test_the_order_of_documents() -> None:
    assert all(order_key(a) < order_key(b) for a, b in pairwise(ORDER))
    assert order_key("1") == order_key("1.0") == order_key("1.00")
    assert order_key('{"a": 1, "b": [2]}') == order_key('{"a": 1.0, "b": [2.0]}')


@pytest.mark.parametrize(
    "same", [("1", "1.0", "1.00"), ("0", "-0.0", "0.0"), ("1e20", "100000000000000000000"), ("1e-7", "0.00000010")]
)
def test_one_document_stands_for_equal_ones(same: tuple[str, ...]) -> None:
    texts = [f'{{"k": [{number}, "1.0"]}}' for number in same]
    assert len(set(map(normal, texts))) == 1
    assert normal(normal(texts[0])) == normal(texts[0])
    assert {order_key(normal(text)) for text in texts} == {order_key(texts[-1])}


def test_paths() -> None:
    value = {"a": [1, {"b": 2}], "b": 3}
    path = path_of(' $ ** . "b" ')
    assert path is not None
    assert found(value, path) == [3, 2] or found(value, path) == [2, 3]
    for text in ("", "a", "$.", "$[", "$[-1]", "$**", "$.a b", "$[1 to]", "$..a"):
        assert path_of(text) is None, text
    assert found(7, path_of("$[last]") or ()) == [7]
    assert found([[1]], path_of("$**[0]") or ()) == [[1], 1]


COLUMNS = (Column("id", BIGINT), Column("doc", JSON), Column("text", TEXT), Column("more", JSON))
ROWS = [
    (1, '{"a": 1.50, "b": "},{\\""}', "x", "null"),
    (2, None, None, '" null"'),
    (2**70, '["é"]', '{"id": 1}', "7"),
]


def test_documents_go_through_a_page_unchanged() -> None:
    """NULL and JSON's null, the digits of a DECIMAL, and rows that the fast writer does not take."""
    encode = json_encoder(COLUMNS)
    page = b",".join(map(encode, ROWS))
    assert page_values(page, COLUMNS) == ROWS
    assert list(map(json_row_coercer(COLUMNS), page_values(page, COLUMNS)[:2])) == ROWS[:2]
    shown = json.loads(b"[" + page + b"]")
    assert shown[0] == {"id": 1, "doc": {"a": 1.5, "b": '},{"'}, "text": "x", "more": None}
    assert shown[2]["doc"] == ["é"]
    assert page_values(b"", COLUMNS) == []
    assert page_reader(COLUMNS)(page) == ROWS


def test_a_page_is_read_quickly_and_to_the_same_values() -> None:
    columns = (Column("n", BIGINT), Column("text", TEXT), Column("big", replace(BIGINT, low=None, high=None)))
    rows = [(2**63 - 1, "\ud800", 2**70), (-(2**63), "é", None)]
    page = b",".join(map(json_encoder(columns), rows))
    assert page_reader(columns)(page) == page_values(page) == rows
    few = columns[:2]
    page = b",".join(map(json_encoder(few), [row[:2] for row in rows]))
    assert page_reader(few)(page) == [row[:2] for row in rows]
    assert page_reader(few)(b"") == []


def test_values_are_documents_and_texts_are_parsed() -> None:
    assert coerce({"b": 1, "a": [True, None, 1.0]}, JSON, from_json=True) == '{"a": [true, null, 1.0], "b": 1}'
    assert coerce({"BLOB": "YQ=="}, JSON, from_json=True) == '{"BLOB": "YQ=="}'
    assert coerce('{"b":1}', JSON) == '{"b": 1}'
    assert coerce(5, JSON) == "5"
