"""The deployment in one process: the default, and the first thing that a new user runs. No ZooKeeper, no JVM."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.deployment import Archived, MigrationStatus, not_archived
from controller.executor import LocalBook, LocalExecutor
from controller.local_hosts import LocalHosts
from controller.migrator import Migrator
from controller.opening import PLANNING, Opening
from controller.serving import Serving
from controller.status import graph_of, health_of, held_by, status_of
from controller.unbuilt import Unbuilt
from domains.commands import AlterTable, Command, CreateTable, DropTable
from domains.errors import HeadraceError, StorageFailure
from domains.graph import DomainIndex, NodeIndex
from domains.sharding import physical
from domains.storage import DISK_RESERVE
from domains.types import TableSchema
from migrations.backfill.runner import BulkRunner
from migrations.backfill.threshold import SPARK_THRESHOLD
from migrations.change import BASES, build_index, change_of
from migrations.dataflow import Placement
from migrations.forgotten import without_forgotten
from migrations.late import late_parts
from migrations.parse import Parsed
from migrations.plan import State, one_domain, plan_start, spread_over
from migrations.recipe import Entry, Recipe
from worker.archiving import ArchiveOptions, start_archiver
from worker.belonging import FILE as CLUSTER
from worker.dataflow import Dataflow
from worker.embedded import open_embedded, shards_of
from zookeeper.authority import LocalAuthority
from zookeeper.errors import SlotsDamaged

if TYPE_CHECKING:
    from worker.archive.archiver import Archiver

DEFAULT_MEMORY_LIMIT = 512 * 2**20


class LocalDeployment(Serving):
    """See :class:`controller.deployment.Deployment`, which it implements. All its methods run on one event loop."""

    def __init__(self, path: Path, dataflow: Dataflow, read_timeout: float) -> None:
        super().__init__(LocalHosts(dataflow), read_timeout)
        self.path = path
        self.dataflow = dataflow
        self.archiver: Archiver | None = None
        self.started = time.monotonic()
        self.migrator: Migrator
        self._book: LocalBook
        self._authority: LocalAuthority

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        memory_limit: int = DEFAULT_MEMORY_LIMIT,
        disk_reserve: int = DISK_RESERVE,
        domains: int = 1,
        shards: int | None = None,
        read_timeout: float = 5.0,
        partial: bool = True,
        archive: ArchiveOptions | None = None,
        runners: Sequence[BulkRunner] = (),
        spark_threshold: int = SPARK_THRESHOLD,
        opening: Opening | None = None,
    ) -> LocalDeployment:
        """Open or make a data directory, bring back its dataflow, and begin to serve.

        Nodes stand in ``domains`` groups of ``shards`` domains each; how many shards is decided when the directory is
        made, 1 unless given, and need not be given again. ``partial=False`` keeps every view full, to compare with.
        ``archive`` is where base tables are archived; the first of ``runners`` that can computes from there full state
        of more than ``spark_threshold`` base rows. ``opening`` hears how far this is, and may give it up; with it this
        returns as soon as tables and partial views serve, and full state is built behind that: reads of it wait.

        :raises StorageFailure: the directory is in use by another process, damaged, or cannot be written.
        :raises Cancelled: the opening was given up.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailure(f'cannot make the data directory "{path}": {error.strerror}') from error
        if (path / CLUSTER).exists():
            raise StorageFailure(
                f'the data in "{path}" is that of a cluster, not of headrace serve',
                hint="start it with headrace up, or choose another directory with --data",
            )
        shards = shards_of(path, shards)
        behind, opening = opening is not None, opening or Opening()
        opening.begin(f"opening the tables in {path}")
        dataflow = await asyncio.to_thread(
            open_embedded,
            path,
            groups=domains,
            memory_limit=memory_limit,
            shards=shards,
            new=not (path / "recipe.json").exists(),
            disk_reserve=disk_reserve,
        )
        try:
            self = cls(path, dataflow, read_timeout)
            unbuilt = await self._recover(
                opening, one_domain if domains == 1 else spread_over(domains), partial, shards
            )
            if archive is not None:
                await asyncio.to_thread(import_module, "worker.archive.archiver")  # It loads pyarrow.
            self.archiver = start_archiver(dataflow, archive, self._recipe_now)
            self.migrator.threshold = spark_threshold
            if self.archiver is not None and runners:
                self._build_in_bulk(self.archiver, runners)
            left = sum(len(part.views) for part in unbuilt.parts)
            opening.begin(f"serving; full state of {left} of {len(self.state.catalog.views)} views is yet to be built")
            if behind:
                self.migrator.build_behind(unbuilt)
            else:
                await self.migrator.build_now(unbuilt)
        except BaseException:
            await asyncio.to_thread(dataflow.close)
            raise
        return self

    def _build_in_bulk(self, archiver: Archiver, runners: Sequence[BulkRunner]) -> None:
        from controller.bulk.building import BulkBuilder  # Late, as the archiver: they load pyarrow.
        from controller.bulk.source import LocalSource

        self.migrator.builder = BulkBuilder(LocalExecutor(self.dataflow), LocalSource(archiver), runners)

    async def _recover(self, opening: Opening, placement: Placement, partial: bool, shards: int) -> Unbuilt:
        """Bring tables to what the recipe says, and beside them all of the dataflow that need not be fed. The rest."""
        authority = LocalAuthority(self.path / "recipe.json")
        try:
            data, version = await authority.read()
        except SlotsDamaged as error:
            raise StorageFailure(error.message, hint=error.hint) from error
        recipe = Recipe() if data is None else without_forgotten(Recipe.from_json(data))
        bases = [physical(BASES, shard, shards) for shard in range(shards)]
        stored = {schema.name for base in bases for schema in self.dataflow.stores[base].tables()}
        empty = State(partial=partial, shards=shards)
        state = await asyncio.to_thread(_played, recipe, empty, placement, stored, opening)
        self.dataflow.start()
        wanted = state.catalog.tables.values()
        for shard, base in enumerate(bases):
            await self._bring_tables(base, [schema for schema in wanted if shard < (schema.shards or shards)])
        parts = late_parts(state.flow, state.catalog, self._stored_rows())
        late = {index for part in parts for index in part.nodes}
        # An index that a crash left half built is built now.
        indexes = [build_index(schema, columns, state.shards) for schema in wanted for columns in schema.indexes]
        steps = (*(step for steps in indexes for step in steps), *plan_start(state.flow, late).steps)
        opening.begin("bringing nodes and indexes into the domains", len(steps))
        for number, step in enumerate(steps):
            while True:
                opening.went(number)
                progress = await asyncio.wrap_future(self.dataflow.command(step.domain, step.command))
                if progress.finished or not step.sliced:
                    break
        self._authority = authority
        self._book = LocalBook(authority, version, recipe, state, self.changed)
        self.migrator = Migrator(LocalExecutor(self.dataflow), self._book, placement)
        return Unbuilt(parts, self._built)

    def _stored_rows(self) -> dict[str, int]:
        """By table, in all shards together."""
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

    @property
    def state(self) -> State:
        return self.migrator.state

    # --- full state after a start ---------------------------------------------------------------------------

    def is_unbuilt(self, reader: NodeIndex) -> bool:
        return reader in self.migrator.unbuilt

    async def until_built(self, reader: NodeIndex, view: str) -> None:
        await self.migrator.unbuilt.wait(reader, view, self.read_timeout)

    def _built(self, views: Sequence[str]) -> None:
        """Their look-ups were prepared without a reader."""
        for view in views:
            if view in self._lookups:
                self.retire(view)

    # --- migrations -----------------------------------------------------------------------------------------

    async def run(self, entry: Entry, sql: str, parsed: Sequence[Parsed] | None = None) -> None:
        await self.migrator.run(entry, sql, parsed)

    async def migrate(self, sql: str) -> MigrationStatus:
        return self.migrator.start(Entry((sql,)), sql).status()

    async def migration(self, id: str) -> MigrationStatus:
        return self.migrator.status(id)

    async def cancel_migration(self, id: str) -> MigrationStatus:
        return self.migrator.cancel(id)

    # --- what there is --------------------------------------------------------------------------------------

    async def graph(self) -> dict[str, Any]:
        return graph_of(self.state.flow, held_by(self.dataflow))

    def health(self) -> str:
        return health_of(self.dataflow)

    async def status(self) -> dict[str, Any]:
        shown = status_of(self.dataflow, self.state, time.monotonic() - self.started, *self.counted())
        if (building := self.migrator.unbuilt.status()) is not None:
            shown["building"] = building
        return shown if self.archiver is None else {**shown, "archive": self.archiver.status()}

    # --- the archive ----------------------------------------------------------------------------------------

    async def archive(self) -> Archived:
        if self.archiver is None:
            raise not_archived()
        taken = await asyncio.wrap_future(self.archiver.archive_now())
        return Archived.of(self.archiver.options.url, taken, self.state.shards)

    def _recipe_now(self) -> Callable[[], str]:
        """From the thread of the steps, between two of them: what is decided is done after it stands here."""
        recipe = self._book.recipe
        return lambda: recipe.to_json().decode()

    def stopping(self) -> None:
        self.migrator.cancel_all()

    async def close(self) -> None:
        await self.migrator.close()
        if self.archiver is not None:
            await asyncio.to_thread(self.archiver.close)
        await self._authority.close()
        await asyncio.to_thread(self.dataflow.close)


def _played(recipe: Recipe, state: State, placement: Placement, stored: Iterable[str], opening: Opening) -> State:
    """The state that the recipe comes to, beginning with that of an empty deployment.

    A table is created by its recipe entry first, so one that is stored and that no entry ever had means that the recipe
    is not the one of these tables. To drop them, as tables that were dropped are, would lose them.
    """
    known: set[str] = set()
    opening.begin(PLANNING, len(recipe.entries))
    for number, entry in enumerate(recipe.entries):
        opening.went(number)
        try:
            state = change_of(state, entry, placement).state
        except HeadraceError as error:
            raise StorageFailure(f"the recipe cannot be played again: {error}", hint=_RESTORE) from error
        known |= {schema.name for schema in state.catalog.tables.values()}
    unknown = sorted(set(stored) - known)
    if unknown:
        raise StorageFailure(f'the recipe does not have the stored table "{unknown[0]}"', hint=_RESTORE)
    return state


_RESTORE = "restore recipe.json from a back-up, with the recipe.slots of that"
