"""A load from its start, or from where an earlier run of it has come, to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.connection import Connection
from headrace.errors import TypeViolation
from headrace.loading.checking import Checker
from headrace.loading.chunks import Chunk, SourceRow, cut
from headrace.loading.columns import Columns
from headrace.loading.errors import LoadError
from headrace.loading.identity import stream_of
from headrace.loading.options import PATIENCE, Options
from headrace.loading.posting import Poster, Ready
from headrace.loading.rejects import MOST, Reject, Rejects
from headrace.loading.sources import Sources, format_of
from headrace.loading.table import read_table


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


Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be loaded, and how."""

    table: str
    files: Sequence[Path]
    options: Options = field(default_factory=Options)
    rejects: Path | None = None
    max_rejects: int = MOST
    stream: str | None = None
    """The stream's name, instead of the digest: for the same files a second time."""
    dry_run: bool = False
    """Read and check all of it, and store nothing."""
    patience: float = PATIENCE


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
        try:
            total = sum(file.stat().st_size for file in request.files)
        except OSError as error:
            raise LoadError(f'cannot read file "{error.filename}": {error.strerror}') from error
        self.progress = Progress(total)
        self._table = read_table(connection, request.table)
        stream = request.stream or stream_of(request.files, self._table.name, request.options, self._identifying)
        self.progress.stream = stream
        self.progress.bytes_read, self.progress.identified = 0, True
        self._poster = Poster(connection, self._table.name, stream, request.patience)
        self._done = 0 if request.dry_run else self._poster.last_number()
        self._checker = Checker(self._table, request.options)
        self._rejects = Rejects(request.rejects, request.max_rejects, stream, self._done)

    def _identifying(self, size: int) -> None:
        self.progress.bytes_read += size
        self._tell(self.progress)

    def run(self) -> Progress:
        try:
            with ThreadPoolExecutor(1) as pool:
                self._run(pool)
        finally:
            self._rejects.close()
        return self.progress

    def _run(self, pool: ThreadPoolExecutor) -> None:
        """While a chunk is under way, the next one is read and checked."""
        under_way: Future[int] | None = None
        for chunk in cut(self._rows(), self._request.options.chunk_rows):
            if chunk.number <= self._done:
                self.progress.skipped += len(chunk.rows)
                self._tell(self.progress)
                continue
            ready, bad = self._checked(chunk)
            if under_way is not None:
                self._finished(under_way)
            self._rejects.add(chunk.number, bad)
            under_way = pool.submit(self._post, chunk.number, ready)
        if under_way is not None:
            self._finished(under_way)
        self.progress.rejected = self._rejects.count
        self.progress.bytes_read = self.progress.bytes_total
        self._tell(self.progress)

    def _finished(self, under_way: Future[int]) -> None:
        self.progress.rows += under_way.result()
        self.progress.rejected = self._rejects.count
        self._tell(self.progress)

    def _post(self, number: int, ready: list[Ready]) -> int:
        if self._request.dry_run:
            return len(ready)
        return self._poster.post(number, ready, lambda refused: self._rejects.add(number, refused))

    def _rows(self) -> Iterator[SourceRow]:
        sources = Sources(Columns(self._table, self._request.options.mapping), self._request.options)
        before = 0
        for file in self._request.files:
            yield from sources.rows(file, lambda read, before=before: self._read(before + read))  # type: ignore[misc]
            before += file.stat().st_size

    def _read(self, position: int) -> None:
        self.progress.bytes_read = position

    def _checked(self, chunk: Chunk) -> tuple[list[Ready], list[Reject]]:
        ready: list[Ready] = []
        bad: list[Reject] = []
        for row in chunk.rows:
            if row.problem is not None:
                bad.append(Reject(row, row.problem))
                continue
            try:
                ready.append(Ready(row, self._checker.check(row.values)))
            except TypeViolation as error:
                bad.append(Reject(row, error.message))
        return ready, bad
