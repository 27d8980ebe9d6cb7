"""How one asks a worker for all that a reader holds: take hold of it, walk it, let go."""

from __future__ import annotations

from dataclasses import dataclass, field

from domains.language.types import TableSchema
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock
from domains.plan.sharding import base_shard

# How a leader has a lost shard rebuilt from the archive; see ``worker/archive/lost_shard.py``.


@dataclass(frozen=True, slots=True)
class HeardRequest:
    """How far this worker has heard that base shards have come, wherever they are or were. → ``Heard``

    From then on it hears nothing more of ``given_up`` before these incarnations: what is on its way yet is dropped.
    Nobody will ever open one of an earlier incarnation, whoever leads: so it does not matter who asks.
    """

    given_up: dict[DomainIndex, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heard:
    positions: Clock


@dataclass(frozen=True, slots=True)
class ArchivedShardRequest:
    """How far the tables of a shard are archived, as this worker's archive has it. → ``ArchivedShard``

    BadRequest where the worker has no archive.
    """

    shard: int


@dataclass(frozen=True, slots=True)
class ArchivedShard:
    positions: Clock
    url: str = ""
    """Of the archive, as the worker knows it."""
    rows: int = 0
    """That were archived of the shard and are to be folded: about what a rebuild has to read."""


@dataclass(frozen=True, slots=True)
class RebuildShard:
    """Have a shard made from the archive in this worker's data directory. → ``ShardRebuilt``, or ``RebuildUnderWay``

    It begins when it is asked for first, and goes on by itself; what is done is answered again whenever it is asked
    for. An ArchiveError or StorageFailure says why it failed; asked again, it begins anew.
    """

    epoch: int
    shard: int
    shards: int
    decided: int
    """The epoch of the decision: another one is another rebuild."""
    tables: tuple[TableSchema, ...]
    """Those of which it is to have a shard. What the archive has under their names may be former tables'."""
    known: Clock
    """Positions that are known to have existed: where a shard goes on, so that none of them is ever given again."""
    runs: str = ""
    """The URL below which the tables lie folded and sorted (``migrations/backfill/spark/rebuild.py``), if they do."""

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
    """As of which it was rebuilt: the last that was archived."""
    rows: int
    known: int
    """The greatest position that is known to have existed, and at which the shard goes on."""
    run: bool = False
    """It was loaded from a run, and not folded by the worker."""

    @property
    def lost(self) -> int:
        """How many writes are known to be lost: those of the positions from ``position + 1`` to ``known``."""
        return max(0, self.known - self.position)


@dataclass(frozen=True, slots=True)
class ShardRebuilt:
    tables: tuple[RebuiltTable, ...]


# Messages about a domain that is moving from one worker to another.


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """Say when the domain is linked here. → ``Done``; NotHere where it is not within so many seconds.

    For whoever was told ``NotHere.unlinked`` and knows that the domain was given to this worker: it asks again as soon
    as there is something to be asked, neither before nor later.
    """

    domain: DomainIndex
    within: float


@dataclass(frozen=True, slots=True)
class FlushDomain:
    """From the controller: the domain is about to be closed here, so have its store write to its files now what closing
    would write then, while nobody has the domain. It goes on serving. → ``Done``, also where it is not here

    Nothing depends on it: it may be lost, late or sent twice, and what is written meanwhile is left for the closing.
    """

    epoch: int
    domain: DomainIndex


MovingMessage = LinkRequest | FlushDomain


# How one asks a worker to archive the shards that it hosts; see ``worker/archive``.


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """Archive up to now. → ``ArchivePositions``, or an ArchiveError; BadRequest where the worker has no archive.

    With a name in ``keep``, the log after these positions stays on the worker until ``LogRelease`` names the same, or a
    leader of a later epoch than ``epoch`` is heard of.
    """

    keep: str | None = None
    epoch: int = 0
    urgent: bool = True
    """Somebody waits: it takes no rests."""


@dataclass(frozen=True, slots=True)
class ArchivePositions:
    url: str
    positions: Clock
    """Of each base shard that is hosted here, the last archived position: all were cut at the same moment."""
    identities: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, int] = field(default_factory=dict)
    """The number of the schema that each was cut with (:func:`version_of`)."""


@dataclass(frozen=True, slots=True)
class LogRelease:
    """The log that is kept under this name is needed no more. → ``Done``"""

    keep: str


ArchiveMessage = ArchiveRequest | ArchivePositions | LogRelease


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """Keep the present state of a reader to be walked, for some time. → ``Hold``"""

    domain: DomainIndex
    reader: NodeIndex


@dataclass(frozen=True, slots=True)
class Hold:
    number: int
    clock: Clock
    """Exactly what the state reflects, of each base shard."""


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """The next rows of a hold, which ends with the last of them. → ``HeldRows``"""

    number: int


@dataclass(frozen=True, slots=True)
class HeldRows:
    """``worker/reader_map/merging.py`` says what each is. None: there are no more."""

    rows: tuple[tuple[bytes, bytes | None, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """It is wanted no more; a notice."""

    number: int


HoldMessage = HoldRequest | Hold | HeldRequest | HeldRows | ReleaseRequest
