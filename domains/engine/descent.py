"""Which base table's rows an operator's rows come from one by one, so that a walk of the table in an order gives its
rows in that order, and conditions on its columns are conditions on the table's.

::

    ORDER BY id LIMIT 20  ─► π ─► ⋈ ─► σ a < 7 ─► t     order: (id); boxes: {a < 7}
                                  │
                                  └─► u                looked up for each row that comes, by an index

What filters on the way demand is added. The rows that come up are walked in slices; whoever wants twenty stops when it
has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from domains.plan.graph import Columns, Node, NodeIndex, OrderTerm
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import is_base, traits_of
from domains.store.walking import EVERYWHERE, Boxes, both, boxes_of, is_ordered


@dataclass(frozen=True, slots=True)
class Descent:
    base: Node
    order: tuple[OrderTerm, ...]
    """By positions in stored rows, as are the boxes."""
    boxes: Boxes
    way: tuple[tuple[NodeIndex, int], ...]
    """The nodes above the base, the uppermost first, and from which parent of each its rows come."""


def descend(
    node: Node,
    parents: Callable[[Node], Sequence[Node]],
    order: Sequence[OrderTerm],
    boxes: Boxes,
    *,
    is_sought: Callable[[Node, Columns], bool],
    stops: Collection[NodeIndex] = (),
) -> Descent | None:
    """None: the rows are grouped, or the order is not that of one base table. ``is_sought``: whether look-ups of a node
    by columns come down to an index; nodes of ``stops`` come from elsewhere."""
    way: list[tuple[NodeIndex, int]] = []
    terms = tuple(order)
    while not is_base(base := node.operator):
        traits, above = traits_of(node.operator), parents(node)
        matching = traits.matching
        if node.index in stops or traits.own_state or (matching is None and len(above) != 1):
            return None
        if matching is not None and not terms:
            return None
        if traits.demands is not None:
            boxes = both(boxes, boxes_of(traits.demands, above[0].columns))
        for side in (LEFT,) if matching is None or matching.outer else (LEFT, RIGHT):
            if matching is not None and not is_sought(above[1 - side], matching.on[1 - side]):
                continue
            moved = _moved(node, above, side, terms, boxes)
            if moved is not None:
                break
        else:
            return None
        terms, boxes = moved
        way.append((node.index, side))
        node = above[side]
    if node.index in stops or not all(is_ordered(node.columns[term.column].type) for term in terms):
        return None
    columns = base.columns
    stored = tuple(OrderTerm(columns[term.column], term.descending) for term in terms)
    ordered = {at for at, column in enumerate(node.columns) if is_ordered(column.type)}
    kept = tuple({columns[at]: bounds for at, bounds in box.items() if at in ordered} for box in boxes)
    return Descent(node, stored, kept if all(kept) else EVERYWHERE, tuple(way))


def _moved(
    node: Node, above: Sequence[Node], side: int, terms: tuple[OrderTerm, ...], boxes: Boxes
) -> tuple[tuple[OrderTerm, ...], Boxes] | None:
    """Order and boxes in the columns of a parent; what it does not have of boxes is left out."""
    columns = tuple(dict.fromkeys([*(term.column for term in terms), *(at for box in boxes for at in box)]))
    origins = traits_of(node.operator).origins(columns, [len(parent.columns) for parent in above])[side]
    places: dict[int, int] = {}
    for column, origin in zip(columns, origins, strict=True):
        if origin != COMPUTED:
            ours, its = node.columns[column].type, above[side].columns[origin].type
            if ours.kind is its.kind and ours.equality is its.equality:
                places[column] = origin
    if not all(term.column in places for term in terms):
        return None
    found: Boxes = ()
    for box in boxes:
        moved = EVERYWHERE
        for at, bounds in box.items():
            if at in places:
                moved = both(moved, ({places[at]: bounds},))
        found += moved
    if not all(found):
        found = EVERYWHERE  # One of them may be anywhere.
    return tuple(OrderTerm(places[term.column], term.descending) for term in terms), found
