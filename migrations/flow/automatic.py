"""Automatic views of a cluster: made of what is asked again and again, beside the dataflow of the recipe.

::

    recipe ──► declared dataflow ───────┬─ base tables ─┬──► nodes of one automatic view    numbers of its own
               (all processes play it)  └─ other nodes   └──► nodes of another

An automatic view is a migration that is never decided: a leader adds its nodes, tells who asks for it, and removes them
before it changes anything else. No recipe has it, so a recovery removes its nodes as it does those of any migration
that was not finished: a leader, lost worker or moved domain needs no rule for it. What makes that right:

* **It stands on base tables alone**, and shares nodes with nothing else. So no declared node is given an index, a
  drive or a child that would have to be taken from it again, and views come and go in any order.
* **It adds no index to a table**: a look-up by columns without one is a reason to make none.
* **It has no full state**: nothing is fed, so it takes as long as a message to each worker, and DDL never waits for it.
  Full state would be fed in the migrator's turn, lane by lane. A change that comes meanwhile would either wait for it,
  or have it taken back by a recovery, since slices and packets are on their way: all that for a view that nobody has
  declared. So a shape without a key is evaluated, and its sums are made at the workers.
* **A number is given once.** Those of the recipe are small; an automatic view's are among :func:`numbers_of` the
  epoch, which one leader has. A reader's entries are found under its number, so whoever believes in a view that is gone
  finds nothing, and never another view's rows.
* **It is a function of the recipe, its text and its first number.** So a process that is told of it plans it for
  itself; :attr:`AutomaticView.check` says whether it plans the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from zlib import crc32

from domains.errors import AlreadyExists, Unsupported
from domains.plan.commands import AddNodes
from domains.plan.graph import AUTOMATIC, Base, Columns, Node, NodeIndex
from domains.plan.graph import Materialization as Kept
from domains.plan.traits import is_base
from domains.store.storage import declared_indexes
from migrations.catalog import ViewDefinition
from migrations.flow.dataflow import Dataflow
from migrations.flow.plan import PlanStep, State, one_domain, plan_readers
from migrations.query.view import PlannedView
from migrations.statements.adhoc.shapes_of_selects import AdHoc, ad_hoc_name

OF_AN_EPOCH = 1 << 20
"""Numbers that are given in one epoch, at most; a view takes some ten of them."""


def numbers_of(epoch: int) -> range:
    """The numbers that may be given in an epoch."""
    first = AUTOMATIC + epoch * OF_AN_EPOCH
    return range(first, first + OF_AN_EPOCH)


@dataclass(frozen=True, slots=True)
class AutomaticView:
    """One that may be made, or is."""

    definition: ViewDefinition
    planned: PlannedView
    flow: Dataflow
    """Its nodes, and the base tables below them."""
    nodes: tuple[NodeIndex, ...]
    """Its own, in order of making."""
    steps: tuple[PlanStep, ...]
    """The steps that make it."""
    removal: tuple[PlanStep, ...]

    @property
    def name(self) -> str:
        """In lower case."""
        return self.definition.name

    @property
    def first(self) -> NodeIndex:
        return self.nodes[0]

    @property
    def tables(self) -> frozenset[str]:
        """The base tables that it reads, in lower case."""
        return frozenset(base.table.lower() for _, base in _bases(self.flow) if self._reads(base))

    def _reads(self, base: Base) -> bool:
        below = self.flow.ancestors(self.flow.readers[self.name])
        return any(self.flow.nodes[index].operator == base for index in below)

    @property
    def check(self) -> int:
        """The same wherever the same nodes are planned by the same version of Headrace."""
        return crc32(repr([self.flow.nodes[index] for index in self.nodes]).encode("utf-8", "backslashreplace"))


def plan_automatic(declared: State, sql: str, first: NodeIndex) -> AutomaticView:
    """The view of a SELECT in the normal form of ad-hoc ones, over what the recipe comes to.

    :raises HeadraceError: why there is none.
    """
    definition = AdHoc(sql, ad_hoc_name(sql), ()).definition()
    if definition.name in declared.catalog.views:
        raise AlreadyExists(f'the view "{definition.name}" is in the recipe')
    flow = declared.flow.copy()
    flow.remove({index for index, node in flow.nodes.items() if not is_base(node.operator)})
    flow.next_index, flow.gathers, flow.gathered = first, (), ()
    catalog = declared.catalog.with_view(definition)
    tables_alone = State(catalog, declared.joint, flow, {}, declared.partial, declared.shards)
    after, plan = plan_readers(tables_alone, [definition], one_domain)
    nodes = tuple(index for index in after.flow.nodes if index >= first)
    _refuse_full(after.flow.nodes[index] for index in nodes)
    _refuse_unindexed(declared, after.flow)
    # Running bases need not be told of a further index: the tables have it, and they look up by what these have.
    steps = tuple(step for step in plan.steps if isinstance(step.command, AddNodes))
    return AutomaticView(definition, after.planned[definition.name], after.flow, nodes, steps, plan.undo)


def _refuse_full(nodes: Iterable[Node]) -> None:
    for node in nodes:
        if node.materialization is Kept.FULL:
            reason = f": {node.reason}" if node.reason else ""
            raise Unsupported(
                f"it would hold all of its rows, and not those that are asked for{reason}; an automatic view of a "
                "cluster is partial, so CREATE EXT VIEW it to have it kept"
            )


def _refuse_unindexed(declared: State, flow: Dataflow) -> None:
    for node, base in _bases(flow):
        for columns in node.indexes:
            stored = tuple(base.columns[column] for column in columns)
            if not any(_leads(stored, way) for way in _ways_into(declared, base)):
                names = ", ".join(node.columns[column].name for column in columns)
                raise Unsupported(
                    f'it looks "{base.table}" up by ({names}), and there is no index for that',
                    hint=f"CREATE INDEX … ON {base.table} ({names})",
                )


def _bases(flow: Dataflow) -> Iterator[tuple[Node, Base]]:
    for node in flow.nodes.values():
        if is_base(node.operator):
            yield node, node.operator


def _ways_into(declared: State, base: Base) -> Iterator[Columns]:
    """The columns of each index that all shards of the table have: declared ones, and those of declared views."""
    schema = declared.catalog.tables[base.table.lower()]
    yield schema.primary_key
    yield from declared_indexes(schema)
    for node, other in _bases(declared.flow):
        if (other.table, other.generation) == (base.table, base.generation):
            for columns in node.indexes:
                yield tuple(other.columns[column] for column in columns)


def _leads(wanted: Columns, way: Columns) -> bool:
    return sorted(way[: len(wanted)]) == sorted(wanted)


def with_automatic(declared: State, views: Iterable[AutomaticView]) -> State:
    """What is there to be asked: the recipe's views and these. Nothing is planned upon it."""
    flow, catalog, planned = declared.flow.copy(), declared.catalog, dict(declared.planned)
    for view in views:
        for index in view.nodes:
            flow.nodes[index], flow.sharding[index] = view.flow.nodes[index], view.flow.sharding[index]
            if index in view.flow.routes:
                flow.routes[index] = view.flow.routes[index]
        flow.readers[view.name] = view.flow.readers[view.name]
        catalog, planned[view.name] = catalog.with_view(view.definition), view.planned
    return replace(declared, catalog=catalog, flow=flow, planned=planned)


__all__ = ["AutomaticView", "numbers_of", "plan_automatic", "with_automatic"]
