"""Files below a URL: a directory, or whatever pyarrow knows a file system for (``s3://``, ``hdfs://``, ``gs://`` …).

Names are relative to the URL, with ``/`` between their parts. What is written to a directory of this machine is on its
disk when the call returns: the base log is trimmed after it.
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

# A URL's file system: pyarrow's, with what has to be said of each kind, and its errors in one line.

OBJECT_STORES = ("s3", "gcs", "abfs")
"""By pyarrow's names. They show an object when it is written to its end, and not before."""

NO_DIRECTORIES = ("s3", "gcs")
"""Where a directory is what names have in common: none is made, and so nobody must see to the bucket before each file.
Azure's store may have real ones."""

SPARKS_NAMES = {"s3a": "s3"}
"""The archive's URL may be given as in Spark's settings."""

GCS_PATIENCE = 10
"""Seconds for which Google's client tries a request again. Its own quarter of an hour would keep a process that long
from stopping; the archiver tries again by itself."""

LIBHDFS = "Java with its JAVA_HOME, Hadoop's libhdfs.so with HADOOP_HOME, and CLASSPATH: see docs/archive.md"


def open_file_system(url: str) -> tuple[Any, str]:
    """The file system, and the path in it.

    :raises ArchiveUnusable: there is none for such a URL, or it needs a library that is not here.
    :raises ArchiveUnreachable: anything else, which may pass.
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
        # Of a library that is missing, pyarrow tells every place where it has looked, the first time.
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
    """Raises ArchiveUnusable: what can never work is an error at the start. What may be away for now is not waited
    for."""
    if url.partition("://")[0] in (*OBJECT_STORES, *SPARKS_NAMES, "gs", "abfss"):
        return  # To open it may be to ask it for its region.
    try:
        open_file_system(url)
    except ArchiveUnusable:
        raise
    except ArchiveUnreachable:
        return


def hint_for(opened_by: str) -> str:
    """The hint for a place that does not work, by its scheme or pyarrow's name of it."""
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


# Times as an archive writes them: UTC, ISO 8601, to the millisecond, so that their texts are in their order.


def time_text(seconds: float) -> str:
    """Of seconds since 1970: ``2026-01-31T08:00:00.000Z``."""
    return _text(datetime.fromtimestamp(seconds, UTC))


def parse_time(text: str) -> str:
    """The same of what a person wrote; without a zone it is UTC. Raises BadRequest."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "write it like 2026-01-31T08:00:00Z, or give the token of a write (h1.…), or latest"
        raise BadRequest(f'"{text}" is not a time', hint=hint) from error
    return _text(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))


def after(time: str, earlier: str) -> str:
    """The time, or the first one after the earlier one where a clock was set back."""
    return time if time > earlier else _text(datetime.fromisoformat(earlier) + timedelta(milliseconds=1))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


DIGEST_BYTES = 16
"""Of blake2b: against damage, not against malice."""

CHUNK_BYTES = 2**20
"""That are read at once to work out a digest."""


class FileSink:
    """A file-like object that passes on what is written, and knows its size and digest."""

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
        """Nothing is held back here; the file is whole when it is closed."""

    def close(self) -> None:
        """Parquet's writer is not the one who closes the stream."""


class Place:
    """All methods raise ArchiveUnreachable where the place does not do what it is asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, path = open_file_system(url)
        self.local = isinstance(self._fs, fs.LocalFileSystem)
        """Whether it is a directory of this machine, or one that is mounted."""
        self._replaces_whole = self._fs.type_name in OBJECT_STORES
        self._flat = self._fs.type_name == "gcs"
        """Where pyarrow does not list a directory that is only in names: an archive that was copied has no other."""
        self._has_directories = self._fs.type_name not in NO_DIRECTORIES
        self._root = path.rstrip("/")

    def at(self, file: str) -> str:
        """The path by which the file system knows a file."""
        return f"{self._root}/{file}" if file else self._root

    def shown(self, file: str) -> str:
        return url_below(self.url, file) if file else self.url

    def answers(self) -> bool:
        """Whether it can be reached at all. Of a server that is away, that takes many seconds."""
        try:
            self._fs.get_file_info(self._root or "/")
        except (OSError, pa.ArrowException):
            return False
        return True

    # --- reading ------------------------------------------------------------------------------------------------

    def there(self) -> Place:
        """Itself, for who only reads. Raises NotFound where there is no such directory, or nothing under such a URL."""
        with self._reaching(""):
            info = self._fs.get_file_info(self._root or "/")
        if info.type is not fs.FileType.Directory:
            raise NotFound(f'there is no directory "{self.url}"', hint="a back-up or an archive: see the path")
        return self

    def size(self, file: str) -> int | None:
        """In bytes; None where there is no such file."""
        with self._reaching(file):
            info = self._fs.get_file_info(self.at(file))
        return int(info.size) if info.type is fs.FileType.File else None

    def read(self, file: str) -> bytes | None:
        """None where there is no such file."""
        if self.size(file) is None:
            return None
        with self._reaching(file), self._fs.open_input_stream(self.at(file)) as stream:
            return bytes(stream.read())

    def source(self, file: str) -> Any:
        """For Parquet's reader; it is to be closed."""
        with self._reaching(file):
            return self._fs.open_input_file(self.at(file))

    def digest(self, file: str) -> str:
        found = blake2b(digest_size=DIGEST_BYTES)
        with self._reaching(file), self._fs.open_input_stream(self.at(file)) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                found.update(chunk)
        return found.hexdigest()

    def files(self, directory: str = "") -> list[str]:
        """The names of the files directly in a directory; none where it is not there."""
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
        """A new file, which is whole and on disk at the end of the block. One that is broken off is deleted."""
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
        """Write a file as a whole: whoever reads it meanwhile sees what was before, or this."""
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
        """Nothing happens where it is not there."""
        with self._reaching(file):
            self._delete(file)

    def delete_all(self, directory: str = "") -> None:
        """A directory with all below it; nothing happens where it is not there."""
        with self._reaching(directory):
            if self._fs.get_file_info(self.at(directory)).type is fs.FileType.Directory:
                self._fs.delete_dir(self.at(directory))

    def copy(self, file: str, source: Place, source_file: str) -> str:
        """Copy a file of another place to ``file``; answers the digest of what was copied."""
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
        """Nobody else of this machine who asks for the same is in such a block. A URL has no locks: there, changes that
        meet within the same milliseconds are told apart by the epoch alone."""
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
        """The rest of a file that was broken off counts for nothing, whether it can be deleted or not."""
        try:
            self._delete(file)
        except (OSError, pa.ArrowException):
            return

    def _sync(self, file: str) -> None:
        """The file and its name."""
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
    """Of all that is below a directory: its files, and each directory that it has, by whatever is in that."""
    below: dict[str, Any] = {}
    for info in found:
        name, _, rest = info.path.removeprefix(f"{directory}/").partition("/")
        if not rest:
            below[name] = info
        else:
            below.setdefault(name, fs.FileInfo(f"{directory}/{name}", fs.FileType.Directory))
    return list(below.values())
