"""A load from its start, or from where an earlier run of it has come, to its end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

from headrace_client.connection import Connection

from headrace.loading.by_spark import Prepared
from headrace.loading.checking import Checker
from headrace.loading.chunks import Checked, Ready, SourceRow, cut
from headrace.loading.columns import Columns
from headrace.loading.errors import LoadError
from headrace.loading.identity import stream_of
from headrace.loading.options import PATIENCE, SPARK_THRESHOLD, Options
from headrace.loading.posting import Poster
from headrace.loading.rejects import MOST, Rejects
from headrace.loading.sources import Sources, format_of
from headrace.loading.table import read_table
from headrace.sizes import parse_size
from migrations.backfill.spark.launching import SparkUnavailable
from migrations.backfill.spark.settings import SparkSettings


@dataclass(slots=True)
class Progress:
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
    """What else is going on."""
    by_spark: bool = False


Tell = Callable[[Progress], None]
Piece = TypeVar("Piece", bound=Sized)
"""A chunk, checked already or not."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be loaded, and how."""

    table: str
    files: Sequence[Path]
    options: Options = field(default_factory=Options)
    rejects: Path | None = None
    max_rejects: int = MOST
    stream: str | None = None
    """What the stream's name begins with: for the same files a second time."""
    dry_run: bool = False
    """Read and check all of it, and store nothing."""
    patience: float = PATIENCE
    spark: SparkSettings = field(default_factory=SparkSettings)
    spark_threshold: int = field(default_factory=lambda: parse_size(SPARK_THRESHOLD))
    scratch: Path | None = None
    """Where Spark writes the rows that it has read; its workers reach it, too. None: among temporary files."""


def load(connection: Connection, request: Request, tell: Tell = lambda _: None) -> Progress:
    """Load, and answer how it ended.

    :raises LoadError: what is asked cannot be done, or more rows were set aside than allowed. What was done stays.
    """
    if not request.files:
        raise LoadError("no file is given", hint="headrace load TABLE FILE …")
    return _Load(connection, request, tell).run()


class _Load:
    def __init__(self, connection: Connection, request: Request, tell: Tell) -> None:
        self._request = request
        self._tell = tell
        for file in request.files:
            if not request.options.format:
                format_of(file)
        self.progress = Progress(sum(_size_of(file) for file in request.files))
        self._table = read_table(connection, request.table)
        self._sources = Sources(Columns(self._table, request.options.mapping), request.options)
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

    def run(self) -> Progress:
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
        prepared = Prepared(request.files, scratch / content, self._table, request.options)
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

    def _post_all(self, chunks: Iterable[Piece], check: Callable[[Piece], Checked]) -> None:
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
            f'"{file}" is no regular file, and a load reads its files twice: for their digest, and for their rows',
            hint="write what comes out of a pipe into a file first",
        )
    return found.st_size
