"""The manifest of a shard: read, taken over, changed.

A process that changes one reads it first, compares its epoch with its own, and replaces the whole. If the shard has
gone on elsewhere the manifest has a later epoch, and its former host, which may not know yet, gets an error. In a
directory this happens under a lock; behind a URL it does not: a conflict within the same milliseconds shows at the next
change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import unquote

from domains.archive.manifest import (
    ArchiveFenced,
    ManifestDamaged,
    OtherTable,
    ShardManifest,
    former_manifest_file,
    manifest_file,
    manifest_from_json,
    manifest_to_json,
    shard_directory,
)
from worker.archive.place import Place


def load_manifest(place: Place, table: str, shard: int) -> ShardManifest | None:
    """None if nothing is archived. Raises ManifestDamaged, ArchiveUnreachable."""
    return _read(place, manifest_file(table, shard))


def all_manifests(place: Place, *, former: bool = False) -> list[ShardManifest]:
    """The manifests of all archived shards, by name; ``former``: also those of dropped tables."""
    found: list[ShardManifest] = []
    for directory in place.directories():
        if not directory.startswith("table="):
            continue
        table = unquote(directory.removeprefix("table="))
        for below in place.directories(directory):
            shard = below.removeprefix("shard=")
            if not below.startswith("shard=") or not shard.isdecimal():
                continue
            present = load_manifest(place, table, int(shard))
            found += [present] if present is not None else []
            found += former_manifests(place, table, int(shard)) if former else []
    return found


def former_manifests(place: Place, table: str, shard: int) -> list[ShardManifest]:
    """The manifests of dropped tables of this name, as far as they are kept."""
    directory = shard_directory(table, shard)
    names = [name for name in place.files(directory) if name.startswith("manifest-") and name.endswith(".json")]
    read = [_read(place, f"{directory}/{name}") for name in names]
    return [manifest for manifest in read if manifest is not None]


def take_over(place: Place, new: ShardManifest) -> ShardManifest:
    """Become the writer of a shard's manifest; ``new`` has the table and the epoch.

    An existing manifest goes on if it is of the same table; that of another table is put aside.

    :raises ArchiveFenced: a later epoch has it.
    :raises OtherTable: the archive is of a deployment with another number of shards.
    """
    directory = shard_directory(new.table, new.shard)
    with place.locked(directory):
        there = load_manifest(place, new.table, new.shard)
        if there is not None:
            _fence(there, new.epoch)
            if there.shards != new.shards:
                raise OtherTable(
                    f'"{place.shown(directory)}" is of a deployment of {there.shards} shards, not {new.shards}',
                    hint="give every deployment an archive of its own",
                )
            if there.identity != new.identity:
                _write(place, former_manifest_file(there), there)
                there = None
        taken = new if there is None else replace(there, epoch=new.epoch)
        if taken != there:
            _write(place, manifest_file(new.table, new.shard), taken)
    return taken


def change_manifest(
    place: Place, known: ShardManifest, change: Callable[[ShardManifest], ShardManifest]
) -> ShardManifest:
    """Replace the manifest, which this process knows as ``known``, by what ``change`` makes of it.

    :raises ArchiveFenced: a later epoch has taken it over since.
    :raises OtherTable: the table was dropped and another created.
    """
    with place.locked(shard_directory(known.table, known.shard)):
        there = load_manifest(place, known.table, known.shard)
        if there is None:
            raise ManifestDamaged(
                f'the manifest "{place.shown(manifest_file(known.table, known.shard))}" is gone',
                hint="bring it back from a back-up, or give another archive",
            )
        _fence(there, known.epoch)
        if there.identity != known.identity:
            raise OtherTable(f'"{known.base}" was dropped, and a table of its name created, since it was looked at')
        changed = change(there)
        if changed != there:
            _write(place, manifest_file(known.table, known.shard), changed)
    return changed


def write_manifest(place: Place, manifest: ShardManifest) -> None:
    """Write the manifest without a check, for a back-up, which has no other writer."""
    _write(place, manifest_file(manifest.table, manifest.shard), manifest)


def _fence(there: ShardManifest, epoch: int) -> None:
    if there.epoch > epoch:
        raise ArchiveFenced(
            f'the archive of "{there.base}" was taken over in epoch {there.epoch}, this is {epoch}',
            hint="its shard has gone on elsewhere",
        )


def _read(place: Place, file: str) -> ShardManifest | None:
    data = place.read(file)
    if data is None:
        return None
    shown = place.shown(file)
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ManifestDamaged(f'the manifest "{shown}" is damaged: {error}') from error
    return manifest_from_json(document, shown)


def _write(place: Place, file: str, manifest: ShardManifest) -> None:
    place.replace(file, json.dumps(manifest_to_json(manifest), indent=1).encode())
