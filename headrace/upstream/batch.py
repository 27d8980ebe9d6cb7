"""Transactions of the upstream as what becomes of each key, to be done as one of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.upstreams.positions import GtidPosition
from headrace.upstream.columns import Stopped
from headrace.upstream.stream import RowChange, UpstreamTransaction

BATCH_ROWS = 2_000
BATCH_BYTES = 2 * 2**20
"""Of values; more waits for the next one. A transaction that is larger by itself is one batch."""

Key = tuple[Any, ...]
Values = Mapping[str, Any]
Fetch = Callable[["FollowedTable", Key], Values | None]
"""The row of a key as we hold it."""


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
    position: GtidPosition
    fates: Fates = field(default_factory=dict)
    transactions: int = 0
    changes: int = 0
    size: int = 0
    at: int = 0
    """When the last transaction was made."""

    @property
    def is_full(self) -> bool:
        return self.changes >= BATCH_ROWS or self.size >= BATCH_BYTES

    def add(self, done: UpstreamTransaction, tables: Mapping[str, FollowedTable], fetch: Fetch) -> None:
        """:raises Stopped: it cannot be done; nothing of it is in the batch."""
        own: Fates = {}
        for change in done.changes:
            self._add(change, tables[change.table], fetch, own)
        for table, fates in own.items():
            self.fates.setdefault(table, {}).update(fates)
        self.changes += len(done.changes)
        self.passed(done)

    def passed(self, done: UpstreamTransaction) -> None:
        self.position = self.position.moved(done.domain, done.server, done.number)
        self.transactions += 1
        self.at = done.at

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
        is_whole = len(after) == len(table.columns)
        if not is_whole:
            after, is_whole = self._filled(table, before, key, after, fetch, own)
        if key != before:
            fates[before] = KeyFate(None)
        fates[key] = KeyFate(after, is_whole)

    def _filled(
        self, table: FollowedTable, before: Key, key: Key, after: dict[str, Any], fetch: Fetch, own: Fates
    ) -> tuple[dict[str, Any], bool]:
        """What the event leaves out, out of what we hold: from this batch, or by an UPDATE of what it has."""
        held = own[table.name].get(before) or self.fates.get(table.name, {}).get(before)
        if held is not None:
            if held.values is None:
                raise Stopped(f'a change of table "{table.name}" is of a row that was deleted')
            after = {**held.values, **after}
            if held.is_whole or key == before:
                return after, held.is_whole
        if key == before:
            return after, False
        found = fetch(table, before)
        if found is None:
            message = f'a row of table "{table.name}" gets another key, comes without all columns, and is not here'
            raise Stopped(message, hint="binlog_row_image = FULL, at least until all rows are copied")
        return {**found, **after}, True
