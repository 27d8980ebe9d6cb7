"""How a leader has a lost shard rebuilt from the archive; see ``worker/archive/lost_shard.py``."""

from __future__ import annotations

from dataclasses import dataclass, field

from domains.graph import DomainIndex
from domains.packets import Clock
from domains.sharding import base_shard
from domains.types import TableSchema


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
