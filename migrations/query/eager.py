"""Eager aggregation: sums that are made below joins, so that an update costs no more for having much to join with.

``SELECT /*+ EAGER_AGGREGATION */ …`` asks for it. With x of the rows of L, y of the rows of R, and N how many rows of R
there are::

    γ_{g; SUM(x·y)}(L ⋈_k R)      = γ_{g; SUM(x·Y)}(L ⋈_k γ_{k; Y = SUM(y)}(R))
    γ_{g; SUM(x)}(L ⋈_k R)        = γ_{g; SUM(x·N)}(L ⋈_k γ_{k; N = COUNT(*)}(R))
    γ_{g; MIN(y)}(L ⋈_k R)        = γ_{g; MIN(Y)}(L ⋈_k γ_{k; Y = MIN(y)}(R))

(Yan and Larson, *Eager Aggregation and Lazy Aggregation*, 1995.) Columns of R that are grouped by join k. Done at each
join of a tree, from its leaves to the source that most of GROUP BY comes from, the sums are the maps of a higher-order
delta (DBToaster; the M3 programs of Cumulus). Revenue by nation over customers, orders and lineitems::

    γ nation; SUM(Y2)                                          q[nation]
    └─ ⋈ cid ── customers
       └─ γ cid; Y2 = SUM(discount·Y4)                         m2[cid]
          └─ ⋈ oid ── orders
             └─ γ oid; Y4 = SUM(price) ── lineitems            m4[oid]

A customer that moves to another nation takes one look-up of ``m2``, however many orders and lineitems he has. Each γ is
state, full or partial as any other's, and takes part in every update of what stands below it. So it pays where rows
that many others join are written often, and costs memory and time elsewhere. A text tells nothing of that, so nothing
is guessed here; ``controller/statements/eager_choice.py`` adds the hint to a new view where its tables' rows tell. A
source that joins one row at most has no γ of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import count

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import call
from domains.language.types import BIGINT, Kind, SqlType, decimal_type
from domains.plan.graph import AggregateCall, AggregateFunction
from migrations.parse.reading import exp, text_of
from migrations.query.expressions.aggregates import Summary
from migrations.query.expressions.terms import positions
from migrations.query.joins import Arranged, arrange, link_of, meet
from migrations.query.plan import RelationalPlan, aggregated, projected
from migrations.query.sources.tree import Inner, Leaf, Source, columns_of

_HINT = re.compile(r"\bEAGER_AGGREGATION\b", re.IGNORECASE)
_NAME = "EAGER_AGGREGATION"
_ELSE = "take the hint out"
_CHOSEN = (AggregateFunction.MIN, AggregateFunction.MAX)


def is_asked_for(select: exp.Select) -> bool:
    hint = select.args.get("hint")
    return hint is not None and any(_HINT.search(part) for part in map(_text, hint.expressions))


def _text(part: exp.Expr | str) -> str:
    return part if isinstance(part, str) else text_of(part)


def eagerly(
    source: Source,
    keys: Sequence[frozenset[int]],
    groups: Sequence[Expression],
    summaries: Sequence[Summary],
    *,
    scalar: bool,
) -> RelationalPlan:
    """γ over the joins of ``source``: the groups' columns, then one column for each summary.

    ``keys``: the primary keys of base tables, in the wide row.

    :raises Unsupported: it cannot be done, or there is nothing to sum, and why.
    """
    leaves, links = _tree(source)
    owned = [frozenset(leaf.layout) for leaf in leaves]
    if not all(any(positions(group) <= columns for columns in owned) for group in groups):
        raise Unsupported(f"{_NAME} with GROUP BY of an expression over several tables", hint=_ELSE)
    terms = list(dict.fromkeys(term for s in summaries for term in _terms(s, owned)))
    tree = JoinTree(leaves, links, keys, frozenset[int]().union(*map(positions, groups)), terms)
    last = tree.summed()
    values = [last.value(place, _ONE) for place in range(len(terms))]
    plan, places = _row(last.part, [*groups, *values])
    own, width = places[: len(groups)], len(groups)
    calls = [AggregateCall(t.function, place, t.type) for t, place in zip(terms, places[width:], strict=True)]
    whole = aggregated(plan, own, [(each, str(each.function)) for each in calls], scalar=scalar)
    fields = {term: whole.field(width + at) for at, term in enumerate(terms)}
    results = [_result(s, [fields[term] for term in _terms(s, owned)], scalar=scalar) for s in summaries]
    names = [*(column.name for column in whole.columns[:width]), *(str(s.function) for s in summaries)]
    return projected(whole, [*(whole.field(at) for at in range(width)), *results], names)


# What is carried up: sums of products, each factor of which is over the columns of one source.


@dataclass(frozen=True, slots=True)
class CarriedSum:
    function: AggregateFunction
    """SUM, MIN or MAX."""
    factors: tuple[Expression, ...]
    """Expressions over the wide row; none of them counts rows."""
    type: SqlType


def _terms(s: Summary, owned: Sequence[frozenset[int]]) -> tuple[CarriedSum, ...]:
    """The sums that a summary is computed from.

    :raises Unsupported: it is no sum of products.
    """
    if s.function is AggregateFunction.COUNT_ROWS:
        return (CarriedSum(AggregateFunction.SUM, (), BIGINT),)
    if s.argument is None or s.function not in (*_CHOSEN, *_BY_SUMS):
        raise Unsupported(f"{_NAME} with {s.function.value.upper()}", hint=_ELSE)
    if s.function in _CHOSEN:
        factors: tuple[Expression, ...] = (s.argument,)
    else:
        factors = _factors(s.argument)
    if not all(any(positions(factor) <= columns for columns in owned) for factor in factors):
        raise Unsupported(f"{_NAME} with an aggregate over several tables that is no product", hint=_ELSE)
    if s.function in _CHOSEN:
        return (CarriedSum(s.function, factors, s.type),)
    total = CarriedSum(
        AggregateFunction.SUM, factors, s.type if s.function is AggregateFunction.SUM else _summed_type(factors)
    )
    known = CarriedSum(AggregateFunction.SUM, tuple(call("is_not_null", factor) for factor in factors), BIGINT)
    return {AggregateFunction.SUM: (total,), AggregateFunction.COUNT: (known,)}.get(s.function, (total, known))


_BY_SUMS = (AggregateFunction.SUM, AggregateFunction.COUNT, AggregateFunction.AVG)


def _factors(argument: Expression) -> tuple[Expression, ...]:
    """The factors of a product, constants with the first of them. A product is NULL where a factor is.

    :raises Unsupported: it is rounded, so that the order in which it is added up would show.
    """
    found: list[Expression] = []
    pending = [argument]
    while pending:
        part = pending.pop()
        if isinstance(part, Call) and part.function == "multiply":
            pending.extend(reversed(part.arguments))
        else:
            found.append(part)
    if any(factor.type.kind not in (Kind.INTEGER, Kind.DECIMAL) for factor in (argument, *found)):
        raise Unsupported(f"{_NAME} with a sum of what is no integer and no DECIMAL", hint=_ELSE)
    over = [factor for factor in found if positions(factor)]
    if not over:
        raise Unsupported(f"{_NAME} with an aggregate of a constant", hint="COUNT(*), times the constant")
    first = product([factor for factor in found if not positions(factor)] + over[:1])
    factors = (first, *over[1:])
    if product(factors).type.scale != argument.type.scale:
        raise Unsupported(f"{_NAME} with a product of more digits than a DECIMAL has", hint=_ELSE)
    return factors


def product(factors: Sequence[Expression]) -> Expression:
    return reduce(lambda one, other: call("multiply", one, other), factors)


def _summed_type(factors: Sequence[Expression]) -> SqlType:
    whole = product(factors).type
    return BIGINT if whole.kind is Kind.INTEGER else decimal_type(whole.scale)


def _result(s: Summary, sums: Sequence[Field], *, scalar: bool) -> Expression:
    """A summary, of its terms' sums."""
    if s.function is AggregateFunction.AVG:
        mean = call("divide", *sums)
        if mean.type.scale != s.type.scale:
            raise Unsupported(f"{_NAME} with an AVG that is computed with further", hint="SUM(x) / COUNT(x)")
        return mean
    if scalar and s.of_nothing == 0:
        return call("coalesce", sums[0], Constant(0, BIGINT))
    return sums[0]


# The sources as a tree, whose edges are equalities; sums go from its leaves to its root.

_ONE = Constant(1, BIGINT)
Link = tuple[int, int, Expression]
"""Two sources, and the equality between them."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a source and those beyond it have come to. Expressions are over the wide row, in which a sum below a join
    is one more column."""

    part: Arranged
    values: Mapping[int, Expression]
    """The value of each term that has a factor there."""
    count: Expression | None
    """How many rows a row stands for; None: one."""

    def value(self, term: int, otherwise: Expression) -> Expression:
        """What a row gives to a term's sum: without a factor, as often as there are rows."""
        return self.values.get(term) or self.count or otherwise


@dataclass(slots=True)
class JoinTree:
    leaves: Sequence[Arranged]
    links: Sequence[Link]
    keys: Sequence[frozenset[int]]
    grouped: frozenset[int]
    """The columns that GROUP BY reads."""
    terms: Sequence[CarriedSum]
    sums: int = 0
    """How many there are below joins so far."""
    _fresh: count[int] = field(init=False)

    def __post_init__(self) -> None:
        self._fresh = count(max(column for leaf in self.leaves for column in leaf.layout) + 1)

    def summed(self) -> Message:
        """All of it, with the root at the source that most of GROUP BY comes from of those below which there are sums.

        :raises Unsupported: there is none.
        """
        for root in sorted(range(len(self.leaves)), key=lambda at: -len(self.grouped & set(self.leaves[at].layout))):
            whole = self.joined(root, None)
            if self.sums:
                return whole
        raise Unsupported(f"{_NAME} where each table joins one row of another at most", hint=_ELSE)

    def joined(self, at: int, parent: int | None) -> Message:
        """A source with all that comes from beyond it."""
        own = self.leaves[at]
        near = dict.fromkeys(i for one, other, _ in self.links if at in (one, other) for i in (one, other))
        below = [self._summed(i, at) for i in near if i not in (at, parent)]
        part = own
        for message in below:
            ours, theirs = frozenset(own.layout), frozenset(message.part.layout)
            part = meet(part, message.part, [c for *_, c in self.links if _spans(c, ours, theirs)])
        counts = [message.count for message in below if message.count is not None]
        values = {place: value for place in range(len(self.terms)) if (value := self._value(place, own, below))}
        return Message(part, values, product(counts) if counts else None)

    def _value(self, place: int, own: Arranged, below: Sequence[Message]) -> Expression | None:
        term = self.terms[place]
        factors = [factor for factor in term.factors if positions(factor) <= frozenset(own.layout)]
        if not factors and not any(place in message.values for message in below):
            return None
        if term.function in _CHOSEN:
            return product([*factors, *(m.values[place] for m in below if place in m.values)])
        return product([*factors, *(v for m in below if (v := m.value(place, _ONE)) is not _ONE)])

    def _summed(self, at: int, parent: int) -> Message:
        """What a source and those beyond it say to the next one: one row for each key and group."""
        message = self.joined(at, parent)
        part = message.part
        read = [c for one, other, c in self.links if {one, other} == {at, parent}]
        wanted = self.grouped.union(*map(positions, read))
        kept = [column for column in dict.fromkeys(part.layout) if column in wanted]
        if any(key <= frozenset(kept) & frozenset(self.leaves[at].layout) for key in self.keys):
            return message
        self.sums += 1
        fields = [Field(column, part.plan.columns[part.place(column)].type) for column in kept]
        said, counted = list(message.values), [] if message.count is None else [message.count]
        plan, places = _row(part, [*fields, *message.values.values(), *counted])
        over = places[len(kept) :]
        calls = [self._call(self.terms[place], plan, column) for place, column in zip(said, over, strict=False)]
        if any(place not in message.values and t.function not in _CHOSEN for place, t in enumerate(self.terms)):
            rows = AggregateCall(AggregateFunction.COUNT_ROWS, None, BIGINT)
            calls.append(rows if message.count is None else AggregateCall(AggregateFunction.SUM, over[-1], BIGINT))
        made = {each: Field(next(self._fresh), each.type) for each in dict.fromkeys(calls)}
        plan = aggregated(plan, places[: len(kept)], [(each, str(each.function)) for each in made], scalar=False)
        layout = (*kept, *(each.position for each in made.values()))
        values = {place: made[each] for place, each in zip(said, calls, strict=False)}
        return Message(Arranged(plan, layout), values, made[calls[-1]] if len(calls) > len(said) else None)

    def _call(self, term: CarriedSum, plan: RelationalPlan, column: int) -> AggregateCall:
        type = plan.columns[column].type
        if term.function not in _CHOSEN:
            type = BIGINT if type.kind is Kind.INTEGER else decimal_type(type.scale)
        return AggregateCall(term.function, column, type)


def _tree(source: Source) -> tuple[list[Arranged], list[Link]]:
    """The sources, restricted by the conditions on each of them, and the equalities between two.

    :raises Unsupported: they are no tree.
    """
    if not isinstance(source, Inner) or not all(isinstance(child, Leaf) for child in source.children):
        raise Unsupported(f"{_NAME} over other joins than inner ones", hint=_ELSE)
    owned = [columns_of(child) for child in source.children]
    private: list[list[Expression]] = [[] for _ in owned]
    links: list[Link] = []
    for condition in source.conditions:
        homes = [at for at, columns in enumerate(owned) if positions(condition) & columns] or [0]
        if len(homes) == 1:
            private[homes[0]].append(condition)
        elif len(homes) == 2 and link_of(condition, owned[homes[0]], owned[homes[1]]) is not None:
            links.append((homes[0], homes[1], condition))
        else:
            raise Unsupported(f"{_NAME} over a condition on several tables that is no equality of two", hint=_ELSE)
    pairs = {(one, other) for one, other, _ in links}
    if len(pairs) != len(owned) - 1 or not _is_connected(len(owned), pairs):
        raise Unsupported(f"{_NAME} over joins that are no tree", hint=_ELSE)
    return [arrange(child, own) for child, own in zip(source.children, private, strict=True)], links


def _is_connected(size: int, pairs: Iterable[tuple[int, int]]) -> bool:
    reached, left = {0}, set(pairs)
    while joining := {pair for pair in left if reached & set(pair)}:
        reached.update(at for pair in joining for at in pair)
        left -= joining
    return len(reached) == size


def _spans(condition: Expression, one: frozenset[int], other: frozenset[int]) -> bool:
    return link_of(condition, one, other) is not None


def _row(part: Arranged, expressions: Sequence[Expression]) -> tuple[RelationalPlan, tuple[int, ...]]:
    """The plan with a column for each expression, and where those are; projected if something is computed."""
    wanted = [part.put(expression) for expression in expressions]
    if all(isinstance(each, Field) for each in wanted):
        return part.plan, tuple(each.position for each in wanted if isinstance(each, Field))
    needed = list(dict.fromkeys(wanted))
    names = [
        part.plan.columns[e.position].name if isinstance(e, Field) else f"computed_{at}" for at, e in enumerate(needed)
    ]
    return projected(part.plan, needed, names), tuple(map(needed.index, wanted))
