"""What a reader keeps of a query that is finished when it is read, and of the queries that it asks first.

A subquery whose rows come to be when the answer is read, and that reads nothing of the query around, is a *parameter*
of that one: the look-up asks it first, and fills its answer in as it does what a client gives. Its rows S stand in the
same reader as those of the query R around, so that both are of one moment::

    σ_{x > (SELECT AVG(y) FROM S WHERE q)} R   =   σ_{x > a} R   where a = γ_{AVG(y)} σ_q S
    x IN (SELECT y FROM S WHERE q), EXISTS     =   x IN (l)      where l = π_y σ_q S

    the reader's rows:   (0, k, columns of R, NULL …)  ∪  (1, k, NULL …, columns of S)

What each of the parts compares with the same parameter is a column k of all of them, and a key or a range of the
reader; the rest is asked of each part's rows, as the number of the part is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.types import BIGINT, Column
from domains.plan.graph import ParameterKind
from migrations.query.expressions.late import has_parameter
from migrations.query.expressions.terms import moved, substituted
from migrations.query.finish import Finish, LateAnswer, named_apart
from migrations.query.plan import RelationalPlan, distinct, projected, united
from migrations.query.plans.late_queries import LateMatch, LateQuery, narrowed
from migrations.query.plans.naming import PlacedParameter
from migrations.query.relation import ORDERS, LateParts, Relation, Slot
from migrations.query.stage import Wide, check_alike, is_same_value, late_condition


def answers_below(relation: Relation) -> list[Slot]:
    """The parameters that queries below answer, each behind those that its own query asks."""
    found: dict[str, Slot] = {}
    for slot in relation.late.slots:
        if slot.answer is not None:
            found.update((each.key, each) for each in answers_below(slot.answer))
            found[slot.key] = slot
    return list(found.values())


@dataclass(frozen=True, slots=True)
class KeptPart:
    """The rows that a reader keeps of one query; all expressions are over them, or behind them."""

    plan: RelationalPlan
    placed: tuple[tuple[Expression, Slot], ...]
    """What is compared with parameters, as keys or ranges."""
    conditions: tuple[Expression, ...]
    matches: tuple[LateMatch, ...]
    single: tuple[Expression, ...]
    queries: tuple[LateQuery, ...]
    slots: tuple[Slot, ...]
    """Those that are in expressions, and that a client or the time gives."""

    def over(self, put: Callable[[Expression], Expression]) -> KeptPart:
        """With what is over its rows over others."""
        inmost, *others = self.queries
        return replace(
            self,
            placed=tuple((put(e), slot) for e, slot in self.placed),
            conditions=tuple(map(put, self.conditions)),
            matches=tuple(each.over(put) for each in self.matches),
            single=tuple(map(put, self.single)),
            queries=(inmost.over(put), *others),
        )


def kept_part(relation: Relation) -> KeptPart:
    plan, late = relation.plan, relation.late
    kept: dict[Expression, str] = {}

    def stored(e: Expression, title: str = "") -> Expression:
        if isinstance(e, Constant):
            return e
        if has_parameter(e):
            return substituted(e, stored)
        kept.setdefault(e, title or (plan.columns[e.position].name if isinstance(e, Field) else "computed"))
        return Field(list(kept).index(e), e.type)

    inmost, *others = narrowed((*late.below, relation.outermost))
    if not others and inmost.groups is None and inmost.windows is None:
        for output in relation.outputs:
            stored(output.expression, output.name)
    inmost = inmost.over(stored)
    matches = tuple(each.over(stored) for each in late.matches)
    conditions, single = tuple(stored(each) for each in late.conditions), tuple(map(stored, late.single))
    placed = tuple((stored(plan.field(c.column)), c.slot) for c in relation.carried)
    if not kept:
        stored(plan.field(0))
    narrow = projected(plan, list(kept), list(kept.values()))
    if inmost.distinct and inmost.groups is None and inmost.windows is None:
        narrow = distinct(narrow, tuple(range(narrow.width)))
    slots = tuple(slot for slot in late.slots if slot.answer is None)
    return KeptPart(narrow, placed, conditions, matches, single, (inmost, *others), slots)


def beside_each_other(parts: Sequence[KeptPart]) -> list[KeptPart]:
    """The parts over the rows of all, each of which says whose it is. What all compare with the same parameter stays a
    key, of the first one; what else each asks is asked of its own rows."""
    alike = _compared_alike(parts)
    titles = ["part", *(parts[0].placed[places[0]][1].name for places in alike)]
    titles += [column.name for part in parts for column in part.plan.columns]
    branches: list[RelationalPlan] = []
    for number, part in enumerate(parts):
        row: list[Expression] = [Constant(number, BIGINT), *(part.placed[places[number]][0] for places in alike)]
        for other in parts:
            row += other.plan.fields() if other is part else [Constant(None, c.type) for c in other.plan.columns]
        branches.append(projected(part.plan, row, titles))
    plan, begin = united(branches), 1 + len(alike)
    found: list[KeptPart] = []
    for number, part in enumerate(parts):
        keys = [places[number] for places in alike]
        own = part.over(lambda e, by=begin: moved(e, lambda place: by + place))  # type: ignore[misc]
        asked = [each for at, each in enumerate(own.placed) if at not in keys]
        is_own = call("eq", plan.field(0), Constant(number, BIGINT))
        conditions = (is_own, *own.conditions, *(late_condition(Wide(e, slot)) for e, slot in asked))
        slots = (*own.slots, *(slot for _, slot in asked), *(part.placed[at][1] for at in keys if number))
        placed = tuple((plan.field(1 + at), part.placed[key][1]) for at, key in enumerate(keys) if not number)
        found.append(replace(own, plan=plan, placed=placed, conditions=conditions, slots=slots))
        begin += part.plan.width
    return found


def _compared_alike(parts: Sequence[KeptPart]) -> list[list[int]]:
    """For each parameter that all parts compare with a column in the same way, its place among those of each part."""
    found: list[list[int]] = []
    for at, (own, slot) in enumerate(parts[0].placed):
        places = [at]
        for part in parts[1:]:
            places += [
                place
                for place, (other, theirs) in enumerate(part.placed)
                if slot.kind is theirs.kind and own.type == other.type and is_same_value(slot, theirs)
            ][:1]
        if len(places) == len(parts):
            found.append(places)
    return found


def finish_of(part: KeptPart, columns: Sequence[Column], places: tuple[tuple[str, int], ...] = ()) -> Finish:
    """What is done to the part's rows when they are read."""
    late = LateParts(part.conditions, part.matches, single=part.single)
    return Finish(named_apart(part.plan.columns), tuple(columns), late, part.queries, places)


def answer_of(slot: Slot, part: KeptPart) -> LateAnswer:
    assert slot.answer is not None, "a query below answers it"
    columns = slot.answer.columns
    if slot.each is not None:
        return LateAnswer(slot.key, False, (), finish_of(part, columns), slot.each, slot.width)
    (column,) = columns
    nothing = () if slot.answer.empty is None else (Constant(slot.answer.empty[0], column.type),)
    return LateAnswer(slot.key, slot.kind is ParameterKind.IN, nothing, finish_of(part, (column,)))


def keys_and_conditions(
    placed: Sequence[tuple[Expression, Slot]], late: Sequence[Slot]
) -> tuple[list[PlacedParameter], list[Expression]]:
    """The parameters with their columns, and the comparisons that no key and no seek does: a reader seeks one range.

    A ``:name`` that is compared with a column and stands elsewhere too is one parameter.
    """
    slots: list[PlacedParameter] = []
    conditions: list[Expression] = []
    ranged: int | None = None
    for field, slot in placed:
        assert isinstance(field, Field)
        if slot.kind in ORDERS:
            ranged = field.position if ranged is None else ranged
            if field.position != ranged:
                conditions.append(late_condition(Wide(field, slot)))
                slots.append(PlacedParameter(slot, None))
                continue
        slots.append(PlacedParameter(slot, field.position))
    for slot in late:
        if slot.moment is not None:
            slots += [] if any(p.slot == slot for p in slots) else [PlacedParameter(slot, None)]
            continue
        same = next((at for at, p in enumerate(slots) if is_same_value(p.slot, slot)), None)
        if same is None:
            slots.append(PlacedParameter(slot, None))
        else:
            check_alike(slots[same].slot, slots[same].slot.type, slot, slot.type)
            marks = tuple(sorted({*slots[same].slot.marks, *slot.marks}))
            slots[same] = replace(slots[same], slot=replace(slots[same].slot, marks=marks))
    return slots, conditions


def keys_of(slot: Slot) -> list[str]:
    """All that a parameter may be called in expressions."""
    own = [slot.key] if slot.named or slot.moment is not None else []
    return [*own, *(".".join(map(str, mark)) for mark in slot.marks)]
