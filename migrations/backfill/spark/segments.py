"""The archive's files as a job sees them: opened by URL, and each checked before a row of it counts.

The driver reads manifests; it, or tasks where there is much to read, checks files, each one as a whole, by its length
and digest: Spark's own reader would take a file that was cut at a row group for a shorter one, or fail with the name of
a class. It is read twice that way, the second time mostly out of the page cache. File systems are pyarrow's (``file``,
``s3``, ``hdfs``, ``gs``); Spark has the same under names of its own (``s3a``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow.fs
from pyspark.sql import SparkSession

from domains.archive.manifest import (
    ArchiveError,
    Segment,
    SegmentCorrupt,
    SegmentMissing,
    SegmentTruncated,
    ShardManifest,
    manifest_file,
    manifest_from_json,
)
from migrations.backfill.spark.reporting import Marked, error_of

CHUNK = 4 * 2**20
"""Bytes that are read of a file at once, to be digested."""

CHECKS_A_TASK = 8
"""Files; a task of its own for each would take longer to start than to check a small one."""

CHECKED_HERE = 256 * 2**20
"""Bytes of files that the driver checks by itself: half a second, in which a job has hardly begun."""

_SPARKS_NAMES = {"s3": "s3a", "s3a": "s3a"}

_YES = ("1", "true")
"""The values that pyarrow reads as a switch's yes in a URL."""


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """An archive by its URL, or the path of its directory. Picklable: each worker opens it by itself."""

    url: str

    def open(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """The file system, and the root's path in it."""
        parts = urlsplit(self.url)
        if not parts.scheme:
            return pyarrow.fs.LocalFileSystem(), str(Path(self.url).absolute())
        url = self.url.replace("s3a://", "s3://", 1)
        try:
            filesystem, path = pyarrow.fs.FileSystem.from_uri(url)
        except (OSError, ValueError) as error:
            raise ArchiveError(f'cannot open the archive "{self.url}": {error}') from error
        return filesystem, str(path).rstrip("/")

    def for_spark(self, file: str) -> str:
        """The file as Spark's reader is given it: not quoted, which it would take for a part of the name."""
        parts = urlsplit(self.url)
        if not parts.scheme or parts.scheme == "file":
            return f"file://{Path(unquote(parts.path) if parts.scheme else self.url).absolute()}/{file}"
        scheme = _SPARKS_NAMES.get(parts.scheme, parts.scheme)
        # Keys are not for it: Hadoop refuses a URL with them, and takes those of the environment.
        bucket = parts.netloc.rpartition("@")[2] if scheme == "s3a" else parts.netloc
        return f"{scheme}://{bucket}{unquote(parts.path).rstrip('/')}/{file}"

    def options_for_spark(self) -> dict[str, str]:
        """Hadoop's settings, as options of Spark's reader, for what pyarrow finds in the URL's query."""
        parts = urlsplit(self.url)
        if _SPARKS_NAMES.get(parts.scheme) != "s3a":
            return {}
        query = dict(parse_qsl(parts.query))
        options = {}
        if "region" in query:
            options["fs.s3a.endpoint.region"] = query["region"]
        if "endpoint_override" in query:
            scheme = query.get("scheme", "https")
            options["fs.s3a.endpoint"] = f"{scheme}://{query['endpoint_override'].rpartition('://')[2]}"
            options["fs.s3a.connection.ssl.enabled"] = str(scheme == "https").lower()
            # pyarrow names the bucket in the path there, not in the host.
            virtual = query.get("force_virtual_addressing", "").lower() in _YES
            options["fs.s3a.path.style.access"] = str(not virtual).lower()
        return options

    def manifest(self, table: str, shard: int) -> ShardManifest:
        """Raises ArchiveError where there is none, or where it is damaged."""
        filesystem, root = self.open()
        file = manifest_file(table, shard)
        try:
            with filesystem.open_input_stream(f"{root}/{file}") as stream:
                return manifest_from_json(json.loads(stream.readall()), file)
        except FileNotFoundError as error:
            raise SegmentMissing(
                f'nothing of table "{table}" shard {shard} is in the archive "{self.url}"',
                hint="archive up to now first: POST /v1/archive",
            ) from error
        except ValueError as error:
            raise ArchiveError(f'the manifest "{file}" is damaged: {error}') from error


def check(filesystem: pyarrow.fs.FileSystem, root: str, segment: Segment) -> None:
    """Raises SegmentMissing, SegmentTruncated or SegmentCorrupt, each of which names the file."""
    try:
        stream = filesystem.open_input_stream(f"{root}/{segment.file}")
    except FileNotFoundError as error:
        raise SegmentMissing(
            f'the segment "{segment.file}" is missing', hint="restore it from a back-up; nothing is read without it"
        ) from error
    found, size = blake2b(digest_size=max(1, len(segment.digest) // 2)), 0
    with stream:
        while data := stream.read(CHUNK):
            size += len(data)
            found.update(data)
    if size < segment.bytes:
        raise SegmentTruncated(f'the segment "{segment.file}" has {size} bytes of {segment.bytes}', hint=_RESTORE)
    if found.hexdigest() != segment.digest:
        raise SegmentCorrupt(f'the segment "{segment.file}" differs from what was written', hint=_RESTORE)


_RESTORE = "restore it from a back-up; a damaged segment is never skipped"


def check_all(spark: SparkSession, files: ArchiveFiles, segments: Sequence[Segment]) -> None:
    """:func:`check` for each of the files, by tasks where they are large; the first that is wrong is raised."""
    wanted = sorted({segment.file: segment for segment in segments}.values(), key=lambda each: -each.bytes)
    if sum(segment.bytes for segment in wanted) <= CHECKED_HERE:
        filesystem, root = files.open()
        for segment in wanted:
            check(filesystem, root, segment)
        return

    def look(some: Iterable[Segment]) -> Iterable[int]:
        filesystem, root = files.open()
        count = 0
        for segment in some:
            try:
                check(filesystem, root, segment)
            except ArchiveError as error:
                raise Marked(error) from error
            count += 1
        return [count]

    slices = max(1, min(len(wanted), -(-len(wanted) // CHECKS_A_TASK), 1024))
    try:
        checked: int = sum(spark.sparkContext.parallelize(wanted, slices).mapPartitions(look).collect())
    except Exception as error:
        raise error_of(error) from error
    assert checked == len(wanted), f"{checked} of {len(wanted)} segments were checked"
