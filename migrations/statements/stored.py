"""How the values of some columns become rows of the table's stored width.

The columns that an INSERT names, with their types, are worked out once (:func:`row_maker` remembers); a row then costs
one generated function for the values and one for putting them in place. An insert of 256 rows of four columns given as
dicts takes 0.16 ms on one core of a small server.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from domains.errors import ConstraintViolation, SqlError, TypeViolation
from domains.language.coercion import row_coercer
from domains.language.expressions import Constant, Expression
from domains.language.types import Row, TableColumn, TableSchema, Value
from domains.plan.packets import Stamps
from migrations.parse.reading import exp, text_of
from migrations.query.expressions.literals import precise
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.statements.constants import coerced
from migrations.statements.names import column_position

# SET clauses: ``column = expression``, of UPDATE and of ON DUPLICATE KEY UPDATE.
#
# The engine performs them from left to right, as MySQL does, and coerces each value to its column there; a constant
# is coerced here already, so that what cannot fit is refused before anything is sent.


def assignments(
    items: Sequence[exp.Expr], schema: TableSchema, scope: Scope, setting: Setting, now: str
) -> tuple[tuple[int, Expression], ...]:
    """(position, expression over ``scope``'s row) for each item, in order."""
    return tuple(_assignment(item, schema, scope, setting, now) for item in items)


def _assignment(
    item: exp.Expr, schema: TableSchema, scope: Scope, setting: Setting, now: str
) -> tuple[int, Expression]:
    if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
        raise SqlError(f'"{text_of(item)[:60]}" is not an assignment', hint="write column = expression")
    if item.this.table:
        scope.resolve(item.this)
    position = column_position(schema, item.this.name, item.this)
    column = schema.columns[position]
    node = item.args["expression"]
    if column.generated is not None and not is_default(node):
        raise given_generated(column)
    if is_default(node):
        return position, Constant(default_of(column, now), column.type)
    expression = precise(scalar(node, scope, setting))
    if isinstance(expression, Constant):
        return position, Constant(coerced(expression.value, column), column.type)
    return position, expression


def is_default(node: exp.Expr) -> bool:
    """Whether a value is the keyword DEFAULT."""
    if isinstance(node, exp.Column):
        return not node.table and isinstance(node.this, exp.Identifier) and _is_keyword(node.this)
    return isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"


def _is_keyword(name: exp.Identifier) -> bool:
    return not name.args.get("quoted") and name.name.upper() == "DEFAULT"


def default_of(column: TableColumn, now: str) -> Value:
    """The value of a column that is given none; None also where AUTO_INCREMENT gives it.

    :raises ConstraintViolation: there is none.
    """
    if column.default_now:
        return coerced(now, column)
    if column.generated is not None:
        return None  # The engine computes it.
    if column.has_default:
        return column.default
    if column.nullable or column.auto_increment:
        return None
    raise ConstraintViolation(
        f'column "{column.name}" has no value', hint="it is NOT NULL and has no DEFAULT: give it a value"
    )


def given_generated(column: TableColumn) -> SqlError:
    """The error for a value, other than DEFAULT, that a write gives to a generated column."""
    return SqlError(f'column "{column.name}" is generated and takes no value', hint="leave it out, or write DEFAULT")


def refuse_generated(schema: TableSchema, given: Iterable[int]) -> None:
    """:raises SqlError: a write gives a value to a generated column."""
    for at in given:
        if schema.columns[at].generated is not None:
            raise given_generated(schema.columns[at])


def stamps(schema: TableSchema, assigned: Iterable[int], now: str) -> Stamps:
    """The time for the columns with ON UPDATE CURRENT_TIMESTAMP that a write does not set itself."""
    stamped = _stamped(schema, ())
    if not stamped:
        return ()
    set_already = frozenset(assigned)
    return tuple((at, coerced(now, schema.columns[at])) for at in stamped if at not in set_already)


# What follows from a table's schema and the names that a write gives, worked out once for all writes of that shape.

MOST_SHAPES = 1024
"""Remembered shapes of each kind, some kilobytes each: a program has a few for each table. When there are more, they
are made up, and all are forgotten."""

Names = TypeVar("Names", bound=Hashable)
Shape = TypeVar("Shape")


class Shapes(Generic[Names, Shape]):
    """``make`` with its results remembered, from any thread.

    By the schema's identity, since its hash takes 7 µs, as long as all that is made for one row. The schema is kept, so
    that its identity stays its own.
    """

    def __init__(self, make: Callable[[TableSchema, Names], Shape]) -> None:
        self._make = make
        self._known: dict[tuple[int, Names], tuple[TableSchema, Shape]] = {}

    def __call__(self, schema: TableSchema, names: Names) -> Shape:
        found = self._known.get((id(schema), names))
        if found is not None:
            return found[1]
        made = self._make(schema, names)
        if len(self._known) >= MOST_SHAPES:
            self._known.clear()
        self._known[id(schema), names] = (schema, made)
        return made


_stamped: Shapes[tuple[()], tuple[int, ...]] = Shapes(
    lambda schema, _: tuple(at for at in schema.live() if schema.columns[at].on_update_now)
)


@dataclass(frozen=True, slots=True)
class RowMaker:
    """The maker of rows for one table and the columns that are given, in their order."""

    schema: TableSchema
    coerce: Callable[[Sequence[Any]], Row]
    place: Callable[[Row, Row], Row]
    """The given values and the omitted ones to a stored row."""
    given: tuple[int, ...]
    omitted: tuple[int, ...]
    """Columns that take their default."""
    zero_asks: int | None
    """The AUTO_INCREMENT column, where it is given: 0 in it asks for the next value, as NULL does."""

    def rows(self, given: Iterable[Sequence[Any]], now: str, first: int = 1) -> list[Row]:
        """Stored rows; the first of them is called row ``first`` in errors.

        :raises TypeViolation: a value does not fit its column (row, column).
        :raises ConstraintViolation: an omitted column is NOT NULL and has no default (row, column).
        """
        coerce, place = self.coerce, self.place
        rows: list[Row] = []
        try:
            rest = tuple(default_of(self.schema.columns[at], now) for at in self.omitted)
            for values in given:
                rows.append(place(coerce(values), rest))  # noqa: PERF401  An error must know how far it came.
        except (TypeViolation, ConstraintViolation) as error:
            raise type(error)(f"row {first + len(rows)}: {error.message}", hint=error.hint) from None
        at = self.zero_asks
        return rows if at is None else [(*row[:at], None, *row[at + 1 :]) if row[at] == 0 else row for row in rows]


def row_maker(schema: TableSchema, positions: tuple[int, ...], *, from_json: bool = False) -> RowMaker:
    """The maker for rows that give these columns; ``from_json`` as in ``domains/language/coercion.py``."""
    return _makers(schema, (positions, from_json))


def _made(schema: TableSchema, shape: tuple[tuple[int, ...], bool]) -> RowMaker:
    positions, from_json = shape
    given = [schema.columns[at] for at in positions]
    coerce = row_coercer([column.type for column in given], [column.name for column in given], from_json=from_json)
    omitted = tuple(at for at in schema.live() if at not in positions)
    auto = next((at for at in positions if schema.columns[at].auto_increment), None)
    return RowMaker(schema, coerce, _placement(len(schema.columns), positions, omitted), positions, omitted, auto)


_makers = Shapes(_made)


def _placement(width: int, given: tuple[int, ...], omitted: tuple[int, ...]) -> Callable[[Row, Row], Row]:
    """A function ``(given values, omitted values) → row``; dropped columns are NULL.

    Generated, as a tuple display costs a fifth of filling a list (0.08 µs for ten columns).
    """
    if given == tuple(range(width)):
        return lambda row, _rest: row
    sources = ["None"] * width
    for index, at in enumerate(given):
        sources[at] = f"g[{index}]"
    for index, at in enumerate(omitted):
        sources[at] = f"o[{index}]"
    names: dict[str, Any] = {}
    exec(compile(f"def place(g, o):\n    return ({', '.join(sources)},)", "<stored row>", "exec"), names)
    place: Callable[[Row, Row], Row] = names["place"]
    return place
