"""A table as its shard is written to, and SET clauses made ready for its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from domains.errors import Unavailable
from domains.language.coercion import coerce
from domains.language.compile import compile_expression
from domains.language.expressions import Constant, Expression, Field
from domains.language.json_rows import decoded_expression
from domains.language.types import Check, ForeignKey, Row, TableSchema, Value, collations_of
from domains.plan.deltas import key_function
from domains.plan.graph import Columns
from domains.plan.packets import Stamps
from domains.plan.sharding import base_shard
from domains.store.row_types import RowTypes
from domains.store.storage import Store, TableStore


class WrittenTable:
    """A table as its shard is written to: constraints and all else that each write needs, worked out once for its
    schema. A write of one row spent 5 µs on the constraints."""

    def __init__(self, stored: TableStore, base: str = "", shard: int = 0, shards: int = 1) -> None:
        """``stored`` has the rows of one shard of so many; ``base`` is its name in clocks."""
        schema = stored.schema
        self.stored = stored
        self.schema = schema
        self.base = base
        self.shard = shard
        self.shards = schema.shards or shards
        self.types = RowTypes(schema)
        self.unique: list[Columns] = [key for key in (schema.primary_key, *schema.unique) if key]
        collations = collations_of(schema.columns)
        self.key_of = {columns: key_function(columns, collations) for columns in self.unique}
        self.keyed = frozenset(at for columns in self.unique for at in columns)
        self.generated = frozenset(i for i, c in enumerate(schema.columns) if c.generated is not None and not c.dropped)
        self.generate = _generator(schema) if self.generated else None
        """Puts the values of generated columns into a row. None: there are none."""
        self.checks = [(check, row_condition(check)) for check in schema.checks]
        self.required = [i for i in schema.live() if not schema.columns[i].nullable or i in schema.primary_key]
        self.numbered = next((i for i, c in enumerate(schema.columns) if c.auto_increment and not c.dropped), None)
        """Where the AUTO_INCREMENT column stands."""
        self.parents: list[KeyReference] = []
        """By foreign keys of this table."""
        self.children: list[KeyReference] = []
        """By foreign keys of tables that name this one; a table may name itself."""
        self.is_related = False
        """Whether there are any of both: a write of it may change another table, or depend on one."""

    def number(self, rows: tuple[Row, ...], column: int) -> tuple[tuple[Row, ...], range]:
        """Give AUTO_INCREMENT values to the rows that ask for one. No row gives one of these by itself: they are
        greater than all values that rows give.

        :raises TypeViolation: the column's type has none left.
        """
        given = [value for row in rows if isinstance(value := row[column], int)]
        if given:
            self.stored.raise_auto_increment(max(given))
        asking = sum(row[column] is None for row in rows)
        if not asking:
            return rows, range(0)
        # Each shard gives out the values that belong to it, so no two of them ever give the same.
        first = value = self.stored.next_auto_increment(asking * self.shards)
        first = value = first + (self.shard - first) % self.shards
        numbered = []
        for row in rows:
            if row[column] is None:
                numbered.append((*row[:column], value, *row[column + 1 :]))
                value += self.shards
            else:
                numbered.append(row)
        greatest = value - self.shards
        coerce(greatest, self.schema.columns[column].type, column=self.schema.columns[column].name)
        return tuple(numbered), range(first, value, self.shards)


@dataclass(frozen=True, slots=True)
class KeyReference:
    """An enforced foreign key between two tables of one shard."""

    key: ForeignKey
    child: str
    columns: Columns
    """The columns of the child, in the order of ``unique``."""
    parent: str
    unique: Columns
    """The unique key of the parent that the child's columns name."""
    child_key: Callable[[Row], Row] = field(compare=False)
    parent_key: Callable[[Row], Row] = field(compare=False)
    """Equal for two rows if the one names the other. (The columns' types are the same, and so are their collations.)"""

    @classmethod
    def of(cls, child: TableSchema, key: ForeignKey, parent: TableSchema) -> KeyReference:
        places = [parent.position(name) for name in key.key]
        for unique in (parent.primary_key, *parent.unique):
            if len(unique) == len(places) and set(unique) == set(places):
                columns = tuple([key.columns[places.index(at)] for at in unique])
                own, others = (collations_of(schema.columns) for schema in (child, parent))
                keys = key_function(columns, own), key_function(unique, others)
                return cls(key, child.name, columns, parent.name, unique, *keys)
        raise AssertionError(f"foreign key {key.name} names no unique key of {parent.title}")


class WrittenTables(dict[str, WrittenTable]):
    """The tables of one shard that were written to, by name."""

    def __init__(self, store: Store, shard: int = 0, shards: int = 1) -> None:
        super().__init__()
        self._store = store
        self._shard = shard
        self._shards = shards

    def made(self, name: str) -> WrittenTable:
        """The table as it is now. All are to be cleared when any is created, altered or dropped.

        :raises Unavailable: a foreign key of it names a table that is decided, and not made here yet."""
        stored = self._store.table(name)
        base = base_shard(stored.schema.name, stored.schema.generation, self._shard, self._shards)
        table = self[name] = WrittenTable(stored, base, self._shard, self._shards)
        schemas = {schema.name.lower(): schema for schema in self._store.tables()}
        for child in schemas.values():
            for key in child.foreign_keys:
                parent = schemas.get(key.parent.lower())
                if key.enforced and parent is None and child.name == name:
                    raise Unavailable(
                        f'table "{key.parent}", which "{name}" refers to, is being made', hint="try again"
                    )
                if key.enforced and parent is not None and name in (child.name, parent.name):
                    reference = KeyReference.of(child, key, parent)
                    if reference.child == name:
                        table.parents.append(reference)
                    if reference.parent == name:
                        table.children.append(reference)
        table.is_related = bool(table.parents or table.children)
        return table

    def positions(self) -> dict[str, int]:
        """Of all tables of the shard, by base shard."""
        store, shard, shards = self._store, self._shard, self._shards
        return {
            base_shard(each.name, each.generation, shard, shards): store.position(each.name) for each in store.tables()
        }

    def known(self, name: str) -> WrittenTable:
        return self.get(name) or self.made(name)


def row_condition(check: Check) -> Callable[[Row], Value]:
    """The value of a CHECK over a row of the table: 0 where the check is broken."""
    return compile_expression(decoded_expression(check.condition))


def _generator(schema: TableSchema) -> Callable[[Row], Row]:
    """The function that fills the generated columns, from left to right: a generated column may read those before
    it."""
    steps = [
        _step(schema, position, decoded_expression(column.generated))
        for position, column in enumerate(schema.columns)
        if column.generated is not None and not column.dropped
    ]

    def generate(row: Row) -> Row:
        values = list(row)
        for position, evaluate, coerced in steps:
            values[position] = coerced(evaluate(tuple(values)))
        return tuple(values)

    return generate


# SET clauses made ready for a statement's rows: each expression compiled and each column's coercion chosen once.
#
# Assignments are performed from left to right, as in MySQL: a later one sees an earlier one's value. Most of them
# depend on no column of the stored row (``SET a = 7``, ``ON DUPLICATE KEY UPDATE a = VALUES(a)``), and their values
# are of the column's own type already: those are put in place, 0.4 µs a row, where evaluating and coercing them took
# 4.

Assignments = tuple[tuple[int, Expression], ...]


class Assigning:
    """(stored row, row that was to be inserted) → the row as it is to be; the second is () for UPDATE.

    Raises TypeViolation where a value does not fit its column.
    """

    def __init__(self, written: WrittenTable, assignments: Assignments, stamps: Stamps = ()) -> None:
        schema = written.schema
        self._stamps = stamps
        self._generate = written.generate
        self.positions = frozenset([position for position, _ in assignments])
        self.positions |= written.generated | {position for position, _ in stamps}
        plain = [_plain(schema, position, expression) for position, expression in assignments]
        self._plain: list[tuple[int, int, Value]] | None = [each for each in plain if each is not None]
        """(position, column of the other row or -1, constant)."""
        self._steps: list[tuple[int, Callable[[Row], Value], Callable[[object], Value]]] = []
        if None in plain:
            self._plain = None
            self._steps = [_step(schema, position, expression) for position, expression in assignments]

    def __call__(self, row: Row, extra: Row) -> Row:
        new = self._assigned(row, extra)
        if self._stamps and new != row:
            values = list(new)
            for position, value in self._stamps:
                values[position] = value
            new = tuple(values)
        return new if self._generate is None else self._generate(new)

    def _assigned(self, row: Row, extra: Row) -> Row:
        values = list(row)
        if self._plain is not None:
            for position, source, constant in self._plain:
                values[position] = constant if source < 0 else extra[source]
            return tuple(values)
        for position, evaluate, coerced in self._steps:
            values[position] = coerced(evaluate((*values, *extra)))
        return tuple(values)


def _plain(schema: TableSchema, position: int, expression: Expression) -> tuple[int, int, Value] | None:
    """The assignment where no evaluating is needed: a constant, or a column of the row that was to be inserted."""
    column, width = schema.columns[position], len(schema.columns)
    if isinstance(expression, Constant):
        return position, -1, coerce(expression.value, column.type, column=column.name)
    if isinstance(expression, Field) and width <= expression.position < 2 * width:
        source = expression.position - width
        return (position, source, None) if expression.type == column.type else None
    return None


def _step(
    schema: TableSchema, position: int, expression: Expression
) -> tuple[int, Callable[[Row], Value], Callable[[object], Value]]:
    column = schema.columns[position]
    return position, compile_expression(expression), partial(coerce, type=column.type, column=column.name)
