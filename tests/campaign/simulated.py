"""Planner and engine on one thread: several domains, packets delivered one at a time in an order drawn from the seed.

The default subject of the campaign. Base tables live in ``MemoryStore``; a restart keeps them and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from controller.binding import Binding, BoundLookup
from domains.graph import Node, Reader
from domains.packets import EvictKeys, EvictMemory, Read
from domains.types import Row
from migrations.plan import plan_start
from migrations.recipe import Entry
from tests.campaign.planned import Planned
from tests.campaign.subject import Setting
from tests.migrations.evaluate import sorted_rows
from tests.simulation.simulation import Simulation

PACKETS_AT_MOST = 100_000
"""For one read: more, and an upquery goes round in circles."""


class Simulated(Planned):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, setting.domains)

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, view: str, arguments: Sequence[Any]) -> list[Row]:
        node = self._reader_of(view)
        bound = self._bound(view, node, arguments)
        reader = node.operator
        assert isinstance(reader, Reader)
        if bound.keys:
            self._fill(node, bound.keys)
        rows: Counter[Row] = Counter()
        for key in bound.keys:
            rows.update(self.simulation.readers[node.index][key])
        found = [row[: reader.visible] for row in sorted_rows(_sought(rows, reader, bound), reader.order)]
        if not found and reader.empty is not None:
            found = [reader.empty[: reader.visible]]
        limit = reader.limit if bound.limit is None else bound.limit
        offset = reader.offset or bound.offset
        return found[offset:] if limit is None else found[offset : offset + limit]

    def _reader_of(self, view: str) -> Node:
        """The view's reader; one that has none is given it now."""
        if view.lower() not in self.state.flow.readers:
            self.planned(view)
            self._migrate(Entry(readers=(view.lower(),)))
        return self.state.flow.node(self.state.flow.readers[view.lower()])

    def _bound(self, view: str, node: Node, arguments: Sequence[Any]) -> BoundLookup:
        planned = self.planned(view)
        assert isinstance(node.operator, Reader)
        return Binding(planned.name, node.operator, planned.parameters).from_arguments(arguments)

    def _fill(self, node: Node, keys: tuple[Row, ...]) -> None:
        """Ask for the keys that are holes, and deliver packets until they are filled."""
        for _ in range(PACKETS_AT_MOST):
            present = self.simulation.readers.get(node.index, {})
            holes = tuple(key for key in keys if key not in present)
            if not holes:
                return
            request = self.simulation.request()
            self.simulation.send(node.domain, Read(request, node.index, holes))
            while request not in self.simulation.outcomes:
                if not self.simulation.deliver(self.random):
                    raise AssertionError(f"nothing is under way, and reader {node.index} has not filled {holes}")
            self._outcome(self.simulation.outcomes.pop(request))
        raise AssertionError(f"reader {node.index} never had all of {keys} filled at once")

    # --- everything else ------------------------------------------------------------------------------------------

    def evict(self, view: str, values: Sequence[Any]) -> None:
        if view.lower() in self.state.flow.readers:
            node = self._reader_of(view)
            keys = self._bound(view, node, self.arguments(view, values)).keys
            self.simulation.send(node.domain, EvictKeys(self.simulation.request(), node.index, keys))

    def evict_some(self, random: Random) -> None:
        share = random.choice((0.1, 0.3, 0.6, 1.0))
        for number, domain in enumerate(self.simulation.domains):
            excess = int(domain.accounted_bytes() * share)
            if excess:
                self.simulation.send(number, EvictMemory(excess))

    def restart(self) -> None:
        crashed = self.simulation
        self.simulation = Simulation(len(crashed.domains), check=False)
        self.simulation.adopt(crashed.stores[0])
        self.simulation.migrate(plan_start(self.state.flow), self.between)

    def settle(self) -> None:
        self.simulation.settle(self.random)

    def step(self, random: Random) -> None:
        self.simulation.deliver(random)

    def between(self) -> None:
        """Between the slices of a backfill packets go on."""
        self.simulation.deliver(self.random)

    def check(self) -> None:
        self.simulation.check()


def _sought(rows: Counter[Row], reader: Reader, bound: BoundLookup) -> list[Row]:
    """The rows that agree with the further equalities and lie in the range: what a walk in the reader map finds."""
    found = []
    for row in rows.elements():
        equal, ranged = reader.seek[: len(bound.seek)], reader.seek[len(bound.seek) :]
        if any(row[column] != value for column, value in zip(equal, bound.seek, strict=True)):
            continue
        if (bound.low or bound.high) and not _within(row[ranged[0]], bound):
            continue
        found.append(row)
    return found


def _within(value: Any, bound: BoundLookup) -> bool:
    if value is None:
        return False
    if bound.low is not None and not (value > bound.low[0] or (bound.low[1] and value == bound.low[0])):
        return False
    return bound.high is None or bool(value < bound.high[0] or (bound.high[1] and value == bound.high[0]))


def simulated(setting: Setting) -> Simulated:
    return Simulated(setting)
