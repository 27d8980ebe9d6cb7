"""What EXPLAIN says of walks: the tables of which an evaluation reads a range, or the first rows in an order.

It is decided as ``domains/engine/walks.py`` does it, by the indexes that the tables are declared with, and whatever the
values of the parameters are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from domains.engine.descent import Descent, descend
from domains.engine.evaluation import EvaluationPlan
from domains.plan.graph import Columns, Node, NodeIndex, OrderTerm, ParameterKind
from domains.plan.sides import COMPUTED
from domains.plan.traits import is_base, traits_of
from domains.store.storage import best_key
from domains.store.walking import (
    EVERYWHERE,
    Bounds,
    Box,
    Boxes,
    Walk,
    exactly,
    is_covered,
    narrowest,
    orders_of,
    walk_in_order,
)

_ONE = exactly(b"")
_RANGE: Bounds = ((b"", True), None)
"""What stands for a value that is not known yet, and for a range."""


@dataclass(frozen=True, slots=True)
class TableWalk:
    base: NodeIndex
    text: str
    count: int | None
    """How many rows are wanted of it, where that is a constant."""
    is_whole: bool
    """Whether no condition turns down what it meets."""
    above: NodeIndex | None
    """The node that it is walked for: a filter, where it is no other."""


def table_walks(plan: EvaluationPlan) -> Iterator[TableWalk]:
    reader, root = plan.reader, plan.nodes[-1]
    boxes = _boxes_of_reader(plan)
    is_limited = reader.limit is not None or any(p.kind is ParameterKind.LIMIT for p in reader.parameters)
    count = None if reader.limit is None else reader.limit + reader.offset
    asked: list[tuple[Node, Sequence[OrderTerm], Boxes, int | None]] = []
    asked.append((root, reader.order if is_limited else (), boxes, count))
    nodes = {node.index: node for node in plan.nodes}
    for node in plan.nodes:
        cut = traits_of(node.operator).cut
        if cut is not None:
            group: Boxes = (dict.fromkeys(cut.group, _ONE),)
            asked.append((nodes[node.parents[0]], cut.order, group, cut.limit + cut.offset))
    asked += [(node, (), EVERYWHERE, None) for node in plan.nodes if traits_of(node.operator).demands is not None]
    seen: set[NodeIndex] = set()
    for top, order, within, wanted in asked:
        found = descend(
            top,
            lambda node: [nodes[parent] for parent in node.parents],
            order,
            within,
            is_sought=lambda node, columns: is_sought(plan, node, columns),
        )
        walk = None if found is None else _walk_of(plan, found, bool(order))
        if found is not None and walk is not None and found.base.index not in seen:
            seen.add(found.base.index)
            filtered = any(traits_of(nodes[index].operator).demands is not None for index, _ in found.way)
            whole = is_covered(walk.order, found.boxes) and not (filtered and found.boxes == EVERYWHERE)
            yield TableWalk(
                found.base.index,
                _text(found, walk, bool(order)),
                wanted if order else None,
                whole,
                found.way[-1][0] if found.way else None,
            )


def _walk_of(plan: EvaluationPlan, found: Descent, ordered: bool) -> Walk | None:
    base = found.base.operator
    assert is_base(base)
    schema = next(schema for schema in plan.tables if schema.name.lower() == base.table.lower())
    orders = orders_of(schema, (*schema.unique, *schema.indexes))
    if ordered:
        return walk_in_order(orders, schema.primary_key, found.boxes, found.order)
    return narrowest(orders, found.boxes)


def _boxes_of_reader(plan: EvaluationPlan) -> Boxes:
    reader = plan.reader
    box: dict[int, Bounds] = dict.fromkeys(reader.key, _ONE)
    for parameter in reader.parameters:
        if parameter.column is not None and parameter.column not in box:
            equal = parameter.kind in (ParameterKind.EQUAL, ParameterKind.IN)
            box[parameter.column] = _ONE if equal else _RANGE
    if not reader.ranges:
        return (box,)
    found: list[Box] = []
    for terms in (terms for alternatives in reader.ranges[:1] for terms in alternatives):
        of_range = {t.column: _ONE if t.kind is ParameterKind.EQUAL else _RANGE for t in terms}
        ranged = {term.column for some in reader.ranges for each in some for term in each}
        found.append({**{at: bounds for at, bounds in box.items() if at not in ranged}, **of_range})
    return tuple(found)


def _text(found: Descent, walk: Walk, ordered: bool) -> str:
    base = found.base.operator
    assert is_base(base)
    names = {stored: column.name for stored, column in zip(base.columns, found.base.columns, strict=True)}
    columns = ", ".join(names.get(column, "…") for column in dict.fromkeys(walk.order))
    is_ranged = any(walk.order[0] in box for box in found.boxes)
    way = "walked downwards" if walk.descending else "walked"
    return f"{way} by ({columns})" + (" within a range" if is_ranged else "") + (", the first rows" if ordered else "")


def is_sought(plan: EvaluationPlan, node: Node, columns: Columns) -> bool:
    """Whether an index of a base table has values of these columns."""
    nodes = {node.index: node for node in plan.nodes}
    tables = {schema.name.lower(): schema for schema in plan.tables}

    def decides(node: Node, columns: Columns) -> bool:
        base = node.operator
        if is_base(base):
            schema = tables[base.table.lower()]
            return bool(best_key(schema, (*schema.unique, *schema.indexes), {base.columns[at] for at in columns}))
        parents = [nodes[index] for index in node.parents]
        origins = traits_of(base).origins(columns, [len(parent.columns) for parent in parents])
        known = [tuple(column for column in own if column != COMPUTED) for own in origins]
        return any(map(decides, parents, known))

    return decides(node, columns)
