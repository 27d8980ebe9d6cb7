"""A PostgreSQL that is followed: on a port that stays, killed and started again by the test. Not as root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import time, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg2  # type: ignore[import-untyped]

from loadgen.bench import servers
from tests.upstream.upstream_server import PASSWORD, USER, until

OWNER = "app"
"""Whose the tables are."""


def postgres_programs() -> Path | None:
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).parent
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return packaged[-1].parent if packaged else None


class PostgresServer:
    def __init__(self, *settings: str) -> None:
        programs = postgres_programs()
        assert programs is not None
        self._programs, self.port, self.settings = programs, servers.free_port(), settings
        self.directory = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
        self._as: dict[str, Any] = {"cwd": self.directory, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
            self._as |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        made = [str(programs / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust", "--no-sync"]
        made += ["--encoding=UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(made, capture_output=True, text=True, check=False, **self._as)
        assert done.returncode == 0, done.stderr
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        self.run(
            f"CREATE ROLE {OWNER} LOGIN",
            f"CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{PASSWORD}' IN ROLE {OWNER}",
            database="postgres",
            user="postgres",
        )

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def url_of(self, database: str) -> str:
        """Of a user who may do what the documentation says, and no more."""
        return f"postgresql://{USER}:{quote(PASSWORD)}@127.0.0.1:{self.port}/{database}"

    def make(self, database: str) -> None:
        self.run(f"CREATE DATABASE {database} OWNER {OWNER}", database="postgres", user="postgres")

    def start(self, *more: str) -> None:
        where = ["-D", str(self.data), "-p", str(self.port), "-k", "", "-h", "127.0.0.1"]
        settings = ["wal_level=logical", "fsync=off", "max_replication_slots=60", "max_wal_senders=60", *self.settings]
        command = [str(self._programs / "postgres"), *where, *(f"-c{each}" for each in (*settings, *more))]

        def answers() -> bool:
            if self.process is None or self.process.poll() is not None:  # Its memory was still in use.
                with (self.directory / "log").open("ab") as log:
                    self.process = subprocess.Popen(command, stdout=log, stderr=log, **self._as)
            with suppress(psycopg2.OperationalError):
                self.connect("postgres", "postgres").close()
                return True
            return False

        until(answers, "PostgreSQL answers")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, database: str, user: str = OWNER) -> Any:
        db = psycopg2.connect(host="127.0.0.1", port=self.port, user=user, dbname=database, connect_timeout=10)
        db.autocommit = True
        return db

    def run(self, *statements: str, database: str, user: str = OWNER) -> list[tuple[Any, ...]]:
        """In one session; answers the last one's rows."""
        db = self.connect(database, user)
        try:
            with db.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            db.close()


PICKED = {
    "character": "rtrim({})",
    "real": "{}::float8",
    "boolean": "{}::int",
    "uuid": "{}::text",
    "json": "{}::text",
    "jsonb": "{}::text",
    "USER-DEFINED": "{}::text",
    "timestamp with time zone": "{} AT TIME ZONE 'UTC'",
}


def rows_of(server: PostgresServer, database: str, table: str, key: Sequence[str]) -> list[tuple[Any, ...]]:
    """All rows, with values as they are to be here."""
    columns = server.run(
        "SELECT column_name, data_type FROM information_schema.columns"
        f" WHERE table_name = '{table}' AND table_schema = 'public' ORDER BY ordinal_position",
        database=database,
    )
    picked = ", ".join(PICKED.get(kind, "{}").format(name) for name, kind in columns)
    found = server.run(f"SELECT {picked} FROM {table} ORDER BY {', '.join(key)}", database=database)
    return [tuple(map(_ours, row)) for row in found]


def _ours(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, time):
        return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return value
