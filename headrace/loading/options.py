"""Options for reading files. All of it is part of the load's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from headrace.errors import HeadraceError

# Errors that stop a load.


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
"""Of files from which Spark reads them, where there are several: below that its start, and writing the rows once more,
cost what more cores gain."""
NULLS = ("", r"\N")
"""In CSV: a field without quotes that is empty, or what MySQL exports."""


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
    """Fields of CSV that are NULL, where they are not in quotes."""
    date_format: str | None = None
    """How DATE is written in text, in ``strptime``'s letters. None: as SQL takes it, ``2026-01-31`` and its like."""
    datetime_format: str | None = None
    chunk_rows: int = CHUNK_ROWS

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FileOptions:
        """What ``to_json`` gave, after a way through JSON."""
        kind = document["format"]
        lists = {name: tuple(document[name]) for name in ("columns", "nulls")}
        return cls(**{**document, **lists, "format": None if kind is None else Format(kind)})
