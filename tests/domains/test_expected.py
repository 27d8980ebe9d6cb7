"""What a schema to come asks of rows: of stored ones in slices, and of each write meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domains.engine.control import perform
from domains.engine.domain import Domain
from domains.engine.lifecycle.expected import asks_more
from domains.errors import ConstraintViolation
from domains.language.expressions import Constant, Field
from domains.language.functions import call
from domains.language.json_rows import stored_expression
from domains.language.types import BIGINT, Check, ForeignKey, Reaction, Row, TableColumn, TableSchema
from domains.plan.commands import AlterTable, BuildIndex, CheckRows, Command, CreateTable, Expect, Progress, Relent
from domains.plan.graph import DomainIndex
from domains.plan.packets import Delete, Failed, Insert, Operation, Reply, RequestId, Write
from domains.store.memory_store import MemoryStore

T = TableSchema("t", (TableColumn("k", BIGINT), TableColumn("v", BIGINT)))
UNIQUE = replace(T, unique=((0,),), unique_names=("once",))
POSITIVE = Check("positive", stored_expression("v > 0", call("gt", Field(1, BIGINT), Constant(0, BIGINT))))
CHECKED = replace(T, checks=(POSITIVE,))
REQUIRED = replace(T, columns=(replace(T.columns[0], nullable=False), T.columns[1]))


def domain(*rows: Row) -> Domain:
    made = Domain(DomainIndex(0), MemoryStore())
    do(made, CreateTable(T))
    assert write(made, Insert("t", rows)) is None
    return made


def do(at: Domain, command: Command) -> Progress:
    return perform(at, command)[0]


def write(at: Domain, operation: Operation) -> str | None:
    """What it is refused for."""
    (reply,) = at.handle(Write(RequestId(1), operation))
    assert isinstance(reply, Reply)
    return reply.outcome.error.message if isinstance(reply.outcome, Failed) else None


def expect(at: Domain, schema: TableSchema) -> None:
    do(at, Expect(schema))
    for columns in (*schema.unique, *schema.indexes):
        while not do(at, BuildIndex("t", columns, 1)).finished:
            pass


def check(at: Domain, limit: int = 100) -> None:
    while not do(at, CheckRows("t", limit)).finished:
        pass


@pytest.mark.parametrize(
    ("schema", "rows", "why"),
    [
        (
            UNIQUE,
            [(1, 1), (2, 1), (1, 2), (3, 1), (3, 1)],
            'unique key "k" has (1) in 2 rows; unique key "k" has (3) in',
        ),
        (CHECKED, [(1, 0), (2, None), (3, -1)], 'check "positive" (v > 0) is false of (1, 0); check "positive"'),
        (REQUIRED, [(1, 1), (None, 2)], 'column "k" is NULL in the row (NULL, 2)'),
        (UNIQUE, [(key, n) for key in range(12) for n in (1, 2)], "(9) in 2 rows, and more"),
    ],
)
def test_stored_rows_that_break_it_are_named(schema: TableSchema, rows: list[Row], why: str) -> None:
    for limit in (1, 100):
        at = domain(*rows)
        expect(at, schema)
        with pytest.raises(ConstraintViolation) as caught:
            check(at, limit)
        assert why in caught.value.message
        do(at, Relent("t"))
        assert write(at, Insert("t", ((1, -1), (None, None)))) is None
        assert not at.store.table("t").has_index((0,))


def test_rows_without_a_key_are_no_duplicates_and_checks_take_null() -> None:
    at = domain((None, 1), (None, 1), (1, None))
    expect(at, replace(UNIQUE, checks=(POSITIVE,)))
    check(at)
    do(at, AlterTable(replace(UNIQUE, checks=(POSITIVE,))))
    assert not at.expected
    assert "has the value 1 already" in str(write(at, Insert("t", ((1, 5),))))


@pytest.mark.parametrize(
    ("schema", "bad"), [(UNIQUE, ((1, 5),)), (UNIQUE, ((7, 5), (7, 6))), (CHECKED, ((9, 0),)), (REQUIRED, ((None, 1),))]
)
def test_what_is_written_before_behind_and_after_the_check_is_refused(
    schema: TableSchema, bad: tuple[Row, ...]
) -> None:
    at = domain((1, 1), (2, 2), (3, 3))
    expect(at, schema)
    assert "an ALTER TABLE of" in str(write(at, Insert("t", bad)))
    do(at, CheckRows("t", 1))
    assert "an ALTER TABLE of" in str(write(at, Insert("t", bad)))
    assert write(at, Insert("t", ((4, 4),))) is None
    check(at)
    assert "an ALTER TABLE of" in str(write(at, Insert("t", bad, on_conflict="ignore")))
    assert sorted(row for row, _ in at.store.table("t").find((), ())) == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_row_may_take_the_place_of_another() -> None:
    """As DELETE and INSERT, and as one that was written before the index was complete and is read afterwards."""
    at = domain((1, 1), (2, 2), (3, 3))
    do(at, Expect(UNIQUE))
    assert write(at, Insert("t", ((1, 2),))) is None  # No index yet: the check will read it.
    while not do(at, BuildIndex("t", (0,), 1)).finished:
        pass
    with pytest.raises(ConstraintViolation, match=r"\(1\) in 2 rows"):
        check(at)
    do(at, Relent("t"))
    assert write(at, Delete("t", call("eq", Field(0, BIGINT), Constant(1, BIGINT)))) is None
    expect(at, UNIQUE)
    assert write(at, Insert("t", ((1, 2),))) is None
    check(at)


def test_an_index_that_was_there_stays() -> None:
    at = domain((1, 1))
    do(at, BuildIndex("t", (0,), 9))
    expect(at, UNIQUE)
    do(at, Expect(UNIQUE))  # Again, by the next leader.
    do(at, Relent("t"))
    assert at.store.table("t").has_index((0,))


def test_a_key_that_comes_with_one_value_for_all_rows_allows_one_row() -> None:
    """Also while the change is carried out; NULLs are told apart."""
    come = TableColumn("n", BIGINT, default=3, has_default=True)
    one = replace(T, columns=(*T.columns, come), unique=((2,),), unique_names=("n",))
    at = domain((1, 1))
    do(at, Expect(one))
    assert "has (3) in 2 rows" in str(write(at, Insert("t", ((2, 2),))))
    check(at)
    do(at, AlterTable(one))
    assert "has the value 3 already" in str(write(at, Insert("t", ((2, 2, 3),))))
    assert write(at, Insert("t", ((2, 2, 4),))) is None
    at = domain((1, 1), (2, 2))
    for key in ((2,), (0, 2)):
        do(at, Expect(replace(one, unique=(key,))))
        with pytest.raises(ConstraintViolation, match=r"has \(3\) in 2 rows|ADD COLUMN first"):
            check(at)
        do(at, Relent("t"))
    nullable = replace(one, columns=(*T.columns, TableColumn("n", BIGINT)))
    assert not asks_more(T, replace(nullable, unique=((2,),)))


# --- foreign keys ---------------------------------------------------------------------------------------------------

P = TableSchema("p", (TableColumn("id", BIGINT), TableColumn("w", BIGINT)), primary_key=(0,))
NAMING = replace(T, indexes=((1,),), index_names=("v",), foreign_keys=(ForeignKey("f", (1,), "p", ("id",)),))
OWN = replace(
    UNIQUE,
    indexes=((1,),),
    index_names=("v",),
    foreign_keys=(ForeignKey("f", (1,), "t", ("k",), Reaction.CASCADE),),
)


def with_parents(*rows: Row) -> Domain:
    at = domain(*rows)
    do(at, CreateTable(P))
    assert write(at, Insert("p", ((1, 0), (2, 0), (3, 0)))) is None
    return at


def naming(at: Domain) -> None:
    expect(at, NAMING)


def without(table: str, key: int) -> Delete:
    return Delete(table, call("eq", Field(0, BIGINT), Constant(key, BIGINT)))


def test_stored_rows_that_name_none_are_named() -> None:
    at = with_parents((1, 1), (2, 7), (3, None), (4, 8))
    naming(at)
    with pytest.raises(ConstraintViolation, match=r'names no row of table "p": "v" is \(7\) in \(2, 7\); .*\(8\)'):
        check(at)
    do(at, Relent("t"))
    assert write(at, Insert("t", ((5, 9),))) is None
    assert not at.store.table("t").has_index((1,))


def test_writes_of_both_tables_are_refused_as_long_as_it_is_expected() -> None:
    at = with_parents((1, 1), (2, 2), (3, None))
    naming(at)
    for step in (1, 1, 1, 0):
        assert "names no row" in str(write(at, Insert("t", ((5, 9),))))
        assert '1 rows of "t" name the row (1, 0) of "p"' in str(write(at, without("p", 1)))
        if step:
            do(at, CheckRows("t", 1))
    assert write(at, without("p", 3)) is None
    assert write(at, Insert("p", ((4, 0),))) is None
    assert write(at, Insert("t", ((6, 4),))) is None
    assert write(at, without("t", 6)) is None
    assert write(at, without("p", 4)) is None
    check(at)
    do(at, AlterTable(NAMING))
    assert "cannot go" in str(write(at, without("p", 1)))


def test_a_row_that_goes_before_the_index_is_complete_is_found_by_the_check() -> None:
    at = with_parents((1, 1), (2, 2))
    do(at, Expect(NAMING))
    assert write(at, without("p", 2)) is None
    while not do(at, BuildIndex("t", (1,), 1)).finished:
        pass
    with pytest.raises(ConstraintViolation, match=r"\(2\) in \(2, 2\)"):
        check(at)


def test_a_table_that_names_itself_and_one_that_is_not_there_yet() -> None:
    at = domain((1, None), (2, 1), (3, 2))
    expect(at, OWN)
    assert "name the row" in str(write(at, without("t", 2)))
    assert write(at, Insert("t", ((4, 5), (5, 4)))) is None
    both = call("or", *(call("eq", Field(0, BIGINT), Constant(key, BIGINT)) for key in (4, 5)))
    assert write(at, Delete("t", both)) is None
    check(at)
    do(at, Relent("t"))
    do(at, Expect(NAMING))
    with pytest.raises(ConstraintViolation, match='no row of table "p"'):
        check(at)
    assert 'no row of table "p"' in str(write(at, Insert("t", ((4, 5),))))
    assert write(at, Insert("t", ((4, None),))) is None
