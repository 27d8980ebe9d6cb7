"""What clients read back of definitions: comments, foreign keys in the order of their names, words of types. What
is told of keys that rows were given, and of tables that others name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.mysql.conftest import MysqlServer, started, stopped
from tests.mysql.test_mysql_databases import refused
from tests.mysql.test_mysql_statements import rows

COMMENT = "it's \\ 100%\nof \u00e9"
WRITTEN = "'it''s \\\\ 100%\\nof \u00e9'"


def told(db: Any, table: str) -> tuple[str, list[str]]:
    """The comment of a table, and those of its columns, as information_schema and SHOW FULL COLUMNS have them."""
    ((of_table,),) = rows(db, f"SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_NAME = '{table}'")
    columns = f"information_schema.COLUMNS WHERE TABLE_NAME = '{table}'"
    asked = f"SELECT COLUMN_COMMENT FROM {columns} ORDER BY ORDINAL_POSITION"
    of_columns = [comment for (comment,) in rows(db, asked)]
    assert [row[-1] for row in rows(db, f"SHOW FULL COLUMNS FROM {table}")] == of_columns
    return of_table, of_columns


def test_comments_of_tables_and_columns_are_kept(db: Any) -> None:
    rows(db, f"CREATE TABLE t (id INT PRIMARY KEY COMMENT 'the key', a VARCHAR(9) COMMENT {WRITTEN}) COMMENT={WRITTEN}")
    assert told(db, "t") == (COMMENT, ["the key", COMMENT])
    shown = rows(db, "SHOW CREATE TABLE t")[0][1]
    assert f" DEFAULT NULL COMMENT {WRITTEN},\n" in shown
    assert shown.endswith(f" COMMENT={WRITTEN}")
    rows(db, "INSERT INTO t VALUES (1, 'one')")
    rows(db, "ALTER TABLE t COMMENT 'second', ADD COLUMN n INT COMMENT 'new' AFTER id")
    rows(db, "ALTER TABLE t MODIFY a VARCHAR(9) COMMENT 'of a'")
    assert told(db, "t") == ("second", ["the key", "new", "of a"])
    rows(db, "ALTER TABLE t CHANGE n m TEXT COMMENT 'moved', MODIFY a VARCHAR(20)")
    assert told(db, "t") == ("second", ["the key", "moved", ""])
    rows(db, "CREATE TABLE u LIKE t")
    rows(db, "CREATE TABLE v AS SELECT id, m FROM t")
    assert told(db, "u") == ("second", ["the key", "moved", ""])
    assert told(db, "v") == ("", ["the key", "moved"])
    rows(db, "INSERT INTO t VALUES (2, NULL, 'two')")
    rows(db, "DELETE FROM t WHERE id = 2")
    rows(db, "ALTER TABLE t COMMENT ''")
    assert told(db, "t")[0] == ""
    rows(db, "INSERT INTO t VALUES (2, NULL, 'two')")  # The table is the same.
    rows(db, "ALTER TABLE t MODIFY a VARCHAR(20) COMMENT 'another'")
    rows(db, "DELETE FROM t WHERE id = 2")
    assert rows(db, "SELECT * FROM t") == ((1, None, "one"),)


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        (f"CREATE TABLE t (a INT COMMENT '{'x' * 1025}')", 1629),
        (f"CREATE TABLE t (a INT) COMMENT '{'x' * 2049}'", 1628),
    ],
)
def test_a_comment_has_mysqls_greatest_length(db: Any, sql: str, number: int) -> None:
    with pytest.raises(pymysql.MySQLError) as caught:
        rows(db, sql)
    assert caught.value.args[0] == number


def test_comments_are_there_after_a_restart(tmp_path: Path) -> None:
    for after in (False, True):
        server = started(tmp_path)
        try:
            with server.connect() as db:
                if not after:
                    rows(db, f"CREATE TABLE t (a INT COMMENT 'of a') COMMENT={WRITTEN}")
                    rows(db, "ALTER TABLE t MODIFY a INT COMMENT 'later'")
                assert told(db, "t") == (COMMENT, ["later"])
        finally:
            stopped(server)


def test_foreign_keys_are_told_in_the_order_of_their_names(db: Any) -> None:
    rows(db, "CREATE TABLE p (id INT PRIMARY KEY)")
    keys = [
        f"CONSTRAINT {name} FOREIGN KEY ({column}) REFERENCES p (id)" for name, column in (("zz", "a"), ("aa", "b"))
    ]
    rows(db, f"CREATE TABLE t (a INT, b INT, {', '.join(keys)})")
    shown = rows(db, "SHOW CREATE TABLE t")[0][1]
    assert shown.index("CONSTRAINT `aa`") < shown.index("CONSTRAINT `zz`")
    rows(db, "DROP TABLE t")


def test_national_is_a_word_of_a_type_and_a_name(db: Any) -> None:
    rows(db, "CREATE TABLE t (a NATIONAL VARCHAR(52), b NATIONAL CHAR(3) NOT NULL, national CHAR(2))")
    rows(db, "ALTER TABLE t ADD COLUMN c NATIONAL CHARACTER(4)")
    assert [row[:2] for row in rows(db, "DESCRIBE t")] == [
        ("a", "varchar(52)"),
        ("b", "char(3)"),
        ("national", "char(2)"),
        ("c", "char(4)"),
    ]


def test_the_answer_to_an_insert_names_the_value_that_it_gave(db: Any) -> None:
    """Which ORMs take for the row's key, whoever chose it; LAST_INSERT_ID() is of what was generated."""
    rows(db, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT)")
    rows(db, "CREATE TABLE plain (id INT PRIMARY KEY)")
    with db.cursor() as cursor:
        for sql, told in (
            ("INSERT INTO t (n) VALUES (1), (2)", 1),
            ("INSERT INTO t VALUES (40, 1)", 40),
            ("INSERT INTO t VALUES (50, 1), (45, 1)", 45),
            ("REPLACE INTO t VALUES (40, 2)", 40),
            ("UPDATE t SET n = 3 WHERE id = 40", 0),
            ("INSERT INTO plain VALUES (7)", 0),
        ):
            cursor.execute(sql)
            assert cursor.lastrowid == told, sql
    assert rows(db, "SELECT LAST_INSERT_ID()") == ((1,),)


def test_a_table_that_others_name_is_truncated_while_no_row_names_its_rows(db: Any) -> None:
    rows(db, "CREATE TABLE parent (id INT PRIMARY KEY)")
    rows(db, "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))")
    rows(db, "INSERT INTO parent VALUES (1)")
    assert refused(db, "TRUNCATE parent") == 3730
    rows(db, "SET foreign_key_checks = 0")
    rows(db, "INSERT INTO child VALUES (1, 1)")
    rows(db, "TRUNCATE parent")
    assert rows(db, "SELECT (SELECT COUNT(*) FROM parent), COUNT(*) FROM child") == ((0, 1),)
    rows(db, "SET foreign_key_checks = 1")
    assert refused(db, "TRUNCATE parent") == 3730
    rows(db, "DROP TABLE child")


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_without_foreign_key_checks_nothing_is_checked_now_or_later(db: Any, begin: str) -> None:
    """As MySQL's: no rule of a key is followed, and what was stored meanwhile stays."""
    rows(db, "CREATE TABLE parent (id INT PRIMARY KEY)")
    rows(
        db,
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, q INT, FOREIGN KEY (p) REFERENCES parent (id),"
        " FOREIGN KEY (q) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    )
    rows(db, "SET foreign_key_checks = 0")
    if begin:
        rows(db, begin)
    rows(db, "INSERT INTO child VALUES (1, 7, 8)")
    rows(db, "INSERT IGNORE INTO child VALUES (2, 7, 8), (3, 1, 1)")
    rows(db, "INSERT INTO parent VALUES (1), (2)")
    rows(db, "UPDATE child SET p = 9 WHERE id = 3")
    rows(db, "UPDATE parent SET id = 4 WHERE id = 1")
    rows(db, "DELETE FROM parent WHERE id = 2")
    if begin:
        rows(db, "COMMIT")
    assert rows(db, "SELECT * FROM child ORDER BY id") == ((1, 7, 8), (2, 7, 8), (3, 9, 1))
    rows(db, "SET foreign_key_checks = 1")
    assert refused(db, "INSERT INTO child VALUES (5, 7, 4)") == 1452
    assert refused(db, "UPDATE child SET p = 7 WHERE id = 3") == 1452
    rows(db, "UPDATE child SET id = 6 WHERE id = 1")
    rows(db, "INSERT INTO child VALUES (5, 4, NULL)")
    assert refused(db, "DELETE FROM parent WHERE id = 4") == 1451
    assert rows(db, "SELECT id FROM child ORDER BY id") == ((2,), (3,), (5,), (6,))
    rows(db, "DROP TABLE child")


def test_what_is_not_there_to_be_dropped_has_a_number_of_its_own(db: Any) -> None:
    assert [refused(db, f"DROP {what} nothing") for what in ("TABLE", "TEMPORARY TABLE", "VIEW")] == [1051, 1051, 1051]


def test_bytes_are_written_with_the_introducer_of_drivers(db: Any, open_server: MysqlServer) -> None:
    """``_binary'…'``, as mysqlclient has them, and PyMySQL where it is told to."""
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)")
    written = {1: b"abc", 2: "\u00e9".encode(), 3: bytes(range(256)), 4: b""}
    with open_server.connect(binary_prefix=True) as other, other.cursor() as cursor:
        for id, data in written.items():
            cursor.execute("INSERT INTO t VALUES (%s, %s)", (id, data))
            cursor.execute("SELECT id FROM t WHERE b = %s", (data,))
            assert cursor.fetchall() == ((id,),)
    assert dict(rows(db, "SELECT id, b FROM t")) == written
