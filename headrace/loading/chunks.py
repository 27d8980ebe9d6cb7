"""The files' rows, cut into numbered chunks: by what stands in the files alone, so that every run cuts alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
class Chunk:
    number: int
    rows: list[SourceRow] = field(default_factory=list)


def cut(rows: Iterable[SourceRow], most: int) -> Iterator[Chunk]:
    """Chunks 1, 2, 3 … of at most so many rows, and of about ``CHUNK_BYTES`` at most."""
    chunk, size = Chunk(1), 0
    for row in rows:
        chunk.rows.append(row)
        size += row.size
        if len(chunk.rows) >= most or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = Chunk(chunk.number + 1), 0
    if chunk.rows:
        yield chunk
