"""Servers for clients of MySQL: an open one, and one with accounts, TLS and an audit log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.kit.certificates import Authority
from tests.told_process import ROOT, ToldProcess

pymysql = pytest.importorskip("pymysql")

ADMINISTRATOR, PASSWORD = "ann", "a long one"


@dataclass(frozen=True)
class MysqlServer:
    """A running ``headrace serve`` with a port for MySQL."""

    url: str
    port: int
    directory: Path
    process: ToldProcess
    authority: Authority | None = None

    def connect(self, user: str = "root", password: str = "", **options: Any) -> Any:
        """PyMySQL's connection; of its own statements each is done at once, unless ``autocommit`` says otherwise."""
        given = {"host": "127.0.0.1", "port": self.port, "user": user, "password": password, "autocommit": True}
        given["ssl_disabled"] = "ssl_ca" not in options
        return pymysql.connect(**{**given, **options})

    def secured(self, user: str, password: str, **options: Any) -> Any:
        assert self.authority is not None
        return self.connect(user, password, ssl_ca=str(self.authority.path), ssl_verify_cert=True, **options)

    def audited(self) -> list[dict[str, Any]]:
        """What this port has told the audit log."""
        lines = (self.directory / "audit.jsonl").read_text().splitlines()
        return [found for found in map(json.loads, lines) if found.get("door") == "mysql"]

    def until_audited(self, **wanted: str) -> dict[str, Any]:
        """The line that has these members, once it is there: lines are written behind what they tell of."""
        deadline = monotonic() + 60
        while True:
            for each in self.audited():
                if all(value in str(each.get(name)) for name, value in wanted.items()):
                    return each
            assert monotonic() < deadline, f"{wanted} is not in {self.audited()}"
            sleep(0.02)


def started(directory: Path, *arguments: str, authority: Authority | None = None) -> MysqlServer:
    words = ["-m", "headrace", "serve", "--data", str(directory / "data"), "--port", "0", "--mysql-port", "0"]
    process = ToldProcess([*words, *arguments], {"HEADRACE_SLOW_REQUEST": "60", "HEADRACE_READ_TIMEOUT": "60"})
    url = process.read_until(r"answers at (\S+)")[1]
    port = int(process.read_until(r"MySQL's clients are answered at \S+:(\d+)")[1])
    return MysqlServer(url, port, directory, process, authority)


def stopped(server: MysqlServer) -> None:
    try:
        server.process.popen.send_signal(signal.SIGTERM)
        code, _, errors = server.process.finish(60)
        assert code == 0, errors
        assert "Traceback" not in errors, errors
    finally:
        server.process.kill()


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    server = started(tmp_path_factory.mktemp("open"), "--max-prepared", "20", "--max-body-size", "40MB")
    yield server
    stopped(server)


@pytest.fixture(scope="session")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    """With an administrator, whom only a password over TLS proves, and accounts of each plugin."""
    directory = tmp_path_factory.mktemp("closed")
    authority = Authority(directory)
    made = subprocess.run(
        [sys.executable, "-m", "headrace", "admin", ADMINISTRATOR, "--data", str(directory / "data")],
        input=f"{PASSWORD}\n",
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    certificate, key = authority.certificate("server")
    files = ("--tls-cert", str(certificate), "--tls-key", str(key), "--audit-log", str(directory / "audit.jsonl"))
    server = started(directory, *files, "--audit-data", "statements", authority=authority)
    with server.secured(ADMINISTRATOR, PASSWORD) as db, db.cursor() as cursor:
        for statement in (
            "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title TEXT)",
            "CREATE TABLE secrets (id INT PRIMARY KEY, word TEXT)",
            "CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?",
            "CREATE POLICY own ON stories USING (author = CURRENT_CLAIM('sub'))",
            "INSERT INTO stories VALUES (1, 7, 'one')",
            "INSERT INTO secrets VALUES (1, 'abracadabra')",
            "CREATE USER sha IDENTIFIED WITH caching_sha2_password BY 'of sha'",
            "CREATE USER native IDENTIFIED WITH mysql_native_password BY 'of native'",
            "CREATE USER plain IDENTIFIED BY 'of plain'",
            "GRANT SELECT ON stories TO sha",
            "GRANT QUERY ON * TO sha",
        ):
            cursor.execute(statement)
    yield server
    stopped(server)


@pytest.fixture
def db(open_server: MysqlServer) -> Iterator[Any]:
    """A connection to the open server, in which nothing is there yet."""
    with open_server.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute("SHOW FULL TABLES")
            found = sorted(cursor.fetchall(), key=lambda row: row[1], reverse=True)
            for name, kind in found:
                cursor.execute(f"DROP {'VIEW' if kind == 'VIEW' else 'TABLE'} `{name}`")
        yield connection
