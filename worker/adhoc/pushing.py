"""What of a question is done where its rows are, so that those that do not pass do not cross. Pure.

Over one shard, and again over what comes from all of them::

    π σ above a base table      its rows that have the keys; of the answer's own also the ranges, and a LIMIT
    γ τ above these             merged over shards: a sum of sums, the first rows of the first ones (``Traits.merging``)

What is above goes on where the question was asked, and looks up in the tables by their entries.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from domains.engine.evaluation import EvaluationPlan
from domains.plan.graph import Node, NodeIndex, Reader
from domains.plan.sides import COMPUTED, RIGHT
from domains.plan.traits import is_base, traits_of
from worker.adhoc.answer import Question
from worker.reader_map import BoundLookup

EVERYTHING = BoundLookup(((),))


@dataclass(frozen=True, slots=True)
class Division:
    rest: Question
    """The question, with the nodes that merge."""
    parts: dict[NodeIndex, Question]
    """The questions for nodes of the rest: their rows over one shard. Each reads one table."""


def divided(question: Question) -> Division:
    plan = question.plan
    nodes = {node.index: node for node in plan.nodes}
    rows = _row_by_row(plan)
    divided: list[Node] = []
    fresh = max(nodes, default=0) + 1
    parts: dict[NodeIndex, Question] = {}
    for node in plan.nodes:
        merges = question.traced is None and node.parents and node.parents[0] in rows  # Else its base rows are wanted.
        merging = traits_of(node.operator).merging if merges else None
        if merging is not None:
            each = Node(NodeIndex(fresh), merging.each, node.parents, node.columns)
            fresh += 1
            divided.append(each)
            parts[each.index] = _part(plan, [*_chain(nodes, node.parents[0]), each])
            node = replace(node, operator=merging.merged, parents=(each.index,))
        divided.append(node)
    wanted = {parent for node in divided if node.index not in rows | parts.keys() for parent in node.parents}
    tops = [index for index in rows if index in wanted or index == plan.nodes[-1].index]
    parts |= {index: _part(plan, _chain(nodes, index)) for index in tops}
    rest = replace(question, plan=replace(plan, nodes=tuple(divided)))
    return Division(rest, _narrowed(rest, parts))


def _row_by_row(plan: EvaluationPlan) -> set[NodeIndex]:
    """The nodes whose rows are those of one base table, each for itself."""
    found: set[NodeIndex] = set()
    for node in plan.nodes:
        traits = traits_of(node.operator)
        alone = len(node.parents) == 1 and not traits.own_state and traits.matching is None
        if is_base(node.operator) or (alone and node.parents[0] in found):
            found.add(node.index)
    return found


def _chain(nodes: dict[NodeIndex, Node], top: NodeIndex) -> list[Node]:
    chain = [nodes[top]]
    while chain[0].parents:
        chain.insert(0, nodes[chain[0].parents[0]])
    return chain


def _part(plan: EvaluationPlan, chain: list[Node]) -> Question:
    base = chain[0].operator
    assert is_base(base)
    return Question(
        EvaluationPlan(
            tuple(chain),
            Reader("", (), (), (), len(chain[-1].columns)),
            (),
            tuple(schema for schema in plan.tables if schema.name.lower() == base.table.lower()),
            {node.index: plan.ties[node.index] for node in chain if node.index in plan.ties},
            plan.grows,
        ),
        EVERYTHING,
    )


def _narrowed(rest: Question, parts: dict[NodeIndex, Question]) -> dict[NodeIndex, Question]:
    """The parts that the reader's rows come from, narrowed to what the reader asks for."""
    plan, root = rest.plan, rest.plan.nodes[-1]
    if root.index in parts:
        part = parts[root.index]
        return {**parts, root.index: Question(replace(part.plan, reader=plan.reader), rest.bound)}
    narrowed = dict(parts)
    edges = Counter(parent for node in plan.nodes for parent in node.parents)
    nodes = {node.index: node for node in plan.nodes}
    waiting = [(root, dict(enumerate(plan.reader.key)))] if rest.bound.keys else []
    while waiting:
        at, columns = waiting.pop()
        if at.index in parts:
            narrowed[at.index] = _with_keys(parts[at.index], columns, rest.bound)
            continue
        traits = traits_of(at.operator)
        by = traits.groups_by
        columns = {place: column for place, column in columns.items() if by is None or column in by}
        parents = [nodes[index] for index in at.parents]
        origins = traits.origins(tuple(columns.values()), [len(parent.columns) for parent in parents])
        outer = traits.matching is not None and traits.matching.outer
        for side, parent in enumerate(parents):
            known = {p: column for p, column in zip(columns, origins[side], strict=True) if column != COMPUTED}
            # What several nodes read is not only for these keys; and no match is not the same as none of these keys.
            if known and edges[parent.index] == 1 and not (outer and side == RIGHT):
                waiting.append((parent, known))
    return narrowed


def _with_keys(part: Question, columns: dict[int, int], bound: BoundLookup) -> Question:
    """The rows that have the values of some key in these columns: the place of each in the key, and in the part."""
    by = traits_of(part.plan.nodes[-1].operator).groups_by
    columns = {place: column for place, column in columns.items() if by is None or column in by}
    if not columns:
        return part
    reader = replace(part.plan.reader, key=tuple(columns.values()))
    keys = tuple(dict.fromkeys(tuple(key[place] for place in columns) for key in bound.keys))
    return Question(replace(part.plan, reader=reader), BoundLookup(keys))
