"""Writes to tables with policies, by whom these apply to: rows that are there by USING, rows to be by WITH CHECK.

::

    UPDATE, DELETE ─► SELECT of the rows, as policies show them ─► those that USING lets be changed ─► new rows ─┐
    INSERT ─► rows ──────────────────────────────────────────────────────────────────────────────────────────────┤
                      the engine: nothing, unless the rows are stored as they were seen ◄─ all pass WITH CHECK ◄─┘

As in PostgreSQL, a row that USING does not let through is as good as not there, and a new row that WITH CHECK does not
let through is an error, of all that the statement does. A policy without WITH CHECK has its USING for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from domains.errors import Forbidden, Unsupported
from domains.language.coercion import coerce
from domains.language.compile import compile_expression, compile_predicate
from domains.language.expressions import Expression
from domains.language.functions import call
from domains.language.rewriting import fold
from domains.language.types import Row, TableSchema
from domains.plan.packets import Amend, Insert, Operation
from migrations.catalog import Catalog, Policy
from migrations.parse.reading import Parsed, exp
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.statements.chosen import choose, is_joined
from migrations.statements.constants import check_params, scalars
from migrations.statements.dml import refuse_clauses, returning
from migrations.statements.names import written_table
from migrations.statements.policies.defining import for_claims
from migrations.statements.statement import ChosenWrite

Holds = Callable[[Row], bool]


def chosen_apart(parsed: Parsed, catalog: Catalog, params: Sequence[Any], now: str) -> ChosenWrite:
    """An UPDATE or DELETE whose rows a SELECT chooses, whatever its form, so that they are known before they are
    written."""
    node = parsed.expression
    assert isinstance(node, (exp.Update, exp.Delete))
    refuse_clauses(node)
    _refuse_limited(node, catalog)
    told = returning(node, written_table(catalog, node.this), now) if node.args.get("returning") else None
    if told is not None and is_joined(node):
        raise Unsupported("RETURNING of a write with joins", hint="SELECT the rows first")
    return replace(choose(node, catalog, scalars(check_params(parsed, params)), now), returning=told)


def _refuse_limited(node: exp.Update | exp.Delete, catalog: Catalog) -> None:
    """:raises Unsupported: LIMIT would count rows that are shown and may not be written."""
    if not node.args.get("limit"):
        return
    command = node.key.upper()
    policies = catalog.policies.get(written_table(catalog, node.this).name.lower(), ())
    shows, lets = ([p for p in policies if p.command in ("ALL", each)] for each in ("SELECT", command))
    if shows != lets:
        raise Unsupported(
            f"{command} with LIMIT of a table that has other policies for SELECT", hint="choose the rows by their keys"
        )


def checked_write(operation: Operation, catalog: Catalog, claims: Mapping[str, Any], now: str) -> Operation:
    """The operation on the rows that it may change.

    :raises Forbidden: a row as it is to be is let through by no policy.
    """
    own = for_claims(catalog, claims)
    if isinstance(operation, Amend):
        first, *also = (_amended(each, own, now) for each in (operation, *operation.also))
        return replace(first, also=tuple(also))
    assert isinstance(operation, Insert), "a SELECT chooses the rows of any other"
    assert operation.on_conflict == "error", "what becomes of rows that are there is not known here"
    policies = own.policies.get(operation.table.lower())
    if policies is not None:
        schema = own.tables[operation.table.lower()]
        _check(schema, operation.rows, _any(schema, policies, "INSERT", now, new=True))
    return operation


def _amended(operation: Amend, catalog: Catalog, now: str) -> Amend:
    policies = catalog.policies.get(operation.table.lower())
    if policies is None:
        return operation
    schema = catalog.tables[operation.table.lower()]
    deletes = operation.assignments is None
    may = _any(schema, policies, "DELETE" if deletes else "UPDATE", now, new=False)
    beside = operation.beside or ((),) * len(operation.rows)
    chosen = [(row, extra) for row, extra in zip(operation.rows, beside, strict=True) if may(row)]
    if not deletes:
        assigned = _assigning(schema, operation)
        _check(schema, [assigned(row, extra) for row, extra in chosen], _any(schema, policies, "UPDATE", now, new=True))
    rows = tuple([row for row, _ in chosen])
    return replace(operation, rows=rows, beside=tuple([extra for _, extra in chosen]) if operation.beside else ())


def _check(schema: TableSchema, rows: Sequence[Row], holds: Holds) -> None:
    """No value of a row is told: it may be of another one."""
    for row in rows:
        if not holds(row):
            raise Forbidden(
                f'a row of table "{schema.title}" would be one that no policy lets be written',
                hint="SHOW POLICIES lists them: WITH CHECK, or USING where there is none",
            )


def _any(schema: TableSchema, policies: Sequence[Policy], command: str, now: str, *, new: bool) -> Holds:
    """Whether one of the policies about a command lets a row through; ``new``: one that is to be."""
    conditions: list[Expression] = []
    for policy in policies:
        tree = (policy.checked if new else None) or policy.condition
        if policy.command in ("ALL", command) and tree is not None:
            conditions.append(_condition(schema, tree, now))
    if not conditions:
        return lambda row: False
    return compile_predicate(conditions[0] if len(conditions) == 1 else call("or", *conditions))


def _condition(schema: TableSchema, tree: exp.Expr, now: str) -> Expression:
    return fold(scalar(tree, Scope.of_table(schema), Setting(now=now, place="a policy")))


def _assigning(schema: TableSchema, operation: Amend) -> Callable[[Row, Row], Row]:
    """What the engine makes of a row (``engine/writing/written.py``), but for the columns that it computes."""
    steps = [
        (position, compile_expression(expression), partial(coerce, type=column.type, column=column.name))
        for position, expression in operation.assignments or ()
        for column in (schema.columns[position],)
    ]

    def assigned(row: Row, extra: Row) -> Row:
        values = list(row)
        for position, evaluate, coerced in steps:
            values[position] = coerced(evaluate((*values, *extra)))
        if tuple(values) != row:
            for position, value in operation.stamps:
                values[position] = value
        return tuple(values)

    return assigned
