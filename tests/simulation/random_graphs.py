"""Random dataflows and random runs of them, from one number.

A graph of filters, unions, joins, aggregates, TopK, windows and projections over two tables is placed anywhere on one
to four groups of one to three shards, and then takes writes, reads, evictions, memory pressure, packets in any order
across links, the loss of domains, and further views while it runs. Values are few, so that rows meet, and NULL is one.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from unittest import mock

from domains.language.expressions import Call, Expression
from domains.language.types import BIGINT, BOOL, Column, Row, Value
from domains.operators import ranged
from domains.plan.graph import (
    AggregateCall,
    BoundKind,
    Filter,
    Frame,
    FrameBound,
    Join,
    JoinKind,
    NodeIndex,
    OrderTerm,
    Project,
    RoundStep,
    WindowCall,
    WindowFunction,
)
from domains.plan.packets import EvictKeys, EvictMemory, Read, Touch
from domains.plan.traits import FixedPointTraits
from migrations.joint_graph.provenance import traced
from tests.domains.graphs import Flow, Unwritten, aggregate, call, column, constant, count
from tests.failing_store import Fuse

WIDTHS = {"stories": 3, "votes": 2}
VALUES: tuple[Value, ...] = (None, 0, 1, 2, 3)
WIDEST = 7
"""Columns of a node, at most: what is wider is not joined further."""
FAILING_RUNS, FAILING = 0.3, 0.3
"""How many runs have stores that fail, and in how many of their steps one call of them does."""
RECURSIVE_RUNS = 0.25
"""How many runs have a recursion; the others are what they were."""
WINDOWS = [
    *(WindowFunction.ROW_NUMBER, WindowFunction.RANK, WindowFunction.DENSE_RANK, WindowFunction.NTILE),
    *(WindowFunction.LAG, WindowFunction.LEAD, WindowFunction.FIRST_VALUE, WindowFunction.LAST_VALUE),
    *(WindowFunction.SUM, WindowFunction.MIN, WindowFunction.MAX, WindowFunction.COUNT, WindowFunction.COUNT_ROWS),
]
MOST_FACTORS = 3
"""Base tables that a node multiplies, at most: four would give thousands of rows of the few values."""


class RandomGraph:
    """Grows a flow. ``factors`` are how many base tables each node multiplies."""

    def __init__(self, rng: Random, fuse: Fuse | None = None) -> None:
        self.rng = rng
        self.shards = rng.choice([1, 1, 2, 3])
        self.domains = rng.randrange(1, 5 if self.shards == 1 else 4)
        self.flow = Flow(self.domains, shards=self.shards, fuse=fuse)
        self.factors: dict[NodeIndex, int] = {}
        self.views = 0
        self.keyed = rng.random() < 0.3
        self.by = {"stories": 0, "votes": rng.randrange(2)}
        """The column that decides a row's shard."""
        factor = rng.choice([0, rng.randrange(self.shards + 1)])
        key = (0,) if self.keyed else ()
        stories = self.flow.table("stories", "id", "author", "title", key=key, by=self.by["stories"])
        votes = self.flow.table("votes", "user", "story", by=self.by["votes"], shards=factor)
        self.factors.update({stories: 1, votes: 1})

    # --- nodes ----------------------------------------------------------------------------------------------------

    def width(self, node: NodeIndex) -> int:
        return len(self.flow.joint.node(node).columns)

    def place(self) -> int:
        return self.rng.randrange(self.domains)

    def grow(self, nodes: int) -> None:
        for _ in range(nodes):
            self.add()

    def add(self) -> None:
        rng, flow = self.rng, self.flow
        one = rng.choice(list(self.factors))
        makers = (self._filter, self._project, self._union, self._join, self._join, self._group, self._group)
        node = rng.choice((*makers, self._top, self._over))(one)
        if node is not None:
            made, factors = node
            self.factors.setdefault(made, factors)
            assert len(flow.joint.node(made).columns) == self.width(made)

    def _filter(self, one: NodeIndex) -> tuple[NodeIndex, int]:
        at = self.place()
        return self.flow.filter(one, self._predicate(self.width(one)), at=at), self.factors[one]

    def _predicate(self, width: int) -> Expression:
        position = column(self.rng.randrange(width))
        if self.rng.random() < 0.3:
            return call(self.rng.choice(["is_null", "is_not_null"]), position)
        other = column(self.rng.randrange(width)) if self.rng.random() < 0.3 else constant(self.rng.randrange(4))
        return call(self.rng.choice(["eq", "lt", "ge", "null_safe_eq"]), position, other)

    def _project(self, one: NodeIndex) -> tuple[NodeIndex, int]:
        at, width = self.place(), self.width(one)
        expressions: list[Expression | int] = []
        for _ in range(self.rng.randrange(2, 4)):
            position = self.rng.randrange(width)
            if self.rng.random() < 0.2:
                expressions.append(call("add", column(position), constant(1), type=BIGINT))
            else:
                expressions.append(position)
        return self.flow.project(one, *expressions, at=at), self.factors[one]

    def _union(self, one: NodeIndex) -> tuple[NodeIndex, int] | None:
        equal = [node for node in self.factors if self.width(node) == self.width(one)]
        parents = (one, *(self.rng.choice(equal) for _ in range(self.rng.randrange(1, 3))))
        at = self.place()
        return self.flow.union(*parents, at=at), max(self.factors[parent] for parent in parents)

    def _join(self, one: NodeIndex) -> tuple[NodeIndex, int] | None:
        rng = self.rng
        other = one if rng.random() < 0.2 else rng.choice(list(self.factors))
        width, factors = self.width(one) + self.width(other), self.factors[one] + self.factors[other]
        kind = rng.choice([JoinKind.INNER, JoinKind.LEFT, JoinKind.MARK])
        if width > WIDEST or factors > MOST_FACTORS:
            return None
        pairs = rng.choice([1, 1, 1, 2])  # No column twice, on either side: the planner sees to that.
        lefts, rights = (
            rng.sample(range(self.width(side)), min(pairs, self.width(one), self.width(other))) for side in (one, other)
        )
        often = {JoinKind.INNER: 0.0, JoinKind.LEFT: 0.2, JoinKind.MARK: 0.6}
        residual = self._predicate(width) if rng.random() < often[kind] else None
        on = [*zip(lefts, rights, strict=True)]
        if rng.random() < 0.2:
            residual = self._range(self.width(one), width)
            on = on if rng.random() < 0.6 else []
        at = self.place()
        return self.flow.join(one, other, *on, kind=kind, residual=residual, at=at), factors

    def _range(self, left: int, width: int) -> Call:
        """One or two comparisons of columns of both sides."""
        rng = self.rng
        tests = [
            call(rng.choice(["lt", "le", "gt", "ge"]), column(rng.randrange(left)), column(rng.randrange(left, width)))
            for _ in range(rng.choice([1, 1, 2]))
        ]
        return call("and", *tests) if len(tests) > 1 else tests[0]

    def _group(self, one: NodeIndex) -> tuple[NodeIndex, int]:
        rng, width = self.rng, self.width(one)
        group = tuple(rng.sample(range(width), rng.randrange(1, min(width, 3) + 1)))
        if rng.random() < 0.15:
            at = self.place()
            return self.flow.distinct(one, at=at), 1
        calls: list[AggregateCall] = [count()]
        functions = ["max", "min", "sum", "count_distinct", "count"]
        calls += [aggregate(f, rng.randrange(width)) for f in rng.sample(functions, rng.randrange(3))]
        scalar = rng.random() < 0.1
        if scalar:
            group = ()
        at = self.place()
        return self.flow.group(one, group, *calls, scalar=scalar, at=at), 1

    def _top(self, one: NodeIndex) -> tuple[NodeIndex, int]:
        rng, width = self.rng, self.width(one)
        group = tuple(rng.sample(range(width), rng.randrange(1, min(width, 2) + 1))) if rng.random() < 0.9 else ()
        at = self.place()
        node = self.flow.top(
            one,
            group,
            rng.randrange(width),
            rng.randrange(1, 4),
            offset=rng.choice([0, 0, 1]),
            down=rng.random() < 0.5,
            at=at,
        )
        return node, self.factors[one]

    def _over(self, one: NodeIndex) -> tuple[NodeIndex, int] | None:
        rng, width = self.rng, self.width(one)
        if width >= WIDEST:
            return None
        partition = tuple(rng.sample(range(width), rng.randrange(1, min(width, 2) + 1))) if rng.random() < 0.9 else ()
        frames = (
            Frame(rows=False),
            Frame(rows=True),
            Frame(True, FrameBound(BoundKind.PRECEDING, 1), FrameBound(BoundKind.FOLLOWING, 1)),
            Frame(False, FrameBound(BoundKind.CURRENT_ROW), FrameBound(BoundKind.UNBOUNDED_FOLLOWING)),
            Frame(False, end=FrameBound(BoundKind.UNBOUNDED_FOLLOWING)),
        )
        functions = rng.sample(WINDOWS, rng.choice([1, 1, 2]) if width + 2 <= WIDEST else 1)
        counted = WindowFunction.COUNT_ROWS
        arguments = [None if each is counted else rng.randrange(width) for each in functions]
        framed = zip(functions, arguments, strict=True)
        calls = [WindowCall(each, argument, BIGINT, rng.choice(frames)) for each, argument in framed]
        order = rng.choice([None, *range(width)])
        node = self.flow.over(one, partition, order, *calls, down=rng.random() < 0.5, at=self.place())
        return node, self.factors[one]

    def recur(self, rng: Random) -> None:
        """A recursion over any node, by any other: of the few values nearly all are reached from each other."""
        flow = self.flow
        nodes = [node for node, factors in self.factors.items() if self.width(node) >= 2 and factors <= 2]
        first, by = rng.choice(nodes), rng.choice(nodes)
        width, found = self.width(first), self.width(by)
        kind = rng.choice([JoinKind.INNER, JoinKind.INNER, JoinKind.INNER, JoinKind.LEFT, JoinKind.MARK])
        on = (rng.randrange(width),), (rng.randrange(found),)
        columns, further = flow.joint.node(first).columns, flow.joint.node(by).columns
        swapped = kind is JoinKind.INNER and rng.random() < 0.3
        added = (Column("matched", BOOL),) if kind is JoinKind.MARK else further
        joined = (*further, *columns) if swapped else (*columns, *added)
        own = found if swapped else 0
        inputs, places = ((1, 0), on[::-1]) if swapped else ((0, 1), on)
        itself = rng.random() < 0.2
        if itself:  # By its own rows: a round doubles the ways.
            kind, inputs, joined, own = JoinKind.INNER, (0, 0), (*columns, *columns), 0
            places = (rng.randrange(width),), (rng.randrange(width),)
        before = 0 if itself else 1
        steps = [RoundStep(Join(kind, *places), inputs, joined)]
        distinct = itself or rng.random() < 0.7
        kept = rng.randrange(width)
        row: list[Expression] = [
            column(own + kept) if at == kept or rng.random() < 0.2 else column(rng.randrange(len(joined)))
            for at in range(width)
        ]
        if not distinct:  # One column counts the rounds, up to a bound.
            counted = (kept + 1) % width
            row[counted] = call("add", column(own + counted), constant(1), type=BIGINT)
            row[kept] = column(own + kept)
            steps.append(RoundStep(Filter(call("lt", column(own + counted), constant(3))), (1 + before,), joined))
        best = self._best(rng, row, own, on[0][0]) if distinct and kind is JoinKind.INNER and not itself else None
        if best is None and rng.random() < 0.3:
            steps.append(RoundStep(Filter(self._predicate(len(joined))), (len(steps) + before,), joined))
        steps.append(RoundStep(Project(tuple(row)), (len(steps) + before,), columns))
        recursion = flow.recur(
            first, *(() if itself else (by,)), steps=steps, distinct=distinct, best=best, at=rng.randrange(self.domains)
        )
        self.factors.setdefault(recursion, 1)
        keyed = [at for at in range(width) if traced(recursion, at, flow.joint.node)]
        key = (rng.choice(keyed),) if keyed and rng.random() < 0.8 else ()
        flow.reader("recursion", recursion, *key, at=rng.randrange(self.domains))

    def _best(self, rng: Random, row: list[Expression], own: int, joined_by: int) -> OrderTerm | None:
        """MIN or MAX of a column that no join goes by and none but itself is made of; circles may not worsen it."""
        measured = rng.randrange(len(row))
        if measured == joined_by or rng.random() < 0.4:
            return None
        best = OrderTerm(measured, rng.random() < 0.5)
        for at, expression in enumerate(row):
            if expression == column(own + measured):
                row[at] = constant(rng.randrange(3))
        step = constant(rng.randrange(2))
        row[measured] = call("subtract" if best.descending else "add", column(own + measured), step, type=BIGINT)
        return best

    # --- views ----------------------------------------------------------------------------------------------------

    def add_views(self, number: int, *, keyless: float = 0.1) -> None:
        """``keyless``: the chance of a view that is full, with all below it."""
        nodes = sorted(self.factors)[2:] or sorted(self.factors)
        for _ in range(number):
            root = self.rng.choice(nodes)
            keyed = [c for c in range(self.width(root)) if traced(root, c, self.flow.joint.node)]
            key = tuple(self.rng.sample(keyed, min(len(keyed), self.rng.choice([1, 1, 1, 2]))))
            if self.rng.random() < keyless:
                key = ()
            self.flow.reader(f"view{self.views}", root, *key, at=self.place())
            self.views += 1


class RandomRun:
    """Steps of a graph that runs."""

    def __init__(self, graph: RandomGraph, rng: Random, calls: Random | None = None) -> None:
        """``calls`` decides which calls of the stores fail."""
        self.graph, self.flow, self.rng = graph, graph.flow, rng
        self.calls = calls
        self.migrating = False

    def meanwhile(self) -> None:
        """A step while the graph is being changed or brought back."""
        self.migrating = True
        self.step()
        self.migrating = False

    def step(self) -> None:
        if self.calls is None or self.migrating or self.calls.random() > FAILING:
            self._act()
            return
        simulation = self.flow.simulation
        fuse = simulation.fuse
        fuse.left, fuse.only = (
            self.calls.choice((1, 1, 2, 3, 8)),
            self.calls.choice(("", "find_many", "commit", "lost commit")),
        )
        with suppress(Unwritten):  # What there is then is what views are compared with.
            self._act()
        fuse.left = 0
        if simulation.broken:
            self.flow.restart(*simulation.broken, rng=self.rng, between=self.meanwhile)

    def _act(self) -> None:
        chance = self.rng.random()
        if chance < 0.42:
            self.write()
        elif chance < 0.68:
            self.ask()
        elif chance < 0.78:
            self.evict()
        elif chance < 0.81:
            domain = self.rng.choice(self.flow.simulation.domains)
            self.flow.simulation.send(domain.index, EvictMemory(self.rng.choice([100, 1000, 10_000])))
        elif chance < 0.83:
            self.touch()
        elif chance < 0.84 and not self.migrating:
            self.lose()
        else:
            for _ in range(self.rng.randrange(4)):
                self.flow.simulation.deliver(self.rng)

    def row(self, table: str) -> Row:
        return tuple(self.rng.choice(VALUES) for _ in range(WIDTHS[table]))

    def lose(self) -> None:
        """A worker dies with some of the domains, mostly one."""
        self.flow.simulation.fuse.left = 0
        domains = range(len(self.flow.simulation.domains))
        lost = self.rng.sample(domains, min(len(domains), self.rng.choice([1, 1, 1, 2, 3])))
        self.flow.restart(*lost, rng=self.rng, between=self.meanwhile)

    def write(self) -> None:
        if self.flow.simulation.unlinked:
            return
        table = self.rng.choice(list(WIDTHS))
        stored = list(self.flow.stored[table])
        chance = self.rng.random()
        if chance < 0.55 or not stored:
            self._insert(table)
        elif chance < 0.8:
            self.flow.delete(table, self.rng.choice(stored))
        else:
            self._update(table, self.rng.choice(stored))

    def _insert(self, table: str) -> None:
        rows = [self.row(table) for _ in range(self.rng.choice([1, 1, 1, 2, 3]))]
        if table == "stories" and self.graph.keyed:
            taken = {row[0] for row in self.flow.stored[table]} | {None}
            rows = [row for row in {row[0]: row for row in rows}.values() if row[0] not in taken]
        if rows:
            self.flow.insert(table, *rows)

    def _update(self, table: str, old: Row) -> None:
        """A row moves, in one step; its shard and its primary key stay."""
        position = self.rng.randrange(WIDTHS[table])
        fixed = self.graph.by[table] if self.graph.shards > 1 else None
        if position == fixed or (self.graph.keyed and table == "stories" and position == 0):
            return
        new = (*old[:position], self.rng.choice(VALUES), *old[position + 1 :])
        if new != old:
            self.flow.update(table, old, new)

    def ask(self) -> None:
        views = [view for view in self.flow.ready if self.flow.reader_node(view).indexes[0]]
        if views:
            view = self.rng.choice(views)
            node = self.flow.reader_node(view)
            keys = [tuple(self.rng.randrange(4) for _ in node.indexes[0]) for _ in range(self.rng.choice([1, 1, 2]))]
            domain = self.flow.domain_of(view, keys[0])
            own = tuple(key for key in dict.fromkeys(keys) if self.flow.domain_of(view, key) == domain)
            if domain not in self.flow.simulation.unlinked:
                self.flow.simulation.send(domain, Read(self.flow.simulation.request(), node.index, own))

    def touch(self) -> None:
        """Keys that a view may have filled were read again: they are protected from eviction for a while."""
        views = [view for view in self.flow.ready if self.flow.reader_node(view).indexes[0]]
        if views:
            view = self.rng.choice(views)
            node = self.flow.reader_node(view)
            key = tuple(self.rng.randrange(4) for _ in node.indexes[0])
            self.flow.simulation.send(self.flow.domain_of(view, key), Touch(node.index, (key,)))

    def evict(self) -> None:
        """One entry of any partial state anywhere."""
        domain = self.rng.choice(self.flow.simulation.domains)
        entries = [
            (vertex.index, key)
            for vertex in domain.vertices.values()
            for index in vertex.indexes.values()
            if index.partial
            for key in index.keys()  # noqa: SIM118
        ]
        if entries:
            node, key = self.rng.choice(entries)
            self.flow.simulation.send(domain.index, EvictKeys(self.flow.simulation.request(), node, (key,)))


class Migrations:
    """How views come: in slices, or in bulk, which may be given up in the middle, perhaps as domains are lost."""

    def __init__(self, life: RandomRun, *, bulk: bool) -> None:
        self.life = life
        self.bulk = bulk

    def start(self) -> None:
        life, flow, rng = self.life, self.life.flow, self.life.rng
        if not self.bulk:
            flow.start(life.meanwhile, slice=rng.randrange(1, 4))
            return
        while not flow.start_in_bulk(rng, life.meanwhile, breaks_at=rng.choice([None, rng.randrange(20)])):
            if rng.random() < 0.4:
                life.lose()


def run(seed: int, steps: int, *, bulk: bool = False, recursive: float = RECURSIVE_RUNS) -> None:
    """One graph and its life; ``bulk``: full states come in bulk. Raises with whatever rule breaks first."""
    few = mock.patch.object(ranged, "FEW_ROWS", seed % 3)  # There are few rows of any key.
    with few, mock.patch.object(FixedPointTraits, "ends", True):  # They do end here.
        _run(seed, steps, bulk=bulk, recursive=recursive)


def _run(seed: int, steps: int, *, bulk: bool, recursive: float) -> None:
    rng, calls = Random(seed), Random(f"failing calls {seed}")
    failing = calls.random() < FAILING_RUNS  # By chances of their own: other runs are what they were.
    graph = RandomGraph(rng, Fuse() if failing else None)
    graph.grow(rng.randrange(2, 10))
    recursions = Random(f"recursions {seed}")
    if recursions.random() < recursive:
        graph.recur(recursions)
        graph.grow(rng.randrange(2))
    graph.add_views(rng.randrange(1, 4), keyless=0.6 if bulk else 0.1)
    life = RandomRun(graph, rng, calls if failing else None)
    for _ in range(rng.randrange(6)):
        life.write()
    migrations = Migrations(life, bulk=bulk)
    migrations.start()
    further = rng.randrange(steps) if rng.random() < 0.4 else None
    for number in range(steps):
        if number == further:
            graph.grow(rng.randrange(3))
            graph.add_views(1)
            migrations.start()
        life.step()
    graph.flow.settle(rng)
    graph.flow.compare()
    views = graph.flow.running.readers
    for view in views:
        columns = graph.flow.reader_node(view).indexes[0]
        graph.flow.read(view, *(rng.randrange(4) for _ in columns))
