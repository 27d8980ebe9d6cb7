"""How each operator stands in shards: what it wants of its parents, and how it then stands itself.

An operator is right in every shard on its own where all rows that meet stand together: rows of one group, rows with one
join key, rows of one look-up. Where the parents do not stand so already, a *shuffle* lies between (``dataflow.py``):

============  =====================================================  ============================================
operator      wants                                                  stands
============  =====================================================  ============================================
Base          –                                                      by the table's SHARD BY column
σ, π          its parent as it stands                                as its parent; anywhere if π drops the column
∪             all alike; of different factors the largest            as all of them, or anywhere
fix           all gathered in one shard                              there
γ, τ          its parent by a column of the group; else gathered     by what is left of that in its output
⋈, ⟕          both by the same pair of join columns; else gathered   by both of the pair; ⟕ by the left one
reader        its parent by a key column; without a key gathered     as its parent
============  =====================================================  ============================================

*Gathered* is all in one shard, by turns another one. Where what is gathered can be cut down in each shard
first (the first rows of a TopK, the parts of a sum), ``Traits.phases`` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from domains.language.types import Kind, TableSchema
from domains.plan.graph import Base, Columns, Node, Sharding
from domains.plan.questions import Matching
from domains.plan.traits import traits_of


@dataclass(frozen=True, slots=True)
class Standing:
    """How a node's parents have to stand, as it sees them, and how it then stands."""

    parents: tuple[Sharding, ...]
    own: Sharding


def of_base(base: Base, schema: TableSchema, shards: int) -> Sharding:
    """A base stands as its table is stored; ``shards`` is the deployment's factor.

    A document's shard is that of its text: rows whose documents are equal need not be in one.
    """
    factor = schema.shards or shards
    if factor == 1:
        return Sharding()
    columns = [at for at, column in enumerate(base.columns) if column == schema.shard_column]
    if schema.columns[schema.shard_column].type.kind is Kind.JSON:
        columns = []
    return Sharding(factor, frozenset(columns))


def standing(
    node: Node,
    parents: Sequence[Sharding],
    widths: Sequence[int],
    lookups: Iterable[Columns],
    gather_in: Callable[[], int],
) -> Standing:
    """The sharding of a node over parents that stand so, ``widths`` columns wide.

    ``lookups`` are what is asked of the node from below: of several columns that would do, one of them is chosen.
    ``gather_in`` tells the shard that has everything where everything must be in one.
    """
    assert parents, "a base has no parents: of_base"
    asked = [column for columns in lookups for column in columns]
    traits = traits_of(node.operator)
    if traits.matching is not None:
        return _join(traits.matching, parents[0], parents[1], widths[0], asked, gather_in)
    if traits.goes_round:
        together = (
            parents[0] if all(p == parents[0] and p.shards == 1 for p in parents) else Sharding(first=gather_in())
        )
        return Standing((together,) * len(parents), together)
    if len(parents) > 1:
        return _union(parents, asked)
    wanted = parents[0]
    if traits.groups_by is not None:
        (group,), (chosen,) = (traits.origins(columns, widths) for columns in (traits.groups_by, tuple(asked)))
        wanted = _together(wanted, group, chosen, gather_in)
    (origins,) = traits.origins(tuple(range(len(node.columns))), widths)
    left = [at for at, column in enumerate(origins) if column in wanted.columns]
    return Standing((wanted,), replace(wanted, columns=frozenset(left)))


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
    matching: Matching,
    left: Sharding,
    right: Sharding,
    left_width: int,
    asked: Sequence[int],
    gather_in: Callable[[], int],
) -> Standing:
    pairs = tuple(zip(*matching.on, strict=True))
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
    if not matching.outer:
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
