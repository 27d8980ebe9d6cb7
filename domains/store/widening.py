"""Rows that were stored before ALTER TABLE as rows of the schema of after it.

ALTER TABLE rewrites no row. Columns are only ever appended, and what a stored row has in one that came later is a
*function of that row*, which the schema says: a constant (its DEFAULT of that time) or an expression
(``TableColumn.initial_of``: the old column as another type, or what a generated column is computed by)::

    stored:  (1, '10', NULL)                                     short, as it was written
    read:    (1, '10', NULL) ++ (int('10'), CONCAT(…), 'x')      from left to right: a later one may read an earlier one

    *Whoever reads a row that is shorter than its table computes the rest by the same function*: the store and its log,
    an archive's fold, and Spark.

So a row means the same wherever it is read, whenever it is rewritten, and whatever crashes; there is no moment at which
half of the rows are rewritten. The function is **total**: an expression that fails gives NULL. Before the change is
decided each row was looked at by :meth:`Widening.misfit`, and from then on no write leaves one that it fails for
(``domains/engine/lifecycle/expected.py``). So it fails only for rows of the log and the archive that were gone by then:
what adds them and what takes them away get the same NULL, and cancel out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from domains.errors import HeadraceError
from domains.language.coercion import coercer
from domains.language.compile import compile_expression
from domains.language.json_rows import decoded_expression
from domains.language.rewriting import fields_of
from domains.language.types import ForeignKey, Row, TableColumn, TableSchema, Value, collations_of
from domains.plan.deltas import key_function
from domains.plan.graph import Columns

_Computing = Callable[[Row], Value]


class Widening:
    """Callable: a row of at least ``width`` values → the same of all columns of ``schema``.

    ``constants`` are the values of the columns from ``width`` on, None where one is computed; by default those that the
    schema says.
    """

    def __init__(self, schema: TableSchema, width: int, constants: Row | None = None) -> None:
        self.schema = schema
        self.width = width
        self._columns = schema.columns
        added = schema.columns[width:]
        self.constants = tuple(map(_constant, added)) if constants is None else constants
        """NULL where it is computed."""
        self._computing: dict[int, _Computing] = {
            at: _computing(column) for at, column in enumerate(added, width) if column.initial_of is not None
        }
        self.computed = frozenset(self._computing)
        """The positions of those that are computed."""

    def __call__(self, row: Row) -> Row:
        missing = len(self._columns) - len(row)
        if not missing:
            return row
        if not self._computing:
            return row + self.constants[-missing:]
        values = list(row)
        for at in range(len(row), len(self._columns)):
            values.append(self.value(values, at))
        return tuple(values)

    def value(self, row: Sequence[Value], at: int) -> Value:
        """What the row, of which at least ``at`` values are there, has at position ``at`` if it is from before it."""
        compute = self._computing.get(at)
        if compute is None:
            return self.constants[at - self.width]
        try:
            return compute(tuple(row))
        except HeadraceError:
            return None

    def misfit(self, row: Row) -> str:
        """Why a stored row cannot be one of the schema; "": it can."""
        values = list(row)
        for at in range(len(row), len(self._columns)):
            if at not in self._computing:
                values.append(self.constants[at - self.width])
                continue
            column = self._columns[at]
            try:
                values.append(self._computing[at](tuple(values)))
            except HeadraceError as error:
                return error.message
            if values[at] is None and not column.nullable:
                return f'column "{column.name}" would be NULL'
        return ""

    def key_function(self, columns: Columns) -> Callable[[Row], Row]:
        """The key by these columns of the schema, of a row that is narrower or not."""
        key_of = key_function(columns, collations_of(self._columns))
        return key_of if max(columns, default=0) < self.width else lambda row: key_of(self(row))

    def sources(self, columns: Columns) -> Columns:
        """The columns to read of rows of ``width`` values, so that these columns are known."""
        wanted, found = set(columns), set[int]()
        while wanted:
            at = wanted.pop()
            if at in self._computing:
                initial = self._columns[at].initial_of
                assert initial is not None
                wanted |= fields_of(decoded_expression(initial))
            elif at < self.width:
                found.add(at)
        return tuple(sorted(found))


def following(old: TableSchema, new: TableSchema, tables: Iterable[TableSchema]) -> list[TableSchema]:
    """Of these tables those whose foreign keys name a column that has another name now, with that name: they are
    altered with it, in one step."""
    pairs = zip(old.columns, new.columns, strict=False)
    names = {one.name.lower(): two.name for one, two in pairs if one.name != two.name and not one.dropped}
    found = []
    for table in tables if names else ():
        keys = tuple(
            replace(key, key=tuple([names.get(name.lower(), name) for name in key.key]))
            if key.enforced and key.parent.lower() == old.name.lower()
            else key
            for key in table.foreign_keys
        )
        if keys != table.foreign_keys:
            found.append(replace(table, foreign_keys=keys))
    return found


def kept_foreign_keys(old: TableSchema, new: TableSchema) -> tuple[ForeignKey, ...]:
    """The old schema's foreign keys, with the new names of what they name, where that is the table itself."""
    return next(iter(following(old, new, [old])), old).foreign_keys


def widening(old: TableSchema, new: TableSchema) -> Widening:
    """From rows that were stored under one schema of a table to those of a later one."""
    return Widening(new, len(old.columns))


def _constant(column: TableColumn) -> Value:
    if column.initial_of is not None:
        return None
    return column.initial if column.has_initial else column.default


def _computing(column: TableColumn) -> _Computing:
    assert column.initial_of is not None
    evaluate = compile_expression(decoded_expression(column.initial_of))
    canonical = coercer(column.type, column=column.name)
    return lambda row: canonical(evaluate(row))
