"""How files are read, which is part of the load's identity, and their rows cut into chunks.

A file is cut by itself and by what stands in it alone, so every run cuts alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from headrace.errors import HeadraceError


class LoadError(HeadraceError):
    """The files, or what was asked, cannot be loaded as they are. What was loaded before stays."""

    code = "load_error"


class TooManyRejects(LoadError):
    code = "too_many_rejects"


CHUNK_ROWS = 2_000
"""Rows to a chunk: a write of some tens of milliseconds, after which others have their turn. Fewer would cost a request
each, more would hold the server's other writes up."""
CHUNK_BYTES = 2**20
"""A chunk ends early when its rows have so many bytes in the file, so that its request stays far below the server's
limit of a body (32 MB), however wide the rows are."""
PATIENCE = 60.0
"""Seconds for which a server that is away is waited for: longer than a restart or the recovery of a shard takes."""
SPARK_THRESHOLD = "10GB"
"""Total size of several files from which on Spark reads them: below it, Spark's start and writing the rows once more
cost what more cores gain."""
NULLS = ("", r"\N")
"""Unquoted CSV fields that are NULL: an empty one, and MySQL's export."""


class Format(StrEnum):
    CSV = "csv"
    JSON_LINES = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class FileOptions:
    format: Format | None = None
    """None: by the file's name."""
    delimiter: str | None = None
    """Between fields of CSV. None: a tab in ``.tsv``, else a comma."""
    columns: tuple[str, ...] = ()
    """The names of the columns of CSV files without a header line."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """A file's column → the table's column, where they differ; to nothing: it is left out."""
    nulls: tuple[str, ...] = NULLS
    """Unquoted fields of CSV that are NULL."""
    date_format: str | None = None
    """How DATE is written in text, in ``strptime``'s letters. None: as SQL takes it, ``2026-01-31`` and its like."""
    datetime_format: str | None = None
    chunk_rows: int = CHUNK_ROWS

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FileOptions:
        """The inverse of ``to_json``."""
        kind = document["format"]
        lists = {name: tuple(document[name]) for name in ("columns", "nulls")}
        return cls(**{**document, **lists, "format": None if kind is None else Format(kind)})


@dataclass(frozen=True, slots=True)
class SourceRow:
    file: str
    number: int
    """Its number in the file, from 1: of the record (CSV, without the header), the line (JSON) or the row (Parquet)."""
    values: dict[str, Any]
    """Values by the table's columns; if there is a problem, whatever can be shown."""
    size: int
    """Bytes in the file, about."""
    problem: str | None = None
    """Why it could not be read."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that is set aside, and why."""

    row: SourceRow
    reason: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A row that was checked: where it came from, and its values as they are sent."""

    source: SourceRow
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """A chunk's rows: those that fit the table, and those that do not."""

    ready: list[Ready]
    rejects: list[Reject]

    def __len__(self) -> int:
        return len(self.ready) + len(self.rejects)


def cut(rows: Iterable[SourceRow], most: int) -> Iterator[list[SourceRow]]:
    """One file's rows in chunks of at most so many, and of about ``CHUNK_BYTES`` at most."""
    chunk: list[SourceRow] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += row.size
        if len(chunk) >= most or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
