"""Drivers and programs for MySQL as they come: each asks what an application would ask."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.mysql.conftest import ADMINISTRATOR, PASSWORD, MysqlServer

TABLE = (
    "CREATE TABLE users (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20) UNIQUE, at DATETIME, price DECIMAL(8,2))"
)
WHEN = datetime(2026, 1, 31, 8, 0, 1)
NODE = Path(__file__).with_name("node")


def asked(module: ModuleType, connection: Any) -> None:
    """What PEP 249 has, of a connection that does not commit by itself."""
    cursor = connection.cursor()
    cursor.execute(TABLE)
    insert = "INSERT INTO users (name, at, price) VALUES (%s, %s, %s)"
    cursor.execute(insert, ("Wäter", WHEN, Decimal("1.50")))
    assert cursor.lastrowid == 1
    cursor.executemany(insert, [("two", WHEN, None), ("three", None, Decimal("-3.25"))])
    connection.commit()
    cursor.execute("SELECT id, name, at, price FROM users WHERE id <= %s ORDER BY id", (3,))
    assert [column[0] for column in cursor.description] == ["id", "name", "at", "price"]
    assert list(cursor.fetchall()) == [
        (1, "Wäter", WHEN, Decimal("1.50")),
        (2, "two", WHEN, None),
        (3, "three", None, Decimal("-3.25")),
    ]
    with pytest.raises(module.IntegrityError):
        cursor.execute(insert, ("two", None, None))
    cursor.execute("DELETE FROM users")
    assert cursor.rowcount == 3
    connection.rollback()
    cursor.execute("SELECT COUNT(*) FROM users")
    assert cursor.fetchall()[0] == (3,)
    connection.commit()
    cursor.close()
    connection.close()


async def asked_asynchronously(module: Any, connection: Any) -> None:
    async with connection.cursor() as cursor:
        await cursor.execute(TABLE)
        insert = "INSERT INTO users (name, at, price) VALUES (%s, %s, %s)"
        await cursor.execute(insert, ("Wäter", WHEN, Decimal("1.50")))
        assert cursor.lastrowid == 1
        await connection.commit()
        await cursor.execute("SELECT id, name, at, price FROM users WHERE id = %s", (1,))
        assert await cursor.fetchall() == ((1, "Wäter", WHEN, Decimal("1.50")),)
        with pytest.raises(module.IntegrityError):
            await cursor.execute(insert, ("Wäter", None, None))
        await cursor.execute("DELETE FROM users")
        await connection.rollback()
        await cursor.execute("SELECT COUNT(*) FROM users")
        assert await cursor.fetchall() == ((1,),)
    connection.close()


def test_pymysql(db: Any, open_server: MysqlServer) -> None:
    import pymysql

    asked(pymysql, pymysql.connect(host="127.0.0.1", port=open_server.port, user="root"))


def test_mysqlclient(db: Any, open_server: MysqlServer) -> None:
    module = pytest.importorskip("MySQLdb", reason="mysqlclient is not installed (it is built with libmariadb-dev)")
    asked(module, module.connect(host="127.0.0.1", port=open_server.port, user="root", charset="utf8mb4"))


def test_mysql_connector(db: Any, open_server: MysqlServer) -> None:
    module = pytest.importorskip("mysql.connector")
    options = {"host": "127.0.0.1", "port": open_server.port, "user": "root", "use_pure": True}
    asked(module, module.connect(**options))
    with module.connect(**options) as connection, connection.cursor(prepared=True) as cursor:
        for name in ("Wäter", "two", "nobody"):
            cursor.execute("SELECT id, at, price FROM users WHERE name = ?", (name,))
            found = cursor.fetchall()
            assert found == {"Wäter": [(1, WHEN, Decimal("1.50"))], "two": [(2, WHEN, None)]}.get(name, [])
        connection.cmd_reset_connection()
        connection.ping()


@pytest.mark.parametrize("name", ["asyncmy", "aiomysql"])
def test_asynchronous_drivers(db: Any, open_server: MysqlServer, name: str) -> None:
    module: Any = pytest.importorskip(name)
    errors: Any = pytest.importorskip(f"{name}.errors") if name == "asyncmy" else module

    async def run() -> None:
        connection = await module.connect(host="127.0.0.1", port=open_server.port, user="root")
        await asked_asynchronously(errors, connection)

    asyncio.run(run())


@pytest.mark.parametrize("program", ["mysql", "mariadb"])
def test_command_lines(db: Any, open_server: MysqlServer, closed_server: MysqlServer, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} on PATH")

    def say(server: MysqlServer, *words: str, sql: str) -> subprocess.CompletedProcess[str]:
        command = [program, "--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P", str(server.port), *words]
        return subprocess.run([*command, "--batch"], input=sql, capture_output=True, text=True, check=False, timeout=60)

    done = say(open_server, "-u", "root", "--skip-ssl", sql=f"{TABLE}; INSERT INTO users (name) VALUES ('x');")
    assert done.returncode == 0, done.stderr
    done = say(open_server, "-u", "root", "--skip-ssl", sql="SELECT id, name, at FROM users;\nSHOW TABLES;\nSELEC;")
    assert done.stdout == "id\tname\tat\n1\tx\tNULL\nTables_in_headrace\nusers\n"
    assert "ERROR 1235" in done.stderr
    assert closed_server.authority is not None
    secured = (f"--ssl-ca={closed_server.authority.path}", "--ssl-verify-server-cert", "-u", ADMINISTRATOR)
    done = say(closed_server, *secured, f"--password={PASSWORD}", sql="SELECT word FROM secrets")
    assert (done.stdout, done.stderr) == ("word\nabracadabra\n", "")
    assert "ERROR 1045" in say(closed_server, *secured, "--password=wrong", sql="SELECT 1").stderr


def test_node(db: Any, open_server: MysqlServer) -> None:
    if shutil.which("node") is None or not (NODE / "node_modules" / "mysql2").exists():
        pytest.skip("node or its package mysql2 is not there: npm install --prefix tests/mysql/node")
    done = subprocess.run(
        ["node", str(NODE / "ask.mjs"), str(open_server.port)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_documents_examples_run(db: Any, open_server: MysqlServer) -> None:
    """Those of docs/mysql.md in Python and by ``mysql``, at the server's own port."""
    page = (Path(__file__).parents[2] / "docs" / "mysql.md").read_text("utf-8")
    python = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    programs = [line for line in re.findall(r"^(?:mysql|mariadb) -h .*$", page, re.MULTILINE) if "<" not in line]
    assert python
    assert programs
    for example in python:
        assert "3306" in example
        exec(example.replace("3306", str(open_server.port)), {})
    if shutil.which("mysql") is None:
        pytest.skip("there is no mysql on PATH")
    for line in programs:
        words = line.replace("3306", str(open_server.port)).split()
        command = [words[0], "--no-defaults", "--skip-ssl", *words[1:]]
        asked = "SELECT title FROM stories WHERE author = 1"
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout == "title\nWater power\n", done.stderr
