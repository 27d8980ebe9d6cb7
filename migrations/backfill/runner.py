"""The protocol of what runs a bulk job. Spark is one (``spark…``), a child process without it another
(``controller/``).

A runner never blocks its caller: the controller asks how far the job is every now and then, between which reads and
writes go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from signal import Signals
from typing import Protocol

from domains.errors import Unavailable
from domains.language.types import TableSchema
from migrations.backfill.job import BulkJob, Folding, JobProgress, StateFile


class BulkFailed(Unavailable):
    """A bulk job ended without its results. Nothing was changed: the old graph serves as it did."""

    code = "bulk_failed"


def how_it_ended(code: int, said: Iterable[str]) -> str:
    """The reason why a child process ended without its result. ``said`` are its lines, of which the last was no reason
    where a signal ended it."""
    last = next((line.strip()[:300] for line in reversed(tuple(said)) if line.strip()), "")
    if code >= 0:
        return f"ended with code {code}: {last or 'it said nothing'}"
    try:
        name = Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", as the system does where memory is short" if -code == Signals.SIGKILL else ""
    return f"was killed by {name}{why}" + (f" (before that it said: {last})" if last else "")


class BulkRun(Protocol):
    """One job under way. Any thread may call it; no call waits for the job."""

    def progress(self) -> JobProgress: ...

    def results(self) -> tuple[StateFile, ...] | None:
        """One file for each (task, full vertex or reader), also where it has no items; None while the job runs.

        Raises BulkFailed, or whatever error of ``domains.errors`` made it fail (a damaged segment, no memory).
        """

    def cancel(self) -> None:
        """Stop it, as far as it still runs; may be called at any time, and twice. When it returns, nothing of the job
        writes any more. What it left in the staging directory is the caller's to remove."""


class BulkRunner(Protocol):
    name: str
    """The name in ``GET /v1/migrations/{id}``: ``spark``, ``local``."""

    def check(self, tables: Sequence[TableSchema]) -> None:
        """Raises Unavailable where no job over these can be begun here (no Java, no type for a column): then another
        way is taken, and it says why."""

    def start(self, job: BulkJob) -> BulkRun:
        """Begin, and return at once. Raises Unavailable where that fails all the same: then the migration fails."""


class FoldRun(Protocol):
    """One folding under way. As with ``BulkRun``, any thread may call it."""

    def progress(self) -> JobProgress: ...

    def is_done(self) -> bool:
        """Raises BulkFailed, or whatever error of ``domains.errors`` made it fail."""

    def cancel(self) -> None:
        """See ``BulkRun.cancel``."""


class Folder(Protocol):
    """Folds base shards elsewhere than in the worker that is to have them."""

    name: str

    def check(self) -> None:
        """Raises Unavailable where nothing can be begun here, and says what to install."""

    def start(self, folding: Folding) -> FoldRun:
        """Begin, and return at once. Raises Unavailable where that fails all the same."""
