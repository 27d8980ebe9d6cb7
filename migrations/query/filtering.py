"""FROM and WHERE: the sources of the first stage, and the conditions on their rows."""

from __future__ import annotations

from dataclasses import replace

from domains.errors import Unsupported
from migrations.parse import exp
from migrations.query.block import Block, Replacement
from migrations.query.parameters import is_parameterised
from migrations.query.scalar import Setting, conjuncts
from migrations.query.scope import Bound, Scope
from migrations.query.source import FromClause, read_parameters


def read_sources(block: Block) -> None:
    """FROM: sources and names."""
    clause = block.node.args.get("from_")
    if clause is None:
        raise Unsupported(
            "SELECT without FROM as a part of a query", hint="write the constants into the query around it"
        )
    reader = FromClause(block.stage, block.context, block.plan)
    named = reader.read(clause.this, block.node.args.get("joins") or ())
    block.stage.source = named.source
    block.scope = Scope(named.bounds, block.context.outer)


def filter_rows(block: Block) -> None:
    """WHERE."""
    where = block.node.args.get("where")
    if where is not None:
        add_conditions(block, where.this, "WHERE", None)


def add_conditions(block: Block, condition: exp.Expr, place: str, aliases: Replacement | None) -> None:
    """Conditions of WHERE or HAVING: parameters and subqueries that restrict are taken out, the rest must hold."""
    setting = Setting(replace=aliases, place=place)
    for part in conjuncts(condition):
        if is_parameterised(part):
            read_parameters(part, _names(block, place, aliases), setting, block.stage)
        elif not block.subqueries().restrict(part, lambda node: block.translate(node, place, aliases)):
            block.stage.conditions.append(block.translate(part, place, aliases))


__all__ = ["Bound", "_names", "add_conditions", "filter_rows", "read_sources", "replace"]
