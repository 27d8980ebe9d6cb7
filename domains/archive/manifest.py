"""The description of an archive: segments and manifests, and which of them give a table as of a position. Pure values.

One shard of one base table is a directory of Parquet files and a manifest that names those of them that count::

    ROOT/table=votes/shard=0/manifest.json                     replaced as a whole; what it does not name is not there
    ROOT/table=votes/shard=0/log-…01-…4096-….parquet           the log entries 1 to 4096
    ROOT/table=votes/shard=0/log-…4097-…5000-….parquet
    ROOT/table=votes/shard=0/snapshot-…4096-….parquet          all rows as of position 4096: stands for all before it

    position 4500  =  the snapshot at 4096  +  of the log 4097 … 5000 what has _seq <= 4500

The *fold* at a position sums ``_weight`` over equal rows: those with zero vanish, and a sum below zero is damage. A log
segment covers a range of sequences, whether or not each of them has an entry, so that the next one begins right behind
it and a missing file is a gap that has a name. Nothing damaged or missing is ever skipped: each error names it.

A table that is dropped and created again is another one, though it has the same name: its ``identity`` differs. The
columns of the files are in ``rows.py``; the files themselves are written by ``worker/archive``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal
from urllib.parse import quote
from zlib import crc32

from domains.errors import (
    ArchiveAhead as ArchiveAhead,
)
from domains.errors import (
    ArchiveError as ArchiveError,
)
from domains.errors import (
    ArchiveFenced as ArchiveFenced,
)
from domains.errors import (
    ArchiveGap as ArchiveGap,
)
from domains.errors import (
    ArchiveUnreachable as ArchiveUnreachable,
)
from domains.errors import (
    ArchiveUnusable as ArchiveUnusable,
)
from domains.errors import (
    ManifestDamaged as ManifestDamaged,
)
from domains.errors import (
    NotArchivedYet as NotArchivedYet,
)
from domains.errors import (
    OtherTable as OtherTable,
)
from domains.errors import (
    SegmentCorrupt as SegmentCorrupt,
)
from domains.errors import (
    SegmentMissing as SegmentMissing,
)
from domains.errors import (
    SegmentTruncated as SegmentTruncated,
)
from domains.language.json_rows import schema_from_json, schema_to_json
from domains.language.types import Row, TableSchema
from domains.plan.sharding import base_shard
from domains.store.row_types import RowTypes

# A JSON document carries a checksum of its content, so that a bit that turned on a disk is noticed. A document without
# one is of an earlier version, or the bit was in the checksum's own name; nothing else of it is known to be wrong.

CHECKSUM = "checksum"


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its checksum as the last of its names."""
    return {**document, CHECKSUM: _checksum(document)}


def opened(document: Any) -> dict[str, Any]:
    """The document without its checksum. Raises ValueError where that is another, or where there is no such
    document."""
    if not isinstance(document, dict):
        raise ValueError("it is no object")
    content = {name: value for name, value in document.items() if name != CHECKSUM}
    if CHECKSUM in document and document[CHECKSUM] != _checksum(content):
        raise ValueError("its checksum is another")
    return content


def _checksum(document: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(document, sort_keys=True).encode()):08x}"


FORMAT = 1
"""The format of manifests and segments. Raised with any change that an older reader would misread."""

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Segment:
    """One Parquet file."""

    file: str
    """Relative to the archive's root, with ``/`` between its parts."""
    kind: Literal["log", "snapshot"]
    first: int
    """The first sequence that it covers; 1 for a snapshot."""
    last: int
    """The last one. A snapshot has all rows as of it."""
    rows: int
    bytes: int
    digest: str
    """blake2b of the file, hexadecimal."""
    schema: int
    """Which of the manifest's schemas its columns are."""
    epoch: int
    """Under which it was archived."""
    closed: str
    """When the log was cut for it: UTC, ISO 8601. Segments of all tables that were cut together have the same."""


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """The archived segments of one shard of one base table."""

    table: str
    shard: int
    shards: int
    """The number of the deployment's shards."""
    identity: str
    """The identity of the table's shard: another one after DROP and CREATE."""
    schemas: tuple[TableSchema, ...] = ()
    """Oldest first; each adds columns to the one before, or marks some as dropped."""
    segments: tuple[Segment, ...] = ()
    """Log segments in their order, and snapshots."""
    epoch: int = 0
    """The highest that has written it; see ``ArchiveFenced``."""
    auto_increment: int = 0
    """The last value that was given out when ``position`` was reached."""
    transactions: tuple[str, ...] = ()
    """Those over several shards that have rows here up to ``position``, and were not settled when it was reached."""

    @property
    def base(self) -> str:
        """The name under which clocks count this shard."""
        generation = self.schemas[-1].generation if self.schemas else 0
        return base_shard(self.table, generation, self.shard, self.shards)

    @property
    def position(self) -> int:
        """The last sequence that is archived."""
        return max((segment.last for segment in self.segments), default=0)

    @property
    def begin(self) -> int:
        """The earliest position that can be folded: what is before it was compacted away."""
        logs = [segment.first for segment in self.segments if segment.kind == "log"]
        snapshots = [segment.last for segment in self.segments if segment.kind == "snapshot"]
        if not snapshots or 1 in logs:
            return 0
        return min(snapshots)

    def fold_of(self, position: int) -> tuple[Segment, ...]:
        """The segments of the shard as of a position: the newest snapshot at or below it, then the log after that, in
        order.

        Of the log, only entries above the snapshot's position and not above ``position`` count.

        :raises NotArchivedYet: the archive ends before the position.
        :raises ArchiveGap: a range of the log that it needs is in no segment; named.
        """
        if position > self.position:
            raise NotArchivedYet(
                f'the archive of "{self.base}" ends at {self.position}, before {position}',
                hint="archive up to now first, or ask for an earlier position",
            )
        snapshots = [each for each in self.segments if each.kind == "snapshot" and each.last <= position]
        newest = max(snapshots, key=lambda each: each.last, default=None)
        have = 0 if newest is None else newest.last
        logs: list[Segment] = []
        for segment in sorted(self._logs(), key=lambda each: (each.first, each.last)):
            if segment.last <= have or have >= position:
                continue
            if segment.first > have + 1:
                raise self._gap(have + 1, min(segment.first - 1, position))
            logs.append(segment)
            have = segment.last
        if have < position:
            raise self._gap(have + 1, position)
        return ((newest,) if newest else ()) + tuple(logs)

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges (first, last) of the log that no segment covers, above the earliest snapshot."""
        have = self.begin
        found: list[tuple[int, int]] = []
        for segment in sorted(self._logs(), key=lambda each: each.first):
            if segment.first > have + 1:
                found.append((have + 1, segment.first - 1))
            have = max(have, segment.last)
        return found + ([(have + 1, self.position)] if have < self.position else [])

    def schema_at(self, position: int) -> TableSchema:
        """The table's schema in the last segment of the fold at a position."""
        fold = self.fold_of(position)
        return self.schemas[fold[-1].schema if fold else 0]

    def position_at(self, time: str) -> int:
        """The last position that was archived at or before a time (``Segment.closed`` says what times look like)."""
        return max((segment.last for segment in self.segments if segment.closed <= time), default=0)

    def _logs(self) -> list[Segment]:
        return [each for each in self.segments if each.kind == "log"]

    def _gap(self, first: int, last: int) -> ArchiveGap:
        return ArchiveGap(
            f'the archive of "{self.base}" lacks the log from {first} to {last}',
            hint=f"it can be read from position {self.begin} on"
            if last <= self.begin
            else "see headrace archive check",
        )


def check_rows(types: RowTypes, shard: int, rows: Sequence[Row]) -> None:
    """Check rows that come from an archive before they are stored or built on, as a write's rows are checked.

    :raises SegmentCorrupt: one does not fit its table; it is named.
    """
    misfit = types.misfit(rows)
    if misfit is not None:
        at, why = misfit
        raise SegmentCorrupt(
            f'the archive has a row that does not fit: table "{types.schema.name}", shard {shard}, '
            f"{types.key_of(rows[at])}: {why}",
            hint="restore as of an earlier time or from a back-up; headrace archive check names all that is damaged",
        )


# --- where it is --------------------------------------------------------------------------------------------------


def url_below(url: str, path: str) -> str:
    """What is below an archive, as its URL, which may have a query (``?endpoint_override=…``), or as a path."""
    start, mark, query = url.partition("?") if "://" in url else (url, "", "")
    return f"{start.rstrip('/')}/{path}{mark}{query}"


def _is_inside(file: str) -> bool:
    """Whether a path that is relative to an archive's root stays below it. Whoever gets a back-up from somebody else
    restores what its manifests name."""
    return not file.startswith("/") and not {"", ".", ".."} & set(file.split("/"))


def shard_directory(table: str, shard: int) -> str:
    """Relative to the root: Hive's spelling, which Spark and DuckDB know."""
    return f"table={quote(table, safe='')}/shard={shard}"


def log_file(manifest: ShardManifest, first: int, last: int, epoch: int) -> str:
    """The name has all that tells it from any other, so that nobody ever writes over a file that counts."""
    return f"{_directory(manifest)}/log-{first:020}-{last:020}-{epoch}-{manifest.identity}.parquet"


def snapshot_file(manifest: ShardManifest, position: int, epoch: int, maker: str = "") -> str:
    """``maker`` tells those apart who may make the same one at the same time."""
    made = f"-{maker}" if maker else ""
    return f"{_directory(manifest)}/snapshot-{position:020}-{epoch}-{manifest.identity}{made}.parquet"


def manifest_file(table: str, shard: int) -> str:
    return f"{shard_directory(table, shard)}/{MANIFEST}"


def former_manifest_file(manifest: ShardManifest) -> str:
    """The file to which a dropped table's manifest goes when another table of its name is created."""
    return f"{_directory(manifest)}/manifest-{manifest.identity}.json"


def _directory(manifest: ShardManifest) -> str:
    return shard_directory(manifest.table, manifest.shard)


# --- JSON ---------------------------------------------------------------------------------------------------------


def manifest_to_json(manifest: ShardManifest) -> dict[str, Any]:
    document: dict[str, Any] = {"format": FORMAT, "position": manifest.position}
    document |= {field.name: getattr(manifest, field.name) for field in fields(manifest)}
    document["schemas"] = [schema_to_json(schema) for schema in manifest.schemas]
    document["segments"] = [asdict(segment) for segment in manifest.segments]
    return sealed(document)


def manifest_from_json(document: Any, file: str) -> ShardManifest:
    """``file`` is named in errors.

    :raises ManifestDamaged: it is not a manifest, or of another format.
    """
    if not isinstance(document, dict) or "format" not in document:
        raise ManifestDamaged(f'"{file}" is not a manifest')
    try:
        document = opened(document)
    except ValueError as error:
        raise ManifestDamaged(f'the manifest "{file}" is damaged: {error}') from error
    if document["format"] != FORMAT:
        raise ManifestDamaged(
            f'"{file}" has format {document["format"]}, this program reads {FORMAT}',
            hint="read it with the version of headrace that wrote it",
        )
    try:
        manifest = ShardManifest(
            table=document["table"],
            shard=document["shard"],
            shards=document["shards"],
            identity=document["identity"],
            schemas=tuple(schema_from_json(each) for each in document["schemas"]),
            segments=tuple(Segment(**each) for each in document["segments"]),
            epoch=document["epoch"],
            auto_increment=document["auto_increment"],
            transactions=tuple(document.get("transactions", ())),
        )
        complete = manifest.position == document["position"]
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestDamaged(f'the manifest "{file}" is damaged: {error!r}') from error
    if any(not _is_inside(each.file) for each in manifest.segments):
        raise ManifestDamaged(f'the manifest "{file}" names a file outside of its archive')
    if not complete or any(not 0 <= each.schema < len(manifest.schemas) for each in manifest.segments):
        raise ManifestDamaged(f'the manifest "{file}" is damaged: it contradicts itself')
    return manifest
