"""Migrations of one deployment: one at a time, in the order in which they came.

Tables change first and by a recipe entry of their own, written *before* it is carried out: whatever a crash leaves
undone is done again at the next start. A view's entry is written *after* its nodes are built and before anything that
was dropped goes: until then a failure or a cancel takes the new nodes back, and the old graph has served all along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import uuid4

from controller.deployment import MigrationStatus
from controller.execution import Migration, carry_out, define, take_back
from domains.errors import Cancelled, HeadraceError, NotFound, SqlSyntaxError, StorageFailure, Unavailable
from migrations.change import Change, change_of, entries_of
from migrations.dataflow import Placement
from migrations.parse import Parsed
from migrations.plan import State
from migrations.recipe import Entry, Recipe
from worker.dataflow import Dataflow
from zookeeper.authority import Authority

MIGRATIONS_REMEMBERED = 1000
"""Ended migrations whose state can still be asked for."""

_log = logging.getLogger("headrace.controller")


class Migrator:
    """Owns the state and the recipe; everybody else only reads them."""

    def __init__(
        self,
        dataflow: Dataflow,
        authority: Authority,
        state: State,
        recipe: Recipe,
        placement: Placement,
        changed: Callable[[State, State], None],
    ) -> None:
        self.state = state
        self._dataflow = dataflow
        self._authority = authority
        self._recipe = recipe
        self._placement = placement
        self._changed = changed
        """Told of each new state: (before, after)."""
        self._turn = asyncio.Lock()
        self._foreseen: tuple[State, Change] | None = None
        self._migrations: dict[str, Migration] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        _, self._version = authority.read()

    def start(self, entry: Entry, sql: str, parsed: Sequence[Parsed] | None = None) -> Migration:
        """Queue a migration; raises at once what planning against the present state can tell.

        ``parsed`` is what the entry's statements parse to, where the caller has done that.
        """
        if entry == Entry():
            raise SqlSyntaxError("the migration has no statements", hint="for example CREATE VIEW … AS SELECT …")
        if not self._turn.locked():
            self._foreseen = (self.state, self._plan(entry, parsed))
        migration = Migration(uuid4().hex[:12], sql)
        self._remember(migration)
        task = asyncio.create_task(self._run(migration, entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return migration

    def _plan(self, entry: Entry, parsed: Sequence[Parsed] | None = None) -> Change:
        """What the entry comes to in the present state. What ``start`` has planned is taken once: planning is a
        good part of the time that a new view takes until it can be read."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is not None and foreseen[0] is self.state and foreseen[1].entry == entry:
            return foreseen[1]
        return change_of(self.state, entry, self._placement, parsed)

    async def run(self, entry: Entry, sql: str, parsed: Sequence[Parsed] | None = None) -> None:
        """Queue a migration and wait for its end; raises what made it fail."""
        migration = self.start(entry, sql, parsed)
        await migration.ended.wait()
        if migration.error is not None:
            raise migration.error

    def status(self, id: str) -> MigrationStatus:
        return self._migration(id).status()

    def cancel(self, id: str) -> MigrationStatus:
        """A migration that waits or is being built is cancelled; one that has ended is left as it is."""
        migration = self._migration(id)
        migration.cancelled = True
        return migration.status()

    async def close(self) -> None:
        """Cancel what runs, and wait until it is taken back."""
        for migration in self._migrations.values():
            migration.cancelled = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _migration(self, id: str) -> Migration:
        if id not in self._migrations:
            raise NotFound(f'no migration "{id}"', hint="its id is in the answer to POST /v1/migrations")
        return self._migrations[id]

    def _remember(self, migration: Migration) -> None:
        self._migrations[migration.id] = migration
        for id in list(self._migrations)[:-MIGRATIONS_REMEMBERED]:
            if self._migrations[id].ended.is_set():
                del self._migrations[id]

    async def _run(self, migration: Migration, entry: Entry) -> None:
        async with self._turn:
            try:
                migration.check()
                migration.state = "running"
                parts = entries_of(entry)
                if len(parts) > 1:
                    self._plan(entry)  # The whole of it, before any part is done.
                for part in parts:
                    await self._carry_out(migration, part)
                migration.state, migration.step = "done", ""
            except HeadraceError as error:
                migration.state = "cancelled" if isinstance(error, Cancelled) else "failed"
                migration.error = error
            except Exception as error:
                _log.exception("migration %s failed", migration.id)
                migration.state = "failed"
                migration.error = Unavailable(f"the migration failed on an internal error: {error}")
            finally:
                migration.ended.set()

    async def _carry_out(self, migration: Migration, entry: Entry) -> None:
        change = self._plan(entry)
        migration.steps = (*migration.steps, *(step.text for step in change.steps))
        if change.tables:
            await self._commit(change)
            # Views of ad-hoc SELECTs that an altered table would break go with it.
            await define(self._dataflow, (*change.tables, *change.removal.steps), migration)
            return
        try:
            await carry_out(self._dataflow, change.views.steps, migration)
            migration.check()
            await self._commit(change)
        except BaseException:
            await take_back(self._dataflow, change.views.undo)
            raise
        await carry_out(self._dataflow, (*change.removal.steps, *change.drops), migration, committed=True)

    async def _commit(self, change: Change) -> None:
        recipe = self._recipe.with_entry(change.entry)
        try:
            self._version = await asyncio.to_thread(self._authority.write, recipe.to_json(), self._version)
        except OSError as error:
            raise StorageFailure(f"cannot write the recipe: {error.strerror or error}") from error
        before, self.state, self._recipe = self.state, change.state, recipe
        self._changed(before, self.state)
