"""Rebuilding a shard whose disk is lost, from the archive, in another worker's data directory::

    DIR/shards/rebuild-0003     built here: the fold of each table, rebuilt.json
    DIR/shards/0003             … renamed to this once it is whole and on disk
    DIR/shards/given-up-0003-17 an earlier shard, if there was one: never deleted, and never opened again

Before anything is read the archive is taken over for the epoch of the decision. So the former host, if it is still
alive, archives nothing after the position as of which the shard is rebuilt.

**Lost positions are not given again.** A shard goes on at the greatest position that is known to have existed. So the
token of a lost write never stands for another write, and no survivor's clock goes back. If the earlier shard is at hand
and only damaged, its acknowledged record has the exact position. The archive goes on there with a snapshot; positions
in between cannot be restored.

**A run is used only if it must have the rows of the fold.** Spark has folded and sorted it before the decision, for a
table and a position. Once the archive is taken over nobody appends to it, and a position is never given twice. So if
table and position are still the archive's, the rows are the same. Otherwise, and if a run is missing or damaged, the
worker folds by itself, for which it needs only the archive.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from domains.archive.manifest import ArchiveError, ShardManifest, check_rows, opened, sealed
from domains.archive.redo import (
    KeptTransaction,
    copies_directory,
    copies_file,
    kept_from_json,
    redo,
    tables_of,
)
from domains.engine.clock import latest
from domains.errors import StorageFailure
from domains.language.types import Delta, TableSchema
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from domains.store.row_types import RowTypes
from domains.store.widening import widening
from worker.archive.folding import fold
from worker.archive.manifests import all_manifests, load_manifest, take_over
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook
from worker.embedded import shard_directory
from worker.protocol.operations import ArchivedShard, RebuildShard, RebuiltTable, ShardRebuilt
from worker.rocks.acknowledged import AcknowledgedRecord
from worker.rocks.store import RocksStore

STEP_ROWS = 4_096
"""Rows of one write to RocksDB; more make it no faster."""

Loaded = Callable[[int], None]


def rebuild_table(
    store: RocksStore,
    place: Place,
    manifest: ShardManifest,
    position: int,
    *,
    schema: TableSchema | None = None,
    identity: str | None = None,
    scratch: Path | None = None,
    loaded: Loaded = lambda rows: None,
    behind: Iterable[list[Delta]] = (),
) -> int:
    """Load the fold at a position into a new table of a store that writes no log; answers how many rows it has. The
    table's position is then the fold's, and its log begins there. A restore uses this, too.

    ``schema`` is the table's, if it was altered since the position. ``identity`` is the manifest's only if the table
    goes on with the same archive. ``loaded`` is told of each part's rows. ``behind`` are changes of what was loaded, in
    the width of ``schema``. The table is durable once the store is synced
    or closed.

    :raises ArchiveError: a row is missing or does not fit; the store must then be thrown away.
    """
    wanted = schema or manifest.schema_at(position)
    widen, width = widening(manifest.schema_at(position), wanted), len(wanted.columns)
    table, types = store.create_table(wanted, identity), RowTypes(wanted)
    total = 0
    for part in fold(place, manifest, position, scratch=scratch):
        for at in range(0, len(part), STEP_ROWS):
            deltas: list[Delta] = [(widen(row)[:width], weight) for row, weight in part[at : at + STEP_ROWS]]
            check_rows(types, manifest.shard, [row for row, _ in deltas])
            table.stage(deltas)
            store.commit([])
            total += sum(weight for _, weight in deltas)
        loaded(sum(weight for _, weight in part))
    for deltas in behind:
        check_rows(types, manifest.shard, [row for row, weight in deltas if weight > 0])
        table.stage(deltas)
        store.commit([])
        total += sum(weight for _, weight in deltas)
    table.raise_auto_increment(manifest.auto_increment)
    if position:
        store.commit([(wanted.name, position, [])])
    else:
        store.commit([])
    return total


REBUILT = "rebuilt.json"

_log = logging.getLogger("headrace.worker")


@dataclass(frozen=True, slots=True)
class Source:
    """A table is loaded from the fold of this manifest at its last position."""

    place: Place
    manifest: ShardManifest
    run: bool = False


def archived_shard(place: Place, shard: int) -> ArchivedShard:
    """The archived position of each base shard of this number. Raises ArchiveError."""
    manifests = [each for each in all_manifests(place) if each.shard == shard]
    rows = sum(segment.rows for each in manifests for segment in each.fold_of(each.position))
    return ArchivedShard({each.base: each.position for each in manifests}, place.url, rows)


def rebuild_shard(
    data: Path, url: str, asked: RebuildShard, loaded: Callable[[int], None] = lambda rows: None
) -> ShardRebuilt:
    """Rebuild the shard below ``data``, or answer the result if that was done for the same decision. It may take long;
    ``loaded`` is told of rows as they are loaded.

    :raises ArchiveError: something is missing or damaged; nothing is changed.
    :raises StorageFailure: the disk fails, or another worker of the directory is rebuilding the shard.
    """
    directory = shard_directory(data, asked.shard)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _alone(directory):
            found = _made(directory, asked.decided)
            if found is None:
                found = _make(directory, Place(url), asked, loaded)
    except OSError as error:
        raise StorageFailure(f"cannot rebuild {directory}: {error.strerror or error}") from error
    return found


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """A lock, which ends with the process at the latest. Raises StorageFailure if another process has it."""
    with (directory.parent / f"lock-{directory.name}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageFailure(f"another worker is rebuilding {directory}", hint="it is waited for") from error
        yield


def _made(directory: Path, decided: int) -> ShardRebuilt | None:
    """The result, if the shard was already rebuilt for this decision."""
    try:
        document = opened(json.loads((directory / REBUILT).read_text("utf-8")))
    except FileNotFoundError:
        return None
    except ValueError as error:
        hint = "move the shard's directory away: it is rebuilt once more"
        raise StorageFailure(f'"{directory / REBUILT}" is damaged: {error}', hint=hint) from error
    if document["decided"] != decided:
        return None
    tables = tuple(RebuiltTable(**each) for each in document["tables"])
    return ShardRebuilt(tables, document.get("transactions", 0), tuple(document.get("halves", ())))


def _make(directory: Path, place: Place, asked: RebuildShard, loaded: Callable[[int], None]) -> ShardRebuilt:
    making = directory.with_name(f"rebuild-{directory.name}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    try:
        manifests = [
            take_over(place, replace(each, epoch=asked.decided))
            for each in all_manifests(place)
            if each.shard == asked.shard and each.base in asked.bases
        ]
        asked = replace(asked, known=latest([asked.known, _acknowledged(directory / "base", asked)]))
        made = _made_new(making, place, manifests, asked, loaded)
        _write(making / REBUILT, sealed({"decided": asked.decided, **asdict(made)}))
        if directory.exists():
            aside = directory.with_name(f"given-up-{directory.name}-{asked.decided}")
            _log.warning("%s is of before the shard was given up: it is now %s", directory, aside)
            directory.rename(aside)
        making.rename(directory)
        _sync(directory.parent)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    for each in made.tables:
        _log.warning("%s: rebuilt as of %d, known up to %d: %d lost", each.base, each.position, each.known, each.lost)
    if asked.copies:
        place.delete_all(copies_directory(asked.decided, asked.shard))
    return made


def _acknowledged(base: Path, asked: RebuildShard) -> Clock:
    """The acknowledged record of an earlier shard that is here and damaged: its positions are exact."""
    try:
        record = AcknowledgedRecord(base)
    except (FileNotFoundError, StorageFailure):  # It is not here, damaged, or still open in another process.
        return {}
    record.close()
    return {each: at for each, schema in asked.bases.items() if (at := record.last.positions.get(schema.name))}


def _made_new(
    making: Path, place: Place, manifests: list[ShardManifest], asked: RebuildShard, loaded: Callable[[int], None]
) -> ShardRebuilt:
    """All tables, in a store below ``making``; from runs if these count."""
    copies = _copies(place, asked)
    if asked.runs:
        try:
            sources = [_source(place, each, Place(asked.runs)) for each in manifests]
            return _load(making, manifests, sources, asked, copies, loaded)
        except ArchiveError as error:
            # If it is the archive itself, the next attempt reports it.
            _log.warning("the runs of shard %d are not used: %s", asked.shard, error)
            shutil.rmtree(making / "base", ignore_errors=True)
    return _load(making, manifests, [Source(place, each) for each in manifests], asked, copies, loaded)


def _copies(place: Place, asked: RebuildShard) -> list[KeptTransaction]:
    """What the other shards have left, but for what is in a cut, and so is archived here. Raises ArchiveError."""
    files = [copies_file(asked.decided, asked.shard, other) for other in asked.copies]
    kept = [each for file in files for each in kept_from_json(place.read(file), place.shown(file))]
    cut = RecipeBook(place).cut_at() if kept else None
    settled = cut.closed().settled if cut is not None and cut.is_whole else ()
    return [each for each in kept if each.id not in settled]


def _source(place: Place, manifest: ShardManifest, runs: Place) -> Source:
    """``manifest`` is the archive's, taken over. Raises ArchiveError."""
    if not manifest.position:
        return Source(place, manifest)
    run = load_manifest(runs, manifest.table, manifest.shard)
    if run is not None and (run.identity, run.position) == (manifest.identity, manifest.position):
        return Source(runs, replace(run, auto_increment=manifest.auto_increment), run=True)
    _log.warning("%s: the archive has gone on since it was sorted, and is folded again", manifest.base)
    return Source(place, manifest)


def _load(
    making: Path,
    manifests: list[ShardManifest],
    sources: list[Source],
    asked: RebuildShard,
    copies: list[KeptTransaction],
    loaded: Callable[[int], None],
) -> ShardRebuilt:
    store, tables = RocksStore(making / "base", keep_log=False), list[RebuiltTable]()
    try:
        for manifest, source in zip(manifests, sources, strict=True):
            position, schema = manifest.position, manifest.schemas[-1]
            rows = rebuild_table(
                store,
                source.place,
                source.manifest,
                position,
                schema=schema,
                identity=manifest.identity,
                scratch=making,
                loaded=loaded,
            )
            known = max(position, asked.known.get(manifest.base, 0))
            if known > position:
                store.commit([(manifest.table, known, [])])
            tables.append(RebuiltTable(manifest.base, position, rows, known, source.run))
        archived, named = {each.base for each in manifests}, tables_of(copies, asked.shard)
        for base, schema in sorted(asked.bases.items()):
            # Created after the last archiving: its rows are lost, but others know its positions, or some of its rows.
            known = asked.known.get(base, 0)
            if base not in archived and (known or schema.name in named):
                store.create_table(schema)
                store.commit([(schema.name, known, [])] if known else ())
                tables.append(RebuiltTable(base, 0, 0, known))
        there = {each.table: each.transactions for each in manifests}
        redone = redo(store, DomainIndex(asked.shard), asked.shards, copies, there)
        if redone.transactions:
            _log.warning(
                "shard %d: %d transactions are brought back that others had kept, %d rows were in their way",
                *(asked.shard, redone.transactions, redone.displaced),
            )
        for id in redone.halves:
            _log.error('shard %d: its part of transaction "%s" was too large to be kept, and is lost', asked.shard, id)
        store.sync()
        return ShardRebuilt(tuple(tables), redone.transactions, tuple(redone.halves))
    finally:
        store.close()


def _write(path: Path, document: object) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)


def _sync(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
