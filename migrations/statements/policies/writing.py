"""Writes by whom policies apply to: each goes with the conditions on the rows that it may come to.

::

    any operation ──► guarded: a RowGuard for its tables with policies, and for those that foreign keys reach from them
                       │
                       ▼        in each shard, in the step that writes
                      engine: old rows by USING, new ones by WITH CHECK (``domains/engine/writing/guarding.py``)

A SELECT that chooses rows (``chosen.py``), and those inside of a write, have policies in their plan, as any SELECT.
With LIMIT the rows that it counts have to be those that may be written, too: :func:`narrowed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from domains.language.expressions import Constant, Expression
from domains.language.functions import call
from domains.language.rewriting import fold
from domains.language.types import BOOL, TableSchema
from domains.plan.packets import Guards, Operation, RowGuard, written_tables
from migrations.access.policies import written_through
from migrations.catalog import Catalog, Policy
from migrations.parse.reading import exp, text_of
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.statements.policies.defining import claimed
from migrations.statements.statement import ChosenWrite

Guarded = TypeVar("Guarded", bound=Operation)


def guarded(operation: Guarded, catalog: Catalog, claims: Mapping[str, Any], now: str) -> Guarded:
    """The operation, which then does what policies let it do and no more."""
    written = [catalog.tables[name.lower()].title for name in written_tables(operation)]
    guards: Guards = ()
    for title in sorted({*(each.lower() for each in written), *written_through(catalog, written)}):
        schema = catalog.named(title)
        if schema is not None and schema.name.lower() in catalog.policies:
            guards += (_guard(schema, claimed(catalog, schema.name.lower(), claims), now),)
    return replace(operation, guards=guards) if guards else operation


def _guard(schema: TableSchema, policies: Sequence[Policy], now: str) -> RowGuard:
    scope, setting = Scope.of_table(schema), Setting(now=now, place="a policy")

    def any_of(command: str, *, new: bool = False) -> Expression:
        found = [fold(scalar(tree, scope, setting)) for tree in _conditions(policies, command, new=new)]
        return Constant(0, BOOL) if not found else found[0] if len(found) == 1 else call("or", *found)

    return RowGuard(
        schema.name,
        any_of("SELECT"),
        any_of("INSERT", new=True),
        any_of("UPDATE"),
        any_of("UPDATE", new=True),
        any_of("DELETE"),
    )


def _conditions(policies: Sequence[Policy], command: str, *, new: bool = False) -> list[exp.Expr]:
    """The conditions of which one has to be true for a row; ``new``: for one that is to be."""
    about = [each for each in policies if each.command in ("ALL", command)]
    return [tree for each in about if (tree := (each.checked if new else None) or each.condition) is not None]


def narrowed(write: ChosenWrite, catalog: Catalog, claims: Mapping[str, Any]) -> ChosenWrite:
    """The write whose SELECT counts only rows that may be written, where it has a LIMIT."""
    query, table = write.select.query, write.tables[0]
    name = table.schema.name.lower()
    if not query.args.get("limit") or name not in catalog.policies:
        return write
    policies = claimed(catalog, name, claims)
    either: exp.Expr = exp.false()
    for tree in _conditions(policies, "DELETE" if table.changes is None else "UPDATE"):
        either = exp.Or(this=either, expression=exp.Paren(this=tree.copy()))
    query = query.copy()
    alias = query.args["from_"].this.alias_or_name
    for column in either.find_all(exp.Column):
        column.set("table", exp.to_identifier(alias, quoted=True))
    where = query.args.get("where")
    both = exp.Paren(this=either) if where is None else exp.And(this=exp.Paren(this=either), expression=where.this)
    query.set("where", exp.Where(this=both))
    return replace(write, select=replace(write.select, query=query, sql=text_of(query)))
