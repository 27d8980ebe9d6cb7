"""One SELECT on its way through the passes: what it has become so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Expression, Field
from domains.language.rewriting import fold
from migrations.parse.reading import exp
from migrations.query.correlation import Correlations
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.plan import extended
from migrations.query.plans.late_queries import LateGroups, LateWindows, Sorting
from migrations.query.plans.put_off import read_later
from migrations.query.relation import Around, Carried, Output, QueryContext, Relation, row_of_nothing
from migrations.query.source import rows_of
from migrations.query.sources.asked import late_claim, late_drawn, late_moment, late_placeholder
from migrations.query.stage import SelectStage, all_columns, refuse_matches, stage_of
from migrations.query.subqueries import Subqueries

Plan = Callable[[exp.Expr, QueryContext], Relation]
Replacement = Callable[[exp.Expr], Expression | None]

_LEAVES = frozenset((exp.Column, exp.Literal, exp.Placeholder))
"""Most nodes of expressions, and no subqueries: to look for one in each took a twentieth of a new SELECT's time."""


@dataclass(frozen=True, slots=True)
class Rolled:
    """WITH ROLLUP: how many of the groups it leaves out in turn, and the column that says how many a row is without."""

    groups: int
    level: Field


@dataclass(slots=True)
class SelectBlock:
    """Filled in by one pass after the other; expressions are over the wide row of the present stage."""

    node: exp.Select
    context: QueryContext
    plan: Plan
    stage: SelectStage = field(default_factory=SelectStage)
    scope: Scope = field(default_factory=lambda: Scope(()))
    known: Replacement | None = None
    """The grouped form of an expression; None before grouping."""
    groups: tuple[Expression, ...] | None = None
    """The expressions of GROUP BY, over the first stage's row; None for a query without groups."""
    outputs: list[Output] = field(default_factory=list)
    order: list[Sorting] = field(default_factory=list)
    merged: LateGroups | None = None
    """The groups, where they are made when the answer is read; the stage has their rows then."""
    rolled: Rolled | None = None
    below: Relation | None = None
    """What those groups are made of."""
    inner: Relation | None = None
    """The only source, where its rows come to be when the answer is read: all of this block is done then."""
    windows: LateWindows | None = None
    closed: list[SelectStage] = field(default_factory=list)
    """The stages before the present one of what is done when the answer is read."""
    doubts: list[Expression] = field(default_factory=list)
    """Whether a subquery that is a value has several rows: what is an error when it is read, and has to get there."""
    correlations: Correlations = field(init=False)

    def __post_init__(self) -> None:
        self.correlations = Correlations(self.context.outer)

    def subqueries(self) -> Subqueries:
        return Subqueries(self.stage, self.around(), self.context, self.plan, self.correlations, self.doubts)

    def begin(self) -> None:
        """Of a SELECT without FROM, in which nothing has joined by now: have its one row."""
        if self.stage.source is None:
            self.stage.source = self.stage.leaf(row_of_nothing(self.context))

    def lift(self, construct: str) -> None:
        """Have the rest of the block done when the answer is read: its rows come to be then.

        :raises Unsupported: they are those of a subquery, which is part of something else.
        """
        stage = self.stage
        if self.context.outer is not None:
            refuse_matches(stage, construct)
            raise Unsupported(
                f"a parameter below {construct}, in a subquery of an expression, that is no column = ?",
                hint="it is applied when the answer is read: join with a derived table, or compare a column by =",
            )
        arranged = stage.arrange(self.context.statistics)
        if stage.empty_row() is not None:
            raise Unsupported(
                f"{construct} over an aggregate without GROUP BY that has a parameter below it",
                hint="group by the parameter's column",
            )
        wide, titles = all_columns(arranged, stage.width)
        operands, names = [arranged.put(c.expression) for c in stage.carried], [c.slot.name for c in stage.carried]
        plan, places = extended(arranged.plan, operands, names)
        self.inner = Relation(
            plan,
            tuple(Output(title, e) for title, e in zip(titles, wide, strict=True)),
            tuple(Carried(place, c.slot) for place, c in zip(places, stage.carried, strict=True)),
            late=stage.late_parts(arranged),
        )
        self.stage = stage_of(replace(plan, columns=self.inner.columns))

    def read_later(self) -> None:
        """Have the rest of the block done when the answer is read, where rows of a source come to be then."""
        if self.stage.put_off is None:
            return
        if self.inner is not None:
            raise Unsupported("a subquery beside rows that are worked out when the answer is read")
        self.inner, after = read_later(self.stage, self.context.statistics, self.context.catalog)
        self.stage = stage_of(replace(self.inner.plan, columns=self.inner.columns))
        self.stage.conditions = after

    def around(self) -> Around:
        """This query as its subqueries see it."""
        further = self.context.outer
        level = 0 if further is None else further.level + 1
        stage, context = self.stage, self.context
        return Around(level, self.scope, self.column, lambda places: rows_of(stage, places, context), further)

    def translate(self, node: exp.Expr, place: str, aliases: Replacement | None = None) -> Expression:
        """An expression of the SELECT over the wide row. ``aliases`` is asked before anything else."""

        def replacement(part: exp.Expr) -> Expression | None:
            for known in (aliases, self.known):
                found = None if known is None else known(part)
                if found is not None:
                    return found
            if type(part) in _LEAVES:
                return None
            return self.subqueries().replace(part, partial(self.translate, place=place, aliases=aliases))

        inner = partial(self.translate, place=place, aliases=aliases)
        late, claim = late_placeholder(self.stage, inner), late_claim(self.stage, inner)
        drawn = late_drawn(self.stage) if self.context.drawn else None
        moment = late_moment(self.stage)
        setting = Setting(replacement, late, moment=moment, claim=claim, drawn=drawn, place=place)
        return fold(scalar(node, self.scope, setting), self.context.constants)

    def own(self, node: exp.Expr, place: str, aliases: Replacement | None = None) -> Expression:
        """The expression over the wide row alone: columns of queries around have become columns of it."""
        return self.correlations.put(self.translate(node, place, aliases), self.stage)

    def column(self, field: Field, name: str) -> Expression:
        """A source's column, over the present stage's row.

        :raises SqlError: the query is grouped, and by something else.
        """
        if self.groups is None:
            return field
        if field in self.groups:
            return Field(self.groups.index(field), field.type)
        raise SqlError(
            f'column "{name}" is neither in GROUP BY nor determined by it',
            hint=f'add "{name}" to GROUP BY, or take ANY_VALUE({name}), MIN({name}) or MAX({name})',
        )

    def names_group(self, name: str) -> bool:
        """Whether an unqualified name is one of the groups' columns (any source's, without groups)."""
        fields = self.scope.fields(name)
        return len(fields) == 1 and (self.groups is None or fields[0] in self.groups)

    def item(self, name: str) -> exp.Expr | None:
        """The expression of the SELECT list that has this name: as its alias, else as a column's own name."""
        items = self.node.expressions
        for item in items:
            if isinstance(item, exp.Alias) and item.alias.lower() == name.lower():
                return item.this  # type: ignore[no-any-return]
        own = (i for i in items if isinstance(i, exp.Column) and not isinstance(i.this, exp.Star))
        return next((item for item in own if item.name.lower() == name.lower()), None)
