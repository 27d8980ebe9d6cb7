"""The joint graph of all queries: nodes are shared wherever two queries compute the same.

Sharing is structural: an operator over the same parents with the same output types is the same node, whatever its
columns are called. Nodes are numbered in the order in which they were first asked for, and a number is never used
again, so the same recipe gives the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator

from domains.language.types import Column, SqlType
from domains.plan.graph import Node, NodeIndex, Operator

_Identity = tuple[Operator, tuple[NodeIndex, ...], tuple[SqlType, ...]]


class JointGraph:
    """A growing set of nodes. ``copy`` is how a migration plans without touching the running graph."""

    def __init__(self) -> None:
        self._nodes: dict[NodeIndex, Node] = {}
        self._known: dict[_Identity, NodeIndex] = {}
        self._children: dict[NodeIndex, tuple[NodeIndex, ...]] = {}
        self._next = 0

    def add(self, operator: Operator, parents: tuple[NodeIndex, ...], columns: tuple[Column, ...]) -> NodeIndex:
        """The node of this operator over these parents: the one that is there (with its names), else a new one."""
        identity = (operator, parents, tuple(column.type for column in columns))
        known = self._known.get(identity)
        if known is not None:
            return known
        index = NodeIndex(self._next)
        self._next += 1
        self._nodes[index] = Node(index, operator, parents, columns)
        self._known[identity] = index
        self._children[index] = ()
        for parent in dict.fromkeys(parents):
            self._children[parent] += (index,)
        return index

    def remove(self, index: NodeIndex) -> None:
        """Forget a node that nothing reads. Its number is not used again."""
        assert not self._children[index], f"node {index} still has children"
        node = self._nodes.pop(index)
        del self._children[index]
        del self._known[node.operator, node.parents, tuple(column.type for column in node.columns)]
        for parent in dict.fromkeys(node.parents):
            self._children[parent] = tuple(child for child in self._children[parent] if child != index)

    def node(self, index: NodeIndex) -> Node:
        return self._nodes[index]

    def children(self, index: NodeIndex) -> tuple[NodeIndex, ...]:
        """The nodes that read this one, oldest first."""
        return self._children[index]

    def ancestors(self, index: NodeIndex) -> tuple[NodeIndex, ...]:
        """The node and all that it is computed from, in order of making (so parents come first)."""
        reached: set[NodeIndex] = set()
        pending = [index]
        while pending:
            at = pending.pop()
            if at not in reached:
                reached.add(at)
                pending.extend(self._nodes[at].parents)
        return tuple(sorted(reached))

    def copy(self) -> JointGraph:
        """An independent graph with the same nodes and the same next number.

        All that the dictionaries hold is immutable: a recipe of 500 views makes 1,000 copies when it is played.
        """
        twin = JointGraph()
        twin._nodes = dict(self._nodes)
        twin._known = dict(self._known)
        twin._children = dict(self._children)
        twin._next = self._next
        return twin

    def __iter__(self) -> Iterator[Node]:
        """All nodes in order of making."""
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, index: NodeIndex) -> bool:
        return index in self._nodes
