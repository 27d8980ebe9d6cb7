"""A MariaDB server as a subject: how the judge itself is judged. A developer's tool; no test needs it.

Start a server by hand, with ``--collation-server=utf8mb4_bin``, install ``pymysql``, and run::

    HEADRACE_MARIADB=/tmp/mariadb.sock python -m tests.campaign --subject tests.campaign.mariadb:mariadb

Every difference that this finds is a mistake of the judge or of the generator, or a place where MariaDB and MySQL 8
part. Views with parameters are kept as text, the others are views of the server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pymysql  # type: ignore[import-untyped]

from domains.errors import ConstraintViolation, SqlError, TypeViolation
from tests.campaign.kinds import NOW, literal
from tests.campaign.subject import Answer, Setting

_CONSTRAINTS = (1062, 1048, 1364)
_OURS = re.compile(r" FIRST_ID| SHARD BY \(\w+\)| SHARDS \d+$")
"""Words that the server does not know."""
_TYPES = (1264, 1265, 1292, 1366, 1406, 1690)


class MariaDB:
    def __init__(self, socket: str) -> None:
        self.connection = pymysql.connect(unix_socket=socket, user="root", autocommit=True)
        self.views: dict[str, str] = {}
        for statement in (
            "CREATE DATABASE IF NOT EXISTS headrace_campaign",
            "DROP DATABASE headrace_campaign",
            "CREATE DATABASE headrace_campaign COLLATE utf8mb4_bin",
            "USE headrace_campaign",
            "SET NAMES utf8mb4",
            "SET collation_connection = utf8mb4_bin",
            "SET group_concat_max_len = 1000000",
            "SET time_zone = '+00:00'",
            f"SET timestamp = UNIX_TIMESTAMP('{NOW}')",
        ):
            self._run(statement)

    def execute(self, sql: str) -> list[Answer]:
        created = re.match(r"\s*CREATE (?:EXT )?VIEW (\w+) AS (.*)", sql, re.DOTALL | re.IGNORECASE)
        if created is None:
            dropped = re.match(r"\s*DROP VIEW (\w+)", sql, re.IGNORECASE)
            if dropped is not None and "?" in self.views.pop(dropped[1].lower(), "?"):
                return [Answer()]
            return [self._run(_OURS.sub("", sql))]
        text = self._without_star(created[2].strip().rstrip(";"))
        self.views[created[1].lower()] = text
        return [Answer() if "?" in text else self._run(f"CREATE VIEW {created[1]} AS {text}")]

    def _without_star(self, text: str) -> str:
        """``*`` means the columns of now, also after ALTER TABLE."""
        source = re.match(r"SELECT \* FROM (\w+)", text)
        if source is None:
            return text
        return text.replace("*", ", ".join(self._run(f"SELECT * FROM {source[1]} LIMIT 0").columns), 1)

    def select_evaluated(self, sql: str) -> list[tuple[Any, ...]] | None:
        return None

    def view_evaluated(self, view: str, values: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        return None

    def lookup(self, view: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        pending = list(values)

        def filled(_: re.Match[str]) -> str:
            value = pending.pop(0)
            return ", ".join(map(literal, value)) if isinstance(value, list) else literal(value)

        return list(self._run(re.sub(r"\?", filled, self.views[view.lower()])).rows)

    def _run(self, sql: str) -> Answer:
        try:
            with self.connection.cursor() as cursor:
                affected = cursor.execute(sql)
                names = tuple(entry[0] for entry in cursor.description or ())
                return Answer(names, tuple(tuple(map(_plain, row)) for row in cursor.fetchall()), affected)
        except pymysql.MySQLError as error:
            if error.args[0] in _CONSTRAINTS:
                raise ConstraintViolation(str(error)) from error
            if error.args[0] in _TYPES:
                raise TypeViolation(str(error)) from error
            raise SqlError(f"{error} in {sql[:2000]}") from error

    def evict(self, view: str, values: Sequence[Any]) -> None:
        """Nothing is kept."""

    def evict_some(self, random: Random) -> None:
        """Nothing is kept."""

    def restart(self) -> None:
        """The server stays."""

    def settle(self) -> None:
        """Nothing is under way."""

    def step(self, random: Random) -> None:
        """Nothing is under way."""

    def check(self) -> None:
        """No invariants."""

    def close(self) -> None:
        self.connection.close()


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        # SUM of integers is a DECIMAL in MySQL; here it stays an integer.
        return int(value) if value.as_tuple().exponent == 0 else value
    if value is None or isinstance(value, int | float | str):
        return value
    return value.decode() if isinstance(value, bytes) else str(value)


def mariadb(setting: Setting) -> MariaDB:
    return MariaDB(os.environ.get("HEADRACE_MARIADB", "/tmp/mariadb.sock"))
