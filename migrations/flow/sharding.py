"""How each operator stands in shards: what it wants of its parents, and how it then stands itself.

An operator is right in every shard on its own where all rows that meet stand together: rows of one group, rows with one
join key, rows of one look-up. Where the parents do not stand so already, a *shuffle* lies between (``dataflow.py``):

============  =====================================================  ============================================
operator      wants                                                  stands
============  =====================================================  ============================================
Base          –                                                      by the table's SHARD BY column
σ, π          its parent as it stands                                as its parent; anywhere if π drops the column
∪             all alike; of different factors the largest            as all of them, or anywhere
γ, τ          its parent by a column of the group; else gathered     by what is left of that in its output
⋈, ⟕          both by the same pair of join columns; else gathered   by both of the pair; ⟕ by the left one
reader        its parent by a key column; without a key gathered     as its parent
============  =====================================================  ============================================

*Gathered* is all in one shard, by turns another one. Where what is gathered can be cut down in each shard
first (the first rows of a TopK, the parts of a sum), :func:`in_two_phases` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from domains.language.expressions import Field
from domains.language.types import Kind, TableSchema
from domains.plan.graph import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Base,
    Columns,
    Egress,
    Filter,
    Ingress,
    Join,
    JoinKind,
    Node,
    Operator,
    Project,
    Reader,
    Sharding,
    TopK,
    Union,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a node's parents have to stand, as it sees them, and how it then stands."""

    parents: tuple[Sharding, ...]
    own: Sharding


def of_base(base: Base, schema: TableSchema, shards: int) -> Sharding:
    """A base stands as its table is stored; ``shards`` is the deployment's factor."""
    factor = schema.shards or shards
    if factor == 1:
        return Sharding()
    columns = [at for at, column in enumerate(base.columns) if column == schema.shard_column]
    return Sharding(factor, frozenset(columns))


def standing(
    node: Node,
    parents: Sequence[Sharding],
    widths: Sequence[int],
    lookups: Iterable[Columns],
    gather_in: Callable[[], int],
) -> Standing:
    """For a node over parents that stand so, ``widths`` columns wide.

    ``lookups`` are what is asked of the node from below: of several columns that would do, one of them is chosen.
    ``gather_in`` tells the shard that has everything where everything must be in one.
    """
    asked = [column for columns in lookups for column in columns]
    operator = node.operator
    match operator:
        case Filter() | Egress() | Ingress():
            return Standing((parents[0],), parents[0])
        case Project(expressions=expressions):
            left = [at for at, e in enumerate(expressions) if isinstance(e, Field) and e.position in parents[0].columns]
            return Standing((parents[0],), replace(parents[0], columns=frozenset(left)))
        case Union():
            return _union(parents, asked)
        case Aggregate(group=group):
            wanted = _together(parents[0], group, [group[at] for at in asked if at < len(group)], gather_in)
            left = [at for at, column in enumerate(group) if column in wanted.columns]
            return Standing((wanted,), replace(wanted, columns=frozenset(left)))
        case TopK(group=group):
            wanted = _together(parents[0], group, asked, gather_in)
            return Standing((wanted,), wanted)
        case Reader(key=key):
            wanted = _together(parents[0], key, (), gather_in)
            return Standing((wanted,), wanted)
        case Join():
            return _join(operator, parents[0], parents[1], widths[0], asked, gather_in)
        case Base():
            raise AssertionError("a base has no parents: of_base")
        case _:
            assert_never(operator)


def by_column(column: int, shards: int, first: int = 0) -> Sharding:
    return Sharding(shards, frozenset((column,)) if shards > 1 else frozenset(), first)


def _together(parent: Sharding, group: Columns, asked: Collection[int], gather_in: Callable[[], int]) -> Sharding:
    """Rows that agree on all of ``group`` in one place: where they are already, if they are."""
    if parent.shards == 1 or not parent.columns.isdisjoint(group):
        return parent
    if not group:
        return Sharding(first=gather_in())
    column = next((column for column in asked if column in group), group[0])
    return by_column(column, parent.shards, parent.first)


def _union(parents: Sequence[Sharding], asked: Sequence[int]) -> Standing:
    largest = max(parents, key=lambda parent: parent.shards)
    common = frozenset[int].intersection(*(p.columns for p in parents if _in_the_same(p, largest)))
    known = sorted(common or largest.columns)
    column = next((column for column in asked if not known or column in known), known[0] if known else 0)
    moved = by_column(column, largest.shards, largest.first)
    wanted = tuple(parent if _in_the_same(parent, largest) else moved for parent in parents)
    columns = frozenset[int].intersection(*(parent.columns for parent in wanted))
    return Standing(wanted, replace(largest, columns=columns))


def _in_the_same(one: Sharding, other: Sharding) -> bool:
    return (one.shards, one.first) == (other.shards, other.first)


def _join(
    join: Join, left: Sharding, right: Sharding, left_width: int, asked: Sequence[int], gather_in: Callable[[], int]
) -> Standing:
    pairs = tuple(zip(join.left_on, join.right_on, strict=True))
    if left.shards == right.shards == 1:
        return Standing((left, left), left)
    if not pairs:
        one = next((side for side in (left, right) if side.shards == 1), Sharding(first=gather_in()))
        return Standing((one, one), one)
    stands = [(a in left.columns, b in right.columns) for a, b in pairs]
    if _in_the_same(left, right) and (True, True) in stands:
        wanted = (left, right)
    else:
        wanted = _moved(pairs, stands, left, right, left_width, asked)
    columns = wanted[0].columns
    if join.kind is JoinKind.INNER:
        columns |= {left_width + column for column in wanted[1].columns}
    return Standing(wanted, replace(wanted[0], columns=columns))


def _moved(
    pairs: Sequence[tuple[int, int]],
    stands: Sequence[tuple[bool, bool]],
    left: Sharding,
    right: Sharding,
    left_width: int,
    asked: Sequence[int],
) -> tuple[Sharding, Sharding]:
    """One side or both go where they meet: to the side that stands by a join column, of two such to the larger."""
    to_left = next((pair for pair, stand in zip(pairs, stands, strict=True) if stand[0]), None)
    to_right = next((pair for pair, stand in zip(pairs, stands, strict=True) if stand[1]), None)
    if to_left is not None and (to_right is None or left.shards >= right.shards):
        return left, by_column(to_left[1], left.shards, left.first)
    if to_right is not None:
        return by_column(to_right[0], right.shards, right.first), right
    largest = max(left, right, key=lambda side: side.shards)
    a, b = next((pair for pair in pairs if pair[0] in asked or left_width + pair[1] in asked), pairs[0])
    return by_column(a, largest.shards, largest.first), by_column(b, largest.shards, largest.first)


# --- cutting down before gathering ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Phases:
    """An operator that wants everything gathered, as one in each shard (same output columns) and one over those."""

    each: Operator
    merged: Operator


_MERGED = {
    AggregateFunction.COUNT_ROWS: AggregateFunction.SUM,
    AggregateFunction.COUNT: AggregateFunction.SUM,
    AggregateFunction.SUM: AggregateFunction.SUM,
    AggregateFunction.MIN: AggregateFunction.MIN,
    AggregateFunction.MAX: AggregateFunction.MAX,
}
"""What makes one value of the values of all shards. The distinct ones and the averages would need more than a value."""


def in_two_phases(operator: Operator) -> Phases | None:
    """None where the rows themselves have to be gathered.

    The row of a scalar aggregate is there over no input too, in each shard; so a sum of COUNTs is never over nothing.
    """
    match operator:
        case TopK(group=(), limit=limit, offset=offset):
            return Phases(replace(operator, limit=limit + offset, offset=0), operator)
        case Aggregate(group=(), calls=calls) if calls and all(map(_mergeable, calls)):
            merged = tuple(AggregateCall(_MERGED[call.function], at, call.type) for at, call in enumerate(calls))
            return Phases(operator, replace(operator, calls=merged))
        case _:
            return None


def _mergeable(call: AggregateCall) -> bool:
    # A sum of doubles is exact until its end, where it is rounded: a sum of rounded sums could differ in the last bit.
    exact = call.function is not AggregateFunction.SUM or call.type.kind is not Kind.DOUBLE
    return call.function in _MERGED and exact
