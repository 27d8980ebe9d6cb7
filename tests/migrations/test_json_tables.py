"""JSON_TABLE's columns and rows: examples of MySQL's manual, what is an error, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from domains.errors import HeadraceError, SqlError, Unsupported
from domains.language.documents import canonical
from domains.language.functions.json.table import JsonLevel, rows_maker
from migrations.parse.reading import exp, faithful, parse_select
from migrations.query.sources.json_tables import level_of, titles_of


def table_of(columns: str, path: str = "$[*]") -> exp.JSONTable:
    query = parse_select(f"SELECT 1 FROM JSON_TABLE('[]', '{path}' COLUMNS ({columns})) AS t")
    assert "JSON_TABLE" in faithful(query)
    found = query.find(exp.JSONTable)
    assert found is not None
    return found


def level(columns: str, path: str = "$[*]") -> JsonLevel:
    return level_of(table_of(columns, path))


def rows(document: str, columns: str, path: str = "$[*]") -> list[Any]:
    return list(rows_maker(level(columns, path))(canonical(document)))


AC = "rowid FOR ORDINALITY, ac VARCHAR(100) PATH '$.a' DEFAULT '111' ON EMPTY DEFAULT '999' ON ERROR, "
AJ = """aj JSON PATH '$.a' DEFAULT '{"x": 333}' ON EMPTY, bx INT EXISTS PATH '$.b'"""
NESTED = (
    "top_ord FOR ORDINALITY, apath VARCHAR(10) PATH '$.a', NESTED PATH '$.b[*]' COLUMNS (bpath VARCHAR(10) PATH '$.c', "
    "ord FOR ORDINALITY, NESTED PATH '$.l[*]' COLUMNS (lpath VARCHAR(10) PATH '$'))"
)


def test_the_manuals_example_of_on_empty_and_on_error() -> None:
    assert rows('[{"a":"3"},{"a":2},{"b":1},{"a":0},{"a":[1,2]}]', AC + AJ) == [
        (1, "3", '"3"', 0),
        (2, "2", "2", 0),
        (3, "111", '{"x": 333}', 1),
        (4, "0", "0", 0),
        (5, "999", "[1, 2]", 0),
    ]


def test_the_manuals_examples_of_nested_paths() -> None:
    columns = (
        "a INT PATH '$.a', NESTED PATH '$.b[*]' COLUMNS (b1 INT PATH '$'), NESTED '$.b[*]' COLUMNS (b2 INT PATH '$')"
    )
    assert rows('[{"a": 1, "b": [11,111]}, {"a": 2, "b": [22]}, {"a": 3}]', columns) == [
        *((1, 11, None), (1, 111, None), (1, None, 11), (1, None, 111)),
        *((2, 22, None), (2, None, 22), (3, None, None)),
    ]
    document = (
        '[{"a": "a_val", "b": [{"c": "c_val", "l": [1,2]}]}, '
        '{"a": "a_val", "b": [{"c": "c_val", "l": [11]}, {"c": "c_val", "l": [22]}]}]'
    )
    assert rows(document, NESTED) == [
        *((1, "a_val", "c_val", 1, "1"), (1, "a_val", "c_val", 1, "2")),
        *((2, "a_val", "c_val", 1, "11"), (2, "a_val", "c_val", 2, "22")),
    ]


@pytest.mark.parametrize(
    ("type", "document", "values"),
    [
        ("INT", '["asd", 1.5, "7", true, null, [1], {}, 99999999999]', [None, 2, 7, 1, None, None, None, None]),
        ("VARCHAR(4)", '["abcd", "abcde", true, 1.0, 7, null]', ["abcd", None, "true", "1.0", "7", None]),
        ("TINYINT UNSIGNED", "[255, 256, -1]", [255, None, None]),
        ("DATE", '["2024-02-29", "2024-02-30", 5]', ["2024-02-29", None, None]),
        ("JSON", '["a", {"b": [1]}, null, 1.50]', ['"a"', '{"b": [1]}', "null", "1.5"]),
        ("ENUM('a', 'b')", '["b", "c"]', ["b", None]),
    ],
)
def test_what_does_not_fit_is_an_error(type: str, document: str, values: list[Any]) -> None:
    """MySQL's manual: saving 'asd' to an INTEGER column, or an object to a scalar, triggers ON ERROR."""
    assert [row[0] for row in rows(document, f"c {type} PATH '$'")] == values


def test_a_text_that_is_no_json_is_a_default_itself() -> None:
    columns = "a VARCHAR(9) PATH '$.x' DEFAULT 'none' ON EMPTY, b VARCHAR(9) PATH '$.x' DEFAULT '\"q\"' ON EMPTY"
    assert rows("[1]", columns) == [("none", "q")]
    assert rows("[1]", "a INT PATH '$.x' DEFAULT -5 ON EMPTY, b INT PATH '$.x' NULL ON ERROR DEFAULT '6' ON EMPTY") == [
        (-5, 6)
    ]


def test_paths_that_name_nothing_or_the_whole() -> None:
    assert rows('{"a": 1}', "c INT PATH '$.a'") == []
    assert rows('{"a": 1}', "c INT PATH '$.a'", "$") == [(1,)]
    assert rows("[[1, 2], [3]]", "c INT PATH '$[last]'", "$[*]") == [(2,), (3,)]
    assert rows('{"a": {"k": 1}, "b": {"k": 2}}', "c INT PATH '$'", "$**.k") == [(1,), (2,)]


def test_names_are_those_of_all_levels() -> None:
    assert titles_of(table_of(NESTED)) == ("top_ord", "apath", "bpath", "ord", "lpath")
    with pytest.raises(SqlError, match='two columns "A"'):
        titles_of(table_of("a INT PATH '$', NESTED PATH '$.b' COLUMNS (A INT PATH '$')"))


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ("a INT PATH '$x'", SqlError, "is no JSON path"),
        ("a INT PATH '$[*]'", Unsupported, "may name several values"),
        ("a INT PATH '$' ERROR ON EMPTY", Unsupported, "ERROR ON EMPTY"),
        ("a INT PATH '$' ERROR ON ERROR", Unsupported, "ERROR ON ERROR"),
        ("a INT PATH '$' DEFAULT 'x' ON EMPTY", SqlError, "is not a number"),
        ("a JSON PATH '$' DEFAULT 'x' ON EMPTY", SqlError, "is no JSON"),
        ("a INT PATH '$' DEFAULT '[1]' ON ERROR", SqlError, "an array or object"),
        ("a DATE EXISTS PATH '$'", SqlError, "is not a valid date"),
        ("a GEOMETRY PATH '$'", Unsupported, "the type GEOMETRY"),
        ("NESTED PATH '$**.a' COLUMNS (a INT PATH '$')", Unsupported, "NESTED PATH"),
    ],
)
def test_what_is_refused(columns: str, error: type[HeadraceError], message: str) -> None:
    with pytest.raises(error, match=message):
        level(columns)


@pytest.mark.parametrize(
    "columns",
    ["", "a INT", "a PATH '$'", "a INT PATH", "a INT PATH '$' DEFAULT ON EMPTY", "a INT PATH '$' NULL ON NULL"],
)
def test_what_is_no_column(columns: str) -> None:
    with pytest.raises(SqlError):
        table_of(columns)
