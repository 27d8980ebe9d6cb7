"""A query that joins rows that come to be when the answer is read.

L is such a source: its rows P are kept, and ``σ_p``, ``γ_{g; f}`` and what else has a parameter is done to them at each
look-up. R is what stands beside it. Groups of L are groups of R's rows too, if those are told apart. So what is kept is
the join, and all behind it is done when the answer is read::

    R ⋈_{c, d} L                    =   σ_d γ_{R, g; f} σ_p (R ⋈_c P)    c compares R with columns g of P, d is the rest
    R ⋉_{c, d} L                    =   δ_R of that
    σ_{r > (SELECT f of L at k)} R  =   σ_{r > f} γ_{R; f} σ_p (R ⋈_k P)          where > is not true of NULL

So it is partial by what R and P are: ``column = ?`` of R leaves its rows, and those of P that meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from domains.errors import Unsupported
from domains.language.expressions import Expression, Field
from domains.plan.estimates import Statistics
from domains.plan.sides import COMPUTED
from domains.plan.traits import is_base, traits_of
from migrations.catalog import Catalog
from migrations.query.expressions.literals import NOTHING
from migrations.query.expressions.terms import moved, null_rejected, positions
from migrations.query.joins import Arranged
from migrations.query.plan import RelationalPlan, extended
from migrations.query.plans.late_queries import LateGroups, LateQuery, all_carried_on
from migrations.query.relation import Carried, LateParts, Output, Relation
from migrations.query.sources.tree import (
    Computed,
    Full,
    Inner,
    LateLeft,
    Leaf,
    Left,
    Mark,
    Source,
    Unnested,
    columns_of,
    nullable_columns,
    sources_of,
)
from migrations.query.stage import PutOff, SelectStage, all_columns, late_condition


def read_later(
    stage: SelectStage, statistics: Statistics | None, catalog: Catalog
) -> tuple[Relation, list[Expression]]:
    """The stage's rows as a relation whose columns are those of the wide row, and the conditions that are left for its
    rows.

    :raises Unsupported: rows beside the source are not told apart, or it may be missing.
    """
    source, stage.put_off = stage.put_off, None
    assert source is not None, "there is a source that is put off"
    assert stage.source is not None, "and it is one of the stage's"
    made = frozenset(source.places) - columns_of(source.leaf)
    after = _taken(stage, made)
    _refuse_if_missing(stage, source, after)
    beside = [row for row in sources_of(stage.source) if row != columns_of(source.leaf)]
    arranged = stage.arrange(statistics)
    keys = set[int]()
    for row in beside:
        known = (key for key, own in stage.uniques if own == row)
        found = (k for k in known if all(_tells_apart(arranged.plan, arranged.place(at), catalog) for at in k))
        if (key := next(found, None)) is None:
            raise Unsupported(
                "a source whose rows come to be when the answer is read, beside one without a key",
                hint="have a PRIMARY KEY, or UNIQUE columns that are NOT NULL, tell its rows apart",
            )
        keys |= key
    queries = _over_joined(source, arranged, stage.width, keys)
    if source.is_semi:
        queries.append(_each_once(queries[-1], source.leaf, arranged, after, keys))
        after = []
    *below, last = queries
    operands, names = [arranged.put(c.expression) for c in stage.carried], [c.slot.name for c in stage.carried]
    plan, places = extended(arranged.plan, operands, names)
    _, titles = all_columns(arranged, stage.width)
    relation = Relation(
        plan,
        tuple(Output(title, e) for title, e in zip(titles, last.outputs, strict=True)),
        tuple(Carried(place, c.slot) for place, c in zip(places, stage.carried, strict=True)),
        late=LateParts(
            tuple(map(arranged.put, stage.late)),
            groups=last.groups,
            distinct=last.distinct,
            slots=tuple(stage.slots),
            below=tuple(below),
            filters=last.conditions,
        ),
    )
    return relation, after


def _taken(stage: SelectStage, made: frozenset[int]) -> list[Expression]:
    """The conditions that read what the source comes to, which are no longer those of the stage."""

    def reads(e: Expression) -> bool:
        return not positions(e).isdisjoint(made)

    assert stage.source is not None, "it has the source"
    stage.source, after = _without(stage.source, reads)
    after += [e for e in (*stage.conditions, *stage.late) if reads(e)]
    asked = [c for c in stage.carried if reads(c.expression)]
    if any(c.slot.outer is not None for c in asked):
        raise Unsupported("a subquery that joins the query around by what comes to be when the answer is read")
    after += map(late_condition, asked)
    stage.slots += [c.slot for c in asked]
    stage.conditions = [e for e in stage.conditions if not reads(e)]
    stage.late = [e for e in stage.late if not reads(e)]
    stage.carried = [c for c in stage.carried if c not in asked]
    return after


def _without(source: Source, reads: Callable[[Expression], bool]) -> tuple[Source, list[Expression]]:
    """The joins without those conditions of inner ones that are told, and these."""
    if not isinstance(source, Inner):
        return source, []
    found = [_without(child, reads) for child in source.children]
    taken = [e for _, inside in found for e in inside] + [e for e in source.conditions if reads(e)]
    kept = tuple(e for e in source.conditions if not reads(e))
    return Inner(tuple(child for child, _ in found), kept), taken


def _refuse_if_missing(stage: SelectStage, source: PutOff, after: list[Expression]) -> None:
    assert stage.source is not None, "it has the source"
    what = "a source whose rows come to be when the answer is read"
    own = columns_of(source.leaf)
    is_read = not _read_by(stage.source).isdisjoint(frozenset(source.places) - own)
    if stage.matches or stage.single or is_read or not own.isdisjoint(nullable_columns(stage.source)):
        raise Unsupported(f"{what}, in an outer join", hint="use an inner join")
    if source.is_value and not any(null_rejected(e) & set(source.places) for e in after):
        raise Unsupported(
            "a subquery as a value that comes to be when the answer is read, and may be NULL",
            hint="compare it under the ANDs of WHERE",
        )


def _tells_apart(plan: RelationalPlan, column: int, catalog: Catalog) -> bool:
    """Whether no two rows have the column's value where a key with it says so also for its NULLs: several rows of a
    UNIQUE key may have them, and no two groups."""
    traits, operator = traits_of(plan.operator), plan.operator
    if is_base(operator):
        schema, stored = catalog.tables[operator.table.lower()], operator.columns[column]
        return stored in schema.primary_key or not schema.columns[stored].nullable
    if traits.groups_by is not None and not traits.row_for_row:
        return True
    below = traits.origins((column,), [parent.width for parent in plan.parents])
    told = [at != COMPUTED and _tells_apart(each, at, catalog) for each, (at,) in zip(plan.parents, below, strict=True)]
    return any(told) if traits.matching is not None else all(told)


def _read_by(source: Source) -> frozenset[int]:
    """What joins that are no inner ones read."""
    below: tuple[Source, ...]
    match source:
        case Leaf():
            return frozenset()
        case Inner(children):
            return frozenset[int]().union(*map(_read_by, children))
        case Left(left, right, conditions) | LateLeft(left, right, conditions) | Full(left, right, conditions):
            below = (left, right)
        case Mark(left, right, conditions):
            below = (left, right)
        case Computed(left, conditions):
            below = (left,)
        case Unnested(left, document):
            below, conditions = (left,), (document, *source.conditions)
    return frozenset[int]().union(*map(positions, conditions), *map(_read_by, below))


def _over_joined(source: PutOff, arranged: Arranged, width: int, keys: Set[int]) -> list[LateQuery]:
    """The source's queries over the joined rows; the last one has the wide row's columns. The ``keys`` beside the
    source tell what is beside it apart."""
    own = columns_of(source.leaf)
    beside = [place for place in arranged.layout if place >= 0 and place not in own]
    further: list[Expression] = [arranged.field(place) for place in beside]

    def put(e: Expression) -> Expression:
        return arranged.put(moved(e, lambda place: source.leaf.offset + place))

    first, *others = source.queries
    spare = [at for at, place in enumerate(beside) if place not in keys]
    found, _ = all_carried_on((first.over(put), *others), further, spare)
    shown = dict(zip((*source.places, *beside), found[-1].outputs, strict=True))
    found[-1] = replace(found[-1], outputs=tuple(shown.get(place, NOTHING) for place in range(width)))
    return found


def _each_once(
    query: LateQuery, leaf: Leaf, arranged: Arranged, conditions: list[Expression], keys: Set[int]
) -> LateQuery:
    """The rows beside the source that have one in it, each once."""
    own = columns_of(leaf)
    beside = [place for place in arranged.layout if place >= 0 and place not in own]
    groups = tuple(Field(place, query.outputs[place].type) for place in beside)
    shown = [Field(beside.index(at), e.type) if at in beside else NOTHING for at, e in enumerate(query.outputs)]
    spare = frozenset(at for at, place in enumerate(beside) if place not in keys)
    return LateQuery(tuple(shown), tuple(conditions), LateGroups(groups, (), scalar=False, spare=spare))
