"""Our side: the tables that follow, the position, and what is written together with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import uuid4

from headrace_client.connection import Connection

from controller.upstreams.positions import Position
from headrace.errors import AlreadyExists, ConstraintViolation, LimitExceeded, NotFound, TypeViolation
from headrace.upstream.batch import FollowedTable, Key, UpstreamBatch, Values
from headrace.upstream.columns import Chunk, Stopped, UpstreamTable, comment_of, from_cursor, names, quoted, to_cursor

POSITIONS, TABLES = "headrace_upstream", "headrace_upstream_tables"
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {POSITIONS} (source VARCHAR(200) NOT NULL PRIMARY KEY, reached TEXT NOT NULL,
  follower VARCHAR(40) NOT NULL, written DATETIME NULL, applied DATETIME NULL, lag DOUBLE NULL, held BIGINT NULL,
  altering TEXT NULL, stopped TEXT NULL, slot VARCHAR(63) NOT NULL);
CREATE TABLE IF NOT EXISTS {TABLES} (name VARCHAR(200) NOT NULL PRIMARY KEY, source VARCHAR(200) NOT NULL,
  copied TEXT NULL, is_whole BOOL NOT NULL,
  layout TEXT NULL)
"""
"""``reached``: the position. ``written``: when the last transaction was made upstream; ``applied``: when it was done
here, or there was none to do; ``lag``: how old it was then, in seconds, 0 where there was none. ``held``: bytes of its
log that the upstream keeps for us. ``altering``: the definition that is under way, and the columns that were there
before it. ``slot``: by what name the upstream knows us. ``copied``: the key of the last row that was copied;
``layout``: its columns as the stream tells them."""
AT_ONCE = 256
"""Rows of a statement."""

Part = TypeVar("Part")


class FollowedDatabase:
    """One source in a Headrace. ``source`` names it, whichever server of it is followed."""

    def __init__(self, db: Connection, source: str, parse: Callable[[str], Any]) -> None:
        """``parse``: a position, as it is remembered."""
        self._db = db
        self._parse = parse
        self.source = source
        self.slot = ""
        self.held: int | None = None
        self.tables: dict[str, FollowedTable] = {}
        self.position: Any = None
        self.altering: Mapping[str, Any] | None = None
        self._follower = str(uuid4())

    def register(self, tables: Sequence[UpstreamTable], collation: str | None) -> None:
        """Make what is not there yet; of a table that was begun before, nothing. Then it is ours.

        :raises AlreadyExists: a table of the name is there, and does not follow.
        """
        self._db.execute_all(SCHEMA)
        there = {each["name"].lower() for each in self._db.tables()}
        known: dict[str, str] = dict(self._db.execute(f"SELECT name, source FROM {TABLES}").rows)
        for table in tables:
            if known.get(table.name, self.source) != self.source:
                raise AlreadyExists(f'table "{table.name}" follows "{known[table.name]}"')
            if table.name not in known and table.name.lower() in there:
                raise AlreadyExists(
                    f'table "{table.name}" is here already, and does not follow', hint="rename or drop it"
                )
        with self._db.transaction() as t:
            slot = f"headrace_{re.sub('[^a-z0-9]+', '_', self.source.lower())[:40]}_{uuid4().hex[:8]}"
            row = {"source": self.source, "reached": "", "follower": self._follower, "slot": slot}
            t.table(POSITIONS).insert(row, on_duplicate="ignore")
            made = [{"name": each.name, "source": self.source, "is_whole": 0, "layout": each.layout} for each in tables]
            t.table(TABLES).insert(made, on_duplicate="ignore")
        for table in tables:
            self._db.execute(table.definition(collation, self.source))
        ((self.slot,),) = self._db.execute(f"SELECT slot FROM {POSITIONS} WHERE source = ?", [self.source]).rows

    def begin(self, position: Position) -> None:
        """Where its changes are told from; of a source that was begun before, nothing."""
        sql = f"UPDATE {POSITIONS} SET reached = ? WHERE source = ? AND reached = ''"
        self._db.execute(sql, [str(position), self.source])

    def followed(self) -> list[str]:
        """The names of all tables that follow it."""
        return [name for (name,) in self._db.execute(f"SELECT name FROM {TABLES} WHERE source = ?", [self.source]).rows]

    def forget(self) -> None:
        """It is followed no longer; its tables stay as they are."""
        self.leave_out(list(self.tables))
        self._db.execute(f"DELETE FROM {POSITIONS} WHERE source = ?", [self.source])

    def leave_out(self, tables: Iterable[str]) -> None:
        """They follow no longer, and stay as they are.

        :raises NotFound: one does not follow.
        """
        self.read()
        for table in tables:
            if table not in self.tables:
                raise NotFound(f'table "{table}" does not follow "{self.source}"')
            self._db.execute(f"DELETE FROM {TABLES} WHERE name = ? AND source = ?", [table, self.source])
            self._db.execute(f"ALTER TABLE {quoted(table)} COMMENT = ''")

    def claim(self) -> None:
        """From now on this follower is the one: another one's next write is refused.

        :raises NotFound: nothing of the source was imported.
        """
        self.read()
        sql = f"UPDATE {POSITIONS} SET follower = ?, stopped = NULL WHERE source = ?"
        self._db.execute(sql, [self._follower, self.source])

    def read(self) -> str:
        """Read all that is remembered; answers the follower that is the one."""
        there = {each["name"]: each for each in self._db.tables()}
        found: Sequence[Sequence[Any]] = ()
        if POSITIONS in there:
            sql = f"SELECT reached, follower, altering, slot FROM {POSITIONS} WHERE source = ?"
            found = self._db.execute(sql, [self.source]).rows
        if not found or not found[0][0]:
            raise NotFound(f'nothing of "{self.source}" was imported', hint="headrace import URL, or again to its end")
        ((reached, follower, altering, self.slot),) = found
        self.position = self._parse(reached)
        self.altering = json.loads(altering) if altering else None
        sql = f"SELECT name, copied, is_whole, layout FROM {TABLES} WHERE source = ?"
        self.tables.clear()
        for name, copied, is_whole, layout in self._db.execute(sql, [self.source]).rows:
            if name not in there:
                continue  # Its CREATE TABLE was not done before the import was killed.
            columns = tuple(column["name"] for column in there[name]["columns"])
            cursor = None if copied is None else from_cursor(json.loads(copied))
            key = tuple(there[name]["primary_key"])
            defaults = {
                column["name"]: column["default"]
                for column in there[name]["columns"]
                if column["nullable"] or column["default"] is not None
            }
            self.tables[name] = FollowedTable(name, columns, key, cursor, bool(is_whole), defaults, layout)
        return str(follower)

    def read_again(self) -> None:
        """After an error: what was done, and what was not.

        :raises Stopped: another follower has come.
        """
        if self.read() != self._follower:
            raise Stopped(f'another follower of "{self.source}" has taken over')

    def shown(self, table: str) -> dict[str, Any]:
        """The table as the server describes it."""
        return next(each for each in self._db.tables() if each["name"] == table)

    # Writing: everything in one transaction with the position.

    def apply(self, batch: UpstreamBatch, chunk: Chunk | None = None) -> None:
        """Transactions of the upstream, or a chunk of the position that we are at: one text, all of it or nothing."""
        text = _Text()
        for name in batch.emptied:
            text.add(f"DELETE FROM {quoted(name)}", [])
        for name, fates in batch.fates.items():
            table = self.tables[name]
            text.delete(table, [key for key, fate in fates.items() if fate.values is None])
            text.put(table, [fate.values for fate in fates.values() if fate.values is not None and fate.is_whole])
            for key, fate in fates.items():
                if fate.values is not None and not fate.is_whole:
                    text.change(table, key, fate.values)
        for name in batch.again:
            text.add(f"UPDATE {TABLES} SET copied = NULL WHERE name = ? AND source = ?", [name, self.source])
        if chunk is not None:
            text.put(self.tables[chunk.table.name], chunk.rows)
            cursor = json.dumps(to_cursor(chunk.end)) if chunk.rows else None
            sql = f"UPDATE {TABLES} SET copied = COALESCE(?, copied), is_whole = ? WHERE name = ? AND source = ?"
            text.add(sql, [cursor, int(chunk.is_last), chunk.table.name, self.source])
        self._move(text, batch.position, batch.at)
        self.position = batch.position
        for name in batch.again:
            self.tables[name] = replace(self.tables[name], copied=None)
        if chunk is not None:
            self._copied(chunk)

    def _copied(self, chunk: Chunk) -> None:
        table = self.tables[chunk.table.name]
        end = chunk.end if chunk.rows else table.copied
        self.tables[table.name] = replace(table, copied=end, is_whole=chunk.is_last)

    def _move(self, text: _Text, position: Position, at: float, altering: Mapping[str, Any] | None = None) -> None:
        """Do the text, and with it move the position; nothing of it where another follower has come: its position is
        nobody's else, and NULL is refused."""
        now = datetime.now(UTC).replace(tzinfo=None)
        written = datetime.fromtimestamp(at, UTC).replace(tzinfo=None) if at else None
        lag = max(0.0, (now - written).total_seconds()) if written else 0.0
        told = json.dumps(altering) if altering else None
        text.add(
            f"UPDATE {POSITIONS} SET reached = IF(follower = ?, ?, NULL), applied = ?, written = COALESCE(?, written),"
            " lag = ?, held = ?, altering = ?, stopped = NULL WHERE source = ?",
            [self._follower, str(position), now, written, lag, self.held, told, self.source],
        )
        try:
            with _explained():
                done = self._db.execute_all("; ".join(text.statements), text.params, atomic=True, follows=True)
        except ConstraintViolation as error:
            if '"reached"' not in error.message:
                raise
            raise Stopped(f'another follower of "{self.source}" has taken over') from error
        if done[-1].rows_affected != 1:
            raise Stopped(f'"{self.source}" is followed no longer: its position is gone')

    def move(self, position: Position, at: float = 0) -> None:
        """Nothing is to be done of the transactions up to there."""
        self._move(_Text(), position, at)
        self.position, self.altering = position, None

    def remember_altering(self, what: Mapping[str, Any]) -> None:
        """What a definition finds, before it is done: it is in no transaction."""
        self._move(_Text(), self.position, 0, what)
        self.altering = what

    def copy_again(self, table: str, layout: str) -> None:
        """Its rows have values that were not told."""
        sql = f"UPDATE {TABLES} SET copied = NULL, is_whole = 0, layout = ? WHERE name = ? AND source = ?"
        self._db.execute(sql, [layout, table, self.source])

    def define(self, sql: str) -> None:
        self._db.execute(sql)

    def empty(self, table: str) -> None:
        """By a TRUNCATE, which is as large as the table and in no transaction; so anybody might write meanwhile."""
        alter = f"ALTER TABLE {quoted(table)}"
        self._db.execute_all(f"{alter} COMMENT = ''; TRUNCATE TABLE {quoted(table)}; {alter}{comment_of(self.source)}")

    def say_stopped(self, why: str) -> None:
        sql = f"UPDATE {POSITIONS} SET stopped = ? WHERE source = ? AND follower = ?"
        self._db.execute(sql, [why, self.source, self._follower])

    def fetch(self, table: FollowedTable, key: Key) -> Values | None:
        where = " AND ".join(f"{quoted(name)} = ?" for name in table.key)
        found = self._db.execute(
            f"SELECT {names(table.columns)} FROM {quoted(table.name)} WHERE {where}", list(key)
        ).rows
        return dict(zip(table.columns, found[0], strict=True)) if found else None


class _Text:
    """Statements of one request, each by texts of few lengths, since a text is parsed once: where there are fewer rows,
    the last one stands for those that are missing."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.params: list[Any] = []

    def add(self, sql: str, params: Iterable[Any]) -> None:
        self.statements.append(sql)
        self.params += params

    def put(self, table: FollowedTable, rows: Sequence[Values]) -> None:
        one = f"({', '.join('?' * len(table.columns))})"
        sets = ", ".join(f"{quoted(name)} = VALUES({quoted(name)})" for name in table.columns if name not in table.key)
        head, tail = ("INSERT", f" ON DUPLICATE KEY UPDATE {sets}") if sets else ("INSERT IGNORE", "")
        head = f"{head} INTO {quoted(table.name)} ({names(table.columns)}) VALUES "
        for some in _parted(rows):
            sql = f"{head}{', '.join([one] * len(some))}{tail}"
            self.add(sql, [row[name] for row in some for name in table.columns])

    def change(self, table: FollowedTable, key: Key, values: Values) -> None:
        changed = [name for name in values if name not in table.key]
        if changed:
            sets = ", ".join(f"{quoted(name)} = ?" for name in changed)
            where = " AND ".join(f"{quoted(name)} = ?" for name in table.key)
            sql = f"UPDATE {quoted(table.name)} SET {sets} WHERE {where}"
            self.add(sql, [*(values[name] for name in changed), *key])

    def delete(self, table: FollowedTable, keys: Sequence[Key]) -> None:
        columns = quoted(table.key[0]) if len(table.key) == 1 else f"({names(table.key)})"
        one = "?" if len(table.key) == 1 else f"({', '.join('?' * len(table.key))})"
        for some in _parted(keys):
            sql = f"DELETE FROM {quoted(table.name)} WHERE {columns} IN ({', '.join([one] * len(some))})"
            self.add(sql, [value for key in some for value in key])


def _parted(given: Sequence[Part]) -> Iterator[Sequence[Part]]:
    for begin in range(0, len(given), AT_ONCE):
        some = given[begin : begin + AT_ONCE]
        length = 1 << (len(some) - 1).bit_length()
        yield [*some, *[some[-1]] * (length - len(some))]


@contextmanager
def _explained() -> Any:
    """What our server refuses of an upstream's rows does not go away by itself."""
    try:
        yield
    except LimitExceeded as error:
        hint = "set max_transaction_size of the server higher; a transaction of the upstream is one here"
        raise Stopped(f"a transaction of the upstream is too large: {error.message}", hint=hint) from error
    except TypeViolation as error:
        raise Stopped(f"a row of the upstream does not fit here: {error.message}", hint=error.hint) from error
