"""Taking a back-up: of a deployment that runs, through its archive, or of a data directory that nobody uses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace_client import calls
from headrace_client.connection import Connection
from headrace_client.results import Archived

from domains.archive.manifest import (
    ArchiveError,
    Segment,
    SegmentCorrupt,
    SegmentMissing,
    ShardManifest,
    log_file,
    manifest_file,
)
from domains.archive.transactions import PartPlace, missing_parts, part_of, parts_told
from domains.language.json_rows import schema_from_json
from domains.language.types import TableSchema
from domains.plan.packets import Clock
from domains.plan.sharding import base_shards
from headrace.backup.choosing import BackupContents, read_contents, tables_of
from headrace.errors import AlreadyExists, NotFound, SnapshotGone, StorageFailure
from migrations.parse.temporary import is_hidden
from migrations.recipe import Recipe
from worker.archive.manifests import all_manifests, write_manifest
from worker.archive.place import Place, after, time_text
from worker.archive.recipes import RecipeBook, RecipeRecord
from worker.archive.segments import copy_up_to
from worker.archive.shard import ShardArchive
from worker.embedded import base_directories, shards_of
from worker.rocks.store import RocksStore
from zookeeper.errors import SlotsDamaged
from zookeeper.local_authority import stored_state

TRIES = 3
"""Tries to copy a manifest's files: the archive may delete one in between, once an hour at most."""

ALL = 2**62
"""No number is greater: a store that nobody uses is all of one moment."""
VERSION_MAX = (ALL, 0)
"""The cut's own record is the last one."""

Told = Callable[[str], None]


def back_up_running(
    connection: Connection, dest: str, tell: Told = lambda text: None, *, snapshot: str | None = None
) -> BackupContents:
    """Archive up to now, and copy the archive, or what it has up to a snapshot. The server goes on serving.

    :raises BadRequest: the server has no archive. :raises ArchiveError: a file is missing or damaged, or the archive
        does not reach back to the snapshot. :raises SnapshotGone: it is not kept, or has tables of no recipe.
    """
    target = _empty(dest)
    kept = None if snapshot is None else connection.send(calls.snapshot(snapshot))
    copied: dict[str, str] = {}
    for left in reversed(range(TRIES)):
        archived = connection.send(calls.archive())
        source = Place(archived.url)
        tell(f"archived up to {sum(archived.positions.values()):,} writes in {len(archived.positions)} shards")
        if kept is not None:
            archived = _as_of(kept, archived, RecipeBook(source))
        try:
            manifests = [_copied(source, target, base, archived, copied) for base in archived.positions]
            break
        except Outrun:
            if not left:
                raise
    files = {segment.file: segment.digest for manifest in manifests for segment in manifest.segments}
    for file in copied.keys() - files.keys():  # Of a cut that could not be copied to its end.
        target.delete(file)
    book = RecipeBook(target)
    told: Sequence[dict[str, Any]] = ()
    lost: Sequence[PartPlace] = ()
    closed = archived.time
    for record in RecipeBook(source).records():
        if record.number <= archived.number and _is_within(archived, record.positions):
            book.write(record)
            closed = after(closed, record.time)
    for earlier in RecipeBook(source).cuts():
        mine = earlier.number > 0 and earlier.record.number <= archived.number
        if mine and _is_within(archived, earlier.positions):
            book.write_cut(earlier)
            closed = after(closed, earlier.time)
        if earlier.positions == archived.positions and earlier.record.number == archived.number:
            told, lost = earlier.told, earlier.lost
    cut = RecipeRecord(
        closed if kept is not None else archived.time,
        archived.positions,
        archived.identities,
        archived.shards,
        json.dumps(archived.recipe),
        number=archived.number,
        version=VERSION_MAX,
        is_cut=True,
        told=told,
        lost=lost,
    )
    return _finish(target, manifests, cut, files)


def _is_within(archived: Archived, positions: Clock) -> bool:
    return all(at <= archived.positions.get(base, at) for base, at in positions.items())


def _as_of(snapshot: dict[str, Any], archived: Archived, book: RecipeBook) -> Archived:
    """What is archived of a snapshot, with the last recipe that has exactly its tables.

    A snapshot has no part of a transaction that is committed: all that was decided had been done everywhere
    (``controller/transactions/snapshots.py``). So its positions are closed, and nothing has to be added to them.

    :raises SnapshotGone: there is none."""
    tables = {each.name: each for each in map(schema_from_json, snapshot["tables"]) if not is_hidden(each.title)}
    for record in reversed(book.records()):
        recipe = Recipe.from_json(record.recipe.encode())
        then = {each.name: each for each in tables_of(recipe, record.shards) if not is_hidden(each.title)}
        bases = [base for each in tables.values() for base in base_shards(each, record.shards)]
        if record.number <= archived.number and then == tables and record.identities.keys() >= set(bases):
            return replace(
                archived,
                positions={base: snapshot["positions"][base] for base in bases},
                identities={base: record.identities[base] for base in bases},
                recipe=json.loads(record.recipe),
                number=record.number,
                time=time_text(datetime.fromisoformat(snapshot["at"]).timestamp()),
            )
    raise SnapshotGone(
        f'no archived recipe has exactly the tables of snapshot "{snapshot["name"]}": some were made or altered since',
        hint="archive after changes of tables (POST /v1/archive), or take another snapshot",
    )


def back_up_stopped(data: Path, dest: str, tell: Told = lambda text: None) -> BackupContents:
    """Write a snapshot of every table of an embedded server's data directory, which no process may have open.

    :raises StorageFailure: a server has it open, or it is damaged.
    """
    recipe = data / "recipe.json"
    if not recipe.is_file():
        raise NotFound(
            f'"{data}" is not the data directory of a server',
            hint="a cluster is backed up while it runs, by --url of one of its api processes",
        )
    shards = shards_of(data)
    target, closed = _empty(dest), time_text(time.time())
    manifests, told = [], list[dict[str, Any]]()
    with ExitStack() as opened:
        for shard, directory in enumerate(base_directories(data, shards)):
            store = RocksStore(directory, create=False)
            opened.callback(store.close)
            schemas: dict[str, tuple[str, TableSchema]] = {}
            for schema in store.tables():
                if schema.filling:
                    continue
                cut = store.cut(schema.name, rows=True)
                archive = ShardArchive.open(target, cut, shard, shards, 1)
                if cut.position:
                    archive.begin(cut, closed)
                manifests.append(archive.manifest)
                schemas[schema.name] = archive.manifest.base, cut.schema
                tell(f"{archive.manifest.base}: {sum(each.rows for each in archive.manifest.segments):,} rows")
            prepared = {id: record for id, record in store.records().items() if not record.is_committed}
            told += parts_told(shard, ALL, prepared, store.parts(), schemas)
    files = {segment.file: segment.digest for manifest in manifests for segment in manifest.segments}
    positions = {manifest.base: manifest.position for manifest in manifests}
    identities = {manifest.base: manifest.identity for manifest in manifests}
    lost = sorted(missing_parts(map(part_of, told)))
    record = RecipeRecord(
        closed, positions, identities, shards, _stored(recipe), number=1, is_cut=True, told=told, lost=lost
    )
    return _finish(target, manifests, record, files)


def _stored(recipe: Path) -> str:
    try:
        return stored_state(recipe).decode()
    except SlotsDamaged as error:
        raise StorageFailure(error.message, hint=error.hint) from error


def _empty(dest: str) -> Place:
    place = Place(dest)
    if read_contents(place) is not None or place.files() or place.directories():
        raise AlreadyExists(f'"{dest}" is not empty', hint="give every back-up a directory of its own")
    return place


class Outrun(ArchiveError):
    """The archive has gone on, and let go what was to be copied."""


def _copied(source: Place, target: Place, base: str, archived: Archived, files: dict[str, str]) -> ShardManifest:
    """Copy what a shard's archive has up to the cut, also where its table was dropped since; answers the manifest of
    that."""
    position, wanted = archived.positions[base], (base, archived.identities[base])
    for left in reversed(range(TRIES)):
        there = all_manifests(source, former=True)
        manifest = next((each for each in there if (each.base, each.identity) == wanted), None)
        if manifest is None:
            raise Outrun(f'"{source.url}" has no archive of "{base}"', hint="can this machine see the same URL?")
        cut = replace(manifest, segments=tuple(each for each in manifest.segments if each.last <= position))
        within = [each for each in manifest.segments if each.kind == "log" and each.first <= position < each.last]
        if cut.position != position and not within:  # It has been folded into a later snapshot.
            raise Outrun(
                f'the archive of "{base}" has let go of position {position} while it was copied',
                hint="give --archive-retention more than a back-up takes, and try again into another directory",
            )
        try:
            for segment in cut.segments:
                if segment.file not in files:
                    files[segment.file] = _copy(source, target, segment.file, segment.digest)
            if cut.position != position:
                part = _part(source, target, manifest, within[0], position)
                files[part.file] = part.digest
                cut = replace(cut, segments=(*cut.segments, part))
            break
        except SegmentMissing:
            if not left:
                raise
    write_manifest(target, cut)
    return cut


def _part(source: Place, target: Place, manifest: ShardManifest, segment: Segment, position: int) -> Segment:
    """Of a segment of the log what is up to a position."""
    file, schema = log_file(manifest, segment.first, position, segment.epoch), manifest.schemas[segment.schema]
    written = copy_up_to(source, segment, schema, position, target, file)
    return replace(segment, file=file, last=position, **asdict(written))


def _copy(source: Place, target: Place, file: str, digest: str) -> str:
    if source.size(file) is None:
        raise SegmentMissing(f'segment "{source.shown(file)}" is missing', hint=_BROKEN_OFF)
    if target.copy(file, source, file) != digest:
        target.delete(file)
        raise SegmentCorrupt(f'segment "{source.shown(file)}" is corrupt: its digest is another', hint=_BROKEN_OFF)
    return digest


_BROKEN_OFF = "headrace archive check names all that is damaged; what was copied until now is no back-up: delete it"


def _finish(target: Place, manifests: list[ShardManifest], cut: RecipeRecord, files: dict[str, str]) -> BackupContents:
    """The recipe as it was at the cut, and what there is."""
    RecipeBook(target).write(cut)
    others = [manifest_file(manifest.table, manifest.shard) for manifest in manifests]
    others += [f"{directory}/{name}" for directory in ("recipes", "cuts") for name in target.files(directory)]
    contents = BackupContents(
        cut.time, cut.positions, cut.shards, files | {file: target.digest(file) for file in others}
    )
    contents.write(target)
    return contents
