"""Migrations of one deployment: one at a time, in the order in which they came.

Tables change first and by a recipe entry of their own, written *before* it is carried out: whatever a crash leaves
undone is done again at the next start. What it asks of rows is checked before it is written, and until then taken back
by a failure or a cancel. A view's entry is written *after* its nodes are built and before anything that
was dropped goes: until then a failure or a cancel takes the new nodes back, and the old graph has served all along.

In a cluster a worker may be lost on the way. A change that is not decided yet is taken back and *begun again* once the
cluster has recovered; one that is decided is carried out by the recovery.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from controller.deployment import KILLED, MigrationStatus
from controller.migrating.bulk.choice import Builder, choose
from controller.migrating.execution import Migration, carry_out, define
from controller.migrating.executor import Book, Executor, Interrupted
from controller.migrating.unbuilt import RETRY_SECONDS, Unbuilt, UnbuiltPart
from domains.errors import HeadraceError, LimitExceeded, NotFound, SqlSyntaxError, Unavailable
from domains.language.collating.collation import BINARY
from domains.plan.packets import Insert
from migrations.backfill.spark.settings import SPARK_THRESHOLD
from migrations.change import Change, change_of, entries_of
from migrations.filling import filled
from migrations.flow.dataflow import Placement
from migrations.flow.plan import State
from migrations.parse.reading import Parsed
from migrations.recipe import RecipeEntry

MIGRATIONS_REMEMBERED = 1000
"""Ended migrations whose state can still be asked for."""
MIGRATIONS_LISTED = 100
"""The most of these that a list shows."""
SLICED_WEIGHT = 100.0
"""How many times as long as another step one takes that goes through all rows of a table, for a bar that tells it."""
ATTEMPTS = 5
"""How often a migration is begun that is interrupted. A cluster that loses workers faster has other worries, and what
kills workers may be the migration."""

TELL_SECONDS = 5.0
"""Between two lines of the log that say how far full state is after a start."""

_HAS_TIME = re.compile(r"\bALTER\b.*\b(NOW|CURRENT_\w+|LOCALTIME\w*)\b|\bVIEW\b", re.IGNORECASE | re.DOTALL)

_log = logging.getLogger("headrace.controller")


class Migrator:
    """Owns the book; everybody else only reads it. ``ids`` gives each migration its id, ``now`` tells the time."""

    def __init__(
        self,
        executor: Executor,
        book: Book,
        placement: Placement,
        *,
        ids: Callable[[], str] = lambda: uuid4().hex[:12],
        now: Callable[[], str] = lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
    ) -> None:
        self._executor = executor
        self._book = book
        self._placement = placement
        self._ids = ids
        self._now = now
        self.builder: Builder | None = None
        """The builder of full state in bulk; None without an archive."""
        self.threshold = SPARK_THRESHOLD
        """Base rows above which that is done."""
        self.unbuilt = Unbuilt()
        """Full state that a start has left for later. A change that stands on a part of it builds that part first."""
        self._behind: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()
        """Held while the graph is changed."""
        self.collation: str = BINARY
        """Of the texts of new tables whose definition names none."""
        self._closed = False
        self._foreseen: tuple[State, Change] | None = None
        self._migrations: dict[str, Migration] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def state(self) -> State:
        return self._book.state

    @property
    def busy(self) -> bool:
        """Whether a migration runs or waits."""
        return bool(self._tasks)

    def start(
        self, entry: RecipeEntry, sql: str, parsed: Sequence[Parsed] | None = None, rows: Insert | None = None
    ) -> Migration:
        """Queue a migration; raises at once what planning against the present state can tell.

        ``parsed`` is what the entry's statements parse to, where the caller has done that, and ``rows`` those that the
        table has which the entry creates.
        """
        if entry == RecipeEntry():
            raise SqlSyntaxError("the migration has no statements", hint="for example CREATE VIEW … AS SELECT …")
        migration = Migration(self._ids(), sql)
        entry = self._with_time(self._with_collation(entry))
        if rows is not None:
            entry = replace(entry, filled=migration.id)
        if not self.turn.locked():
            self._foreseen = (self.state, self._plan(entry, parsed))
        self._remember(migration)
        task = self._tasks[migration.id] = asyncio.create_task(self._run(migration, entry, rows))
        task.add_done_callback(lambda _: self._tasks.pop(migration.id))
        return migration

    def _with_collation(self, entry: RecipeEntry) -> RecipeEntry:
        """What the texts of its tables are compared by stands in the entry, so that they are whenever it is played."""
        texts = () if entry.ad_hoc else entry.statements
        if not texts or not (self.collation != BINARY or any("_ci" in sql.lower() for sql in texts)):
            return entry
        return replace(entry, collation=self.collation)

    def _with_time(self, entry: RecipeEntry) -> RecipeEntry:
        """The time of a change that may give it to stored rows, or makes views, is in the entry, as collations are."""
        asks = not entry.ad_hoc and any(map(_HAS_TIME.search, entry.statements))
        return replace(entry, now=self._now()) if asks else entry

    def _plan(self, entry: RecipeEntry, parsed: Sequence[Parsed] | None = None) -> Change:
        """The entry's plan in the present state. What ``start`` has planned is taken once: planning is a good part of
        the time that a new view takes until it can be read."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is not None and foreseen[0] is self.state and foreseen[1].entry == entry:
            return foreseen[1]
        return change_of(self.state, entry, self._placement, parsed)

    async def run(
        self, entry: RecipeEntry, sql: str, parsed: Sequence[Parsed] | None = None, rows: Insert | None = None
    ) -> None:
        """Queue a migration and wait for its end; raises what made it fail. It is cancelled where the one who waits is
        stopped by KILL."""
        migration = self.start(entry, sql, parsed, rows)
        try:
            await migration.ended.wait()
        except asyncio.CancelledError as error:
            migration.cancelled = migration.cancelled or KILLED in error.args
            raise
        if migration.error is not None:
            raise migration.error

    def follow(self, before: Migrator) -> None:
        """Go on after another that has ended: its migrations can still be asked for."""
        self._migrations = {**before._migrations, **self._migrations}

    def statuses(self) -> list[MigrationStatus]:
        """The latest :data:`MIGRATIONS_LISTED`, and all that have not ended."""
        latest = list(reversed(self._migrations.values()))
        return [
            each.status() for place, each in enumerate(latest) if place < MIGRATIONS_LISTED or not each.ended.is_set()
        ]

    def status(self, id: str) -> MigrationStatus:
        return self._migration(id).status()

    def cancel(self, id: str) -> MigrationStatus:
        """A migration that waits or is being built is cancelled; one that has ended is left as it is."""
        migration = self._migration(id)
        migration.cancelled = True
        return migration.status()

    def cancel_all(self) -> None:
        for migration in self._migrations.values():
            migration.cancelled = True
        for part in self.unbuilt.parts:
            if part.migration is not None:
                part.migration.cancelled = True

    async def close(self) -> None:
        """Cancel what runs, and wait until it is taken back."""
        self._closed = True
        self.cancel_all()
        if self._behind is not None:
            self._behind.cancel()
        behind = (self._behind,) if self._behind is not None else ()
        await asyncio.gather(*self._tasks.values(), *behind, return_exceptions=True)

    # --- full state after a start ---------------------------------------------------------------------------------

    def build_behind(self, unbuilt: Unbuilt) -> None:
        """Build these parts while everything else is served; changes have their turn between two of them."""
        self.unbuilt = unbuilt
        if unbuilt.parts:
            self._behind = asyncio.create_task(self._build_all())

    async def build_now(self, unbuilt: Unbuilt) -> None:
        """Build these parts before anything is served. Raises what keeps one of them from being built."""
        self.unbuilt = unbuilt
        for part in list(unbuilt.parts):
            await self._build_part(part)

    async def _build_all(self) -> None:
        began, unbuilt = asyncio.get_running_loop().time(), self.unbuilt
        count = len(unbuilt.parts)
        told = began
        while unbuilt.parts:
            for part in list(unbuilt.parts):
                async with self.turn:
                    if part not in unbuilt.parts:
                        continue  # A change that stands on it was quicker.
                    try:
                        await self._build_part(part)
                    except HeadraceError as error:
                        part.error = error
                        _log.error("full state of %s is not built: %s", ", ".join(part.views), error)
                now = asyncio.get_running_loop().time()
                if now - told >= TELL_SECONDS and unbuilt.parts:
                    told = now
                    _log.info("full state after the start: %d of %d parts are built", count - len(unbuilt.parts), count)
            if unbuilt.parts:
                await asyncio.sleep(RETRY_SECONDS)
        _log.info("full state of all views is built, %.1f s after the start", asyncio.get_running_loop().time() - began)

    async def _build_part(self, part: UnbuiltPart) -> None:
        """In its turn. What was fed is taken back where it fails."""
        plan = self.unbuilt.plan(part, self.state)
        change = Change(self.state, RecipeEntry(), views=plan)
        migration = part.migration = Migration(self._ids(), "", "running", steps=tuple(s.text for s in plan.steps))
        migration.weights = {step.text: SLICED_WEIGHT for step in plan.steps if step.sliced}
        part.error = None
        try:
            await self._build(migration, change)
        except BaseException:
            await self._executor.take_back(plan.undo)
            raise
        finally:
            part.migration = None
        self.unbuilt.done(part)

    def _migration(self, id: str) -> Migration:
        if id not in self._migrations:
            raise NotFound(f'no migration "{id}"', hint="its id is in the answer to POST /v1/migrations")
        return self._migrations[id]

    def _remember(self, migration: Migration) -> None:
        self._migrations[migration.id] = migration
        for id in list(self._migrations)[:-MIGRATIONS_REMEMBERED]:
            if self._migrations[id].ended.is_set():
                del self._migrations[id]

    async def _run(self, migration: Migration, entry: RecipeEntry, rows: Insert | None = None) -> None:
        with migration.ending():
            async with self.turn:
                migration.check()
                migration.state = "running"
                parts = entries_of(entry)
                if len(parts) > 1:
                    self._plan(entry)  # The whole of it, before any part is done.
                for part in parts:
                    await self._carry_out(migration, part, rows)
        if migration.state == "done":
            async with self.turn:
                try:
                    await self._book.compact(self._placement, lambda: not self._closed)
                except HeadraceError as error:  # The next one tries again.
                    _log.warning("the recipe is not made short: %s", error)

    async def _carry_out(self, migration: Migration, entry: RecipeEntry, rows: Insert | None) -> None:
        done = migration.done, migration.steps
        full = False
        for _ in range(ATTEMPTS):
            await self._executor.ready()
            migration.check()
            change = self._plan(entry)
            if rows is not None:
                change = filled(change, rows)
            for part in self.unbuilt.under(change):
                migration.step = f"build full state of {', '.join(part.views)} first"
                await self._build_part(part)
            migration.done, migration.within = done[0], 0.0  # It may begin again.
            migration.steps = (*done[1], *(step.text for step in change.steps))
            migration.weights = {step.text: SLICED_WEIGHT for step in change.steps if step.sliced}
            try:
                await self._attempt(migration, change)
                return
            except Interrupted as error:
                _log.warning("migration %s begins again: %s", migration.id, error.message)
            except LimitExceeded:
                if full or not await self._book.compact(self._placement, lambda: not migration.cancelled, full=True):
                    raise
                full = True
        raise Unavailable(
            f"workers were lost during each of {ATTEMPTS} attempts; nothing was changed",
            hint="see the status, try again",
        )

    async def _build(self, migration: Migration, change: Change) -> None:
        """The new nodes, whose full states come in slices or in bulk."""
        choice = await choose(self._executor, change, self.builder, self.threshold)
        migration.backfill, migration.tables = choice.status(), choice.tables
        if choice.runner is not None:
            assert self.builder is not None
            await self.builder.build(change, choice, migration)
        else:
            await carry_out(self._executor, change.views.steps, migration)

    async def _attempt(self, migration: Migration, change: Change) -> None:
        """Raises Interrupted where nothing was changed and it is to be begun again."""
        entering, decided, entered = False, False, self._book.recipe.with_entry(change.entry)
        try:
            if change.tables:
                await carry_out(self._executor, change.checks, migration)
            else:
                await self._build(migration, change)
            migration.check()
            entering = True
            await self._book.enter(entered, change.state)
            decided = True
            if change.tables:
                # Views of ad-hoc SELECTs that an altered table would break go with it.
                await define(self._executor, (*change.tables, *change.removal.steps), migration)
            else:
                await carry_out(self._executor, (*change.removal.steps, *change.drops), migration, committed=True)
        except BaseException as error:
            # After a failure of the disk the recipe may have it at the next start: rows are kept to what it says.
            undo = change.views.undo if entering else change.undo
            await self._executor.take_back(() if decided else undo)
            # An answer that was lost: whether it was decided the recovery that this waited for has found out.
            decided_after_all = not decided and isinstance(error, HeadraceError) and self._book.recipe == entered
            if not (decided_after_all or (decided and isinstance(error, Interrupted))):
                raise
            # What was decided that recovery has carried out.
