"""What a packet costs an ingress: by the packet, not by how many holes wait. A cold start has thousands."""

from dataclasses import dataclass, field
from typing import Any, cast

from domains.engine.upqueries import Ingresses, IngressSources
from domains.language.types import Row
from domains.operators.operator import Vertex
from domains.plan.graph import NodeIndex
from domains.plan.packets import Fill, LinkId

HOLES = 1000
NODE = NodeIndex(1)


@dataclass(eq=False)
class Counting:
    """A vertex with one index, which counts how often a row's key was taken."""

    taken: int = 0
    indexes: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.indexes[(0,)] = self

    def key_of(self, row: Row) -> Row:
        self.taken += 1
        return row[:1]


def test_an_update_takes_each_rows_key_once_however_many_holes_have_a_piece_of_its_sender() -> None:
    ingresses, counting = Ingresses(), Counting()
    vertex, links = cast(Vertex, counting), (cast(LinkId, "a"), cast(LinkId, "b"))
    ingresses.sources[vertex] = IngressSources(links)
    ingresses.ask(vertex, (0,), [(n,) for n in range(HOLES)])
    for n in range(HOLES):
        assert ingresses.answered(links[0], vertex, Fill(NODE, (0,), (n,), ())) is None
    ingresses.updated(links[0], vertex, [((7, "x"), 1), ((HOLES, "no hole"), 1)])
    ingresses.updated(links[1], vertex, [((7, "its piece will hold it"), 1)])
    assert counting.taken == 2
    assert ingresses.answered(links[1], vertex, Fill(NODE, (0,), (7,), (((7, "y"), 2),))) == [
        ((7, "x"), 1),
        ((7, "y"), 2),
    ]
    ingresses.updated(links[0], vertex, [((7, "z"), 1)])
    assert (vertex, (0,), (7,)) not in ingresses.pending
