"""CHECK, generated columns and ON UPDATE CURRENT_TIMESTAMP: expressions that are a part of a table's schema.

The engine computes them in the step that writes a row (``engine/writing/written.py``), so they hold whoever sends the
row. A generated column is stored whether it is declared VIRTUAL or STORED: what is read of it is the same, and it may
stand in keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from domains.errors import AlreadyExists, SqlError, StillInUse
from domains.language.expressions import Expression
from domains.language.json_rows import decoded_expression, stored_expression
from domains.language.rewriting import fields_of, fold
from domains.language.types import Check, Kind, StoredExpression, TableColumn, TableSchema
from migrations.parse.reading import exp, text_of
from migrations.query.expressions import calls
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.statements.names import checked, without_schema


@dataclass(frozen=True, slots=True)
class Generated:
    """``AS (expression)`` of a column, before the other columns are known."""

    expression: exp.Expr
    virtual: bool


def is_clock(node: exp.Expr) -> bool:
    """Whether it is NOW() or another name of the time."""
    if not isinstance(node, calls.NODES):
        return False
    return calls.CLOCK.get(calls.spelled(node)[0]) in ("datetime", "date")


def updated_with_time(column: TableColumn, node: exp.Expr) -> TableColumn:
    """:raises SqlError: it is no time, or another one than the column holds."""
    if not is_clock(node) or column.type.kind is not Kind.DATETIME:
        raise SqlError(
            f'column "{column.name}" is {column.type}: ON UPDATE {text_of(node)[:40]} is not possible',
            hint="ON UPDATE CURRENT_TIMESTAMP stands behind a DATETIME or TIMESTAMP",
        )
    return replace(column, on_update_now=True)


def with_generated(schema: TableSchema, generated: Sequence[Generated | None]) -> TableSchema:
    """The schema with the columns that are generated, by position.

    :raises SqlError: one reads itself, a generated column behind it, or an AUTO_INCREMENT column, as in MySQL.
    """
    columns = list(schema.columns)
    for at, one in enumerate(generated):
        if one is None:
            continue
        column = columns[at]
        if column.has_default or column.default_now or column.auto_increment or column.on_update_now:
            raise SqlError(f'generated column "{column.name}" cannot have a DEFAULT, AUTO_INCREMENT or ON UPDATE')
        expression = over_row(schema, one.expression, f'generated column "{column.name}"')
        for read in fields_of(expression):
            behind = read >= at and read < len(generated) and generated[read] is not None
            if behind or columns[read].auto_increment:
                what = "an AUTO_INCREMENT column" if columns[read].auto_increment else "a generated column behind it"
                raise SqlError(f'generated column "{column.name}" reads "{columns[read].name}", {what}')
        stored = stored_expression(text_of(one.expression), expression)
        columns[at] = replace(column, generated=stored, virtual=one.virtual)
    return replace(schema, columns=tuple(columns))


def with_check(schema: TableSchema, condition: exp.Expr, name: str = "") -> TableSchema:
    """The schema with one more CHECK; one without a name is called as MySQL calls it (``t_chk_1``).

    :raises AlreadyExists: a check has this name.
    """
    taken = {check.name.lower() for check in schema.checks}
    if name and name.lower() in taken:
        raise AlreadyExists(f'check "{name}" of table "{schema.title}" exists')
    number = 1
    while not name or (name.lower() in taken and number > 1):
        candidate, number = f"{without_schema(schema.title)}_chk_{number}", number + 1
        name = "" if candidate.lower() in taken else candidate
    expression = over_row(schema, condition, "CHECK")
    check = Check(checked(name, "check"), stored_expression(text_of(condition), expression))
    return replace(schema, checks=(*schema.checks, check))


def without_check(schema: TableSchema, name: str) -> TableSchema | None:
    """None: it has none of this name. An entry of before may have the database in it."""
    names = (name.lower(), without_schema(name.lower()))
    left = tuple(check for check in schema.checks if check.name.lower() not in names)
    return replace(schema, checks=left) if len(left) < len(schema.checks) else None


def refuse_read(schema: TableSchema, at: int, what: str) -> None:
    """:raises StillInUse: a CHECK or a generated column reads the column, as MySQL refuses it."""
    name = schema.columns[at].name
    for check in schema.checks:
        if at in _reads(check.condition):
            raise StillInUse(
                f'check "{check.name}" reads column "{schema.title}.{name}", which cannot be {what}',
                hint=f"ALTER TABLE {schema.title} DROP CHECK {check.name} first",
            )
    for column in _generated(schema):
        if column.generated is not None and at in _reads(column.generated):
            if column.hidden:
                raise StillInUse(
                    f'a key on "{column.name}" reads column "{schema.name}.{name}", which cannot be {what}',
                    hint="DROP INDEX first",
                )
            raise StillInUse(
                f'generated column "{column.name}" reads column "{schema.title}.{name}", which cannot be {what}',
                hint=f"ALTER TABLE {schema.title} DROP COLUMN {column.name} first",
            )


def _generated(schema: TableSchema) -> Iterable[TableColumn]:
    return (column for column in schema.columns if column.generated is not None and not column.dropped)


def _reads(stored: StoredExpression) -> frozenset[int]:
    return fields_of(decoded_expression(stored))


def over_row(schema: TableSchema, node: exp.Expr, place: str) -> Expression:
    """:raises SqlError: it has a subquery."""
    if node.find(exp.Query) is not None:
        raise SqlError(f"a subquery in {place}")
    return fold(scalar(node, Scope.of_table(schema), Setting(place=place)))
