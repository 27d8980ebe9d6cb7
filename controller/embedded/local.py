"""The deployment in one process: the default, and the first thing that a new user runs. No ZooKeeper, no JVM."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.deployment import ArchivedPositions, MigrationStatus, Reason, ReasonKind, health_of, not_archived
from controller.embedded.local_engine import EngineOptions, LocalEngine
from controller.embedded.local_hosts import LocalHosts
from controller.embedded.opening import Opening
from controller.embedded.reopening import Reopening
from controller.migrating.migrator import Migrator
from controller.serving import BUDGET, Serving
from controller.statements.eager_choice import chosen_text
from controller.statements.shapes import AdHocMode
from controller.status import graph_of, held_by, reader_status, readers_of, status_of
from controller.transactions.in_doubt import told_of_doubt
from domains.errors import StorageFailure
from domains.language.collating.collation import BINARY
from domains.plan.graph import NodeIndex
from domains.plan.packets import Insert
from domains.plan.sharding import base_shards
from domains.plan.traits import is_base
from domains.store.storage import DISK_RESERVE
from migrations.backfill.runner import BulkRunner
from migrations.backfill.spark.settings import SPARK_THRESHOLD
from migrations.flow.plan import State
from migrations.parse.reading import Parsed
from migrations.recipe import RecipeEntry
from worker.adhoc.pool import Budget
from worker.archive.options import ArchiveOptions
from worker.belonging import FILE as CLUSTER
from worker.dataflow.thread import DataflowThread
from worker.embedded import shards_of
from worker.service.status import prepared_since
from worker.service.system import bytes_beyond, make_private

if TYPE_CHECKING:
    from worker.archive.archiver import Archiver

DEFAULT_MEMORY_LIMIT = 512 * 2**20


class LocalDeployment(Serving):
    """See :class:`controller.deployment.Deployment`, which it implements. All its methods run on one event loop."""

    def __init__(self, path: Path, engine: LocalEngine, read_timeout: float, ad_hoc: AdHocMode, budget: Budget) -> None:
        super().__init__(LocalHosts(engine.dataflow), read_timeout, ad_hoc, budget)
        self.path = path
        self.started = time.monotonic()
        self._engine = engine
        self._opening = Opening()
        self._reopening = Reopening(self._reopen)
        self._watch()

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        memory_limit: int = DEFAULT_MEMORY_LIMIT,
        disk_reserve: int = DISK_RESERVE,
        domains: int = 1,
        shards: int | None = None,
        collation: str = BINARY,
        read_timeout: float = 5.0,
        ad_hoc: AdHocMode = AdHocMode.KEEP,
        budget: Budget = BUDGET,
        partial: bool = True,
        archive: ArchiveOptions | None = None,
        runners: Sequence[BulkRunner] = (),
        spark_threshold: int = SPARK_THRESHOLD,
        opening: Opening | None = None,
    ) -> LocalDeployment:
        """Open or make a data directory, bring back its dataflow, and begin to serve.

        Nodes stand in ``domains`` groups of ``shards`` domains each; how many shards is decided when the directory is
        made, 1 unless given, and need not be given again. ``partial=False`` keeps every view full, to compare with.
        ``collation`` is of the texts of tables made from now on that name none.
        ``archive`` is where base tables are archived; the first of ``runners`` that can computes from there full state
        of more than ``spark_threshold`` base rows. ``ad_hoc`` says what becomes of a SELECT that no view answers,
        ``budget`` what one may take. ``opening`` hears how far this is, and may give it up; with it this returns
        when tables and partial views serve. Full state is built behind that: reads of it wait.

        :raises StorageFailure: the directory is in use by another process, damaged, or cannot be written.
        :raises Cancelled: the opening was given up.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            make_private(path)
        except OSError as error:
            raise StorageFailure(f'cannot make the data directory "{path}": {error.strerror}') from error
        if (path / CLUSTER).exists():
            raise StorageFailure(
                f'the data in "{path}" is that of a cluster, not of headrace serve',
                hint="start it with headrace up, or choose another directory with --data",
            )
        behind, opening = opening is not None, opening or Opening()
        options = EngineOptions(
            path,
            domains,
            shards_of(path, shards),
            partial,
            memory_limit,
            disk_reserve,
            archive,
            runners,
            spark_threshold,
            collation,
        )
        engine, unbuilt = await LocalEngine.open(options, opening)
        self = cls(path, engine, read_timeout, ad_hoc, budget)
        await self._clear(options.shards)
        left = sum(len(part.views) for part in unbuilt.parts)
        opening.begin(f"serving; full state of {left} of {len(self.state.catalog.views)} views is yet to be built")
        if behind:
            self.migrator.build_behind(unbuilt)
            return self
        try:
            await self.migrator.build_now(unbuilt)
        except BaseException:
            await self.close()
            raise
        return self

    async def _clear(self, shards: int) -> None:
        """End what the last run has left: transactions in doubt, and temporary tables."""
        if shards > 1:
            self.in_doubt.look(at_once=True)
        await self.temporary.drop(self.temporary.left())

    # --- engines --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Hear from the engine what changes, and when it fails."""
        engine = self._engine
        dataflow = engine.dataflow

        def look() -> None:
            if dataflow.failure is not None and engine is self._engine:
                self._reopening.begin(dataflow.failure)

        def failed() -> None:  # Called by the threads of the dataflow.
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(look)

        engine.tell(self.changed, self._built)
        dataflow.failure_listeners.append(failed)
        dataflow.hosted.pressure.give_way = self.selects.give_way
        look()

    async def _reopen(self) -> None:
        """Hits go on out of the map of the engine that failed, until the next one takes its place."""
        failed, self._opening = self._engine, Opening()
        await failed.end()
        engine, unbuilt = await failed.next(self._opening)
        await self.hosts.close()
        self._engine, self.hosts = engine, LocalHosts(engine.dataflow)
        self.hosts.on_locked = self.in_doubt.look
        self.in_doubt.look(at_once=True)
        self.retire_all()
        self._watch()
        failed.discard()
        engine.migrator.build_behind(unbuilt)

    @property
    def dataflow(self) -> DataflowThread:
        return self._engine.dataflow

    @property
    def archiver(self) -> Archiver | None:
        return self._engine.archiver

    @property
    def migrator(self) -> Migrator:
        return self._engine.migrator

    @property
    def state(self) -> State:
        return self.migrator.state

    # --- full state after a start ---------------------------------------------------------------------------

    def writes(self, tables: Collection[str]) -> int:
        known = self.state.catalog.tables
        bases = {base for name in tables if name in known for base in base_shards(known[name], self.state.shards)}
        clocks = self.dataflow.published.values()
        return sum(at for clock in clocks for base, at in clock.items() if base in bases)

    def automatic_bytes(self) -> int:
        """Bytes of the nodes that no declared view reads."""
        flow, views = self.state.flow, self.state.catalog.views
        declared, automatic = set[NodeIndex](), set[NodeIndex]()
        for view, reader in flow.readers.items():
            (automatic if views[view].ad_hoc else declared).update(flow.ancestors(reader))
        held = held_by(self.dataflow)
        own = (index for index in automatic - declared if not is_base(flow.node(index).operator))
        return sum(held[index][1] for index in own if index in held)

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

    async def run(
        self, entry: RecipeEntry, sql: str, parsed: Sequence[Parsed] | None = None, rows: Insert | None = None
    ) -> None:
        self._reopening.check()
        await self.migrator.run(entry, sql, parsed, rows)

    async def migrate(self, sql: str) -> MigrationStatus:
        self._reopening.check()
        chosen = await chosen_text(self, sql)
        return self.migrator.start(RecipeEntry((chosen,)), chosen).status()

    async def migrations(self) -> list[MigrationStatus]:
        return self.migrator.statuses()

    async def migration(self, id: str) -> MigrationStatus:
        return self.migrator.status(id)

    async def cancel_migration(self, id: str) -> MigrationStatus:
        return self.migrator.cancel(id)

    def count_outside(self, size: int) -> None:
        dataflow = self.dataflow
        kept = self.snapshots.answers.bytes
        dataflow.hosted.outside = size + kept + dataflow.waiting_bytes + bytes_beyond(dataflow.memory_limit)

    # --- what there is --------------------------------------------------------------------------------------

    async def graph(self, view: str | None = None) -> dict[str, Any]:
        flow = self.state.flow
        if view is None:
            return graph_of(flow, held_by(self.dataflow))
        wanted = flow.above_reader(view)
        told = {name: reader_status(self.dataflow, flow, node) for name, node in readers_of(flow, view)}
        reader = next(iter(self.with_reads(told).values()), None)
        return {**graph_of(flow, held_by(self.dataflow, wanted), wanted), "reader": reader}

    async def unready(self) -> tuple[Reason, ...]:
        if self._reopening.since:
            return (Reason(ReasonKind.STORAGE, self._reopening.text()),)
        found = [] if self.dataflow.health == "ok" else [Reason(ReasonKind.STORAGE, self.dataflow.health)]
        if (full := self.dataflow.full) is not None:
            found.append(Reason(ReasonKind.CHANGES, full))
        return tuple(found)

    async def status(self) -> dict[str, Any]:
        shown = status_of(self.dataflow, self.state, time.monotonic() - self.started, *self.counted())
        shown["views"] = self.with_reads(shown["views"])
        shown["health"] = health_of(await self.unready())
        shown["storage_alarms"] += self._reopening.alarms()
        prepared: dict[str, float] = {}
        for domain in self.dataflow.domains.values():
            prepared |= prepared_since(domain)
        shown["transactions"] = told_of_doubt(prepared, len(self.sessions))
        if (building := self.migrator.unbuilt.status()) is not None:
            shown["building"] = building
        return shown if self.archiver is None else {**shown, "archive": self.archiver.status()}

    # --- the archive ----------------------------------------------------------------------------------------

    async def archive(self) -> ArchivedPositions:
        if self.archiver is None:
            raise not_archived()
        self._reopening.check()
        taken = await asyncio.wrap_future(self.archiver.archive_now())
        return ArchivedPositions.of(self.archiver.options.url, taken, self.state.shards)

    def stopping(self) -> None:
        self.live.stop()
        self._opening.give_up()
        self.migrator.cancel_all()

    async def close(self) -> None:
        self._opening.give_up()
        if self.accounts is not None:
            await self.accounts.close()
        await self.snapshots.close()
        await self.in_doubt.close()
        await self.sessions.close()
        await self.live.close()
        await self.selects.close()
        await self.hosts.close()
        await self._reopening.close()
        try:
            await self._engine.end()
        finally:
            await asyncio.to_thread(self.dataflow.close)
