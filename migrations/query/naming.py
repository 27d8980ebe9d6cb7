"""Parameters get their names: that of their column, unique within the view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domains.graph import Parameter, ParameterKind
from domains.types import Column
from migrations.query.relation import Slot

LOWER = (ParameterKind.GREATER, ParameterKind.GREATER_EQUAL)
UPPER = (ParameterKind.LESS, ParameterKind.LESS_EQUAL)


@dataclass(frozen=True, slots=True)
class Placed:
    """A parameter and the view's column that it is compared with; None for LIMIT and OFFSET."""

    slot: Slot
    column: int | None


def name_parameters(placed: Sequence[Placed], columns: Sequence[Column]) -> tuple[Parameter, ...]:
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


def _bound(p: Placed, placed: Sequence[Placed]) -> str:
    """The suffix that tells the bounds of one column apart; nothing where there is only one."""
    if p.slot.named or p.slot.kind not in (*LOWER, *UPPER):
        return ""
    ours, others = (LOWER, UPPER) if p.slot.kind in LOWER else (UPPER, LOWER)
    if not any(o.column == p.column and o.slot.kind in others for o in placed):
        return ""
    return "_min" if ours is LOWER else "_max"
