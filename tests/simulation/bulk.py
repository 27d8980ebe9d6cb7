"""A migration carried out in bulk on a simulation, as the controller does it, with anything between its steps.

::

    AddNodes (bulk) … ─► fold each base shard, one after another ─► stages ─► load ─► read the log ─► follow ─► activate

Positions are taken at different moments, blocks are loaded in any order, domains replay side by side, and packets are
on their way all the time. It is a generator, which stops wherever others may act; whoever gives it up takes it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from domains.archive.rows import blocks_of, decode_block, encode_block
from domains.language.types import Delta, TableSchema
from domains.plan.commands import Activate, AddNodes, Command, Feed, Follow, LoadState, RemoveNodes, StartReplay
from domains.plan.graph import DomainIndex
from domains.plan.sharding import table_of
from migrations.backfill.stages import bases_fed, bulk_domains, stages_of
from migrations.flow.dataflow import Dataflow
from migrations.flow.plan import MigrationPlan, PlanStep
from tests.migrations.backfill.in_process import run_locally
from tests.simulation.simulation import Simulation


def is_bulk(flow: Dataflow, plan: MigrationPlan) -> bool:
    """Whether there is something to compute in bulk."""
    return bool(bulk_domains(flow, plan))


@dataclass
class BulkMigration:
    """``flow`` is the dataflow as it is to be."""

    simulation: Simulation
    flow: Dataflow
    plan: MigrationPlan
    schemas: Mapping[str, TableSchema]
    """By table name, as the bases have it."""
    rng: Random

    def moments(self) -> Iterator[None]:
        """Carry it out; it is complete when there are no more moments."""
        for step in self.plan.steps:
            if not isinstance(step.command, (Feed, Activate)):
                yield from self._perform(step)
        positions: dict[str, int] = {}
        folds: dict[str, list[Delta]] = {}
        fed = bases_fed(self.flow, self.plan)
        for base, domain in fed.items():
            yield
            store, table = self.simulation.stores[domain], table_of(base, self.flow.shards)
            positions[base] = store.position(table)
            folds[base] = list(store.table(table).find((), ()))
        for domain, command in self._loads(folds):
            yield
            self.simulation.command(domain, command)
        domains = bulk_domains(self.flow, self.plan)
        limit = self.rng.choice([1, 2, 5, 1000])
        begin = {
            domain: {table_of(b, self.flow.shards): at for b, at in positions.items() if fed[b] == domain}
            for domain in domains
        }
        yield from self._side_by_side({domain: StartReplay(begin[domain], limit) for domain in domains})
        yield from self._side_by_side({domain: Follow(limit) for domain in domains})
        self.simulation.settle(self.rng)
        for step in self.plan.steps:
            if isinstance(step.command, Activate):
                yield from self._perform(step)

    def _loads(self, folds: Mapping[str, list[Delta]]) -> list[tuple[DomainIndex, Command]]:
        rows = {base: len(fold) for base, fold in folds.items()}
        states = run_locally(stages_of(self.flow, self.plan, self.schemas, rows), lambda base: folds[base])
        size = self.rng.choice([1, 2, 1000])
        loads: list[tuple[DomainIndex, Command]] = [
            (domain, LoadState(node, encode_block(items)))
            for (domain, node), blocks in states.items()
            for block in blocks
            for items in (list(blocks_of(decode_block(block), size)) or [[]])
        ]
        self.rng.shuffle(loads)
        return loads

    def _perform(self, step: PlanStep) -> Iterator[None]:
        command = step.command
        if isinstance(command, AddNodes):
            command = replace(command, bulk=True)
        while not self.simulation.command(step.domain, command) and step.sliced:
            yield

    def _side_by_side(self, commands: Mapping[DomainIndex, Command]) -> Iterator[None]:
        left = dict(commands)
        while left:
            yield
            domain = self.rng.choice(list(left))
            if self.simulation.command(domain, left[domain]):
                del left[domain]

    def take_back(self) -> None:
        """Nothing of it is on its way any more when this returns: the next migration may use the same numbers."""
        for step in self.plan.undo:
            self.simulation.command(step.domain, step.command)
            assert isinstance(step.command, RemoveNodes)
            for node in step.command.nodes:
                self.simulation.readers.pop((step.domain, node), None)
        self.simulation.settle(self.rng)
