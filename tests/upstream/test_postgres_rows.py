"""What is copied from PostgreSQL and followed has its values, whatever their types and however they are told."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.upstream.columns import Stopped

KINDS = """CREATE TABLE kinds_{0} (id INT PRIMARY KEY, a SMALLINT, b BIGINT, c NUMERIC(10,3), d REAL, e FLOAT8,
  f VARCHAR(20) DEFAULT 'it''s', g CHAR(5), h TEXT, i BYTEA, j UUID, k JSON, l JSONB, m DATE, n TIMESTAMP,
  o TIMESTAMPTZ, p TIME, q mood, r BOOLEAN, s VARCHAR, t NUMERIC(20,0), u TIMESTAMPTZ(3) DEFAULT now())"""
ROWS = (
    "(1, 32767, 9223372036854775807, 12.345, 1.1, 2.2, 'héé', 'ab ', 'text', '\\x00ff00',"
    " 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\":  1, \"a\": 2}', '{\"b\": [1.0, null]}', '2020-01-02',"
    " '2020-01-02 03:04:05.678901', '2020-01-02 03:04:05.25+02', '12:34:56.789', 'sad', true, 'x',"
    " 12345678901234567890, '2000-01-01 00:00:00.123-08')",
    "(-2, -32768, -9223372036854775808, -0.001, -1e30, 1e-300, '', '', '', '', NULL, '1', '\"😀\"', '0001-01-01',"
    " '9999-12-31 23:59:59.999999', '1970-01-01 00:00:01+00', '00:00:00', 'happy', false, repeat('é', 9000), 0, NULL)",
    "(3" + ", NULL" * 21 + ")",
    "(4, 1, 1, 1, 0.1, 0.1, 'a''\\b', 'a', repeat('long ', 2000), '\\x00', gen_random_uuid(), '[]', '{}', '2024-02-29',"
    " '2024-02-29 00:00:00', '2024-02-29 23:59:59.5-12', '23:59:59.999999', 'sad', true, E'a\\nb\\t', -1, now())",
)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_every_type_is_copied_and_followed(pg: Any, identity: str) -> None:
    table = f"kinds_{pg.name}"
    pg.run("CREATE TYPE mood AS ENUM ('sad', 'happy')", KINDS.format(pg.name))
    pg.run(f"INSERT INTO {table} VALUES {', '.join(ROWS)}", f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
    assert pg.import_().rows == 4
    assert pg.equals(table)
    columns = ", ".join(name for name in "abcdefghijklmnopqrstu")
    pg.run(
        f"INSERT INTO {table} SELECT id + 10, {columns} FROM {table}",
        f"UPDATE {table} SET id = id + 100, a = 9 WHERE id > 10",
        f"INSERT INTO {table} (id) VALUES (50), (51)",
        f"UPDATE {table} SET r = NOT r, b = 7 WHERE id IN (1, 104)",
        f"DELETE FROM {table} WHERE id = -2",
    )
    pg.follow()
    assert pg.equals(table)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_what_is_stored_apart_and_unchanged_is_not_told_and_not_lost(pg: Any, identity: str) -> None:
    table = f"t_{pg.name}"
    pg.run(
        f"CREATE TABLE {table} (a TEXT, b INT, n INT, long TEXT, PRIMARY KEY (a, b))",
        f"ALTER TABLE {table} ALTER COLUMN long SET STORAGE EXTERNAL",
        f"INSERT INTO {table} SELECT 'x' || i % 3, i, i, repeat(i::text, 9000) FROM generate_series(1, 12) i",
        f"ALTER TABLE {table} REPLICA IDENTITY {identity}",
    )
    pg.import_()
    pg.run(
        f"UPDATE {table} SET n = n + 1",
        f"UPDATE {table} SET b = b + 100, n = n + 1 WHERE b < 4",
        f"UPDATE {table} SET long = 'short' WHERE b = 5; UPDATE {table} SET n = 77 WHERE b = 5",
        f"BEGIN; INSERT INTO {table} VALUES ('new', 1, 1, repeat('n', 9000)); UPDATE {table} SET b = 2 WHERE a = 'new';"
        f" UPDATE {table} SET n = 8 WHERE a = 'new'; COMMIT",
    )
    pg.follow()
    assert pg.equals(table)


def test_what_one_transaction_does_to_a_key_is_done_in_its_order(pg: Any) -> None:
    table = f"t_{pg.name}"
    pg.run(f"CREATE TABLE {table} (a VARCHAR(5), b INT, n INT UNIQUE DEFERRABLE, m INT, PRIMARY KEY (a, b))")
    pg.run(f"INSERT INTO {table} VALUES ('x', 1, 1, 1), ('x', 2, 2, 2), ('y', 1, 3, 3), ('z', 1, 4, 4)")
    pg.import_()
    pg.run(
        "BEGIN; SET CONSTRAINTS ALL DEFERRED;"
        f"UPDATE {table} SET b = 9 WHERE a = 'x' AND b = 1;"  # Away, and another one in its place.
        f"UPDATE {table} SET b = 1, m = 20 WHERE a = 'x' AND b = 2;"
        f"UPDATE {table} SET m = m + 1 WHERE a = 'x' AND b = 1;"
        f"DELETE FROM {table} WHERE a = 'y';"
        f"INSERT INTO {table} VALUES ('y', 1, 33, 33);"
        f"UPDATE {table} SET m = 34 WHERE a = 'y'; SAVEPOINT s; DELETE FROM {table}; ROLLBACK TO s;"
        f"UPDATE {table} SET n = 3 WHERE a = 'z';"
        f"UPDATE {table} SET a = 'w' WHERE a = 'z'; COMMIT",
        f"BEGIN; DELETE FROM {table}; ROLLBACK",
    )
    pg.follow()
    assert pg.equals(table)
    assert pg.here.execute(f"SELECT COUNT(*) FROM {table}").rows == ((4,),)


def test_tables_are_emptied_alone_and_within_a_transaction(pg: Any) -> None:
    one, two = f"one_{pg.name}", f"two_{pg.name}"
    for table in (one, two):
        pg.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    pg.import_()
    pg.run(f"INSERT INTO {one} VALUES (3, 3)", f"TRUNCATE {one}", f"INSERT INTO {one} VALUES (4, 4)")
    pg.run(
        f"BEGIN; UPDATE {two} SET n = 9; TRUNCATE {two}; INSERT INTO {two} VALUES (1, 7);"
        f" UPDATE {two} SET n = 8; COMMIT"
    )
    pg.follow()
    assert pg.equals(one, two)
    assert pg.here.execute(f"SELECT * FROM {two}").rows == ((1, 8),)
    pg.run(f"TRUNCATE {one}, {two}")
    pg.follow()
    assert pg.equals(one, two)


def test_a_second_import_brings_further_tables_and_nothing_twice(pg: Any) -> None:
    one, two = f"one_{pg.name}", f"two_{pg.name}"
    for table in (one, two):
        pg.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    assert pg.import_(one).rows == 2
    pg.run(f"UPDATE {one} SET n = 7", f"DELETE FROM {two} WHERE id = 1")
    assert pg.import_(one, two).rows == 1
    pg.run(f"UPDATE {two} SET n = 8")
    pg.follow()
    assert pg.equals(one, two)


def test_columns_that_come_are_read_with_all_rows(pg: Any) -> None:
    table = f"t_{pg.name}"
    pg.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, gone TEXT)")
    pg.run(f"INSERT INTO {table} SELECT i, i, 'x' FROM generate_series(1, 20) i")
    pg.import_()
    pg.run(
        f"ALTER TABLE {table} ADD COLUMN five INT NOT NULL DEFAULT 5, ADD COLUMN random FLOAT8 DEFAULT random(),"
        f" ADD COLUMN empty TEXT, DROP COLUMN gone",
        f"BEGIN; UPDATE {table} SET n = 0 WHERE id = 3; DELETE FROM {table} WHERE id = 4; COMMIT",
    )
    pg.follow()
    assert pg.equals(table)
    pg.run(f"ALTER TABLE {table} ALTER COLUMN n TYPE TEXT", f"UPDATE {table} SET n = 'x' WHERE id = 1")
    with pytest.raises(Stopped, match='"n" has another type'):
        pg.follow()
    assert "another type" in pg.stopped()
