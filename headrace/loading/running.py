"""A load from its start, or from where an earlier run of it has come, to its end."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

from headrace_client.connection import Connection

from headrace.errors import ConnectionFailed, LimitExceeded, Overloaded, ReadTimeout, RowsRefused, Unavailable
from headrace.loading.chunks import (
    CHUNK_BYTES,
    PATIENCE,
    SPARK_THRESHOLD,
    CheckedRows,
    FileOptions,
    LoadError,
    Ready,
    Reject,
    SourceRow,
    cut,
)
from headrace.loading.preparing import PreparedChunks
from headrace.loading.rejects import MOST, Rejects, shown
from headrace.loading.sources import FileSources, format_of
from headrace.loading.table import Checker, Columns, read_table
from headrace.sizes import parse_size
from migrations.backfill.spark.launching import SparkUnavailable
from migrations.backfill.spark.settings import SparkSettings

# A chunk to the server, under its number: again where no answer came, without the rows that the server refuses.

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between tries. A server that starts again takes one or two; a shard that moves, some tenths."""


class Poster:
    """The chunks of one stream. ``patience``: seconds for which an unreachable server is tried again."""

    def __init__(self, connection: Connection, table: str, stream: str, patience: float) -> None:
        self._table = connection.table(table)
        self._stream = stream
        self._patience = patience

    def last_number(self) -> int:
        last: int = self._tried(lambda: self._table.last_number(self._stream))
        return last

    def post(self, number: int, rows: Sequence[Ready], refused: Callable[[list[Reject]], None]) -> int:
        """How many rows are stored under the number; ``refused`` hears of the others before it is done without them."""
        left = list(rows)
        while True:
            values = [row.values for row in left]
            try:
                self._tried(partial(self._table.insert, values, once=(self._stream, number)))
            except RowsRefused as error:
                reasons = dict(error.rows)
                refused([Reject(left[at - 1].source, reason) for at, reason in reasons.items()])
                left = [row for at, row in enumerate(left, 1) if at not in reasons]
            except LimitExceeded as error:
                widest = _widest(left, error)
                refused([Reject(widest.source, error.message)])
                left.remove(widest)
            else:
                return len(left)

    def _tried(self, call: Callable[[], Any]) -> Any:
        """The server's answer; it may be asked twice, as its number lets it be done once."""
        deadline, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                return call()
            except (ConnectionFailed, Overloaded, Unavailable, ReadTimeout):
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _widest(rows: Sequence[Ready], error: LimitExceeded) -> Ready:
    """The row by which a request is larger than the server takes: most of it is that row.

    :raises LimitExceeded: it is no single row's fault.
    """
    sizes = [len(shown(row.values)) for row in rows]
    widest = max(range(len(rows)), key=sizes.__getitem__)
    if 2 * sizes[widest] < sum(sizes):
        raise LimitExceeded(error.message, hint="send fewer rows at once: --chunk-rows") from error
    return rows[widest]


# The name of a load's stream: a digest of the files' content and of all that decides about rows and chunks.
#
# The files' names are no part of it, nor is the table's schema: a column that is added while a load is broken off
# changes nothing of what was loaded.

VERSION = 1
"""The version of how files are read and cut. Raised with any change by which the same files would come to other chunks:
a load that an earlier version broke off would else go on in the wrong place."""
READ_BYTES = 2**20


def stream_of(
    files: Sequence[Path],
    table: str,
    options: FileOptions,
    read: Callable[[int], None] = lambda _: None,
    name: str | None = None,
) -> str:
    """``read`` is called every so many bytes. ``name`` tells a second load of the same files from the first; it does
    not stand for the digest, since other files under a name that was used would be skipped as done.

    :raises LoadError: a file cannot be read.
    """
    digest = blake2b(digest_size=16)
    said = {"version": VERSION, "table": table.lower(), "chunk": CHUNK_BYTES, **asdict(options)}
    if name is not None:
        said["name"] = name
    digest.update(json.dumps(said, sort_keys=True).encode())
    for file in files:
        digest.update(_content(file, read))
    return f"{name or 'load'}-{digest.hexdigest()}"


def _content(file: Path, read: Callable[[int], None]) -> bytes:
    digest = blake2b(digest_size=16)
    try:
        with file.open("rb") as opened:
            while data := opened.read(READ_BYTES):
                digest.update(data)
                read(len(data))
    except OSError as error:
        raise LoadError(f'cannot read file "{file}": {error.strerror}') from error
    return digest.digest()


@dataclass(slots=True)
class LoadProgress:
    """How far a load is; told after each chunk."""

    bytes_total: int
    stream: str = ""
    bytes_read: int = 0
    rows: int = 0
    """Stored by this run."""
    rejected: int = 0
    """Set aside, by earlier runs too."""
    skipped: int = 0
    """Rows of chunks that earlier runs have done."""
    identified: bool = False
    """Whether the files have been read for their digest."""
    note: str = ""
    """The present step, if it is not loading."""
    by_spark: bool = False


Tell = Callable[[LoadProgress], None]
Piece = TypeVar("Piece", bound=Sized)
"""A chunk, checked already or not."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The files to load, and the options."""

    table: str
    files: Sequence[Path]
    options: FileOptions = field(default_factory=FileOptions)
    rejects: Path | None = None
    max_rejects: int = MOST
    stream: str | None = None
    """The beginning of the stream's name: for the same files a second time."""
    dry_run: bool = False
    """Read and check all of it, and store nothing."""
    patience: float = PATIENCE
    spark: SparkSettings = field(default_factory=SparkSettings)
    spark_threshold: int = field(default_factory=lambda: parse_size(SPARK_THRESHOLD))
    scratch: Path | None = None
    """Directory for the rows that Spark has read, which its workers can reach. None: a temporary one."""


def load(connection: Connection, request: LoadRequest, tell: Tell = lambda _: None) -> LoadProgress:
    """Load, and answer how it ended.

    :raises LoadError: what is asked cannot be done, or more rows were set aside than allowed. What was done stays.
    """
    if not request.files:
        raise LoadError("no file is given", hint="headrace load TABLE FILE …")
    return _Load(connection, request, tell).run()


class _Load:
    def __init__(self, connection: Connection, request: LoadRequest, tell: Tell) -> None:
        self._request = request
        self._tell = tell
        for file in request.files:
            if not request.options.format:
                format_of(file)
        self.progress = LoadProgress(sum(_size_of(file) for file in request.files))
        self._table = read_table(connection, request.table)
        self._sources = FileSources(Columns(self._table, request.options.mapping), request.options)
        for file in request.files:
            self._note(f"checks the quotes of {file.name}")
            self._sources.check_quotes(file)
        self._note("")
        stream = stream_of(request.files, self._table.name, request.options, self._identifying, request.stream)
        self.progress.stream = stream
        self.progress.bytes_read, self.progress.identified = 0, True
        self._poster = Poster(connection, self._table.name, stream, request.patience)
        self._done = 0 if request.dry_run else self._poster.last_number()
        self._rejects = Rejects(request.rejects, request.max_rejects, stream, self._done)

    def _identifying(self, size: int) -> None:
        self.progress.bytes_read += size
        self._tell(self.progress)

    def run(self) -> LoadProgress:
        try:
            if self.progress.bytes_total > self._request.spark_threshold and len(self._request.files) > 1:
                self._run_by_spark()
            else:
                self._read_here()
        finally:
            self._rejects.close()
        self.progress.rejected = self._rejects.count
        self.progress.bytes_read = self.progress.bytes_total
        self._tell(self.progress)
        return self.progress

    def _run_by_spark(self) -> None:
        request = self._request
        scratch = request.scratch or Path(tempfile.gettempdir()) / "headrace-load"
        # Without the stream's own name: what lies there is of these files, whoever loads them.
        content = stream_of(request.files, self._table.name, request.options)
        prepared = PreparedChunks(request.files, scratch / content, self._table, request.options)
        try:
            prepared.run(request.spark, self._note)
        except SparkUnavailable as error:
            self._note(f"read here and not by Spark: {error.message}")
            self._read_here()
            return
        self.progress.by_spark = True
        self._note("")
        self._post_all(prepared.chunks(request.files), lambda checked: checked)
        prepared.remove()

    def _note(self, text: str) -> None:
        self.progress.note = text
        self._tell(self.progress)

    def _post_all(self, chunks: Iterable[Piece], check: Callable[[Piece], CheckedRows]) -> None:
        """While a chunk is under way, the next one is read and checked; those that are done are not."""
        under_way: Future[int] | None = None
        with ThreadPoolExecutor(1) as pool:
            for number, found in enumerate(chunks, 1):
                if number <= self._done:
                    self.progress.skipped += len(found)
                    self._tell(self.progress)
                    continue
                chunk = check(found)
                if under_way is not None:
                    self._finished(under_way)
                self._rejects.add(number, chunk.rejects)
                under_way = pool.submit(self._post, number, chunk.ready)
            if under_way is not None:
                self._finished(under_way)

    def _finished(self, under_way: Future[int]) -> None:
        self.progress.rows += under_way.result()
        self.progress.rejected = self._rejects.count
        self._tell(self.progress)

    def _post(self, number: int, ready: list[Ready]) -> int:
        if self._request.dry_run:
            return len(ready)
        return self._poster.post(number, ready, partial(self._rejects.add, number))

    def _read_here(self) -> None:
        request = self._request
        checker = Checker(self._table, request.options)

        def chunks() -> Iterator[list[SourceRow]]:
            before = 0
            for file in request.files:
                yield from cut(self._sources.rows(file, partial(self._read, before)), request.options.chunk_rows)
                before += file.stat().st_size

        self._post_all(chunks(), checker.chunk)

    def _read(self, before: int, position: int) -> None:
        self.progress.bytes_read = before + position


def _size_of(file: Path) -> int:
    """:raises LoadError: it is not there, or is no file that can be read twice."""
    try:
        found = file.stat()
    except OSError as error:
        raise LoadError(f'cannot read file "{file}": {error.strerror}') from error
    if not S_ISREG(found.st_mode):
        raise LoadError(
            f'"{file}" is not a regular file, and a load reads its files twice: for their digest, and for their rows',
            hint="write what comes out of a pipe into a file first",
        )
    return found.st_size
