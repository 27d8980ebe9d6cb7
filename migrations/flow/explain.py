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

from collections.abc import Sequence
from typing import assert_never

from domains.language.description import describe
from domains.plan.graph import (
    Aggregate,
    AggregateCall,
    Base,
    Columns,
    Egress,
    Filter,
    Ingress,
    Join,
    JoinKind,
    Node,
    NodeIndex,
    OrderTerm,
    Project,
    Reader,
    TopK,
    Union,
)
from domains.plan.graph import Materialization as Kept
from migrations.flow.dataflow import Dataflow


def explain(flow: Dataflow, root: NodeIndex) -> str:
    """The tree below ``root``. A node that is reached a second time is only named."""
    lines: list[str] = []
    _write(flow, root, "", "", set(), lines)
    return "\n".join(lines)


def _write(flow: Dataflow, index: NodeIndex, first: str, rest: str, seen: set[NodeIndex], lines: list[str]) -> None:
    node = flow.node(index)
    if index in seen:
        lines.append(f"{first}[{index}] {operator_text(flow, node)} (as above)")
        return
    seen.add(index)
    standing = sharding_text(flow, index)
    line = f"{first}[{index}] {operator_text(flow, node)}{state_text(node)}"
    lines.append(line + (f"  {standing}" if standing else ""))
    for number, parent in enumerate(node.parents):
        last = number == len(node.parents) - 1
        _write(flow, parent, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), seen, lines)


def operator_text(flow: Dataflow, node: Node) -> str:
    """One operator in symbols, with the names of its parents' columns."""
    names = [[column.name for column in flow.node(parent).columns] for parent in node.parents]
    operator = node.operator
    match operator:
        case Base(table=table):
            return table
        case Filter(predicate=predicate):
            return f"σ {describe(predicate, names[0])}"
        case Project(expressions=expressions):
            return f"π {', '.join(describe(e, names[0]) for e in expressions)}"
        case Union():
            return "∪"
        case Join(kind=kind, left_on=left_on, right_on=right_on, residual=residual):
            on = [f"{names[0][a]} = {names[1][b]}" for a, b in zip(left_on, right_on, strict=True)]
            if residual is not None:
                on.append(describe(residual, names[0] + names[1]))
            symbol = "⋈" if kind is JoinKind.INNER else "⟕"
            return f"{symbol} {' AND '.join(on)}" if on else "×"
        case Aggregate(group=group, calls=calls):
            functions = [_call_text(call, names[0]) for call in calls]
            return f"γ {', '.join(names[0][c] for c in group) or '()'}" + (f"; {', '.join(functions)}" if calls else "")
        case TopK(group=group, order=order, limit=limit, offset=offset):
            each = f" of each {', '.join(names[0][c] for c in group)}" if group else ""
            skipped = f" after {offset}" if offset else ""
            return f"τ {limit}{skipped}{each}{_order_text(order, names[0])}"
        case Ingress(source=source):
            return f"ingress of {source}, domain {node.domain}"
        case Egress():
            return f"egress, domain {node.domain}"
        case Reader(view=view, order=order):
            return f"reader {view}{_order_text(order, names[0])}"
        case _:
            assert_never(operator)


def state_text(node: Node) -> str:
    """What the node keeps, by which columns, and why it is full."""
    names = [column.name for column in node.columns]
    by = ", ".join(_columns_text(columns, names) for columns in node.indexes)
    if isinstance(node.operator, Reader) and node.operator.seek:
        by += f", sought by {_columns_text(node.operator.seek, names)}"
    if isinstance(node.operator, Base):
        key = _columns_text(node.operator.primary_key, names) if node.operator.primary_key else "a bag"
        return f"  base, {key}" + (f", indexed by {by}" if by else "")
    if node.materialization is Kept.NONE or isinstance(node.operator, Egress):
        return ""
    if node.materialization is Kept.FULL:
        return f"  full by {by}: {node.reason}" if by else f"  full: {node.reason}"
    return f"  partial by {by}"


def sharding_text(flow: Dataflow, index: NodeIndex) -> str:
    """How a node stands in the shards, where it does not just stand as its parents; empty with one shard."""
    node, sharding = flow.node(index), flow.sharding[index]
    if flow.shards == 1 or not isinstance(node.operator, Base | Ingress | Reader):
        return ""
    moved = isinstance(node.operator, Ingress) and flow.sharding[node.parents[0]] != sharding
    if sharding.shards == 1:
        return f"{'gathered ' if moved else ''}in shard {sharding.first}"
    names = " = ".join(dict.fromkeys(node.columns[column].name for column in sorted(sharding.columns)))
    if not names:
        return f"anywhere in {sharding.shards} shards"
    return f"{'shuffled' if moved else 'sharded'} {sharding.shards} ways by {names}"


def _columns_text(columns: Columns, names: Sequence[str]) -> str:
    return f"({', '.join(names[column] for column in columns)})"


def _call_text(call: AggregateCall, names: Sequence[str]) -> str:
    argument = "*" if call.argument is None else names[call.argument]
    name = call.function.value.upper().removesuffix("_ROWS")
    if name.endswith("_DISTINCT"):
        name, argument = name.removesuffix("_DISTINCT"), f"DISTINCT {argument}"
    return f"{name}({argument})"


def _order_text(order: Sequence[OrderTerm], names: Sequence[str]) -> str:
    if not order:
        return ""
    terms = (f"{names[term.column]}{' DESC' if term.descending else ''}" for term in order)
    return f" by {', '.join(terms)}"
