"""The thread that archives the tables of a process while its domains serve.

At every interval, and on request, it makes a *pass*::

    between two steps    a cut of every base table that is here, and the recipe; nothing is read yet
    sync                 rows are durable here before they are archived
    read, write          log → Parquet, slice by slice with rests between, so that the dataflow thread gets its turns
    manifest             from here on the segment counts
    between two steps    the archived log is trimmed, but for a tail and for what somebody holds

**A pass is one cut of all tables between the same two steps, with the recipe in force then.** A recipe is written
before it is carried out, so every table that it names is whole in the cut, or still empty. A pass that fails for some
of the tables is no cut, and is not recorded (``recipes.py``).

No error here stops the serving or loses log: a shard that cannot be archived is an *alarm* in the status and is tried
again, first soon and then less and less often. The log of a table that is dropped meanwhile is gone: the pass begins
again with a new cut, without the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Condition, Thread
from typing import Any

from domains.archive.manifest import ArchiveError, ArchiveUnreachable
from domains.archive.transactions import missing_parts, part_of
from domains.errors import HeadraceError, NotFound, StorageFailure
from domains.plan.packets import Clock
from worker.archive.compacting import Tidying
from worker.archive.cut_tables import Cuts, Key, committed_in, prepared_in, settle
from worker.archive.options import ArchiveOptions, ArchivePass, RecipeNow, wall_clock
from worker.archive.place import Place, after, time_text
from worker.archive.recipes import RecipeBook, RecipeRecord
from worker.archive.shard import ShardArchive
from worker.dataflow.hosted_domain import HostedDomain
from worker.dataflow.thread import DataflowThread
from worker.rocks.cut import TableCut
from worker.rocks.store import RocksStore

LOG_TAIL = 1_000
"""Archived entries of each log that stay in RocksDB, so that readers of recent positions need not read the archive.
More would only take room."""

FIRST_RETRY = 1.0
"""Seconds after a failure; doubled with each further one, up to the interval."""

REST_MAX = 0.05
"""The longest rest in seconds between two slices. A rest is twice as long as the slice took, so that two thirds of the
time are left to others. After an interval a pass takes no more rests: else a log might grow faster than it is
archived."""

CUT_SECONDS = 30.0
"""Seconds for the dataflow thread to make a cut. Steps take milliseconds; if it takes longer, something is wrong."""

CUTS = 10
"""Cuts that one pass tries: a table was dropped during each but the last. With more drops the pass fails."""

_log = logging.getLogger("headrace.worker")


@dataclass(slots=True)
class Alarm:
    error: HeadraceError
    since: str
    times: int = 1


class Alarms:
    """Lasting failures of archiving, by what failed (a base shard, "archive", "compaction"), which the status shows
    until they are over. One thread writes, any may read."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._alarms: dict[str, Alarm] = {}

    def __bool__(self) -> bool:
        return bool(self._alarms)

    def sound(self, name: str, error: HeadraceError) -> None:
        known = self._alarms.get(name)
        if known is None:
            _log.warning('archiving of "%s" fails: %s', name, error)
            self._alarms[name] = Alarm(error, self._now())
        else:
            known.error, known.times = error, known.times + 1

    def clear(self, name: str) -> None:
        if self._alarms.pop(name, None) is not None:
            _log.warning('archiving of "%s" goes on', name)

    def keep(self, names: Iterable[str]) -> None:
        """Drop the alarms of all others, which are not this process's any more."""
        for name in self._alarms.keys() - set(names):
            del self._alarms[name]

    def document(self) -> list[dict[str, Any]]:
        """JSON-ready."""
        return [
            {"of": name, "since": alarm.since, "times": alarm.times, "error": str(alarm.error)}
            for name, alarm in list(self._alarms.items())
        ]


class ArchiverStopped(Exception):
    """The process ends, and archiving is broken off."""


@dataclass(frozen=True, slots=True)
class LogHold:
    """A request to keep the log from these positions on."""

    epoch: int
    """The epoch of the leader that asked; the hold ends with a later one."""
    positions: Clock


@dataclass(slots=True)
class PassRequest:
    """A caller that waits for a pass."""

    answer: Future[ArchivePass]
    hold: str | None
    epoch: int
    urgent: bool


def _unexpected(doing: str, error: Exception) -> StorageFailure:
    """A bug, or a row that the archive's format cannot hold: an alarm like any other."""
    _log.exception("%s failed in a way that it should not", doing, exc_info=error)
    return StorageFailure(f"{doing} failed: {type(error).__name__}: {error}", hint="the worker's log has the details")


class TableLeft(NotFound):
    """A table was dropped while it was archived."""


class Archiver:
    """``recipe`` gives the recipe in force, if this process is the whole deployment."""

    def __init__(
        self,
        dataflow: DataflowThread,
        options: ArchiveOptions,
        *,
        recipe: RecipeNow | None = None,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        self.options = options
        self.alarms = Alarms(lambda: time_text(clock()))
        self.archives: dict[Key, ShardArchive] = {}
        self.last_pass: str | None = None
        self._dataflow = dataflow
        self._recipe = recipe
        self._clock = clock
        self._place: Place | None = None
        self._book: RecipeBook | None = None
        self._holds: dict[str, LogHold] = {}
        self._trimmed: dict[Key, int] = {}
        self._tidying = Tidying(options.retention)
        self._asked: list[PassRequest] = []
        self._changed = Condition()
        self._stopping = False
        self._urgent = False
        self._pass_began = self._slice_began = 0.0
        self._thread = Thread(target=self._run, name="headrace-archiver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Break off what is under way. Call it before the dataflow is closed."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._tidying.compaction.kill()
        self._refuse()

    def _refuse(self) -> None:
        with self._changed:
            self._stopping = True
            asked, self._asked = self._asked, []
        for each in asked:
            each.answer.set_exception(StorageFailure("headrace is stopping"))

    # --- from any thread ----------------------------------------------------------------------------------------

    def archive_now(self, *, hold: str | None = None, epoch: int = 0, urgent: bool = True) -> Future[ArchivePass]:
        """Archive up to now; the future has the cut of the base shards that are here.

        With ``hold``, the log after these positions stays until ``release``, or until a leader of a later epoch is
        heard of. The future has an ArchiveError if a shard could not be archived; nothing is held then. An ``urgent``
        pass takes no rests.
        """
        asked = PassRequest(Future(), hold, epoch, urgent)
        asked.answer.set_running_or_notify_cancel()
        with self._changed:
            if self._stopping:
                raise StorageFailure("headrace is stopping")
            self._asked.append(asked)
            self._changed.notify_all()
        return asked.answer

    def release(self, hold: str) -> None:
        """End a hold, if there is one of the name."""
        with self._changed:
            self._holds.pop(hold, None)

    def status(self) -> dict[str, Any]:
        """JSON-ready; sizes in bytes."""
        here = self._positions()
        nothing = {"position": 0, "begin": 0, "segments": 0, "rows": 0, "bytes": 0}
        shards = {base: {**nothing, "behind": at} for base, at in here.items()}  # A new table waits for the next pass.
        for archive in list(self.archives.values()):
            manifest = archive.manifest
            shards[manifest.base] = {
                "position": manifest.position,
                "behind": max(0, here.get(manifest.base, 0) - manifest.position),
                "begin": manifest.begin,
                "segments": len(manifest.segments),
                "rows": sum(segment.rows for segment in manifest.segments),
                "bytes": sum(segment.bytes for segment in manifest.segments),
            }
        return {
            "url": self.options.url,
            "interval": self.options.interval,
            "retention": self.options.retention,
            "last": self.last_pass,
            "compacting": self._tidying.compaction.running,
            "holds": {name: hold.positions for name, hold in list(self._holds.items())},
            "shards": shards,
            "alarms": self.alarms.document(),
        }

    def _positions(self) -> Clock:
        """The last write to each base shard of this process."""
        published = self._dataflow.published
        domains = [(index, host.domain) for index, host in list(self._dataflow.hosted.hosts.items())]
        bases = [(index, domain.base_name(schema)) for index, domain in domains for schema in domain.store.tables()]
        return {base: published.get(index, {}).get(base, 0) for index, base in bases}

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        wait = min(FIRST_RETRY, self.options.interval)  # A wrong URL must show soon.
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._stopping, wait)
                if self._stopping:
                    return
                asked, self._asked = self._asked, []
            try:
                reached = self._pass(asked)
            except ArchiverStopped:
                with self._changed:
                    self._asked += asked
                return
            except Exception as error:
                reached = _unexpected("archiving", error)
                self.alarms.sound("archive", reached)
                self._drop_holds(asked)
            for each in asked:
                if isinstance(reached, HeadraceError):
                    each.answer.set_exception(reached)
                else:
                    each.answer.set_result(reached)
            if self._dataflow.failure is not None:
                self._refuse()
                return
            failures = failures + 1 if self.alarms else 0
            wait = (
                min(self.options.interval, FIRST_RETRY * 2 ** min(failures - 1, 16))
                if failures
                else self.options.interval
            )

    def _pass(self, asked: list[PassRequest]) -> ArchivePass | HeadraceError:
        """The archived cut, or the reason why a table was not archived."""
        self._urgent = any(each.urgent for each in asked)
        self._pass_began = self._slice_began = time.monotonic()
        try:
            place = self._place = self._place or Place(self.options.url)
            cuts, errors = self._cut_and_archive(place, asked)
            self._forget_others(cuts)
            taken = replace(cuts.taken(), told=cuts.told())
            if not errors:
                taken = self._keep_recipe(place, cuts, taken)
            self._tidy(place)
        except HeadraceError as error:
            self.alarms.sound("archive", error)
            self._drop_holds(asked)
            return error
        self.alarms.clear("archive")
        self.last_pass = cuts.closed
        if errors:
            self._drop_holds(asked)
            return errors[0]
        return taken

    def _cut_and_archive(self, place: Place, asked: list[PassRequest]) -> tuple[Cuts, list[HeadraceError]]:
        for _ in range(CUTS):
            cuts = self._cut(asked)
            errors = self._archive_all(place, cuts)
            if not any(isinstance(error, TableLeft) for error in errors):
                break
        return cuts, errors

    def _cut(self, asked: list[PassRequest]) -> Cuts:
        """Cut all tables at the same moment; the holds of the callers begin there, before any log could be trimmed."""

        def take() -> Cuts:
            cuts = Cuts(after(time_text(self._clock()), self.last_pass or ""), recipe=self._recipe and self._recipe())
            for index, host in self._dataflow.hosted.hosts.items():
                if isinstance(host.domain.store, RocksStore):
                    cuts.prepared[index] = prepared_in(host.domain)
                    for schema in host.domain.store.tables():
                        if schema.filling:
                            continue
                        key = index, schema.name
                        # The log of a table that is new here may not reach back to the end of its archive.
                        cuts.hosts[key] = host, host.domain.store.cut(schema.name, rows=not self._knows(key, host))
            positions = {host.domain.base_name(cut.schema): cut.position for host, cut in cuts.hosts.values()}
            with self._changed:
                epoch = self._dataflow.hosted.epoch
                self._holds = {name: hold for name, hold in self._holds.items() if hold.epoch >= epoch}
                for each in asked:
                    if each.hold is not None:
                        self._holds[each.hold] = LogHold(each.epoch, positions)
            return cuts

        cuts: Cuts = self._between_steps(take)
        for sync in dict.fromkeys(host.sync for host, _ in cuts.hosts.values() if host.sync is not None):
            sync()
        return cuts

    def _between_steps(self, question: Callable[[], Any]) -> Any:
        try:
            return self._dataflow.call(question).result(CUT_SECONDS)
        except TimeoutError as error:
            raise StorageFailure(f"the dataflow thread has not come to a cut in {CUT_SECONDS:g} s") from error

    def _drop_holds(self, asked: list[PassRequest]) -> None:
        with self._changed:
            for each in asked:
                if each.hold is not None:
                    self._holds.pop(each.hold, None)

    # --- one shard ----------------------------------------------------------------------------------------------

    def _archive_all(self, place: Place, cuts: Cuts) -> list[HeadraceError]:
        """Archive all tables; answers the errors. Raises ArchiveUnreachable if the archive is away: it is not asked
        once for each table, since that takes seconds each, and the end of the process would wait."""
        errors = []
        for key in cuts.hosts:
            error = self._archive(place, key, cuts)
            if self._stopping:
                raise ArchiverStopped
            if error is not None:
                errors.append(error)
                if isinstance(error, ArchiveUnreachable) and not place.local and not place.answers():
                    raise error
        return errors

    def _archive(self, place: Place, key: Key, cuts: Cuts) -> HeadraceError | None:
        host, cut = cuts.hosts[key]
        base = host.domain.base_name(cut.schema)
        try:
            archive = self._open(place, key, host, cut)
            cut = replace(cut, transactions=committed_in(host.domain, base))
            if archive.lacks_log(cut):
                archive.begin(cut, cuts.closed, pause=self._pause)
            else:
                rows = self.options.segment_rows
                archive.append(cut, cuts.closed, segment_rows=rows, pause=self._pause)
            self._trim(key, base, archive)
        except ArchiverStopped:
            raise
        except Exception as error:  # The other tables are archived all the same.
            self.archives.pop(key, None)  # The manifest is read anew.
            if self._has_left(key, cut):
                return TableLeft(f'table "{key[1]}" was dropped while it was archived', hint="try again")
            told = error if isinstance(error, HeadraceError) else _unexpected(f'archiving of "{base}"', error)
            self.alarms.sound(base, told)
            return told
        self.alarms.clear(base)
        return None

    def _open(self, place: Place, key: Key, host: HostedDomain, cut: TableCut) -> ShardArchive:
        epoch = host.domain.incarnation
        known = self.archives.get(key)
        if known is None or (known.manifest.identity, known.manifest.epoch) != (cut.identity, epoch):
            known = ShardArchive.open(place, cut, host.domain.shard, host.domain.shards, epoch)
            known.forget_former(self._tidying.boundary(self._clock()))
            self.archives[key] = known
            self._trimmed.pop(key, None)
        return known

    def _knows(self, key: Key, host: HostedDomain) -> bool:
        known = self.archives.get(key)
        return known is not None and known.manifest.epoch == host.domain.incarnation

    def _has_left(self, key: Key, cut: TableCut) -> bool:
        """Whether the table was dropped, and not only moved to another process."""

        def left() -> bool:
            host = self._dataflow.hosted.hosts.get(key[0])
            store = None if host is None else host.domain.store
            if not isinstance(store, RocksStore):
                return False
            present = {schema.name for schema in store.tables()}
            return key[1] not in present or store.table(key[1]).identity != cut.identity

        return bool(self._between_steps(left))

    def _trim(self, key: Key, base: str, archive: ShardArchive) -> None:
        with self._changed:
            held = min(
                (hold.positions.get(base, 0) for hold in self._holds.values()), default=archive.manifest.position
            )
        up_to = min(archive.manifest.position - LOG_TAIL, held)
        if up_to <= self._trimmed.get(key, 0):
            return

        def trim() -> int:
            store = self._store(key, archive.manifest.identity)
            needed = self._dataflow.hosted.hosts[key[0]].domain.log_needed(key[1])  # By a replay.
            reached: int = up_to if needed is None else min(up_to, needed)
            store.trim_log(key[1], reached)
            return reached

        self._trimmed[key] = self._between_steps(trim)

    def _store(self, key: Key, identity: str) -> RocksStore:
        """The store of the table that was cut. Raises NotFound if it is gone."""
        host = self._dataflow.hosted.hosts.get(key[0])
        store = None if host is None else host.domain.store
        if not isinstance(store, RocksStore) or store.table(key[1]).identity != identity:
            raise NotFound(f'table "{key[1]}" has left while it was archived')
        return store

    def _forget_others(self, cuts: Cuts) -> None:
        """Drop the archives and alarms of shards that are not here any more."""
        bases = {host.domain.base_name(cut.schema) for host, cut in cuts.hosts.values()}
        for key in [key for key in self.archives if key not in cuts.hosts]:
            del self.archives[key]
        self.alarms.keep((*bases, "archive", "compaction"))

    # --- besides ------------------------------------------------------------------------------------------------

    def _keep_recipe(self, place: Place, cuts: Cuts, taken: ArchivePass) -> ArchivePass:
        if taken.recipe is None:
            return taken
        book = self._book = self._book or RecipeBook(place)
        shards = max((host.domain.shards for host, _ in cuts.hosts.values()), default=1)
        # All is here, and of one moment: what a shard does not have then it has no more.
        lost = tuple(sorted(missing_parts(map(part_of, taken.told))))
        record = RecipeRecord(taken.time, taken.positions, taken.identities, shards, taken.recipe)
        kept = book.keep(replace(record, told=taken.told, lost=lost))
        settled = kept.closed().settled
        self._between_steps(lambda: settle(self._dataflow.hosted, settled))
        if kept.positions is record.positions:
            book.expire(self._tidying.boundary(self._clock()))
        return replace(taken, number=kept.record.number, time=max(taken.time, kept.time))

    def _tidy(self, place: Place) -> None:
        try:
            self._tidying.tidy(place, list(self.archives.values()), self._clock(), RecipeBook(place).reach)
        except ArchiveError as error:
            self.alarms.sound("compaction", error)
        else:
            self.alarms.clear("compaction")

    def _pause(self) -> None:
        if self._stopping:
            raise ArchiverStopped
        now = time.monotonic()
        if not self._urgent and now - self._pass_began < self.options.interval:
            time.sleep(min(REST_MAX, 2 * (now - self._slice_began)))
        self._slice_began = time.monotonic()
