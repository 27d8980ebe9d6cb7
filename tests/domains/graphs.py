"""Small dataflows for the engine's tests: a node a line, then a step a line, every step followed by the invariants.

::

    flow = Flow(domains=2)
    votes = flow.table("votes", "user", "story")
    counts = flow.group(votes, (1,), count(), at=1)
    flow.reader("counts", counts, 0, at=1)
    flow.start()
    flow.insert("votes", (1, 7))
    assert flow.read("counts", 7) == [(7, 1)]

Columns are numbers, counted from 0; a name that ends in ``:text`` makes a TEXT column. ``read`` compares what
comes with the query recomputed from the base rows. With several shards a node's ``at`` is a group of so many domains:
group 1 of two shards is domains 2 and 3.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import OutcomeUnknown
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import BIGINT, BOOL, TEXT, Column, Row, SqlType, TableColumn, TableSchema, Value
from domains.operators.operator import Vertex
from domains.plan.commands import CreateTable, Feed, RemoveNodes
from domains.plan.graph import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Base,
    Columns,
    DomainIndex,
    Filter,
    FixedPoint,
    Join,
    JoinKind,
    Node,
    NodeIndex,
    Operator,
    OrderTerm,
    Over,
    Project,
    Reader,
    RoundStep,
    TopK,
    Union,
    WindowCall,
)
from domains.plan.packets import (
    Delete,
    EvictKeys,
    EvictMemory,
    Failed,
    Insert,
    LinkUpdate,
    Operation,
    Read,
    RequestId,
    Update,
    Write,
    Written,
    link_between,
)
from domains.plan.sharding import physical
from migrations.catalog import Catalog
from migrations.change import at_table
from migrations.flow.dataflow import Dataflow
from migrations.flow.extension import Extension
from migrations.flow.plan import MigrationPlan, State, plan_addition, plan_start
from migrations.flow.routing import split
from migrations.joint_graph.graph import JointGraph
from migrations.query.plans.recursion import carried_by
from tests.failing_store import FailingStore, Fuse
from tests.migrations.evaluate import evaluate
from tests.shard_of_key import shard_of_key
from tests.simulation.bulk import BulkMigration, is_bulk
from tests.simulation.recovery import recover
from tests.simulation.simulation import Simulation

KINDS = {"text": TEXT, "int": BIGINT}


def call(function: str, *arguments: Expression, type: SqlType = BOOL) -> Call:
    return Call(function, arguments, type)


def column(position: int, type: SqlType = BIGINT) -> Field:
    return Field(position, type)


def constant(value: Value) -> Constant:
    return Constant(value, TEXT if isinstance(value, str) else BIGINT)


def equals(position: int, value: Value) -> Call:
    """``column <=> value``: also true of two NULLs."""
    return call("null_safe_eq", column(position), constant(value))


def count() -> AggregateCall:
    return AggregateCall(AggregateFunction.COUNT_ROWS, None, BIGINT)


def aggregate(function: str, argument: int, type: SqlType = BIGINT) -> AggregateCall:
    return AggregateCall(AggregateFunction(function), argument, type)


class Unwritten(Exception):
    """A write was refused by some shard, or its end is not known; ``stored`` is what there is."""


class Flow:
    """A joint graph, how it is placed, and the simulation that runs it. ``at`` is a node's group of domains."""

    def __init__(self, domains: int = 1, *, shards: int = 1, check: bool = True, fuse: Fuse | None = None) -> None:
        self.simulation = Simulation(domains, shards, check=check, fuse=fuse)
        self.groups = domains
        self.at = 0
        """The domain of nodes that do not say theirs."""
        self.joint = JointGraph()
        self.running = Dataflow(shards=shards)
        self.tables: dict[str, TableSchema] = {}
        self.rng = random.Random(0)
        self.ready: list[str] = []
        """The views that may be read: those whose migration is complete."""
        self.stored: dict[str, Counter[Row]] = {}
        self._domain_of: dict[NodeIndex, int] = {}
        self._roots: dict[str, NodeIndex] = {}
        self._keys: dict[str, Columns] = {}
        self._new: list[tuple[Node, NodeIndex]] = []

    # --- nodes ----------------------------------------------------------------------------------------------------

    def table(self, name: str, *columns: str, key: Columns = (), by: int | None = None, shards: int = 0) -> NodeIndex:
        """``by``: the column that decides a row's shard; 0 ``shards``: as many as there are."""
        typed = [(part[0], KINDS[part[-1]] if ":" in c else BIGINT) for c in columns for part in (c.split(":"),)]
        declared = tuple(TableColumn(n, t) for n, t in typed)
        schema = self.tables[name] = TableSchema(name, declared, key, shard_by=by, shards=shards)
        for step in at_table(schema, self.running.shards, CreateTable(schema), f"create table {name}"):
            self.simulation.command(step.domain, step.command)
        self.stored[name] = Counter()
        operator = Base(name, tuple(range(len(columns))), key)
        return self.joint.add(operator, (), tuple(Column(n, t) for n, t in typed))

    def _columns(self, index: NodeIndex) -> tuple[Column, ...]:
        return self.joint.node(index).columns

    def _add(
        self, operator: Operator, parents: tuple[NodeIndex, ...], columns: tuple[Column, ...], at: int | None
    ) -> NodeIndex:
        index = self.joint.add(operator, parents, columns)
        self._domain_of.setdefault(index, self.at if at is None else at)
        return index

    def filter(self, parent: NodeIndex, predicate: Expression, *, at: int | None = None) -> NodeIndex:
        return self._add(Filter(predicate), (parent,), self._columns(parent), at)

    def project(self, parent: NodeIndex, *expressions: Expression | int, at: int | None = None) -> NodeIndex:
        """A number stands for that column of the parent."""
        above = self._columns(parent)
        typed = tuple(Field(e, above[e].type) if isinstance(e, int) else e for e in expressions)
        return self._add(Project(typed), (parent,), tuple(Column(f"e{i}", e.type) for i, e in enumerate(typed)), at)

    def union(self, *parents: NodeIndex, at: int | None = None) -> NodeIndex:
        return self._add(Union(), parents, self._columns(parents[0]), at)

    def join(
        self,
        left: NodeIndex,
        right: NodeIndex,
        *on: tuple[int, int],
        kind: JoinKind = JoinKind.INNER,
        residual: Expression | None = None,
        at: int | None = None,
    ) -> NodeIndex:
        operator = Join(kind, tuple(a for a, _ in on), tuple(b for _, b in on), residual)
        marked = (Column("matched", BOOL),)
        added = marked if kind is JoinKind.MARK else self._columns(right)
        return self._add(operator, (left, right), self._columns(left) + added, at)

    def left_join(self, left: NodeIndex, right: NodeIndex, *on: tuple[int, int], at: int | None = None) -> NodeIndex:
        return self.join(left, right, *on, kind=JoinKind.LEFT, at=at)

    def group(
        self, parent: NodeIndex, group: Columns, *calls: AggregateCall, scalar: bool = False, at: int | None = None
    ) -> NodeIndex:
        above = self._columns(parent)
        columns = (*(above[c] for c in group), *(Column(str(c.function), c.type) for c in calls))
        return self._add(Aggregate(group, calls, scalar), (parent,), columns, at)

    def distinct(self, parent: NodeIndex, *, at: int | None = None) -> NodeIndex:
        return self.group(parent, tuple(range(len(self._columns(parent)))), at=at)

    def top(
        self,
        parent: NodeIndex,
        group: Columns,
        order: int,
        limit: int,
        *,
        offset: int = 0,
        down: bool = True,
        at: int | None = None,
    ) -> NodeIndex:
        return self._add(TopK(group, (OrderTerm(order, down),), limit, offset), (parent,), self._columns(parent), at)

    def over(
        self,
        parent: NodeIndex,
        partition: Columns,
        order: int | None,
        *calls: WindowCall,
        down: bool = False,
        at: int | None = None,
    ) -> NodeIndex:
        above = self._columns(parent)
        terms = () if order is None else (OrderTerm(order, down),)
        columns = (*above, *(Column(str(each.function), each.type) for each in calls))
        return self._add(Over(partition, terms, calls), (parent,), columns, at)

    def recur(
        self,
        first: NodeIndex,
        *further: NodeIndex,
        steps: Sequence[RoundStep],
        distinct: bool,
        best: OrderTerm | None = None,
        at: int | None = None,
    ) -> NodeIndex:
        """``steps`` as in :class:`domains.plan.graph.FixedPoint`."""
        carried = carried_by(steps, [len(self._columns(parent)) for parent in (first, *further)])
        if best is not None:
            carried = tuple(column for column in carried if column != best.column)
        operator = FixedPoint("r", tuple(steps), distinct, carried, len(further), best)
        return self._add(operator, (first, *further), self._columns(first), at)

    def reader(self, view: str, root: NodeIndex, *key: int, at: int | None = None) -> None:
        """No key: a full view. Names are lower case."""
        columns = self._columns(root)
        index = NodeIndex(-1 - len(self._roots))
        self._roots[view], self._keys[view] = root, key
        self._domain_of[index] = self.at if at is None else at
        self._new.append((Node(index, Reader(view, key, (), (), len(columns)), (root,), columns), root))

    # --- control --------------------------------------------------------------------------------------------------

    def plan(self) -> MigrationPlan:
        """Place what was made since the last plan; the caller performs it."""
        extension = Extension(
            self.running, self.joint, lambda node: DomainIndex(self._domain_of.get(node.index, 0)), self.tables
        )
        extension.add_readers(self._new)
        self._new.clear()
        flow = self.running = extension.flow
        added = [flow.node(index) for index in flow.nodes if index in extension.added]
        extended = [flow.node(index) for index in flow.nodes if index in extension.extended]
        return plan_addition(flow, added, extended)

    def start(self, between: Callable[[], None] = lambda: None, *, slice: int | None = None) -> None:
        """Perform the plan; ``between`` is called between the slices of a backfill, of ``slice`` rows each."""
        plan = self.plan()
        if slice is not None:
            steps = (replace(s, command=Feed(slice)) if isinstance(s.command, Feed) else s for s in plan.steps)
            plan = replace(plan, steps=tuple(steps))
        self.simulation.migrate(plan, between)
        self.ready = list(self.running.readers)

    def start_in_bulk(self, rng: random.Random, between: Callable[[], None], *, breaks_at: int | None = None) -> bool:
        """Perform the plan in bulk where it can be; False where it was given up at a moment, and nothing has changed.

        What stands on state that runs already is fed in slices.
        """
        before, new = self.running, list(self._new)
        plan = self.plan()
        if not is_bulk(self.running, plan):
            self.simulation.migrate(plan, between)
        else:
            # Whoever looks meanwhile sees what was decided: the dataflow as it was.
            flow, self.running = self.running, before
            migration = BulkMigration(self.simulation, flow, plan, self.tables, rng)
            for number, _ in enumerate(migration.moments()):
                between()
                if number == breaks_at:
                    migration.take_back()
                    self._new = new
                    return False
            self.running = flow
        self.ready = list(self.running.readers)
        return True

    def drop(self, view: str) -> None:
        """Remove a view's reader and every node that nothing else needs, at once in all domains."""
        flow = self.running = self.running.copy()
        del flow.readers[view]
        self.ready.remove(view)
        kept = {index for reader in flow.readers.values() for index in flow.ancestors(reader)}
        doomed = set(flow.nodes) - kept
        for domain in sorted({domain for index in doomed for domain in flow.places(index)}):
            here = tuple(index for index in sorted(doomed) if domain in flow.places(index))
            self.simulation.command(domain, RemoveNodes(here))
        flow.remove(doomed)

    def crash(self) -> None:
        """Everything but the base tables is lost, and the same graph is built again."""
        old = self.simulation
        self.simulation = Simulation(self.groups, old.shards, check=old.checking)
        self.simulation.adopt(old.stores)
        self.simulation.migrate(plan_start(self.running))

    def restart(self, *lost: int, rng: random.Random | None = None, between: Callable[[], None] = lambda: None) -> None:
        """These domains are lost but for their stores, and brought back while the others serve."""
        state = State(Catalog(tables=self.tables), flow=self.running, shards=self.running.shards)
        failed = [store for store in self.simulation.stores if isinstance(store, FailingStore) and store.lost]
        for store in failed:
            store.open_again(there=(rng or self.rng).random() < 0.5)
        if failed:
            self._take_stock()
        recover(self.simulation, state, lost, rng or random.Random(0), between)

    # --- steps ----------------------------------------------------------------------------------------------------

    def write(self, operation: Operation) -> int:
        """Rows affected, by all the shards that it concerns. Raises Unwritten where a store failed one of them."""
        affected, failed, shards = 0, False, self.running.shards
        fails = self.simulation.fuse.left > 0
        for shard, part in split(operation, self.tables[operation.table], shards):
            request, domain = self.simulation.request(), physical(DomainIndex(0), shard, shards)
            before = self._in_store(operation.table, domain) if fails else None
            self.simulation.send(domain, Write(request, part))
            outcome = self.simulation.outcomes.pop(request, None)
            if isinstance(outcome, Written):
                affected += outcome.rows_affected
                continue
            failed = True
            assert fails, outcome
            if outcome is None:
                assert domain in self.simulation.broken, "nobody hears how a write has ended"
            else:
                assert self._in_store(operation.table, domain) == before, f"it is refused, and done: {outcome}"
                unknown = isinstance(outcome, Failed) and isinstance(outcome.error, OutcomeUnknown)
                assert unknown == (domain in self.simulation.broken), f"it may be there, and is told as {outcome}"
        if failed:
            self._take_stock()
            raise Unwritten
        return affected

    def _take_stock(self) -> None:
        shards = self.running.shards
        for table, schema in self.tables.items():
            self.stored[table] = Counter()
            for shard in range(schema.shards or shards):
                self.stored[table].update(self._in_store(table, physical(DomainIndex(0), shard, shards)))

    def _in_store(self, table: str, domain: DomainIndex) -> dict[Row, int]:
        return dict(self.simulation.stores[domain].table(table).find((), ()))

    def insert(self, table: str, *rows: Row) -> None:
        self.write(Insert(table, rows))
        self.stored[table].update(rows)

    def delete(self, table: str, row: Row) -> None:
        """Every copy of the row."""
        assert self.write(Delete(table, self._is(row))) == self.stored[table].pop(row)

    def update(self, table: str, old: Row, new: Row) -> None:
        """Every copy of the row becomes another, in one step."""
        changes = tuple((i, constant(value)) for i, value in enumerate(new) if value != old[i])
        affected = self.write(Update(table, self._is(old), changes))
        copies = self.stored[table].pop(old)
        assert affected == copies
        self.stored[table][new] += copies

    @staticmethod
    def _is(row: Row) -> Expression:
        tests = [
            call("null_safe_eq", column(i, TEXT if isinstance(v, str) else BIGINT), constant(v))
            for i, v in enumerate(row)
        ]
        return call("and", *tests) if len(tests) > 1 else tests[0]

    def reader_node(self, view: str) -> Node:
        return self.running.node(self.running.readers[view])

    def domain_of(self, view: str, key: Row) -> DomainIndex:
        """Where the reader has this key."""
        node = self.reader_node(view)
        return physical(node.domain, shard_of_key(self.running, node.index, key), self.running.shards)

    def ask(self, view: str, *keys: Row | Value) -> RequestId:
        """Only ask: what comes of it is on its way. Keys of one shard."""
        wanted = tuple(key if isinstance(key, tuple) else (key,) for key in keys)
        (domain,) = {self.domain_of(view, key) for key in wanted}
        request = self.simulation.request()
        self.simulation.send(domain, Read(request, self.reader_node(view).index, wanted))
        return request

    def read(self, view: str, *key: Value) -> list[Row]:
        """Ask, deliver everything, compare with the query recomputed, and answer the rows in order."""
        for _ in range(100):
            if self.has(view, *key):
                break
            self.ask(view, key)
            self.settle()
        else:
            raise AssertionError(f"{view} never has {key}")
        self.settle()
        if not self.has(view, *key):
            return self.read(view, *key)
        self.compare()
        return in_order(self.held(view, *key)[key])

    def held(self, view: str, *key: Value) -> dict[Row, Counter[Row]]:
        """What the reader map has of a view, in the shard that has this key."""
        return self.simulation.readers.get((self.domain_of(view, key), self.reader_node(view).index), {})

    def has(self, view: str, *key: Value) -> bool:
        return key in self.held(view, *key)

    def vertex(self, node: NodeIndex, *, seen_at: int | None = None, shard: int = 0) -> Vertex:
        """Where a node stands; or, with ``seen_at``, the ingress by which that group sees it."""
        index = self.running.variants[node][0]
        if seen_at is not None:
            seen = (
                i for (source, group, *_), i in self.running.crossings.items() if (source, group) == (index, seen_at)
            )
            index = next(seen)
        return self.simulation.domains[self.running.places(index)[shard]].vertices[index]

    def evict(self, place: Vertex | str, *key: Value, at: int | None = None) -> None:
        """Evict one key of a vertex (from all its indexes over so many columns) or of a view."""
        node = self.reader_node(place) if isinstance(place, str) else place.node
        if at is None:
            at = self.domain_of(place, key) if isinstance(place, str) else node.domain * self.running.shards
        self.simulation.send(at, EvictKeys(self.simulation.request(), node.index, (key,)))

    def evict_memory(self, domain: int, excess: int = 1 << 40) -> None:
        self.simulation.send(domain, EvictMemory(excess))

    # --- links ----------------------------------------------------------------------------------------------------

    def deliver(self, sender: int, receiver: int, *, lane: int = 0) -> None:
        """The oldest packet on its way from one domain to the other."""
        link = link_between(DomainIndex(sender), DomainIndex(receiver), lane)
        self.simulation.send(receiver, self.simulation.links[link, False].popleft())

    def settle_link(self, sender: int, receiver: int, *, lane: int = 0) -> None:
        """All packets that are on their way from one domain to the other."""
        while self.simulation.links.get((link_between(DomainIndex(sender), DomainIndex(receiver), lane), False)):
            self.deliver(sender, receiver, lane=lane)

    def deliver_upquery(self, asking: int, asked: int, *, lane: int = 0) -> None:
        """The oldest upquery: it goes against its link, which leads from the asked to the asking."""
        link = link_between(DomainIndex(asked), DomainIndex(asking), lane)
        self.simulation.send(asked, self.simulation.links[link, True].popleft())

    def updates(self, sender: int, receiver: int, *, lane: int = 0) -> list[LinkUpdate]:
        """The packets that are on their way from one domain to the other, oldest first."""
        link = link_between(DomainIndex(sender), DomainIndex(receiver), lane)
        return [packet for packet in self.simulation.links.get((link, False), ()) if isinstance(packet, LinkUpdate)]

    def under_way(self) -> int:
        return sum(map(len, self.simulation.links.values()))

    def settle(self, rng: random.Random | None = None) -> None:
        self.simulation.settle(rng)
        assert not any(domain.parked for domain in self.simulation.domains), "a read waits, and nothing is on its way"

    # --- the oracle -----------------------------------------------------------------------------------------------

    def expected(self, view: str) -> Counter[Row]:
        tables = {name: list(rows.elements()) for name, rows in self.stored.items()}
        return evaluate(self.joint, self._roots[view], tables)

    def compare(self) -> None:
        """Every filled key of every view against the query recomputed, and its clock. With nothing on its way."""
        for view in self.running.readers:
            self._compare_clock(view)
            everything, columns = self.expected(view), self._keys[view]
            index = self.reader_node(view).index
            for domain in self.running.places(index):
                for key, rows in self.simulation.readers.get((domain, index), {}).items():
                    assert domain == self.domain_of(view, key), f"{view} has {key} in domain {domain}"
                    wanted = {row: n for row, n in everything.items() if tuple(row[c] for c in columns) == key}
                    assert dict(rows) == wanted, f"{view} at {key} holds {dict(rows)}, not {wanted}"

    def _compare_clock(self, view: str) -> None:
        """A view reflects all that was written to its tables, also where no row of it came through."""
        node, simulation = self.reader_node(view), self.simulation
        positions = {
            domain.base_name(schema): store.position(schema.name)
            for domain, store in zip(simulation.domains, simulation.stores, strict=True)
            for schema in store.tables()
        }
        for index in self.running.places(node.index):
            domain = simulation.domains[index]
            reached = domain.clocks.of(domain.vertices[node.index])
            written = {base: positions[base] for base in reached}
            assert reached == written, f"the clock of {view} stands at {reached}, and {written} was written"
            assert reached.keys() == self.running.bases_of(node.index, index % simulation.shards)

    def accounted(self) -> int:
        return sum(domain.accounted_bytes() for domain in self.simulation.domains)


def in_order(rows: Counter[Row]) -> list[Row]:
    return sorted(rows.elements(), key=lambda row: tuple((value is not None, value) for value in row))
