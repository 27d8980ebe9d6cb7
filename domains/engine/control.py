"""Commands performed on a domain: how its graph changes while it serves.

New vertices stand beside the running ones at once. Partial ones begin as holes and are ready; full ones, and the
stateless ones above them, are *building* until their backfill is complete. Every command is a step of its own and
answers effects like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from domains.archive.rows import decode_block
from domains.engine.clock import Origins
from domains.engine.domain import Domain, Step
from domains.engine.lifecycle.backfill import Backfill, scalar_state
from domains.engine.lifecycle.expected import Expected
from domains.engine.lifecycle.life import Life
from domains.engine.lifecycle.replay import Replay, load
from domains.engine.upqueries import IngressSources
from domains.engine.writing.write import change_table
from domains.errors import HeadraceError, NotFound
from domains.language.rewriting import is_never
from domains.language.types import TableSchema
from domains.operators.edges import ReaderOperator
from domains.operators.operator import Vertex
from domains.plan import graph
from domains.plan.commands import (
    Activate,
    AddNodes,
    AlterTable,
    BuildIndex,
    CheckRows,
    Command,
    CreateTable,
    DropTable,
    Expect,
    ExtendNodes,
    Feed,
    FillTable,
    Follow,
    LoadState,
    Progress,
    Relent,
    RemoveNodes,
    Route,
    StartReplay,
)
from domains.plan.graph import Materialization, Node
from domains.plan.packets import Effect, Filled, Insert, Read, Reply
from domains.plan.traits import is_base, is_ingress, traits_of
from domains.store.widening import following

DONE = Progress(0, True)


def perform(domain: Domain, command: Command) -> tuple[Progress, list[Effect]]:
    """Perform one command as a step. Raises HeadraceError where the store refuses."""
    step = Step(domain.index)
    progress = DONE
    match command:
        case CreateTable(schema=schema):
            _drop_unfinished(domain, schema.name)
            domain.store.create_table(schema)
            domain.transactions.altered(schema)
            domain.written.clear()  # Foreign keys of one table are a matter of another's writes.
            if not schema.filling:  # Of what is not decided no clock tells.
                domain.clocks.write(domain.base_name(schema), domain.store.position(schema.name))
        case FillTable(operation=operation):
            _fill(domain, operation)
        case AlterTable(schema=schema):
            before = domain.store.table(schema.name).schema
            others = [each for each in domain.store.tables() if each.name != schema.name]
            for each in (schema, *following(before, schema, others)):
                _alter_table(domain, each)
                domain.transactions.altered(each)
            domain.expected.pop(schema.name, None)
            domain.written.clear()
        case Expect(schema=schema):
            domain.transactions.check_free()  # What is prepared was checked without knowing of it.
            earlier = domain.expected.get(schema.name)
            added = () if earlier is None else earlier.added
            domain.expected[schema.name] = Expected(domain.store, schema, added)
        case CheckRows(table=table, limit=limit):
            progress = domain.expected[table].check_stored(limit)
        case Relent(table=table):
            _relent(domain, table)
        case DropTable(table=table):
            gone = domain.store.table(table).schema
            domain.clocks.local.pop(domain.base_name(gone), None)
            domain.store.drop_table(table)
            domain.transactions.altered(gone)
            domain.written.clear()
            domain.expected.pop(table, None)
        case AddNodes():
            _add_nodes(domain, command, step)
        case ExtendNodes(nodes=nodes):
            for node in nodes:
                domain.vertices.extend(node)
                _index_base(domain, node)
        case BuildIndex():
            progress = _build_index(domain, command)
        case Feed(limit=limit):
            progress = _feed(domain, limit, step)
        case LoadState():
            progress = _load_state(domain, command, step)
        case StartReplay():
            progress = _start_replay(domain, command)
        case Follow(limit=limit):
            progress = _follow(domain, limit, step)
        case Activate():
            _activate(domain, step)
        case RemoveNodes():
            _remove_nodes(domain, command, step)
        case _:
            assert_never(command)
    return progress, domain.close(step)


def _fill(domain: Domain, operation: Insert) -> None:
    """Like a write that nobody hears of: no node reads the table."""
    if not domain.store.table(operation.table).schema.filling:
        raise NotFound(f'table "{operation.table}" is not being filled')  # Whoever sent it was cut off meanwhile.
    table = domain.written.known(operation.table)
    try:
        for each, deltas in change_table(table, operation).tables.items():
            each.stored.stage(deltas)
            domain.store.commit([(each.schema.name, domain.store.position(each.schema.name) + 1, deltas)])
    except HeadraceError as error:
        domain.store.rollback()
        error.message = _ROW.sub("", error.message)
        raise


_ROW = re.compile(r"^row \d+: ")
"""Which row it is says nothing where rows are filled in part by part."""


def _alter_table(domain: Domain, schema: TableSchema) -> None:
    domain.clocks.local.pop(domain.base_name(domain.store.table(schema.name).schema), None)
    domain.store.alter_table(schema)
    domain.clocks.write(domain.base_name(schema), domain.store.position(schema.name))
    domain.vertices.rebase(schema.name)


def _drop_unfinished(domain: Domain, name: str) -> None:
    """What an attempt has left that was interrupted."""
    if any(schema.filling and schema.name == name for schema in domain.store.tables()):
        domain.store.drop_table(name)
        domain.written.clear()


def _relent(domain: Domain, table: str) -> None:
    _drop_unfinished(domain, table)
    expected = domain.expected.pop(table, None)
    for columns in expected.added if expected is not None else ():
        domain.store.table(table).drop_index(columns)
        domain.index_cursors.pop((table, columns), None)


# --- adding -----------------------------------------------------------------------------------------------------


def _add_nodes(domain: Domain, command: AddNodes, step: Step) -> None:
    incoming: dict[graph.NodeIndex, list[Route]] = {}
    for route in command.incoming:
        incoming.setdefault(route.ingress, []).append(route)
    added: list[Vertex] = []
    for node in command.nodes:
        vertex = domain.vertices.add(node)
        added.append(vertex)
        own: Origins = {}
        if is_base(node.operator):
            own = {domain.base_name(domain.store.table(node.operator.table).schema): frozenset((None,))}
        elif is_ingress(node.operator):
            routes = incoming.get(node.index, [])  # None in a task: it stands for state that is somewhere else.
            links = tuple(route.link for route in routes)
            domain.ingresses.sources[vertex] = IngressSources(links, node.operator.by)
            domain.links.add_incoming(links)
            for route in routes:
                for base in route.bases:
                    own[base] = own.get(base, frozenset()) | {route.link}
        domain.clocks.add(vertex, own)
        _index_base(domain, node)
    for route in command.outgoing:
        domain.links.add_route(route, domain.vertices[route.egress])
    domain.held |= command.held
    # Where nodes are known already, what is held is what is built again; the others are as if they ran before it.
    building = _mark_building([vertex for vertex in added if vertex.index in command.held] if command.held else added)
    if building:
        _prepare_backfill(domain, building, step, bulk=command.bulk)
    elif command.held and domain.life.state is Life.ACTIVE:
        domain.life.to(Life.HELD)


def _index_base(domain: Domain, node: Node) -> None:
    """Declare the indexes that a base needs; rows stored before enter them by ``BuildIndex``."""
    if is_base(node.operator):
        table = domain.store.table(node.operator.table)
        for columns in node.indexes:
            stored = tuple(node.operator.columns[column] for column in columns)
            if stored and not table.has_index(stored):
                table.add_index(stored)


def _mark_building(added: Iterable[Vertex]) -> list[Vertex]:
    """The new full vertices, and the new ones that lead to them."""
    new = set(added)
    building: list[Vertex] = []
    for vertex in sorted(new, key=lambda v: -v.rank):
        leads = any(child.building for child in vertex.children)
        full = vertex.node.materialization is Materialization.FULL
        if (full or leads) and not vertex.is_base:
            vertex.building = True
            building.append(vertex)
    return building


def _prepare_backfill(domain: Domain, building: list[Vertex], step: Step, *, bulk: bool) -> None:
    """Find what feeds the building vertices: bases, and state that is full already, perhaps through stateless ones.
    Nothing is read for a filter that no row passes, such as that below the one row of a SELECT without FROM.

    Nothing is fed before the first ``Feed``. By then all domains of the migration have their nodes, so what is sent
    always meets its ingress; and a packet for an ingress that is not there is one for a node that was removed.
    """
    bases: dict[Vertex, None] = {}
    full: dict[Vertex, None] = {}
    above = [parent for vertex in building for parent in vertex.parents]
    while above:
        vertex = above.pop()
        if vertex.building or vertex.feeds_building:
            continue
        if vertex.is_base:
            bases[vertex] = None
        elif vertex.indexes:
            assert vertex.node.materialization is Materialization.FULL, f"{vertex} is partial above a full state"
            full[vertex] = None
        else:
            vertex.feeds_building = True
            if bulk or not is_never(traits_of(vertex.node.operator).demands):
                above.extend(vertex.parents)
    in_order = sorted(bases, key=lambda v: v.rank)
    domain.backfill = (Replay if bulk else Backfill)(domain.store, in_order, domain.life, list(full))
    scalars = [index for vertex in building if (index := scalar_state(vertex)) is not None]
    for index in scalars:
        index.conceal()
    for vertex in building:
        if isinstance(vertex.operator, ReaderOperator):
            vertex.operator.filled.fill((), ())
            step.publish(vertex).filled.append(((), []))


# --- slices and the end -----------------------------------------------------------------------------------------


def _build_index(domain: Domain, command: BuildIndex) -> Progress:
    table = domain.store.table(command.table)
    table.add_index(command.columns)  # CREATE INDEX has declared it to nobody yet; else nothing happens here.
    if table.has_index(command.columns):
        return DONE
    cursor = domain.index_cursors.get((command.table, command.columns))
    following = table.build_index(command.columns, cursor, command.limit)
    if following is None:
        domain.index_cursors.pop((command.table, command.columns), None)
        return Progress(command.limit, True)
    domain.index_cursors[command.table, command.columns] = following
    return Progress(command.limit, False)


def _feed(domain: Domain, limit: int, step: Step) -> Progress:
    match domain.life.state:
        case Life.ACTIVE | Life.HELD | Life.FOLLOWING:
            return DONE
        case Life.BUILDING | Life.FEEDING:
            return _slice(domain, limit, step)
        case Life.LOADING | Life.READING | Life.READY | Life.REPLAYING as state:
            raise AssertionError(f"what is loaded in bulk is fed: {state.value}")
        case state:
            assert_never(state)


def _slice(domain: Domain, limit: int, step: Step) -> Progress:
    backfill = domain.backfill
    assert backfill is not None
    if not backfill.begun:
        domain.begin_backfill(step)
    if domain.life.is_complete:
        return DONE
    before = backfill.rows
    sources = backfill.slice(limit)
    act = domain.building_pass(step)
    for vertex, rows in sources:
        act.inject_output(vertex, rows)
    act.run()
    return Progress(backfill.rows - before, domain.life.is_complete)


def _load_state(domain: Domain, command: LoadState, step: Step) -> Progress:
    vertex = domain.vertices[command.node]
    assert vertex.building, f"{vertex} is not being built"
    assert domain.life.state is Life.LOADING, f"a state came when none is loaded: {domain.life.state.value}"
    items = decode_block(command.items)
    rows = load(vertex, items)
    if isinstance(vertex.operator, ReaderOperator):
        key_of = vertex.operator.key_of
        step.publish(vertex).deltas.extend((key_of(delta[0]), delta) for delta in rows)
    return Progress(len(items), True)


def _start_replay(domain: Domain, command: StartReplay) -> Progress:
    match domain.life.state:
        case Life.ACTIVE | Life.HELD | Life.READY | Life.REPLAYING | Life.FOLLOWING:
            return DONE
        case Life.LOADING | Life.READING:
            assert isinstance(domain.backfill, Replay)
            rows = domain.backfill.start(command.positions, command.limit)
            return Progress(rows, domain.life.state is not Life.READING)
        case Life.BUILDING | Life.FEEDING as state:
            raise AssertionError(f"what is fed in slices is replayed: {state.value}")
        case state:
            assert_never(state)


def _follow(domain: Domain, limit: int, step: Step) -> Progress:
    match domain.life.state:
        case Life.ACTIVE | Life.HELD | Life.FOLLOWING:
            return DONE
        case Life.READY | Life.REPLAYING:
            return _slice(domain, limit, step)
        case Life.BUILDING | Life.FEEDING | Life.LOADING | Life.READING as state:
            raise AssertionError(f"replayed before the log was read: {state.value}")
        case state:
            assert_never(state)


def _activate(domain: Domain, step: Step) -> None:
    assert domain.life.is_complete, f"activated before the backfill was complete: {domain.life.state.value}"
    domain.life.to(Life.ACTIVE)
    domain.backfill = None
    domain.held.clear()
    for vertex in domain.vertices.values():
        vertex.building = vertex.feeds_building = False
    waited, domain.awaiting = domain.awaiting, []
    for packet in waited:
        domain.answer(packet, step)


def _remove_nodes(domain: Domain, command: RemoveNodes, step: Step) -> None:
    """Children go before parents. A migration that is undone takes its backfill along.

    A read that waits for what is removed is answered: its view is gone too, so whoever asked looks it up anew.
    """
    for index in sorted(command.nodes, key=lambda i: -domain.vertices[i].rank if i in domain.vertices else 0):
        if index not in domain.vertices:
            continue
        vertex = domain.vertices.remove(index)
        domain.clocks.remove(vertex)
        domain.ingresses.forget(vertex)
        domain.links.remove_egress(vertex)
        domain.held.discard(index)
        vertex.give_up()
        gone = [read for read in domain.awaiting if isinstance(read, Read) and read.reader == index]
        step.replies.extend(Reply(read.request, Filled()) for read in gone)
        domain.awaiting = [packet for packet in domain.awaiting if packet not in gone]
        for packet, waits in list(domain.parked.items()):
            if any(hole[0] is vertex for hole in waits):
                del domain.parked[packet]
                if isinstance(packet, Read):
                    step.replies.append(Reply(packet.request, Filled()))
    if domain.life.state is not Life.ACTIVE and not any(vertex.building for vertex in domain.vertices.values()):
        domain.life.to(Life.HELD if domain.held else Life.ACTIVE)
        domain.backfill = None
        for vertex in domain.vertices.values():
            vertex.feeds_building = False
