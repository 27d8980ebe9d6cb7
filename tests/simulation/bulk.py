"""A migration carried out in bulk on a simulation, as the controller does it, with anything between its steps.

::

    AddNodes (bulk) … ─► fold each base shard, one after another ─► stages ─► load ─► read the log ─► follow ─► activate

Positions are taken at different moments, blocks are loaded in any order, domains replay side by side, and packets are
on their way all the time. ``breaks_at`` says at which of these moments it is given up and taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from domains.blocks import blocks_of, decode_block, encode_block
from domains.commands import Activate, AddNodes, Command, Feed, Follow, LoadState, RemoveNodes, StartReplay
from domains.graph import DomainIndex
from domains.sharding import table_of
from domains.types import Delta, TableSchema
from migrations.backfill.in_process import run_locally
from migrations.backfill.stages import bases_fed, bulk_domains, obstacle, stages_of
from migrations.dataflow import Dataflow
from migrations.plan import MigrationPlan, PlanStep
from tests.simulation.simulation import Simulation


class Broken(Exception):
    """The migration was cancelled; its nodes are gone again."""


def is_bulk(flow: Dataflow, plan: MigrationPlan) -> bool:
    """Whether there is something to compute in bulk, and nothing in the way."""
    return bool(bulk_domains(flow, plan)) and not obstacle(flow, plan)


@dataclass
class BulkMigration:
    """``flow`` is the dataflow as it is to be; ``between`` is called wherever others may act."""

    simulation: Simulation
    flow: Dataflow
    plan: MigrationPlan
    schemas: Mapping[str, TableSchema]
    """By table name, as the bases have it."""
    rng: Random
    between: Callable[[], None]
    breaks_at: int | None = None
    """At which moment it is given up."""
    moments: int = 0

    def run(self) -> None:
        """Raises Broken when it was given up and taken back."""
        try:
            self._run()
        except Broken:
            self._take_back()
            raise

    def _take_back(self) -> None:
        """Nothing of it is on its way any more when this returns: the next migration may use the same numbers."""
        for step in self.plan.undo:
            self.simulation.command(step.domain, step.command)
            assert isinstance(step.command, RemoveNodes)
            for node in step.command.nodes:
                self.simulation.readers.pop((step.domain, node), None)
        self.simulation.settle(self.rng)

    def _run(self) -> None:
        before = [step for step in self.plan.steps if not isinstance(step.command, (Feed, Activate))]
        for step in before:
            self._perform(step)
        positions, folds = self._folds()
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
        for domain, command in loads:
            self.moment()
            self.simulation.command(domain, command)
        domains = bulk_domains(self.flow, self.plan)
        limit = self.rng.choice([1, 2, 5, 1000])
        self._side_by_side({d: StartReplay(self._of_domain(d, positions), limit) for d in domains})
        self._side_by_side({domain: Follow(limit) for domain in domains})
        self.simulation.settle(self.rng)
        for step in self.plan.steps:
            if isinstance(step.command, Activate):
                self._perform(step)

    def moment(self) -> None:
        """Anything may happen here."""
        self.between()
        if self.moments == self.breaks_at:
            raise Broken
        self.moments += 1

    def _perform(self, step: PlanStep) -> None:
        command = step.command
        if isinstance(command, AddNodes):
            command = replace(command, bulk=True)
        while not self.simulation.command(step.domain, command) and step.sliced:
            self.between()

    def _folds(self) -> tuple[dict[str, int], dict[str, list[Delta]]]:
        positions: dict[str, int] = {}
        folds: dict[str, list[Delta]] = {}
        for base, domain in bases_fed(self.flow, self.plan).items():
            self.moment()
            store, table = self.simulation.stores[domain], table_of(base, self.flow.shards)
            positions[base] = store.position(table)
            folds[base] = list(store.table(table).find((), ()))
        return positions, folds

    def _of_domain(self, domain: DomainIndex, positions: Mapping[str, int]) -> dict[str, int]:
        fed = bases_fed(self.flow, self.plan)
        return {table_of(base, self.flow.shards): at for base, at in positions.items() if fed[base] == domain}

    def _side_by_side(self, commands: Mapping[DomainIndex, Command]) -> None:
        left = dict(commands)
        while left:
            self.moment()
            domain = self.rng.choice(list(left))
            if self.simulation.command(domain, left[domain]):
                del left[domain]
