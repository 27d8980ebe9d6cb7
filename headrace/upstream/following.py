"""A follower's life: copy what is not copied, follow, and after an error begin again where the position says."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from headrace_client.connection import Connection

from controller.upstreams.positions import Position
from headrace.errors import (
    BadRequest,
    Conflict,
    ConnectionFailed,
    HeadraceError,
    Overloaded,
    ReadTimeout,
    TransactionEnded,
    Unavailable,
)
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import Altered, Emptied, Reshaped, UpstreamBatch, UpstreamTransaction
from headrace.upstream.columns import Chunk, Stopped
from headrace.upstream.kinds import UpstreamKind, UpstreamSource, UpstreamStream
from headrace.upstream.target import FollowedDatabase

PASSES = (ConnectionFailed, Conflict, Overloaded, ReadTimeout, TransactionEnded, Unavailable)
"""Errors after which it is tried again: a server is away, or a commit's fate is not known."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
CHUNK_ROWS = 2_000
WAIT_SECONDS = 0.5
IDLE_SECONDS, MOVED_SECONDS = 5.0, 0.5
"""How often it is written that nothing has come; and the position, while only others' transactions come."""
HELD_ALARM = 2**30
"""Bytes of its log that an upstream keeps for us, from which on that is told as a problem."""


@dataclass(slots=True)
class UpstreamProgress:
    """How far a follower is; told after each thing that it has done."""

    table: str = ""
    """The one that is being copied."""
    rows: int = 0
    """Copied by this run."""
    rows_total: int = 0
    """About, of all tables that were not copied at the start."""
    transactions: int = 0
    position: str = ""
    lag: float = 0.0
    """How old the last transaction was when it was done here, in seconds, to a second; 0 once no other one waits."""
    problem: str = ""
    """What it waits for."""


Tell = Callable[[UpstreamProgress], None]


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """What is to be followed."""

    address: UpstreamAddress
    source: str = ""
    """What this source is called here; "": by its database."""
    chunk_rows: int = CHUNK_ROWS
    patience: float = field(default=float("inf"))
    """Seconds for which a server that is away is tried again."""

    @property
    def name(self) -> str:
        return self.source or self.address.database


def kind_of(address: UpstreamAddress) -> UpstreamKind:
    if address.kind == "mysql":
        from headrace.upstream.mariadb.kind import MariaDbKind

        return MariaDbKind()
    from headrace.upstream.postgres.kind import PostgresKind

    return PostgresKind()


def followed_database(db: Connection, asked: FollowRequest) -> FollowedDatabase:
    return FollowedDatabase(db, asked.name, kind_of(asked.address).parse)


def begin_import(
    db: Connection, asked: FollowRequest, tables: Collection[str], collation: str | None
) -> FollowedDatabase:
    """Look at everything, and make the tables; no row is copied yet. What was begun before goes on.

    :raises Stopped: the upstream is set in a way that would lose rows.
    :raises BadRequest: tables that cannot be here, with all reasons.
    """
    kind = kind_of(asked.address)
    with closing(kind.open(asked.address)) as source:
        source.check()
        found = source.tables(tables)
        misfits = [misfit for table in found for misfit in table.misfits(collation)]
        if misfits:
            hint = "name the tables to import, without these, or change them upstream"
            raise BadRequest("not everything can be here: " + "; ".join(misfits), hint=hint)
        if not found:
            raise BadRequest(f'database "{asked.address.database}" has no table')
        target = followed_database(db, asked)
        target.register(found, collation)
        target.begin(source.begin(target.slot, target.followed()))
    return target


def drop_follow(db: Connection, asked: FollowRequest) -> list[str]:
    """Follow it no longer: what the upstream keeps for that goes, and the tables stay as they are; their names."""
    kind = kind_of(asked.address)
    target = followed_database(db, asked)
    target.read()
    with closing(kind.open(asked.address)) as source:
        source.drop(target.slot)
    tables = sorted(target.tables)
    target.forget()
    return tables


class UpstreamFollower:
    """``run`` until it is stopped, or until all is copied."""

    def __init__(self, target: FollowedDatabase, asked: FollowRequest, tell: Tell = lambda _: None) -> None:
        self._target, self._asked, self._tell = target, asked, tell
        self.progress = UpstreamProgress()
        self._ended = False
        self._claimed = False
        self._moved = self._watched = 0.0
        self._told = ""
        """The position that was written last."""
        self._next: UpstreamTransaction | None = None
        """It was read, and has no place in a batch yet."""

    def end(self) -> None:
        """Stop at the next opportunity: what is done is done."""
        self._ended = True

    def run(self, until_copied: bool = False) -> None:
        """:raises Stopped: somebody has to decide; the position's row has the reason, too."""
        pause, deadline = FIRST_PAUSE, time.monotonic() + self._asked.patience
        while not self._ended:
            before = self.progress.transactions + self.progress.rows
            try:
                self._once(until_copied)
                return
            except Stopped as error:
                with suppress(*PASSES):  # Where nobody is there to be told, why it stops is still the error.
                    self._target.say_stopped(error.message)
                raise
            except PASSES as error:
                if self.progress.transactions + self.progress.rows > before:
                    pause, deadline = FIRST_PAUSE, time.monotonic() + self._asked.patience
                if time.monotonic() + pause > deadline:
                    raise
                self.progress.problem = error.message
                self._tell(self.progress)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _once(self, until_copied: bool) -> None:
        """From what is remembered, to the end or an error."""
        target = self._target
        if not self._claimed:
            target.claim()
            self._claimed = True
        target.read_again()
        self._next = None
        kind, address = kind_of(self._asked.address), self._asked.address
        with closing(kind.open(address)) as source:
            source.check()
            source.refuse_behind(target.position)
            self._count(source)
            with kind.stream(address, target.slot, target.position, target.tables) as stream:
                self._watched = 0.0
                while not self._ended:
                    self._watch(source)
                    left = [table for table in target.tables.values() if not table.is_whole]
                    if left:
                        self._copy(source, stream, left[0].name)
                    elif until_copied:
                        return
                    else:
                        self._apply(source, *self._gathered(stream, WAIT_SECONDS))
                    stream.confirm(target.position)

    def _watch(self, source: UpstreamSource) -> None:
        """Now and then, what only the upstream can tell."""
        if self._watched and time.monotonic() - self._watched < IDLE_SECONDS:
            return
        self._watched = time.monotonic()
        self._target.held = held = source.watch(self._target.slot, self._target.tables)
        self.progress.problem = ""
        if held is not None and held > HELD_ALARM:
            self.progress.problem = f"the upstream keeps {held:,} bytes of its log for this follower"
            self._tell(self.progress)

    def _count(self, source: UpstreamSource) -> None:
        left = [table.name for table in self._target.tables.values() if not table.is_whole]
        if left and not self.progress.rows_total:
            self.progress.rows_total = sum(table.rows for table in source.tables(left))

    def _copy(self, source: UpstreamSource, stream: UpstreamStream, name: str) -> None:
        """The next chunk: read it, apply the stream up to its position, store it."""
        (described,) = source.tables([name])
        held = self._target.tables[name]
        if described.layout is not None:
            # Columns that have come are told before the next change of a row; until then they are not there.
            if described.layout != held.layout:
                source.meaning(Reshaped(name, described.layout), held)
            columns = [column for column in described.columns if column.name in held.columns]
            described = replace(described, columns=columns)
        chunk = source.chunk(described, self._target.tables[name].copied, self._asked.chunk_rows, self._target.position)
        while not self._ended:
            batch, alone = self._gathered(stream, WAIT_SECONDS, chunk.position)
            if batch.position.covers(chunk.position) and name not in batch.again:
                self._store(chunk, batch)
                return
            self._apply(source, batch, alone)
            if alone is not None or name in batch.again:
                return  # What was read may have other columns, or is not the next that is wanted.

    def _store(self, chunk: Chunk, batch: UpstreamBatch) -> None:
        here, there = self._target.tables[chunk.table.name].columns, [column.name for column in chunk.table.columns]
        if sorted(here) != sorted(there):
            raise Unavailable(f'table "{chunk.table.name}" is altered upstream: its rows are read again')
        self._target.apply(batch, chunk)
        self.progress.transactions += batch.transactions
        self.progress.position = str(batch.position)
        self.progress.table = chunk.table.name
        self.progress.rows += len(chunk.rows)
        self._tell(self.progress)

    def _apply(self, source: UpstreamSource, batch: UpstreamBatch, alone: UpstreamTransaction | None) -> None:
        """What was gathered, and the definition behind it."""
        if batch.changes:
            self._target.apply(batch)
            self._moved, self._told = time.monotonic(), str(batch.position)
        elif self._is_time(batch.position):
            self._target.move(batch.position, batch.at)
            self._moved, self._told = time.monotonic(), str(batch.position)
        else:
            self._target.position = batch.position
        if alone is not None:
            self._define(source, alone)
        self.progress.transactions += batch.transactions
        self.progress.position = str(self._target.position)
        self.progress.lag = max(0.0, time.time() - batch.at) if batch.at else 0.0
        self._tell(self.progress)

    def _is_time(self, position: Position) -> bool:
        pause = IDLE_SECONDS if str(position) == self._told else MOVED_SECONDS
        return time.monotonic() - self._moved > pause

    def _gathered(
        self, stream: UpstreamStream, seconds: float, until: Position | None = None
    ) -> tuple[UpstreamBatch, UpstreamTransaction | None]:
        """What waits, or all up to ``until``; and the definition that comes behind it."""
        batch = UpstreamBatch(self._target.position)
        try:
            while not batch.is_full and not (until and batch.position.covers(until)):
                self._next = self._next or stream.next(0 if batch.transactions else seconds)
                if self._next is None:
                    if until is None or self._ended:
                        break
                    continue
                if until and until.is_before(self._next.begins):
                    batch.position = until
                    break
                if self._next.definitions:
                    alone, self._next = self._next, None
                    return batch, alone
                batch.add(self._next, self._target.tables, self._target.fetch)
                self._next = None
        except HeadraceError:
            if not batch.transactions:
                raise
            # What came before it is done before; then it is met again.
        return batch, None

    def _define(self, source: UpstreamSource, done: UpstreamTransaction) -> None:
        """Do definitions, and move behind them. Killed in between, it is looked at whether one was done."""
        target = self._target
        for told in done.definitions:
            meaning = source.meaning(told, target.tables[told.table])
            if isinstance(meaning, Emptied):
                target.empty(meaning.table)
            elif meaning.sql:
                name = f"{done.name} {meaning.table}"
                now: dict[str, Any] = {"name": name, "columns": target.shown(meaning.table)["columns"]}
                begun = target.altering or {}
                if begun.get("name") != name:
                    target.remember_altering(now)
                    begun = now
                if begun["columns"] == now["columns"]:
                    self._alter(meaning)
            if isinstance(meaning, Altered) and meaning.layout is not None:
                target.copy_again(meaning.table, meaning.layout)
        if done.changes:
            self._next = replace(done, definitions=[])
        else:
            target.move(target.position.past(done.end), done.at)
        target.read_again()

    def _alter(self, meaning: Altered) -> None:
        try:
            self._target.define(meaning.sql)
        except PASSES:
            raise
        except HeadraceError as error:
            hint = "change it here by hand in another way, or import the table anew"
            raise Stopped(
                f"a definition upstream is refused here: {meaning.sql}: {error.message}", hint=hint
            ) from error


__all__ = [
    "FollowRequest",
    "UpstreamFollower",
    "UpstreamProgress",
    "begin_import",
    "drop_follow",
    "followed_database",
    "kind_of",
]
