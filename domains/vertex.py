"""A vertex: a node at run time, bound to its operator, its state and its neighbours within the domain."""

from __future__ import annotations

from domains import graph
from domains.graph import Columns, Materialization, Node, NodeIndex
from domains.operators.operator import Operator
from domains.state import Index


class Vertex:
    """Identity is by object: one vertex stands for one node in one domain shard."""

    __slots__ = (
        "building",
        "children",
        "feeds_building",
        "indexes",
        "is_reader",
        "may_miss",
        "node",
        "operator",
        "parents",
        "rank",
    )

    def __init__(self, node: Node, operator: Operator, parents: list[Vertex], rank: int) -> None:
        self.node = node
        self.operator = operator
        self.parents = parents
        self.children: list[Vertex] = []
        self.rank = rank
        self.indexes: dict[Columns, Index] = {}
        self.is_reader = isinstance(node.operator, graph.Reader)
        """A vote is said by twenty vertices, and to ask each what class its operator is of takes 0.7 µs."""
        self.building = False
        """A full state that is being backfilled: it sees only what has been fed to it."""
        self.feeds_building = False
        """Stateless, and above a vertex that is being backfilled."""
        self.may_miss: bool = node.materialization is Materialization.PARTIAL or (
            node.materialization is Materialization.NONE and any(parent.may_miss for parent in parents)
        )
        """Whether a look-up here can meet a hole."""

    @property
    def index(self) -> NodeIndex:
        return self.node.index

    @property
    def is_base(self) -> bool:
        return isinstance(self.node.operator, graph.Base)

    def give_up(self) -> None:
        """Let go of the state, once nobody looks it up any more: vertices stand in circles, and those are seldom
        looked for where millions of rows are."""
        self.indexes = {}

    def __repr__(self) -> str:
        return f"<{self.node.index} {type(self.node.operator).__name__} {self.node.materialization.value}>"
