"""What one step of a domain gathers until it closes, and what a domain counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from domains.engine.forward import ForwardPass
from domains.operators.operator import Vertex
from domains.plan.graph import DomainIndex
from domains.plan.packets import Fill, LinkId, Publish, Reply, Send, Unfilled


@dataclass(slots=True)
class DomainCounters:
    """What the domain has done, for status and metrics."""

    steps: int = 0
    writes: int = 0
    upqueries: int = 0
    fills: int = 0
    evictions: int = 0
    published_deltas: int = 0


@dataclass(slots=True)
class Step:
    """What one step has to say, gathered until it closes."""

    domain: DomainIndex
    passes: list[ForwardPass] = field(default_factory=list)
    fills: dict[LinkId, list[Fill]] = field(default_factory=dict)
    unfilled: dict[LinkId, list[Unfilled]] = field(default_factory=dict)
    upqueries: list[Send] = field(default_factory=list)
    publishes: dict[Vertex, Publish] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)

    def publish(self, reader: Vertex) -> Publish:
        if reader not in self.publishes:
            self.publishes[reader] = Publish(reader.index, domain=self.domain)
        return self.publishes[reader]
