"""Planner and engine on one thread: several domains, packets delivered one at a time in an order drawn from the seed.

The default subject of the campaign. Base tables live in ``MemoryStore``; a restart keeps them and nothing else, in all
domains or in some. Where there are shards, a write is split and a look-up goes to the shard that has the key, as a
deployment does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from random import Random
from typing import Any

from domains.language.collating.collation import key_of
from domains.language.types import Row, collations_of
from domains.operators import ranged
from domains.plan.deltas import key_function
from domains.plan.graph import DomainIndex, Node, ParameterKind, Reader
from domains.plan.packets import EvictKeys, EvictMemory, Read
from domains.plan.sharding import physical
from migrations.flow.plan import plan_start
from migrations.query.finish import Finish
from migrations.query.view import PlannedView
from migrations.recipe import RecipeEntry
from tests.campaign.in_bulk import BulkMigrations
from tests.campaign.planned import Planned
from tests.campaign.subject import Answer, Setting
from tests.migrations.evaluate import in_ranges, is_within, sorted_rows
from tests.shard_of_key import shard_of_key
from tests.simulation.recovery import recover
from tests.simulation.simulation import Simulation

ranged.FEW_ROWS = 2  # Tables have few rows: joins are to find ranges of them in order all the same.

PACKETS_AT_MOST = 100_000
"""For one read: more, and an upquery goes round in circles."""


class Simulated(Planned):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, setting.domains, setting.shards)
        self.in_bulk: BulkMigrations | None = BulkMigrations(self) if setting.bulk else None

    # --- migrations -----------------------------------------------------------------------------------------------

    def _one(self, parsed: Any) -> Answer:
        """A write may come in the midst of a migration; all else waits for its end."""
        if self.in_bulk is not None:
            if type(parsed.expression).__name__ in ("Insert", "Update", "Delete"):
                self.in_bulk.go_on()
            else:
                self.in_bulk.finish()
        return super()._one(parsed)

    def _migrate(self, entry: RecipeEntry) -> None:
        if self.in_bulk is None or not self.in_bulk.begin(entry):
            super()._migrate(entry)

    def _finish(self) -> None:
        if self.in_bulk is not None:
            self.in_bulk.finish()

    def planned(self, view: str) -> PlannedView:
        if self.in_bulk is not None:
            if view.lower() not in self.state.planned:
                self.in_bulk.finish()
            self.in_bulk.go_on()
        return super().planned(view)

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, view: str, arguments: Sequence[Any]) -> list[Row]:
        node = self._reader_of(view)
        reader = node.operator
        assert isinstance(reader, Reader)
        arguments = self.whole(self.planned(view), arguments)
        keys = keys_of(reader, keyed_arguments(node, arguments))
        if keys:
            self._fill(node, keys)
        rows: Counter[Row] = Counter()
        for key in keys:
            rows.update(self._held(node, key)[key])
        return rows_of(node, rows, arguments, self.planned(view).finish)

    def _at(self, node: Node, key: Row) -> DomainIndex:
        """The domain in which a reader has a key."""
        flow = self.state.flow
        return physical(node.domain, shard_of_key(flow, node.index, key), flow.shards)

    def _held(self, node: Node, key: Row) -> dict[Row, Counter[Row]]:
        return self.simulation.readers.get((self._at(node, key), node.index), {})

    def _by_domain(self, node: Node, keys: Iterable[Row]) -> dict[DomainIndex, tuple[Row, ...]]:
        found: dict[DomainIndex, tuple[Row, ...]] = {}
        for key in keys:
            at = self._at(node, key)
            found[at] = (*found.get(at, ()), key)
        return found

    def _reader_of(self, view: str) -> Node:
        """The view's reader; one that has none is given it now."""
        if view.lower() not in self.state.flow.readers:
            self._finish()
        if view.lower() not in self.state.flow.readers:
            self.planned(view)
            self._migrate(RecipeEntry(readers=(view.lower(),)))
            self._finish()
        return self.state.flow.node(self.state.flow.readers[view.lower()])

    def _fill(self, node: Node, keys: tuple[Row, ...]) -> None:
        """Ask for the keys that are holes, and deliver packets until they are filled."""
        outcomes = self.simulation.outcomes
        for _ in range(PACKETS_AT_MOST):
            holes = tuple(key for key in keys if key not in self._held(node, key))
            if not holes:
                return
            requests = []
            for domain, own in self._by_domain(node, holes).items():
                requests.append(self.simulation.request())
                self.simulation.send(domain, Read(requests[-1], node.index, own))
            while not all(request in outcomes for request in requests):
                if not self.simulation.deliver(self.random):
                    raise AssertionError(f"nothing is under way, and reader {node.index} has not filled {holes}")
            for request in requests:
                self._outcome(outcomes.pop(request))
        raise AssertionError(f"reader {node.index} never had all of {keys} filled at once")

    # --- everything else ------------------------------------------------------------------------------------------

    def evict(self, view: str, values: Sequence[Any]) -> None:
        if view.lower() in self.state.flow.readers:
            node = self._reader_of(view)
            assert isinstance(node.operator, Reader)
            arguments = self.whole(self.planned(view), self.arguments(view, values))
            keys = keys_of(node.operator, keyed_arguments(node, arguments))
            for domain, own in self._by_domain(node, keys).items():
                self.simulation.send(domain, EvictKeys(self.simulation.request(), node.index, own))

    def evict_some(self, random: Random) -> None:
        share = random.choice((0.1, 0.3, 0.6, 1.0))
        for number, domain in enumerate(self.simulation.domains):
            excess = int(domain.accounted_bytes() * share)
            if excess:
                self.simulation.send(number, EvictMemory(excess))

    def restart(self) -> None:
        """By turns of all of it, and of some domains, which the others outlive."""
        interrupted = self.in_bulk.give_up() if self.in_bulk is not None else None
        self._restart()
        if interrupted is not None:
            self._migrate(interrupted)

    def _restart(self) -> None:
        domains = range(len(self.simulation.domains))
        if len(domains) > 1 and self.random.random() < 0.6:
            lost = self.random.sample(domains, self.random.randint(1, max(1, len(domains) // 2)))
            recover(self.simulation, self.state, lost, self.random, self.between)
            return
        crashed = self.simulation
        self.simulation = Simulation(self.groups, crashed.shards, check=False)
        self.simulation.adopt(crashed.stores)
        self.simulation.migrate(plan_start(self.state.flow), self.between)

    def settle(self) -> None:
        if self.in_bulk is not None:
            self.in_bulk.go_on()
        self.simulation.settle(self.random)

    def step(self, random: Random) -> None:
        if self.in_bulk is not None:
            self.in_bulk.go_on()
        self.simulation.deliver(random)

    def between(self) -> None:
        """Between the slices of a backfill packets go on."""
        self.simulation.deliver(self.random)

    def check(self) -> None:
        self.simulation.check()


def keys_of(reader: Reader, arguments: Sequence[Any]) -> tuple[Row, ...]:
    """The reader's keys that a look-up reads; none where a comparison with NULL makes it empty."""
    wanted: dict[int, list[Any]] = {}
    ranged = in_ranges(reader)
    for number, (parameter, argument) in enumerate(zip(reader.parameters, arguments, strict=True)):
        if parameter.column is None or number in ranged:
            continue
        values = [value for value in (argument if isinstance(argument, tuple) else (argument,)) if value is not None]
        if not values:
            return ()
        if parameter.kind in (ParameterKind.EQUAL, ParameterKind.IN):
            before = wanted.get(parameter.column)
            wanted[parameter.column] = [v for v in dict.fromkeys(values) if before is None or v in before]
    return tuple(product(*(wanted[column] for column in reader.key)))


def keyed_arguments(node: Node, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """One argument a parameter, each as its column's key."""
    assert isinstance(node.operator, Reader)
    made: list[Any] = []
    for parameter, argument in zip(node.operator.parameters, arguments, strict=True):
        collation = None if parameter.column is None else node.columns[parameter.column].type.collation
        if collation is None:
            made.append(argument)
        elif isinstance(argument, tuple):
            made.append(tuple(key_of(each, collation) for each in argument))
        else:
            made.append(key_of(argument, collation))
    return tuple(made)


def rows_of(node: Node, rows: Counter[Row], arguments: Sequence[Any], finish: Finish | None) -> list[Row]:
    """Of the rows of the keys: those that meet every parameter, in order, cut to LIMIT and OFFSET."""
    reader = node.operator
    assert isinstance(reader, Reader)
    limit, offset = reader.limit, reader.offset
    compared = key_function(tuple(range(len(node.columns))), collations_of(node.columns))
    found = [(compared(row), row) for row in rows.elements()]
    keyed, ranged = keyed_arguments(node, arguments), in_ranges(reader)
    found = [each for each in found if is_within(reader, each[0], keyed)]
    for number, (parameter, argument) in enumerate(zip(reader.parameters, keyed, strict=True)):
        if number in ranged:
            continue
        if parameter.kind is ParameterKind.LIMIT:
            limit = argument
        elif parameter.kind is ParameterKind.OFFSET:
            offset = argument
        elif (column := parameter.column) is not None:
            meets = _MEETS[parameter.kind]
            found = [each for each in found if each[0][column] is not None and meets(each[0][column], argument)]
    width = len(node.columns)
    both = sorted_rows([(*keys, *row) for keys, row in found], reader.order)
    shown = [row[width : width + reader.visible] for row in both]
    if not shown and reader.empty is not None:
        shown = [reader.empty[: reader.visible]]
    if finish is not None:
        return finish.answer(shown, arguments, limit, offset)
    return shown[offset:] if limit is None else shown[offset : offset + limit]


_COUNTS = (ParameterKind.LIMIT, ParameterKind.OFFSET)
_MEETS: dict[ParameterKind, Callable[[Any, Any], bool]] = {
    ParameterKind.EQUAL: lambda value, argument: argument is not None and value == argument,
    ParameterKind.IN: lambda value, argument: value in argument,
    ParameterKind.LESS: lambda value, argument: argument is not None and value < argument,
    ParameterKind.LESS_EQUAL: lambda value, argument: argument is not None and value <= argument,
    ParameterKind.GREATER: lambda value, argument: argument is not None and value > argument,
    ParameterKind.GREATER_EQUAL: lambda value, argument: argument is not None and value >= argument,
}


def simulated(setting: Setting) -> Simulated:
    return Simulated(setting)
