"""A domain: a deterministic state machine. ``handle(packet)`` is one step, run to completion; it answers effects.

Nothing here touches a socket, a clock, a thread or randomness, and no file but through the store that it is given. The
same code runs in a worker, in a seeded simulator and inside a Spark task.

The dispatcher is short because each act is in a file of its own: ``write`` (constraints, deltas), ``forward`` (the
topological pass), ``lookups`` (pulls), ``ingress`` (holes that wait for another domain), ``memory`` (eviction),
``backfill`` (full state in slices), ``replay`` (in bulk), ``control`` (changing the graph).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from domains.engine.clock import Clocks
from domains.engine.forward import ForwardPass
from domains.engine.lifecycle.expected import Expected
from domains.engine.lifecycle.life import LifeCycle, StateBuild
from domains.engine.links import Links
from domains.engine.memory import evict_least_used, touch
from domains.engine.pulls import DomainCounters, Pull
from domains.engine.transactions.transactions import Transactions
from domains.engine.upqueries import Hole, Ingresses, fed_by
from domains.engine.vertices import Vertices
from domains.engine.writing.foreign_keys import change_related
from domains.engine.writing.write import NOTHING, change_table
from domains.engine.writing.written import WrittenTable, WrittenTables
from domains.errors import HeadraceError, RowsRefused
from domains.language.types import Delta, Row, TableSchema
from domains.operators.edges import ReaderOperator
from domains.operators.operator import Vertex
from domains.plan.deltas import consolidate
from domains.plan.graph import Columns, DomainIndex, NodeIndex
from domains.plan.packets import (
    Amend,
    Effect,
    Evicted,
    EvictKeys,
    EvictMemory,
    Failed,
    Fill,
    Filled,
    InTransaction,
    LinkId,
    LinkUpdate,
    Operation,
    Packet,
    Pattern,
    PeerReset,
    Prepare,
    Publish,
    Read,
    Refused,
    Reply,
    Send,
    Touch,
    Unfilled,
    Upquery,
    Write,
    Written,
    sender_of,
)
from domains.plan.sharding import base_shard
from domains.store.storage import Store, is_repeated, refusal


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
            self.publishes[reader] = Publish(reader.node.index, domain=self.domain)
        return self.publishes[reader]


class Domain:
    """One shard of one domain. The caller hands it packets one at a time and performs the effects in order."""

    def __init__(
        self, index: DomainIndex, store: Store, *, incarnation: int = 1, shard: int = 0, shards: int = 1
    ) -> None:
        self.index = index
        self.store = store
        self.incarnation = incarnation
        """A domain that is opened anew has a greater one."""
        self.shard = shard
        self.shards = shards
        self.vertices = Vertices(store)
        self.clocks = Clocks()
        self.links = Links(self.clocks, index, incarnation)
        self.ingresses = Ingresses()
        self.parked: dict[Read | Upquery, set[Hole]] = {}
        self.life = LifeCycle()
        self.backfill: StateBuild | None = None
        """From ``BUILDING`` or ``LOADING`` until ``Activate``."""
        self.index_cursors: dict[tuple[str, Columns], bytes] = {}
        """How far the indexes of base tables that are being built have come."""
        self.held: set[NodeIndex] = set()
        """Nodes that are known already and not complete before ``Activate``."""
        self.awaiting: list[Read | Upquery] = []
        """Reads and upqueries of what is held, or being built."""
        self.counters = DomainCounters()
        self.written = WrittenTables(store, shard, shards)
        self.transactions = Transactions(self.written, store)
        self.expected: dict[str, Expected] = {}
        """What schemas ask that are not decided yet, by table."""
        self.broken: HeadraceError | None = None
        """The error that broke a step off in the middle: rows are ahead of the state then, and the domain must be
        opened again."""

    def handle(self, packet: Packet) -> list[Effect]:
        """Process one packet to completion.

        What the store cannot read for a read, or for a write before it is committed, is told to whoever asked. Past
        that a step must reach its end.

        :raises HeadraceError: it could not. The domain takes nothing more.
        """
        if self.broken is not None:
            raise self.broken
        self.counters.steps += 1
        step = Step(self.index)
        try:
            self._take_step(packet, step)
            effects = self.close(step)
            return [*effects, *self._let_go_on()] if self.transactions.locks.waiting else effects
        except HeadraceError as error:
            self.broken = error
            raise

    def _let_go_on(self) -> list[Effect]:
        """The steps of writes that wait for locks no more: these are free, or it was in vain."""
        effects = list[Effect]()
        for waiting in self.transactions.locks.go_on():
            step = Step(self.index)
            step.replies.append(waiting) if isinstance(waiting, Reply) else self._write(waiting, step)
            effects += self.close(step)
        return effects

    def _take_step(self, packet: Packet, step: Step) -> None:
        match packet:
            case Write():
                self._write(packet, step)
            case LinkUpdate():
                self._receive(packet, step)
            case Read() | Upquery():
                self.answer(packet, step)
            case EvictKeys():
                self._evict_keys(packet, step)
            case EvictMemory(excess=excess):
                act = self.forward_pass(step)
                self.counters.evictions += evict_least_used(self.vertices.values(), act, excess)
                act.run()
            case Touch(reader=reader, keys=keys):
                if reader in self.vertices:
                    touch(self.vertices[reader], keys)
            case PeerReset():
                self._reset(packet, step)
            case _:
                assert_never(packet)

    def beat(self) -> list[Effect]:
        """Tell the links how far the clocks have come, where no rows said it. Once for many steps is enough."""
        return list(self.links.beat())

    def link_epoch(self, link: LinkId) -> int:
        """Packets of this link are to be handed over under this epoch and no other."""
        return self.links.epoch(link)

    def base_name(self, schema: TableSchema) -> str:
        """Under which clocks count this domain's shard of a table."""
        return base_shard(schema.name, schema.generation, self.shard, self.shards)

    def log_needed(self, table: str) -> int | None:
        """The position after which a table's log is still needed here; None where all of it may be trimmed."""
        return None if self.backfill is None else self.backfill.needs(table)

    def accounted_bytes(self) -> int:
        """The bytes of all state and readers, as accounted."""
        return self.vertices.accounted_bytes()

    # --- writes and updates -----------------------------------------------------------------------------------

    def _write(self, packet: Write, step: Step) -> None:
        operation, within = packet.operation, packet.within
        named: tuple[WrittenTable, ...] = ()
        repeated = False
        try:
            if isinstance(within, InTransaction):
                done = self.transactions.take(operation, within)
            else:
                assert isinstance(operation, Operation), "what ends a transaction is in one"
                known = self.written.get(operation.table)
                if known is None or known.schema is not known.stored.schema:
                    known = self.written.made(operation.table)
                named = (known,)
                repeated = within is not None and is_repeated(known.stored, within)
                if repeated:
                    done = NOTHING
                elif self.transactions.locks.holders or self.transactions.snapshots.still:
                    done = self.transactions.write_beside(operation)
                elif known.is_related or (isinstance(operation, Amend) and operation.also):
                    done = change_related(self.written, operation)
                else:
                    done = change_table(known, operation)
                if within is not None and not repeated:
                    known.stored.remember(within.stream, within.number)
            for expected in self.expected.values():
                expected.check_write({each.schema.name: deltas for each, deltas in done.tables.items()})
            if isinstance(operation, Prepare):
                done = NOTHING
            if done.tables:
                # Rows, index entries, logs and positions in one atomic write; operators then see the new state.
                log = []
                for each, deltas in done.tables.items():
                    each.stored.stage(deltas)
                    log.append((each.schema.name, self.store.position(each.schema.name) + 1, deltas))
                self.store.commit(log)
                for each, (_, sequence, _) in zip(done.tables, log, strict=True):
                    self.clocks.local[each.base] = sequence  # As ``write`` of the clocks, for each write.
                self.clocks.version += 1
            elif (
                within is not None
            ):  # A number of a stream, or values that a transaction was given; nothing for the log.
                self.store.commit(())
        except Exception as raised:
            self.store.rollback()
            if self.transactions.waits(packet, raised):
                return
            error = refusal(raised)
            self.transactions.failed(operation, within, error)
            failed = Refused(error.rows) if isinstance(error, RowsRefused) else Failed(error)
            step.replies.append(Reply(packet.request, failed))
            return
        changed = {each.schema.name: deltas for each, deltas in done.tables.items()}
        if self.transactions.open:
            self.transactions.changed(changed, within)
        self.counters.writes += 1
        self.spread(changed, step)
        position = {each.base: self.clocks.local.get(each.base, 0) for each in (*named, *done.tables)}
        written = Written(done.affected, position, done.first, repeated, done.returned, done.matched)
        if isinstance(within, InTransaction):
            written = self.transactions.done(operation, within, written)
        step.replies.append(Reply(packet.request, written))

    def spread(self, changed: Mapping[str, list[Delta]], step: Step) -> None:
        """Send what one commit changed through the graph, in one pass (``TableDeltas`` says why), and on to what is
        being backfilled."""
        act = self.forward_pass(step)
        for table, deltas in changed.items():
            for base in self.vertices.bases.get(table, ()):
                whole = base.operator.is_whole  # type: ignore[attr-defined]
                act.inject_output(base, deltas if whole else base.operator.cut(deltas))  # type: ignore[attr-defined]
        act.run()
        if self.backfill is not None:
            building = self.building_pass(step)
            for table, deltas in changed.items():
                for vertex, passed in self.backfill.passed(table, deltas):
                    building.inject_output(vertex, passed)
            self.feed_full(act, building)
            building.run()

    def begin_backfill(self, step: Step) -> None:
        assert self.backfill is not None
        building = [vertex for vertex in self.vertices.values() if vertex.building]
        self.backfill.begin(building, lambda: self.building_pass(step))

    def feed_full(self, act: ForwardPass, building: ForwardPass) -> None:
        """State that was full before the backfill began has been fed whole: its changes go on as they are."""
        assert self.backfill is not None
        if not self.backfill.begun:
            return
        for vertex, deltas in act.deltas.items():
            if vertex.indexes and not vertex.is_base and any(c.building or c.feeds_building for c in vertex.children):
                building.inject_output(vertex, deltas)

    def forward_pass(self, step: Step) -> ForwardPass:
        act = ForwardPass()
        step.passes.append(act)
        return act

    def building_pass(self, step: Step) -> ForwardPass:
        assert self.backfill is not None
        act = ForwardPass(building=True, seen=self.backfill)
        step.passes.append(act)
        return act

    def _receive(self, packet: LinkUpdate, step: Step) -> None:
        self.links.accept(packet, self.vertices)
        deltas: dict[Vertex, list[Delta]] = {}
        for index, sent in packet.deltas:
            if index in self.vertices:
                deltas.setdefault(self.vertices[index], []).extend(sent)
        if any(vertex.building for vertex in deltas):
            self.begin_backfill(step)
        act = self.forward_pass(step)
        building = self.building_pass(step) if self.backfill is not None else None
        patterns: dict[Vertex, list[Pattern]] = {}
        for index, pattern in packet.evictions:
            if index in self.vertices:
                patterns.setdefault(self.vertices[index], []).append(pattern)
        for vertex, of_vertex in patterns.items():
            self._ask_again(packet.link, self.ingresses.evicted(packet.link, vertex, of_vertex), step)
        for vertex, rows in deltas.items():
            self.ingresses.updated(packet.link, vertex, rows)
        for vertex in {**patterns, **deltas}:
            if vertex.building:
                assert building is not None
                building.inject(vertex, deltas.get(vertex, []))
            else:
                act.inject(vertex, deltas.get(vertex, []), patterns.get(vertex, ()))
        act.run()
        if building is not None:
            self.feed_full(act, building)
            building.run()
        answers: tuple[Fill | Unfilled, ...] = (*packet.fills, *packet.unfilled)
        answered = [hole for answer in answers if (hole := self._take(packet.link, answer, step)) is not None]
        self._retry(answered, step)

    # --- reads, upqueries and fills ---------------------------------------------------------------------------

    def _take(self, link: LinkId, fill: Fill | Unfilled, step: Step) -> Hole | None:
        """A fill has come; the hole that it closed, if it was the last piece."""
        if fill.node not in self.vertices:
            return None
        vertex = self.vertices[fill.node]
        material = self.ingresses.answered(link, vertex, fill)
        hole = vertex, fill.columns, fill.key
        if material is None:
            return None
        if isinstance(material, HeadraceError):
            self._give_up(hole, material, step)
            return None
        vertex.indexes[fill.columns].fill(fill.key, material)
        self.counters.fills += 1
        return hole

    def _retry(self, filled: Sequence[Hole], step: Step) -> None:
        """Try the parked reads that waited for these holes again, each from its start."""
        for packet in [packet for packet, waits in self.parked.items() if not waits.isdisjoint(filled)]:
            del self.parked[packet]
            self.answer(packet, step)

    def _give_up(self, hole: Hole, error: HeadraceError, step: Step) -> None:
        """Tell those who wait for a hole that another domain cannot fill."""
        for packet in [packet for packet, waits in self.parked.items() if hole in waits]:
            del self.parked[packet]
            self._fail(packet, error, step)

    def _fail(self, packet: Read | Upquery, error: HeadraceError, step: Step) -> None:
        """Tell whoever asked why there is no answer; of several keys of an upquery, each by itself is tried again."""
        if isinstance(packet, Read):
            step.replies.append(Reply(packet.request, Failed(error)))
        elif len(packet.keys) == 1:
            unfilled = Unfilled(packet.node, packet.columns, packet.keys[0], error)
            step.unfilled.setdefault(packet.link, []).append(unfilled)
        else:
            for key in packet.keys:
                self.answer(replace(packet, keys=(key,)), step)

    def answer(self, packet: Read | Upquery, step: Step) -> None:
        try:
            pull = self._read(packet, step) if isinstance(packet, Read) else self._upquery(packet, step)
        except Exception as raised:
            # Nothing is wrong with the state: look-ups only fill, and each fill stands by itself.
            self._fail(packet, refusal(raised), step)
            return
        if pull is None:
            return
        waits: set[Hole] = set()
        for (vertex, columns), keys in pull.misses.items():
            waits.update((vertex, columns, key) for key in keys)
            for link, asked in self.ingresses.ask(vertex, columns, list(keys)):
                self._ask(link, vertex, columns, asked, step)
        self.parked[packet] = waits

    def _ask(self, link: LinkId, vertex: Vertex, columns: Columns, keys: Sequence[Row], step: Step) -> None:
        self.counters.upqueries += 1
        epoch = self.links.epoch(link)
        step.upqueries.append(Send(link, Upquery(link, epoch, vertex.index, columns, tuple(keys))))

    def _ask_again(self, link: LinkId, holes: Sequence[Hole], step: Step) -> None:
        for vertex, columns, key in holes:
            self._ask(link, vertex, columns, [key], step)

    def _read(self, packet: Read, step: Step) -> Pull | None:
        """Fill a reader's holes. Where the read is to be parked for some of them: the pull that has missed them."""
        vertex = self.vertices.get(packet.reader)
        if packet.reader in self.held or (vertex is not None and vertex.building):
            self.awaiting.append(packet)
            return None
        reader = None if vertex is None else vertex.operator
        if vertex is None or not isinstance(reader, ReaderOperator):
            step.replies.append(Reply(packet.request, Filled()))  # dropped meanwhile: the caller looks it up anew
            return None
        filled, holes = reader.filled, reader.holes(packet.keys)
        pull = Pull(self.counters)
        found = pull.find(vertex.parents[0], reader.descriptor.key, holes) if holes else []
        complete = True
        for key, rows in zip(holes, found, strict=True):
            if rows is None:
                complete = False
                continue
            material = consolidate(rows)
            filled.fill(key, material)
            step.publish(vertex).filled.append((key, material))
            self.counters.fills += 1
        if not complete:
            return pull
        step.replies.append(Reply(packet.request, Filled()))
        return None

    def _upquery(self, packet: Upquery, step: Step) -> Pull | None:
        """The same of an egress's rows."""
        assert packet.epoch == self.links.epoch(packet.link), f"an upquery of epoch {packet.epoch}"
        route = self.links.route(packet.link, packet.node)
        if route is None:
            return None
        egress, part = route
        if egress.index in self.held:
            self.awaiting.append(packet)
            return None
        pull = Pull(self.counters)
        found = pull.find(egress.parents[0], packet.columns, packet.keys)
        if any(rows is None for rows in found):
            return pull
        fills = step.fills.setdefault(packet.link, [])
        for key, rows in zip(packet.keys, found, strict=True):
            mine = consolidate(rows or ())
            if part is not None:
                mine = [delta for delta in mine if part.has(delta[0])]
            fills.append(Fill(packet.node, packet.columns, key, tuple(mine)))
        return None

    # --- evictions --------------------------------------------------------------------------------------------

    def _evict_keys(self, packet: EvictKeys, step: Step) -> None:
        count = 0
        if packet.node in self.vertices:
            vertex = self.vertices[packet.node]
            act = self.forward_pass(step)
            for columns, index in vertex.indexes.items():
                if index.partial:
                    count += act.evict_keys(vertex, columns, [key for key in packet.keys if len(key) == len(columns)])
            act.run()
        self.counters.evictions += count
        step.replies.append(Reply(packet.request, Evicted(count)))

    def _reset(self, packet: PeerReset, step: Step) -> None:
        """A peer lost its state: what it filled is void here, and what awaits it is asked for again.

        What it had asked for it has forgotten.
        """
        again = self.links.reset(packet.peer, packet.epoch)
        for parked in [p for p in self.parked if isinstance(p, Upquery) and p.link in again]:
            del self.parked[parked]
        self.awaiting = [p for p in self.awaiting if isinstance(p, Read) or p.link not in again]
        links = {link for link in again if sender_of(link) == packet.peer}
        act = self.forward_pass(step)
        for vertex, sources in self.ingresses.sources.items():
            if not links.isdisjoint(sources.links):
                act.inject(vertex, [], fed_by(links, vertex, sources))
        act.run()
        for link in sorted(links):
            self._ask_again(link, self.ingresses.reset(link), step)

    # --- the end of a step ------------------------------------------------------------------------------------

    def close(self, step: Step) -> list[Effect]:
        """Each reader publishes once, each link carries one packet at most; replies come last."""
        for act in step.passes:
            self._publish(act, step)
        effects: list[Effect] = list(step.publishes.values())
        if self.links.outgoing:
            effects.extend(self.links.close_step(step.passes, step.fills, step.unfilled))
        effects.extend(step.upqueries)
        effects.extend(step.replies)
        return effects

    def _publish(self, act: ForwardPass, step: Step) -> None:
        for (vertex, _), keys in act.evicted.items():
            if vertex.is_reader and keys:
                step.publish(vertex).evicted.extend(keys)
        for vertex, deltas in act.deltas.items():
            if vertex.is_reader:
                key_of = vertex.operator.key_of  # type: ignore[attr-defined]
                changes = [(key_of(delta[0]), delta) for delta in deltas]
                step.publish(vertex).deltas.extend(changes)
                self.counters.published_deltas += len(changes)
