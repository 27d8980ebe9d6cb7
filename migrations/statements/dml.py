"""INSERT, REPLACE, UPDATE, DELETE and TRUNCATE to operations of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from domains.errors import SqlError, Unsupported
from domains.language.collating.collation import key_of
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions.comparands import comparand, equal_value
from domains.language.rewriting import fold
from domains.language.types import Column, Kind, Row, SqlType, TableSchema, Value
from domains.plan.graph import Columns
from domains.plan.packets import Access, Delete, Insert, Operation, Update
from domains.store.selecting import keys_of
from migrations.catalog import Catalog
from migrations.parse.measure import SqlLimits
from migrations.parse.reading import Parsed, exp
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.expressions.terms import and_parts
from migrations.query.select import output_name, unique_name
from migrations.statements.chosen import choose, is_joined
from migrations.statements.constants import constant_of, draws_values, placeholders, value_of
from migrations.statements.definitions.foreign_keys import refuse_ignoring, refuse_referred
from migrations.statements.definitions.sharded import refuse_moving
from migrations.statements.insert import insert, with_columns_beside
from migrations.statements.names import written_table
from migrations.statements.statement import ChosenWrite, PendingWrite, Returning, WriteStatement
from migrations.statements.stored import assignments, stamps
from migrations.statements.subqueries import Answers, answered, select_of, subqueries

# By which columns the rows of an UPDATE or DELETE can be looked up.
#
# ``id = 7 AND kind IN (1, 2) AND name LIKE 'a%'`` demands ``id`` among (7) and ``kind`` among (1, 2). A look-up finds
# what equals a key exactly, while ``=`` converts first (``id = '7'`` is true for 7), so a constant counts only where
# one value of the column's type at most makes the comparison true (``domains/language/functions/comparands.py``).

_MOST_KEYS = 100_000
"""The most keys that an OR may come to: two lists in one of its branches are as many keys as their product."""


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
    """The column and values of ``column = constant`` or ``column IN (constants)``."""
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
    if type.kind is Kind.INTEGER and all(each.value.__class__ is int for each in constants):
        return tuple(dict.fromkeys([each.value for each in constants]))  # In a thirtieth of the time.
    for constant in constants:
        made = comparand(constant, type)
        if made is None:
            return None
        if made.exact and made.value is not None:
            values[made.value if type.collation is None else key_of(made.value, type.collation)] = None
    return tuple(values)


def exact_value(value: Value, type: SqlType) -> Value:
    """The one value of ``type`` that ``=`` finds equal to the constant; None where there is none, or more than one.

    Also None for bytes among numbers: those of a literal (``x'41'``) are a number there, those of a parameter a text.
    """
    if isinstance(value, bytes) and type.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE):
        return None
    return equal_value(constant_of(value).type, type, value)


def write(
    parsed: Parsed, catalog: Catalog, params: tuple[Value, ...], now: str
) -> WriteStatement | PendingWrite | ChosenWrite:
    """The operation, or what must be asked before it is known.

    :raises ConstraintViolation: a NOT NULL column has neither value nor default (row, column).
    :raises TypeViolation: a value does not fit its column (row, column).
    :raises Unsupported: a row would have to move to another shard.
    """
    node = parsed.expression
    refuse_clauses(node)
    if node.args.get("ignore"):
        written = [item.this.name for item in node.expressions if isinstance(item, exp.EQ)]
        refuse_ignoring(catalog, written_table(catalog, _target(node)), written)
    if isinstance(node, (exp.Update, exp.Delete)) and (is_joined(node) or node.args.get("with_")):
        if node.args.get("returning"):
            raise Unsupported("RETURNING of a write with joins or WITH", hint="SELECT the rows first")
        return choose(node, catalog, params, now)
    schema = written_table(catalog, _target(node))
    if isinstance(node, exp.Insert):
        node = with_columns_beside(node, schema)
    told = returning(node, schema, now)
    context = _context(node, schema, params, now)
    if isinstance(node, (exp.Update, exp.Delete)):
        ignores = bool(node.args.get("ignore"))  # In which order, decides which rows stay as they are.
        ordered = node.args.get("order") and (node.args.get("limit") or ignores)
        by_place = ignores and any(schema.columns[at].type.members for at in schema.primary_key)
        if (
            ordered
            or by_place
            or draws_values(parsed.sql, node)
            or any(_needs_row(node, found, schema, catalog) for found in context.subqueries)
        ):
            return replace(choose(node, catalog, params, now), returning=told)
    selects = tuple(select_of(found, context.values, now) for found in context.subqueries)
    # With empty answers too, so that errors come before any subquery runs.
    operation = _operation(context, [()] * len(selects))
    if isinstance(operation, (Insert, Update)):
        refuse_moving(schema, (position for position, _ in operation.assignments), catalog.shards)
    if selects:
        return PendingWrite(schema, selects, node, params, now)
    return WriteStatement(operation, told)


def resolve(
    pending: PendingWrite,
    answers: Answers,
    columns: Sequence[tuple[Column, ...]] = (),
    most: int = SqlLimits().max_subquery_rows,
) -> WriteStatement:
    """The write, given the rows of each of its ``subqueries`` (values as the engine has them, not as JSON has them),
    at most so many in an IN, and their columns, which matter only to ON DUPLICATE KEY UPDATE of an INSERT … SELECT.

    :raises SqlError: an answer has more rows or columns than its place allows.
    :raises LimitExceeded: an IN has more rows.
    """
    assert len(answers) == len(pending.subqueries), "one answer for each subquery"
    node, schema = pending.expression, pending.schema
    context = _context(node, schema, pending.params, pending.now, most)
    source = node.args.get("expression") if isinstance(node, exp.Insert) else None
    given = next((of for n, of in zip(context.subqueries, columns, strict=False) if n is source), ())
    return WriteStatement(_operation(context, answers, given), returning(node, schema, pending.now))


def returning(node: exp.Expr, schema: TableSchema, now: str) -> Returning | None:
    """:raises Unsupported: of an UPDATE, or with a subquery."""
    clause = node.args.get("returning")
    if clause is None:
        return None
    if isinstance(node, exp.Update):
        raise Unsupported("UPDATE with RETURNING", hint="SELECT the rows afterwards")
    scope, taken = Scope.of_table(schema, _target(node).alias or None), set[str]()
    columns: list[Column] = []
    expressions: list[Expression] = []
    for item in clause.expressions:
        if item.find(exp.Query) is not None:
            raise Unsupported("a subquery in RETURNING", hint="SELECT it afterwards")
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            found: list[tuple[str, Expression]] = [
                (bound.name, bound.field) for bound in scope.star(getattr(item, "table", "") or "")
            ]
        else:
            value = item.this if isinstance(item, exp.Alias) else item
            found = [(output_name(item), fold(scalar(value, scope, Setting(now=now, place="RETURNING"))))]
        columns += [Column(unique_name(name, taken), each.type) for name, each in found]
        expressions += [each for _, each in found]
    return Returning(tuple(columns), tuple(expressions))


def truncate(parsed: Parsed, catalog: Catalog, *, checked: bool) -> WriteStatement:
    """TRUNCATE TABLE deletes every row; AUTO_INCREMENT goes on where it was. With ``foreign_key_checks`` off, not
    ``checked``, a table that a foreign key names is emptied as by DELETE: while no row names one of its rows."""
    tables = parsed.expression.expressions
    if len(tables) != 1:
        raise SqlError("TRUNCATE wants one table")
    if tables[0].args.get("partition"):
        raise Unsupported("TRUNCATE with PARTITION")
    schema = written_table(catalog, tables[0])
    if checked:
        refuse_referred(catalog, schema, "truncated")
    return WriteStatement(Delete(schema.name, None))


@dataclass(frozen=True, slots=True)
class _Context:
    node: exp.Expr
    schema: TableSchema
    values: dict[int, Value]
    """The value of each ``?``, by the node's id."""
    subqueries: tuple[exp.Expr, ...]
    now: str
    most: int
    """Rows that IN (SELECT …) may give."""

    def setting(self, scope: Scope, answers: Answers) -> Setting:
        plain = Setting(
            placeholder=lambda node: constant_of(self.values[id(node)]), now=self.now, place=self.node.key.upper()
        )
        return replace(plain, replace=answered(self.subqueries, answers, scope, plain, self.most))


def _context(
    node: exp.Expr, schema: TableSchema, params: tuple[Value, ...], now: str, most: int = SqlLimits().max_subquery_rows
) -> _Context:
    values: dict[int, Value] = {}
    if params:
        values = {id(found): value for found, value in zip(placeholders(node), params, strict=True)}
    return _Context(node, schema, values, tuple(subqueries(node)), now, most)


def _operation(context: _Context, answers: Answers, columns: Sequence[Column] = ()) -> Operation:
    node, schema = context.node, context.schema
    if isinstance(node, exp.Insert):
        source = node.args.get("expression")
        selected = next((rows for n, rows in zip(context.subqueries, answers, strict=True) if n is source), None)
        return insert(node, schema, lambda scope: context.setting(scope, answers), selected, columns, context.now)
    target = _target(node)
    scope = Scope.of_table(schema, target.alias or None)
    setting = context.setting(scope, answers)
    clause = node.args.get("where")
    where = None if clause is None else fold(scalar(clause.this, scope, setting))
    limit = _limit(node, setting)
    for item in node.args["order"].expressions if node.args.get("order") is not None else ():
        scalar(item.this, scope, setting)  # All rows go before any comes, so without LIMIT their order says nothing.
    if isinstance(node, exp.Delete):
        return Delete(schema.name, where, access(where, schema), limit, node.args.get("returning") is not None)
    changes = assignments(node.expressions, schema, scope, setting, context.now)
    times = stamps(schema, (position for position, _ in changes), context.now)
    ignore = bool(node.args.get("ignore"))
    return Update(schema.name, where, changes, access(where, schema), limit, times, ignore)


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


def _needs_row(node: exp.Expr, subquery: exp.Expr, schema: TableSchema, catalog: Catalog) -> bool:
    """Whether the answer may depend on the row that is written, or is compared with several of its columns, or row by
    row (ANY, ALL).

    A column of the written row is one with the name or alias of its table, or one that only the written table has. What
    a view or a subquery shows is not known here: there, what has the name of one of its columns may be meant.
    """
    if isinstance(subquery, exp.In) and isinstance(subquery.this, exp.Tuple):
        return True
    if isinstance(subquery.parent, (exp.Any, exp.All)):
        return True
    if isinstance(subquery.parent, exp.Binary) and subquery.parent.find(exp.Tuple) is not None:
        return True
    if isinstance(subquery, exp.In):
        subquery = subquery.args["query"]
    name = _target(node).alias_or_name.lower()
    own = {part.alias_or_name.lower() for part in subquery.find_all(exp.Table, exp.Subquery, exp.CTE)}
    outer = _names(schema)
    for part in subquery.find_all(exp.Table):
        read = catalog.named(part.name)
        if read is not None:
            outer -= _names(read)
    for column in subquery.find_all(exp.Column):
        if (column.table.lower() == name and name not in own) if column.table else column.name.lower() in outer:
            return True
    return False


def _names(schema: TableSchema) -> frozenset[str]:
    return frozenset(schema.columns[position].name.lower() for position in schema.live())


def refuse_clauses(node: exp.Expr) -> None:
    verb = "REPLACE" if node.args.get("alternative") == "REPLACE" else node.key.upper()
    target = _target(node)
    if not isinstance(target, exp.Table):
        raise SqlError(f"{verb} names no table")
    if isinstance(node, exp.Insert) and node.args.get("with_"):
        raise Unsupported(f"{verb} with WITH", hint=f"{verb} INTO … WITH … SELECT")
    many = node.args.get("tables") or ()
    if many and not is_joined(node) and many[0].name.lower() not in (target.alias_or_name.lower(), target.name.lower()):
        raise SqlError(f'{verb} names "{many[0].name}", which FROM does not have')
    if target.args.get("partition") or node.args.get("partition"):
        raise Unsupported(f"{verb} with PARTITION")
    if node.args.get("ignore") and is_joined(node):
        raise Unsupported("UPDATE IGNORE with joins", hint="choose the rows by WHERE id IN (SELECT …)")
