"""A row whose values are not of its columns' types is refused where it is written, whoever sends it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from domains.engine.domain import Domain
from domains.errors import TypeViolation
from domains.language.types import (
    BIGINT,
    BLOB,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    TEXT,
    TIME,
    Kind,
    SqlType,
    TableColumn,
    TableSchema,
    decimal_type,
)
from domains.plan.graph import DomainIndex
from domains.plan.packets import Failed, Insert, Reply, RequestId, Write, Written
from domains.store.memory_store import MemoryStore
from domains.store.row_types import RowTypes

TYPES = (BIGINT, BOOL, DOUBLE, decimal_type(2), TEXT, BLOB, DATE, DATETIME, TIME)
ALL = TableSchema("t", tuple(TableColumn(type.name, type) for type in TYPES))
RIGHT: tuple[Any, ...] = (1, 0, 0.5, Decimal("1.50"), "a", b"a", "2026-01-31", "2026-01-31 08:00:00", timedelta(1))
WRONG: tuple[Any, ...] = ("1", "0", "0.5", 1.5, b"a", "a", 20260131, 1.0, "10:00:00")


def test_each_type_has_its_values_and_null() -> None:
    types = RowTypes(ALL)
    assert types.misfit([RIGHT, (None,) * len(TYPES), RIGHT]) is None
    for at, value in enumerate(WRONG):
        row = (*RIGHT[:at], value, *RIGHT[at + 1 :])
        misfit = types.misfit([RIGHT, row])
        assert misfit is not None
        assert misfit[0] == 1
        assert TYPES[at].name in misfit[1]
    assert types.misfit([RIGHT[:-1]]) == (0, "a row of 8 values for 9 columns")


TINYINT = SqlType(Kind.INTEGER, "TINYINT", low=-128, high=127)
NARROW = TableSchema(
    "t",
    (
        TableColumn("id", BIGINT, nullable=False),
        TableColumn("small", TINYINT),
        TableColumn("gone", TINYINT, nullable=False, dropped=True),
    ),
    primary_key=(0,),
)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((1, -128, None), ""),
        ((2**63 - 1, 127, 1000), ""),
        ((1, None, None), ""),
        ((None, 1, None), 'NULL in column "id", which is NOT NULL'),
        ((1, 128, None), '128 in column "small" of type TINYINT'),
        ((1, -129, None), '-129 in column "small" of type TINYINT'),
        ((2**63, 1, None), '9223372036854775808 in column "id" of type BIGINT'),
        ((1, True, None), 'a bool in column "small" of type TINYINT'),
    ],
)
def test_integers_have_a_range_and_null_stands_only_where_it_may(row: Any, why: str) -> None:
    types, right = RowTypes(NARROW), (1, 1, None)
    for _ in range(2):  # With types that are not known, and with those that are.
        assert types.misfit([right, row, right]) == ((1, why) if why else None)


def test_of_what_was_read_in_part_the_rest_may_be_null() -> None:
    types = RowTypes(NARROW, (1, 2))
    assert types.misfit([(None, 1, None)]) is None
    assert types.misfit([(None, 128, None)]) == (0, '128 in column "small" of type TINYINT')


@pytest.mark.parametrize("row", [("x", 1), (1,), (1, 1, 1), (b"x", 1), (0.5, 1)])
def test_a_write_of_such_a_row_is_refused_whole(row: Any) -> None:
    store = MemoryStore()
    table = store.create_table(TableSchema("t", (TableColumn("a", BIGINT), TableColumn("b", BIGINT))))
    domain = Domain(DomainIndex(0), store)
    (told,) = domain.handle(Write(RequestId(1), Insert("t", ((1, 1), row))))
    assert isinstance(told, Reply)
    assert isinstance(told.outcome, Failed)
    assert isinstance(told.outcome.error, TypeViolation)
    assert table.find((), ()) == []
    (told,) = domain.handle(Write(RequestId(2), Insert("t", ((1, 1),))))
    assert isinstance(told, Reply)
    assert isinstance(told.outcome, Written)
