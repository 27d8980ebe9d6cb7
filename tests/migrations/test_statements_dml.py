"""INSERT, REPLACE, UPDATE, DELETE and TRUNCATE to operations; subqueries."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from domains.errors import (
    BadRequest,
    ConstraintViolation,
    HeadraceError,
    SqlError,
    TypeViolation,
    UnknownName,
    Unsupported,
)
from domains.language.compile import compile_expression, compile_predicate
from domains.language.types import Row
from domains.plan.packets import Delete, Insert, Operation, Update
from migrations.statements.dml import resolve
from migrations.statements.statement import PendingWrite, WriteStatement
from tests.migrations.statement_catalog import CATALOG, NOW, one, perform


def write(sql: str, *params: Any) -> Operation:
    statement = one(sql, *params)
    assert isinstance(statement, WriteStatement), statement
    return statement.operation


def inserted(sql: str, *params: Any) -> tuple[Row, ...]:
    operation = write(sql, *params)
    assert isinstance(operation, Insert)
    return operation.rows


ROWS: list[tuple[str, tuple[Any, ...], list[Row]]] = [
    ("INSERT INTO votes VALUES (1, 2), (3, 4)", (), [(1, 2), (3, 4)]),
    ("INSERT votes (story_id, USER) VALUES ('1', 2.4)", (), [(2, 1)]),
    ("INSERT INTO votes VALUES ROW(1, 2), ROW(3, 4)", (), [(1, 2), (3, 4)]),
    ("INSERT INTO votes SET story_id = 1 + 1, user = -(3)", (), [(-3, 2)]),
    ("INSERT INTO votes VALUES (?, ? + 1)", (1, 2), [(1, 3)]),
    ("INSERT INTO votes VALUES (?, ?)", (True, Decimal("2")), [(1, 2)]),
    ("INSERT INTO stories (author) VALUES (7)", (), [(None, 7, "none", None, NOW)]),
    ("INSERT INTO stories VALUES (0, 7, DEFAULT, 1.005, DEFAULT)", (), [(None, 7, "none", Decimal("1.01"), NOW)]),
    ("INSERT INTO stories VALUES (NULL, 7, NULL, NULL, NULL)", (), [(None, 7, None, None, None)]),
    (
        "INSERT INTO stories VALUES (5, 7, 'a;''b', -1, '2026-1-2')",
        (),
        [(5, 7, "a;'b", Decimal("-1.00"), "2026-01-02 00:00:00")],
    ),
    (
        "INSERT INTO stories (author, made) VALUES (7, NOW() - INTERVAL 1 DAY)",
        (),
        [(None, 7, "none", None, "2026-01-30 08:00:00")],
    ),
    (
        "INSERT INTO log VALUES (CURRENT_DATE, x'00ff', 1), ('2026-01-31 10:00', 'é', '1e3')",
        (),
        [("2026-01-31", b"\0\xff", 1.0), ("2026-01-31", "é".encode(), 1000.0)],
    ),
    ("INSERT INTO log () VALUES (), ()", (), [(None, None, None), (None, None, None)]),
    ("INSERT INTO log VALUES ()", (), [(None, None, None)]),
    ("INSERT INTO log (body) VALUES (?)", (b"\1",), [(None, b"\1", None)]),
]


@pytest.mark.parametrize(("sql", "params", "expected"), ROWS, ids=[row[0][:60] for row in ROWS])
def test_rows_are_of_stored_width_and_coerced(sql: str, params: tuple[Any, ...], expected: list[Row]) -> None:
    rows = inserted(sql, *params)
    assert list(rows) == expected
    assert [[type(value) for value in row] for row in rows] == [[type(value) for value in row] for row in expected]


def test_a_dropped_column_is_null_and_an_added_one_has_its_default() -> None:
    catalog = perform("ALTER TABLE stories DROP COLUMN title, ADD COLUMN more INT DEFAULT 4", CATALOG)
    statement = one("INSERT INTO stories VALUES (1, 2, 3.5, NULL, DEFAULT), (1, 2, 3.5, NULL, 9)", catalog=catalog)
    assert isinstance(statement, WriteStatement)
    assert isinstance(statement.operation, Insert)
    assert statement.operation.rows == ((1, 2, None, Decimal("3.50"), None, 4), (1, 2, None, Decimal("3.50"), None, 9))


CONFLICTS = [
    ("INSERT INTO votes VALUES (1, 2)", "error"),
    ("INSERT IGNORE INTO votes VALUES (1, 2)", "ignore"),
    ("REPLACE INTO votes VALUES (1, 2)", "replace"),
    ("REPLACE votes SET user = 1, story_id = 2", "replace"),
    ("INSERT INTO votes VALUES (1, 2) ON DUPLICATE KEY UPDATE user = 3", "update"),
]


@pytest.mark.parametrize(("sql", "on_conflict"), CONFLICTS)
def test_what_a_conflict_does(sql: str, on_conflict: str) -> None:
    operation = write(sql)
    assert isinstance(operation, Insert)
    assert (operation.rows, operation.on_conflict) == (((1, 2),), on_conflict)


UPDATES: list[tuple[str, dict[int, Any]]] = [
    (
        "INSERT INTO votes VALUES (1, 2) ON DUPLICATE KEY UPDATE user = user + VALUES(story_id), story_id = 9",
        {0: 12, 1: 9},
    ),
    ("INSERT INTO votes VALUES (1, 2) AS new ON DUPLICATE KEY UPDATE votes.user = new.user + user", {0: 11}),
    (
        "INSERT INTO votes (story_id, user) VALUES (2, 1) AS n(s, u)"
        " ON DUPLICATE KEY UPDATE user = s + n.u, story_id = DEFAULT",
        {0: 3, 1: None},
    ),
]


@pytest.mark.parametrize(("sql", "expected"), UPDATES, ids=[sql[:70] for sql, _ in UPDATES])
def test_on_duplicate_key_update_sees_the_old_row_and_the_new(sql: str, expected: dict[int, Any]) -> None:
    catalog = perform("DROP TABLE votes; CREATE TABLE votes (user INT PRIMARY KEY, story_id INT)", CATALOG)
    statement = one(sql, catalog=catalog)
    assert isinstance(statement, WriteStatement)
    operation = statement.operation
    assert isinstance(operation, Insert)
    both = (10, 20, *operation.rows[0])
    assert {at: compile_expression(expression)(both) for at, expression in operation.assignments} == expected


def test_update_and_delete() -> None:
    operation = write(
        "UPDATE stories s SET s.score = score * 2, title = 7, made = DEFAULT WHERE s.id > ? LIMIT ?", 4, 10
    )
    assert isinstance(operation, Update)
    old: Row = (5, 1, "x", Decimal("1.50"), None)
    values = {at: compile_expression(expression)(old) for at, expression in operation.assignments}
    assert values == {3: Decimal("3.00"), 2: "7", 4: NOW}
    assert operation.where is not None
    assert compile_predicate(operation.where)(old)
    assert not compile_predicate(operation.where)((4, *old[1:]))
    assert operation.limit == 10
    assert write("DELETE FROM votes") == Delete("votes", None)
    assert write("DELETE s FROM votes AS s LIMIT 3") == Delete("votes", None, limit=3)
    assert write("TRUNCATE TABLE VOTES") == Delete("votes", None)


# --- subqueries -------------------------------------------------------------------------------------------------------


def pending(sql: str, *params: Any) -> PendingWrite:
    statement = one(sql, *params)
    assert isinstance(statement, PendingWrite), statement
    return statement


def test_a_subquery_is_asked_first() -> None:
    statement = pending(
        "DELETE FROM votes WHERE user IN (SELECT id FROM stories WHERE author = ?) AND story_id = ?", 3, 4
    )
    assert [(select.sql, select.params) for select in statement.subqueries] == [
        ("SELECT id FROM stories WHERE author = ?", (3,))
    ]
    operation = resolve(statement, [[(1,), (2,), (1,)]]).operation
    assert isinstance(operation, Delete)
    assert operation.access == (((0,), ((1,), (2,))), ((1,), ((4,),)))
    nothing = resolve(statement, [[]]).operation
    assert isinstance(nothing, Delete)
    assert nothing.where is not None
    assert not compile_predicate(nothing.where)((1, 4))


NOT_IN: list[tuple[list[Row], Row, bool]] = [
    ([], (1, 1), True),
    ([(1,)], (1, 1), False),
    ([(2,)], (1, 1), True),
    ([(2,), (None,)], (1, 1), False),
]


@pytest.mark.parametrize(("answer", "row", "kept"), NOT_IN)
def test_not_in_has_sql_null_semantics(answer: list[Row], row: Row, kept: bool) -> None:
    operation = resolve(pending("DELETE FROM votes WHERE user NOT IN (SELECT id FROM stories)"), [answer]).operation
    assert isinstance(operation, Delete)
    assert operation.where is not None
    assert compile_predicate(operation.where)(row) is kept


def test_scalar_subqueries_and_exists() -> None:
    statement = pending(
        "UPDATE votes SET story_id = (SELECT MAX(id) FROM stories) + 1"
        " WHERE EXISTS (SELECT 1 FROM stories) AND user = (SELECT MIN(id) FROM stories)"
    )
    assert [select.sql for select in statement.subqueries] == [
        "SELECT MAX(id) FROM stories",
        "SELECT 1 FROM stories",
        "SELECT MIN(id) FROM stories",
    ]
    operation = resolve(statement, [[(8,)], [(1,), (1,)], []]).operation
    assert isinstance(operation, Update)
    assert compile_expression(operation.assignments[0][1])((1, 1)) == 9
    assert operation.where is not None
    assert not compile_predicate(operation.where)((1, 1))
    with pytest.raises(SqlError, match="gives more than one row"):
        resolve(statement, [[(8,), (9,)], [], []])
    with pytest.raises(SqlError, match="gives 2 columns where one is wanted"):
        resolve(statement, [[(8, 9)], [], []])


def test_insert_select() -> None:
    statement = pending(
        "INSERT INTO votes (story_id, user) SELECT id, author FROM stories"
        " ON DUPLICATE KEY UPDATE user = (SELECT 7 FROM log)"
    )
    assert [select.sql for select in statement.subqueries] == ["SELECT id, author FROM stories", "SELECT 7 FROM log"]
    operation = resolve(statement, [[(1, 2), ("3", Decimal("4"))], [(7,)]]).operation
    assert isinstance(operation, Insert)
    assert operation.rows == ((2, 1), (4, 3))
    with pytest.raises(SqlError, match=r"row 1: .*1 values.*2 columns"):
        resolve(statement, [[(1,)], []])
    with pytest.raises(TypeViolation, match=r"row 2: 'x' does not fit type INT of column \"story_id\""):
        resolve(statement, [[(1, 1), ("x", 1)], []])


def test_a_subquery_that_reads_nothing_has_its_values_in_its_text() -> None:
    statement = pending("INSERT INTO votes SELECT ?, 2 + ?", 5, "a'b")
    assert [(select.sql, select.params) for select in statement.subqueries] == [("SELECT 5, 2 + 'a''b'", ())]


# --- errors -----------------------------------------------------------------------------------------------------------

WRONG: list[tuple[str, tuple[Any, ...], type[HeadraceError], str]] = [
    (
        "INSERT INTO vote VALUES (1)",
        (),
        UnknownName,
        'unknown table "vote" at line 1, column 13 (did you mean "votes"?)',
    ),
    (
        "INSERT INTO VoteCount VALUES (1)",
        (),
        Unsupported,
        'writing to view "VoteCount" (write to the tables that it reads)',
    ),
    (
        "INSERT INTO votes (usr) VALUES (1)",
        (),
        UnknownName,
        'unknown column "votes.usr" at line 1, column 20 (did you mean "user"?)',
    ),
    ("INSERT INTO votes (user, USER) VALUES (1, 2)", (), SqlError, 'column "USER" is named twice'),
    ("INSERT INTO votes VALUES (1, 2), (3)", (), SqlError, "row 2: there are 1 values for 2 columns"),
    ("INSERT INTO votes (user) VALUES (1, 2)", (), SqlError, "row 1: there are 2 values for 1 columns"),
    (
        "INSERT INTO votes (user) VALUES (1)",
        (),
        ConstraintViolation,
        'row 1: column "story_id" has no value (it is NOT NULL and has no DEFAULT',
    ),
    ("INSERT INTO votes VALUES (1, 2), (3, DEFAULT)", (), ConstraintViolation, 'row 2: column "story_id" has no value'),
    (
        "INSERT INTO votes VALUES (1, 2), (3, 'x')",
        (),
        TypeViolation,
        "row 2: 'x' does not fit type INT of column \"story_id\"",
    ),
    (
        "INSERT INTO votes VALUES (1, 3000000000)",
        (),
        TypeViolation,
        'row 1: 3000000000 does not fit type INT of column "story_id": it is out of range',
    ),
    (
        "INSERT INTO stories (author, title) VALUES (1, 'aaaaaaaaaaaaaaaaaaaaa')",
        (),
        TypeViolation,
        "row 1: 'aaaaaaaaaaaaaaaaaaaaa' does not fit type VARCHAR(20)",
    ),
    ("INSERT INTO votes VALUES (usr, 2)", (), UnknownName, 'unknown column "usr"'),
    ("INSERT INTO votes VALUES (?, ?)", (1,), BadRequest, "the statement has 2 parameters, but 1 value is given"),
    (
        "INSERT INTO votes VALUES (?, 1)",
        ([1, 2],),
        BadRequest,
        "parameter 1 is a list (lists are for IN (?) in SELECT only)",
    ),
    ("INSERT INTO votes VALUES (?, 1)", ({},), BadRequest, "parameter 1 is of the type dict"),
    ("INSERT INTO votes VALUES (:x, 1)", (), Unsupported, 'the named parameter ":x" (parameters are written ?)'),
    (
        "INSERT INTO votes VALUES (1, 2) AS votes ON DUPLICATE KEY UPDATE user = 1",
        (),
        SqlError,
        'the alias "votes" is the name of the table',
    ),
    (
        "INSERT INTO votes VALUES (1, 2) AS n(a) ON DUPLICATE KEY UPDATE user = 1",
        (),
        SqlError,
        "n has 1 names for 2 columns",
    ),
    ("INSERT INTO votes VALUES (1, 2) ON DUPLICATE KEY UPDATE usr = 1", (), UnknownName, 'unknown column "votes.usr"'),
    (
        "INSERT INTO votes VALUES (1, 2) ON DUPLICATE KEY UPDATE user = VALUES(usr)",
        (),
        UnknownName,
        'unknown column "votes.usr"',
    ),
    (
        "INSERT IGNORE INTO votes VALUES (1, 2) ON DUPLICATE KEY UPDATE user = 1",
        (),
        SqlError,
        "ON DUPLICATE KEY UPDATE does not go with IGNORE or REPLACE",
    ),
    (
        "INSERT INTO votes VALUES (1, 2) RETURNING (SELECT 1 FROM log)",
        (),
        Unsupported,
        "a subquery in RETURNING (SELECT it afterwards)",
    ),
    ("UPDATE votes SET user = 1 RETURNING user", (), Unsupported, "UPDATE with RETURNING (SELECT the rows afterwards)"),
    (
        "UPDATE votes SET usr = 1",
        (),
        UnknownName,
        'unknown column "votes.usr" at line 1, column 18 (did you mean "user"?)',
    ),
    ("UPDATE votes v SET votes.user = 1", (), UnknownName, 'unknown table "votes"'),
    ("UPDATE votes SET user = 'x'", (), TypeViolation, "'x' does not fit type INT of column \"user\""),
    ("UPDATE votes SET user = DEFAULT", (), ConstraintViolation, 'column "user" has no value'),
    ("UPDATE votes SET user = 1 ORDER BY usr", (), UnknownName, 'unknown column "usr"'),
    ("UPDATE votes SET user = 1 LIMIT ?", (-1,), SqlError, "LIMIT wants a number that is not negative"),
    (
        "UPDATE votes v, votes w SET v.user = 1, w.user = 1",
        (),
        Unsupported,
        'UPDATE that writes to table "votes" under two names (one UPDATE for each)',
    ),
    (
        "UPDATE votes, stories SET id = 1 LIMIT 1",
        (),
        SqlError,
        "UPDATE of several tables takes no ORDER BY and no LIMIT",
    ),
    ("UPDATE votes v JOIN votes w ON 1 SET user = 1", (), SqlError, 'column "user" is ambiguous (write table.column)'),
    ("UPDATE votes JOIN stories ON 1 SET x.user = 1", (), SqlError, 'unknown table "x" in SET'),
    ("UPDATE votes JOIN VoteCount c ON 1 SET c.vcount = 1", (), Unsupported, 'writing to view "VoteCount"'),
    ("WITH x AS (SELECT 1 AS a) UPDATE x SET a = 1", (), SqlError, '"x" is a name of WITH, which cannot be written to'),
    (
        "UPDATE votes SET user = 1, story_id = (SELECT MAX(id) FROM stories WHERE id = user)",
        (),
        Unsupported,
        'a subquery that reads "user" after it was assigned (assign it after the subquery)',
    ),
    ("UPDATE votes SET user = COUNT(*)", (), SqlError, "the aggregate COUNT(*) cannot stand in UPDATE"),
    ("DELETE votes, t FROM votes JOIN stories s", (), SqlError, 'DELETE names "t", which FROM does not have'),
    ("DELETE log FROM votes", (), SqlError, 'DELETE names "log", which FROM does not have'),
    (
        "DELETE FROM votes WHERE usr = 1",
        (),
        UnknownName,
        'unknown column "usr" at line 1, column 25 (did you mean "user"?)',
    ),
    ("DELETE FROM votes WHERE usr IN (SELECT id FROM stories)", (), UnknownName, 'unknown column "usr"'),
    ("TRUNCATE TABLE vote", (), UnknownName, 'unknown table "vote" at line 1, column 16 (did you mean "votes"?)'),
]


@pytest.mark.parametrize(("sql", "params", "kind", "message"), WRONG, ids=[case[0][:70] for case in WRONG])
def test_what_is_wrong_is_said(sql: str, params: tuple[Any, ...], kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        one(sql, *params)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        ("UPDATE LOW_PRIORITY votes SET user = 1", "UPDATE votes SET user = 1"),
        ("DELETE LOW_PRIORITY QUICK IGNORE FROM votes", "DELETE FROM votes"),
        ("DELETE QUICK FROM votes WHERE user = 1", "DELETE FROM votes WHERE user = 1"),
        ("INSERT HIGH_PRIORITY INTO votes VALUES (1, 2)", "INSERT INTO votes VALUES (1, 2)"),
        ("INSERT DELAYED IGNORE INTO votes VALUES (1, 2)", "INSERT IGNORE INTO votes VALUES (1, 2)"),
        ("REPLACE LOW_PRIORITY INTO votes VALUES (1, 2)", "REPLACE INTO votes VALUES (1, 2)"),
    ],
)
def test_a_priority_changes_nothing(sql: str, plain: str) -> None:
    assert write(sql) == write(plain)


def test_what_update_ignore_cannot_do_is_named() -> None:
    with pytest.raises(Unsupported, match="UPDATE IGNORE with joins"):
        one("UPDATE LOW_PRIORITY IGNORE votes v JOIN stories s ON s.id = v.story_id SET v.user = 1")


def test_an_insert_has_no_row_to_correlate_with() -> None:
    statement = one("INSERT INTO votes SELECT user, id FROM stories")
    assert isinstance(statement, PendingWrite), "its SELECT is planned later, and says that the column is unknown"
