"""The files' rows, cut into chunks: each file by itself and by what stands in it alone; so every run cuts alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.loading.options import CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class SourceRow:
    file: str
    number: int
    """In its file, from 1: of the record (CSV, the header not counted), the line (JSON) or the row (Parquet)."""
    values: dict[str, Any]
    """By the table's columns; where there is a problem, whatever can be shown."""
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
