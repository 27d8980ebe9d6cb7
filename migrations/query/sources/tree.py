"""The sources of a stage as a tree: what a FROM clause, and subqueries beside it, join with what.

Columns are those of *the wide row*: all sources' columns, numbered once in the order of the text. ``joins.py`` makes a
plan of the tree and of the conditions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from domains.language.expressions import Expression
from domains.language.functions.json.table import JsonLevel
from migrations.query.expressions.terms import null_rejected, positions
from migrations.query.plan import RelationalPlan


@dataclass(frozen=True, slots=True)
class Leaf:
    """One source, whose first column is the wide row's ``offset``-th."""

    plan: RelationalPlan
    offset: int


@dataclass(frozen=True, slots=True)
class Inner:
    """Inner, cross and comma joins of any number of sources."""

    children: tuple[Source, ...]
    conditions: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    left: Source
    right: Source
    conditions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Each row of ``left`` once; the wide row's ``at``-th column says whether it has a match in ``right``, whose own
    columns are only there for the conditions."""

    left: Source
    right: Leaf
    conditions: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Full:
    """FULL OUTER JOIN: ``left ⟕ right ∪ (NULLs, right ▷ left)``."""

    left: Source
    right: Source
    conditions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class LateLeft:
    """An outer join by a condition with a parameter, which is decided when the answer is read::

        π left, NULLs (left)  ∪  left ⋈ right

    ``conditions`` are those without a parameter. The wide row's ``at``-th column is 1 in the second part, NULL in the
    first.
    """

    left: Source
    right: Source
    conditions: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Computed:
    """The rows of ``left`` with further columns, which begin at the wide row's ``at``-th."""

    left: Source
    expressions: tuple[Expression, ...]
    at: int

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(range(self.at, self.at + len(self.expressions)))


@dataclass(frozen=True, slots=True)
class Unnested:
    """Each row of ``left`` with each row that JSON_TABLE makes of its document; the columns of those begin at the wide
    row's ``at``-th. Where ``outer``, ``conditions`` are a part of the match, and a row without one stays."""

    left: Source
    document: Expression
    table: JsonLevel
    titles: tuple[str, ...]
    at: int
    outer: bool = False
    conditions: tuple[Expression, ...] = ()

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(range(self.at, self.at + len(self.titles)))


Source = Leaf | Inner | Left | Mark | Full | LateLeft | Computed | Unnested


def columns_of(source: Source) -> frozenset[int]:
    """The columns of the wide row that come from a source."""
    match source:
        case Leaf(plan, offset):
            return frozenset(range(offset, offset + plan.width))
        case Inner(children):
            return frozenset[int]().union(*(columns_of(child) for child in children))
        case Left(left, right) | Full(left, right) | LateLeft(left, right):
            return columns_of(left) | columns_of(right)
        case Mark(left, at=at):
            return columns_of(left) | {at}
        case Computed(left) | Unnested(left):
            return columns_of(left).union(source.columns)


def sources_of(source: Source) -> list[frozenset[int]]:
    """The columns of each source whose rows make up a row; not of those that only mark it."""
    match source:
        case Inner(children):
            return [columns for child in children for columns in sources_of(child)]
        case Left(left, right) | Full(left, right) | LateLeft(left, right):
            return [*sources_of(left), *sources_of(right)]
        case Mark(left) | Computed(left):
            return sources_of(left)
        case Unnested(left):
            return [*sources_of(left), frozenset(source.columns)]
        case Leaf():
            return [columns_of(source)]


def grafted(source: Source, old: Source, new: Source) -> Source:
    """What was joined to the right of ``old``, to the right of ``new`` instead."""
    if source is old:
        return new
    match source:
        case Inner(children, conditions):
            return Inner((grafted(children[0], old, new), *children[1:]), conditions)
        case Left(left) | Mark(left) | LateLeft(left) | Unnested(left):
            return replace(source, left=grafted(left, old, new))
        case Full() | Computed() | Leaf():
            return source


def reads_beside(source: Source, old: Source) -> frozenset[int]:
    """The columns that the conditions read by which further sources were joined to the right of ``old``."""
    if source is old:
        return frozenset()
    match source:
        case Inner(children, conditions):
            left = children[0]
        case Left(left, _, conditions) | Mark(left, _, conditions) | LateLeft(left, _, conditions):
            pass
        case Unnested(left, document):
            conditions = (document, *source.conditions)
        case Full() | Computed() | Leaf():
            return frozenset()
    return reads_beside(left, old).union(*map(positions, conditions))


def links_of(source: Source) -> list[Expression]:
    """Conditions of outer joins: each right row is there for a left row that meets them, or is missing."""
    match source:
        case Inner(children):
            return [link for child in children for link in links_of(child)]
        case Left(left, right, conditions):
            return [*conditions, *links_of(left), *links_of(right)]
        case Mark(left) | Computed(left) | Unnested(left):
            return links_of(left)
        case Full(left, right) | LateLeft(left, right):
            return [*links_of(left), *links_of(right)]
        case Leaf():
            return []


def nullable_columns(source: Source) -> frozenset[int]:
    """The columns that an outer join may make NULL."""
    match source:
        case Leaf():
            return frozenset()
        case Inner(children):
            return frozenset[int]().union(*(nullable_columns(child) for child in children))
        case Left(left, right) | LateLeft(left, right):
            return nullable_columns(left) | columns_of(right)
        case Mark(left) | Computed(left):
            return nullable_columns(left)
        case Unnested(left, outer=outer):
            return nullable_columns(left).union(source.columns if outer else ())
        case Full():
            return columns_of(source)


def simplified(source: Source, rejected: frozenset[int]) -> Source:
    """The same joins without outer ones whose unmatched rows a condition throws away anyway.

    ``rejected`` are columns that are not NULL in any row that survives.
    """
    match source:
        case Leaf():
            return source
        case Inner(children, conditions):
            rejected |= frozenset[int]().union(*(null_rejected(condition) for condition in conditions))
            flat: list[Source] = []
            collected = list(conditions)
            for child in children:
                simple = simplified(child, rejected)
                if isinstance(simple, Inner):
                    flat.extend(simple.children)
                    collected.extend(simple.conditions)
                else:
                    flat.append(simple)
            return Inner(tuple(flat), tuple(collected))
        case Left(left, right, conditions):
            if rejected & columns_of(right):
                return simplified(Inner((left, right), conditions), rejected)
            inside = frozenset[int]().union(*(null_rejected(condition) for condition in conditions))
            return Left(simplified(left, rejected), simplified(right, rejected | inside), conditions)
        case Mark(left) | Computed(left):
            return replace(source, left=simplified(left, rejected))
        case LateLeft(left, right, conditions, at):
            return LateLeft(simplified(left, rejected), simplified(right, frozenset()), conditions, at)
        case Unnested(left, outer=True, conditions=conditions) if not rejected.isdisjoint(source.columns):
            return simplified(Inner((replace(source, outer=False, conditions=()),), conditions), rejected)
        case Unnested(left):
            return replace(source, left=simplified(left, rejected))
        case Full(left, right, conditions):
            if rejected & columns_of(left):
                return simplified(Left(left, right, conditions), rejected)
            if rejected & columns_of(right):
                return simplified(Left(right, left, conditions), rejected)
            return Full(simplified(left, frozenset()), simplified(right, frozenset()), conditions)
