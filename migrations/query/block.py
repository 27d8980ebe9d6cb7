"""One SELECT on its way through the passes: what it has become so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from domains.expressions import Expression
from domains.rewriting import fold
from migrations.parse import exp
from migrations.query.relation import Context, Output, Relation, Sorting
from migrations.query.scalar import Setting, scalar
from migrations.query.scope import Scope
from migrations.query.stage import EmptyRow, Stage
from migrations.query.subqueries import Subqueries

Plan = Callable[[exp.Expr, Context], Relation]
Replacement = Callable[[exp.Expr], Expression | None]


@dataclass(slots=True)
class Block:
    """Filled in by one pass after the other; expressions are over the wide row of the present stage."""

    node: exp.Select
    context: Context
    plan: Plan
    stage: Stage = field(default_factory=Stage)
    scope: Scope = field(default_factory=lambda: Scope(()))
    known: Replacement | None = None
    """What grouping has made of an expression; None before it."""
    star: Callable[[str], list[Output]] | None = None
    empty: EmptyRow | None = None
    grouped: bool = False
    outputs: list[Output] = field(default_factory=list)
    order: list[Sorting] = field(default_factory=list)

    def subqueries(self) -> Subqueries:
        return Subqueries(self.stage, self.scope, self.context, self.plan)

    def translate(self, node: exp.Expr, place: str, aliases: Replacement | None = None) -> Expression:
        """An expression of the SELECT over the wide row. ``aliases`` is asked before anything else."""

        def replacement(part: exp.Expr) -> Expression | None:
            for known in (aliases, self.known):
                found = None if known is None else known(part)
                if found is not None:
                    return found
            return self.subqueries().replace(part, lambda inner: self.translate(inner, place, aliases))

        return fold(scalar(node, self.scope, Setting(replace=replacement, place=place)))

    def item(self, name: str) -> exp.Expr | None:
        """The expression of the SELECT list that has this alias."""
        for item in self.node.expressions:
            if isinstance(item, exp.Alias) and item.alias.lower() == name.lower():
                return item.this  # type: ignore[no-any-return]
        return None
