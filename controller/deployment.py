"""The interface of a deployment, which ``api/`` and the embedded server use.

There are two implementations, ``embedded/`` and ``cluster/``, which the API cannot tell apart. Look-ups answer JSON
fragments as the readers hold them, so that the hot path never decodes a row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from controller.access.keeper import Keeper
from controller.access.session import ANONYMOUS, OPEN, Caller
from controller.lookups.binding import RequestMoment
from controller.lookups.short_lane import Short
from controller.statement_lists import StatementLists
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
    "BoundLookup",
    "Deployment",
    "MapReading",
    "MigrationStatus",
    "OnDuplicate",
    "PreparedLookup",
    "Reason",
    "ReasonKind",
    "RequestMoment",
    "SelectPage",
    "Short",
    "StatementResult",
    "StatementText",
    "ViewInfo",
    "WriteResult",
    "health_of",
    "in_one_state",
    "not_archived",
    "numbered_upsert",
]


NOT_IN_JSON = frozenset((Kind.DECIMAL, Kind.DATE, Kind.DATETIME, Kind.TIME, Kind.BLOB))
"""Kinds whose values are strings in an answer."""


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The answer to one SQL statement; ``rows`` hold JSON-ready values in the order of ``columns``, and documents as
    their texts."""

    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    rows_affected: int = 0
    first_id: int | None = None
    """The first AUTO_INCREMENT value that was generated for an inserted row."""
    given_id: int | None = None
    """The last one that a row came with, where none was generated: for MySQL's clients, and not LAST_INSERT_ID()."""
    done: str | None = None
    """What a definition did, for people: ``table stories created``."""
    matched: int | None = None
    """Of an UPDATE, the rows that it was about, changed or not."""


class SelectPage(NamedTuple):
    """The answer of a view to a SELECT, as it lies there."""

    columns: tuple[Column, ...]
    page: bytes
    """The rows, as comma-joined JSON objects."""


class StatementText(NamedTuple):
    """One statement of a text."""

    sql: str
    parameters: int


@dataclass(frozen=True, slots=True)
class ViewInfo:
    name: str
    sql: str
    columns: tuple[Column, ...]
    parameters: tuple[Parameter, ...]
    external: bool
    """False: an internal view (CREATE VIEW without EXT and parameters), whose reader is built when it is first read."""
    ad_hoc: bool
    """Whether the view was made for a SELECT on ``/v1/sql``."""
    materialization: str
    """``partial``, ``full``, or ``none`` while it has no reader."""
    moments: tuple[str, ...] = ()
    """What of the view follows from the time of a request, as the text has it: its answers are kept nowhere."""
    created: str = ""
    """When, in UTC; "" where that was not kept."""

    @property
    def types(self) -> bytes:
        """The columns of kinds that JSON has no type for, by position: ``2:DECIMAL 4:DATETIME``."""
        kinds = ((place, column.type.kind) for place, column in enumerate(self.columns))
        return " ".join(f"{place}:{kind}" for place, kind in kinds if kind in NOT_IN_JSON).encode()


class ReasonKind(StrEnum):
    """What a deployment cannot do. A health check may leave some of them out, by these names."""

    STARTING = "starting"
    STORAGE = "storage"
    """The disk failed or a step broke: writes and misses are refused."""
    SHARDS = "shards"
    """Some of them, or all, are not served."""
    LEADER = "leader"
    """Nobody leads the cluster, so that neither a change nor a recovery is made."""
    CHANGES = "changes"
    """Reads go on, while writes or changes of tables and views are refused or not followed."""


@dataclass(frozen=True, slots=True)
class Reason:
    kind: ReasonKind
    message: str


def health_of(reasons: Sequence[Reason]) -> str:
    """The same as one text, ``ok`` where there are none."""
    return "; ".join(reason.message for reason in reasons) or "ok"


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """``way`` is ``slices``, or the bulk runner (``spark``, ``local``), and ``why`` the reason for it.

    ``rows`` base rows of about ``rows_total`` were fed. A bulk job has ``stages``, and may have ``tasks`` that prepare
    rows for them, an estimate of the seconds left, and a web page, ``ui``.
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
    """How the full state is built; None if there is none, or before it is decided."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    rows_affected: int
    clock: Clock
    first_id: int | None = None
    repeated: bool = False
    """Whether a write with this number was done before; then nothing was changed now."""
    returned: tuple[Row, ...] = ()
    """The stored rows that RETURNING is about, those of one shard after those of another."""
    matched: int = 0
    """Rows that an UPDATE was about, changed or not."""


@dataclass(frozen=True, slots=True)
class ArchivedPositions:
    """The contents of an archive after archiving up to now."""

    url: str
    positions: Clock
    """The position of each base shard, all cut at the same moment (in a cluster: at about the same)."""
    shards: int
    recipe: str
    """The one at the cut, as JSON text (``migrations/recipe.py``)."""
    identities: dict[str, str] = field(default_factory=dict)
    """The identity of each base shard's table."""
    time: str = ""
    number: int = 0
    """The number of the recipe's record in the archive."""

    @classmethod
    def of(cls, url: str, taken: ArchivePass, shards: int) -> ArchivedPositions:
        assert taken.recipe is not None, "a cut without its recipe"
        return cls(url, taken.positions, shards, taken.recipe, taken.identities, taken.time, taken.number)


KILLED = "stopped by KILL"
"""What a task is cancelled with whose statement somebody stops: a migration that it waits for is cancelled, too. A
client that only leaves stops no migration."""


def numbered_upsert() -> BadRequest:
    return BadRequest(
        '"once" goes with "on_duplicate": "error" only',
        hint="a row that is sent twice by ignore or update counts as sent once",
    )


def not_archived() -> BadRequest:
    return BadRequest("this deployment is not archived", hint="start it with --archive, a directory or a URL")


QueryText = Mapping[str, Sequence[str]]
"""The values of a query string by name."""
Tried = tuple[list[bytes | None], list[BoundLookup]]
"""The page of each key, or None for a hole, and the look-ups of the holes in their order."""


class PreparedLookup(Protocol):
    """The hot path for one view, which the API keeps between requests until the view is dropped or rebuilt
    (``stale``)."""

    info: ViewInfo
    since: float
    """When it was prepared, by ``monotonic``."""
    stale: bool
    types: bytes
    """Its info's."""

    def try_page(self, text: QueryText, asker: Caller = ANONYMOUS) -> bytes | BoundLookup:
        """The rows for query-string values, as comma-joined JSON objects; on a miss, the argument for ``fill_page``.
        Never blocks. Where policies apply, those that they show ``asker``.

        Raises BadRequest or TypeViolation for unknown, missing or unconvertible parameters.
        """

    def try_pages(
        self,
        keys: Sequence[Any],
        reading: MapReading,
        rows: list[Row] | None = None,
        moment: RequestMoment | None = None,
    ) -> Tried:
        """The same for many keys, given as JSON values (lists by position or objects by name), in their order. The
        reader's keys are added to ``rows``; ``moment`` is the time of what asks them."""

    def try_integers(self, values: Sequence[int], reading: MapReading) -> Sequence[bytes] | None:
        """The pages of the keys ``[value]``; None if one is a hole, or if the view's keys are not single integers."""

    def try_short(self, key: Any, reading: MapReading) -> Short | None:
        """``try_pages`` of one key, faster; None if ``try_pages`` must be asked (see ``lookups/binding.py``)."""

    def version(self, reading: MapReading) -> bytes | None:
        """A value that changes whenever an answer may change; None if that is not known."""

    def markers(self, rows: Sequence[Row]) -> list[bytes] | None:
        """The places of these keys' states, for :meth:`states`; None if they are not in one shard."""

    def states(self, markers: Sequence[bytes], reading: MapReading) -> list[bytes | None]:
        """States of keys; as long as they are equal, so is the answer for these keys, whatever else is published."""

    def again(self, keys: int, told: bool) -> bool:
        """Count an answer for so many keys that was given again. True: call :meth:`tell` with the keys. ``told``: that
        was done for this answer."""

    def tell(self, keys: Sequence[Any]) -> None:
        """Report keys that were read, which are evicted last."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Keys that ``try_pages`` of a look-up has just missed, as given and as bound."""

    lookup: PreparedLookup
    keys: Sequence[Any]
    bounds: Sequence[BoundLookup]
    moment: RequestMoment | None = None
    """The time of the request, where it asks more than this."""


class Deployment(Protocol):
    """Methods raise errors of ``domains.errors``. Times are seconds; ``token`` is the clock in a write's token."""

    read_timeout: float
    accounts: Keeper | None
    """Who may what; None: whoever reaches it may do everything."""
    live: Any
    sessions: Any
    in_doubt: Any
    snapshots: Any
    upstreams: Any
    passing_on: Any
    """A ``LiveViews``, the ``Sessions``, an ``InDoubt``, the ``Snapshots``, ``FollowedUpstreams``, a ``PassingOn``: of
    packages which stand on this file."""

    @property
    def lists(self) -> StatementLists: ...

    def read_within(self, limits: SqlLimits, beside: ChildPool) -> None:
        """Refuse, from now on, SQL that passes these limits, and read what is long off the event loop."""

    def count_outside(self, size: int) -> None:
        """Requests, answers and connections now take so many bytes of ``memory_limit``: state makes room for them."""

    async def check_text(self, sql: str, session: Caller = OPEN) -> None:
        """Raises LimitExceeded; Forbidden where the session may not do all that the text says."""

    async def divided(self, sql: str) -> list[StatementText]:
        """The statements of a text. Raises SqlSyntaxError, LimitExceeded."""

    async def described(self, sql: str, session: Caller) -> tuple[Column, ...]:
        """The columns that a statement would answer now; none where its parameters' values decide about them.

        Raises SqlSyntaxError, LimitExceeded, Forbidden, and UnknownName and NotFound for what a SELECT reads."""

    async def execute(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        token: Clock | None = None,
        session: Caller = OPEN,
        atomic: bool = False,
    ) -> tuple[list[StatementResult], Clock]:
        """Run statements of any kind in order; ``atomic``: all of them or none. The clock is that of the last write
        (``{}`` without one).

        Nothing is done of a text of which the session may not do all: Forbidden, Unauthenticated."""

    def try_select(self, sql: str, params: Sequence[Any], token: Clock, session: Caller) -> SelectPage | None:
        """The answer to a SELECT that was asked before, if a view has all of it; else ``execute`` is to be asked."""

    def prepare(self, view: str) -> PreparedLookup:
        """Raises NotFound with the nearest name."""

    async def page(
        self, view: str, text: QueryText, *, token: Clock | None = None, moment: RequestMoment | None = None
    ) -> bytes:
        """The same as ``try_page``, but it fills holes and waits for the token."""

    async def fill_page(
        self, lookup: PreparedLookup, missed: BoundLookup, text: QueryText, asker: Caller = ANONYMOUS
    ) -> bytes:
        """The page that ``try_page`` of this look-up has just missed for ``text``: filled without another try."""

    async def pages(
        self, view: str, keys: Sequence[Any], *, token: Clock | None = None, moment: RequestMoment | None = None
    ) -> list[bytes]:
        """The same as ``try_pages``, but it fills holes and waits for the token."""

    async def fill(self, wanted: Sequence[Missed]) -> list[list[bytes]]:
        """The pages of all missed keys, look-up by look-up: filled together, without another try."""

    async def insert(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        once: Once | None = None,
        duplicate: OnDuplicate = REFUSED,
        asker: Caller = OPEN,
    ) -> WriteResult:
        """``duplicate`` says what to do with a row whose key is taken; ``asker`` is whom policies may apply to.

        With ``once``, a number of a stream, the rows are inserted once, however often they are sent
        (``domains/store/storage.py``). Then raises RowsRefused, with every row that cannot be stored; OutOfOrder if a
        number is skipped; BadRequest if ``duplicate`` is not ``error``.
        """

    async def streams(self, table: str) -> dict[str, int]:
        """The table's streams of numbered writes, with the last number that all shards have done."""

    async def forget_stream(self, table: str, stream: str) -> None:
        """Forget a stream, if it is known: its next number is 1."""

    async def update(
        self, table: str, key: Mapping[str, Any], changes: Mapping[str, Any], asker: Caller = OPEN
    ) -> WriteResult: ...

    async def delete(self, table: str, key: Mapping[str, Any], asker: Caller = OPEN) -> WriteResult: ...

    def held(self, view: str) -> AsyncIterator[bytes]:
        """All rows of the view's reader, as lines of JSON (``lookups/view_dump.py``). Raises NotFound."""

    async def evict(self, view: str, keys: Sequence[Any], moment: RequestMoment | None = None) -> int: ...

    def policed(self, name: str) -> Sequence[str]:
        """The tables with policies that a table or view comes to."""

    async def migrate(self, sql: str) -> MigrationStatus:
        """Queue a migration of DDL statements; raises errors of its planning."""

    async def migrations(self) -> list[MigrationStatus]:
        """The migrations that wait or run, whoever began them, and those that ended lately; the latest first."""

    async def migration(self, id: str) -> MigrationStatus: ...

    async def cancel_migration(self, id: str) -> MigrationStatus: ...

    def tables(self) -> list[TableSchema]: ...

    def views(self) -> list[ViewInfo]: ...

    def schema(self) -> str:
        """The statements that create all tables and views."""

    def explain(self, view: str) -> str:
        """The view's part of the dataflow as a tree: operators, state, indexes, provenance, why full."""

    async def lineage(self, view: str, key: Any, place: int, session: Caller = OPEN) -> Sequence[tuple[Any, ...]]:
        """The base rows that one row of an answer comes from, each as its table, its columns' names and its values.

        Raises NotFound, BadRequest, Forbidden, Unsupported, and LimitExceeded where they are too many to be found."""

    async def graph(self, view: str | None = None) -> dict[str, Any]:
        """Domains, nodes, edges and links, JSON-ready. Of one view, those that its answers are computed by, each with
        whether it is ``shared`` with others, and its ``reader`` as the status has it, None while there is none."""

    async def unready(self) -> tuple[Reason, ...]:
        """Why not all of it is served, or can be changed; nothing while it is."""

    async def status(self) -> dict[str, Any]:
        """Health (``health_of``), memory, counters, uptime, JSON-ready. ``"counters"`` has name → number."""

    async def archive(self) -> ArchivedPositions:
        """Archive the base tables up to now. Raises BadRequest if there is no archive, ArchiveError."""

    def stopping(self) -> None:
        """``close`` will follow once the requests under way have ended: give up what is being built, which may take
        hours."""

    async def close(self) -> None: ...
