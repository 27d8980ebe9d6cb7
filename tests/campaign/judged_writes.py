"""What becomes of rows that are written, by MySQL's rules: keys, checks, generated columns, foreign keys.

All of it is decided in Python; expressions are SQLite's to evaluate. One write is thought through over copies of the
tables that it reaches, so that a refused one has changed nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tests.campaign.functions import my_dec
from tests.campaign.kinds import SECOND, Kind, Value
from tests.campaign.schema import Column, Reference, Table
from tests.campaign.statements import Assignment, Delete, Insert, Joined, Update, Write
from tests.campaign.terms import Term

Stored = tuple[Any, ...]
Rows = dict[int, Stored]
"""Row id → values in the order of the table's columns."""
Changed = dict[str, Rows]
"""All rows of the tables that a write changes, as it leaves them."""


class Verdict(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    """A constraint or a type is violated: nothing is changed."""
    OPEN = "open"
    """Right in the end, but keys collide on the way: MySQL's answer depends on the order of the rows."""
    UNCLEAR = "unclear"
    """It depends on what is checked first, as where MySQL checks foreign keys after each row: it is not sent."""


class Unclear(Exception):
    pass


class Refused(Exception):
    pass


# --- one row --------------------------------------------------------------------------------------------------------


def plain(value: Value) -> Any:
    """The value as SQLite holds it."""
    if isinstance(value, timedelta):
        return value // SECOND
    return float(value) if isinstance(value, Decimal) else value


def stored(column: Column, value: Any, table: Table) -> Any:
    """The value as the column keeps it, or Refused."""
    value = plain(value)
    if value is None:
        if not column.nullable or column.name in table.primary_key:
            raise Refused
        return None
    match column.type.kind:
        case Kind.INT:
            if not isinstance(value, int) or (column.declared != "BIGINT" and abs(value) > 2**31 - 1):
                raise Refused
        case Kind.DEC:
            if isinstance(value, str):
                raise Refused
            value = my_dec(value, column.type.scale)
            if abs(value) >= 10**column.whole_digits:
                raise Refused
        case Kind.DBL:
            if isinstance(value, str):
                raise Refused
            value = float(value)
        case Kind.TXT if column.type.members:
            return _listed(column, value)
        case Kind.TXT:
            if len(value) > (column.width or 65_535):
                raise Refused
        case Kind.DATE:
            try:
                date.fromisoformat(value)
            except ValueError:
                raise Refused from None
        case Kind.TIME:
            if isinstance(value, str):
                raise Refused
        case Kind.JSON:
            if value == NO_DOCUMENT:
                raise Refused
    return value


NO_DOCUMENT = "no document"


def _listed(column: Column, text: str) -> str:
    """A member of an ENUM, or members of a SET in their order; else a text that is a number is a place, or bits."""
    members = column.type.members
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    if column.type.is_set:
        chosen = set(text.split(",")) if text else set()
        if not chosen <= set(members):
            if not text.isdecimal() or number >= 1 << len(members):
                raise Refused
            chosen = {member for place, member in enumerate(members) if number >> place & 1}
        return ",".join(member for member in members if member in chosen)
    if text in members:
        return text
    if 1 <= number <= len(members):
        return members[number - 1]
    raise Refused


def completed(connection: sqlite3.Connection, table: Table, given: Mapping[str, Any]) -> Stored:
    """A whole row: what is given, defaults, and what is computed of both. Raises Refused."""
    values: dict[str, Any] = {c.name: None for c in table.columns}
    for c in table.columns:
        if c.generated is None:
            values[c.name] = stored(c, given.get(c.name, c.default), table)
    for c in table.columns:
        if c.generated is not None:
            (found,) = evaluated(connection, table, [c.generated.judge()], tuple(values.values()))
            values[c.name] = stored(c, found, table)
    return tuple(values.values())


def evaluated(connection: sqlite3.Connection, table: Table, texts: Iterable[str], row: Stored) -> Stored:
    """Expressions over one row."""
    slots = ", ".join(f"? AS {name}" for name in table.names)
    found: Stored = connection.execute(
        f"SELECT {', '.join(texts)} FROM (SELECT {slots}) AS {table.name}", row
    ).fetchone()
    return found


def meets(connection: sqlite3.Connection, table: Table, row: Stored) -> bool:
    """Whether no check is false of it."""
    if not table.checks:
        return True
    found = evaluated(connection, table, [f"({term.judge()})" for _, term in table.checks], row)
    return all(value is None or value for value in found)


# --- a statement ----------------------------------------------------------------------------------------------------


LEVELS = 12
"""A cascade of nearly as many as MySQL allows is not sent."""


class Consideration:
    """One write, and the tables as it leaves them."""

    def __init__(self, connection: sqlite3.Connection, tables: Mapping[str, Table]) -> None:
        self.connection = connection
        self.tables = tables
        self._before: Changed = {}
        self._now: Changed = {}
        self._kept: list[tuple[str, Reference, Stored]] = []
        """Keys that no row of the table may name when all is done."""
        self._at_once = False
        """RESTRICT is asked when a row goes, and not when all is done."""
        self._naming: set[tuple[str, int]] = set()
        """Rows that came or changed, whose parents are to be there when all is done."""

    def consider(self, write: Write) -> tuple[Verdict, Changed]:
        table = self.tables[write.table]
        verdict = Verdict.DONE
        self._at_once = isinstance(write, Insert)  # The row that REPLACE puts in may name itself.
        try:
            match write:
                case Insert():
                    self._insert(table, write)
                case Delete():
                    self._delete(table, write)
                case Joined():
                    self._joined(write)
                case Update(ignore=True):
                    self._update_one_by_one(table, write)
                case Update():
                    verdict = self._update(table, write)
            self._require_references()
        except Refused:
            return Verdict.REFUSED, {}
        except Unclear:
            return Verdict.UNCLEAR, {}
        return verdict, {name: rows for name, rows in self._now.items() if rows != self._before[name]}

    def _rows(self, name: str) -> Rows:
        if name not in self._now:
            names = ", ".join(("rowid", *self.tables[name].names))
            self._before[name] = {row[0]: row[1:] for row in self.connection.execute(f"SELECT {names} FROM {name}")}
            self._now[name] = dict(self._before[name])
        return self._now[name]

    def _insert(self, table: Table, insert: Insert) -> None:
        rows = self._rows(table.name)
        names_itself = any(reference.parent == table.name for reference in table.references)
        if names_itself and len(insert.rows) > 1 and insert.mode:
            raise Unclear
        for values in insert.rows:
            try:
                row = completed(self.connection, table, dict(zip(insert.columns, values, strict=True)))
            except Refused:
                if insert.mode == "ignore" and table.checks:
                    raise Unclear from None  # A check may leave out what does not fit.
                raise
            if not meets(self.connection, table, row):
                if insert.mode == "ignore":
                    continue
                raise Refused
            if insert.mode == "ignore" and not self.names_some(table, row):
                continue
            holders = [id for key in table.keys for id in _holders(table, rows, key, row)]
            if not holders:
                self._add(table, row)
            elif insert.mode == "":
                raise Refused
            elif insert.mode == "replace":
                for id in holders:
                    self._remove(table, id)
                self._add(table, row)
            elif insert.mode == "update":
                new = self._assigned(table, insert.assignments, rows[holders[0]], row)
                self._change(table, holders[0], new, frozenset((table.name,)))
                _require_unique(table, rows)

    def _delete(self, table: Table, delete: Delete) -> None:
        for id in self.matching(delete):
            self._remove(table, id)

    def _joined(self, write: Joined) -> None:
        ids = ", ".join(f"{name}.rowid" for name in write.written)
        values = "".join(f", {term.judge()}" for *_, term in write.assignments)
        text = f"SELECT {ids}{values} FROM {write.tables[0]} JOIN {write.tables[1]} ON {write.on.judge()}"
        if write.where is not None:
            text += f" WHERE {write.where.judge()}"
        found = self.connection.execute(text).fetchall()
        written = [self.tables[name] for name in write.written]
        for place, table in enumerate(written):
            chosen = {row[place]: row[len(written) :] for row in found}
            if not write.assignments:
                for id in chosen:
                    self._remove(table, id)
                continue
            if table.references or any(
                each.parent == table.name for t in self.tables.values() for each in t.references
            ):
                raise Unclear
            own = [(at, name, term) for at, (of, name, term) in enumerate(write.assignments) if of == table.name]
            rows = self._rows(table.name)
            for id, results in chosen.items():
                assigned = [(name, term) for _, name, term in own]
                rows[id] = self._changed(table, assigned, rows[id], tuple(results[at] for at, *_ in own))
                if not meets(self.connection, table, rows[id]):
                    raise Refused
            _require_unique(table, rows)

    # --- foreign keys ---------------------------------------------------------------------------------------------

    def _add(self, table: Table, row: Stored) -> None:
        rows = self._rows(table.name)
        id = max((*rows, *self._before[table.name]), default=0) + 1
        rows[id] = row
        self._naming.add((table.name, id))

    def _remove(self, table: Table, id: int, changed: frozenset[str] = frozenset(), level: int = 0) -> None:
        """The row, and what follows from that. ``changed`` are the tables that were updated on the way."""
        row = self._rows(table.name).pop(id, None)
        if row is None:
            return
        for child, reference, key in self._named(table, row):
            ids = self._children(child, reference, key, level)
            match reference.on_delete:
                case "CASCADE":
                    for each in ids:
                        self._remove(child, each, changed, level + 1)
                case "SET NULL":
                    self._repoint(child, ids, reference, (None,) * len(key), changed, level)
                case _ if self._at_once:
                    if ids:
                        raise Refused
                case _:
                    self._kept.append((child.name, reference, key))

    def _change(self, table: Table, id: int, new: Stored, changed: frozenset[str], level: int = 0) -> None:
        """``changed`` has the table already."""
        rows = self._rows(table.name)
        old, rows[id] = rows[id], new
        self._naming.add((table.name, id))
        for child, reference, key in self._named(table, old):
            now = _values(table, new, reference.key)
            if now == key:
                continue
            ids = self._children(child, reference, key, level)
            if child.name == table.name and id in ids:
                raise Unclear  # It names itself.
            match reference.on_update:
                case "CASCADE":
                    self._repoint(child, ids, reference, now, changed, level)
                case "SET NULL":
                    self._repoint(child, ids, reference, (None,) * len(key), changed, level)
                case _ if self._at_once:
                    if ids:
                        raise Refused
                case _:
                    self._kept.append((child.name, reference, key))

    def _repoint(
        self, child: Table, ids: list[int], reference: Reference, key: Stored, changed: frozenset[str], level: int
    ) -> None:
        if ids and child.name in changed:
            raise Refused
        rows = self._rows(child.name)
        for id in ids:
            values = dict(zip(child.names, rows[id], strict=True)) | dict(zip(reference.columns, key, strict=True))
            new = completed(self.connection, child, values)
            if not meets(self.connection, child, new):
                raise Refused
            self._change(child, id, new, changed | {child.name}, level + 1)
        _require_unique(child, rows)

    def _named(self, table: Table, row: Stored) -> list[tuple[Table, Reference, Stored]]:
        """Foreign keys that may name the row, and the key by which they do."""
        return [
            (child, reference, key)
            for child in self.tables.values()
            for reference in child.references
            if reference.parent == table.name and None not in (key := _values(table, row, reference.key))
        ]

    def _children(self, child: Table, reference: Reference, key: Stored, level: int) -> list[int]:
        ids = [id for id, row in self._rows(child.name).items() if _values(child, row, reference.columns) == key]
        if ids and level > LEVELS:
            raise Unclear
        return ids

    def names_some(self, table: Table, row: Stored) -> bool:
        """Whether all rows are there that a new row names."""
        for reference in table.references:
            key = _values(table, row, reference.columns)
            if None in key or (reference.parent == table.name and _values(table, row, reference.key) == key):
                continue
            parent = self.tables[reference.parent]
            if all(_values(parent, each, reference.key) != key for each in self._rows(parent.name).values()):
                return False
        return True

    def _require_references(self) -> None:
        for name, reference, key in self._kept:
            if any(_values(self.tables[name], row, reference.columns) == key for row in self._rows(name).values()):
                raise Refused
        for name, id in self._naming:
            row = self._rows(name).get(id)
            if row is not None and not self.names_some(self.tables[name], row):
                raise Refused

    # --- assignments ----------------------------------------------------------------------------------------------

    def _assigned(self, table: Table, assignments: Iterable[Assignment], old: Stored, new: Stored) -> Stored:
        """ON DUPLICATE KEY UPDATE."""
        slots = ", ".join(f"? AS {name}" for name in table.names)
        shown = ", ".join(term.judge() for _, term in assignments)
        text = f"SELECT {shown} FROM (SELECT {slots}) AS {table.name}, (SELECT {slots}) AS inserted"
        results = next(self.connection.execute(text, (*old, *new)))
        changed = self._changed(table, assignments, old, results)
        if not meets(self.connection, table, changed):
            raise Refused
        return changed

    def _changed(self, table: Table, assignments: Iterable[Assignment], old: Stored, results: Stored) -> Stored:
        changed = dict(zip(table.names, old, strict=True))
        changed |= {name: value for (name, _), value in zip(assignments, results, strict=True)}
        return completed(self.connection, table, changed)

    def _update(self, table: Table, update: Update) -> Verdict:
        results = self.matching(update, tuple(term for _, term in update.assignments))
        rows = self._rows(table.name)
        before = dict(rows)
        new = {id: self._changed(table, update.assignments, before[id], values) for id, values in results.items()}
        if not all(meets(self.connection, table, row) for row in new.values()):
            raise Refused
        if len(new) > 1 and any(
            _values(table, row, reference.key) != _values(table, before[id], reference.key)
            for child in self.tables.values()
            for reference in child.references
            if reference.parent == table.name
            for id, row in new.items()
        ):
            raise Unclear
        for id, row in new.items():
            if row != before[id]:
                self._change(table, id, row, frozenset((table.name,)))
        _require_unique(table, rows)
        for key in table.keys:
            positions = [table.names.index(name) for name in key]
            for id in results:
                now = [rows[id][p] for p in positions]
                others = (row for other, row in before.items() if other != id and other in results)
                if None not in now and any([row[p] for p in positions] == now for row in others):
                    return Verdict.OPEN
        return Verdict.DONE

    def _update_one_by_one(self, table: Table, update: Update) -> None:
        """UPDATE IGNORE, in the order of the primary key."""
        results = self.matching(update, tuple(term for _, term in update.assignments))
        rows = self._rows(table.name)
        new = {id: self._changed(table, update.assignments, rows[id], values) for id, values in results.items()}
        places = [(table.names.index(name), table.column(name)) for name in table.primary_key]
        for id in sorted(new, key=lambda id: [_sorted_by(column, rows[id][place]) for place, column in places]):
            others = {other: row for other, row in rows.items() if other != id}
            taken = any(_holders(table, others, key, new[id]) for key in table.keys)
            if not taken and meets(self.connection, table, new[id]):
                rows[id] = new[id]

    def matching(self, write: Update | Delete, terms: Sequence[Term] = ()) -> Rows:
        """Of the rows that WHERE chooses the values of terms."""
        shown = ", ".join(["rowid", *(term.judge() for term in terms)])
        text = f"SELECT {shown} FROM {write.table}"
        if write.where is not None:
            text += f" WHERE {write.where.judge()}"
        return {row[0]: row[1:] for row in self.connection.execute(text)}


def _sorted_by(column: Column, value: Any) -> Any:
    if not column.type.members:
        return value
    return [member in value.split(",") for member in reversed(column.type.members)]


def _values(table: Table, row: Stored, names: Sequence[str]) -> Stored:
    return tuple(row[table.names.index(name)] for name in names)


def _holders(table: Table, rows: Rows, key: tuple[str, ...], row: Stored) -> list[int]:
    positions = [table.names.index(name) for name in key]
    wanted = [row[p] for p in positions]
    if None in wanted:
        return []
    return [id for id, other in rows.items() if [other[p] for p in positions] == wanted]


def _require_unique(table: Table, rows: Rows) -> None:
    for key in table.keys:
        if any(len(_holders(table, rows, key, row)) > 1 for row in rows.values()):
            raise Refused
