"""What would lose rows is refused before a row is copied, or stops the follower: by name, and before it hurts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import AlreadyExists, BadRequest, NotFound
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.columns import Stopped
from headrace.upstream.following import followed_database
from loadgen.bench import servers
from tests.upstream.upstream_server import UpstreamServer

KEY = "id INT PRIMARY KEY"


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("(a INT)", "no PRIMARY KEY"),
        (f"({KEY}) ENGINE=MyISAM", "engine MyISAM"),
        (f"({KEY}, a UUID)", "a: type uuid"),
        (f"({KEY}, a GEOMETRY)", "a: type geometry"),
        (f"({KEY}, a INT AS (id + 1))", "a: it is generated"),
        (f"({KEY}, a TEXT COLLATE utf8mb4_unicode_ci)", "a: collation utf8mb4_unicode_ci"),
        ("(a ENUM('y','x') PRIMARY KEY)", "in a PRIMARY KEY"),
        ("(a TEXT, PRIMARY KEY (a(3)))", "beginnings of columns"),
        (f"({KEY}, a INT, FOREIGN KEY (a) REFERENCES parent (id) ON DELETE CASCADE)", "ON DELETE CASCADE"),
        (f"({KEY}, a INT, FOREIGN KEY (a) REFERENCES parent (id) ON UPDATE SET NULL)", "ON UPDATE SET NULL"),
    ],
)
def test_what_cannot_be_here_is_named_before_anything_is_copied(shop: Any, definition: str, problem: str) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE parent ({KEY})", f"CREATE TABLE {table} {definition}")
    with pytest.raises(BadRequest, match=problem):
        shop.import_(table)
    assert table not in [each["name"] for each in shop.here.tables()]


def test_a_collation_may_be_given_for_those_that_are_not_here(shop: Any) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} ({KEY}, a TEXT COLLATE utf8mb4_unicode_ci)", f"INSERT INTO {table} VALUES (1, 'É')")
    shop.import_(collation="utf8mb4_0900_ai_ci")
    assert shop.equals(table)
    assert shop.here.execute(f"SELECT id FROM {table} WHERE a = 'e'").rows == ((1,),)


def test_a_table_of_that_name_is_not_taken_over(shop: Any) -> None:
    table = f"t_{shop.name}"
    shop.here.execute(f"CREATE TABLE {table} ({KEY})")
    shop.run(f"CREATE TABLE {table} ({KEY})")
    with pytest.raises(AlreadyExists, match=table):
        shop.import_()


@pytest.mark.parametrize(
    ("variable", "value", "was"),
    [("binlog_row_metadata", "MINIMAL", "FULL"), ("log_bin_compress", "ON", "OFF"), ("binlog_format", "MIXED", "ROW")],
)
def test_a_server_that_would_lose_rows_is_refused(shop: Any, variable: str, value: str, was: str) -> None:
    shop.run(f"CREATE TABLE t_{shop.name} ({KEY})", f"SET GLOBAL {variable} = {value}")
    try:
        with pytest.raises(Stopped, match=variable):
            shop.import_()
    finally:
        shop.run(f"SET GLOBAL {variable} = {was}")


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (["SET binlog_format = STATEMENT", "INSERT INTO {t} (id) VALUES (9)"], "as a statement"),
        (["DROP TABLE {t}"], "is not what it was"),
        (["RENAME TABLE {t} TO old, other TO {t}"], "is not what it was"),
        (["ALTER TABLE {t} RENAME TO old"], "cannot be done here"),
        (
            ["SET sql_log_bin = 0", "DROP TABLE {t}", "SET sql_log_bin = 1", "ALTER TABLE other RENAME {t}"],
            "got the name",
        ),
        (["CREATE OR REPLACE TABLE {t} (id INT PRIMARY KEY)"], "is not what it was"),
        (["ALTER TABLE {t} ADD COLUMN u CHAR(36) DEFAULT (UUID())"], "cannot be done here"),
        (["ALTER TABLE {t} DROP PRIMARY KEY"], "cannot be done here"),
        (["ALTER TABLE {t} ADD FOREIGN KEY (m) REFERENCES other (id) ON DELETE CASCADE"], "cannot be done here"),
        (["SET sql_mode = ''", "UPDATE {t} SET d = '0000-00-00'"], "no date here"),
        (
            ["SET sql_log_bin = 0", "ALTER TABLE {t} ADD x INT", "SET sql_log_bin = 1", "UPDATE {t} SET n = 5"],
            "both sides",
        ),
        (["XA START 'a'", "UPDATE {t} SET n = 5", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'"], "XA"),
    ],
)
def test_what_cannot_be_followed_stops_before_it(shop: Any, statements: list[str], problem: str) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} ({KEY}, n INT, d DATE, m INT)", f"CREATE TABLE other ({KEY})")
    shop.run(f"INSERT INTO {table} (id, n) VALUES (1, 1), (2, 2)")
    shop.import_(table)
    shop.run(f"UPDATE {table} SET n = 3 WHERE id = 1")
    shop.run(*(each.format(t=table) for each in statements))
    for _ in range(2):  # It is no better for being tried again.
        with pytest.raises(Stopped, match=problem):
            shop.follow()
        assert problem in shop.stopped()
        assert shop.here.execute(f"SELECT id, n FROM {table} ORDER BY id").rows == ((1, 3), (2, 2))
    shop.follow(leave_out=(table,))
    assert not shop.stopped()


def test_rows_that_cannot_be_decoded_stop(shop: Any) -> None:
    """MariaDB compresses rows of some length; the library knows no such event, and would pass over it."""
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} ({KEY}, a TEXT)", f"INSERT INTO {table} VALUES (1, '')")
    shop.import_()
    shop.run("SET GLOBAL log_bin_compress = ON", f"INSERT INTO {table} VALUES (2, REPEAT('x', 1000))")
    shop.run("SET GLOBAL log_bin_compress = OFF")
    with pytest.raises(Stopped, match="log_bin_compress"):
        shop.follow()
    assert shop.here.execute(f"SELECT COUNT(*) FROM {table}").rows == ((1,),)


def test_rows_without_names_stop(shop: Any) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} ({KEY}, a TEXT)", f"INSERT INTO {table} VALUES (1, '')")
    shop.import_()
    shop.run("SET GLOBAL binlog_row_metadata = MINIMAL", f"UPDATE {table} SET a = 'x'")
    shop.run("SET GLOBAL binlog_row_metadata = FULL")
    with pytest.raises(Stopped, match="without the names"):
        shop.follow()


def test_the_follower_that_came_first_is_refused(shop: Any) -> None:
    table = f"t_{shop.name}"
    shop.run(f"CREATE TABLE {table} ({KEY})")
    shop.import_()
    first, second = followed_database(shop.here, shop.asked), followed_database(shop.here, shop.asked)
    first.claim()
    second.claim()
    with pytest.raises(Stopped, match="another follower"):
        first.move(first.position)
    second.move(second.position)


def test_nothing_is_followed_that_was_not_imported(shop: Any) -> None:
    with pytest.raises(NotFound, match="imported"):
        shop.follow()


def test_a_server_behind_us_and_one_without_our_binlog_are_refused(
    followed: Callable[[], Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if servers.mariadbd() is None:
        pytest.skip("MariaDB is not installed")
    shop = followed()
    shop.upstream = server = UpstreamServer(tmp_path_factory.mktemp("purged"))
    server.run(f"CREATE DATABASE {shop.name}", database=None)
    shop.asked = replace(shop.asked, address=UpstreamAddress.parse(server.url_of(shop.name)))
    table = f"t_{shop.name}"
    try:
        shop.run(f"CREATE TABLE {table} ({KEY})")
        shop.import_()
        shop.run(f"INSERT INTO {table} VALUES (1)", "FLUSH BINARY LOGS", f"INSERT INTO {table} VALUES (2)")
        shop.run("PURGE BINARY LOGS TO 'binlog.000002'")
        with pytest.raises(Stopped, match=r"binlog|binary log"):
            shop.follow()
        shop.run("RESET MASTER")
        with pytest.raises(Stopped, match="behind our position"):
            shop.follow()
    finally:
        server.kill()
