"""The upstream by SQL: what is checked, what tables there are, rows of a snapshot with its position."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pymysql  # type: ignore[import-untyped]
from pymysql.cursors import SSCursor  # type: ignore[import-untyped]

from controller.upstreams.positions import GtidPosition
from headrace.errors import BadRequest, Unavailable
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import Altered, Definition, Emptied, FollowedTable, Reshaped
from headrace.upstream.columns import Chunk, Stopped, UpstreamTable, names, quoted
from headrace.upstream.mariadb.columns import MariaColumn

TIMEOUT = 60.0
"""Seconds without a word from the upstream after which it counts as gone."""
NEEDED = {"log_bin": ("ON",), "binlog_format": ("ROW",), "binlog_row_metadata": ("FULL",), "log_bin_compress": ("OFF",)}
"""Variables of the server, and what they have to be. The image of rows is told by each event."""


def driver_options(address: UpstreamAddress) -> dict[str, Any]:
    """PyMySQL's."""
    where = {"host": address.host, "port": address.port, "user": address.user, "password": address.password}
    tls = {"ssl_ca": address.ssl_ca, "ssl_verify_identity": True} if address.ssl_ca else {}
    return {**where, **tls, "charset": "utf8mb4", "connect_timeout": 10, "read_timeout": TIMEOUT}


class MariaSource:
    """A connection to the upstream; close it. It is made anew where it was lost."""

    def __init__(self, address: UpstreamAddress) -> None:
        self.address = address
        with answered(address):
            self._db = pymysql.connect(
                **driver_options(address),
                database=address.database,
                autocommit=True,
                init_command="SET time_zone = '+00:00'",
            )

    def close(self) -> None:
        self._db.close()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with answered(self.address), self._db.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def check(self) -> None:
        """:raises Stopped: the server is no MariaDB, or is set so that rows would be lost."""
        ((version,),) = self.rows("SELECT VERSION()")
        if "MariaDB" not in str(version):
            raise Stopped(f"the server is MySQL {version}, and only MariaDB is followed", hint="see docs/upstream.md")
        told = ", ".join(f"@@global.{name}" for name in NEEDED)
        ((*values,),) = self.rows(f"SELECT {told}")
        for (name, wanted), value in zip(NEEDED.items(), values, strict=True):
            shown = {0: "OFF", 1: "ON"}.get(value, str(value).upper())
            if shown not in wanted:
                hint = f"SET GLOBAL {name} = {wanted[0]}, and in the server's configuration"
                raise Stopped(f"{name} of the upstream is {shown}, and has to be {wanted[0]}", hint=hint)

    def position(self) -> GtidPosition:
        ((text,),) = self.rows("SELECT @@global.gtid_binlog_pos")
        return GtidPosition.parse(text)

    def refuse_behind(self, ours: GtidPosition) -> None:
        """:raises Stopped: the server has not had all that we have seen."""
        theirs = self.position()
        if not theirs.covers(ours):
            raise Stopped(
                f"the upstream is at {theirs}, behind our position {ours}: it is another, or has lost something",
                hint="follow a server that has all of it, or import the tables anew",
            )

    def begin(self, slot: str, tables: Collection[str]) -> GtidPosition:
        return self.position()

    def watch(self, slot: str, tables: Collection[str]) -> int | None:
        return None

    def drop(self, slot: str) -> None:
        """It keeps its binlog for as long as it is set to, whoever reads it."""

    def meaning(self, told: Definition, table: FollowedTable) -> Emptied | Altered:
        assert not isinstance(told, Reshaped)
        return told

    def tables(self, wanted: Collection[str] = ()) -> list[UpstreamTable]:
        """Those that are named, else all.

        :raises BadRequest: one that is named is not there.
        """
        found = self.rows(
            "SELECT TABLE_NAME, ENGINE, TABLE_ROWS FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME",
            [self.address.database],
        )
        absent = set(wanted).difference(name for name, *_ in found)
        if absent:
            raise BadRequest(f'database "{self.address.database}" has no table "{min(absent)}"')
        return [self._table(*each) for each in found if not wanted or each[0] in wanted]

    def _table(self, name: str, engine: str, rows: int | None) -> UpstreamTable:
        where = [self.address.database, name]
        columns = self.rows(
            "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLLATION_NAME, IS_GENERATED, COLUMN_DEFAULT"
            " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            where,
        )
        found = self.rows(
            "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS"
            " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
            where,
        )
        indexes: dict[str, list[str]] = {}
        cut = {index for index, _, part in found if part is not None}
        for index, column, _ in found:
            indexes.setdefault(index, []).append(column)
        key = tuple(indexes.pop("PRIMARY", ()))
        problems = [] if key else ["it has no PRIMARY KEY"]
        if engine != "InnoDB":
            problems.append(f"engine {engine}, whose rows are of no transaction")
        if "PRIMARY" in cut:
            problems.append("its PRIMARY KEY is of the beginnings of columns")
        problems += self._cascades(name)
        made = [
            MariaColumn(column, kind, spelled, null == "YES", order, generated != "NEVER", _constant(default))
            for column, kind, spelled, null, order, generated, default in columns
        ]
        whole = {tuple(each): None for index, each in indexes.items() if index not in cut}
        return UpstreamTable(name, tuple(made), key, tuple(whole), rows or 0, tuple(problems))

    def _cascades(self, name: str) -> Iterator[str]:
        """Rows that InnoDB changes by itself are not in the binlog.

        Who may only read a table is not shown its foreign keys in ``information_schema``, but here he is.
        """
        ((_, text),) = self.rows(f"SHOW CREATE TABLE {quoted(name)}")
        for key, rules in _FOREIGN_KEY.findall(text):
            for of, rule in _RULE.findall(rules):
                yield f"foreign key {key} has ON {of} {rule}, which changes rows without a word in the binlog"

    def chunk(self, table: UpstreamTable, after: Sequence[Any] | None, limit: int, ours: GtidPosition) -> Chunk:
        """The next rows by key, of a snapshot that is not older than ``ours``.

        A transaction is in the binlog a moment before a snapshot has it.
        """
        where, values = _behind(table.key, after)
        columns = ", ".join(column.selected() for column in _columns(table))
        select = f"SELECT {columns} FROM {quoted(table.name)}{where} ORDER BY {names(table.key)} LIMIT {limit}"
        while True:
            self.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            try:
                status = dict(self.rows("SHOW STATUS LIKE 'binlog_snapshot_%%'"))
                where_it_is = [status["Binlog_snapshot_file"], status["Binlog_snapshot_position"]]
                ((text,),) = self.rows("SELECT BINLOG_GTID_POS(%s, %s)", where_it_is)
                position = GtidPosition.parse(text)
                if position.covers(ours):
                    rows = self._converted(table, select, values)
                    end = [rows[-1][name] for name in table.key] if rows else []
                    return Chunk(table, rows, position, limit, end)
            finally:
                self.rows("ROLLBACK")

    def _converted(self, table: UpstreamTable, select: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        converts = [(column.name, convert) for column in _columns(table) if (convert := column.convert())]
        found: list[dict[str, Any]] = []
        with answered(self.address), self._db.cursor(SSCursor) as cursor:
            cursor.execute(select, values)
            named = [column.name for column in table.columns]
            for row in cursor:
                made = dict(zip(named, row, strict=True))
                for name, convert in converts:
                    made[name] = convert(made[name])
                found.append(made)
        return found


_FOREIGN_KEY = re.compile(r"^  CONSTRAINT `((?:[^`]|``)+)` FOREIGN KEY (.*)$", re.MULTILINE)
_RULE = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL)")


def _columns(table: UpstreamTable) -> Sequence[MariaColumn]:
    return cast(Sequence[MariaColumn], table.columns)


def _constant(default: str | None) -> str | None:
    return default if default and re.fullmatch(r"-?[\d.]+|b?'.*'", default, re.DOTALL) else None


def _behind(key: Sequence[str], after: Sequence[Any] | None) -> tuple[str, list[Any]]:
    """``a >= ? AND (a > ? OR (a = ? AND b > ?))``: MariaDB reads that by the key, and not ``(a, b) > (?, ?)``."""
    if after is None:
        return "", []
    ways, values = [], [after[0]]
    for at, name in enumerate(key):
        same = [f"{quoted(before)} = %s" for before in key[:at]]
        ways.append(f"({' AND '.join([*same, f'{quoted(name)} > %s'])})")
        values += [*after[:at], after[at]]
    return f" WHERE {quoted(key[0])} >= %s AND ({' OR '.join(ways)})", values


@contextmanager
def answered(address: UpstreamAddress) -> Iterator[None]:
    """PyMySQL's errors as ours: an upstream that is away may come back."""
    try:
        yield
    except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError) as error:
        code, text = (error.args[0], str(error.args[-1])) if error.args else (0, str(error))
        if code in ALTERED:
            raise Unavailable(f"a table is altered upstream: {text}") from error
        if code in REFUSALS:
            raise Stopped(f"the upstream refuses: {text}", hint=REFUSALS[code]) from error
        raise Unavailable(f"the upstream {address} does not answer: {text}") from error
    except pymysql.err.MySQLError as error:
        raise Stopped(f"the upstream refuses: {error.args[-1]}") from error


ALTERED = (1054, 1412)
"""Errors of a SELECT that an ALTER TABLE comes into the way of."""
REFUSALS = {
    1045: "a user needs SELECT, REPLICATION SLAVE and BINLOG MONITOR",
    1044: "a user needs SELECT, REPLICATION SLAVE and BINLOG MONITOR",
    1142: "a user needs SELECT, REPLICATION SLAVE and BINLOG MONITOR",
    1227: "a user needs SELECT, REPLICATION SLAVE and BINLOG MONITOR",
    1049: "the URL ends with the name of a database",
    1236: "its binlog does not go back to our position: import the tables anew, and keep binlogs for longer",
}
"""Errors that do not go away by themselves."""
