"""Carrying a change out: its steps on the domains, its progress, its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar

from controller.deployment import BackfillStatus, MigrationStatus
from controller.executor import Executor
from controller.feeding import FedTable, Feeding
from controller.status import one_line
from domains.commands import Activate, Feed, Progress
from domains.errors import Cancelled, HeadraceError, Unavailable
from domains.graph import DomainIndex
from migrations.backfill.job import JobProgress
from migrations.plan import PlanStep

_log = logging.getLogger("headrace.controller")


@dataclass(slots=True)
class Migration:
    """One migration as the outside sees it."""

    kind: ClassVar[str] = "migration"
    id: str
    sql: str
    state: str = "queued"
    step: str = ""
    steps: tuple[str, ...] = ()
    done: int = 0
    within: float = 0.0
    """How much of the present step is done, from 0 to 1; of several that are done side by side, the sum."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """How many times as long as other steps those take that read base rows, by step: what a bar's length goes by."""
    error: HeadraceError | None = None
    backfill: BackfillStatus | None = None
    tables: Mapping[DomainIndex, Sequence[FedTable]] = field(default_factory=dict)
    """By domain that is fed in slices, in the order in which they are."""
    seconds_left: dict[DomainIndex, float] = field(default_factory=dict)
    """Of the domains that are being fed."""
    cancelled: bool = False
    began: float = field(default_factory=time.monotonic)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def status(self) -> MigrationStatus:
        progress = 1.0 if self.state == "done" else min(0.999, self.share())
        error = (self.error.code, self.error.message, self.error.hint) if self.error is not None else None
        backfill = self.backfill
        if backfill is not None and self.seconds_left:  # They are fed side by side.
            backfill = replace(backfill, seconds_left=round(max(self.seconds_left.values()), 1))
        return MigrationStatus(self.id, self.sql, self.state, self.step, progress, self.steps, error, backfill)

    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        weights = [self.weights.get(step, 1.0) for step in self.steps]
        present = weights[self.done] if self.done < len(weights) else 0.0
        return (sum(weights[: self.done]) + self.within * present) / (sum(weights) or 1.0)

    def has_read(self, rows: int) -> None:
        """So many base rows more."""
        if self.backfill is not None:
            self.backfill = replace(self.backfill, rows=self.backfill.rows + rows)

    def show_job(self, way: str, why: str, progress: JobProgress) -> None:
        """How far the bulk job is, whose way was chosen for this reason."""
        self.backfill = BackfillStatus(
            way,
            why,
            progress.rows,
            max(progress.total, progress.rows),
            progress.stages_done,
            progress.stages,
            progress.tasks_done,
            progress.tasks,
            progress.seconds_left,
            progress.ui,
        )

    def check(self) -> None:
        if self.cancelled:
            raise Cancelled(f'migration "{self.id}" was cancelled')

    @contextmanager
    def ending(self) -> Iterator[None]:
        """In the block it is carried out: as the block ends, so does it. Of what ends the block only that is passed on
        which ends the task, too."""
        try:
            yield
            self.state, self.step = "done", ""
            _log.info("%s %s done in %.3f s: %s", self.kind, self.id, time.monotonic() - self.began, one_line(self.sql))
        except HeadraceError as error:
            self.state, self.error = "cancelled" if isinstance(error, Cancelled) else "failed", error
            _log.info("%s %s %s: %s: %s", self.kind, self.id, self.state, error, one_line(self.sql))
        except Exception as error:
            _log.exception("%s %s failed", self.kind, self.id)
            self.state = "failed"
            self.error = Unavailable(f"the {self.kind} failed on an internal error: {error}")
        except BaseException:
            self.state, self.error = "failed", self.broken_off()
            raise
        finally:
            self.ended.set()

    def broken_off(self) -> HeadraceError:
        """What is told where the task is cancelled that carries it out."""
        return Unavailable("the process that carries it out ends", hint="see whether it was done, ask again")


async def define(executor: Executor, steps: Sequence[PlanStep], migration: Migration) -> None:
    """Perform the steps that change tables, whose new schemas statements know already.

    All of them are begun before this first waits: in one process, no write of a new schema comes before its table has
    it. (Elsewhere a write says for which schema it was made.)
    """
    await _at_once(executor, [step for step in steps if not step.sliced], migration, committed=True)
    await carry_out(executor, [step for step in steps if step.sliced], migration, committed=True)


async def carry_out(
    executor: Executor, steps: Sequence[PlanStep], migration: Migration, *, committed: bool = False
) -> None:
    """Perform steps in order, sliced ones until they are finished.

    Steps that need not wait for one another are all begun before this first waits: a wait is two changes of thread and
    a flush, some 0.3 ms, and a new view has four such steps. Domains backfill side by side, and none is activated
    before everything that they fed has arrived.

    Raises Cancelled between slices, unless the change is committed: then there is no way back.
    """
    for run in _runs(steps):
        if isinstance(run[0].command, Activate):
            await executor.arrived()
        await _at_once(executor, run, migration, committed=committed)


async def _at_once(executor: Executor, steps: Sequence[PlanStep], migration: Migration, *, committed: bool) -> None:
    """When one fails, the first error, once all have ended: none goes on behind the back of what takes it back."""
    if not committed:
        migration.check()
    begun = [(step, executor.command(step.domain, step.command)) for step in steps]
    ended = await asyncio.gather(
        *(_finish(executor, step, first, migration, committed) for step, first in begun), return_exceptions=True
    )
    migration.within = 0.0
    migration.seconds_left.clear()
    for error in ended:
        if error is not None:
            raise error


async def _finish(
    executor: Executor, step: PlanStep, first: Awaitable[Progress], migration: Migration, committed: bool
) -> None:
    """See one step through."""
    migration.step = step.text
    began = _now()
    progress = await first
    if isinstance(step.command, Feed):
        await _feed(executor, step, progress, _now() - began, migration, committed)
    elif step.sliced and not progress.finished:
        await _go_on(executor, step, progress.rows, migration, committed)
    migration.done += 1


async def _go_on(executor: Executor, step: PlanStep, rows: int, migration: Migration, committed: bool) -> None:
    """All further slices of a step, of which the first had so many rows."""
    total = await executor.rows(step.domain, step.command)
    part, finished = 0.0, False
    while not finished:
        more = min(1.0 - part, rows / total) if total else 0.0
        part, migration.within = part + more, migration.within + more
        if not committed:
            migration.check()
        progress = await executor.command(step.domain, step.command)
        rows, finished = progress.rows, progress.finished
    migration.within = max(0.0, migration.within - part)


async def _feed(
    executor: Executor, step: PlanStep, progress: Progress, seconds: float, migration: Migration, committed: bool
) -> None:
    """All further slices of a backfill, of which the first came to this and took so long."""
    feeding, part = Feeding(migration.tables.get(step.domain, ())), 0.0
    migration.has_read(progress.rows)
    while not progress.finished:
        feeding.fed(progress.rows, seconds)
        left, more = feeding.seconds_left, max(0.0, feeding.share - part)
        part, migration.within = part + more, migration.within + more
        if left is not None:
            migration.seconds_left[step.domain] = left
        if not committed:
            migration.check()
        began = _now()
        progress = await executor.command(step.domain, step.command)
        seconds = _now() - began
        migration.has_read(progress.rows)
    migration.within = max(0.0, migration.within - part)
    migration.seconds_left.pop(step.domain, None)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _runs(steps: Sequence[PlanStep]) -> Iterator[list[PlanStep]]:
    """Steps in order, in runs that may be begun at once: backfills wait for all before them, activations for those."""
    for _, run in groupby(steps, _phase):
        yield list(run)


def _phase(step: PlanStep) -> str:
    match step.command:
        case Feed():
            return "backfill"
        case Activate():
            return "activate"
    return "change"
