"""The rare requests to a worker: to rebuild a shard, move a domain, archive, or walk the rows of a reader. And those of
one api process to another: what it was asked, and what runs there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from domains.language.types import TableSchema
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock
from domains.plan.sharding import base_shard
from worker.reader_map.lookup import BoundLookup, Parts

# --- rebuilding a lost shard from the archive: see ``worker/archive/lost_shard.py`` -------------------------------


@dataclass(frozen=True, slots=True)
class HeardRequest:
    """The greatest positions that this worker knows of base shards, wherever these are or were. → ``Heard``

    From then on it drops what domains in ``given_up`` have sent before these incarnations. It does not matter who asks,
    since nobody will ever open an earlier incarnation, whoever leads.
    """

    given_up: dict[DomainIndex, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heard:
    positions: Clock


@dataclass(frozen=True, slots=True)
class ArchivedShardRequest:
    """How far the tables of a shard are archived. → ``ArchivedShard``; BadRequest if the worker has no archive."""

    shard: int


@dataclass(frozen=True, slots=True)
class ArchivedShard:
    positions: Clock
    url: str = ""
    """The worker's, of the archive."""
    rows: int = 0
    """Archived rows of the shard, about as many as a rebuild has to read."""


@dataclass(frozen=True, slots=True)
class RebuildShard:
    """Rebuild a shard from the archive in this worker's data directory. → ``ShardRebuilt``, or ``RebuildUnderWay``

    The first request begins it, and later ones ask for its progress or its result. An ArchiveError or StorageFailure
    says why it failed; the next request begins anew.
    """

    epoch: int
    shard: int
    shards: int
    decided: int
    """The epoch of the decision, which identifies the rebuild."""
    tables: tuple[TableSchema, ...]
    """The tables that the shard has a part of. The archive may have former tables of the same names."""
    known: Clock
    """The greatest positions that are known to have existed. The shard goes on there, so that none is given again."""
    runs: str = ""
    """The URL of the folded and sorted tables (``migrations/backfill/spark/rebuild.py``), if there are any."""
    copies: tuple[DomainIndex, ...] = ()
    """The shards that have left theirs in the archive: see ``LeaveCopies``."""

    @property
    def bases(self) -> dict[str, TableSchema]:
        """Its base shards, by name."""
        return {base_shard(each.name, each.generation, self.shard, self.shards): each for each in self.tables}


@dataclass(frozen=True, slots=True)
class RebuildUnderWay:
    rows: int
    """Loaded so far."""


@dataclass(frozen=True, slots=True)
class RebuiltTable:
    base: str
    position: int
    """The last archived one: the table was rebuilt as of it."""
    rows: int
    known: int
    """The greatest position that is known to have existed; the shard goes on there."""
    run: bool = False
    """Whether it was loaded from a run, and not folded by the worker."""

    @property
    def lost(self) -> int:
        """How many writes are known to be lost: positions ``position + 1`` to ``known``."""
        return max(0, self.known - self.position)


@dataclass(frozen=True, slots=True)
class ShardRebuilt:
    tables: tuple[RebuiltTable, ...]
    transactions: int = 0
    """Behind what is archived, brought back by what other shards have kept of them."""
    halves: tuple[str, ...] = ()
    """Those that other shards have, and have not kept the part of this one: it was too large."""


@dataclass(frozen=True, slots=True)
class LeaveCopies:
    """Write into the archive what a base shard keeps of the parts of a lost one, which is being rebuilt; nothing that
    this has told before ``incarnation`` counts any more. → ``Done``; NotHere"""

    epoch: int
    domain: DomainIndex
    lost: DomainIndex
    incarnation: int
    decided: int
    """See ``RebuildShard``."""


RebuildMessage = RebuildShard | LeaveCopies
"""What only a leader asks for."""


# --- moving a domain ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """Wait until the domain is linked here. → ``Done``; NotHere if it is not ``within`` so many seconds.

    For a client that was told ``NotHere.unlinked`` and knows that the domain was given to this worker.
    """

    domain: DomainIndex
    within: float


@dataclass(frozen=True, slots=True)
class FlushDomain:
    """The domain is about to be closed here: flush its store now, while it serves, so that closing has little left to
    write while nobody has the domain. → ``Done``, also if the domain is not here

    Nothing depends on it: it may be lost, late or sent twice.
    """

    epoch: int
    domain: DomainIndex


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """An HTTP request in a transaction that the process which is asked has begun. → ``ForwardedAnswer``"""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    address: str
    """Of the client."""


@dataclass(frozen=True, slots=True)
class ForwardedAnswer:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


# --- archiving: see ``worker/archive`` ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """Archive up to now. → ``ArchivePositions``, or an ArchiveError; BadRequest if the worker has no archive.

    With a name in ``keep``, the worker keeps its log after these positions until a ``LogRelease`` of the name, or until
    it hears of a leader of a later epoch than ``epoch``.
    """

    keep: str | None = None
    epoch: int = 0
    urgent: bool = True
    """Somebody waits, so archiving takes no rests."""


@dataclass(frozen=True, slots=True)
class ArchivePositions:
    url: str
    positions: Clock
    """The last archived position of each base shard that is hosted here; all were cut at the same moment."""
    identities: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, int] = field(default_factory=dict)
    """The version (:func:`version_of`) of the schema that each was cut with."""
    told: bytes = b"[]"
    """What they have of transactions, as JSON (``domains/archive/transactions.py``)."""


@dataclass(frozen=True, slots=True)
class PartsRequest:
    """Which of these transactions a base shard has prepared or committed, as far as it is to tell of them. →
    ``KnownParts``; NotHere"""

    domain: DomainIndex
    transactions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownParts:
    transactions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartsSettled:
    """A cut was recorded that has these transactions wholly: nothing need be told of them any more. → ``Done``

    It may be lost: they are told again then, and settled again."""

    transactions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogRelease:
    """The log that is kept under this name is no longer needed. → ``Done``"""

    keep: str


# --- walking a reader -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """Keep the present state of a reader for a walk, for some time. → ``Hold``"""

    domain: DomainIndex
    reader: NodeIndex


@dataclass(frozen=True, slots=True)
class Hold:
    number: int
    clock: Clock
    """The exact positions that the state reflects, of each base shard."""


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """The next rows of a hold, which ends with the last of them. → ``HeldRows``"""

    number: int


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Each as in ``worker/reader_map/merging.py``. Empty: there are no more."""

    rows: tuple[tuple[bytes, bytes | None, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """The hold is no longer needed; a notice."""

    number: int


# --- what api processes watch: see ``worker/dataflow/watches.py`` ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginWatch:
    """Show a look-up's rows, now and whenever they change, to a session's ``ShowRequest``s; a notice. The session and
    the number are the api process's."""

    session: int
    number: int
    domain: DomainIndex
    reader: NodeIndex
    lookup: BoundLookup


@dataclass(frozen=True, slots=True)
class EndWatch:
    """A notice. A session that asks for nothing any more ends with all its watches."""

    session: int
    number: int


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """What has changed since the last time, as soon as there are rows, or after so many seconds. → ``Shown``"""

    session: int
    within: float


@dataclass(frozen=True, slots=True)
class Shown:
    """As of one moment."""

    rows: tuple[tuple[int, Parts], ...]
    """By the watch's number."""
    holes: tuple[int, ...]
    """Watches with a key that was evicted, and is asked for again."""
    ended: tuple[tuple[int, str], ...]
    """With a value of ``Ended``."""
    clocks: tuple[tuple[DomainIndex, NodeIndex, Clock], ...]
    """Of watched readers, as far as they have changed."""


# --- among api processes: see ``controller/cluster/serving/other_apis.py`` -----------------------------------------


@dataclass(frozen=True, slots=True)
class AskedShapesRequest:
    """What the process was asked without a view. → ``Listed``, of ``controller.deployment.QueryInfo``"""


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """What it performs now. → ``Listed``, of ``controller.deployment.RunningInfo``"""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Stop a statement. → ``Listed``, of the statement; NotFound"""

    id: int


@dataclass(frozen=True, slots=True)
class Listed:
    rows: tuple[tuple[Any, ...], ...]
    """The fields of each, in their order."""
