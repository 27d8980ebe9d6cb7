"""INSERT, REPLACE, UPDATE, DELETE and TRUNCATE to operations of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions.comparands import comparand, equal_value
from domains.language.rewriting import fold
from domains.language.types import Kind, Row, SqlType, TableSchema, Value
from domains.plan.graph import Columns
from domains.plan.packets import Access, Delete, Operation, Update
from domains.store.selecting import keys_of
from migrations.catalog import Catalog
from migrations.parse.reading import Parsed, exp
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.expressions.terms import and_parts
from migrations.statements.constants import constant_of, placeholders, value_of
from migrations.statements.definitions.sharded import refuse_moving
from migrations.statements.insert import insert
from migrations.statements.names import written_table
from migrations.statements.statement import PendingWrite, WriteStatement
from migrations.statements.stored import assignments
from migrations.statements.subqueries import Answers, answered, select_of, subqueries

# By which columns the rows of an UPDATE or DELETE can be looked up.
#
# ``id = 7 AND kind IN (1, 2) AND name LIKE 'a%'`` demands ``id`` among (7) and ``kind`` among (1, 2). A look-up finds
# what equals a key exactly, while ``=`` converts first (``id = '7'`` is true for 7), so a constant counts only where
# one value of the column's type at most makes the comparison true (``domains/language/functions/comparands.py``).

_MOST_KEYS = 100_000
"""That an OR may come to: two lists in one of its branches are as many keys as their product."""


def access(where: Expression | None, schema: TableSchema) -> Access:
    """Which keys of which columns each conjunct of ``where`` demands, in order of the columns."""
    return () if where is None else tuple(sorted(_ties(where, schema).items()))


def _ties(where: Expression, schema: TableSchema) -> dict[Columns, tuple[Row, ...]]:
    found: dict[Columns, tuple[Row, ...]] = {}
    for part in and_parts(where):
        tied = _tied_by_or(part, schema) if isinstance(part, Call) and part.function == "or" else _tied(part, schema)
        if tied is None:
            continue
        columns, keys = tied
        if columns in found:
            both = set(keys)
            keys = tuple([key for key in found[columns] if key in both])
        found[columns] = keys
    return found


def _tied(part: Expression, schema: TableSchema) -> tuple[Columns, tuple[Row, ...]] | None:
    """Of ``column = constant`` or ``column IN (constants)``."""
    if isinstance(part, (Field, Constant)) or part.function not in ("eq", "in"):
        return None
    first, *others = part.arguments
    if part.function == "eq" and isinstance(first, Constant):
        first, others = others[0], [first]
    if not isinstance(first, Field) or not all(isinstance(other, Constant) for other in others):
        return None
    constants = [other for other in others if isinstance(other, Constant)]
    values = _exact_values(constants, schema.columns[first.position].type)
    return None if values is None else ((first.position,), tuple([(value,) for value in values]))


def _tied_by_or(part: Call, schema: TableSchema) -> tuple[Columns, tuple[Row, ...]] | None:
    """Columns that all branches tie, such as ``(o, n)`` in ``(o = 1 AND n = 2) OR (o = 3 AND n = 4)``.

    That is also what ``(o, n) IN ((1, 2), (3, 4))`` has become.
    """
    branches = [_ties(branch, schema) for branch in part.arguments]
    possible = [ties for ties in branches if all(ties.values())]
    if not possible:
        return next(iter(branches[0])), ()
    tied = [{column for columns in ties for column in columns} for ties in possible]
    columns = tuple(sorted(set.intersection(*tied)))
    keys: dict[Row, None] = {}
    for ties in possible:
        more = keys_of(tuple(ties.items()), columns, _MOST_KEYS) if columns else None
        if more is None or len(keys) > _MOST_KEYS:
            return None
        keys.update(dict.fromkeys(more))
    return columns, tuple(keys)


def _exact_values(constants: Sequence[Constant], type: SqlType) -> tuple[Value, ...] | None:
    """The values of ``type`` that equal one of the constants, or None where that is not a matter of look-ups.

    What equals none of them is left out: NULL, and 7.5 among integers.
    """
    values: dict[Value, None] = {}
    for constant in constants:
        made = comparand(constant, type)
        if made is None:
            return None
        if made.exact and made.value is not None:
            values[made.value] = None
    return tuple(values)


def exact_value(value: Value, type: SqlType) -> Value:
    """The one value of ``type`` that ``=`` finds equal to the constant; None where there is none, or more than one.

    Also None for bytes among numbers: those of a literal (``x'41'``) are a number there, those of a parameter a text.
    """
    if isinstance(value, bytes) and type.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE):
        return None
    return equal_value(constant_of(value).type, type, value)


def write(parsed: Parsed, catalog: Catalog, params: tuple[Value, ...], now: str) -> WriteStatement | PendingWrite:
    """The operation, or what must be asked before it is known.

    :raises ConstraintViolation: a NOT NULL column has neither value nor default (row, column).
    :raises TypeViolation: a value does not fit its column (row, column).
    :raises Unsupported: a row would have to move to another shard.
    """
    node = parsed.expression
    _refuse_clauses(node)
    schema = written_table(catalog, _target(node))
    context = _context(node, schema, params, now)
    for found in context.subqueries:
        _refuse_correlated(node, found, schema, catalog)
    selects = tuple(select_of(found, context.values) for found in context.subqueries)
    # With empty answers too, so that errors come before any subquery runs.
    operation = _operation(context, [()] * len(selects))
    if not isinstance(operation, Delete):
        refuse_moving(schema, (position for position, _ in operation.assignments), catalog.shards)
    return PendingWrite(schema, selects, node, params, now) if selects else WriteStatement(operation)


def resolve(pending: PendingWrite, answers: Answers) -> WriteStatement:
    """The write, given the rows of each of its ``subqueries`` (values as the engine has them, not as JSON has them).

    :raises SqlError: an answer has more rows or columns than its place allows.
    """
    assert len(answers) == len(pending.subqueries), "one answer for each subquery"
    return WriteStatement(
        _operation(_context(pending.expression, pending.schema, pending.params, pending.now), answers)
    )


def truncate(parsed: Parsed, catalog: Catalog) -> WriteStatement:
    """TRUNCATE TABLE deletes every row; AUTO_INCREMENT goes on where it was."""
    tables = parsed.expression.expressions
    if len(tables) != 1:
        raise SqlError("TRUNCATE wants one table")
    if tables[0].args.get("partition"):
        raise Unsupported("TRUNCATE with PARTITION")
    return WriteStatement(Delete(written_table(catalog, tables[0]).name, None))


@dataclass(frozen=True, slots=True)
class _Context:
    node: exp.Expr
    schema: TableSchema
    values: dict[int, Value]
    """The value of each ``?``, by the node's id."""
    subqueries: tuple[exp.Expr, ...]
    now: str

    def setting(self, scope: Scope, answers: Answers) -> Setting:
        plain = Setting(
            placeholder=lambda node: constant_of(self.values[id(node)]), now=self.now, place=self.node.key.upper()
        )
        return replace(plain, replace=answered(self.subqueries, answers, scope, plain))


def _context(node: exp.Expr, schema: TableSchema, params: tuple[Value, ...], now: str) -> _Context:
    values: dict[int, Value] = {}
    if params:
        values = {id(found): value for found, value in zip(placeholders(node), params, strict=True)}
    return _Context(node, schema, values, tuple(subqueries(node)), now)


def _operation(context: _Context, answers: Answers) -> Operation:
    node, schema = context.node, context.schema
    if isinstance(node, exp.Insert):
        source = node.args.get("expression")
        selected = next((rows for n, rows in zip(context.subqueries, answers, strict=True) if n is source), None)
        return insert(node, schema, lambda scope: context.setting(scope, answers), selected, context.now)
    target = _target(node)
    scope = Scope.of_table(schema, target.alias or None)
    setting = context.setting(scope, answers)
    clause = node.args.get("where")
    where = None if clause is None else fold(scalar(clause.this, scope, setting))
    limit = _limit(node, setting)
    if isinstance(node, exp.Delete):
        return Delete(schema.name, where, access(where, schema), limit)
    changes = assignments(node.expressions, schema, scope, setting, context.now)
    return Update(schema.name, where, changes, access(where, schema), limit)


def _limit(node: exp.Expr, setting: Setting) -> int | None:
    clause = node.args.get("limit")
    if clause is None:
        return None
    value: Any = value_of(scalar(clause.expression, Scope(()), setting))
    if type(value) is not int or value < 0:
        raise SqlError("LIMIT wants a number that is not negative")
    return value


def _target(node: exp.Expr) -> exp.Expr:
    target: exp.Expr = node.this
    return target.this if isinstance(target, exp.Schema) else target


def _refuse_correlated(node: exp.Expr, subquery: exp.Expr, schema: TableSchema, catalog: Catalog) -> None:
    """The row of the write is not in a subquery's reach. By its table's name or alias, or by the name of a column that
    only the written table has, that is what is meant."""
    target = _target(node)
    name = target.alias_or_name.lower()
    own = {part.alias_or_name.lower() for part in subquery.find_all(exp.Table, exp.Subquery, exp.CTE)}
    outer = frozenset() if isinstance(node, exp.Insert) else _names(schema)
    for part in subquery.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Alias):
        read = catalog.tables.get(part.name.lower()) if isinstance(part, exp.Table) else None
        if isinstance(part, exp.Alias):
            outer -= {part.alias.lower()}
        elif read is not None:
            outer -= _names(read)
        elif part is not subquery:
            outer = frozenset()  # What a view or a subquery shows is known when it is planned, which says the rest.
    for column in subquery.find_all(exp.Column):
        written = f"{column.table}.{column.name}" if column.table else column.name
        if (column.table.lower() == name and name not in own) if column.table else column.name.lower() in outer:
            raise Unsupported(
                f'correlated subquery in {node.key.upper()}: "{written}" is of the written row',
                hint="WHERE key IN (SELECT …), with a subquery that does not use the row",
            )


def _names(schema: TableSchema) -> frozenset[str]:
    return frozenset(schema.columns[position].name.lower() for position in schema.live())


def _refuse_clauses(node: exp.Expr) -> None:
    verb = "REPLACE" if node.args.get("alternative") == "REPLACE" else node.key.upper()
    target = _target(node)
    if not isinstance(target, exp.Table):
        raise SqlError(f"{verb} names no table")
    many = node.args.get("tables") or ()
    if target.args.get("joins") or node.args.get("using") or len(many) > 1:
        raise Unsupported(f"{verb} of several tables", hint=f"{verb} one table, WHERE id IN (SELECT … FROM the others)")
    if many and many[0].name.lower() not in (target.alias_or_name.lower(), target.name.lower()):
        raise SqlError(f'{verb} names "{many[0].name}", which FROM does not have')
    if node.args.get("order"):
        raise Unsupported(f"{verb} with ORDER BY", hint=f"{verb} … WHERE id IN (SELECT … ORDER BY … LIMIT …)")
    if node.args.get("with_"):
        raise Unsupported(f"{verb} with WITH", hint="put the WITH inside of the subquery")
    if node.args.get("returning"):
        raise Unsupported(f"{verb} with RETURNING", hint="SELECT the rows afterwards")
    if target.args.get("partition") or node.args.get("partition"):
        raise Unsupported(f"{verb} with PARTITION")
