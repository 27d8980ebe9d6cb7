"""FROM, WHERE and HAVING: the sources of a stage, and the conditions on its rows."""

from __future__ import annotations

from functools import partial

from domains.errors import Unsupported
from domains.expressions import Expression
from migrations.parse import exp
from migrations.query.block import Block, Replacement
from migrations.query.parameters import is_parameterised
from migrations.query.scalar import conjuncts
from migrations.query.scope import Scope
from migrations.query.source import FromClause, read_parameters


def read_sources(block: Block) -> None:
    """FROM: sources and names."""
    clause = block.node.args.get("from_")
    if clause is None:
        raise Unsupported(
            "SELECT without FROM as a part of a query", hint="write its constants into the query around it"
        )
    reader = FromClause(block.stage, block.context, block.plan)
    named = reader.read(clause.this, block.node.args.get("joins") or ())
    block.stage.source = named.source
    block.scope = Scope(named.bounds, block.context.outer)


def filter_rows(block: Block) -> None:
    """WHERE."""
    where = block.node.args.get("where")
    if where is not None:
        _restrict(block, where.this, "WHERE", None)


def filter_groups(block: Block) -> None:
    """HAVING: over groups, where there are any, and over rows where there are none."""
    having = block.node.args.get("having")
    if having is not None:
        _restrict(block, having.this, "HAVING", lambda node: _alias(block, node))


def _restrict(block: Block, condition: exp.Expr, place: str, aliases: Replacement | None) -> None:
    """Parameters and subqueries that restrict rows are taken out; the other conditions must hold."""
    translate = partial(block.translate, place=place, aliases=aliases)
    for part in conjuncts(condition):
        if is_parameterised(part):
            if block.stage.empties:
                raise Unsupported("a parameter on the result of an aggregate that has a parameter below it")
            block.stage.conditions += read_parameters(part, translate, block.stage, is_condition=True)
        elif not block.subqueries().restrict(part, translate):
            block.stage.conditions.append(translate(part))


def _alias(block: Block, node: exp.Expr) -> Expression | None:
    """HAVING looks for a name among the groups first, then in the SELECT list."""
    if not isinstance(node, exp.Column) or node.table or block.names_group(node.name):
        return None
    item = block.item(node.name)
    return None if item is None else block.translate(item, "HAVING")
