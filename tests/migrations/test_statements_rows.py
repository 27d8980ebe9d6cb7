"""The table calls: rows, keys and changes as dicts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domains.errors import BadRequest, ConstraintViolation, HeadraceError, TypeViolation, UnknownName
from domains.language.compile import compile_predicate
from domains.language.expressions import Field
from domains.plan.packets import Delete, Insert, Update
from migrations.statements.rows import OnDuplicate, delete_operation, insert_operation, update_operation
from tests.migrations.statement_catalog import CATALOG, NOW, perform

STORIES = CATALOG.table("stories")
LOG = CATALOG.table("log")


def test_rows_with_the_same_keys_and_with_others() -> None:
    rows: list[dict[str, Any]] = [
        {"author": 1, "title": "a"},
        {"author": 2, "title": None},
        {"TITLE": "b", "author": 3},
        {"id": 9, "author": 4, "score": "1.5", "made": "2026-01-01T10:00:00Z"},
        {"id": 0, "author": 5, "score": 2.25},
    ]
    assert insert_operation(STORIES, rows, NOW) == Insert(
        "stories",
        (
            (None, 1, "a", None, NOW),
            (None, 2, None, None, NOW),
            (None, 3, "b", None, NOW),
            (9, 4, "none", Decimal("1.50"), "2026-01-01 10:00:00"),
            (None, 5, "none", Decimal("2.25"), NOW),
        ),
    )


def test_blobs_are_base64_and_dropped_columns_are_null() -> None:
    assert insert_operation(LOG, [{"body": "AP8="}, {}], NOW).rows == ((None, b"\0\xff", None), (None, None, None))
    schema = perform("ALTER TABLE log DROP COLUMN body", CATALOG).table("log")
    assert insert_operation(schema, [{"weight": 1, "day": "2026-1-2"}], NOW).rows == (("2026-01-02", None, 1.0),)
    assert insert_operation(LOG, [], NOW).rows == ()


WRONG_ROWS: list[tuple[list[Any], type[HeadraceError], str]] = [
    ([{"author": 1, "titel": "x"}], UnknownName, 'unknown column "stories.titel" (did you mean "title"?)'),
    ([{"author": 1}, {"author": "x"}], TypeViolation, "row 2: 'x' does not fit type INT of column \"author\""),
    ([{"author": 1}, {"title": "x", "author": 1}, {"title": "y" * 21, "author": 1}], TypeViolation, "row 3: 'yyyy"),
    ([{"author": 1}, {"title": "x"}], ConstraintViolation, 'row 2: column "author" has no value'),
    ([{"author": 1, "AUTHOR": 2}], BadRequest, 'column "author" is given twice'),
    ([{"author": [1]}], TypeViolation, "row 1: [1] does not fit type INT"),
    ([{1: 1}], BadRequest, "the column name 1 is not a string"),
    ([[1, 2]], BadRequest, 'a row is a list and not an object ({"column": value, …})'),
]


@pytest.mark.parametrize(("rows", "kind", "message"), WRONG_ROWS)
def test_what_is_wrong_with_rows_is_said(rows: list[Any], kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        insert_operation(STORIES, rows, NOW)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


def test_updates_where_a_row_is_there() -> None:
    """The columns that stand in no key, or those that are named, each set to the new row's."""
    rows = [{"id": 1, "author": 2, "title": "x"}, {"title": "y", "author": 3, "id": 4}]
    upsert = insert_operation(STORIES, rows, NOW, OnDuplicate("update"))
    assert upsert.on_conflict == "update"
    width = len(STORIES.columns)
    fields = {at: Field(width + at, STORIES.columns[at].type) for at in (1, 2)}
    assert dict(upsert.assignments) == fields
    named = insert_operation(STORIES, rows, NOW, OnDuplicate("update", ("TITLE",)))
    assert named.assignments == ((2, fields[2]),)
    assert insert_operation(STORIES, rows, NOW, OnDuplicate("replace")).assignments == ()


def test_update_and_delete_by_key() -> None:
    update = update_operation(STORIES, {"ID": "7"}, {"title": 5, "score": None}, NOW)
    assert isinstance(update, Update)
    assert update.access == (((0,), ((7,),)),)
    assert [(at, value.value) for at, value in update.assignments] == [(2, "5"), (3, None)]  # type: ignore[union-attr]
    delete = delete_operation(STORIES, {"title": None, "author": 3})
    assert isinstance(delete, Delete)
    assert delete.access == (((1,), ((3,),)),)
    assert delete.where is not None
    holds = compile_predicate(delete.where)
    assert [holds((1, author, title, None, None)) for author, title in ((3, None), (3, "x"), (4, None))] == [
        True,
        False,
        False,
    ]


WRONG_KEYS: list[tuple[Any, Any, type[HeadraceError], str]] = [
    ({}, {"title": "x"}, BadRequest, '"key" is empty'),
    ([1], {"title": "x"}, BadRequest, '"key" is not an object'),
    ({"id": 1}, {}, BadRequest, '"set" is empty'),
    ({"id": 1}, [], BadRequest, '"set" is not an object'),
    ({"ids": 1}, {"title": "x"}, UnknownName, 'unknown column "stories.ids" (did you mean "id"?)'),
    ({"id": 1}, {"titel": "x"}, UnknownName, 'unknown column "stories.titel" (did you mean "title"?)'),
    ({"id": 7.5}, {"title": "x"}, TypeViolation, '7.5 is not a value of column "id" (INT): it would be rounded'),
    ({"score": "1.005"}, {"title": "x"}, TypeViolation, "'1.005' is not a value of column \"score\" (DECIMAL(6,2))"),
    ({"id": "x"}, {"title": "x"}, TypeViolation, "'x' does not fit type INT of column \"id\""),
    ({"id": 1}, {"author": "x"}, TypeViolation, "'x' does not fit type INT of column \"author\""),
]


@pytest.mark.parametrize(("key", "changes", "kind", "message"), WRONG_KEYS)
def test_what_is_wrong_with_keys_and_changes_is_said(
    key: Any, changes: Any, kind: type[HeadraceError], message: str
) -> None:
    with pytest.raises(HeadraceError) as caught:
        update_operation(STORIES, key, changes, NOW)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


def test_a_date_key_with_a_time_of_day_is_refused() -> None:
    with pytest.raises(TypeViolation, match="it would be rounded"):
        delete_operation(LOG, {"day": "2026-01-02 10:00:00"})
    assert delete_operation(LOG, {"day": "2026-1-2"}).access == (((0,), (("2026-01-02",),)),)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.text(max_size=25),
    st.binary(max_size=5),
    st.dates().map(str),
    st.datetimes().map(str),
    st.lists(st.integers(), max_size=2),
    st.sampled_from(["", "0", "-0", "1e400", "1e-400", " 7 ", "NaN", "AAAA", "\ud800", "2026-02-30"]),
)
TABLES = [
    STORIES,
    LOG,
    CATALOG.table("votes"),
    perform("ALTER TABLE stories DROP title, ADD q TEXT", CATALOG).table("stories"),
]
NAMES = st.sampled_from(
    ["id", "ID", "author", "title", "score", "made", "user", "story_id", "day", "body", "weight", "q", ""]
)
DICTS = st.dictionaries(NAMES, VALUES, max_size=6)


# Making a first text reads the whole Unicode table, which on a busy machine takes longer than is thought healthy.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TABLES), st.lists(DICTS, max_size=4))
def test_any_rows_are_an_operation_or_an_error_of_ours(schema: Any, rows: list[dict[str, Any]]) -> None:
    try:
        operation = insert_operation(schema, rows, NOW)
    except HeadraceError:
        return
    assert len(operation.rows) == len(rows)
    for row in operation.rows:
        assert len(row) == len(schema.columns)
        assert all(row[at] is None for at, column in enumerate(schema.columns) if column.dropped)
        assert insert_again(schema, row) == row


def insert_again(schema: Any, row: Any) -> Any:
    """What was stored is canonical: storing it once more changes nothing."""
    live = schema.live()
    values = {schema.columns[at].name: row[at] for at in live}
    return insert_operation(schema, [values], NOW).rows[0]


@given(st.sampled_from(TABLES), DICTS, DICTS)
def test_any_key_is_an_operation_that_finds_the_key_or_an_error_of_ours(
    schema: Any, key: dict[str, Any], changes: dict[str, Any]
) -> None:
    try:
        operation = update_operation(schema, key, changes, NOW)
    except HeadraceError:
        return
    row: list[Any] = [None] * len(schema.columns)
    for (at,), ((value,),) in operation.access:
        row[at] = value
    assert operation.where is not None
    assert compile_predicate(operation.where)(tuple(row))
