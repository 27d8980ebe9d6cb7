"""What a table's schema to come asks of its rows, looked after before that schema is decided.

::

    Expect ──► BuildIndex … ──► CheckRows … ──► (decided) ──► AlterTable
       │    every write is checked from here on               │ the same rules, as the table's own
       └───────────── Relent: as if nothing had been ─────────┘

ADD UNIQUE, PRIMARY KEY, CHECK and FOREIGN KEY and NOT NULL are true of a table only if they are true of every row, and
so is that each row has a value in a column that comes and is computed: MODIFY to another type, or a generated column
(``store/widening.py``). Writes go on while rows are read. The invariant that excludes the race, in each shard of the
table:

    *From the step of* ``Expect`` *until* ``AlterTable`` *or* ``Relent`` *no step commits a row that breaks the schema
    to come, and* ``CheckRows`` *reads each row that was stored at* ``Expect`` *and is there still.*

So once it has read them all, every row fulfils the schema: it was read, or it was checked as it came. Two rows of one
unique key are found by whichever of them is looked at last: the one that is read looks the key up in the index, which
is complete before the first row is read; the one that is written does so from then on. (It may be an index of columns
that are yet to come: then it is of what rows are to have in them.) The same holds for a row that
names another by a foreign key: it looks the other up when it is read, or written, and a write that takes the other away
looks for rows that name it. That it stays true until the decision is why writes are refused, and do not just end the
migration: a decided recipe can no longer fail.

It is lost with its domain. A cluster decides only in the stable epoch in which it was checked, and a domain that is
opened anew takes no write before its tables are as decided (``controller/cluster/leader/recovery.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from domains.engine.writing.written import row_condition
from domains.errors import ConstraintViolation
from domains.language.types import Delta, ForeignKey, Row, TableSchema, collations_of
from domains.plan.commands import Progress
from domains.plan.deltas import key_function
from domains.plan.graph import Columns
from domains.store.storage import Store, TableStore
from domains.store.widening import kept_foreign_keys, widening

NAMED_ROWS = 10
"""Rows that break a schema to come which an error names."""


def new_keys(before: TableSchema, after: TableSchema) -> list[Columns]:
    """Keys that become unique, of columns that are stored already, or computed of these."""
    known, computed = {before.primary_key, *before.unique}, widening(before, after).computed
    new = [key for key in after.unique if key not in known]
    return [key for key in new if max(key) < len(before.columns) or not computed.isdisjoint(key)]


def lone_keys(before: TableSchema, after: TableSchema) -> list[Columns]:
    """Keys with columns that come with one value, and no NULL, for all rows that are stored: there may be one row. (Of
    keys that also have columns which are stored that is too strict, but no index could find their duplicates.)"""
    known, width = {before.primary_key, *before.unique}, len(before.columns)
    padding = widening(before, after).constants
    new = [key for key in after.unique if key not in known and max(key) >= width]
    return [key for key in new if all(padding[at - width] is not None for at in key if at >= width)]


def newly_required(before: TableSchema, after: TableSchema) -> list[int]:
    """Columns that may hold NULL, and are not to."""
    stored = [at for at in after.live() if at < len(before.columns)]
    return [at for at in stored if before.columns[at].nullable and not after.columns[at].nullable]


def new_foreign_keys(before: TableSchema, after: TableSchema) -> list[ForeignKey]:
    """Enforced ones that come, of columns that are stored already. (In a column that comes stored rows have NULL, and
    so name no row: ``refuse_unread`` of the planner.)"""
    kept = kept_foreign_keys(before, after)
    come = [key for key in after.foreign_keys if key.enforced and key not in kept]
    return [key for key in come if max(key.columns) < len(before.columns)]


def asks_more(before: TableSchema, after: TableSchema) -> bool:
    """Whether rows of the one may break the other."""
    checks = set(after.checks) - set(before.checks)
    comes = widening(before, after).computed
    return bool(checks or comes or sought(before, after) or newly_required(before, after) or lone_keys(before, after))


def sought(before: TableSchema, after: TableSchema) -> list[Columns]:
    """The columns by which rows are looked up meanwhile."""
    return [*new_keys(before, after), *(key.columns for key in new_foreign_keys(before, after))]


def _counted(
    stored: TableStore, columns: Columns, key_of: Callable[[Row], Row], keys: Iterable[Row], deltas: Iterable[Delta]
) -> dict[Row, int]:
    """How many rows have each of these keys once the deltas are applied."""
    wanted = list(keys)
    found = stored.find_many(columns, wanted)
    counts = {key: sum(weight for _, weight in rows) for key, rows in zip(wanted, found, strict=True)}
    for row, weight in deltas:
        if (key := key_of(row)) in counts:
            counts[key] += weight
    return counts


class _KeyToCome:
    """A foreign key that is expected of two tables of one shard, or of one that names itself."""

    def __init__(self, stored: TableStore, schema: TableSchema, key: ForeignKey, store: Store) -> None:
        self._child = stored
        self._schema = schema
        self._key = key
        self._child_key = key_function(key.columns, collations_of(schema.columns))
        self._parent: TableStore | None = None
        """None: it comes with the same change, and has no rows."""
        self._unique: Columns = ()
        for parent in store.tables():
            if parent.name.lower() == key.parent.lower():
                places = [parent.position(name) for name in key.key]
                self._unique = tuple([at for at in places if at is not None])
                assert len(self._unique) == len(places), f"{parent.title} is stored without what {key.name} names"
                self._parent = store.table(parent.name)
                self._parent_key = key_function(self._unique, collations_of(parent.columns))

    def orphans(self, rows: Iterable[Row], deltas: Sequence[Delta] = ()) -> Iterator[str]:
        """Of rows of the child those that name no row of the parent, once that has changed by these deltas."""
        named = {key: row for row in rows if None not in (key := self._child_key(row))}
        counts: Mapping[Row, int] = {}
        if self._parent is not None:
            counts = _counted(self._parent, self._unique, self._parent_key, named, deltas)
        for key, row in named.items():
            if not counts.get(key):
                yield (
                    f'foreign key "{self._key.name}" names no row of table "{self._key.parent}": '
                    f"{self._said(row)} in {_shown(row, self._schema.live())}"
                )

    def broken(self, changes: Mapping[str, Sequence[Delta]]) -> Iterator[str]:
        """By a write of several tables, by name."""
        own = changes.get(self._schema.name, ())
        others = changes.get(self._parent.schema.name, ()) if self._parent is not None else ()
        yield from self.orphans([row for row, weight in own if weight > 0], others)
        if self._parent is None or not self._child.has_index(self._key.columns):
            return  # All rows are read once it is complete.
        gone = {key: row for row, weight in others if weight < 0 and None not in (key := self._parent_key(row))}
        left = _counted(self._parent, self._unique, self._parent_key, gone, others)
        gone = {key: row for key, row in gone.items() if not left[key]}
        live = self._parent.schema.live()
        for key, count in _counted(self._child, self._key.columns, self._child_key, gone, own).items():
            if count > 0:
                yield (
                    f'by foreign key "{self._key.name}" {count} rows of "{self._schema.title}" name the row '
                    f'{_shown(gone[key], live)} of "{self._key.parent}"'
                )

    def _said(self, row: Row) -> str:
        names = [f'"{self._schema.columns[at].name}"' for at in self._key.columns]
        return f"{', '.join(names)} is {_shown(row, self._key.columns)}"


class Expected:
    """What is expected of one shard of a table that is to have another schema."""

    def __init__(self, store: Store, schema: TableSchema, added: Collection[Columns] = ()) -> None:
        """``added`` are indexes that an earlier change has begun, which this one follows in its turn."""
        stored = store.table(schema.name)
        before = stored.schema
        self._stored = stored
        self._schema = schema
        self._widen = widening(before, schema)
        self._padding = self._widen.constants
        self._required = newly_required(before, schema)
        self._checks = [(check, row_condition(check)) for check in schema.checks if check not in before.checks]
        self.unique = [(key, self._widen.key_function(key)) for key in new_keys(before, schema)]
        self._keys = [_KeyToCome(stored, schema, key, store) for key in new_foreign_keys(before, schema)]
        self.added = {*added, *(key for key in sought(before, schema) if not stored.has_index(key))}
        """Indexes that are there for this."""
        self._lone = lone_keys(before, schema)
        self._cursor: bytes | None = None
        self._broken: dict[str, None] = {}
        """What is wrong with stored rows."""
        for key in self.added:
            stored.add_index(key, self._widen)

    def check_write(self, changes: Mapping[str, Sequence[Delta]]) -> None:
        """Check a write that is worked out and not staged, by the tables that it changes.

        :raises ConstraintViolation: it would leave a row that breaks the schema to come.
        """
        deltas = changes.get(self._schema.name, ())
        come = [row for row, weight in deltas if weight > 0]
        why = next((why for row in come if (why := self._misfit(row))), "") or next(self._doubled(come, deltas), "")
        why = why or next((why for key in self._keys for why in key.broken(changes)), "")
        if come and not why:
            why = next(self._several(self._stored.row_count + sum(weight for _, weight in deltas)), "")
        if why:
            raise ConstraintViolation(
                f'an ALTER TABLE of "{self._schema.title}" that is being carried out asks for more: {why}',
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
        self._broken.update((why, None) for key in self._keys for why in key.orphans(rows))
        self._broken.update((why, None) for why in self._several(self._stored.row_count))
        if self._broken and (self._cursor is None or len(self._broken) >= NAMED_ROWS):
            named = list(self._broken)[:NAMED_ROWS]
            more = ", and more" if len(self._broken) > NAMED_ROWS or self._cursor is not None else ""
            raise ConstraintViolation(
                f'rows of table "{self._schema.title}" are in the way: {"; ".join(named)}{more}',
                hint="change or delete these rows, and ask again",
            )
        return Progress(len(rows), self._cursor is None)

    def _misfit(self, row: Row) -> str:
        """Why the row is none of the schema to come by itself; "": it is one."""
        if why := self._widen.misfit(row):
            return f"{why}, in the row {_shown(row, self._stored.schema.live())}"
        columns, row = self._schema.columns, self._widen(row)
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
            if not spelled:
                continue
            counts = _counted(self._stored, key, key_of, spelled, deltas)
            for value, count in counts.items():
                if count > 1:
                    yield f"{self._named(key)} has {_shown(self._widen(spelled[value]), key)} in {count} rows"

    def _several(self, rows: int) -> Iterator[str]:
        """The keys that all of so many rows would have one value of."""
        if rows > 1:
            for key in self._lone:
                width = len(self._schema.columns) - len(self._padding)
                if min(key) < width:
                    yield f"{self._named(key)} has a column that is there and one that comes: ADD COLUMN first"
                else:
                    value = _shown(self._padding, [at - width for at in key])
                    yield f"{self._named(key)} has {value} in {rows} rows"

    def _named(self, key: Columns) -> str:
        names = ", ".join(f'"{self._schema.columns[at].name}"' for at in key)
        return f"{'primary key' if key == self._schema.shown_key else 'unique key'} {names}"


def _shown(row: Row, places: Iterable[int]) -> str:
    text = ", ".join("NULL" if row[at] is None else repr(row[at]) for at in places)
    return f"({text if len(text) <= 100 else text[:99] + '…'})"
