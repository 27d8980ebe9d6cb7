"""The dispatcher: constants, SHOW and EXPLAIN, what sessions say, several statements in one text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from domains.errors import HeadraceError, SqlError, SqlSyntaxError, UnknownName, Unsupported
from migrations.parse.reading import text_of
from migrations.statements.constants import count_placeholders
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import (
    ConstantSelect,
    Explain,
    NoOperation,
    SelectStatement,
    ShowViews,
    Statement,
    UseSchema,
    WriteStatement,
)
from tests.migrations.statement_catalog import CATALOG, NOW, one

CONSTANTS: list[tuple[str, tuple[Any, ...], list[str], list[tuple[Any, ...]]]] = [
    ("SELECT 1 + 1 AS x, NOW(), 'a' AS a", (), ["x", "NOW()", "a"], [(2, NOW, "a")]),
    ("SELECT 1/3, 7 DIV 2, NULL AS n", (), ["1 / 3", "7 DIV 2", "n"], [(Decimal("0.3333"), 3, None)]),
    ("SELECT ? AS p, CONCAT(?, 'x') AS q FROM dual", (1.5, "y"), ["p", "q"], [(1.5, "yx")]),
    ("SELECT 1 AS x WHERE 1 = 0", (), ["x"], []),
    ("SELECT 1 AS x WHERE NULL", (), ["x"], []),
    ("SELECT 1 AS x LIMIT 0", (), ["x"], []),
    ("SELECT 1 AS x LIMIT 1 OFFSET 1", (), ["x"], []),
    ("(SELECT 1 AS x)", (), ["x"], [(1,)]),
    ("SELECT ? AS x LIMIT ?", (7, 0), ["x"], []),
    ("SELECT ? AS x LIMIT ? OFFSET ?", (7, 1, 0), ["x"], [(7,)]),
]


@pytest.mark.parametrize(("sql", "params", "columns", "rows"), CONSTANTS, ids=[case[0] for case in CONSTANTS])
def test_a_select_without_from_is_answered_at_once(
    sql: str, params: tuple[Any, ...], columns: list[str], rows: list[tuple[Any, ...]]
) -> None:
    statement = one(sql, *params)
    assert isinstance(statement, ConstantSelect)
    assert [column.name for column in statement.columns] == columns
    assert list(statement.rows) == rows


SIMPLE: list[tuple[str, Statement]] = [
    ("SHOW VIEWS", ShowViews()),
    ("show views ; ", ShowViews()),
    ("EXPLAIN VoteCount", Explain("VoteCount")),
    ("EXPLAIN VIEW votecount", Explain("VoteCount")),
    ("SET NAMES utf8mb4", NoOperation("sessions have no settings")),
    ("SET SESSION sql_mode = 'x', autocommit = 1", NoOperation("sessions have no settings")),
    *(
        (f"SET {assigned}", NoOperation("sessions have no settings"))
        for assigned in (
            "sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE'",
            "SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')",
            "time_zone = '+00:00'",
            "@@session.time_zone = DEFAULT",
            "sql_auto_is_null = OFF",
            "sql_select_limit = 18446744073709551615",
            "foreign_key_checks = 0, wait_timeout = 28800, net_write_timeout = 600",
        )
    ),
    ("USE `Headrace`", UseSchema("headrace")),
    ("USE information_schema", UseSchema("information_schema")),
]


SHOWN = {
    "SHOW TABLES": "SELECT TABLE_NAME AS Tables_in_headrace FROM TABLES WHERE TABLE_SCHEMA = 'headrace'",
    "SHOW FULL TABLES IN headrace LIKE 'a%'": (
        "SELECT TABLE_NAME AS `Tables_in_headrace (a%)`, TABLE_TYPE AS Table_type FROM TABLES "
        "WHERE TABLE_SCHEMA = 'headrace' HAVING `Tables_in_headrace (a%)` LIKE 'a%'"
    ),
    "SHOW DATABASES WHERE `Database` > 'h'": "SELECT SCHEMA_NAME AS `Database` FROM SCHEMATA HAVING `Database` > 'h'",
    "EXPLAIN stories": "WHERE TABLE_SCHEMA = 'headrace' AND TABLE_NAME = 'stories'",
    "DESC votecount": "WHERE TABLE_SCHEMA = 'headrace' AND TABLE_NAME = 'VoteCount'",
    "SHOW COLUMNS FROM STORIES FROM headrace": "WHERE TABLE_SCHEMA = 'headrace' AND TABLE_NAME = 'stories'",
    "SHOW FIELDS FROM information_schema.FILES": "TABLE_SCHEMA = 'information_schema' AND TABLE_NAME = 'FILES'",
    "SHOW GLOBAL VARIABLES LIKE 'x'": "FROM performance_schema.global_variables HAVING Variable_name LIKE 'x'",
    "SHOW LOCAL STATUS": "FROM performance_schema.session_status",
    "SHOW KEYS FROM stories": "FROM STATISTICS WHERE TABLE_SCHEMA = 'headrace' AND TABLE_NAME = 'stories'",
}


@pytest.mark.parametrize("sql", SHOWN)
def test_show_is_a_select_of_what_says_what_there_is(sql: str) -> None:
    statement = one(sql)
    assert isinstance(statement, SelectStatement)
    text = text_of(statement.query).replace("`", "").replace("information_schema.", "")
    assert SHOWN[sql].replace("`", "").replace("information_schema.", "") in text


@pytest.mark.parametrize(("sql", "expected"), SIMPLE, ids=[sql for sql, _ in SIMPLE])
def test_simple_statements(sql: str, expected: Statement) -> None:
    assert one(sql) == expected


def test_selects_keep_their_text_and_parameters() -> None:
    assert one("SELECT id FROM stories WHERE id IN (?) AND author = ?", [1, 2], True) == SelectStatement(
        query=None,  # type: ignore[arg-type]
        sql="SELECT id FROM stories WHERE id IN (?) AND author = ?",
        params=((1, 2), 1),
        now=NOW,
    )
    explained = one("EXPLAIN SELECT id FROM stories WHERE id = ?", 3)
    assert isinstance(explained, Explain)
    assert isinstance(explained.target, SelectStatement)
    assert (explained.target.sql, explained.target.params) == ("SELECT id FROM stories WHERE id = ?", (3,))


ALONE = "BEGIN, COMMIT, ROLLBACK and SAVEPOINT are there"
WRONG: list[tuple[str, type[HeadraceError], str]] = [
    ("BEGIN", Unsupported, f"BEGIN here ({ALONE}"),
    ("SET autocommit = 0, sql_mode = ''", Unsupported, f"SET autocommit = 0 ({ALONE}"),
    ("SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED", Unsupported, f"SET TRANSACTION here ({ALONE}"),
    ("SET GLOBAL max_connections = 5", Unsupported, "SET GLOBAL (a deployment's settings are options of"),
    ("SET @@GLOBAL.max_connections = 5", Unsupported, "SET GLOBAL ("),
    ("SET PERSIST max_connections = 5", Unsupported, "SET PERSIST ("),
    ("SET PASSWORD = 'x'", Unsupported, "SET PASSWORD"),
    ("SET sql_mode = 'ANSI_QUOTES'", Unsupported, "the SQL mode ANSI_QUOTES (statements are read as in MySQL's"),
    ("SET SESSION sql_mode = CONCAT(@@sql_mode, ',pipes_as_concat')", Unsupported, "the SQL mode PIPES_AS_CONCAT ("),
    ("SET wait_timeout = 3, time_zone = '+03:00'", Unsupported, "SET time_zone = +03:00 (it is +00:00 or UTC"),
    ("SET @@session.sql_select_limit = 1", Unsupported, "SET sql_select_limit = 1 (it is 18446744073709551615 here)"),
    ("SET insert_id = 77", Unsupported, "SET insert_id = 77 (it is its default here)"),
    ("SET SQL_SAFE_UPDATES = 1", Unsupported, "SET sql_safe_updates = 1 (it is 0 or OFF or FALSE here)"),
    ("GRANT ALL ON t TO u", Unsupported, "the statement GRANT"),
    ("KILL 'a'", SqlError, "KILL wants the number"),
    ("CREATE PROCEDURE p() SELECT 1", Unsupported, "CREATE PROCEDURE (tables, views and indexes are there)"),
    ("CREATE DEFINER = me TRIGGER g BEFORE INSERT ON votes FOR EACH ROW SET x = 1", Unsupported, "CREATE TRIGGER ("),
    ("CREATE USER bob IDENTIFIED BY 'x'", Unsupported, "the statement CREATE"),
    ("DROP FUNCTION IF EXISTS f", Unsupported, "DROP FUNCTION ("),
    ("XA START 'x'", Unsupported, "the statement XA ("),
    ("USE db", UnknownName, 'unknown database "db"'),
    ("SHOW TABLES FROM d", UnknownName, 'unknown database "d"'),
    ("SELECT d.stories.id FROM stories", UnknownName, 'unknown table "d.stories" of column "id"'),
    ("SHOW BINARY LOGS", Unsupported, "SHOW BINARY LOGS ("),
    (
        "SHOW COLUMNS FROM storys",
        UnknownName,
        'unknown table or view "storys" at line 1, column 19 (did you mean "stories"?)',
    ),
    ("DESCRIBE storys", UnknownName, 'unknown table or view "storys" at line 1, column 10 (did you mean "stories"?)'),
    ("DESCRIBE stories PARTITION (p0)", Unsupported, "partitions of a table (DESCRIBE stories)"),
    ("EXPLAIN VIEW stories", SqlError, '"stories" is a table (DESCRIBE stories)'),
    ("EXPLAIN UPDATE votes SET user = 1", Unsupported, "EXPLAIN UPDATE (EXPLAIN view, or EXPLAIN SELECT …)"),
    (
        "EXPLAIN EXTENDED SELECT id FROM stories",
        Unsupported,
        "EXPLAIN EXTENDED (EXPLAIN view, or EXPLAIN [ANALYZE] SELECT …)",
    ),
    ("EXPLAIN ANALYZE stories", Unsupported, "EXPLAIN ANALYZE of what is no SELECT (EXPLAIN ANALYZE SELECT …)"),
    ("SELECT id INTO @x FROM stories", Unsupported, "SELECT … INTO (INSERT INTO table SELECT …)"),
    ("SELECT @@versio", UnknownName, 'unknown system variable "versio" (did you mean "version"?)'),
    ("SELECT LAST_INSERT_ID()", Unsupported, "LAST_INSERT_ID() without a session ("),
    ("SELECT id", UnknownName, 'unknown column "id"'),
    ("SELECT 1 OFFSET 1", SqlError, "OFFSET without LIMIT (write LIMIT n OFFSET m)"),
    ("SELECT 1 LIMIT 'x'", SqlError, "LIMIT wants a number or ?, not 'x'"),
    ("SELEC 1", SqlSyntaxError, ""),
]


@pytest.mark.parametrize(("sql", "kind", "message"), WRONG, ids=[sql for sql, _, _ in WRONG])
def test_what_is_wrong_is_said(sql: str, kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        one(sql)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


def test_several_statements_of_a_text_have_parameters_of_their_own() -> None:
    text = "INSERT INTO votes VALUES (?, ?); ; SELECT id FROM stories WHERE id = ?; SHOW TABLES;"
    parsed = split(text)
    assert [count_placeholders(each) for each in parsed] == [2, 1, 0]
    values = ((1, 2), (3,), ())
    first, second, third = (interpret_one(*each, NOW) for each in zip(parsed, [CATALOG] * 3, values, strict=True))
    assert isinstance(first, WriteStatement)
    assert isinstance(second, SelectStatement)
    assert second.params == (3,)
    assert isinstance(third, SelectStatement)


def test_what_only_looks_like_a_parameter_is_none() -> None:
    (parsed,) = split("INSERT INTO votes VALUES ('?', ':x')")
    assert count_placeholders(parsed) == 0
