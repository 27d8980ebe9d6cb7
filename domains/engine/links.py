"""The ends of a domain's links: what goes out in one packet a step, and what may come in.

A packet that is out of sequence or of another epoch is refused: the transport delivers exactly once and in order, and
resumes by sequence number, so anything else is a fault of the caller and never silently applied.

A link's *epoch* is that of the younger of its two ends. When either end starts anew, both begin the link again at
sequence 1, under the new epoch; what is still on its way under the old one is the transport's to drop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from domains.engine.clock import Clocks, Origins
from domains.engine.forward import ForwardPass
from domains.engine.vertices import Vertices
from domains.language.types import Delta
from domains.operators.operator import Vertex
from domains.plan.commands import Part, Route
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, Fill, LinkId, LinkUpdate, Pattern, Send, Unfilled, receiver_of, sender_of
from domains.plan.sharding import shard_of


@dataclass(slots=True)
class Outgoing:
    """The sending end of one link."""

    sequence: int = 0
    clock: Clock = field(default_factory=dict)
    """The clock that the receiver knows."""
    version: int = -1
    """The version of the domain's clocks when ``clock`` was worked out."""
    routes: dict[NodeIndex, tuple[Vertex, Part | None]] = field(default_factory=dict)
    """Receiving ingress → our egress, and which of its rows go that way."""
    origins: Origins | None = None
    """The origins of the rows of all its egresses; None after the routes changed."""


@dataclass(slots=True)
class Incoming:
    """The receiving end of one link."""

    sequence: int = 0


@dataclass(slots=True)
class LinkOutput:
    """The content of one step on one link."""

    evictions: list[tuple[NodeIndex, Pattern]] = field(default_factory=list)
    deltas: list[tuple[NodeIndex, tuple[Delta, ...]]] = field(default_factory=list)
    fills: tuple[Fill, ...] = ()
    ended: tuple[NodeIndex, ...] = ()
    unfilled: tuple[Unfilled, ...] = ()


class Links:
    def __init__(self, clocks: Clocks, own: DomainIndex, incarnation: int) -> None:
        self._clocks = clocks
        self._own = own
        self._incarnation = incarnation
        self.peers: dict[DomainIndex, int] = {}
        """The incarnations of other domains, as far as this one has been told."""
        self.outgoing: dict[LinkId, Outgoing] = {}
        self.incoming: dict[LinkId, Incoming] = {}
        self._routes_of: dict[Vertex, list[tuple[LinkId, NodeIndex, Part | None]]] = {}
        self._ended: dict[LinkId, list[NodeIndex]] = {}
        """Receiving ingresses whose routes were removed in this step."""

    # --- routes -----------------------------------------------------------------------------------------------

    def add_route(self, route: Route, egress: Vertex) -> None:
        end = self.outgoing.setdefault(route.link, Outgoing())
        end.routes[route.ingress] = (egress, route.part)
        end.origins = None
        self._routes_of.setdefault(egress, []).append((route.link, route.ingress, route.part))

    def add_incoming(self, links: Iterable[LinkId]) -> None:
        """Links that feed an ingress here. They begin again with their sender, even if nothing came over them yet."""
        for link in links:
            self.incoming.setdefault(link, Incoming())

    def remove_egress(self, egress: Vertex) -> None:
        for link, ingress, _ in self._routes_of.pop(egress, ()):
            end = self.outgoing[link]
            del end.routes[ingress]
            end.origins = None
            self._ended.setdefault(link, []).append(ingress)

    def route(self, link: LinkId, ingress: NodeIndex) -> tuple[Vertex, Part | None] | None:
        """The vertex that feeds that ingress over the link; None once the route was removed (an upquery may still be on
        its way)."""
        return self.outgoing[link].routes.get(ingress) if link in self.outgoing else None

    # --- epochs -----------------------------------------------------------------------------------------------

    def epoch(self, link: LinkId) -> int:
        """The epoch of a link between this domain and another."""
        sender = sender_of(link)
        other = receiver_of(link) if sender == self._own else sender
        return max(self._incarnation, self.peers.get(other, 0))

    def reset(self, peer: DomainIndex, epoch: int) -> list[LinkId]:
        """A peer is there as incarnation ``epoch``; the links with it that begin again for that."""
        between = [link for link in {**self.outgoing, **self.incoming} if peer in (sender_of(link), receiver_of(link))]
        before = max(self._incarnation, self.peers.get(peer, 0))
        self.peers[peer] = max(epoch, self.peers.get(peer, 0))
        if max(self._incarnation, self.peers[peer]) == before:
            return []
        for link in between:
            if link in self.outgoing:
                end = self.outgoing[link]
                end.sequence, end.clock, end.version = 0, {}, -1
            if link in self.incoming:
                self.incoming[link].sequence = 0
        return between

    # --- packets ----------------------------------------------------------------------------------------------

    def accept(self, packet: LinkUpdate, vertices: Vertices) -> None:
        """Check a packet's place in its link, and learn what it says of clocks.

        A link's clock is that of all egresses that use it, so it goes on without those that were removed. What their
        ingresses were sent reaches as far as the clock did before: a view that is being removed domain by domain, and
        is read by who has not heard of it yet, must not claim to reflect writes that nobody sends it any more.
        """
        end = self.incoming.setdefault(packet.link, Incoming())
        epoch = self.epoch(packet.link)
        assert packet.epoch == epoch, f"link {packet.link}: epoch {packet.epoch}, and the link has {epoch}"
        assert packet.sequence == end.sequence + 1, f"link {packet.link}: {packet.sequence} follows {end.sequence}"
        end.sequence = packet.sequence
        for index in packet.ended:
            if index in vertices:
                self._clocks.end(packet.link, vertices[index])
        if packet.ended:
            for out in self.outgoing.values():
                out.origins = None
        self._clocks.advance(packet.link, packet.clock)

    def close_step(
        self, passes: Iterable[ForwardPass], fills: dict[LinkId, list[Fill]], unfilled: dict[LinkId, list[Unfilled]]
    ) -> list[Send]:
        """End the step with at most one packet a link: evictions, deltas, fills. A clock that moved alone waits for
        ``beat``."""
        said: dict[LinkId, LinkOutput] = {}
        for one in passes:
            for egress in dict.fromkeys(one.visited):
                if egress in self._routes_of:
                    self._gather(one, egress, said)
        sends: list[Send] = []
        ended, self._ended = self._ended, {}
        for link in {**said, **fills, **ended, **unfilled}:
            out = said.get(link) or LinkOutput()
            out.fills, out.unfilled = tuple(fills.get(link, ())), tuple(unfilled.get(link, ()))
            out.ended = tuple(ended.get(link, ()))
            sends.append(self._packet(link, self.outgoing[link], out))
        return sends

    def _gather(self, one: ForwardPass, egress: Vertex, said: dict[LinkId, LinkOutput]) -> None:
        deltas = tuple(one.deltas.get(egress, ()))
        patterns = one.patterns.get(egress, ())
        parts: dict[tuple[int, int], list[list[Delta]]] = {}
        for link, ingress, part in self._routes_of[egress]:
            mine = deltas if part is None else tuple(_parted(deltas, part, parts))
            if not mine and not patterns:
                continue
            out = said.setdefault(link, LinkOutput())
            out.evictions.extend((ingress, pattern) for pattern in patterns)
            if mine:
                out.deltas.append((ingress, mine))

    def _packet(self, link: LinkId, end: Outgoing, out: LinkOutput) -> Send:
        end.sequence += 1
        end.clock, end.version = self._clock(end), self._clocks.version
        said = tuple(out.evictions), tuple(out.deltas), out.fills, out.ended, out.unfilled
        return Send(link, LinkUpdate(link, end.sequence, self.epoch(link), end.clock, *said))

    def _clock(self, end: Outgoing) -> Clock:
        if end.origins is None:
            end.origins = self._clocks.merged(vertex for vertex, _ in end.routes.values())
        return self._clocks.reached(end.origins)

    def beat(self) -> list[Send]:
        """A packet without rows for every link whose clock has moved since its last one."""
        sends: list[Send] = []
        for link, end in self.outgoing.items():
            if end.version == self._clocks.version and end.origins is not None:
                continue
            if self._clock(end) != end.clock:
                sends.append(self._packet(link, end, LinkOutput()))
            end.version = self._clocks.version
        return sends


def _parted(deltas: tuple[Delta, ...], part: Part, parts: dict[tuple[int, int], list[list[Delta]]]) -> list[Delta]:
    """A shard's part of the rows; they are divided once for all the shards."""
    column, shards = part.column, part.shards
    divided = parts.get((column, shards))
    if divided is None:
        divided = parts[column, shards] = [[] for _ in range(shards)]
        for delta in deltas:
            divided[shard_of(delta[0][column], shards, part.collation)].append(delta)
    return divided[part.number]
