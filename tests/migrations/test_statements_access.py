"""By which columns the rows of an UPDATE or DELETE are looked up."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from domains.plan.packets import Delete, Operation, Update
from migrations.statements.statement import WriteStatement
from tests.migrations.statement_catalog import NOW, one


def write(sql: str, *params: Any) -> Operation:
    statement = one(sql, *params)
    assert isinstance(statement, WriteStatement), statement
    return statement.operation


ACCESS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("id = 7", (), (((0,), ((7,),)),)),
    ("7 = id AND author IN (1, 2, 1, NULL)", (), (((0,), ((7,),)), ((1,), ((1,), (2,))))),
    ("(id = 1 + 6) AND title LIKE 'a%'", (), (((0,), ((7,),)),)),
    ("id = '7'", (), (((0,), ((7,),)),)),
    ("id = '7 apples'", (), (((0,), ((7,),)),)),
    ("id = 7.0", (), (((0,), ((7,),)),)),
    ("id = 7.5", (), (((0,), ()),)),
    ("id = 7e0", (), (((0,), ((7,),)),)),
    ("id = 1e300", (), (((0,), ()),)),
    ("id = -7", (), (((0,), ((-7,),)),)),
    ("id = TRUE", (), (((0,), ((1,),)),)),
    ("id = NULL", (), (((0,), ()),)),
    ("id = ? AND title = ?", (7, "x"), (((0,), ((7,),)), ((2,), (("x",),)))),
    ("title = 7", (), ()),
    ("title IN ('a', 7)", (), ()),
    ("score = 1.5", (), (((3,), ((Decimal("1.50"),),)),)),
    ("score = 1", (), (((3,), ((Decimal("1.00"),),)),)),
    ("score = 1.505", (), (((3,), ()),)),
    ("score = 1.5e0", (), (((3,), ((Decimal("1.50"),),)),)),
    ("made = '2026-1-2'", (), (((4,), (("2026-01-02 00:00:00",),)),)),
    ("made = 'yesterday'", (), (((4,), ()),)),
    ("id = DATE'2024-01-31'", (), ()),
    ("title = DATE'2024-01-31'", (), ()),
    ("made = 20240131", (), (((4,), (("2024-01-31 00:00:00",),)),)),
    ("made = NOW()", (), (((4,), ((NOW,),)),)),
    ("id = 1 OR id = 2", (), (((0,), ((1,), (2,))),)),
    ("id = 1 OR author = 2", (), ()),
    ("NOT id = 1", (), ()),
    ("id = author", (), ()),
    ("id > 7", (), ()),
    ("id = 1 AND id IN (1, 2)", (), (((0,), ((1,),)),)),
    ("id = 1 AND id = 2", (), (((0,), ()),)),
    ("(id, author) = (1, 2)", (), (((0,), ((1,),)), ((1,), ((2,),)))),
    ("(id, author) IN ((1, 2), (3, 4), (1, 2))", (), (((0, 1), ((1, 2), (3, 4))),)),
    ("(author, id) IN ((?, ?), (3, '4'))", (1, 2), (((0, 1), ((2, 1), (4, 3))),)),
    ("(id, author) IN ((1, NULL), (3, 4))", (), (((0, 1), ((3, 4),)),)),
    ("(id, author) IN ((1, NULL))", (), (((0,), ()),)),
    ("(id, author) IN ((1, NULL), (2, NULL))", (), (((0,), ()),)),
    ("(id, title) IN ((1, 7), (2, 'x'))", (), (((0,), ((1,), (2,))),)),
    ("id = 1 AND author IN (2, 3) OR author = 5 AND id = 4", (), (((0, 1), ((1, 2), (1, 3), (4, 5))),)),
    ("(id = 1 OR id = 2) AND id IN (2, 3)", (), (((0,), ((2,),)),)),
    ("id = 1 OR title LIKE 'a%'", (), ()),
]


@pytest.mark.parametrize(("where", "params", "access"), ACCESS, ids=[case[0] for case in ACCESS])
def test_access_is_what_every_row_must_meet_exactly(where: str, params: tuple[Any, ...], access: Any) -> None:
    operation = write(f"DELETE FROM stories WHERE {where}", *params)
    assert isinstance(operation, Delete)
    assert operation.access == access
    updated = write(f"UPDATE stories AS s SET author = 1 WHERE {where}", *params)
    assert isinstance(updated, Update)
    assert updated.access == access


def test_access_of_dates_and_doubles() -> None:
    operation = write("DELETE FROM log WHERE day = '2026-1-2' AND weight = 1 AND body = 'é'")
    assert isinstance(operation, Delete)
    assert operation.access == (((0,), (("2026-01-02",),)), ((1,), (("é".encode(),),)), ((2,), ((1.0,),)))
    assert type(operation.access[2][1][0][0]) is float
    late = write("DELETE FROM log WHERE day = '2026-1-2 10:00'")
    assert isinstance(late, Delete)
    assert late.access == (((0,), ()),)
