"""Files below a URL: a directory, or any file system that pyarrow knows (``s3://``, ``hdfs://``, ``gs://`` …).

Names are relative to the URL, with ``/`` between their parts. A file in a directory of this machine is on its disk when
the call returns, since the base log is trimmed then.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from domains.archive.manifest import ArchiveUnreachable, ArchiveUnusable, url_below
from domains.errors import BadRequest, NotFound

OBJECT_STORES = ("s3", "gcs", "abfs")
"""The object stores, by pyarrow's names. They show an object only when it is wholly written."""

NO_DIRECTORIES = ("s3", "gcs")
"""A directory there is only a common prefix of names, and is not created, which saves a request for each file. Azure's
store may have real ones."""

SPARKS_NAMES = {"s3a": "s3"}
"""Schemes of Spark's settings that are accepted, too."""

GCS_PATIENCE = 10
"""Seconds for which Google's client retries a request. Its default, a quarter of an hour, would keep a process from
stopping; the archiver itself tries again."""

LIBHDFS = "Java with its JAVA_HOME, Hadoop's libhdfs.so with HADOOP_HOME, and CLASSPATH: see docs/archive.md"


def open_file_system(url: str) -> tuple[Any, str]:
    """The file system, and the path in it.

    :raises ArchiveUnusable: there is none for such a URL, or it needs a library that is not here.
    :raises ArchiveUnreachable: any other error, which may pass.
    """
    if "://" not in url:
        return fs.LocalFileSystem(), str(Path(url).expanduser().absolute())
    scheme, _, rest = url.partition("://")
    try:
        opened, path = fs.FileSystem.from_uri(_for_pyarrow(scheme, rest))
    except (ValueError, pa.ArrowException) as error:
        raise ArchiveUnusable(
            f'cannot use "{url}" as an archive: {first_line(error)}',
            hint="give a directory, or a URL that pyarrow understands",
        ) from error
    except OSError as error:
        # For a missing library pyarrow lists every place where it has looked.
        if "load libjvm" in str(error) or "load libhdfs" in str(error):
            told, hint = "libhdfs or Java's libjvm cannot be loaded", f"install {LIBHDFS}"
            raise ArchiveUnusable(f'cannot use "{url}" as an archive: {told}', hint=hint) from error
        raise ArchiveUnreachable(
            f'cannot use "{url}" as an archive: {first_line(error)}', hint=hint_for(opened_by=scheme)
        ) from error
    return opened, str(path)


def _for_pyarrow(scheme: str, rest: str) -> str:
    if scheme in ("gs", "gcs") and "retry_limit_seconds=" not in rest:
        rest = f"{rest}{'&' if '?' in rest else '?'}retry_limit_seconds={GCS_PATIENCE}"
    return f"{SPARKS_NAMES.get(scheme, scheme)}://{rest}"


def check_usable(url: str) -> None:
    """Raises ArchiveUnusable if the URL can never work. An archive that is away for now is no error."""
    if url.partition("://")[0] in (*OBJECT_STORES, *SPARKS_NAMES, "gs", "abfss"):
        return  # Opening these may need a request.
    try:
        open_file_system(url)
    except ArchiveUnusable:
        raise
    except ArchiveUnreachable:
        return


def hint_for(opened_by: str) -> str:
    """The hint for a place that does not work, by its scheme or pyarrow's type name."""
    kind = SPARKS_NAMES.get(opened_by, opened_by)
    if kind == "s3":
        return (
            "see that the bucket is there and answers, and that AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may write"
        )
    if kind in ("gs", "gcs"):
        return "see that the bucket is there and answers, and that GOOGLE_APPLICATION_CREDENTIALS names who may write"
    if kind in ("hdfs", "viewfs"):
        return f"see that it is there, may be written and has room; it needs {LIBHDFS}"
    return "see that it is there, may be written and has room"


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# Times in an archive are UTC, ISO 8601, to the millisecond, so that their texts sort by time.


def time_text(seconds: float) -> str:
    """Seconds since 1970 as ``2026-01-31T08:00:00.000Z``."""
    return _text(datetime.fromtimestamp(seconds, UTC))


def parse_time(text: str) -> str:
    """The same for a time that a person wrote; without a zone it is UTC. Raises BadRequest."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "write it like 2026-01-31T08:00:00Z, or give the token of a write (h1.…), or latest"
        raise BadRequest(f'"{text}" is not a time', hint=hint) from error
    return _text(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))


def after(time: str, earlier: str) -> str:
    """The time, or, if the clock was set back, the first one after the earlier time."""
    return time if time > earlier else _text(datetime.fromisoformat(earlier) + timedelta(milliseconds=1))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


DIGEST_BYTES = 16
"""Bytes of a blake2b digest: enough against damage, not against malice."""

CHUNK_BYTES = 2**20
"""Read at once for a digest."""


class FileSink:
    """A file-like object that passes on what is written, and counts its size and digest."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self.bytes = 0

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._digest.update(view)
        self._stream.write(data)
        self.bytes += view.nbytes
        return view.nbytes

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """Nothing: ``Place.sink`` closes the stream, not Parquet's writer."""


class Place:
    """All methods raise ArchiveUnreachable if the file system fails."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, path = open_file_system(url)
        self.local = isinstance(self._fs, fs.LocalFileSystem)
        """Whether it is a directory of this machine, perhaps a mounted one."""
        self._replaces_whole = self._fs.type_name in OBJECT_STORES
        self._flat = self._fs.type_name == "gcs"
        """Whether pyarrow does not list directories that exist only in names, as in an archive that was copied."""
        self._has_directories = self._fs.type_name not in NO_DIRECTORIES
        self._root = path.rstrip("/")

    def at(self, file: str) -> str:
        """A file's path in the file system."""
        return f"{self._root}/{file}" if file else self._root

    def shown(self, file: str) -> str:
        return url_below(self.url, file) if file else self.url

    def answers(self) -> bool:
        """Whether it can be reached at all. If the server is away, this takes many seconds."""
        try:
            self._fs.get_file_info(self._root or "/")
        except (OSError, pa.ArrowException):
            return False
        return True

    # --- reading ------------------------------------------------------------------------------------------------

    def there(self) -> Place:
        """Itself, for reading. Raises NotFound if there is no such directory, or nothing under the URL."""
        with self._reaching(""):
            info = self._fs.get_file_info(self._root or "/")
        if info.type is not fs.FileType.Directory:
            raise NotFound(f'there is no directory "{self.url}"', hint="a back-up or an archive: see the path")
        return self

    def size(self, file: str) -> int | None:
        """In bytes; None if there is no such file."""
        with self._reaching(file):
            info = self._fs.get_file_info(self.at(file))
        return int(info.size) if info.type is fs.FileType.File else None

    def read(self, file: str) -> bytes | None:
        """None if there is no such file."""
        if self.size(file) is None:
            return None
        with self._reaching(file), self._fs.open_input_stream(self.at(file)) as stream:
            return bytes(stream.read())

    def source(self, file: str) -> Any:
        """The file for Parquet's reader; the caller closes it."""
        with self._reaching(file):
            return self._fs.open_input_file(self.at(file))

    def digest(self, file: str) -> str:
        found = blake2b(digest_size=DIGEST_BYTES)
        with self._reaching(file), self._fs.open_input_stream(self.at(file)) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                found.update(chunk)
        return found.hexdigest()

    def files(self, directory: str = "") -> list[str]:
        """The names of the files directly in a directory, which may be missing."""
        return [info.base_name for info in self._listed(directory) if info.type is fs.FileType.File]

    def directories(self, directory: str = "") -> list[str]:
        return [info.base_name for info in self._listed(directory) if info.type is fs.FileType.Directory]

    def _listed(self, directory: str) -> list[Any]:
        selector = fs.FileSelector(self.at(directory), allow_not_found=True, recursive=self._flat)
        with self._reaching(directory):
            found = self._fs.get_file_info(selector)
        if self._flat:
            found = _directly_below(self.at(directory), found)
        return sorted(found, key=lambda info: str(info.base_name))

    # --- writing ------------------------------------------------------------------------------------------------

    @contextmanager
    def sink(self, file: str) -> Iterator[FileSink]:
        """A new file, which is whole and on disk at the end of the block. After an error it is deleted."""
        with self._reaching(file):
            if self._has_directories:
                self._fs.create_dir(self.at(file).rpartition("/")[0], recursive=True)
            stream = self._fs.open_output_stream(self.at(file))
        try:
            with self._reaching(file):
                with stream:
                    yield FileSink(stream)
                self._sync(file)
        except BaseException:
            self._forget(file)
            raise

    def replace(self, file: str, data: bytes) -> None:
        """Write a file atomically: readers see the old content or the new."""
        if self._replaces_whole:
            with self.sink(file) as sink:
                sink.write(data)
            return
        beside = f"{file}.new-{os.getpid()}"
        with self.sink(beside) as sink:
            sink.write(data)
        with self._reaching(file):
            if not self.local:  # HDFS does not move a file over another.
                self._delete(file)
            self._fs.move(self.at(beside), self.at(file))
            self._sync(file)

    def delete(self, file: str) -> None:
        """Nothing happens if it is not there."""
        with self._reaching(file):
            self._delete(file)

    def delete_all(self, directory: str = "") -> None:
        """Delete a directory with all below it; nothing happens if it is not there."""
        with self._reaching(directory):
            if self._fs.get_file_info(self.at(directory)).type is fs.FileType.Directory:
                self._fs.delete_dir(self.at(directory))

    def copy(self, file: str, source: Place, source_file: str) -> str:
        """Copy a file of another place to ``file``; answers its digest."""
        with (
            self.sink(file) as sink,
            source._reaching(source_file),
            source._fs.open_input_stream(source.at(source_file)) as stream,
        ):
            while chunk := stream.read(CHUNK_BYTES):
                sink.write(chunk)
        return sink.digest

    @contextmanager
    def locked(self, directory: str) -> Iterator[None]:
        """A lock among the processes of this machine. A URL has no locks: there only the epoch tells apart two changes
        within the same milliseconds."""
        if not self.local:
            yield
            return
        with self._reaching(directory):
            Path(self.at(directory)).mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.at(f"{directory}/.lock"), os.O_CREAT | os.O_RDWR, 0o644)
        try:
            with self._reaching(directory):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _delete(self, file: str) -> None:
        if self._fs.get_file_info(self.at(file)).type is fs.FileType.File:
            self._fs.delete_file(self.at(file))

    def _forget(self, file: str) -> None:
        """Delete an incomplete file, which does no harm if that fails."""
        try:
            self._delete(file)
        except (OSError, pa.ArrowException):
            return

    def _sync(self, file: str) -> None:
        """Sync the file and its name."""
        if not self.local:
            return
        for path in (Path(self.at(file)), Path(self.at(file)).parent):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _reaching(self, file: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise ArchiveUnreachable(
                f'cannot use "{self.shown(file)}": {first_line(error)}', hint=hint_for(self._fs.type_name)
            ) from error


def _directly_below(directory: str, found: list[Any]) -> list[Any]:
    """The files directly in a directory, and its directories, out of a list of all files below it."""
    below: dict[str, Any] = {}
    for info in found:
        name, _, rest = info.path.removeprefix(f"{directory}/").partition("/")
        if not rest:
            below[name] = info
        else:
            below.setdefault(name, fs.FileInfo(f"{directory}/{name}", fs.FileType.Directory))
    return list(below.values())
