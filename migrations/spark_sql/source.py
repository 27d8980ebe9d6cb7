"""FROM: tables, views, derived tables and joins as Spark's FROM, and the names in reach of the block.

Each source stands under an alias of ours (``t0``, ``t1`` …) and has columns ``c0`` … and, for the parameters that it
carries, ``p0`` …; what people call them is only known here. Aliases count through the whole query, so that no name
means two things anywhere in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Expression, Field
from domains.language.functions import call
from domains.language.types import Column, TableSchema
from migrations.catalog import Catalog
from migrations.parse.reading import exp, position
from migrations.query.expressions.parameters import is_parameterised, read_comparisons
from migrations.query.expressions.scalar import Setting, conjuncts, scalar
from migrations.query.expressions.scope import Bound, Outer, Scope
from migrations.query.relation import Slot
from migrations.query.sources.names import merged_names
from migrations.spark_sql.expressions import Names


@dataclass(frozen=True, slots=True)
class CarriedParameter:
    """A parameter on its way out, and what it is compared with, over the row at hand."""

    slot: Slot
    operand: Expression


@dataclass(frozen=True, slots=True)
class Term:
    """One term of ORDER BY: a column of the answer, and its direction."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A query that is written: ``text`` is a SELECT with the columns c0 …, p0 … and those that it is sorted by."""

    text: str
    columns: tuple[Column, ...]
    slots: tuple[Slot, ...] = ()
    """The slots of p0 …; each has the type of its column."""
    order: tuple[Term, ...] = ()
    limit: int | Slot | None = None
    offset: int | Slot = 0


@dataclass(frozen=True, slots=True)
class SparkRounds:
    """One recursion, of one query or several: each has a view of that name, a first text and a further one."""

    views: tuple[str, ...]
    first: tuple[str, ...]
    further: tuple[str, ...]
    is_whole: bool
    """The further text comes to all that there is then (UNION); else to what a round adds (UNION ALL), and the view has
    what the last round added."""


@dataclass(slots=True)
class WriterContext:
    """The tables and views that a query may read. ``tables`` has the name in Spark of each base table."""

    catalog: Catalog
    tables: dict[str, str]
    ctes: dict[str, WrittenQuery]
    aliases: Callable[[], str]
    outer: Outer | None = None
    """The queries around a subquery, of which it may read nothing."""
    nothing: bool = False
    """Write the query as it is where no parameter finds anything: each condition with a ``?`` is FALSE."""
    rounds: list[SparkRounds] = field(default_factory=list)
    """What has to be carried out before its text is run, in this order."""

    def with_cte(self, name: str, answer: WrittenQuery) -> WriterContext:
        return replace(self, ctes={**self.ctes, name.lower(): answer})

    def without_ctes(self) -> WriterContext:
        return replace(self, ctes={})


def fresh_context(catalog: Catalog, tables: dict[str, str], *, nothing: bool = False) -> WriterContext:
    numbers = count()
    return WriterContext(catalog, tables, {}, lambda: f"t{next(numbers)}", nothing=nothing)


def refused(scope: Scope) -> Outer:
    """The queries around a subquery: Spark has only some of the correlated ones."""

    def outer(column: exp.Column) -> Expression | None:
        found = scope.find(column.name, column.table)
        if found is None and scope.outer is not None:
            scope.outer(column)
        if found is not None:
            raise Unsupported("a correlated subquery, which the judge does not know")
        return None

    return outer


Compile = Callable[[exp.Expr, WriterContext], WrittenQuery]
"""The function that writes a whole query, with its LIMIT carried out."""


@dataclass(frozen=True, slots=True)
class NamedQuery:
    text: str
    bounds: tuple[Bound, ...]


class FromClauseWriter:
    """Reads one FROM clause. ``carried`` and ``conditions`` are what its sources and ONs bring along."""

    def __init__(self, names: Names, context: WriterContext, compile: Compile) -> None:
        self._names = names
        self._context = context
        self._compile = compile
        self.carried: list[CarriedParameter] = []
        self.conditions: list[Expression] = []

    def read(self, first: exp.Expr, joins: Sequence[exp.Join]) -> NamedQuery:
        parts = [self._item(first)]
        for join in joins:
            plain = not (join.side or join.kind or join.method or join.args.get("on") or join.args.get("using"))
            if plain:
                parts.append(self._item(join.this))
            else:
                parts[-1] = self._join(parts[-1], join)
        bounds = tuple(bound for part in parts for bound in part.bounds)
        return NamedQuery(
            " CROSS JOIN ".join(f"({part.text})" if len(parts) > 1 else part.text for part in parts), bounds
        )

    def nothing(self) -> NamedQuery:
        """The one row of a SELECT without FROM."""
        return NamedQuery(f"(SELECT 1 AS one) AS {self._context.aliases()}", ())

    # --- one source ---------------------------------------------------------------------------------------------

    def _item(self, node: exp.Expr) -> NamedQuery:
        if isinstance(node, exp.Table):
            item = self._table(node)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, (exp.Table, exp.Subquery)) and not node.alias:
            item = self._item(node.this)
        elif isinstance(node, exp.Subquery):
            modified = any(node.args.get(key) is not None for key in ("order", "limit", "offset", "with_"))
            answer = self._compile(node if modified else node.this, self._context)
            item = self._leaf(answer, node.alias, _alias_columns(node))
        else:
            raise Unsupported(f"{type(node).__name__.upper()} in FROM, which the judge does not know")
        for join in node.args.get("joins") or ():
            item = self._join(item, join)
        return item

    def _table(self, node: exp.Table) -> NamedQuery:
        alias, columns = node.alias or node.name, _alias_columns(node)
        cte = self._context.ctes.get(node.name.lower())
        if cte is not None:
            return self._leaf(cte, alias, columns)
        found = self._context.catalog.relation(node.name)
        if isinstance(found, TableSchema):
            if self._context.catalog.policed([node.name]):
                raise Unsupported(f'table "{found.title}", which has policies that the judge does not know')
            live = [found.columns[place] for place in found.live()]
            if any(column.type.collation is not None for column in live):
                raise Unsupported(f'table "{found.name}", whose texts have collations, which the judge does not know')
            text = f"SELECT * FROM {self._context.tables[found.name.lower()]}"
            return self._leaf(WrittenQuery(text, tuple(Column(c.name, c.type) for c in live)), alias, columns)
        answer = self._compile(found.relation, self._context.without_ctes())
        here = (position(node.this),)
        slots = tuple(replace(s, marks=tuple(here + mark for mark in s.marks)) for s in answer.slots)
        return self._leaf(replace(answer, slots=slots), alias, columns or found.columns)

    def _leaf(self, answer: WrittenQuery, alias: str, names: Sequence[str]) -> NamedQuery:
        here = self._context.aliases()
        columns = answer.columns
        if names:
            columns = tuple(Column(name, column.type) for name, column in zip(names, columns, strict=True))
        bounds = tuple(Bound(alias, c.name, self._names.add(f"{here}.c{i}", c.type)) for i, c in enumerate(columns))
        for i, slot in enumerate(answer.slots):
            self.carried.append(CarriedParameter(slot, self._names.add(f"{here}.p{i}", slot.type)))
        return NamedQuery(f"({answer.text}) AS {here}", bounds)

    # --- joins --------------------------------------------------------------------------------------------------

    def _join(self, left: NamedQuery, join: exp.Join) -> NamedQuery:
        side = str(join.side or "").upper()
        right = self._item(join.this)
        shared = _shared(left, right, join)
        bounds = merged_names(left, right, shared, side)
        if shared:
            on: list[Expression] = [call("eq", _field(left, name), _field(right, name)) for name in shared]
        else:
            on = self._on(join, Scope((*left.bounds, *right.bounds), self._context.outer), bool(side))
        if side == "FULL" and shared:
            bounds = self._merged(left, right, shared)
        word = f"{side or 'INNER'} JOIN"
        return NamedQuery(f"({left.text} {word} {right.text} ON {self._names.all_true(on)})", bounds)

    def _merged(self, left: NamedQuery, right: NamedQuery, shared: Sequence[str]) -> tuple[Bound, ...]:
        """A column that both sides of a FULL OUTER JOIN share is that of the side that is there."""
        merged = [call("coalesce", _field(left, name), _field(right, name)) for name in shared]
        first = [self._names.add(self._names.value(each), each.type) for each in merged]
        names = {name.lower() for name in shared}
        sides = [replace(b, merged=True) if b.name.lower() in names else b for b in (*left.bounds, *right.bounds)]
        return (*(Bound("", name, field) for name, field in zip(shared, first, strict=True)), *sides)

    def _on(self, join: exp.Join, scope: Scope, outer: bool) -> list[Expression]:
        condition = join.args.get("on")
        found: list[Expression] = []
        for part in () if condition is None else conjuncts(condition):
            if is_parameterised(part):
                if outer:
                    raise Unsupported("a parameter in the ON of an outer join")
                take_parameters(part, lambda n: scalar(n, scope), self.carried, self.conditions, self._context)
            else:
                found.append(scalar(part, scope, Setting(place="the ON of a join")))
        return found


def take_parameters(
    part: exp.Expr,
    translate: Callable[[exp.Expr], Expression],
    carried: list[CarriedParameter],
    conditions: list[Expression],
    context: WriterContext,
) -> None:
    """A condition with ``?``: what it is compared with is carried, what is left of it must hold."""
    taken = read_comparisons(part)
    if taken is None:
        raise Unsupported("a condition with a parameter that is applied when the answer is read")
    comparisons, rest = taken
    for comparison in comparisons:
        operand = translate(comparison.operand)
        name = comparison.operand.name if isinstance(comparison.operand, exp.Column) else "parameter"
        if context.nothing:
            conditions.append(call("ne", NOUGHT, NOUGHT))
        else:
            carried.append(CarriedParameter(comparison.slot(name, operand.type), operand))
    conditions.extend(translate(each) for each in rest)


NOUGHT = scalar(exp.Literal.number(0), Scope(()))


def _alias_columns(node: exp.Expr) -> list[str]:
    alias = node.args.get("alias")
    return [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []


def _shared(left: NamedQuery, right: NamedQuery, join: exp.Join) -> list[str]:
    using = join.args.get("using")
    if using:
        return [column.name for column in using]
    if str(join.method or "").upper() != "NATURAL":
        return []
    theirs = {bound.name.lower() for bound in right.bounds if not bound.merged}
    return list(dict.fromkeys(b.name for b in left.bounds if not b.merged and b.name.lower() in theirs))


def _field(side: NamedQuery, name: str) -> Field:
    found = Scope(side.bounds).find(name)
    if found is None:
        raise SqlError(f'unknown column "{name}" in USING')
    return found
