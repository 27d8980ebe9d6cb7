"""Shards whose disk is lost, made again from the simulated archive: ``worker/archive/lost_shard.py`` without files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from domains.archive.redo import kept_from_json
from domains.errors import HeadraceError, StorageFailure
from domains.language.types import Row
from domains.plan.graph import DomainIndex
from domains.store.widening import widening
from tests.cluster_simulation.archive import URL, Manifest, SimulatedArchive
from tests.cluster_simulation.loop import Process
from tests.cluster_simulation.storage import CrashStore, Disk
from worker.protocol.messages import Done
from worker.protocol.operations import ArchivedShard, LeaveCopies, RebuildShard, RebuiltTable, ShardRebuilt
from worker.service.rebuilds import ShardRebuilds

if TYPE_CHECKING:
    from tests.cluster_simulation.worker import SimulatedWorker


@dataclass(slots=True)
class Losses:
    """What went with disks, for the judge: nobody else looks here."""

    disks: dict[DomainIndex, list[CrashStore]] = field(default_factory=dict)
    """Those that are gone and not made good yet."""
    rows: dict[str, set[int]] = field(default_factory=dict)
    """Table → the numbers of rows that were not archived when their shard was given up."""
    attended: bool = False
    """Whether there is an operator yet: before that no disk is lost, since nobody would ever give it up."""
    rebuilt: int = 0
    """Shards that were made again."""
    archived: dict[int, list[dict[str, int]]] = field(default_factory=dict)
    """By shard, for each time that it was made again: by table, the position up to which it is what it was. What comes
    behind may have positions that other rows had."""
    by_runs: int = 0
    """Tables that were loaded from what a job had folded."""
    refilled: int = 0
    """How often the full state that stood on them was built in bulk, by leaders that lead no more."""
    making: dict[tuple[str, int], Process] = field(default_factory=dict)
    """By data directory and shard, who is at it: one at a time."""
    made: dict[tuple[str, int], tuple[int, ShardRebuilt]] = field(default_factory=dict)
    """With the decision for which it was made."""

    def give_up(self, shard: int, archived: dict[str, int], left: Iterable[CrashStore]) -> None:
        """What was on the shard's lost disks behind these positions is lost. They are by table. ``left`` are disks of
        the shard that are there: an operator gives up one, too, whose workers are only away for a while."""
        self.archived.setdefault(shard, []).append(archived)
        for store in (*self.disks.pop(DomainIndex(shard), ()), *left):
            for schema in store.tables():
                name = schema.name
                for _, deltas in store.log(name, max(archived.get(name, 0), store.floor(name)), 1 << 30):
                    self.rows.setdefault(name, set()).update(_number(row) for row, _ in deltas)


def _number(row: Row) -> int:
    return row[0] if isinstance(row[0], int) else -1


class SimulatedUnderWay:
    """See ``worker.service.rebuilds.UnderWay``: a task in place of the thread."""

    def __init__(self, worker: SimulatedWorker, asked: RebuildShard) -> None:
        self.asked = asked
        self.rows = 0
        self.outcome: ShardRebuilt | HeadraceError | None = None
        self._worker = worker
        worker.process.spawn(self._run())

    async def _run(self) -> None:
        worker, place = self._worker, (self._worker.data, self.asked.shard)
        losses = worker.cluster.losses
        try:
            other = losses.making.get(place)
            if other is not None and not other.is_dead:
                raise StorageFailure(f"another worker is rebuilding {place}")
            losses.making[place] = worker.process
            made = losses.made.get(place)
            if made is not None and made[0] == self.asked.decided:
                self.outcome = made[1]
            else:
                self.outcome = await self._make()
                losses.made[place] = self.asked.decided, self.outcome
        except HeadraceError as error:
            self.outcome = error
        finally:
            if losses.making.get(place) is worker.process:
                del losses.making[place]

    async def _make(self) -> ShardRebuilt:
        cluster, asked = self._worker.cluster, self.asked
        archive: SimulatedArchive = cluster.archive
        manifests = [
            archive.take_over(each.base, each.shard, asked.decided, each.schema)
            for each in archive.of_shard(asked.shard)
            if each.base in asked.bases
        ]
        store = CrashStore(self._worker.cluster.disks.fuse)
        tables: list[RebuiltTable] = []
        for manifest in manifests:
            await asyncio.sleep(archive.random.random() * archive.random.choice((0.01, 0.5)))
            archive.check()
            tables.append(self._load(store, manifest))
        archived = {each.base for each in manifests}
        for base, schema in asked.bases.items():
            if base not in archived and (known := asked.known.get(base, 0)):
                store.create_table(schema)
                store.commit([(schema.name, known, [])])
                store.trim_log(schema.name, known)
                tables.append(RebuiltTable(base, 0, 0, known))
        store.sync()
        left = [disk.store for place, disk in cluster.disks.disks.items() if place[1] == asked.shard]
        cluster.say(f"shard {asked.shard} is rebuilt in {self._worker.data}: {tables}")
        cluster.disks.disks[self._worker.data, DomainIndex(asked.shard)] = Disk(store)
        cluster.losses.rebuilt += 1
        cluster.losses.give_up(asked.shard, {each.schema.name: each.position for each in manifests}, left)
        return ShardRebuilt(tuple(tables))

    def _load(self, store: CrashStore, manifest: Manifest) -> RebuiltTable:
        schema, position = manifest.schema, manifest.position
        table = store.create_table(schema)
        run = self._worker.cluster.archive.runs.get(self.asked.runs, {}).get(manifest.base)
        if run is not None and run.position == position:
            deltas = [(widening(run.schema, schema)(row), weight) for row, weight in run.deltas]
            self._worker.cluster.losses.by_runs += 1
        else:  # The archive has gone on, or somebody has deleted them.
            run, deltas = None, manifest.fold(position, schema)
        table.stage(deltas)
        table.raise_auto_increment(manifest.auto_increment)
        known = max(position, self.asked.known.get(manifest.base, 0))
        store.commit([(schema.name, position, [])] if position else [])
        if known > position:
            store.commit([(schema.name, known, [])])
        store.trim_log(schema.name, known)
        self.rows += len(deltas)
        return RebuiltTable(manifest.base, position, len(deltas), known, run is not None)


class SimulatedRebuilds(ShardRebuilds):
    def __init__(self, worker: SimulatedWorker) -> None:
        super().__init__(worker.name, Path("data"), URL if worker.cluster.archive is not None else None)
        self._worker = worker

    async def archived(self, shard: int) -> ArchivedShard:
        self._archive()
        manifests = self._worker.cluster.archive.of_shard(shard)
        rows = sum(len(part.deltas) for each in manifests for part in each.parts)
        return ArchivedShard({each.base: each.position for each in manifests}, URL, rows)

    async def leave(self, asked: LeaveCopies, kept: Awaitable[bytes]) -> Done:
        """Nobody has transactions in these clusters."""
        self._archive()
        assert not kept_from_json(await kept, "kept")
        return Done()

    def _begun(self, asked: RebuildShard) -> SimulatedUnderWay:  # type: ignore[override]
        self._archive()
        return SimulatedUnderWay(self._worker, asked)


__all__ = ["Losses", "SimulatedRebuilds"]
