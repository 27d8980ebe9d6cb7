"""An archive in memory: copies of the workers' tables as they were when it was told to keep them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from domains.archive.manifest import SegmentMissing
from domains.errors import BadRequest
from domains.language.types import Delta
from domains.plan.packets import Clock
from domains.plan.sharding import base_shard
from domains.store.memory_store import MemoryStore
from worker.protocol.operations import (
    ArchivedShard,
    ArchivedShardRequest,
    ArchivePositions,
    RebuildShard,
    RebuildUnderWay,
    RebuiltTable,
    ShardRebuilt,
)

if TYPE_CHECKING:
    from tests.kit.memory_workers import MemoryCluster
    from worker.dataflow.domain_host import DomainHost


class MemoryArchive:
    def __init__(self, shards: int) -> None:
        self.url = "archive"
        self.is_there = True
        self.damaged = False
        self.looks = 2
        """How often one that is asked for is still under way."""
        self.asked: list[RebuildShard] = []
        self.left: list[tuple[int, int]] = []
        """Of which shard what it keeps was left for which lost one."""
        self.folds: dict[str, tuple[int, list[Delta]]] = {}
        """By base shard, as of which position it was archived last, and its rows then."""
        self._shards = shards
        self._kept: dict[int, MemoryStore] = {}
        self._made: dict[tuple[str, int], tuple[int, ShardRebuilt]] = {}
        """(directory, shard) → the decision for which it was made, and what came of it."""

    def keep(self, cluster: MemoryCluster) -> None:
        """Archive all shards up to now."""
        for domain, given in cluster.decided.placement.items():
            self._kept[domain] = copy.deepcopy(cluster.disks[given.data, domain])

    def archived_now(self, hosted: DomainHost) -> ArchivePositions:
        """What a worker hosts, as of this moment."""
        positions: Clock = {}
        for host in hosted.hosts.values():
            for schema in host.domain.store.tables():
                base = host.domain.base_name(schema)
                positions[base] = host.domain.store.position(schema.name)
                rows = list(host.domain.store.table(schema.name).find((), ()))
                self.folds[base] = positions[base], rows
        return ArchivePositions(self.url, positions)

    def archived(self, asked: ArchivedShardRequest) -> ArchivedShard:
        if not self.is_there:
            raise BadRequest("no archive is given")
        store = self._kept.get(asked.shard)
        rows = 0 if store is None else sum(store.table(each.name).row_count for each in store.tables())
        return ArchivedShard(self._positions(asked.shard), self.url, rows)

    def _positions(self, shard: int) -> dict[str, int]:
        store = self._kept.get(shard)
        if store is None:
            return {}
        return {
            base_shard(each.name, each.generation, shard, self._shards): store.position(each.name)
            for each in store.tables()
        }

    def rebuild(
        self, disks: dict[tuple[str, int], MemoryStore], data: str, asked: RebuildShard
    ) -> ShardRebuilt | RebuildUnderWay:
        """As ``worker/archive/lost_shard.py`` does it: once for a decision, and the lost positions are passed over."""
        self.asked.append(asked)
        assert all((other, asked.shard) in self.left for other in range(asked.shards) if other in asked.copies)
        if self.damaged:
            raise SegmentMissing("a segment is missing")
        made = self._made.get((data, asked.shard))
        if made is not None and made[0] == asked.decided:
            return made[1]
        if sum(one.decided == asked.decided and one.shard == asked.shard for one in self.asked) <= self.looks:
            return RebuildUnderWay(17)
        store = disks[data, asked.shard] = copy.deepcopy(self._kept[asked.shard])
        tables = []
        for schema in list(store.tables()):
            base = base_shard(schema.name, schema.generation, asked.shard, asked.shards)
            position = store.position(schema.name)
            known = max(position, asked.known.get(base, 0))
            if known > position:
                store.commit([(schema.name, known, [])])
            tables.append(RebuiltTable(base, position, store.table(schema.name).row_count, known, bool(asked.runs)))
        rebuilt = ShardRebuilt(tuple(tables))
        self._made[data, asked.shard] = asked.decided, rebuilt
        return rebuilt
