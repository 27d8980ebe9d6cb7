"""One task of a bulk job: our own domain over a store of its own, fed with rows, read out at the end. Pure.

::

    links of earlier stages ─┐                         ┌─► blocks of rows, by link      (for tasks of later stages)
                             ├─► Domain, MemoryStore ──┤
    tables at P, one by one ─┘                         └─► blocks of state, by vertex   (for the workers)

What comes over links is fed first, then table after table as the task names them, each in slices; every slice is a step
of the domain, and all of it is insertions. What was built so is what a domain that saw these rows come would hold.

**Memory** that a task needs, beside a block of each input: the states that it builds; of its tables those that are
``kept``, some 0.5 to 1 kB a row; and of what leaves it, whatever cannot leave at once, since it may still be retracted
(``Sink.from_state`` and ``Sink.grows`` say what can). A table that is only aggregated, or that is the large side
of a join, passes through without staying. What an aggregate or TopK says goes on when all has come to it (a *gate*):
so what is below meets each of its rows once, and not each of their changes; for that moment all of its rows are a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from domains.archive.manifest import check_rows
from domains.archive.rows import BLOCK_ITEMS, blocks_of, decode_block, encode_block
from domains.engine.control import perform
from domains.engine.domain import Domain, Step
from domains.engine.forward import ForwardPass
from domains.engine.lifecycle.replay import exported, rows_of_state
from domains.language.types import Delta, Row, TableSchema
from domains.operators.operator import Vertex
from domains.plan.commands import Activate, AddNodes, Feed, Route
from domains.plan.deltas import Entry, add_row
from domains.plan.graph import Columns, DomainIndex, NodeIndex
from domains.plan.packets import Effect, LinkId, LinkUpdate, Publish, Send
from domains.plan.sharding import shard_of
from domains.plan.traits import is_base, is_ingress, traits_of
from domains.store.memory_store import MemoryStore, MemoryTable
from domains.store.row_types import RowTypes
from migrations.backfill.job import Flow, StageSink, Task, TaskTable

FEED_ROWS = 4_000
"""Rows of a step. A larger one makes a batch's deltas meet in the caches of fewer groups and is no faster."""


@dataclass(frozen=True, slots=True)
class StateBlock:
    """Items of the state of a full vertex, as ``LoadState`` takes them."""

    node: NodeIndex
    items: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RowsBlock:
    """Rows (row, weight) for one ingress over one link. All weights are positive, and equal rows may come again."""

    flow: Flow
    rows: int
    data: bytes


Output = StateBlock | RowsBlock
Rows = Iterable[Delta]


def run_task(task: Task, tables: Mapping[str, Rows], inputs: Mapping[Flow, Iterable[bytes]]) -> Iterator[Output]:
    """Run one task; what comes out, block by block, some of it while rows are still being fed.

    ``tables`` are the folded rows (row, weight) of each base shard that the task names, by its base name; ``inputs``
    the blocks of each of its inputs, whatever their order (an input that nobody sent anything for may be left out).
    Each is walked over once, in the task's order, so all may be iterators. Every full vertex of the task has a
    StateBlock, an empty one where it has no state.

    :raises SegmentCorrupt: a row does not fit its table.
    """
    return _Run(task).outputs(tables, inputs)


class GatedDomain(Domain):
    """A domain of which some vertices are gated: see :class:`ForwardPass`."""

    def __init__(self, index: DomainIndex, store: TaskStore, shard: int, shards: int) -> None:
        super().__init__(index, store, shard=shard, shards=shards)
        self.gated: set[Vertex] = set()

    def forward_pass(self, step: Step) -> ForwardPass:
        act = ForwardPass(gated=self.gated)
        step.passes.append(act)
        return act


class _Run:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._store = TaskStore({table.schema.name for table in task.tables if not table.kept})
        self._types = {table.base: RowTypes(table.schema, table.columns) for table in task.tables}
        self._domain = GatedDomain(task.domain, self._store, task.shard, task.shards)
        self._gates = gates_of(task)
        self._sequences: dict[LinkId, int] = {}
        sinks = [sink for sink in task.sinks if not sink.from_state]
        self._rows = {flow: _Leaving(sink.grows) for sink in sinks for flow in map(flow_of, sink.routes)}
        self._published = {sink.node: _Leaving(sink.grows) for sink in sinks if not sink.routes}
        self._stated: set[NodeIndex] = set()
        self._begin([route for sink in sinks for route in sink.routes])

    def _begin(self, outgoing: list[Route]) -> None:
        task, domain = self._task, self._domain
        for table in task.tables:
            self._store.create_table(replace(table.schema, unique=(), indexes=(), index_names=()))
        self._perform(perform(domain, AddNodes(task.nodes, tuple(outgoing), task.incoming))[1])
        finished = False
        while not finished:  # Over no rows: an aggregate without GROUP BY has its one row.
            progress, effects = perform(domain, Feed(1))
            finished = progress.finished
            self._perform(effects)
        self._perform(perform(domain, Activate())[1])
        domain.gated.update(domain.vertices[node] for node in self._gates)

    # --- feeding ------------------------------------------------------------------------------------------------

    def outputs(self, tables: Mapping[str, Rows], inputs: Mapping[Flow, Iterable[bytes]]) -> Iterator[Output]:
        for flow in self._task.inputs:
            for block in inputs.get(flow, ()):
                self._receive(flow, decode_block(block))
                yield from self._leaving(whole=False)
        left = {table.schema.name for table in self._task.tables}
        yield from self._opened(left)
        for table in self._task.tables:
            rest = iter(tables[table.base])
            while rows := list(islice(rest, FEED_ROWS)):
                self._feed(table, rows)
                yield from self._leaving(whole=False)
            left.remove(table.schema.name)
            yield from self._opened(left)
        yield from self._leaving(whole=True)
        yield from self._states()

    def _receive(self, flow: Flow, rows: list[Delta]) -> None:
        sequence = self._sequences[flow.link] = self._sequences.get(flow.link, 0) + 1
        epoch = self._domain.link_epoch(flow.link)
        packet = LinkUpdate(flow.link, sequence, epoch, {}, deltas=((flow.ingress, tuple(rows)),))
        self._perform(self._domain.handle(packet))

    def _feed(self, table: TaskTable, rows: list[Delta]) -> None:
        check_rows(self._types[table.base], self._task.shard, [row for row, _ in rows])
        stored = self._store.table(table.schema.name)
        if isinstance(stored, PassingTable):
            stored.begun = True
        else:
            stored.stage(rows)
            self._store.commit(())
        step = Step(self._task.domain)
        self._domain.spread({table.schema.name: rows}, step)
        self._perform(self._domain.close(step))

    def _opened(self, left: set[str]) -> Iterator[Output]:
        """Open the gates that nothing comes to any more, with these tables left to be fed; what they say goes on."""
        for node, tables in self._gates.items():
            vertex = self._domain.vertices[node]
            if vertex in self._domain.gated and left.isdisjoint(tables):
                self._domain.gated.remove(vertex)
                step = Step(self._task.domain)
                act = self._domain.forward_pass(step)
                act.inject_output(vertex, list(rows_of_state(vertex)))
                act.run()
                self._perform(self._domain.close(step))
                yield from self._leaving(whole=False)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(packet=LinkUpdate(link=link, deltas=deltas)):
                    for ingress, rows in deltas:
                        self._rows[Flow(link, ingress)].add(rows)
                case Publish(reader=reader, deltas=changes):
                    self._published[reader].add(delta for _, delta in changes)
                case _:
                    raise AssertionError(f"a task asks for nothing and answers nobody: {effect}")

    # --- what comes out -----------------------------------------------------------------------------------------

    def _leaving(self, *, whole: bool) -> Iterator[Output]:
        for flow, leaving in self._rows.items():
            for rows in leaving.take(whole=whole):
                yield RowsBlock(flow, len(rows), encode_block(rows))
        for node, leaving in self._published.items():
            for rows in leaving.take(whole=whole):
                self._stated.add(node)
                yield StateBlock(node, len(rows), encode_block(rows))

    def _states(self) -> Iterator[Output]:
        vertices = self._domain.vertices
        for node in self._task.full:
            yield from self._stated_by(node, exported(vertices[node]))
        for sink in self._task.sinks:
            if sink.from_state and sink.routes:
                yield from _sent(rows_of_state(vertices[sink.parent]), sink)
            elif sink.from_state:
                yield from self._stated_by(sink.node, rows_of_state(vertices[sink.parent]))
            elif not sink.routes and sink.node not in self._stated:
                yield StateBlock(sink.node, 0, encode_block(()))

    @staticmethod
    def _stated_by(node: NodeIndex, items: Iterable[object]) -> Iterator[Output]:
        empty = True
        for block in blocks_of(items):
            empty = False
            yield StateBlock(node, len(block), encode_block(block))
        if empty:
            yield StateBlock(node, 0, encode_block(()))


def gates_of(task: Task) -> dict[NodeIndex, set[str]]:
    """The vertices that are gated, in topological order, each with the tables that come to it.

    All aggregates and TopKs: of these a row that comes changes one that had been said before. But none that have said
    something already: an aggregate without GROUP BY, which has a row over nothing, and all below it.
    """
    fed: dict[NodeIndex, set[str]] = {}
    born: set[NodeIndex] = set()
    gates: dict[NodeIndex, set[str]] = {}
    for node in task.nodes:
        operator, traits = node.operator, traits_of(node.operator)
        above = [] if is_ingress(operator) else node.parents
        own = {operator.table} if is_base(operator) else set()
        fed[node.index] = own.union(*(fed[parent] for parent in above))
        if traits.row_over_nothing or not born.isdisjoint(above):
            born.add(node.index)
        elif traits.groups_by is not None and not traits.grows:
            gates[node.index] = fed[node.index]
    return gates


def flow_of(route: Route) -> Flow:
    return Flow(route.link, route.ingress)


def _sent(rows: Rows, sink: StageSink) -> Iterator[Output]:
    """Rows of a state, each to whom its route's part gives it."""
    waiting: dict[Flow, list[Delta]] = {flow_of(route): [] for route in sink.routes}
    for row, weight in rows:
        numbers: dict[tuple[int, int], int] = {}
        for route in sink.routes:
            part = route.part
            if part is not None:
                way = (part.column, part.shards)
                if way not in numbers:
                    numbers[way] = shard_of(row[part.column], part.shards, part.collation)
                if numbers[way] != part.number:
                    continue
            flow = flow_of(route)
            waiting[flow].append((row, weight))
            if len(waiting[flow]) == BLOCK_ITEMS:
                yield RowsBlock(flow, BLOCK_ITEMS, encode_block(waiting[flow]))
                waiting[flow] = []
    for flow, rest in waiting.items():
        if rest:
            yield RowsBlock(flow, len(rest), encode_block(rest))


class _Leaving:
    """Rows on their way out: at once where none of them is ever taken back, else when all have come."""

    def __init__(self, grows: bool) -> None:
        self._grows = grows
        self._waiting: list[Delta] = []
        self._net: Entry = {}

    def add(self, rows: Rows) -> None:
        if self._grows:
            self._waiting.extend(rows)
        else:
            for row, weight in rows:
                add_row(self._net, row, weight)

    def take(self, *, whole: bool) -> Iterator[list[Delta]]:
        """What may leave now, in full blocks; everything when it is ``whole``."""
        if whole:
            rest, self._waiting, self._net = (*self._waiting, *self._net.items()), [], {}
            assert all(weight > 0 for _, weight in rest), "more was taken back than had left"
            yield from blocks_of(rest)
        while len(self._waiting) >= BLOCK_ITEMS:
            block, self._waiting = self._waiting[:BLOCK_ITEMS], self._waiting[BLOCK_ITEMS:]
            yield block


# --- the store --------------------------------------------------------------------------------------------------


class PassingTable(MemoryTable):
    """A table whose rows are not kept, because the plan says that nothing looks them up once they come."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self.begun = False

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        if not self.begun:
            return []
        raise AssertionError(f'rows of "{self.schema.name}" were not kept, and are looked up by {columns}')


class TaskStore(MemoryStore):
    """A store without a log; ``passing`` tables take no rows."""

    def __init__(self, passing: set[str]) -> None:
        super().__init__(keep_log=False)
        self._passing = passing

    def make_table(self, schema: TableSchema) -> MemoryTable:
        return PassingTable(schema) if schema.name in self._passing else MemoryTable(schema)
