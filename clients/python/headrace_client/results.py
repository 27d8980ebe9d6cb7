"""The results of calls. DECIMAL, DATE, DATETIME and BLOB are Python's; to a connection that is ``raw``, strings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace_client import errors
from headrace_client.errors import HeadraceError
from headrace_client.tokens import Token

Record = dict[str, Any]


class Column(NamedTuple):
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Result:
    """One statement's answer. ``token`` is the position of the last write of its request."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    rows_affected: int
    token: Token
    first_id: int | None = None
    """The first AUTO_INCREMENT value that was generated for a row which was inserted."""
    done: str | None = None
    """The effect of CREATE, ALTER or DROP, in words."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> list[Record]:
        """The rows as dicts by column name."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Written:
    """A write through ``db.table(…)``."""

    rows_affected: int
    token: Token
    first_id: int | None = None
    repeated: bool = False
    """It was done before, under its number: nothing was changed now."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a migration: ``state`` is queued, running, done, failed or cancelled."""

    id: str
    sql: str
    state: str
    step: str
    progress: float
    steps: tuple[str, ...]
    error: HeadraceError | None
    backfill: str | None = None
    """How full state is built: ``slices``, or in bulk by ``spark`` or ``local``; None where there is none to build."""
    why: str | None = None
    rows: int = 0
    """Base rows read, of about ``rows_total``."""
    rows_total: int = 0
    stages_done: int = 0
    stages: int = 0
    tasks_done: int = 0
    tasks: int = 0
    """The number of Spark's tasks, as far as it has begun them."""
    seconds_left: float | None = None
    ui: str | None = None
    """The address at which a bulk job shows more of itself."""

    @property
    def finished(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def checked(self) -> Progress:
        """Itself; raises what made a finished migration fail."""
        if self.state == "cancelled":
            raise self.error or errors.Cancelled(f'migration "{self.id}" was cancelled')
        if self.state == "failed":
            raise self.error or errors.ServerFault(f'migration "{self.id}" failed')
        return self


@dataclass(frozen=True, slots=True)
class Archived:
    """The server's archive, once everything up to the call was in it."""

    url: str
    positions: dict[str, int]
    """The position of each base shard."""
    token: Token
    """The same, as ``headrace restore --as-of`` takes it."""
    shards: int
    recipe: dict[str, Any]
    """The one under which all of it was cut."""
    identities: dict[str, str]
    """The identity of the table that each base shard is part of."""
    time: str
    number: int
    """The number of the recipe's record in the archive."""
