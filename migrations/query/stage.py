"""A stage of a SELECT: sources side by side, and what is to hold of their rows.

The first stage is FROM with WHERE. A query that groups has a second one, whose only source at first is the grouped
rows. Subqueries join either as further sources, so both stages are arranged by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from domains.errors import Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import are_alike
from domains.language.types import BIGINT, BOOL, SqlType, Value
from domains.plan.estimates import Statistics
from domains.plan.graph import ParameterKind
from migrations.query.expressions.late import parameter_call
from migrations.query.expressions.literals import NOTHING
from migrations.query.expressions.terms import is_satisfied, moved, null_rejected, positions
from migrations.query.joins import Arranged, arrange
from migrations.query.plan import RelationalPlan
from migrations.query.plans.late_queries import LateMatch, LateQuery, traced
from migrations.query.relation import LateParts, Relation, Slot
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
    simplified,
)


@dataclass(frozen=True, slots=True)
class PutOff:
    """A source whose rows come to be when the answer is read: see ``plans/put_off.py``."""

    leaf: Leaf
    """The rows that are kept of it."""
    queries: tuple[LateQuery, ...]
    """What is done to them, the innermost first."""
    places: tuple[int, ...]
    """The column of the wide row for each of its own: one of the leaf's where that is the same; else one that no source
    has."""
    is_semi: bool
    """Whether it only says which rows beside it stay."""
    is_value: bool
    """Whether it is missing where a subquery has no row: conditions have to be true of no NULL then."""


EmptyRow = dict[int, Value]
"""Columns of the wide row → their value where a counting source finds no row; columns that are left out are NULL."""


@dataclass(slots=True)
class Wide:
    """A parameter over the wide row."""

    expression: Expression
    slot: Slot
    is_condition: bool = False
    """Whether it is a condition of this stage's own WHERE: rows in which the column is NULL go, as with any
    condition."""


@dataclass(slots=True)
class SelectStage:
    source: Source | None = None
    width: int = 0
    conditions: list[Expression] = field(default_factory=list)
    carried: list[Wide] = field(default_factory=list)
    keys: list[tuple[frozenset[int], frozenset[int]]] = field(default_factory=list)
    """The primary key's columns and all columns of each base table that has such a key."""
    uniques: list[tuple[frozenset[int], frozenset[int]]] = field(default_factory=list)
    """Columns that determine a row of their source, and all of its columns."""
    linked: list[Expression] = field(default_factory=list)
    """Conditions that the query around takes into its mark join."""
    late: list[Expression] = field(default_factory=list)
    """Conditions that are applied when the answer is read."""
    single: list[Expression] = field(default_factory=list)
    """Counts of the rows of subqueries that are values: more than one is an error when the answer is read."""
    matches: list[tuple[Field, tuple[Expression, ...], frozenset[int]]] = field(default_factory=list)
    """Outer joins that are decided when the answer is read: whether a row is one of both sides, what that asks, and the
    columns of the left side that decide."""
    slots: list[Slot] = field(default_factory=list)
    """The parameters that are in expressions."""
    missing: frozenset[int] = frozenset()
    """What conditions read that came with a source: an outer join may not make it NULL."""
    inner: frozenset[int] = frozenset()
    """What conditions read that came from the ON of an inner join into this stage's own: likewise."""
    empties: list[EmptyRow] = field(default_factory=list)
    put_off: PutOff | None = None
    leaves: int = 0

    def leaf(self, relation: Relation) -> Leaf:
        """A source of its own, not joined with the others yet. The relation's outputs must be plain."""
        leaf = Leaf(relation.plan, self.width)
        self.width += relation.plan.width
        self.leaves += 1
        self.carried += [Wide(wide(leaf, c.column), c.slot) for c in relation.carried]
        late = [moved(each, lambda p: leaf.offset + p) for each in relation.late.conditions]
        self.late += late
        self.slots += relation.late.slots
        self.missing |= columns_of(leaf) if late else frozenset()
        if relation.key:
            key = frozenset(leaf.offset + i for i in relation.key)
            self.keys.append((key, columns_of(leaf)))
        uniques = (frozenset(leaf.offset + i for i in unique) for unique in relation.uniques)
        self.uniques += [(unique, columns_of(leaf)) for unique in uniques]
        if relation.empty is not None:
            values = zip(relation.outputs, relation.empty, strict=True)
            self.empties.append({_position(o.expression) + leaf.offset: value for o, value in values})
        return leaf

    def later(self, relation: Relation, *, is_semi: bool = False, is_value: bool = False) -> tuple[Leaf, list[Field]]:
        """A source of rows that come to be when the answer is read; not joined with the others yet. And its columns.

        :raises Unsupported: there is another one.
        """
        if self.put_off is not None or relation.late.matches or relation.late.single:
            raise Unsupported("several sources whose rows come to be when the answer is read", hint="view each alone")
        queries = (*relation.late.below, relation.outermost)
        if any(q.groups is not None and q.groups.scalar for q in (queries[:-1] if is_value else queries)):
            raise Unsupported(
                "a join with an aggregate without GROUP BY that is worked out when the answer is read",
                hint="write it as a subquery that is a value, which a look-up asks first",
            )
        leaf = self.leaf(replace(relation, empty=None, key=(), uniques=()))
        fields: list[Field] = []
        for at, output in enumerate(relation.outputs):
            place = traced(queries, at)
            if place is None:
                self.width += 1
            fields.append(Field(self.width - 1 if place is None else leaf.offset + place, output.expression.type))
        self.put_off = PutOff(leaf, queries, tuple(f.position for f in fields), is_semi, is_value)
        return leaf, fields

    def cross(self, source: Source, conditions: Sequence[Expression] = ()) -> None:
        """Join a source with all that is there by conditions over the wide row."""
        present = () if self.source is None else (self.source,)
        self.source = Inner((*present, source), tuple(conditions))

    def match(self, source: Source, conditions: Sequence[Expression]) -> None:
        """Left join: every row stays, with NULLs where the source has no match."""
        assert self.source is not None
        self.source = Left(self.source, source, tuple(conditions))

    def mark(self, leaf: Leaf, conditions: Sequence[Expression]) -> Field:
        """Mark join: every row stays once. Answers the column that says whether it has a match in the source."""
        assert self.source is not None
        at = self.width
        self.width += 1
        self.source = Mark(self.source, leaf, tuple(conditions), at)
        return Field(at, BOOL)

    def ask(self, source: Source, links: Sequence[Expression], asked: Sequence[Expression], right: Source) -> Source:
        """Left join that is decided when the answer is read: ``asked`` have parameters, ``links`` have none."""
        made, (matched,) = self.computed(right, [Constant(1, BIGINT)])
        read = frozenset[int]().union(*map(positions, (*links, *asked))) & columns_of(source)
        self.matches.append((matched, tuple(asked), read))
        return LateLeft(source, made, tuple(links), matched.position)

    def computed(self, source: Source, expressions: Sequence[Expression]) -> tuple[Source, list[Field]]:
        """A source with further columns, and these."""
        at = self.width
        self.width += len(expressions)
        fields = [Field(at + number, e.type) for number, e in enumerate(expressions)]
        return Computed(source, tuple(expressions), at), fields

    def fed_alike(self, relation: Relation) -> list[tuple[int, Expression]]:
        """What the relation carries, each with a column of WHERE that is compared with the same parameter; none if some
        is not. Joined by these, the relation's row may be missing, as it may be for a row around it."""
        found = [
            (carried, own)
            for carried in relation.carried
            for own in self.carried
            if own.is_condition
            and own.slot.kind is carried.slot.kind is ParameterKind.EQUAL
            and own.expression.type == relation.plan.columns[carried.column].type
            and is_same_value(own.slot, carried.slot)
        ]
        if {carried.column for carried, _ in found} != {carried.column for carried in relation.carried}:
            return []
        for carried, own in found:
            own.slot = replace(own.slot, marks=tuple(sorted({*own.slot.marks, *carried.slot.marks})))
        return [(carried.column, own.expression) for carried, own in found]

    def merge_parameters(self) -> None:
        """One value that is compared with two columns is one parameter, and the columns are equal.

        :raises Unsupported: one came with a source that may be missing: rows without it are not equal, and would go.
        """
        kept: list[Wide] = []
        for one in self.carried:
            same = next((other for other in kept if _is_same(one, other)), None)
            if same is None:
                kept.append(one)
                continue
            nullable = nullable_columns(self._simplified())
            for each in (one, same):
                if not each.is_condition and positions(each.expression) & nullable:
                    raise _on_missing_side(each.slot.name)
            if not _makes_equal(one, same):
                self.late.append(late_condition(one))
                self.slots.append(one.slot)
            else:
                marks = tuple(sorted({*same.slot.marks, *one.slot.marks}))
                same.slot = replace(same.slot, marks=marks)
                self.conditions.append(call("eq", same.expression, one.expression))
        self.carried = kept

    def arrange(self, statistics: Statistics | None = None) -> Arranged:
        """The plan of this stage.

        :raises Unsupported: a parameter on the missing side of an outer join.
        """
        return arrange(self.joins(), statistics=statistics)

    def joins(self) -> Source:
        """The sources with all conditions.

        :raises Unsupported: a parameter on the missing side of an outer join.
        """
        assert self.source is not None
        if self.put_off is not None:
            raise Unsupported(
                "a query beside rows that come to be when the answer is read", hint="ask for it by itself"
            )
        self.merge_parameters()
        if self.matches:
            self._wait_for_matches(self.source)
        source = self._simplified()
        self._refuse_nullable(source)
        return source

    def _simplified(self) -> Source:
        assert self.source is not None
        own = [null_rejected(c.expression) for c in self.carried if c.is_condition]
        return simplified(Inner((self.source,), tuple(self.conditions)), frozenset[int]().union(*own))

    def _wait_for_matches(self, source: Source) -> None:
        """What WHERE says of the side that may be missing holds once it is known to be missing.

        :raises Unsupported: another join reads it, which is done before.
        """
        missing = asked_columns(source)
        self.late += [c for c in self.conditions if not positions(c).isdisjoint(missing)]
        self.conditions = [c for c in self.conditions if positions(c).isdisjoint(missing)]

    def late_parts(self, arranged: Arranged) -> LateParts:
        """What is done to this stage's rows when they are read, over those of its plan."""
        matches = (
            LateMatch(arranged.put(matched), tuple(map(arranged.put, asked)), tuple(map(arranged.field, sorted(read))))
            for matched, asked, read in self.matches
        )
        conditions, single = tuple(map(arranged.put, self.late)), tuple(map(arranged.put, self.single))
        return LateParts(conditions, tuple(matches), slots=tuple(self.slots), single=single)

    def empty_row(self) -> EmptyRow | None:
        """This stage's row where there is no row, if there is one then.

        :raises Unsupported: a counting source is joined with others, which would need its row for every key.
        """
        found = None
        for row in self.empties:
            if self.leaves == 1 and all(is_satisfied(condition, row) for condition in self.conditions):
                if self.conditions:
                    raise Unsupported(
                        "a condition that a count of nothing meets, on an aggregate that has a parameter below it",
                        hint="a look-up that finds no row could not tell the two apart; test the answer instead",
                    )
                found = row
            elif self.leaves == 1:
                found = None
            elif not self._drops(row):
                raise Unsupported(
                    "joining an aggregate without GROUP BY that has a parameter below it",
                    hint="group it by the parameter's column and LEFT JOIN it",
                )
        return found

    def _drops(self, row: EmptyRow) -> bool:
        """Whether some condition is not true of the source's row where it has none. (What it carries of a parameter has
        the parameter's value there.)"""
        absent = frozenset(position for position, value in row.items() if value is None)
        return any(null_rejected(condition) & absent for condition in (*self.all_conditions(), *self.late))

    def all_conditions(self) -> list[Expression]:
        """Conditions that hold for every row of this stage: WHERE and the ON of inner joins."""
        return [*self.conditions, *_inner_conditions(self.source)]

    def _refuse_nullable(self, source: Source) -> None:
        nullable = nullable_columns(source)
        names = [each.slot.name for each in self.carried if positions(each.expression) & nullable]
        if self.inner & nullable:
            raise Unsupported("a column of the query around in an ON, on the side of an outer join that may be missing")
        if self.missing & nullable:
            names += [slot.name for slot in self.slots]
        if names:
            raise _on_missing_side(names[0])


def _on_missing_side(name: str) -> Unsupported:
    return Unsupported(
        f'the parameter "{name}" on the side of an outer join that may be missing',
        hint="use an inner join, or read the two sides as two views",
    )


def asked_columns(source: Source) -> frozenset[int]:
    """The columns of all sides that a parameter makes missing.

    :raises Unsupported: another join reads one, or may make the join's own left side missing.
    """
    hidden = frozenset[int]()
    match source:
        case Leaf():
            return frozenset()
        case Inner(children, conditions):
            found = frozenset[int]().union(*map(asked_columns, children))
        case LateLeft(left, right, conditions) | Mark(left, right, conditions) | Left(left, right, conditions):
            found, hidden = asked_columns(left), asked_columns(right)
        case Full(left, right, conditions):
            found = hidden = asked_columns(left) | asked_columns(right)
        case Computed(left, expressions):
            found, conditions = asked_columns(left), expressions
        case Unnested(left, document):
            found, conditions = asked_columns(left), (document, *source.conditions)
    if hidden or any(not positions(condition).isdisjoint(found) for condition in conditions):
        raise Unsupported(
            "a join with rows that a parameter may make missing, or by a column of theirs",
            hint="such rows come to be when the answer is read: write the outer join with the parameter last",
        )
    return found | columns_of(source.right) if isinstance(source, LateLeft) else found


def wide(leaf: Leaf, position: int) -> Field:
    """A source's column as a column of the wide row."""
    return Field(leaf.offset + position, leaf.plan.columns[position].type)


def stage_of(plan: RelationalPlan) -> SelectStage:
    """A stage over rows that are there already."""
    return SelectStage(source=Leaf(plan, 0), width=plan.width, leaves=1)


def all_columns(arranged: Arranged, width: int) -> tuple[list[Expression], list[str]]:
    """The wide row with its titles. What only marks rows has columns in it that nothing can read: they are NULL."""
    wide: list[Expression] = [NOTHING] * width
    titles = [""] * width
    for place, at in enumerate(arranged.layout):
        if at >= 0:
            wide[at], titles[at] = arranged.plan.field(place), arranged.plan.columns[place].name
    return wide, titles


def refuse_matches(stage: SelectStage, construct: str) -> None:
    if stage.matches:
        raise Unsupported(
            f"{construct} over an outer join or NOT EXISTS with a parameter, which are decided when the answer is read",
            hint="ask for the rows, or for the two sides as two views",
        )


def _position(expression: Expression) -> int:
    assert isinstance(expression, Field)
    return expression.position


def is_same_value(one: Slot, other: Slot) -> bool:
    """Whether the same ``:name`` or the same ``?`` (of a CTE that is read twice) feeds both. Moments are never one:
    each has a place of its own among its column's values."""
    return (one.named and other.named and one.name == other.name) or bool(set(one.marks) & set(other.marks))


def _is_same(one: Wide, other: Wide) -> bool:
    if one.slot.outer is None:
        return is_same_value(one.slot, other.slot)
    return one.slot.outer == other.slot.outer and are_alike(one.expression.type, other.expression.type)


def check_alike(kept: Slot, own: SqlType, other: Slot, type: SqlType) -> None:
    """:raises Unsupported: one value would be taken for two ('07' is a text, and 7), or a list for a value."""
    if not are_alike(own, type):
        raise Unsupported(
            f'the parameter "{other.name}" compared with columns of the types {own} and {type}',
            hint="give each its own parameter, or CAST one of the columns",
        )
    if kept.kind is ParameterKind.IN and other.kind is not ParameterKind.IN:
        raise Unsupported(
            f'the parameter "{other.name}" as a list and as a value', hint="give each comparison a parameter of its own"
        )


def _makes_equal(one: Wide, other: Wide) -> bool:
    """Whether columns that are compared with one value equal each other.

    :raises Unsupported: they do not compare alike: '07' and 7 both equal 7, and not each other.
    """
    check_alike(other.slot, other.expression.type, one.slot, one.expression.type)
    return one.slot.kind is ParameterKind.EQUAL and other.slot.kind is ParameterKind.EQUAL


_FUNCTIONS = {
    ParameterKind.EQUAL: "eq",
    ParameterKind.IN: "in",
    ParameterKind.LESS: "lt",
    ParameterKind.LESS_EQUAL: "le",
    ParameterKind.GREATER: "gt",
    ParameterKind.GREATER_EQUAL: "ge",
}


def late_condition(wide: Wide) -> Expression:
    """The comparison of a parameter that is no key, as a condition that is applied when the answer is read."""
    slot = wide.slot
    if slot.moment is not None:
        given = parameter_call(slot.key, slot.moment.type, exact=False)
    else:
        given = parameter_call(slot.key, wide.expression.type)
    return call(_FUNCTIONS[slot.kind], wide.expression, given)


def _inner_conditions(source: Source | None) -> list[Expression]:
    if not isinstance(source, Inner):
        return []
    return [*source.conditions, *(c for child in source.children for c in _inner_conditions(child))]
