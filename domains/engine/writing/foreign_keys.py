"""Foreign keys: what a write of one table means for others of the same shard.

An operation is worked out on its own table, or on each that UPDATE and DELETE write to; then its consequences are,
level by level; and then what must hold is checked, when the whole statement is done, as the SQL standard has it (MySQL
checks after each row, and so refuses some statements that change several rows of a table which names itself)::

    operation ──► rows that went, or moved to another key
                   │  ON DELETE, ON UPDATE: CASCADE, SET NULL            at most 15 levels, as in MySQL
                   ▼
                  rows of children: removed or changed ──► their children …
    at the end:   no RESTRICTed row is left that names what went or moved     (MySQL's error 1451)
                  every new row names a row that is there                     (MySQL's error 1452)

All of it is one ``TableDeltas`` (``write.py``): one write batch with a log entry for each table, and one
pass. A replayed log therefore cascades nothing: what cascaded is in it. Who writes is one thread, and parent and child
are in its shard, so that no insert of a child and no removal of its parent can pass each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from domains.engine.writing.write import Changes, TableChange, perform
from domains.engine.writing.written import KeyReference, WrittenTables
from domains.errors import ConstraintViolation
from domains.language.description import literal
from domains.language.types import Reaction, Row, TableSchema
from domains.plan.deltas import key_function
from domains.plan.graph import Columns
from domains.plan.packets import Amend, Guards, Insert, Operation

DEEPEST = 15
"""Levels that a cascade may have, as in MySQL's InnoDB: whoever has more is going round in a circle."""

_REFUSING = (Reaction.NO_ACTION, Reaction.RESTRICT)


@dataclass(frozen=True, slots=True)
class _Moved:
    """Rows of one table that went or changed, and how it came to that."""

    change: TableChange
    rows: Mapping[Row, Row | None]
    """What became of each."""
    updated: frozenset[str]
    """Tables whose rows were changed on the way here. None of them is changed again, as in MySQL: it is refused."""
    level: int = 0


@dataclass(slots=True)
class _Together:
    """The tables of a shard as they will be after an operation."""

    tables: WrittenTables
    guards: Guards
    changes: dict[str, TableChange] = field(default_factory=dict)
    kept: list[tuple[KeyReference, frozenset[Row]]] = field(default_factory=list)
    """Keys that no row may name any more when all is done."""
    replaced: frozenset[Row] = frozenset()
    """Rows that REPLACE has put in: they came after what they replace had gone."""

    def of(self, name: str) -> TableChange:
        if name not in self.changes:
            self.changes[name] = TableChange(self.tables.known(name), self.guards)
        return self.changes[name]


def change_related(tables: WrittenTables, operation: Operation) -> Changes:
    """Work an operation out with all that follows from it.

    :raises ConstraintViolation: a foreign key, or another constraint of a table that it reaches, does not allow it.
    :raises Forbidden: a policy of a table that it reaches does not.
    """
    together = _Together(tables, operation.guards)
    change = together.of(operation.table)
    if isinstance(operation, Insert) and operation.on_conflict in ("ignore", "list") and not operation.unchecked:
        _ask_row_by_row(together, change, operation)
    affected, first = perform(change, operation)
    written = [change]
    for also in operation.also if isinstance(operation, Amend) else ():
        written.append(together.of(also.table))
        affected += perform(written[-1], also)[0]
    if change.moved and isinstance(operation, Insert) and operation.on_conflict == "replace":
        together.replaced = frozenset(row for row, weight in change.deltas.items() if weight > 0)
    moved = [(each, each.moved) for each in written if each.moved]
    updated = frozenset(each.schema.name for each, rows in moved if any(new is not None for new in rows.values()))
    pending = deque(_Moved(each, rows, updated) for each, rows in moved)
    while pending and not operation.unchecked:
        _react(together, pending.popleft(), pending)
    _check_kept(together)
    for each in () if operation.unchecked else list(together.changes.values()):
        _check_parents(together, each)
    finished = {each.written: each.finished() for each in together.changes.values()}
    matched = sum([each.matched for each in written])
    return Changes(
        {table: deltas for table, deltas in finished.items() if deltas},
        affected,
        first,
        tuple(change.returned),
        matched,
    )


# --- consequences ---------------------------------------------------------------------------------------------------


def _react(together: _Together, moved: _Moved, pending: deque[_Moved]) -> None:
    for reference in moved.change.written.children:
        key_of, spelled = reference.parent_key, key_function(reference.unique)
        gone: set[Row] = set()
        keys: dict[Row, Row] = {}
        for old, new in moved.rows.items():
            before = key_of(old)
            if None in before:
                continue
            if new is None:
                gone.add(before)
            elif (now := spelled(new)) != spelled(old):  # Another spelling of a key is a change of it, as in InnoDB.
                keys[before] = now
        for reaction, some in ((reference.key.on_delete, dict.fromkeys(gone)), (reference.key.on_update, keys)):
            if some and reaction in _REFUSING:
                together.kept.append((reference, frozenset(some)))
            elif some:
                _follow(together, reference, reaction, some, moved, pending)


def _follow(
    together: _Together,
    reference: KeyReference,
    reaction: Reaction,
    keys: Mapping[Row, Row | None],
    moved: _Moved,
    pending: deque[_Moved],
) -> None:
    """Remove or change the rows that name one of ``keys``; each says what became of it."""
    child = together.of(reference.child)
    found = _naming(together, reference, keys)
    if not found:
        return
    key = reference.key
    if moved.level == DEEPEST:
        raise ConstraintViolation(
            f'foreign key "{key.name}" of table "{reference.child}" would go on with what {DEEPEST} others before it '
            "have begun",
            hint=f"a cascade has at most {DEEPEST} levels: write the rows further down first",
        )
    key_of = reference.child_key
    became: dict[Row, Row | None] = {}
    for row in found:
        new_key = keys[key_of(row)]
        if reaction is Reaction.CASCADE and new_key is None:
            became[row] = None
        else:
            values = new_key if reaction is Reaction.CASCADE else None
            became[row] = _with_key(child, row, reference.columns, values or (None,) * len(reference.columns))
    if child.guarding is not None:
        child.guarding.check_followed(key.name, became)
    updated = moved.updated
    if any(new is not None for new in became.values()):
        if reference.child in updated:
            raise _still_named(reference, next(iter(found)), child.schema)
        updated |= {reference.child}
    try:
        for row, weight in found.items():
            child.remove(row, weight)
        for number, (row, weight) in enumerate(found.items(), 1):
            if (new := became[row]) is not None:
                child.put(new, number, weight)
    except ConstraintViolation as error:
        error.message = f'by foreign key "{key.name}": {error.message}'
        raise
    if child.written.children:
        pending.append(_Moved(child, became, updated, moved.level + 1))


def _with_key(child: TableChange, row: Row, columns: Columns, key: Row) -> Row:
    values = list(row)
    for at, value in zip(columns, key, strict=True):
        values[at] = value
    generate = child.written.generate
    return tuple(values) if generate is None else generate(tuple(values))


def _naming(together: _Together, reference: KeyReference, keys: Iterable[Row]) -> dict[Row, int]:
    found = together.of(reference.child).having(reference.columns, dict.fromkeys(keys))
    if together.replaced and reference.child == reference.parent:
        return {row: weight for row, weight in found.items() if row not in together.replaced}
    return found


# --- what must hold -------------------------------------------------------------------------------------------------


def _check_kept(together: _Together) -> None:
    for reference, keys in together.kept:
        for row in _naming(together, reference, keys):
            raise _still_named(reference, row, together.of(reference.child).schema)


def _check_parents(together: _Together, change: TableChange) -> None:
    for reference in change.written.parents:
        key_of = reference.child_key
        named = {key: row for row, weight in change.deltas.items() if weight > 0 and None not in (key := key_of(row))}
        if not together.replaced:  # What a row has named before it was changed, consequences have looked after.
            for row, weight in change.deltas.items():
                if weight < 0:
                    named.pop(key_of(row), None)
        parent = together.of(reference.parent)
        parent.look_up(reference.unique, named)
        for key, row in named.items():
            if parent.find(reference.unique, key) is None:
                raise _names_none(reference, row, change.schema)


def _ask_row_by_row(together: _Together, change: TableChange, operation: Insert) -> None:
    """A row that names no row is left out, or listed, and the others are inserted."""
    references = change.written.parents
    for reference in references:
        named = dict.fromkeys(key for row in operation.rows if None not in (key := reference.child_key(row)))
        together.of(reference.parent).look_up(reference.unique, named)

    def orphan(row: Row) -> ConstraintViolation | None:
        for reference in references:
            key = reference.child_key(row)
            names_itself = reference.parent == reference.child and key == reference.parent_key(row)
            if None in key or names_itself:
                continue
            if together.of(reference.parent).find(reference.unique, key) is None:
                return _names_none(reference, row, change.schema)
        return None

    if references:
        change.orphan = orphan


def _still_named(reference: KeyReference, row: Row, schema: TableSchema) -> ConstraintViolation:
    key = reference.key
    return ConstraintViolation(
        f'a row of table "{reference.parent}" cannot go, or change its key: foreign key "{key.name}" of table '
        f'"{reference.child}" has rows that name it: {_said(reference, row, schema)}',
        hint=f"change or delete these rows of {reference.child} first; or declare the key with CASCADE or SET NULL",
    )


def _names_none(reference: KeyReference, row: Row, schema: TableSchema) -> ConstraintViolation:
    return ConstraintViolation(
        f'foreign key "{reference.key.name}" of table "{reference.child}" names no row of table "{reference.parent}": '
        f"{_said(reference, row, schema)}",
        hint=f"insert the row of {reference.parent} first",
    )


def _said(reference: KeyReference, row: Row, schema: TableSchema) -> str:
    return ", ".join(f"{schema.columns[at].name} = {literal(row[at])}" for at in reference.columns)
