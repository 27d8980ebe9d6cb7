"""The interface of a deployment: the one door that ``api/`` and the embedded server go through.

The embedded deployment (``controller/local``) and the cluster are two implementations; the API cannot tell which.
Look-ups answer JSON fragments as the readers hold them, so that the hot path never decodes a row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.lookups.binding import Short
from domains.errors import BadRequest
from domains.language.types import Column, Kind, Row, TableSchema
from domains.plan.graph import Parameter
from domains.plan.packets import Clock, Once
from migrations.parse.measure import SqlLimits
from migrations.statements.rows import REFUSED, OnDuplicate
from worker.archive.options import ArchivePass
from worker.reader_map import BoundLookup, MapReading, in_one_state
from worker.service.child_pool import ChildPool

__all__ = [
    "REFUSED",
    "ArchivedPositions",
    "BackfillStatus",
    "Deployment",
    "MapReading",
    "MigrationStatus",
    "OnDuplicate",
    "PreparedLookup",
    "Short",
    "StatementResult",
    "ViewInfo",
    "WriteResult",
    "in_one_state",
    "not_archived",
    "numbered_upsert",
]


NOT_IN_JSON = frozenset((Kind.DECIMAL, Kind.DATE, Kind.DATETIME, Kind.BLOB))
"""They are strings in an answer."""


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The answer to one SQL statement; ``rows`` hold JSON-ready values in the order of ``columns``."""

    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    rows_affected: int = 0
    first_id: int | None = None
    """The first AUTO_INCREMENT value that was generated for a row which was inserted."""
    done: str | None = None
    """Of a definition what it did, as a person says it: ``table stories created``."""


@dataclass(frozen=True, slots=True)
class ViewInfo:
    name: str
    sql: str
    columns: tuple[Column, ...]
    parameters: tuple[Parameter, ...]
    external: bool
    """False: an internal view (CREATE VIEW without EXT and parameters); its reader is built when it is first read."""
    ad_hoc: bool
    """It came from a SELECT on ``/v1/sql``."""
    materialization: str
    """``partial``, ``full``, or ``none`` while it has no reader."""

    @property
    def types(self) -> bytes:
        """The columns that JSON has no type for, by their places: ``2:DECIMAL 4:DATETIME``. Empty where it has all."""
        kinds = ((place, column.type.kind) for place, column in enumerate(self.columns))
        return " ".join(f"{place}:{kind}" for place, kind in kinds if kind in NOT_IN_JSON).encode()


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """``way`` is ``slices``, or who computes it in bulk (``spark``, ``local``), and ``why`` it was chosen.

    ``rows`` base rows of about ``rows_total`` were fed; a bulk job has ``stages``, may have ``tasks`` that make
    rows ready for them, may know how many seconds are left of it, and may have pages of its own at ``ui``.
    """

    way: str
    why: str
    rows: int = 0
    rows_total: int = 0
    stages_done: int = 0
    stages: int = 0
    tasks_done: int = 0
    tasks: int = 0
    seconds_left: float | None = None
    ui: str | None = None


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """``state`` is queued, running, done, failed or cancelled; ``progress`` is from 0 to 1."""

    id: str
    sql: str
    state: str
    step: str
    progress: float
    steps: tuple[str, ...]
    error: tuple[str, str, str | None] | None = None
    """(code, message, hint)"""
    backfill: BackfillStatus | None = None
    """How full state is built; None where there is none to build, or before that is known."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    rows_affected: int
    clock: Clock
    first_id: int | None = None
    repeated: bool = False
    """It was done before, under its number: nothing was changed now."""


@dataclass(frozen=True, slots=True)
class ArchivedPositions:
    """The contents of an archive once everything up to now is in it."""

    url: str
    positions: Clock
    """Of each base shard; all were cut at about the same moment, and in one process at the same one."""
    shards: int
    recipe: str
    """As JSON text (``migrations/recipe.py``): the one under which all of it was cut."""
    identities: dict[str, str] = field(default_factory=dict)
    """Of the table that each base shard is part of."""
    time: str = ""
    number: int = 0
    """Of the recipe's record in the archive."""

    @classmethod
    def of(cls, url: str, taken: ArchivePass, shards: int) -> ArchivedPositions:
        assert taken.recipe is not None, "a cut without its recipe"
        return cls(url, taken.positions, shards, taken.recipe, taken.identities, taken.time, taken.number)


def numbered_upsert() -> BadRequest:
    return BadRequest(
        '"once" goes with "on_duplicate": "error" only',
        hint="a row that is sent twice by ignore or update counts as sent once",
    )


def not_archived() -> BadRequest:
    return BadRequest("this deployment is not archived", hint="start it with --archive, a directory or a URL")


Tried = tuple[list[bytes | None], list[BoundLookup]]
"""The page of each key, None where it is not there, and those look-ups that are not, in their order."""


class PreparedLookup(Protocol):
    """The hot path for one view, kept by the API between requests; ``stale`` once the view was dropped or rebuilt."""

    info: ViewInfo
    stale: bool
    types: bytes
    """Of its info."""

    def try_page(self, text: Mapping[str, Sequence[str]]) -> bytes | BoundLookup:
        """The rows as comma-joined JSON objects for query-string values; on a miss, what ``fill_page`` is to be given.

        Never blocks.

        Raises BadRequest or TypeViolation for unknown, missing or unconvertible parameters.
        """

    def try_pages(self, keys: Sequence[Any], reading: MapReading, rows: list[Row] | None = None) -> Tried:
        """The same for many keys given as JSON values (lists by position or objects by name), in their order.

        ``rows`` takes the reader's keys that were looked up for it.
        """

    def try_integers(self, values: Sequence[int], reading: MapReading) -> Sequence[bytes] | None:
        """The pages of the keys ``[value]`` where all are there; None else, and where keys are no such thing."""

    def try_short(self, key: Any, reading: MapReading) -> Short | None:
        """``try_pages`` of one key, quickly; None where it has to be asked (see ``lookups/binding.py``)."""

    def version(self, reading: MapReading) -> bytes | None:
        """As long as it is the same, so are all answers that were read; None where that is not known."""

    def markers(self, rows: Sequence[Row]) -> list[bytes] | None:
        """Where the states of these keys are, for :meth:`states`; None where that is not in one place."""

    def states(self, markers: Sequence[bytes], reading: MapReading) -> list[bytes | None]:
        """As long as these are the same, so is the answer that was read of their keys, whatever else was published."""

    def again(self, keys: int, told: bool) -> bool:
        """An answer for so many keys was given once more. Whether :meth:`tell` is to be called with the keys; ``told``
        says that it was already, for this answer."""

    def tell(self, keys: Sequence[Any]) -> None:
        """These keys were read: what is read is evicted last."""


@dataclass(frozen=True, slots=True)
class Missed:
    """The keys that ``try_pages`` of a look-up has just missed, as they were given and as they were bound."""

    lookup: PreparedLookup
    keys: Sequence[Any]
    bounds: Sequence[BoundLookup]


class Deployment(Protocol):
    """Calls raise errors of ``domains.errors``. Times are seconds; ``token`` is the Clock out of a write's token."""

    read_timeout: float

    def read_within(self, limits: SqlLimits, beside: ChildPool) -> None:
        """From now on refuse SQL that passes these limits, and read what is long off the event loop."""

    async def check_text(self, sql: str) -> None:
        """Raises LimitExceeded."""

    async def execute(
        self, sql: str, params: Sequence[Any] = (), *, token: Clock | None = None
    ) -> tuple[list[StatementResult], Clock]:
        """Run statements of any kind in order. The clock is the position after the last write (``{}`` without one)."""

    def prepare(self, view: str) -> PreparedLookup:
        """Raises NotFound with the nearest name."""

    async def page(self, view: str, text: Mapping[str, Sequence[str]], *, token: Clock | None = None) -> bytes:
        """Like ``try_page``, but fills holes and waits for the token."""

    async def fill_page(self, lookup: PreparedLookup, missed: BoundLookup, text: Mapping[str, Sequence[str]]) -> bytes:
        """The page that ``try_page`` of this look-up has just missed for ``text``: not tried again, but filled."""

    async def pages(self, view: str, keys: Sequence[Any], *, token: Clock | None = None) -> list[bytes]:
        """Like ``try_pages``, but fills holes and waits for the token."""

    async def fill(self, wanted: Sequence[Missed]) -> list[list[bytes]]:
        """The pages of all that was missed, look-up by look-up: not tried again, but filled, together."""

    async def insert(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        once: Once | None = None,
        duplicate: OnDuplicate = REFUSED,
    ) -> WriteResult:
        """``duplicate`` says what becomes of a row whose key is taken.

        With a number of a stream it is done once, however often it is sent (``domains/store/storage.py``). Then raises
        RowsRefused, which has every row that cannot be stored; OutOfOrder where a number is skipped; BadRequest where
        ``duplicate`` is another than ``error``.
        """

    async def streams(self, table: str) -> dict[str, int]:
        """The streams of numbered writes that the table remembers, and the last number that is done in all shards."""

    async def forget_stream(self, table: str, stream: str) -> None:
        """Its next number is 1. Nothing happens if it is not known."""

    async def update(self, table: str, key: Mapping[str, Any], changes: Mapping[str, Any]) -> WriteResult: ...

    async def delete(self, table: str, key: Mapping[str, Any]) -> WriteResult: ...

    def held(self, view: str) -> AsyncIterator[bytes]:
        """All that the view's reader holds, as lines of JSON (``lookups/view_dump.py``). Raises NotFound."""

    async def evict(self, view: str, keys: Sequence[Any]) -> int: ...

    async def migrate(self, sql: str) -> MigrationStatus:
        """Queue a migration of DDL statements; raises at once what planning can tell."""

    async def migration(self, id: str) -> MigrationStatus: ...

    async def cancel_migration(self, id: str) -> MigrationStatus: ...

    def tables(self) -> list[TableSchema]: ...

    def views(self) -> list[ViewInfo]: ...

    def schema(self) -> str:
        """The statements that make all tables and views anew."""

    def explain(self, view: str) -> str:
        """The view's part of the dataflow as a tree: operators, state, indexes, provenance, why full."""

    async def graph(self) -> dict[str, Any]:
        """Domains, nodes, edges and links, JSON-ready."""

    async def health(self) -> str:
        """``ok`` while all of it serves, else what is wrong."""

    async def status(self) -> dict[str, Any]:
        """Health, memory, counters, uptime, JSON-ready. Counters are under ``"counters"`` as name → number."""

    async def archive(self) -> ArchivedPositions:
        """Archive the base tables up to now. Raises BadRequest where there is no archive, ArchiveError."""

    def stopping(self) -> None:
        """``close`` is to come, after the requests under way: what is built here, which may take hours, is given up."""

    async def close(self) -> None: ...
