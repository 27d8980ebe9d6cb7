"""What a table's schema to come asks of its rows, looked after before that schema is decided.

::

    Expect ──► BuildIndex … ──► CheckRows … ──► (decided) ──► AlterTable
       │    every write is checked from here on               │ the same rules, as the table's own
       └───────────── Relent: as if nothing had been ─────────┘

ADD UNIQUE, PRIMARY KEY and CHECK and NOT NULL are true of a table only if they are true of every row, and writes go on
while rows are read. The invariant that excludes the race, in each shard of the table:

    *From the step of* ``Expect`` *until* ``AlterTable`` *or* ``Relent`` *no step commits a row that breaks the schema
    to come, and* ``CheckRows`` *reads each row that was stored at* ``Expect`` *and is there still.*

So once it has read them all, every row fulfils the schema: it was read, or it was checked as it came. Two rows of one
unique key are found by whichever of them is looked at last: the one that is read looks the key up in the index, which
is complete before the first row is read; the one that is written does so from then on. That it stays true until the
decision is why writes are refused, and do not just end the migration: a decided recipe can no longer fail.

It is lost with its domain. A cluster decides only in the stable epoch in which it was checked, and a domain that is
opened anew takes no write before its tables are as decided (``controller/cluster/leader/recovery.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from domains.engine.writing.written import row_condition
from domains.errors import ConstraintViolation
from domains.language.types import Delta, Row, TableSchema, collations_of
from domains.plan.commands import Progress
from domains.plan.deltas import key_function
from domains.plan.graph import Columns
from domains.store.storage import TableStore, added_values

NAMED_ROWS = 10
"""Rows that break a schema to come which an error names."""


def new_keys(before: TableSchema, after: TableSchema) -> list[Columns]:
    """Keys that become unique, of columns that are stored already."""
    known = {before.primary_key, *before.unique}
    return [key for key in after.unique if key not in known and max(key) < len(before.columns)]


def newly_required(before: TableSchema, after: TableSchema) -> list[int]:
    """Columns that may hold NULL, and are not to."""
    stored = [at for at in after.live() if at < len(before.columns)]
    return [at for at in stored if before.columns[at].nullable and not after.columns[at].nullable]


def asks_more(before: TableSchema, after: TableSchema) -> bool:
    """Whether rows of the one may break the other."""
    checks = set(after.checks) - set(before.checks)
    return bool(checks or new_keys(before, after) or newly_required(before, after))


class Expected:
    """What is expected of one shard of a table that is to have another schema."""

    def __init__(self, stored: TableStore, schema: TableSchema, added: Collection[Columns] = ()) -> None:
        """``added`` are indexes that an earlier change has begun, which this one follows in its turn."""
        before = stored.schema
        self._stored = stored
        self._schema = schema
        self._padding = added_values(before, schema)
        self._required = newly_required(before, schema)
        self._checks = [(check, row_condition(check)) for check in schema.checks if check not in before.checks]
        collations = collations_of(before.columns)
        self.unique = [(key, key_function(key, collations)) for key in new_keys(before, schema)]
        self.added = {*added, *(key for key, _ in self.unique if not stored.has_index(key))}
        """Indexes that are there for this."""
        self._cursor: bytes | None = None
        self._broken: dict[str, None] = {}
        """What is wrong with stored rows."""
        for key in self.added:
            stored.add_index(key)

    def check_write(self, deltas: Sequence[Delta]) -> None:
        """Check a write that is worked out and not staged.

        :raises ConstraintViolation: it would leave a row that breaks the schema to come.
        """
        come = [row for row, weight in deltas if weight > 0]
        why = next((why for row in come if (why := self._misfit(row))), "") or next(self._doubled(come, deltas), "")
        if why:
            raise ConstraintViolation(
                f'an ALTER TABLE of "{self._schema.name}" that is being carried out asks for more: {why}',
                hint="write what the new definition allows, or wait for the end of the migration, or cancel it",
            )

    def check_stored(self, limit: int) -> Progress:
        """The next stored rows.

        :raises ConstraintViolation: some break the schema to come; at most :data:`NAMED_ROWS` of them are named.
        """
        part, self._cursor = self._stored.scan(self._cursor, limit)
        rows = [row for row, _ in part]
        self._broken.update((why, None) for row in rows if (why := self._misfit(row)))
        self._broken.update((why, None) for why in self._doubled(rows, ()))
        if self._broken and (self._cursor is None or len(self._broken) >= NAMED_ROWS):
            named = list(self._broken)[:NAMED_ROWS]
            more = ", and more" if len(self._broken) > NAMED_ROWS or self._cursor is not None else ""
            raise ConstraintViolation(
                f'rows of table "{self._schema.name}" are in the way: {"; ".join(named)}{more}',
                hint="change or delete these rows, and ask again",
            )
        return Progress(len(rows), self._cursor is None)

    def _misfit(self, row: Row) -> str:
        """Why the row is none of the schema to come by itself; "": it is one."""
        columns, row = self._schema.columns, row + self._padding
        for at in self._required:
            if row[at] is None:
                return f'column "{columns[at].name}" is NULL in the row {_shown(row, self._schema.live())}'
        for check, condition in self._checks:
            if condition(row) == 0:
                return f'check "{check.name}" ({check.condition.sql}) is false of {_shown(row, self._schema.live())}'
        return ""

    def _doubled(self, rows: Sequence[Row], deltas: Sequence[Delta]) -> Iterator[str]:
        """The unique keys of these rows that more than one row has once the deltas are applied."""
        for key, key_of in self.unique:
            if not self._stored.has_index(key):
                continue  # All rows are read once it is complete.
            spelled = {value: row for row in rows if None not in (value := key_of(row))}
            wanted = list(spelled)
            if not wanted:
                continue
            counts = {
                value: sum(weight for _, weight in found)
                for value, found in zip(wanted, self._stored.find_many(key, wanted), strict=True)
            }
            for row, weight in deltas:
                if (value := key_of(row)) in counts:
                    counts[value] += weight
            names = ", ".join(f'"{self._schema.columns[at].name}"' for at in key)
            kind = "primary key" if key == self._schema.shown_key else "unique key"
            for value, count in counts.items():
                if count > 1:
                    yield f"{kind} {names} has {_shown(spelled[value], key)} in {count} rows"


def _shown(row: Row, places: Iterable[int]) -> str:
    text = ", ".join("NULL" if row[at] is None else repr(row[at]) for at in places)
    return f"({text if len(text) <= 100 else text[:99] + '…'})"
