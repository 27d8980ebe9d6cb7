"""Writes to a base table: constraints are checked and deltas computed in the step that takes the write.

An operation is applied whole or not at all: changes gather in a :class:`TableChange` over the stored table, and nothing
is staged until the last row has passed. The error names the row (from 1) and the columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from domains.engine.writing.guarding import Guarding
from domains.engine.writing.written import Assigning, WrittenTable
from domains.errors import ConstraintViolation, RowsChanged, RowsRefused, TypeViolation
from domains.language.types import Check, Delta, Row, collations_of
from domains.plan.deltas import Entry, add_row, key_function
from domains.plan.graph import Columns
from domains.plan.packets import Amend, Delete, Guards, Insert, Operation, Update
from domains.plan.sharding import shard_of
from domains.store.selecting import as_seen, selected

TableDeltas = dict[WrittenTable, list[Delta]]
"""The changes that one commit makes to several tables of one shard; those of each are consolidated, and not empty.

Who commits it stages all of it, commits once, and forwards in **one pass that begins with all of it**. Operators look
base tables up as they are after the commit (L', R'), and a join of two tables that have changed emits
ΔL⋈R' + L'⋈ΔR − ΔL⋈ΔR. A pass for each table would emit ΔL⋈R' and then L'⋈ΔR, which is ΔL⋈ΔR too much: a joined row that
both bring would be there twice, and one that both take (weight −1 · −1) would stay.
"""


@dataclass(frozen=True, slots=True)
class Changes:
    """What an operation comes to."""

    tables: TableDeltas
    affected: int
    """Rows, as MySQL counts them."""
    first: int | None = None
    """The first AUTO_INCREMENT value that was generated for a row which was inserted."""
    returned: tuple[Row, ...] = ()
    matched: int = 0


NOTHING = Changes({}, 0)
"""The result of an operation that changes nothing."""


class TableChange:
    """A table as it will be after the operation, while that is being worked out."""

    def __init__(self, written: WrittenTable, guards: Guards = ()) -> None:
        self.table = written.stored
        self.shard = written.shard
        self.shards = written.shards
        self.schema = written.schema
        self.deltas: Entry = {}
        self.matched = 0
        self.unique = written.unique
        self.returned: list[Row] = []
        self._now: dict[tuple[Columns, Row], Row | None] = {}
        self.numbered = written.numbered
        self._key_of = written.key_of
        self._keyed = written.keyed
        self._required = written.required
        self._checks = written.checks
        self.written = written
        self.moved: dict[Row, Row | None] | None = {} if written.children else None
        """Rows that foreign keys may name, and what became of each; None: nobody asks."""
        self._began: dict[Row, Row] = {}
        self.orphan: Callable[[Row], ConstraintViolation | None] | None = None
        """What refuses a row whose foreign keys name none, where that is asked row by row."""
        guard = next((each for each in guards if each.table == written.schema.name), None) if guards else None
        self.guarding = None if guard is None else Guarding(guard, written.schema.title)
        """The row policies of whom they apply to."""

    def find(self, columns: Columns, key: Row) -> Row | None:
        """The row with this unique key, as of now within the operation. NULL in a key is unique among NULLs."""
        if None in key:
            return None
        if (columns, key) not in self._now:
            rows = self.table.find(columns, key)
            self._now[columns, key] = rows[0][0] if rows else None
        return self._now[columns, key]

    def prefetch(self, rows: Sequence[Row]) -> bool:
        """Look the unique keys of many rows up at once; whether any is there, or in two of the rows."""
        met = False
        for columns in self.unique:
            keys = [key for key in map(self._key_of[columns], rows) if None not in key]
            there = self.table.find_many(columns, keys)
            met = met or any(there) or len(set(keys)) < len(keys)
            for key, found in zip(keys, there, strict=True):
                self._now[columns, key] = found[0][0] if found else None
        return met

    def look_up(self, columns: Columns, keys: Iterable[Row]) -> None:
        """Many unique keys (no NULLs in them) at once, for :meth:`find`."""
        wanted = [key for key in keys if (columns, key) not in self._now]
        for key, found in zip(wanted, self.table.find_many(columns, wanted), strict=True):
            self._now[columns, key] = found[0][0] if found else None

    def insert(self, row: Row) -> None:
        self._place(row, row)
        add_row(self.deltas, row, 1)

    def keeps_keys(self, assigning: Assigning) -> bool:
        """Whether no unique key is set: then none can be in the way of :meth:`amend`."""
        return self._keyed.isdisjoint(assigning.positions)

    def amend(self, old: Row, new: Row, number: int, weight: int = 1) -> None:
        """Put ``new`` in place of ``old``, whose unique keys it has."""
        self.require(new, number)
        self._place(new, new)
        add_row(self.deltas, old, -weight)
        add_row(self.deltas, new, weight)

    def _place(self, row: Row, there: Row | None) -> None:
        """Have the row's unique keys find ``there`` from now on."""
        for columns, key_of in self._key_of.items():
            key = key_of(row)
            if None not in key:
                self._now[columns, key] = there

    def insert_new(self, rows: Sequence[Row]) -> None:
        """Rows that no key can refuse, in one go: 0.1 µs each where the way past the keys takes 1."""
        if self._checks or (self._required and any(None in row for row in rows)):
            for number, row in enumerate(rows, 1):
                self.require(row, number)
        assert not self.deltas, "they come first and alone"
        self.deltas = dict(Counter(rows))

    def remove(self, row: Row, weight: int = 1) -> None:
        self._place(row, None)
        add_row(self.deltas, row, -weight)

    def put(self, row: Row, number: int, weight: int) -> None:
        """Insert the row in the place of one that was removed."""
        self.require(row, number)
        for _ in range(weight):
            found = self.conflict(row)
            if found is not None:
                raise self.refuse(row, found[0], number)
            self.insert(row)

    def delete(self, row: Row, weight: int = 1) -> None:
        """Remove the row, and put none in its place."""
        self.remove(row, weight)
        if self.moved is not None:
            self.moved[row] = None

    def give_way(self, row: Row) -> None:
        """Another row replaces it."""
        if self.guarding is not None:
            self.guarding.check_replaced(row)
        self.delete(row)

    def move(self, old: Row, new: Row) -> None:
        """The row is changed, perhaps not for the first time in the statement."""
        if self.moved is not None:
            began = self._began.pop(old, old)
            self.moved[began] = new
            self._began[new] = began

    def having(self, columns: Columns, keys: Collection[Row]) -> Entry:
        """The rows with one of these keys (no NULLs in them), as of now within the operation."""
        found: Entry = {row: n for rows in self.table.find_many(columns, list(keys)) for row, n in rows}
        key_of = key_function(columns, collations_of(self.schema.columns))
        for row, weight in self.deltas.items():
            if key_of(row) in keys:
                add_row(found, row, weight)
        return found

    def conflict(self, row: Row) -> tuple[Columns, Row] | None:
        """The first unique key that the row would double, and the row that has it."""
        for columns, key_of in self._key_of.items():
            there = self.find(columns, key_of(row))
            if there is not None:
                return columns, there
        return None

    def require(self, row: Row, number: int) -> None:
        for position in self._required:
            if row[position] is None:
                name = self.schema.columns[position].name
                raise ConstraintViolation(
                    f'row {number}: column "{name}" of table "{self.schema.title}" must not be NULL',
                    hint="give it a value, or a DEFAULT in the table",
                )
        check = self.broken(row)
        if check is not None:
            raise ConstraintViolation(
                f'row {number}: check "{check.name}" of table "{self.schema.title}" does not hold: '
                f"{check.condition.sql}",
                hint="give values that it is true for",
            )

    def broken(self, row: Row) -> Check | None:
        """The first CHECK that does not hold for the row."""
        return next((check for check, condition in self._checks if condition(row) == 0), None)

    def unbroken(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """The rows that no CHECK refuses."""
        return tuple([row for row in rows if self.broken(row) is None]) if self._checks else tuple(rows)

    def finished(self) -> list[Delta]:
        """The deltas, once nothing more comes."""
        self._check_shard()
        deltas = list(self.deltas.items())
        misfit = self.written.types.misfit([row for row, weight in deltas if weight > 0])  # Whoever sent the rows.
        if misfit is not None:
            raise TypeViolation(f'table "{self.schema.title}": {misfit[1]}')
        return deltas

    def _check_shard(self) -> None:
        """Whatever the operation is, no row may leave its shard: another has its place in the unique keys."""
        if self.shards == 1:
            return
        column = self.schema.shard_column
        collation = self.schema.columns[column].type.collation
        for row, weight in self.deltas.items():
            if weight > 0 and shard_of(row[column], self.shards, collation) != self.shard:
                raise ConstraintViolation(
                    f'column "{self.schema.columns[column].name}" of table "{self.schema.title}" decides where a row '
                    f"is stored, and {row[column]!r} belongs elsewhere",
                    hint="DELETE the row and INSERT it again with the new value",
                )

    def refuse(self, row: Row, columns: Columns, number: int) -> ConstraintViolation:
        names = ", ".join(f'"{self.schema.columns[c].name}"' for c in columns)
        values = ", ".join(repr(row[c]) for c in columns)
        kind = "primary key" if columns == self.schema.shown_key else "unique key"
        return ConstraintViolation(
            f'row {number}: {kind} {names} of table "{self.schema.title}" has the value {values} already',
            hint="use INSERT IGNORE, REPLACE or ON DUPLICATE KEY UPDATE where that is meant",
        )


def change_table(table: WrittenTable, operation: Operation) -> Changes:
    """Work an operation out that changes no other table.

    Raises ConstraintViolation, TypeViolation or Forbidden; then nothing has changed.
    """
    change = TableChange(table, operation.guards)
    affected, first = perform(change, operation)
    deltas = change.finished()
    return Changes({table: deltas} if deltas else {}, affected, first, tuple(change.returned), change.matched)


def perform(change: TableChange, operation: Operation) -> tuple[int, int | None]:
    """Gather what the operation changes; how many rows it affects, and the first AUTO_INCREMENT value."""
    if change.guarding is not None:
        operation = change.guarding.narrowed(operation)
    match operation:
        case Insert():
            affected, first = _insert(change, operation)
        case Update():
            affected, first = _update(change, operation), None
        case Delete():
            affected, first = _delete(change, operation), None
        case Amend():
            affected, first = _amend(change, operation), None
        case _:
            assert_never(operation)
    if change.guarding is not None and change.returned:
        change.guarding.check_told(change.returned)
    _count_past(change, operation)
    return affected, first


def _insert(change: TableChange, operation: Insert) -> tuple[int, int | None]:
    width = len(change.schema.columns)
    if not {width}.issuperset(map(len, operation.rows)):
        raise TypeViolation(
            f'table "{change.schema.name}" has {width} columns, and a row another number of values', hint="make it anew"
        )
    rows, generated = operation.rows, range(0)
    if change.numbered is not None:
        rows, generated = change.written.number(rows, change.numbered)
    generate = change.written.generate
    if generate is not None:
        rows = tuple(map(generate, rows))
    guarding = change.guarding
    if guarding is not None:
        guarding.check_given(rows)
    if operation.on_conflict == "ignore":
        rows = change.unbroken(rows)
    if operation.on_conflict == "list":
        return _insert_all(change, rows), _first(change, rows, generated)
    if not change.unique:
        if change.orphan is not None:
            rows = tuple([row for row in rows if change.orphan(row) is None])
        change.insert_new(rows)
        if operation.returning:
            change.returned += rows
        return len(rows), _first(change, rows, generated)
    if not change.prefetch(rows) and change.moved is None and change.orphan is None:
        change.insert_new(rows)
        if operation.returning:
            change.returned += rows
        return len(rows), _first(change, rows, generated)
    assigning: Assigning | None = None
    affected = 0
    inserted: list[Row] = []
    returning = operation.returning
    for number, row in enumerate(rows, 1):
        change.require(row, number)
        found = change.conflict(row)
        stored = row
        if found is None:
            if change.orphan is not None and change.orphan(row) is not None:
                continue
            change.insert(row)
            inserted.append(row)
            affected += 1
        elif operation.on_conflict == "error":
            raise change.refuse(row, found[0], number)
        elif operation.on_conflict == "ignore":
            continue
        elif operation.on_conflict == "replace":
            affected += 1
            if guarding is not None:
                guarding.check_replaced(found[1])
            if found != (change.unique[-1], row) or change.moved is not None:
                while (found := change.conflict(row)) is not None:
                    change.give_way(found[1])
                    affected += 1
                change.insert(row)
                inserted.append(row)
            # MySQL changes a row that it meets by the last key in place: nothing goes, nothing comes.
        else:
            if guarding is not None:
                guarding.check_met(found[1])
            assigning = assigning or Assigning(change.written, operation.assignments, operation.stamps)
            stored = assigning(found[1], (*row, *operation.beside[number - 1]) if operation.beside else row)
            affected += _update_instead(change, found[1], stored, assigning, number)
        if returning:
            change.returned.append(stored)
    return affected, _first(change, inserted, generated)


def _first(change: TableChange, inserted: Iterable[Row], generated: range) -> int | None:
    """The first generated value that a row was inserted with, as MySQL's LAST_INSERT_ID: a row that INSERT IGNORE left
    out, or that ON DUPLICATE KEY UPDATE turned into a change of another, used its value up and does not have it."""
    column = change.numbered
    if not generated or column is None:
        return None
    return next((value for row in inserted if isinstance(value := row[column], int) and value in generated), None)


def _insert_all(change: TableChange, rows: tuple[Row, ...]) -> int:
    """:raises RowsRefused: with every row that cannot be inserted beside those before it that can."""
    refused: list[tuple[int, str]] = []
    change.prefetch(rows)
    for number, row in enumerate(rows, 1):
        try:
            change.require(row, number)
            found = change.conflict(row)
            if found is not None:
                raise change.refuse(row, found[0], number)
            if change.orphan is not None and (error := change.orphan(row)) is not None:
                raise error
        except ConstraintViolation as error:
            refused.append((number, error.message.removeprefix(f"row {number}: ")))
        else:
            if change.unique:
                change.insert(row)
    if refused:
        raise RowsRefused.of(tuple(refused))
    if not change.unique:
        change.insert_new(rows)
    return len(rows)


def _count_past(change: TableChange, operation: Operation) -> None:
    """No value that a row has is given out later, also where SET put it there: ON DUPLICATE KEY UPDATE would take
    that row for the one that it was to insert."""
    if isinstance(operation, Delete) or not operation.assignments:
        return
    column = change.numbered
    if column is not None and any(position == column for position, _ in operation.assignments):
        set_to = [
            value for row, weight in change.deltas.items() if weight > 0 and isinstance(value := row[column], int)
        ]
        change.table.raise_auto_increment(max(set_to, default=0))


def _update_instead(change: TableChange, old: Row, new: Row, assigning: Assigning, number: int) -> int:
    """ON DUPLICATE KEY UPDATE."""
    if new == old:
        return 0
    if change.guarding is not None:
        change.guarding.check_changed((new,))
    change.move(old, new)
    if change.keeps_keys(assigning):
        change.amend(old, new, number)
    else:
        _replace(change, old, new, number)
    return 2


def _replace(change: TableChange, old: Row, new: Row, number: int, weight: int = 1) -> None:
    change.remove(old, weight)
    change.put(new, number, weight)


def _update(change: TableChange, operation: Update) -> int:
    rows = selected(change.table, operation)
    if not rows:
        return 0
    change.matched = sum([weight for _, weight in rows])
    assigning = Assigning(change.written, operation.assignments, operation.stamps)
    changed = [(row, new, weight) for row, weight in rows if (new := assigning(row, ())) != row]
    if operation.ignore:
        key_of = key_function(change.schema.primary_key, collations_of(change.schema.columns))
        return _replace_each(change, sorted(changed, key=lambda each: key_of(each[0])))
    return _replace_all(change, changed, keeps_keys=change.keeps_keys(assigning))


def _replace_each(change: TableChange, changed: Sequence[tuple[Row, Row, int]]) -> int:
    """UPDATE IGNORE: one row after the other, each beside those before it as they have become. How many were changed.

    InnoDB takes rows by their primary key where no index serves it better; so are they taken here.
    """
    if change.guarding is not None:
        change.guarding.check_changed(new for _, new, _ in changed)
    affected = 0
    for number, (old, new, weight) in enumerate(changed, 1):
        if change.broken(new) is not None:
            continue
        change.require(new, number)
        for _ in range(weight):
            change.remove(old)
            if change.conflict(new) is not None:
                change.insert(old)
                break
            change.insert(new)
            change.move(old, new)
            affected += 1
    return affected


def _replace_all(change: TableChange, changed: Sequence[tuple[Row, Row, int]], *, keeps_keys: bool) -> int:
    """(old row, new row, how many) of each; how many rows that are.

    All old rows go before the new ones come, so that ``SET id = id + 1`` does not meet itself.
    """
    if change.guarding is not None:
        change.guarding.check_changed(new for _, new, _ in changed)
    if change.moved is not None:
        change.moved.update([(old, new) for old, new, _ in changed])
    if keeps_keys:
        for number, (old, new, weight) in enumerate(changed, 1):
            change.amend(old, new, number, weight)
        return sum([weight for _, _, weight in changed])
    for old, _, weight in changed:
        change.remove(old, weight)
    for number, (_, new, weight) in enumerate(changed, 1):
        change.put(new, number, weight)
    return sum([weight for _, _, weight in changed])


def _delete(change: TableChange, operation: Delete) -> int:
    chosen = selected(change.table, operation)
    if change.moved is None:
        change.deltas = {row: -weight for row, weight in chosen}
    if len(change.deltas) < len(
        chosen
    ):  # Equal rows that are stored as different bytes, as 0.0 and -0.0 are; or named.
        change.deltas = {}
        for row, weight in chosen:
            change.delete(row, weight)
    if operation.returning:
        change.returned += [row for row, weight in chosen for _ in range(weight)]
    return sum([weight for _, weight in chosen])


def _amend(change: TableChange, operation: Amend) -> int:
    """:raises RowsChanged: a row is not there as it was seen."""
    width = len(change.schema.columns)
    found = as_seen(change.table, operation) if all(len(row) == width for row in operation.rows) else None
    if found is None:
        told = f'rows of table "{change.schema.name}" that were chosen were changed before they were written'
        raise RowsChanged(told, hint="try again")
    if change.guarding is not None:
        found = change.guarding.let(found, deletes=operation.assignments is None)
    if operation.assignments is None:
        for row, weight, _ in found:
            change.delete(row, weight)
            if operation.returning:
                change.returned += [row] * weight
        return sum([weight for _, weight, _ in found])
    change.matched = sum([weight for _, weight, _ in found])
    assigning = Assigning(change.written, operation.assignments, operation.stamps)
    changed = [(row, new, weight) for row, weight, extra in found if (new := assigning(row, extra)) != row]
    if operation.ignore:
        return _replace_each(change, changed)
    return _replace_all(change, changed, keeps_keys=change.keeps_keys(assigning))
