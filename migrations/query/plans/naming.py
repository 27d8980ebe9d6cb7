"""The names of a view's parameters (that of their column, unique within the view), and what tells its rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domains.language.expressions import Field
from domains.language.types import Column
from domains.plan.graph import Parameter, ParameterKind
from migrations.query.relation import LOWER, ORDERS, UPPER, Relation, Slot


@dataclass(frozen=True, slots=True)
class PlacedParameter:
    """A parameter and the column that it is compared with; None for LIMIT, OFFSET and what the view's finish reads."""

    slot: Slot
    column: int | None


def name_parameters(placed: Sequence[PlacedParameter], columns: Sequence[Column]) -> tuple[Parameter, ...]:
    """``id``, ``id_2``; the two bounds of one column are ``created_at_min`` and ``created_at_max``."""
    taken: set[str] = set()
    parameters = []
    for p in placed:
        name = wanted = p.slot.name + _bound(p, placed)
        count = 1
        while name.lower() in taken:
            count += 1
            name = f"{wanted}_{count}"
        taken.add(name.lower())
        type = p.slot.type if p.column is None else columns[p.column].type
        parameters.append(Parameter(name, p.slot.kind, p.column, type))
    return tuple(parameters)


def _bound(p: PlacedParameter, placed: Sequence[PlacedParameter]) -> str:
    """The suffix that tells the bounds of one column apart; nothing where there is only one."""
    if p.slot.named or p.slot.moment is not None or p.slot.kind not in ORDERS:
        return ""
    ours, others = (LOWER, UPPER) if p.slot.kind in LOWER else (UPPER, LOWER)
    if not any(o.column == p.column and o.slot.kind in others and o.slot.moment is None for o in placed):
        return ""
    return "_min" if ours is LOWER else "_max"


def told_apart(relation: Relation) -> tuple[int, ...] | None:
    """The fewest visible columns with whose values an answer has one row at most."""
    if relation.late.groups is not None or relation.late.matches:
        return None
    shown: dict[int, int] = {}
    for place, output in enumerate(relation.outputs):
        if isinstance(output.expression, Field):
            shown.setdefault(output.expression.position, place)
    given = {carried.column for carried in relation.carried if carried.slot.kind is ParameterKind.EQUAL}
    found = [
        tuple(sorted(shown[column] for column in unique if column in shown))
        for unique in relation.uniques
        if unique <= shown.keys() | given
    ]
    return min(found, key=lambda columns: (len(columns), columns), default=None)
