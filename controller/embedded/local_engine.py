"""One life of the deployment in one process: from the opening of its stores to their end, with all that stands on them.

A life ends where the disk fails it, and the next one begins in the same process (``reopening.py``)::

    stores ─► Dataflow ─► nodes of the recipe ─► Migrator, archiver
    opened: less than was acknowledged is refused     └─ full state is built behind, as after any start

Nothing that was held in memory goes from one life into the next: what the disk has is the truth.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from controller.embedded.opening import PLANNING, Opening
from controller.migrating.executor import LocalBook, LocalExecutor
from controller.migrating.migrator import Migrator
from controller.migrating.unbuilt import Unbuilt
from domains.errors import StorageFailure
from domains.language.collating.collation import BINARY
from domains.language.types import TableSchema
from domains.plan.commands import AlterTable, Command, CreateTable, DropTable
from domains.plan.graph import DomainIndex
from domains.plan.sharding import physical
from migrations.backfill.runner import BulkRunner
from migrations.change import BASES, build_index
from migrations.flow.dataflow import Placement, late_parts
from migrations.flow.plan import State, one_domain, plan_start, spread_over
from migrations.recipe import Recipe, declared
from migrations.replaying import replayed
from worker.archive.options import ArchiveOptions
from worker.dataflow.thread import DataflowThread
from worker.embedded import READERS, open_embedded
from worker.service.archiving import start_archiver
from zookeeper.errors import SlotsDamaged
from zookeeper.local_authority import LocalAuthority

if TYPE_CHECKING:
    from worker.archive.archiver import Archiver

_log = logging.getLogger("headrace.controller")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings that all engines of a deployment share; see ``LocalDeployment.open``."""

    path: Path
    groups: int
    shards: int
    partial: bool
    memory_limit: int
    disk_reserve: int
    archive: ArchiveOptions | None
    runners: Sequence[BulkRunner]
    spark_threshold: int
    collation: str = BINARY

    @property
    def placement(self) -> Placement:
        return one_domain if self.groups == 1 else spread_over(self.groups)


class LocalEngine:
    """Opened by ``open``, ended by ``end``; hits go on until ``discard``."""

    def __init__(self, options: EngineOptions, life: int, dataflow: DataflowThread) -> None:
        self.options = options
        self.life = life
        self.dataflow = dataflow
        self.archiver: Archiver | None = None
        self.migrator: Migrator
        self._book: LocalBook
        self._authority: LocalAuthority
        self._ended = False
        self._changed: Callable[[State, State], None] = lambda before, after: None
        self._built: Callable[[Sequence[str]], None] = lambda views: None

    def tell(self, changed: Callable[[State, State], None], built: Callable[[Sequence[str]], None]) -> None:
        """Call ``changed`` with each new state (before, after), and ``built`` with views whose readers now stand."""
        self._changed, self._built = changed, built

    @classmethod
    async def open(cls, options: EngineOptions, opening: Opening, life: int = 0) -> tuple[LocalEngine, Unbuilt]:
        """The engine, and the full state that is yet to be built.

        :raises StorageFailure: the directory is in use by another process, damaged, or cannot be written.
        :raises Cancelled: the opening was given up.
        """
        opening.begin(f"opening the tables in {options.path}")
        dataflow = await asyncio.to_thread(_opened, options, life)
        self = cls(options, life, dataflow)
        try:
            unbuilt = await self._recover(opening)
            if options.archive is not None:
                await asyncio.to_thread(import_module, "worker.archive.archiver")  # It loads pyarrow.
            self.archiver = start_archiver(dataflow, options.archive, self._recipe_now)
            self.migrator.threshold = options.spark_threshold
            self.migrator.collation = options.collation
            if self.archiver is not None and options.runners:
                self._build_in_bulk(self.archiver)
            opening.check()
        except BaseException:
            if self.archiver is not None:
                await asyncio.to_thread(self.archiver.close)
            await asyncio.to_thread(dataflow.close)
            raise
        return self, unbuilt

    def _build_in_bulk(self, archiver: Archiver) -> None:
        from controller.migrating.bulk.building import BulkBuilder  # Late, as the archiver: they load pyarrow.
        from controller.migrating.bulk.job_files import LocalSource

        source = LocalSource(archiver)
        self.migrator.builder = BulkBuilder(LocalExecutor(self.dataflow), source, self.options.runners)

    async def _recover(self, opening: Opening) -> Unbuilt:
        """Bring tables to what the recipe says, and beside them all of the dataflow that need not be fed. The rest."""
        options, shards = self.options, self.options.shards
        authority = LocalAuthority(options.path / "recipe.json")
        try:
            data, version = await authority.read()
        except SlotsDamaged as error:
            raise StorageFailure(error.message, hint=error.hint) from error
        recipe = Recipe() if data is None else declared(Recipe.from_json(data))
        bases = [physical(BASES, shard, shards) for shard in range(shards)]
        tables = (schema for base in bases for schema in self.dataflow.stores[base].tables())
        stored = {schema.name for schema in tables if not schema.filling}
        empty = State(partial=options.partial, shards=shards)
        state = await asyncio.to_thread(_played, recipe, empty, options.placement, stored, opening)
        self.dataflow.start()
        wanted = state.catalog.tables.values()
        for shard, base in enumerate(bases):
            await self._bring_tables(base, [schema for schema in wanted if shard < (schema.shards or shards)])
        parts = late_parts(state.flow, state.catalog, self._stored_rows())
        late = {index for part in parts for index in part.nodes}
        # An index that a crash left half built is built now.
        keys = [(schema, columns) for schema in wanted for columns in (*schema.unique, *schema.indexes)]
        indexes = [build_index(schema, columns, state.shards) for schema, columns in keys]
        steps = (*(step for steps in indexes for step in steps), *plan_start(state.flow, late).steps)
        opening.begin("bringing nodes and indexes into the domains", len(steps))
        for number, step in enumerate(steps):
            while True:
                opening.went(number)
                progress = await asyncio.wrap_future(self.dataflow.command(step.domain, step.command))
                if progress.finished or not step.sliced:
                    break
        self._authority = authority
        self._book = LocalBook(authority, version, recipe, state, lambda *states: self._changed(*states))
        self.migrator = Migrator(LocalExecutor(self.dataflow), self._book, options.placement)
        return Unbuilt(parts, lambda views: self._built(views))

    def _stored_rows(self) -> dict[str, int]:
        """The rows of each table, in all shards together."""
        rows: dict[str, int] = {}
        for store in self.dataflow.stores.values():
            for schema in store.tables():
                rows[schema.name] = rows.get(schema.name, 0) + store.table(schema.name).row_count
        return rows

    async def _bring_tables(self, base: DomainIndex, wanted: Sequence[TableSchema]) -> None:
        """Have in one domain's store the tables that are wanted, as they are wanted, and no others."""
        stored = {schema.name: schema for schema in self.dataflow.stores[base].tables()}
        here = {schema.name for schema in wanted if schema.is_the_table(stored.get(schema.name, schema))}
        commands: list[Command] = [DropTable(name) for name in stored.keys() - here]
        for schema in wanted:
            if schema.name not in stored.keys() & here:
                commands.append(CreateTable(schema))
            elif stored[schema.name] != schema:
                commands.append(AlterTable(schema))
        for command in commands:
            await asyncio.wrap_future(self.dataflow.command(base, command))

    def _recipe_now(self) -> Callable[[], str]:
        """The recipe as the thread of the steps sees it between two steps: a decision stands here before it is carried
        out."""
        recipe = self._book.recipe
        return lambda: recipe.to_json().decode()

    async def next(self, opening: Opening) -> tuple[LocalEngine, Unbuilt]:
        """The next life, after ``end``. What was asked, limited and noticed in this one goes on there."""
        engine, unbuilt = await LocalEngine.open(self.options, opening, self.life + 1)
        engine.migrator.follow(self.migrator)
        engine.dataflow.memory_limit = self.dataflow.memory_limit
        for store, before in zip(engine.dataflow.rocks(), self.dataflow.rocks(), strict=True):
            store.opened_after(before)
        return engine, unbuilt

    async def end(self) -> None:
        """Take back what is being built, and close the stores; hits go on. A second time does nothing."""
        if self._ended:
            return
        await self.migrator.close()
        if self.archiver is not None:
            await asyncio.to_thread(self.archiver.close)
        await self._authority.close()
        self._ended = True
        await asyncio.to_thread(self.dataflow.end)

    def discard(self) -> None:
        """After ``end``: no hits any more. What it holds is given up by hand (``worker/service/system.py``)."""
        for domain in self.dataflow.domains.values():
            for vertex in domain.vertices.values():
                vertex.give_up()
        self.dataflow.close()
        rmtree(self.dataflow.reader_map.path, ignore_errors=True)


def _opened(options: EngineOptions, life: int) -> DataflowThread:
    if not life:
        rmtree(options.path / READERS[1], ignore_errors=True)
    return open_embedded(
        options.path,
        groups=options.groups,
        memory_limit=options.memory_limit,
        shards=options.shards,
        new=not (options.path / "recipe.json").exists(),
        disk_reserve=options.disk_reserve,
        readers=READERS[life % 2],
    )


def _played(recipe: Recipe, state: State, placement: Placement, stored: Iterable[str], opening: Opening) -> State:
    """The state that the recipe comes to, beginning with that of an empty deployment.

    A table is created by its recipe entry first, so one that is stored and that no entry ever had means that the recipe
    is not the one of these tables. To drop them, as tables that were dropped are, would lose them.
    """
    opening.begin(PLANNING, len(recipe.entries))
    for number, entry in enumerate(recipe.entries):
        opening.went(number)
        state = replayed(state, entry, placement)
    known = {*state.catalog.tables, *state.catalog.dropped}
    unknown = sorted(name for name in stored if name.lower() not in known)
    if unknown:
        raise StorageFailure(f'the recipe does not have the stored table "{unknown[0]}"', hint=_RESTORE)
    return state


_RESTORE = "restore recipe.json from a back-up, with the recipe.slots of that"
