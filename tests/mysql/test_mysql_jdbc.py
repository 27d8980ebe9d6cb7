"""MariaDB's JDBC driver, unmodified (Debian's ``libmariadb-java``), in a JVM that py4j drives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mysql.conftest import MysqlServer

java_gateway = pytest.importorskip("py4j.java_gateway")
pyspark = pytest.importorskip("pyspark")
protocol = pytest.importorskip("py4j.protocol")

DRIVER = Path("/usr/share/java/mariadb-java-client.jar")
pytestmark = pytest.mark.skipif(not DRIVER.exists(), reason=f"{DRIVER} is not there: apt-get install libmariadb-java")


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    gateway = java_gateway.JavaGateway.launch_gateway(jarpath=str(jar), classpath=str(DRIVER), die_on_exit=True)
    yield gateway.jvm
    gateway.shutdown()


@pytest.fixture(params=["", "useServerPrepStmts=true", "rewriteBatchedStatements=true"])
def connection(jvm: Any, open_server: MysqlServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    options = "&".join(["user=root", *filter(None, [request.param])])
    made = jvm.java.sql.DriverManager.getConnection(f"jdbc:mariadb://127.0.0.1:{open_server.port}/headrace?{options}")
    execute(made, "DROP TABLE IF EXISTS jdbc")
    execute(
        made,
        "CREATE TABLE jdbc (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL, price DECIMAL(8,2), "
        "at DATETIME(6), UNIQUE KEY by_name (name))",
    )
    yield made
    execute(made, "DROP TABLE jdbc")
    made.close()


def execute(connection: Any, sql: str) -> None:
    statement = connection.createStatement()
    statement.execute(sql)
    statement.close()


def rows(result: Any) -> list[tuple[Any, ...]]:
    width = result.getMetaData().getColumnCount()
    found = []
    while result.next():
        found.append(tuple(result.getString(at + 1) for at in range(width)))
    return found


def insert(connection: Any, *names: str) -> Any:
    """Of one batch."""
    statement = connection.prepareStatement("INSERT INTO jdbc (name, price, at) VALUES (?, ?, ?)", 1)
    for number, name in enumerate(names):
        statement.setString(1, name)
        statement.setString(2, f"{number}.50")
        statement.setString(3, f"2026-01-0{number + 1} 10:00:00.000250")
        statement.addBatch()
    statement.executeBatch()
    return statement


def test_prepared_statements_have_parameters_types_and_generated_keys(connection: Any) -> None:
    keys = rows(insert(connection, "a", "b'; DROP TABLE jdbc; --", "Ünï").getGeneratedKeys())
    assert keys == [("1",), ("2",), ("3",)]
    statement = connection.prepareStatement("SELECT id, name, price, at FROM jdbc WHERE id >= ? ORDER BY id")
    statement.setInt(1, 2)
    result = statement.executeQuery()
    about = result.getMetaData()
    assert [about.getColumnTypeName(at) for at in range(1, 5)] == ["INTEGER", "VARCHAR", "DECIMAL", "DATETIME"]
    assert [about.getColumnName(at) for at in range(1, 5)] == ["id", "name", "price", "at"]
    assert result.next()
    assert (result.getInt("id"), result.getString("name")) == (2, "b'; DROP TABLE jdbc; --")
    assert str(result.getBigDecimal("price")) == "1.50"
    assert result.getTimestamp("at").toString() == "2026-01-02 10:00:00.00025"
    assert result.next()
    assert result.getString(2) == "Ünï"
    assert not result.next()


def test_transactions_are_committed_and_rolled_back(connection: Any) -> None:
    connection.setAutoCommit(False)
    insert(connection, "kept")
    connection.commit()
    insert(connection, "gone")
    place = connection.setSavepoint("here")
    insert(connection, "further")
    connection.rollback(place)
    assert rows(connection.createStatement().executeQuery("SELECT COUNT(*) FROM jdbc")) == [("2",)]
    connection.rollback()
    connection.setAutoCommit(True)
    assert rows(connection.createStatement().executeQuery("SELECT name FROM jdbc")) == [("kept",)]


def test_errors_have_mysqls_numbers(connection: Any) -> None:
    insert(connection, "a")
    for sql, number, state in (
        ("INSERT INTO jdbc (name) VALUES ('a')", 1062, "23000"),
        ("SELECT nothing FROM jdbc", 1054, "42S22"),
        ("SELECT * FROM nowhere", 1146, "42S02"),
        ("SELECT id FROM jdbc WHERE", 1064, "42000"),
    ):
        with pytest.raises(protocol.Py4JJavaError) as raised:
            execute(connection, sql)
        error = raised.value.java_exception
        while error.getCause() is not None and not error.getErrorCode():
            error = error.getCause()
        assert (error.getErrorCode(), error.getSQLState()) == (number, state)


def test_metadata_tells_tables_columns_and_keys(connection: Any) -> None:
    about = connection.getMetaData()
    none: Any = None
    assert [row[2] for row in rows(about.getTables("headrace", none, "jdbc", none))] == ["jdbc"]
    columns = [(row[3], row[5], row[6]) for row in rows(about.getColumns("headrace", none, "jdbc", "%"))]
    assert [name for name, *_ in columns] == ["id", "name", "price", "at"]
    assert [row[3] for row in rows(about.getPrimaryKeys("headrace", none, "jdbc"))] == ["id"]
    indexes = rows(about.getIndexInfo("headrace", none, "jdbc", True, False))
    assert {(row[5], row[8]) for row in indexes} == {("PRIMARY", "id"), ("by_name", "name")}
    assert about.getDatabaseProductName() in ("MySQL", "MariaDB")
