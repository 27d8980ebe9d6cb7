"""A view's part of the dataflow as a tree: operators as σ π ⋈ ⟕ γ ∪ τ, what each keeps, by which columns, and why.

::

    reader StoriesWithVC  partial by (id)
    └─ π id, author, title, url, vcount
       └─ ⋈ id = story_id
          ├─ stories  base, indexed by (id)
          └─ γ story_id; COUNT(*)  partial by (story_id)
             └─ votes  base, indexed by (story_id)

In a deployment of several shards it also says how nodes stand in them, where that is not as their parents do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from domains.plan.estimates import Estimated
from domains.plan.graph import Columns, Node, NodeIndex, Ranges
from domains.plan.graph import Materialization as Kept
from domains.plan.traits import is_base, is_egress, is_ingress, is_reader, traits_of
from migrations.flow.dataflow import Dataflow

RENDERING = "0.2 µs an element"
"""What a text of all elements of a group costs each time that one changes: 0.16 of 10 elements, 0.6 of 10,000."""


def explain(flow: Dataflow, root: NodeIndex) -> str:
    """The tree below ``root``. A node that is reached a second time is only named."""

    def named(node: Node) -> str:
        return f"[{node.index}] {operator_text(flow, node)}"

    def kept(node: Node) -> str:
        standing = sharding_text(flow, node.index)
        return state_text(node) + (f"  {standing}" if standing else "")

    return "\n".join(tree_lines(root, flow.node, named, kept))


def explain_query(
    node_of: Callable[[NodeIndex], Node],
    root: NodeIndex,
    known: Mapping[NodeIndex, Estimated],
    done: Mapping[NodeIndex, str],
    walked: Mapping[NodeIndex, str],
) -> str:
    """The tree of a query that is evaluated once, and keeps nothing: with the walks of tables, the rows that are
    expected, where known, and what was done at a node, where it was run."""

    def named(node: Node) -> str:
        return traits_of(node.operator).text([names_of(node_of(parent)) for parent in node.parents])

    def expected(node: Node) -> str:
        rows = f"  {walked[node.index]}" if node.index in walked else ""
        rows += f"  ~{max(1, round(known[node.index].rows)):,} rows" if node.index in known else ""
        return f"{rows}  ({done[node.index]})" if node.index in done else rows

    return "\n".join(tree_lines(root, node_of, named, expected))


def tree_lines(
    root: NodeIndex,
    node_of: Callable[[NodeIndex], Node],
    named: Callable[[Node], str],
    kept: Callable[[Node], str],
) -> Iterator[str]:
    """The tree, with what ``named`` says of each node and ``kept`` of its state where it is first reached."""
    seen: set[NodeIndex] = set()

    def write(index: NodeIndex, first: str, rest: str) -> Iterator[str]:
        node = node_of(index)
        if index in seen:
            yield f"{first}{named(node)} (as above)"
            return
        seen.add(index)
        yield f"{first}{named(node)}{kept(node)}"
        for number, parent in enumerate(node.parents):
            last = number == len(node.parents) - 1
            yield from write(parent, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    return write(root, "", "")


def names_of(node: Node) -> list[str]:
    return [column.name for column in node.columns]


def operator_text(flow: Dataflow, node: Node) -> str:
    """One operator in symbols, with the names of its parents' columns."""
    names = [names_of(flow.node(parent)) for parent in node.parents]
    text = traits_of(node.operator).text(names)
    is_link = is_ingress(node.operator) or is_egress(node.operator)
    return f"{text}, domain {node.domain}" if is_link else text


def state_text(node: Node) -> str:
    """What the node keeps, by which columns, and why it is full."""
    names = names_of(node)
    by = ", ".join(_columns_text(columns, names) for columns in node.indexes)
    if is_reader(node.operator) and node.operator.seek:
        by += f", sought by {_columns_text(node.operator.seek, names)}"
    if is_reader(node.operator) and node.operator.ranges:
        by += f", walked within {_range_text(node.operator.ranges, names)}"
    if is_base(node.operator):
        key = _columns_text(node.operator.primary_key, names) if node.operator.primary_key else "a bag"
        return f"  base, {key}" + (f", indexed by {by}" if by else "")
    if node.materialization is Kept.NONE or is_egress(node.operator):
        return ""
    cost = f"; a change renders its text anew, {RENDERING}" if traits_of(node.operator).renders else ""
    if node.materialization is Kept.FULL:
        return f"  full by {by}: {node.reason}{cost}" if by else f"  full: {node.reason}{cost}"
    return f"  partial by {by}{cost}"


def sharding_text(flow: Dataflow, index: NodeIndex) -> str:
    """How a node stands in the shards, where it does not just stand as its parents; empty with one shard."""
    node, sharding = flow.node(index), flow.sharding[index]
    ends = is_base(node.operator) or is_ingress(node.operator) or is_reader(node.operator)
    if flow.shards == 1 or not ends:
        return ""
    moved = is_ingress(node.operator) and flow.sharding[node.parents[0]] != sharding
    if sharding.shards == 1:
        return f"{'gathered ' if moved else ''}in shard {sharding.first}"
    names = " = ".join(dict.fromkeys(node.columns[column].name for column in sorted(sharding.columns)))
    if not names:
        return f"anywhere in {sharding.shards} shards"
    return f"{'shuffled' if moved else 'sharded'} {sharding.shards} ways by {names}"


def _range_text(ranges: Ranges, names: Sequence[str]) -> str:
    """The columns by which a range is sought, in their order."""
    alternatives = [terms for some in ranges for terms in some]
    longest = max(alternatives, key=lambda terms: len({term.column for term in terms}))
    return f"a range of {_columns_text(tuple(dict.fromkeys(term.column for term in longest)), names)}"


def _columns_text(columns: Columns, names: Sequence[str]) -> str:
    return f"({', '.join(names[column] for column in columns)})"
