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
from controller.migrating.executor import Executor
from controller.status import one_line
from domains.errors import Cancelled, HeadraceError, Unavailable
from domains.plan.commands import Activate, CheckRows, Feed, Progress
from domains.plan.graph import DomainIndex
from migrations.backfill.job import JobProgress
from migrations.flow.plan import PlanStep

# How long a backfill in slices still takes, in one domain, by what its tables have taken so far.
#
# Rows are no measure of it: the largest table is fed first (``domains/engine/lifecycle/backfill.py``), while there is
# nothing to join its rows with, and then a row of the next one brings all of its joined rows at once. Of 50 million
# rows the last 5 % may take four fifths of the time. So a table that is yet to come counts for the rows that it is
# likely to bring along, and one that is under way for the seconds that its rows have taken.

FIRST_JOINED, THEN_JOINED = 4.0, 1.0
"""How many times as long a joined row takes as a row that meets nothing: where the first table is fed that meets the
largest, and those after it. Measured with two joins over 200,000 rows: 4, and 0.2 to 1.5."""
GUESSED_PART = 0.01
"""A share of a table: so much of it counts as if it had taken the expected time. The first slices are of 20 rows."""


@dataclass(frozen=True, slots=True)
class FedTable:
    """``rows``, about, and what they are expected to take, in rows that meet nothing."""

    rows: float
    work: float


def expected(rows: Sequence[int], *, joined: bool) -> tuple[FedTable, ...]:
    """``rows`` of a domain's tables, in the order in which they are fed; ``joined``: with each other, or some of them.

    With those that come after the largest, it is likely that as many joined rows come about as the largest has.
    """
    most = max(rows, default=0)
    turn = list(rows).index(most) if rows else 0

    def work(place: int, own: int) -> float:
        if not joined or place <= turn:
            return own
        return own + most * (FIRST_JOINED if place == turn + 1 else THEN_JOINED)

    return tuple(FedTable(own, work(place, own)) for place, own in enumerate(rows) if own)


class Feeding:
    """How far one domain is fed, with its tables in the order in which they are fed; none where their rows are not
    known."""

    def __init__(self, tables: Sequence[FedTable]) -> None:
        self._tables = tables
        self._place = 0
        self._rows, self._seconds = 0.0, 0.0
        """Rows and seconds of the table that is being fed."""
        self._before = 0.0
        """Seconds that the tables before it took."""

    def fed(self, rows: int, seconds: float) -> None:
        """A worker's report: slices of one table, and where that ends perhaps the first of the next."""
        if self._place + 1 < len(self._tables) and self._rows >= self._tables[self._place].rows:
            self._before += self._seconds
            self._place, self._rows, self._seconds = self._place + 1, 0.0, 0.0
        self._rows += rows
        self._seconds += seconds

    @property
    def seconds_left(self) -> float | None:
        """None before anything was fed."""
        if not self._rows or not self._tables:
            return None
        table = self._tables[self._place]
        rest = max(0.0, table.rows - self._rows)
        done = self._work(slice(0, self._place)) + table.work * (1 - rest / table.rows)
        unit = (self._before + self._seconds) / done
        return rest * self._seconds_a_row() + unit * self._work(slice(self._place + 1, None))

    def _work(self, which: slice) -> float:
        return sum(table.work for table in self._tables[which])

    def _seconds_a_row(self) -> float:
        """Seconds that a row of the table takes that is being fed."""
        if self._place == 0:
            return self._seconds / self._rows
        table = self._tables[self._place]
        expected = self._before / self._work(slice(0, self._place)) * table.work / table.rows
        guessed = GUESSED_PART * table.rows
        return (self._seconds + guessed * expected) / (self._rows + guessed)

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        left, taken = self.seconds_left, self._before + self._seconds
        return 0.0 if left is None or taken + left <= 0 else taken / (taken + left)


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
    """Keyed by domain that is fed in slices, in the order in which they are."""
    seconds_left: dict[DomainIndex, float] = field(default_factory=dict)
    """The seconds left of each domain that is being fed."""
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
        """The error when the task that carries it out is cancelled."""
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
    """Steps in order, in runs that may be begun at once: backfills wait for all before them, activations for those, and
    checks of rows for the indexes that they look keys up in."""
    for _, run in groupby(steps, _phase):
        yield list(run)


def _phase(step: PlanStep) -> str:
    match step.command:
        case Feed():
            return "backfill"
        case Activate():
            return "activate"
        case CheckRows():
            return "check"
    return "change"
