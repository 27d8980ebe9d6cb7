"""A MariaDB that is followed: with a binlog, on a port that stays, killed and started again by the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

import pymysql  # type: ignore[import-untyped]

from loadgen.bench import servers

DATABASE = "shop"
USER, PASSWORD = "follower", "se:c@ret"


class UpstreamServer:
    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory, self.port = directory, servers.free_port()
        self.settings = ["--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL", *settings]
        self._user = ["--user=root"] if os.geteuid() == 0 else []
        install = shutil.which("mariadb-install-db") or "mariadb-install-db"
        flags = [
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--datadir={self.data}",
        ]
        done = subprocess.run([install, *flags, *self._user], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        grant = f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {USER}@'%'"
        made = f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'"
        self.run(f"CREATE DATABASE {DATABASE}", made, grant, database=None)

    @property
    def data(self) -> Path:
        return self.directory / "mariadb"

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Of a user who may do what the documentation says, and no more."""
        return f"mysql://{USER}:{quote(PASSWORD)}@127.0.0.1:{self.port}/{database}"

    def start(self, *more: str) -> None:
        program = servers.mariadbd()
        assert program is not None
        where = [
            f"--datadir={self.data}",
            f"--socket={self.data}/s",
            f"--pid-file={self.data}/pid",
            f"--port={self.port}",
        ]
        general = [
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--sync-binlog=1",
        ]
        command = [program, "--no-defaults", *self._user, *where, *general, *self.settings, *more]
        with (self.directory / "mariadb.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(lambda: self._answers(), "MariaDB answers")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "mariadb.log").read_text()[-2000:]
        try:
            self.connect(None).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def connect(self, database: str | None = DATABASE, **options: Any) -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            charset="utf8mb4",
            autocommit=True,
            **options,
        )

    def run(self, *statements: str, database: str | None = DATABASE) -> list[tuple[Any, ...]]:
        """In one session; answers the last one's rows."""
        with self.connect(database) as db, db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


def until(holds: Any, what: str, seconds: float = 60) -> None:
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline, f"not after {seconds} s: {what}"
        sleep(0.05)


def rows_of(server: UpstreamServer, table: str, database: str = DATABASE) -> list[tuple[Any, ...]]:
    """All rows, with values as they are to be here: a BIT is a number, and a FLOAT has all its digits."""
    shown = server.run(f"SHOW COLUMNS FROM {database}.{table}")
    kinds = {name: str(kind).partition("(")[0] for name, kind, *_ in shown}
    picked = [
        f"{name} + 0" if kind == "bit" else f"{name} + 0e0" if kind == "float" else name for name, kind in kinds.items()
    ]
    key = ", ".join(name for name, _, _, key, *_ in shown if key == "PRI")
    return [tuple(row) for row in server.run(f"SELECT {', '.join(picked)} FROM {database}.{table} ORDER BY {key}")]


def position_of(server: UpstreamServer) -> str:
    ((position,),) = server.run("SELECT @@global.gtid_binlog_pos")
    return str(position)
