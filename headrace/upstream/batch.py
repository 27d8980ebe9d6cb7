"""Transactions of the upstream as what becomes of each key, to be done as one of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.upstreams.positions import Position
from headrace.upstream.columns import Stopped

BATCH_ROWS = 2_000
BATCH_BYTES = 2 * 2**20
"""Of values; more waits for the next one. A transaction that is larger by itself is one batch."""

Key = tuple[Any, ...]
Values = Mapping[str, Any]
Fetch = Callable[["FollowedTable", Key], Values | None]
"""The row of a key as we hold it."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """``before`` None: a new row; ``after`` None: it is deleted; both: all rows are. A column whose value the event
    lacks is not there."""

    table: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    columns: frozenset[str]
    """All that the table has upstream."""


@dataclass(frozen=True, slots=True)
class Emptied:
    """TRUNCATE."""

    table: str


@dataclass(frozen=True, slots=True)
class Altered:
    """ALTER TABLE; ``sql`` is ours, "" if nothing of it matters here."""

    table: str
    sql: str
    layout: str | None = None
    """What its columns are then, where its rows are to be copied again."""


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The stream tells other columns of a table from here on, and not how they came."""

    table: str
    layout: str


Definition = Emptied | Altered | Reshaped


@dataclass(slots=True)
class UpstreamTransaction:
    name: str
    """As its server calls it."""
    end: Any
    """What a position moves past."""
    at: float
    """When, in seconds since 1970, as the upstream has it; 0: it is none, and the position alone moves."""
    begins: int | None = None
    """Where its commit is, if that can be behind a position which it does not follow at once."""
    changes: list[RowChange] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    """They come before the changes."""


@dataclass(frozen=True, slots=True)
class FollowedTable:
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    copied: Sequence[Any] | None = None
    """The key of the last row that was copied; None: none was."""
    is_whole: bool = False
    """All rows were."""
    defaults: Values = field(default_factory=dict)
    """The values of columns that a new row may leave out."""
    layout: str | None = None
    """Its columns as the stream has told them."""

    def key_of(self, values: Values) -> Key:
        """:raises Stopped: they have no key."""
        try:
            return tuple(values[name] for name in self.key)
        except KeyError as error:
            raise Stopped(f'a change of table "{self.name}" comes without column {error} of its key') from None


@dataclass(slots=True)
class KeyFate:
    """What becomes of a key: the row's values, all or some of them; None: it is deleted."""

    values: dict[str, Any] | None
    is_whole: bool = True


Fates = dict[str, dict[Key, KeyFate]]


@dataclass(slots=True)
class UpstreamBatch:
    position: Position
    emptied: set[str] = field(default_factory=set)
    """Tables whose rows are all deleted before."""
    again: set[str] = field(default_factory=set)
    """Tables that are copied from their first row again."""
    fates: Fates = field(default_factory=dict)
    transactions: int = 0
    changes: int = 0
    size: int = 0
    at: float = 0
    """When the last transaction was made."""

    @property
    def is_full(self) -> bool:
        return self.changes >= BATCH_ROWS or self.size >= BATCH_BYTES

    def add(self, done: UpstreamTransaction, tables: Mapping[str, FollowedTable], fetch: Fetch) -> None:
        """:raises Stopped: it cannot be done; nothing of it is in the batch."""
        own: Fates = {}
        emptied = set()
        for change in done.changes:
            if change.before is None and change.after is None:
                emptied.add(change.table)
                own[change.table] = {}
            else:
                self._add(change, tables[change.table], fetch, own)
        self.emptied |= emptied
        for name in emptied:
            self.fates.pop(name, None)
        for table, fates in own.items():
            self.fates.setdefault(table, {}).update(fates)
        self.changes += len(done.changes)
        self.passed(done)

    def passed(self, done: UpstreamTransaction) -> None:
        self.position = self.position.past(done.end)
        self.transactions += 1 if done.at else 0
        self.at = done.at or self.at

    def _add(self, change: RowChange, table: FollowedTable, fetch: Fetch, own: Fates) -> None:
        fates = own.setdefault(table.name, {})
        if other := change.columns.symmetric_difference(table.columns):
            message = (
                f'column "{min(other)}" of table "{table.name}" is not on both sides, and its ALTER TABLE was not told'
            )
            raise Stopped(message, hint="import the table anew")
        before = None if change.before is None else table.key_of(change.before)
        if change.after is None:
            assert before is not None
            fates[before] = KeyFate(None)
            return
        after = dict(change.after)
        self.size += sum(len(value) if isinstance(value, str | bytes) else 16 for value in after.values())
        if before is None:
            after = {**table.defaults, **after}
            if len(after) < len(table.columns):
                message = f'a new row of table "{table.name}" comes without all columns'
                raise Stopped(message, hint="binlog_row_image = FULL, or the mode STRICT_TRANS_TABLES, in each session")
            fates[table.key_of(after)] = KeyFate(after)
            return
        after = {**dict(zip(table.key, before, strict=True)), **after}
        key = table.key_of(after)
        if len(after) == len(table.columns):
            fate: KeyFate | None = KeyFate(after)
        else:
            fate = self._filled(table, before, key, after, fetch, own)
        if key != before:
            fates[before] = KeyFate(None)
        if fate is not None:
            fates[key] = fate

    def _filled(
        self, table: FollowedTable, before: Key, key: Key, after: dict[str, Any], fetch: Fetch, own: Fates
    ) -> KeyFate | None:
        """What the event leaves out, out of what we hold: from this batch, or by an UPDATE of what it has. None: it
        is not here yet, and where its new key is may have been read."""
        held = own[table.name].get(before) or self.fates.get(table.name, {}).get(before)
        if held is not None:
            if held.values is None:
                raise Stopped(f'a change of table "{table.name}" is of a row that was deleted')
            after = {**held.values, **after}
            if held.is_whole or key == before:
                return KeyFate(after, held.is_whole)
        if key == before:
            return KeyFate(after, False)
        found = fetch(table, before)
        if found is not None:
            return KeyFate({**found, **after})
        if table.is_whole:
            raise Stopped(f'a row of table "{table.name}" gets another key, and is not here', hint="import it anew")
        self.again.add(table.name)
        return None
