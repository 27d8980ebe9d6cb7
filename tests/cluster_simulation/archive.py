"""The archive of a simulated cluster, and what of each worker fills it: as ``worker/archive`` does, without files.

An archiver makes passes: a cut between two steps, a sync, then one table after another, each between two other things
that happen. What is archived is trimmed from the log, all but what is held, so that whoever needs it and does not hold
it finds out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from domains.archive.manifest import ArchiveFenced, ArchiveGap, ArchiveUnreachable, NotArchivedYet, SegmentMissing
from domains.errors import HeadraceError, NotFound, StorageFailure
from domains.language.types import Delta, Row, TableSchema
from domains.plan.packets import Clock
from domains.store.widening import widening
from tests.cluster_simulation.storage import CrashStore
from worker.archive.options import ArchiveOptions, ArchivePass
from worker.protocol.messages import version_of

if TYPE_CHECKING:
    from random import Random

    from tests.cluster_simulation.worker import SimulatedWorker
    from worker.dataflow.hosted_domain import HostedDomain

URL = "archive"
RETRY_SECONDS = 0.5


@dataclass(slots=True)
class Part:
    """What stands in the archive behind the part before it: a log entry, or all rows as of a position."""

    position: int
    deltas: list[Delta]
    schema: TableSchema
    whole: bool = False


@dataclass(slots=True)
class Manifest:
    """What is archived of one base shard."""

    base: str
    shard: int
    epoch: int
    schema: TableSchema
    """The last that was heard of."""
    parts: list[Part] = field(default_factory=list)
    auto_increment: int = 0

    @property
    def position(self) -> int:
        return self.parts[-1].position if self.parts else 0

    def schema_at(self, position: int) -> TableSchema:
        return next((part.schema for part in reversed(self.parts) if part.position <= position), self.schema)

    def fold(self, position: int, schema: TableSchema) -> list[Delta]:
        """The rows as of a position, in the width of ``schema``. Raises ArchiveError."""
        if position > self.position:
            raise NotArchivedYet(f"{self.base} is archived up to {self.position}, not {position}")
        rows: Counter[Row] = Counter()
        reached = 0
        for part in self.parts:
            if part.position > position:
                break
            if part.whole:
                rows.clear()
            widen = widening(part.schema, schema)
            for row, weight in part.deltas:
                rows[widen(row)] += weight
            reached = part.position
        if reached != position:
            raise ArchiveGap(f"{self.base} as of {position} is not archived")
        assert all(weight >= 0 for weight in rows.values()), f"the fold of {self.base} has negative rows"
        return [(row, weight) for row, weight in rows.items() if weight]


class SimulatedArchive:
    """One for the cluster: manifests by base shard, and the staging directories of bulk jobs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.manifests: dict[str, Manifest] = {}
        self.staging: dict[str, dict[str, list[bytes]]] = {}
        """By URL, and file."""
        self.runs: dict[str, dict[str, Part]] = {}
        """What jobs have folded of lost shards: by URL, and base shard."""
        self.interval = random.choice((0.3, 1.0, 3.0))
        self.tail = random.choice((0, 0, 3))
        """Log entries that stay though they are archived."""
        self.reachable = True
        self.jobs = Counter[str]()
        """Bulk jobs, by how they ended."""

    def check(self) -> None:
        if not self.reachable:
            raise ArchiveUnreachable("the archive cannot be reached now")

    def take_over(self, base: str, shard: int, epoch: int, schema: TableSchema) -> Manifest:
        """Raises ArchiveFenced where a later epoch has it."""
        self.check()
        manifest = self.manifests.setdefault(base, Manifest(base, shard, epoch, schema))
        if manifest.epoch > epoch:
            raise ArchiveFenced(f"{base} was taken over in epoch {manifest.epoch}, this is {epoch}")
        manifest.epoch = epoch
        return manifest

    def of_shard(self, shard: int) -> list[Manifest]:
        self.check()
        return [manifest for _, manifest in sorted(self.manifests.items()) if manifest.shard == shard]

    def block(self, staging: str, file: str) -> list[bytes]:
        self.check()
        if file not in self.staging.get(staging, {}):
            raise SegmentMissing(f"{staging}/{file} is missing")
        return self.staging[staging][file]


@dataclass(slots=True)
class _Asked:
    answer: Future[ArchivePass]
    hold: str | None
    epoch: int


@dataclass(slots=True)
class _Cut:
    host: HostedDomain
    store: CrashStore
    schema: TableSchema
    position: int

    @property
    def base(self) -> str:
        return self.host.domain.base_name(self.schema)


class SimulatedArchiver:
    """See ``worker.archive.archiver.Archiver``: what others ask of it is the same."""

    def __init__(self, worker: SimulatedWorker, archive: SimulatedArchive) -> None:
        self.options = ArchiveOptions(URL)
        self._worker = worker
        self._archive = archive
        self._holds: dict[str, tuple[int, Clock]] = {}
        """The leader's epoch, and the positions after which the log is needed."""
        self._asked: list[_Asked] = []
        self._news = asyncio.Event()

    def archive_now(self, *, hold: str | None = None, epoch: int = 0, urgent: bool = True) -> Future[ArchivePass]:
        asked = _Asked(Future(), hold, epoch)
        self._asked.append(asked)
        self._news.set()
        return asked.answer

    def release(self, hold: str) -> None:
        self._holds.pop(hold, None)

    def status(self) -> dict[str, Any]:
        return {}

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._archive.random.random() * self._archive.interval):
                    await self._news.wait()
            except TimeoutError:
                pass  # It is time for a pass.
            self._news.clear()
            asked, self._asked = self._asked, []
            try:
                reached = await self._pass(asked)
            except HeadraceError as error:
                for each in asked:
                    self._holds.pop(each.hold or "", None)
                    each.answer.set_exception(error)
            else:
                for each in asked:
                    each.answer.set_result(reached)

    async def _pass(self, asked: list[_Asked]) -> ArchivePass:
        """What was archived. Raises what kept it from archiving all, once it has tried all."""
        self._archive.check()
        cuts = await asyncio.wrap_future(self._worker.dataflow.call(lambda: self._cut(asked)))
        for cut in cuts:
            self._check_open(cut)
            cut.store.sync()
        reached: Clock = {}
        failed: HeadraceError | None = None
        for cut in cuts:
            await asyncio.sleep(self._archive.random.random() * self._archive.random.choice((0.001, 0.02)))
            try:
                reached[cut.base] = self._append(cut)
            except HeadraceError as error:
                failed = error
        if isinstance(failed, NotFound):
            return await self._pass(asked)  # A table was dropped meanwhile: another cut, without it.
        if failed is not None:
            raise failed
        return ArchivePass(reached, {}, {cut.base: version_of(cut.schema) for cut in cuts}, "")

    def _cut(self, asked: list[_Asked]) -> list[_Cut]:
        hosted = self._worker.dataflow.hosted
        cuts = [
            _Cut(host, store, schema, store.position(schema.name))
            for host in hosted.hosts.values()
            if isinstance(store := host.domain.store, CrashStore)
            for schema in store.tables()
        ]
        self._holds = {name: hold for name, hold in self._holds.items() if hold[0] >= hosted.epoch}
        positions = {cut.base: cut.position for cut in cuts}
        for each in asked:
            if each.hold is not None:
                self._holds[each.hold] = (each.epoch, positions)
        return cuts

    def _check_open(self, cut: _Cut) -> None:
        worker = self._worker
        disk = worker.cluster.disks.disks.get((worker.data, cut.host.domain.index))
        if disk is None or disk.store is not cut.store or disk.owner is not worker.process:
            raise StorageFailure(f"the shard of {cut.base} was closed while it was archived")

    def _append(self, cut: _Cut) -> int:
        """The whole of it between two steps: the log up to the cut, or all rows where the log does not reach back."""
        self._check_open(cut)
        domain, name = cut.host.domain, cut.schema.name
        schema = cut.store.table(name).schema
        manifest = self._archive.take_over(cut.base, domain.shard, domain.incarnation, schema)
        assert manifest.position <= cut.store.position(name), f"{cut.base} is archived further than it is durable"
        if cut.store.floor(name) > manifest.position:
            cut.store.sync()
            rows = cut.store.table(name).find((), ())
            manifest.parts.append(Part(cut.store.position(name), rows, schema, whole=True))
        else:
            for sequence, deltas in cut.store.log(name, manifest.position, cut.position - manifest.position):
                manifest.parts.append(Part(sequence, list(deltas), schema))
        manifest.schema = schema
        manifest.auto_increment = max(manifest.auto_increment, cut.store.table(name)._committed_auto_increment)
        self._trim(cut, manifest)
        return manifest.position

    def _trim(self, cut: _Cut, manifest: Manifest) -> None:
        held = [positions.get(cut.base, 0) for _, positions in self._holds.values()]
        needed = cut.host.domain.log_needed(cut.schema.name)
        up_to = min([manifest.position - self._archive.tail, *held, *([] if needed is None else [needed])])
        if up_to > cut.store.floor(cut.schema.name):
            cut.store.trim_log(cut.schema.name, up_to)


__all__ = ["URL", "Manifest", "SimulatedArchive", "SimulatedArchiver"]
