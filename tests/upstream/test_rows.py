"""What is copied and followed has the upstream's values, whatever their types and however they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import Unsupported
from headrace.upstream.mariadb.source import MariaSource

KINDS = """CREATE TABLE kinds_{0} (id INT PRIMARY KEY, a TINYINT UNSIGNED, b BIGINT UNSIGNED, c DECIMAL(10,3), d FLOAT,
  e DOUBLE, f VARCHAR(20) DEFAULT 'it''s', g CHAR(5), h TEXT, i VARBINARY(10), j BINARY(8), k BLOB, l DATE,
  m DATETIME(6), n TIMESTAMP(2) NULL, o TIME(3), p YEAR, q ENUM('x','y'), r SET('b','a','c'), s BIT(12), t BOOL,
  u TEXT CHARACTER SET latin1 COLLATE latin1_bin, v MEDIUMINT, w VARCHAR(3000), x SMALLINT ZEROFILL, y INT DEFAULT 7,
  z DATETIME DEFAULT CURRENT_TIMESTAMP, z1 INT DEFAULT (1 + 2), z2 LONGBLOB, z3 MEDIUMTEXT)"""
ROWS = (
    "(1, 255, 18446744073709551615, 12.345, 1.1, 2.2, 'héé', 'ab ', 'text', x'00ff00', x'0102000000', x'ff00',"
    " '2020-01-02', '2020-01-02 03:04:05.678901', '2020-01-02 03:04:05.25', '-12:34:56.789', 1999, 'y', 'c,b', b'101',"
    " 1, 'ü', -5, 'long', 7, NULL, NULL, 4, x'00', '😀')",
    "(-2, 0, 0, -0.001, -1e30, 1e-300, '', '', '', '', '', '', '1000-01-01', '9999-12-31 23:59:59.999999',"
    " '1970-01-01 00:00:01', '-838:59:59', 1901, 'x', '', b'0', 0, '', -8388608, REPEAT('é', 3000), 0, -1,"
    " '2001-01-01', 0, REPEAT(x'00ff', 40000), REPEAT('x', 70000))",
    "(3" + ", NULL" * 29 + ")",
    "(4, 1, 1, 1, 0.1, 0.1, 'a', 'a', 'a', 'a', 'a', 'a', '2024-02-29', '2024-02-29 00:00:00',"
    " '2038-01-19 03:14:07.99', '-00:00:00.5', 2155, 'x', 'a,b,c', b'111111111111', 127, 'a', 1, 'a', 1, 1,"
    " '2024-02-29', 1, 'a', 'a')",
)


@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
def test_every_type_is_copied_and_followed(shop: Any, image: str) -> None:
    table = f"kinds_{shop.name}"
    shop.run(KINDS.format(shop.name), f"INSERT INTO {table} VALUES {', '.join(ROWS)}")
    assert shop.import_().rows == 4
    assert shop.equals(table)
    columns = [name for name, *_ in shop.run(f"SHOW COLUMNS FROM {table}")][1:]
    shop.run(
        f"SET binlog_row_image = {image}",
        f"INSERT INTO {table} SELECT id + 10, {', '.join(columns)} FROM {table}",
        f"UPDATE {table} SET id = id + 100, a = 9 WHERE id > 10",
        f"INSERT INTO {table} (id) VALUES (50), (51)",
        f"UPDATE {table} SET r = '', s = s + 1, o = SUBTIME(o, '00:00:01.2'), j = x'0500' WHERE id IN (1, 104)",
        f"DELETE FROM {table} WHERE id = -2",
    )
    shop.follow()
    assert shop.equals(table)


def test_what_one_transaction_does_to_a_key_is_done_in_its_order(shop: Any) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} (a VARCHAR(5), b INT, n INT UNIQUE, m INT, PRIMARY KEY (a, b))")
    shop.run(f"INSERT INTO {table} VALUES ('x', 1, 1, 1), ('x', 2, 2, 2), ('y', 1, 3, 3), ('z', 1, 4, 4)")
    shop.import_()
    shop.run(
        "SET binlog_row_image = MINIMAL",
        "START TRANSACTION",
        f"UPDATE {table} SET b = 9 WHERE a = 'x' AND b = 1",  # Away, and another one in its place.
        f"UPDATE {table} SET b = 1, m = 20 WHERE a = 'x' AND b = 2",
        f"UPDATE {table} SET m = m + 1 WHERE a = 'x' AND b = 1",
        f"DELETE FROM {table} WHERE a = 'y'",
        f"INSERT INTO {table} VALUES ('y', 1, 33, 33)",
        f"UPDATE {table} SET m = 34 WHERE a = 'y'",
        f"UPDATE {table} SET n = 3 WHERE a = 'z'",
        f"UPDATE {table} SET a = 'w' WHERE a = 'z'",
        "COMMIT",
        "START TRANSACTION",
        f"DELETE FROM {table}",
        "ROLLBACK",
    )
    shop.follow()
    assert shop.equals(table)
    assert shop.here.execute(f"SELECT COUNT(*) FROM {table}").rows == ((4,),)


def test_a_key_is_copied_in_its_own_order(shop: Any) -> None:
    """By chunks of three: of texts whose order is a collation's, of bytes, of numbers below zero."""
    made = {
        "texts": "VARCHAR(9) COLLATE utf8mb4_unicode_ci",
        "bytes": "VARBINARY(4)",
        "decimals": "DECIMAL(6,2)",
        "moments": "DATETIME(3)",
        "days": "DATE",
    }
    values = {
        "texts": ["'b'", "'A'", "'ä'", "'Z'", "'ß'", "'é'", "'a b'", "'_'", "''", "'c'"],
        "bytes": ["x'00'", "x''", "x'ff'", "x'0000'", "x'61'", "x'ff00'", "x'7f'"],
        "decimals": ["-1.5", "0", "10", "9.99", "-100", "1.01", "1"],
        "moments": [f"'2020-01-01 00:00:00.{each:03}'" for each in range(7)],
        "days": [f"'20{each:02}-02-28'" for each in range(7)],
    }
    tables = {kind: f"{kind}_{shop.name}" for kind in made}
    for kind, table in tables.items():
        shop.run(f"CREATE TABLE {table} (a {made[kind]}, b INT, PRIMARY KEY (a, b))")
        shop.run(
            f"INSERT INTO {table} VALUES {', '.join(f'({value}, {at % 2})' for at, value in enumerate(values[kind]))}"
        )
    assert shop.import_().rows == sum(map(len, values.values()))
    for kind, table in tables.items():
        ours = {tuple(row) for row in shop.here.execute(f"SELECT * FROM {table}").rows}
        assert len(ours) == len(values[kind])
        assert ours == {tuple(row) for row in shop.run(f"SELECT * FROM {table}")}


def test_a_second_import_brings_further_tables_and_nothing_twice(shop: Any) -> None:
    one, two = f"one_{shop.name}", f"two_{shop.name}"
    shop.run(f"CREATE TABLE {one} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {one} VALUES (1, 1), (2, 2)")
    shop.run(f"CREATE TABLE {two} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {two} VALUES (1, 1), (2, 2)")
    assert shop.import_(one).rows == 2
    shop.run(f"UPDATE {one} SET n = 7", f"DELETE FROM {two} WHERE id = 1")
    assert shop.import_(one, two).rows == 1
    assert shop.equals(one, two)


def test_who_follows_alone_writes(shop: Any) -> None:
    table, free = f"t_{shop.name}", f"free_{shop.name}"
    shop.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (1, 1)")
    shop.import_()
    here = shop.here
    here.execute(f"CREATE TABLE {free} (id INT PRIMARY KEY, n INT)")
    here.table(free).insert({"id": 1, "n": 1})

    def in_a_transaction() -> None:
        with here.transaction() as t:
            t.execute(f"UPDATE {table} SET n = 2")

    refused: list[Callable[[], Any]] = [
        lambda: here.execute(f"INSERT INTO {table} VALUES (2, 2)"),
        lambda: here.execute(f"UPDATE {table} SET n = 2 WHERE id = ?", [1]),
        lambda: here.execute(f"UPDATE {table} SET n = 2 WHERE id = ?", [1], atomic=True),
        lambda: here.execute(f"UPDATE {free} JOIN {table} ON {free}.id = {table}.id SET {table}.n = 2, {free}.n = 2"),
        lambda: here.execute(f"DELETE FROM {table}"),
        lambda: here.execute(f"TRUNCATE TABLE {table}"),
        lambda: here.table(table).insert({"id": 2}),
        lambda: here.table(table).insert({"id": 2}, once=("load", 1)),
        lambda: here.table(table).update({"id": 1}, {"n": 2}),
        lambda: here.table(table).delete({"id": 1}),
        in_a_transaction,
    ]
    for write in refused:
        with pytest.raises(Unsupported, match="follows"):
            write()
    assert shop.equals(table)
    shop.follow(leave_out=(table,))
    here.execute(f"UPDATE {table} SET n = 2")


def test_a_row_that_is_moved_to_where_was_copied_is_not_lost(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes without all its columns, and none of it is here."""
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, m INT)")
    shop.run(f"INSERT INTO {table} VALUES {', '.join(f'({at}, {at}, {at})' for at in range(10, 30))}")
    moved, chunk = [], MariaSource.chunk

    def moving(source: MariaSource, described: Any, after: Any, limit: int, ours: Any) -> Any:
        found = chunk(source, described, after, limit, ours)
        if after is not None and not moved:
            moved.append(shop.run("SET binlog_row_image = MINIMAL", f"UPDATE {table} SET id = 1, n = 7 WHERE id = 29"))
        return found

    monkeypatch.setattr(MariaSource, "chunk", moving)
    shop.import_()
    assert moved
    assert shop.equals(table)
    assert shop.here.execute(f"SELECT m FROM {table} WHERE id = 1").rows == ((29,),)
