"""The ends of a domain's links: what goes out in one packet a step, and what may come in.

A packet that is out of sequence or of an older epoch is refused: the transport delivers exactly once and in order, and
resumes by sequence number, so anything else is a fault of the caller and never silently applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from domains.clock import Clocks
from domains.commands import Route
from domains.forward import ForwardPass
from domains.graph import NodeIndex
from domains.packets import Clock, Fill, LinkId, LinkUpdate, Pattern, Send
from domains.types import Delta
from domains.vertex import Vertex


@dataclass(slots=True)
class Outgoing:
    """The sending end of one link."""

    sequence: int = 0
    clock: Clock = field(default_factory=dict)
    routes: dict[NodeIndex, Vertex] = field(default_factory=dict)
    """Receiving ingress → our egress."""


@dataclass(slots=True)
class Incoming:
    """The receiving end of one link."""

    sequence: int = 0
    epoch: int = 0


class Links:
    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self.outgoing: dict[LinkId, Outgoing] = {}
        self.incoming: dict[LinkId, Incoming] = {}

    def add_route(self, route: Route, egress: Vertex) -> None:
        self.outgoing.setdefault(route.link, Outgoing()).routes[route.ingress] = egress

    def remove_egress(self, egress: Vertex) -> None:
        for link in self.outgoing.values():
            for ingress in [ingress for ingress, sender in link.routes.items() if sender is egress]:
                del link.routes[ingress]

    def egress(self, link: LinkId, ingress: NodeIndex) -> Vertex | None:
        """Who feeds that ingress over the link; None once the route was removed (an upquery may still be on its
        way)."""
        return self.outgoing[link].routes.get(ingress) if link in self.outgoing else None

    def accept(self, packet: LinkUpdate) -> None:
        """Check a packet's place in its link."""
        end = self.incoming.setdefault(packet.link, Incoming())
        assert packet.epoch >= end.epoch, f"link {packet.link}: epoch {packet.epoch} is older than {end.epoch}"
        assert packet.sequence == end.sequence + 1, f"link {packet.link}: {packet.sequence} follows {end.sequence}"
        end.sequence, end.epoch = packet.sequence, packet.epoch
        self._clocks.links[packet.link] = dict(packet.clock)

    def close_step(self, passes: Iterable[ForwardPass], fills: dict[LinkId, list[Fill]], epoch: int) -> list[Send]:
        """At most one packet a link: evictions, deltas, fills; an empty one where only the clock moved."""
        sends: list[Send] = []
        for link, end in self.outgoing.items():
            evictions: list[tuple[NodeIndex, Pattern]] = []
            deltas: list[tuple[NodeIndex, tuple[Delta, ...]]] = []
            for one in passes:
                for ingress, egress in end.routes.items():
                    evictions.extend((ingress, pattern) for pattern in one.patterns.get(egress, ()))
                    if egress in one.deltas:
                        deltas.append((ingress, tuple(one.deltas[egress])))
            clock = self._clocks.of_all(end.routes.values())
            filled = tuple(fills.get(link, ()))
            if evictions or deltas or filled or clock != end.clock:
                end.sequence += 1
                end.clock = clock
                packet = LinkUpdate(link, end.sequence, epoch, clock, tuple(evictions), tuple(deltas), filled)
                sends.append(Send(link, packet))
        return sends
