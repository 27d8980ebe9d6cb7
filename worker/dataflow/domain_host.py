"""All domains of a worker on one thread of control: no thread, no socket, no clock, no disk but through their stores.

The dataflow thread runs it (``dataflow.py``), and so does the simulator of a whole cluster. What comes in is handled to
its end, the links between the domains that are hosted here included; what is to be done outside is gathered in a
:class:`Batch`, which the caller makes durable, then visible, then answers, then sends. :meth:`Hosted.finish` ends it::

    write, read, evict, touch ─┐                     ┌─► batch.visible   (reader map)
    perform, open, close ──────┤ Domain ⇄ Domain ⇄ … ├─► batch.answers
    receive, reconfigure ──────┘                     └─► batch.sends     (domains of other workers)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import assert_never, cast

from domains.engine.control import perform
from domains.engine.domain import Domain
from domains.engine.transactions.parts import OtherShards
from domains.errors import HeadraceError
from domains.language.types import Row
from domains.plan.commands import Activate, AddNodes, Command, Progress, RemoveNodes
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import (
    Clock,
    Effect,
    EvictKeys,
    EvictMemory,
    Failed,
    Operation,
    Outcome,
    Packet,
    PeerReset,
    Publish,
    Read,
    Reply,
    RequestId,
    Send,
    Touch,
    TransactionAct,
    Within,
    Write,
    written_tables,
)
from domains.store.storage import Store, unknown_outcome
from worker.dataflow.batch import Answerer, Batch, LinkPacket, Look
from worker.dataflow.hosted_domain import (
    HostedDomain,
    HostedReaders,
    Incarnations,
    LinkCounters,
    Reception,
    TokenWait,
    TokenWaits,
    destination,
)
from worker.dataflow.link_checks import Refused, told
from worker.dataflow.memory_limiter import Pressure, relieve, room_of
from worker.dataflow.watches import WatchedReaders
from worker.protocol.messages import NotHere, StaleEpoch

_log = logging.getLogger("headrace.worker")
_bytes = attrgetter("bytes")


class StepBroken(Exception):
    """A step was broken off, and no leader opens the domain again. No error of the caller: his write may be there."""


class PendingRequests:
    def __init__(self) -> None:
        self._last = 0
        self._pending: dict[RequestId, tuple[DomainIndex, Answerer, Look | None]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def new(self, domain: DomainIndex, answer: Answerer, look: Look | None = None) -> RequestId:
        """``look`` is taken where the answer stands among what is published."""
        self._last += 1
        request = RequestId(self._last)
        self._pending[request] = domain, answer, look
        return request

    def reply(self, request: RequestId, outcome: Outcome, batch: Batch) -> None:
        _, answer, look = self._pending.pop(request)
        if look is not None:
            batch.visible.append(look)
        batch.answers.append((answer, outcome))

    def fail(self, domain: DomainIndex, error: HeadraceError, batch: Batch) -> None:
        """The domain is gone, and with it what it was asked."""
        for request, (asked, answer, _) in list(self._pending.items()):
            if asked == domain:
                del self._pending[request]
                batch.answers.append((answer, Failed(error)))

    def fail_all(self, error: HeadraceError) -> None:
        """Nothing goes on."""
        for _, answer, _ in self._pending.values():
            answer(Failed(error))
        self._pending.clear()


class DomainHost:
    """See the module. ``hosts`` is replaced and never changed in place: other threads may walk over it."""

    def __init__(self, *, memory_limit: int, reserve: int = 0, led: bool = False) -> None:
        self.memory_limit = memory_limit
        self.opened: Callable[[Store], None] = lambda store: None  # Called with each store that is hosted.
        self.outside = 0  # Bytes of the limit that others in the process take: requests, answers, connections.
        self.led = led
        """A leader opens a domain again that has broken (``broken``), and the others go on; else none does."""
        self.reserve = reserve  # See ``memory_limiter.py``: for hosts that share links with others.
        self.keeps_copies = False  # Of other shards' parts of transactions, against the loss of a disk.
        self.epoch = 0  # The latest leader's that was heard of.
        self.hosts: dict[DomainIndex, HostedDomain] = {}
        self.layouts = HostedReaders()
        self.known = Incarnations()
        self.counters = LinkCounters()
        self.waits = TokenWaits()
        self._on_links: deque[LinkPacket] = deque()
        self.requests = PendingRequests()
        self.pressure = Pressure()
        self.watched = WatchedReaders()
        self._moved: set[DomainIndex] = set()  # Domains whose bases may have other positions than at the last batch.

    # --- leaders ------------------------------------------------------------------------------------------------

    def fence(self, epoch: int) -> None:
        """A message of the leader of this epoch has come. Raises StaleEpoch where there is a later one."""
        self.check(epoch)
        self.epoch = epoch

    def check(self, epoch: int | None) -> None:
        """An input that has waited is dropped if a later leader has been heard of meanwhile."""
        if epoch is not None and epoch < self.epoch:
            raise StaleEpoch(
                f"epoch {epoch} is over, this worker follows {self.epoch}", hint="another leads", epoch=self.epoch
            )

    # --- what is hosted -----------------------------------------------------------------------------------------

    def open(
        self,
        index: DomainIndex,
        store: Store,
        *,
        incarnation: int = 1,
        shard: int = 0,
        shards: int = 1,
        linked: bool = False,
        sync: Callable[[], None] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        """Host a domain, without nodes, over the tables that are in its store.

        ``sync`` makes what was committed durable, ``close`` closes the store; where there is no disk there are none.
        """
        assert index not in self.hosts, f"domain {index} is hosted already"
        domain = Domain(index, store, incarnation=incarnation, shard=shard, shards=shards)
        for schema in store.tables():
            if not schema.filling:
                domain.clocks.write(domain.base_name(schema), store.position(schema.name))
        self.hosts = {**self.hosts, index: HostedDomain(domain, linked, sync, close)}
        domain.transactions.locks.waits_for = lambda id: HostedDomain.waited_for(self.hosts, id)
        if self.keeps_copies:
            domain.transactions.parts.others = OtherShards(index, incarnation, self.known.since)
        self._moved.add(index)
        self.opened(store)

    def close(self, index: DomainIndex, batch: Batch) -> Callable[[], None] | None:
        """Give a domain up. What this answers closes its store, once the batch is durable: not on the way of other
        domains' batches, since it takes a tenth of a second."""
        host = self.hosts.get(index)
        if host is None:
            return None
        self.hosts = {each: other for each, other in self.hosts.items() if each != index}
        self._withdraw(index, f"domain {index} has left this worker", batch)
        for vertex in host.domain.vertices.values():
            vertex.give_up()
        return host.close

    def _withdraw(self, index: DomainIndex, why: str, batch: Batch) -> None:
        """Nobody reads a domain any more, or waits for it here."""
        self.layouts.remove_all(index, batch)
        error = NotHere(why, epoch=self.epoch, unlinked=True)
        self.requests.fail(index, error, batch)
        self.waits.fail(index, error, batch)
        self._moved.discard(index)

    @property
    def broken(self) -> dict[DomainIndex, int]:
        """The domains that serve nothing until they are opened again, with their incarnations. Any thread."""
        return {index: host.domain.incarnation for index, host in self.hosts.items() if host.is_broken}

    def reconfigure(
        self,
        incarnations: Mapping[DomainIndex, int],
        removals: Mapping[DomainIndex, Sequence[NodeIndex]],
        batch: Batch,
    ) -> None:
        """Learn which incarnation of each domain is the present one, and link those of them that are here.

        A domain of which a later incarnation is elsewhere is not to be used any more.
        """
        for index, nodes in removals.items():
            if index in self.hosts and not self.hosts[index].is_broken:
                self.perform(index, RemoveNodes(tuple(nodes)), batch)
        self.known.learn(incarnations)
        for index, host in self.hosts.items():
            if index in self.known:
                host.linked = self.known[index] == host.domain.incarnation and not host.is_broken
        for host in self.hosts.values():
            self._meet(host, batch)
        # What is known all have met: older is stale. Who is opened later meets it when linked, and holds until then.
        self.known.met()
        for host in self.hosts.values():
            if host.linked:
                self._on_links.extend(host.outgoing)
                host.outgoing.clear()
            self._release(host, batch)
        self._drain(batch)

    def _meet(self, host: HostedDomain, batch: Batch) -> None:
        """Tell a domain which of its peers are others than it knew."""
        peers = host.domain.links.peers
        host.beaten = -1
        for peer, incarnation in self.known.items():
            if peer != host.domain.index and incarnation > peers.get(peer, 0):
                self._handle(host, PeerReset(peer, incarnation), batch)

    def _release(self, host: HostedDomain, batch: Batch) -> None:
        held, host.held = host.held, []
        for packet in held:
            self._take(host, packet, batch, told)

    # --- requests -----------------------------------------------------------------------------------------------

    def write(
        self,
        index: DomainIndex,
        operation: TransactionAct,
        answer: Answerer,
        batch: Batch,
        schema: int | None = None,
        within: Within = None,
    ) -> None:
        """``schema`` is the version of the tables that the operation was made for, where that may be another by now."""
        host = self._linked(index)
        if schema is not None and host.versions.get(cast(Operation, operation).table) != schema:
            self._check_schema(host, written_tables(operation), schema)
        if self.led:
            host.check_rows(operation)
        self._moved.add(index)
        if host.sync is not None:
            batch.syncs[host.sync] = None
        self._handle(host, Write(self.requests.new(index, answer), operation, within), batch)
        self._drain(batch)

    def _check_schema(self, host: HostedDomain, names: Sequence[str], schema: int) -> None:
        if (known := host.version(names)) != schema:
            what = "is not here" if known is None else "has another schema here"
            raise NotHere(f'table "{", ".join(names)}" {what} in domain {host.domain.index}', epoch=self.epoch)

    def read(
        self, index: DomainIndex, reader: NodeIndex, keys: tuple[Row, ...], look: Look, answer: Answerer, batch: Batch
    ) -> None:
        """Have the keys of a reader filled; ``look`` is taken when they are visible, and before any eviction."""
        host = self._linked(index)
        self._handle(host, Read(self.requests.new(index, answer, look), reader, keys), batch)
        self._drain(batch)

    def evict(self, index: DomainIndex, node: NodeIndex, keys: tuple[Row, ...], answer: Answerer, batch: Batch) -> None:
        host = self._linked(index)
        self._handle(host, EvictKeys(self.requests.new(index, answer), node, keys), batch)
        self._drain(batch)

    def evict_here(self, index: DomainIndex, reader: NodeIndex, keys: Sequence[Row] | None, batch: Batch) -> None:
        """Keys that a reader no longer has in the map; None: nothing. Nobody waits for it."""
        host = self.hosts.get(index)
        if host is None or reader not in host.domain.vertices:
            return
        if keys is None:
            keys = [key for held in host.domain.vertices[reader].indexes.values() for key in list(held.keys())]
        self._handle(host, EvictKeys(self.requests.new(index, lambda outcome: None), reader, tuple(keys)), batch)
        self._drain(batch)

    def shrink(self, excess: int, batch: Batch) -> None:
        """Evict so many accounted bytes of what is used least."""
        held = sum(host.weigh() for host in self.hosts.values())
        relieve(self.hosts, held - excess, lambda host, over: self._evict(host, over, batch), reserve=self.reserve)

    def touch(self, index: DomainIndex, reader: NodeIndex, keys: tuple[Row, ...], batch: Batch) -> None:
        if (host := self.hosts.get(index)) is not None:
            self._handle(host, Touch(reader, keys), batch)

    def reached(self, index: DomainIndex, wait: TokenWait) -> None:
        """Answer when what the reader publishes reflects a clock."""
        self._linked(index)
        self.waits.add(index, wait)

    def receive(self, packets: Sequence[LinkPacket], batch: Batch, refused: Refused = told) -> None:
        """Packets of another worker's domains, in order; ``refused`` hears of those that are none."""
        for packet in packets:
            if (host := self.hosts.get(destination(packet))) is None:
                self.counters.unhosted += 1
            else:
                self._take(host, packet, batch, refused)
        self._drain(batch)

    def _linked(self, index: DomainIndex) -> HostedDomain:
        host = self.hosts.get(index)
        if host is None or not host.linked:
            how = "hosted" if host is None else "linked yet"
            raise NotHere(f"domain {index} is not {how} here", hint="look it up again", epoch=self.epoch, unlinked=True)
        return host

    def check_reader(self, index: DomainIndex, reader: NodeIndex) -> None:
        """Raises NotHere where the reader does not stand in that domain here."""
        self._linked(index)
        if (index, reader) not in self.layouts:
            raise NotHere(f"reader {reader} of domain {index} is not here", epoch=self.epoch)

    def clock_of(self, index: DomainIndex, reader: NodeIndex) -> Clock:
        """The positions that a reader reflects now; {} where it has gone since it was looked for."""
        host = self.hosts.get(index)
        gone = host is None or reader not in host.domain.vertices
        return {} if gone or host is None else host.domain.clocks.of(host.domain.vertices[reader])

    def fail(self, error: HeadraceError) -> None:
        """Nothing goes on: answer everybody who waits."""
        self.requests.fail_all(error)
        lost = Batch()
        for index in self.hosts:
            self.waits.fail(index, error, lost)
        for answer, outcome in lost.answers:
            answer(outcome)

    # --- commands -----------------------------------------------------------------------------------------------

    def perform(self, index: DomainIndex, command: Command, batch: Batch) -> Progress:
        """Change a domain's graph, whether it is linked or not. Raises NotHere, and what its store refuses."""
        host = self.hosts.get(index)
        if host is None or host.is_broken:
            how = "hosted" if host is None else "whole"
            raise NotHere(f"domain {index} is not {how} here", epoch=self.epoch)
        if isinstance(command, AddNodes):
            self.layouts.add(host, command.nodes)
        host.forget()
        progress, effects = perform(host.domain, command)
        if isinstance(command, Activate):
            self.layouts.reveal(host, batch)
        host.weighed, host.beaten = False, -1
        self._moved.add(index)
        self.waits.recheck(index)
        self._perform(host, effects, batch)
        if isinstance(command, RemoveNodes):
            self.layouts.remove(host, command.nodes, batch)
        self._drain(batch)
        return progress

    # --- steps --------------------------------------------------------------------------------------------------

    def _handle(self, host: HostedDomain, packet: Packet, batch: Batch) -> None:
        if host.domain.broken is not None:
            return
        host.weighed = False
        try:
            effects = host.domain.handle(packet)
        except HeadraceError as error:
            if not self.led:
                raise StepBroken(error) from error
            self._break(host, packet, error, batch)
        else:
            self._perform(host, effects, batch)

    def _break(self, host: HostedDomain, packet: Packet, error: HeadraceError, batch: Batch) -> None:
        """The step's effects are not performed: for its peers it is as if the domain were lost before it, and its next
        incarnation begins with what is stored, as after a crash."""
        index = host.domain.index
        _log.error("domain %d broke off a step, and serves nothing until it is opened again: %s", index, error)
        host.linked = False
        host.outgoing.clear()
        host.held.clear()
        if isinstance(packet, Write):
            self.requests.reply(packet.request, Failed(unknown_outcome(error)), batch)
        self._withdraw(index, f"domain {index} has broken, and is to be opened again", batch)

    def _perform(self, host: HostedDomain, effects: list[Effect], batch: Batch) -> None:
        for effect in effects:
            match effect:
                case Publish():
                    batch.visible.append((self.layouts[effect.domain, effect.reader], effect))
                case Reply(request=request, outcome=outcome):
                    self.requests.reply(request, outcome, batch)
                case Send(packet=packet):
                    self.counters.packets += 1
                    (self._on_links if host.linked else host.outgoing).append(packet)
                case _:
                    assert_never(effect)

    def _drain(self, batch: Batch) -> None:
        """Deliver what is on the links between the domains that are here, in order."""
        while self._on_links:
            packet = self._on_links.popleft()
            receiver = destination(packet)
            host = self.hosts.get(receiver)
            if host is None:
                batch.sends.append((receiver, packet))
            else:
                self._take(host, packet, batch)

    def _take(self, host: HostedDomain, packet: LinkPacket, batch: Batch, refused: Refused | None = None) -> None:
        """``refused``: it came from another worker."""
        if self.known.is_void(packet):
            self.counters.stale += 1
            return
        match host.reception(packet):
            case Reception.PROCESS:
                if refused is None or self._fits(host, packet, batch, refused):
                    self._handle(host, packet, batch)
            case Reception.STALE:
                self.counters.stale += 1
            case Reception.HOLD:
                self.counters.held += 1
                host.held.append(packet)

    def _fits(self, host: HostedDomain, packet: LinkPacket, batch: Batch, refused: Refused) -> bool:
        """Where it does not, nothing of it is done. Its link cannot go on without it: what comes after it breaks the
        domain, so that it is opened again, and the link with it."""
        error = host.checks.refusal(packet)
        if error is None:
            return True
        self.counters.refused += 1
        refused(error)
        if host.checks.is_over(packet):
            host.domain.broken = error
            self._break(host, packet, error, batch)
        return False

    # --- the end of a batch -------------------------------------------------------------------------------------

    def finish(self, batch: Batch) -> bool:
        """Obey the memory limit, tell the clocks to all links, and answer the waits that are over.

        Whether the batch has anything to do then: a sample of read keys leaves nothing.
        """
        held, is_linked = 0, False
        for host in self.hosts.values():
            if not host.weighed and host.domain.broken is None:  # As ``weigh``, without its two calls after each batch.
                host.bytes, host.weighed = sum(map(_bytes, host.domain.vertices.states)), True
            held += host.bytes if host.weighed else 0
            is_linked = is_linked or bool(host.domain.links.outgoing)
        limit, outside = self.memory_limit, self.outside
        if held + outside > limit and held > (room := room_of(limit, outside)) and self.pressure.evicts(held, room):
            evicted = relieve(
                self.hosts, room, lambda host, excess: self._evict(host, excess, batch), reserve=self.reserve
            )
            if evicted:
                self.pressure.add(evicted, limit)
        if is_linked:
            self._beat(batch)
        if self.waits.waiting:
            self.waits.check(self.hosts, batch)
        if batch.holds:
            batch.visible.extend([hold() for hold in batch.holds])
        for index in self._moved:
            batch.positions[index] = self.hosts[index].domain.clocks.local.copy()
        self._moved.clear()
        if self.watched.counts:
            self.watched.note(self.hosts, batch)
        watched = batch.watching or batch.clocks
        return bool(batch.syncs or batch.visible or batch.positions or batch.answers or batch.sends or watched)

    def _beat(self, batch: Batch) -> None:
        """Until nothing comes of it: what is told may move the clocks of the next domain."""
        said = True
        while said:
            said = False
            for host in self.hosts.values():
                if host.linked and host.domain.links.outgoing and host.beaten != host.domain.clocks.version:
                    host.beaten = host.domain.clocks.version
                    beats = host.domain.beat()
                    self.counters.beats += len(beats)
                    self._perform(host, beats, batch)
                    said = said or bool(self._on_links)
            self._drain(batch)

    def _evict(self, host: HostedDomain, excess: int, batch: Batch) -> None:
        self._handle(host, EvictMemory(excess), batch)
        self._drain(batch)
