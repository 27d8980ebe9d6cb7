"""Writes to a base table, against a MemoryStore: all of an operation or nothing of it, and counted as MySQL counts.

``worker/rocks`` keeps the same promises (tests/worker/test_rocks_contract.py), so one store is enough here.
"""

from __future__ import annotations

from collections import Counter

import pytest

from domains.engine.writing.write import change_table
from domains.engine.writing.written import WrittenTable
from domains.errors import ConstraintViolation, RowsChanged, TypeViolation
from domains.language.expressions import Expression
from domains.language.types import BIGINT, TEXT, Row, SqlType, TableColumn, TableSchema
from domains.language.types import Kind as Kinds
from domains.plan.graph import Columns
from domains.plan.packets import Access, Amend, Delete, Insert, Operation, Update
from domains.store.memory_store import MemoryStore
from tests.domains.graphs import call, column, constant, equals

TINY = SqlType(Kinds.INTEGER, "TINYINT", low=-128, high=127)


class Table:
    """One table and what is stored in it."""

    def __init__(self, *columns: TableColumn, key: Columns = (), unique: tuple[Columns, ...] = ()) -> None:
        self.store = MemoryStore()
        self.table = self.store.create_table(TableSchema("t", columns, key, unique))
        self.returned: tuple[Row, ...] = ()

    def do(self, operation: Operation) -> tuple[int, int | None]:
        """Rows affected, and the first AUTO_INCREMENT value."""
        try:
            done = change_table(WrittenTable(self.table), operation)
        except Exception:
            self.store.rollback()
            raise
        (deltas,), self.returned = done.tables.values() or ([],), done.returned
        assert len({row for row, _ in deltas}) == len(deltas), "deltas are consolidated"
        if deltas:
            self.table.stage(deltas)
            self.store.commit([("t", self.store.position("t") + 1, deltas)])
        return done.affected, done.first

    def insert(self, *rows: Row, on_conflict: str = "error", set: tuple[tuple[int, Expression], ...] = ()) -> int:
        return self.do(Insert("t", rows, on_conflict, set))[0]

    def rows(self) -> list[Row]:
        found = Counter(dict(self.table.find((), ())))
        return sorted(found.elements(), key=repr)


def keyed() -> Table:
    """t(id PRIMARY KEY, name UNIQUE, n)"""
    columns = (TableColumn("id", BIGINT), TableColumn("name", TEXT), TableColumn("n", BIGINT))
    return Table(*columns, key=(0,), unique=((1,),))


def bag() -> Table:
    return Table(TableColumn("a", BIGINT), TableColumn("b", BIGINT))


def plus(position: int, by: int) -> Expression:
    return call("add", column(position), constant(by), type=BIGINT)


# --- constraints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((1, "x", 0),), 'row 1: primary key "id" of table "t" has the value 1 already'),
        (((2, "a", 0),), 'row 1: unique key "name" of table "t" has the value \'a\' already'),
        (((2, "b", 0), (2, "c", 0)), 'row 2: primary key "id"'),
        (((2, "b", 0), (3, "b", 0)), 'row 2: unique key "name"'),
        (((2, "b", 0), (None, "c", 0)), 'row 2: column "id" of table "t" must not be NULL'),
    ],
)
def test_a_refused_insert_changes_nothing(rows: tuple[Row, ...], message: str) -> None:
    table = keyed()
    table.insert((1, "a", 0))
    with pytest.raises(ConstraintViolation) as refused:
        table.insert(*rows)
    assert refused.value.message.startswith(message)
    assert table.rows() == [(1, "a", 0)]


def test_not_null() -> None:
    table = Table(TableColumn("a", BIGINT, nullable=False), TableColumn("b", BIGINT))
    table.insert((1, None))
    with pytest.raises(ConstraintViolation, match='row 2: column "a"'):
        table.insert((2, None), (None, 1))
    with pytest.raises(ConstraintViolation, match='"a" of table "t" must not be NULL'):
        table.do(Update("t", None, ((0, column(1)),)))
    assert table.rows() == [(1, None)]


def test_null_is_unique_among_nulls() -> None:
    table = keyed()
    assert table.insert((1, None, 0), (2, None, 0)) == 2
    assert len(table.rows()) == 2


def test_an_update_is_coerced_to_its_column() -> None:
    table = Table(TableColumn("a", TINY), TableColumn("b", TEXT))
    table.insert((100, "x"))
    with pytest.raises(TypeViolation):
        table.do(Update("t", None, ((0, plus(0, 100)),)))
    table.do(Update("t", None, ((1, column(0)),)))
    assert table.rows() == [(100, "100")]


# --- INSERT IGNORE, REPLACE, ON DUPLICATE KEY UPDATE -------------------------------------------------------------


def test_ignore_leaves_out_what_would_double_a_key() -> None:
    table = keyed()
    assert table.insert((1, "a", 0), (1, "b", 1), (2, "a", 2), (3, "c", 3), on_conflict="ignore") == 2
    assert table.rows() == [(1, "a", 0), (3, "c", 3)]


def test_replace_removes_every_row_that_is_in_the_way() -> None:
    """Two rows go, one for each key; MySQL counts those and the new one."""
    table = keyed()
    table.insert((1, "a", 0), (2, "b", 0), (3, "c", 0))
    assert table.insert((1, "b", 9), on_conflict="replace") == 3
    assert table.rows() == [(1, "b", 9), (3, "c", 0)]
    assert table.insert((1, "x", 1), (1, "y", 2), on_conflict="replace") == 4
    assert table.rows() == [(1, "y", 2), (3, "c", 0)]


@pytest.mark.parametrize(
    ("unique", "row", "affected"),
    [
        ((), (1, "a", None), 1),
        ((), (1, "A", None), 2),
        ((), (1, "a", 0), 2),
        (((1,),), (1, "a", None), 2),
    ],
)
def test_replace_counts_an_identical_row_once(unique: tuple[Columns, ...], row: Row, affected: int) -> None:
    """A row that meets another by the last unique key is changed in place, and not counted as gone where it is the
    same. By a key before the last it goes first, whatever it is. Figures of MariaDB 10.11."""
    columns = (TableColumn("id", BIGINT), TableColumn("name", TEXT), TableColumn("n", BIGINT))
    table = Table(*columns, key=(0,), unique=unique)
    table.insert((1, "a", None))
    assert table.insert(row, on_conflict="replace") == affected
    assert table.rows() == [row]


def test_replace_counts_rows_of_the_statement_itself() -> None:
    table = Table(TableColumn("id", BIGINT), TableColumn("n", BIGINT), key=(0,))
    assert table.insert((1, 1), (1, 1), (1, 2), (1, 2), on_conflict="replace") == 5
    assert table.rows() == [(1, 2)]


def test_on_duplicate_key_update_sees_the_old_row_and_the_new() -> None:
    table = keyed()
    add = ((2, call("add", column(2), column(5), type=BIGINT)),)  # n = n + VALUES(n)
    assert table.insert((1, "a", 1), (1, "a", 10), (2, "b", 5), on_conflict="update", set=add) == 1 + 2 + 1
    assert table.rows() == [(1, "a", 11), (2, "b", 5)]
    assert table.insert((9, "b", 100), on_conflict="update", set=add) == 2
    assert table.rows() == [(1, "a", 11), (2, "b", 105)]
    assert table.insert((1, "a", 0), on_conflict="update", set=add) == 0  # nothing changed


def test_on_duplicate_key_update_may_not_double_another_key() -> None:
    table = keyed()
    table.insert((1, "a", 0), (2, "b", 0))
    with pytest.raises(ConstraintViolation, match='unique key "name"'):
        table.insert((1, "z", 0), on_conflict="update", set=((1, constant("b")),))
    assert table.rows() == [(1, "a", 0), (2, "b", 0)]


# --- UPDATE ------------------------------------------------------------------------------------------------------


def test_an_update_does_not_meet_itself() -> None:
    """``SET id = id + 1``: every old key goes before the new ones come."""
    table = keyed()
    table.insert(*((i, f"n{i}", 0) for i in range(5)))
    assert table.do(Update("t", None, ((0, plus(0, 1)),)))[0] == 5
    assert [row[0] for row in table.rows()] == [1, 2, 3, 4, 5]


def test_an_update_that_meets_a_row_that_stays_is_refused() -> None:
    table = keyed()
    table.insert((1, "a", 0), (2, "b", 0), (3, "c", 0))
    with pytest.raises(ConstraintViolation, match='primary key "id"'):
        table.do(Update("t", call("lt", column(0), constant(3)), ((0, plus(0, 1)),)))
    assert [row[0] for row in table.rows()] == [1, 2, 3]


def test_two_rows_may_swap_a_unique_value() -> None:
    table = keyed()
    table.insert((1, "a", 1), (2, "b", 2))
    swapped = call("if", equals(0, 1), constant("b"), constant("a"), type=TEXT)
    assert table.do(Update("t", None, ((1, swapped),)))[0] == 2
    assert table.rows() == [(1, "b", 1), (2, "a", 2)]


def test_a_later_assignment_sees_the_earlier_one() -> None:
    """As MySQL does, and unlike the standard."""
    table = bag()
    table.insert((1, 1))
    table.do(Update("t", None, ((0, plus(0, 1)), (1, column(0)))))
    assert table.rows() == [(2, 2)]


def test_an_update_to_the_same_values_affects_no_rows() -> None:
    table = keyed()
    table.insert((1, "a", 0), (2, "b", 1))
    assert table.do(Update("t", None, ((2, constant(1)),)))[0] == 1
    assert table.store.position("t") == 2
    assert table.do(Update("t", None, ((2, constant(1)),)))[0] == 0


@pytest.mark.parametrize("access", [(), (((0,), ((2,), (3,), (7,))),)], ids=["scan", "by index"])
def test_where_by_scan_or_by_index(access: Access) -> None:
    table = keyed()
    table.insert((1, "a", 0), (2, "b", 0), (3, "c", 1), (4, "d", 0))
    where = call("and", call("in", column(0), constant(2), constant(3), constant(7)), equals(2, 0))
    assert table.do(Update("t", where, ((2, constant(9)),), access))[0] == 1
    assert table.do(Delete("t", call("in", column(0), constant(2), constant(3), constant(7)), access))[0] == 2
    assert table.rows() == [(1, "a", 0), (4, "d", 0)]


# --- bags and LIMIT ----------------------------------------------------------------------------------------------


def test_a_bag_keeps_copies() -> None:
    table = bag()
    assert table.insert((1, 1), (1, 1), (1, 1), (2, 2)) == 4
    assert table.rows() == [(1, 1), (1, 1), (1, 1), (2, 2)]
    assert table.do(Update("t", equals(0, 1), ((1, constant(5)),)))[0] == 3
    assert table.rows() == [(1, 5), (1, 5), (1, 5), (2, 2)]
    assert table.do(Delete("t", equals(0, 1)))[0] == 3
    assert table.rows() == [(2, 2)]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 9])
def test_limit_counts_copies(limit: int) -> None:
    table = bag()
    table.insert((1, 1), (1, 1), (1, 1), (2, 2))
    assert table.do(Delete("t", equals(0, 1), limit=limit))[0] == min(limit, 3)
    assert table.rows() == [(1, 1)] * (3 - min(limit, 3)) + [(2, 2)]
    left = len(table.rows())
    assert table.do(Update("t", None, ((1, constant(7)),), limit=limit))[0] == min(limit, left)
    assert sum(row[1] == 7 for row in table.rows()) == min(limit, left)


def test_a_bag_has_no_conflicts() -> None:
    for on_conflict in ("ignore", "replace", "update"):
        table = bag()
        assert table.insert((1, 1), (1, 1), on_conflict=on_conflict) == 2


# --- AUTO_INCREMENT ----------------------------------------------------------------------------------------------


def numbered() -> Table:
    return Table(TableColumn("id", BIGINT, auto_increment=True), TableColumn("v", BIGINT), key=(0,))


def test_auto_increment_gives_consecutive_values_and_says_the_first() -> None:
    table = numbered()
    assert table.do(Insert("t", ((None, 5), (None, 6)))) == (2, 1)
    assert table.do(Insert("t", ((10, 7),))) == (1, None)
    assert table.do(Insert("t", ((None, 8),))) == (1, 11)
    assert table.do(Insert("t", ((None, 9), (20, 9), (None, 9)))) == (3, 21)
    assert [row[0] for row in sorted(table.rows())] == [1, 2, 10, 11, 20, 21, 22]


def test_a_refused_insert_gives_its_numbers_back() -> None:
    """MySQL leaves a gap there; a number that nobody saw may as well be used."""
    table = numbered()
    table.do(Insert("t", ((None, 1),)))
    with pytest.raises(ConstraintViolation):
        table.do(Insert("t", ((None, 2), (1, 2))))
    assert table.do(Insert("t", ((None, 3),))) == (1, 2)


@pytest.mark.parametrize(
    ("on_conflict", "rows", "first"),
    [
        ("ignore", (("a", 9),), None),
        ("ignore", (("a", 9), ("b", 2), ("c", 3)), 3),
        ("update", (("a", 9),), None),
        ("update", (("a", 1),), None),
        ("update", (("a", 9), ("b", 4)), 3),
        ("replace", (("a", 9),), 2),
        ("list", (("b", 1), ("c", 1)), 2),
    ],
)
def test_the_first_value_is_that_of_a_row_that_was_inserted(
    on_conflict: str, rows: tuple[tuple[str, int], ...], first: int | None
) -> None:
    """As LAST_INSERT_ID: a row that stays out uses a value up, and nobody can find a row by it."""
    columns = (TableColumn("id", BIGINT, auto_increment=True), TableColumn("name", TEXT), TableColumn("n", BIGINT))
    table = Table(*columns, key=(0,), unique=((1,),))
    table.insert((None, "a", 1))
    assignments = ((2, column(5)),) if on_conflict == "update" else ()
    asked = tuple((None, *row) for row in rows)
    assert table.do(Insert("t", asked, on_conflict, assignments))[1] == first
    assert first is None or first in {row[0] for row in table.rows()}


def test_a_row_that_gives_its_value_is_not_the_first_that_was_generated() -> None:
    table = numbered()
    assert table.do(Insert("t", ((600, 1), (None, 1)), "ignore")) == (2, 601)
    assert table.do(Insert("t", ((None, 1), (600, 2)), "ignore")) == (1, 602)
    assert table.do(Insert("t", ((600, 2), (700, 2)), "ignore")) == (1, None)


def test_a_row_of_another_width_is_refused_and_nothing_happens() -> None:
    """Made for another schema: whoever sent it, it ends no worker."""
    table = Table(TableColumn("id", BIGINT, nullable=False), TableColumn("b", BIGINT, nullable=False), key=(0,))
    for row in [(1,), (1, 2, 3)]:
        with pytest.raises(TypeViolation, match="columns"):
            table.do(Insert("t", ((2, 2), row)))
    assert table.do(Insert("t", ((2, 2),))) == (1, None)


# --- rows that a SELECT has chosen ------------------------------------------------------------------------------------


def test_chosen_rows_are_changed_by_what_stands_beside_them() -> None:
    table = keyed()
    table.insert((1, "a", 10), (2, "b", 20), (3, None, 30))
    changes = ((2, column(3)), (1, call("concat", column(1, TEXT), constant("!"), type=TEXT)))
    chosen = ((3, None, 30), (1, "a", 10))
    assert table.do(Amend("t", chosen, ((7,), (10,)), changes)) == (2, None)
    assert table.rows() == [(1, "a!", 10), (2, "b", 20), (3, None, 7)]
    assert table.do(Amend("t", ((2, "b", 20),))) == (1, None)
    assert table.rows() == [(1, "a!", 10), (3, None, 7)]


@pytest.mark.parametrize("seen", [(1, "a", 11), (9, "a", 10), (1, None, 10)])
def test_a_chosen_row_that_is_another_by_now_changes_nothing(seen: Row) -> None:
    table = keyed()
    table.insert((1, "a", 10), (2, "b", 20))
    with pytest.raises(RowsChanged):
        table.do(Amend("t", ((2, "b", 20), seen)))
    assert table.rows() == [(1, "a", 10), (2, "b", 20)]


def test_a_chosen_row_of_a_bag_stands_for_all_copies_or_for_one() -> None:
    table = bag()
    rows = [(1, 1), (1, 1), (1, 1), (None, 2), (None, 2)]
    table.insert(*rows)
    assert table.do(Amend("t", ((1, 1), (1, 1)), single=True)) == (2, None)
    assert table.do(Amend("t", ((None, 2),))) == (2, None)
    assert table.rows() == [(1, 1)]
    with pytest.raises(RowsChanged):
        table.do(Amend("t", ((1, 1), (1, 1)), single=True))
    assert table.do(Amend("t", ((1, 1),), ((5,),), ((0, column(2)),), single=True)) == (1, None)
    assert table.rows() == [(5, 1)]


def test_chosen_rows_may_not_double_a_key() -> None:
    table = keyed()
    table.insert((1, "a", 10), (2, "b", 20))
    swap = Amend("t", ((1, "a", 10), (2, "b", 20)), ((2,), (1,)), ((0, column(3)),))
    assert table.do(swap) == (2, None)
    assert table.rows() == [(1, "b", 20), (2, "a", 10)]
    with pytest.raises(ConstraintViolation, match="row 1: unique key"):
        table.do(Amend("t", ((1, "b", 20),), (), ((1, constant("a")),)))


# --- RETURNING --------------------------------------------------------------------------------------------------------


def test_the_rows_that_are_told() -> None:
    table = keyed()
    table.do(Insert("t", ((1, "a", 10), (2, "b", 20)), returning=True))
    assert table.returned == ((1, "a", 10), (2, "b", 20))
    table.do(Insert("t", ((1, "x", 0), (3, "c", 30)), "ignore", returning=True))
    assert table.returned == ((3, "c", 30),)
    table.do(Insert("t", ((1, "x", 7), (4, "d", 40)), "update", ((2, column(5)),), returning=True))
    assert table.returned == ((1, "a", 7), (4, "d", 40))
    table.do(Insert("t", ((1, "b", 0),), "replace", returning=True))
    assert table.returned == ((1, "b", 0),)
    table.do(Delete("t", equals(0, 3), returning=True))
    assert table.returned == ((3, "c", 30),)
    table.do(Delete("t", None))
    assert table.returned == ()


def test_copies_in_a_bag_are_told_one_by_one() -> None:
    table = bag()
    table.do(Insert("t", ((1, 1), (1, 1)), returning=True))
    assert table.returned == ((1, 1), (1, 1))
    table.do(Delete("t", None, limit=1, returning=True))
    assert table.returned == ((1, 1),)
