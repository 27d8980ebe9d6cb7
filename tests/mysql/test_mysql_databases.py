"""Databases as namespaces of a connection: CREATE DATABASE, USE, ``db.table``, and what clients are told of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tests.mysql.conftest import MysqlServer
from tests.mysql.test_mysql_statements import rows


@pytest.fixture
def shop(db: Any) -> Iterator[Any]:
    """A connection in a database that is empty, beside another one."""
    for name in ("shop", "mill"):
        rows(db, f"DROP DATABASE IF EXISTS {name}")
        rows(db, f"CREATE DATABASE {name}")
    db.select_db("shop")
    yield db
    db.select_db("headrace")
    rows(db, "DROP DATABASE IF EXISTS shop")
    rows(db, "DROP DATABASE IF EXISTS mill")


def refused(db: Any, sql: str) -> int:
    with pytest.raises(pymysql.MySQLError) as caught:
        rows(db, sql)
    return int(caught.value.args[0])


def test_a_name_means_the_table_of_the_connections_database(shop: Any) -> None:
    for database, word in (("shop", "one"), ("mill", "two"), ("headrace", "three")):
        rows(shop, f"CREATE TABLE {database}.things (id INT PRIMARY KEY, word TEXT)")
        rows(shop, f"INSERT INTO {database}.things VALUES (1, '{word}')")
    both = (
        "SELECT shop.things.word, mill.things.word FROM mill.things JOIN shop.things ON shop.things.id = mill.things.id"
    )
    for database, word in (("shop", "one"), ("mill", "two"), ("headrace", "three")):
        rows(shop, f"USE {database}")
        for _ in range(2):  # The same text, which is remembered.
            assert rows(shop, "SELECT word FROM things") == ((word,),)
            assert rows(shop, "SELECT things.word FROM things WHERE things.id = %s", 1) == ((word,),)
            assert rows(shop, "WITH things AS (SELECT 'own' AS word) SELECT word FROM things") == (("own",),)
            assert rows(shop, f"SELECT {database}.things.word FROM {database}.things") == ((word,),)
            assert rows(shop, both) == (("one", "two"),)
    rows(shop, "USE shop")
    rows(shop, "UPDATE things SET word = 'new' WHERE things.id = 1")
    rows(shop, "INSERT INTO things (id, word) VALUES (1, 'x') ON DUPLICATE KEY UPDATE word = CONCAT(things.word, '!')")
    assert rows(shop, "SELECT (SELECT word FROM mill.things), word FROM things") == (("two", "new!"),)
    rows(shop, "DELETE things FROM things JOIN mill.things AS other ON other.id = things.id")
    assert rows(shop, "SELECT COUNT(*) FROM things") == ((0,),)
    assert rows(shop, "SELECT word FROM mill.things UNION ALL SELECT word FROM headrace.things") == (
        ("two",),
        ("three",),
    )
    assert refused(shop, "SELECT mill.things.word FROM shop.things") == 1146
    assert refused(shop, "SELECT * FROM nowhere.things") == 1146


def test_a_database_is_made_and_dropped_with_all_that_is_in_it(shop: Any) -> None:
    rows(shop, "CREATE TABLE mill.wheels (id INT PRIMARY KEY)")
    rows(shop, "CREATE TABLE parts (id INT PRIMARY KEY, wheel INT, FOREIGN KEY (wheel) REFERENCES mill.wheels (id))")
    rows(shop, "CREATE TABLE notes (id INT PRIMARY KEY, part INT, FOREIGN KEY (part) REFERENCES parts (id))")
    rows(shop, "CREATE VIEW Count AS SELECT COUNT(*) AS n FROM parts")
    rows(shop, "CREATE INDEX by_part ON notes (part, id)")
    rows(shop, "ALTER TABLE notes ADD COLUMN said TEXT")
    rows(shop, "RENAME TABLE notes TO remarks, mill.wheels TO mill.rings")
    assert rows(shop, "SELECT n FROM Count") == ((0,),)
    assert refused(shop, "INSERT INTO parts VALUES (1, 1)") == 1452
    assert refused(shop, "DROP DATABASE mill") == 3730
    assert refused(shop, "CREATE DATABASE shop") == 1007
    assert refused(shop, "USE nowhere") == 1049
    assert refused(shop, "CREATE TABLE nowhere.t (a INT)") == 1049
    assert refused(shop, "DROP DATABASE nowhere") == 1049
    rows(shop, "CREATE DATABASE IF NOT EXISTS shop")
    rows(shop, "DROP DATABASE shop")
    rows(shop, "DROP DATABASE mill")
    rows(shop, "CREATE SCHEMA shop COLLATE utf8mb4_bin")
    assert rows(shop, "SHOW TABLES") == ()
    assert refused(shop, "SELECT * FROM parts") == 1146


def test_clients_are_told_of_databases(shop: Any) -> None:
    rows(shop, "CREATE TABLE mill.wheels (id INT PRIMARY KEY)")
    rows(shop, "CREATE TABLE parts (id INT PRIMARY KEY, wheel INT, FOREIGN KEY f (wheel) REFERENCES mill.wheels (id))")
    rows(shop, "CREATE VIEW Count AS SELECT COUNT(*) AS n FROM parts")
    assert rows(shop, "SELECT DATABASE()") == (("shop",),)
    assert {"shop", "mill", "headrace", "information_schema"} <= {name for (name,) in rows(shop, "SHOW DATABASES")}
    assert rows(shop, "SHOW TABLES") == (("Count",), ("parts",))
    assert rows(shop, "SHOW TABLES FROM mill") == (("wheels",),)
    assert [row[0] for row in rows(shop, "DESCRIBE parts")] == ["id", "wheel"]
    assert [row[0] for row in rows(shop, "DESCRIBE mill.wheels")] == ["id"]
    assert [row[2] for row in rows(shop, "SHOW INDEX FROM wheels FROM mill")] == ["PRIMARY"]
    ((name, layout),) = rows(shop, "SHOW CREATE TABLE parts")
    assert name == "parts"
    assert layout.startswith("CREATE TABLE `parts` (")
    assert "REFERENCES `mill`.`wheels` (`id`)" in layout
    keys = "SELECT TABLE_SCHEMA, TABLE_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME FROM"
    asked = (
        f"{keys} information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_NAME <> ''"
    )
    assert rows(shop, asked) == (("shop", "parts", "mill", "wheels"),)
    assert rows(shop, "SHOW CREATE VIEW Count")[0][0] == "Count"


def test_a_right_on_a_database_is_one_on_all_that_is_in_it(closed_server: MysqlServer) -> None:
    with closed_server.secured("ann", "a long one") as owner:
        rows(owner, "CREATE DATABASE shop")
        rows(owner, "CREATE DATABASE mill")
        for database in ("shop", "mill"):
            rows(owner, f"CREATE TABLE {database}.things (id INT PRIMARY KEY)")
        rows(owner, "CREATE USER keeper IDENTIFIED WITH caching_sha2_password BY 'of keeper'")
        rows(owner, "GRANT SELECT, CREATE ON shop.* TO keeper")
        rows(owner, "GRANT QUERY ON * TO keeper")
    with closed_server.connect("keeper", "of keeper") as keeper:
        keeper.select_db("shop")
        assert rows(keeper, "SELECT * FROM things") == ()
        rows(keeper, "CREATE TABLE others (id INT PRIMARY KEY)")
        assert refused(keeper, "SELECT * FROM mill.things") == 1142
        assert refused(keeper, "SELECT * FROM headrace.stories") == 1142
        assert refused(keeper, "INSERT INTO things VALUES (1)") == 1142
        assert refused(keeper, "DROP DATABASE shop") == 1142
        assert {"mill", "headrace"} & {name for (name,) in rows(keeper, "SHOW DATABASES")} == {"headrace"}
    with closed_server.secured("ann", "a long one") as owner:
        rows(owner, "DROP DATABASE shop")
        rows(owner, "DROP DATABASE mill")
        rows(owner, "DROP USER keeper")


def test_a_recursive_query_finds_itself_in_a_database_of_another_name(db: Any) -> None:
    for each in (
        "CREATE DATABASE IF NOT EXISTS woods",
        "USE woods",
        "CREATE TABLE edges (a INT, b INT, PRIMARY KEY (a, b))",
    ):
        rows(db, each)
    rows(db, "INSERT INTO edges VALUES (1, 2), (2, 3), (7, 8)")
    reached = (
        "WITH RECURSIVE r (n) AS (SELECT b FROM edges WHERE a = 1 UNION SELECT e.b FROM edges e JOIN r ON e.a = r.n)"
    )
    assert rows(db, f"{reached} SELECT n FROM r ORDER BY n") == ((2,), (3,))
    mutual = (
        "WITH RECURSIVE even (a, b) AS (SELECT o.a, e.b FROM odd o JOIN edges e ON e.a = o.b), odd (a, b) AS "
        "(SELECT a, b FROM edges UNION SELECT v.a, e.b FROM even v JOIN edges e ON e.a = v.b)"
    )
    assert rows(db, f"{mutual} SELECT a, b FROM even ORDER BY a") == ((1, 3),)
    rows(db, "DROP DATABASE woods")
