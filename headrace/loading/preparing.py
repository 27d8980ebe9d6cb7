"""One file read, checked and cut into a Parquet file of its chunks: what a Spark task does, and what reads that again.

==========  =========  =======================================================================
``chunk``   int32      of this file, from 1
``row``     int64      of the file
``values``  string     JSON, as it is sent; or as it is shown where the row is set aside
``reason``  string     why the row is set aside, else NULL
==========  =========  =======================================================================

The file is there when it is whole: it is written beside and then renamed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from headrace_client.encoding import to_json

from headrace.loading.chunks import CheckedRows, FileOptions, LoadError, Ready, Reject, SourceRow, cut
from headrace.loading.rejects import shown
from headrace.loading.sources import FileSources
from headrace.loading.table import Checker, Columns, LoadedTable
from migrations.backfill.spark.launching import SparkJob
from migrations.backfill.spark.settings import SparkSettings

SCHEMA = pa.schema(
    [("chunk", pa.int32()), ("row", pa.int64()), ("values", pa.string()), ("reason", pa.string())],
)
GROUP_ROWS = 50_000
"""Rows in a row group, which the writer holds in memory; a chunk is never in two."""


def item(file: Path, to: Path, table: LoadedTable, options: FileOptions) -> dict[str, Any]:
    """The input of :func:`prepare`, as JSON."""
    return {"file": str(file), "to": str(to), "table": table.to_json(), "options": options.to_json()}


def prepare(told: dict[str, Any]) -> dict[str, Any]:
    """Read, check and cut one file: ``{"rows": …}``, or ``{"error": …, "hint": …}`` where it cannot be loaded.

    Nothing is done where that was done before.
    """
    to = Path(told["to"])
    if not to.exists():
        try:
            _write(told, to)
        except LoadError as error:
            return {"error": error.message, "hint": error.hint}
    with pq.ParquetFile(to) as opened:
        return {"rows": opened.metadata.num_rows}


def _write(told: dict[str, Any], to: Path) -> None:
    table, options = LoadedTable.from_json(told["table"]), FileOptions.from_json(told["options"])
    checker, sources = Checker(table, options), FileSources(Columns(table, options.mapping), options)
    beside = to.with_name(to.name + ".new")
    with pq.ParquetWriter(beside, SCHEMA, compression="zstd") as writer:
        lines: list[tuple[int, int, str, str | None]] = []
        for number, chunk in enumerate(cut(sources.rows(Path(told["file"]), lambda _: None), options.chunk_rows), 1):
            lines += _lines(number, checker.chunk(chunk))
            if len(lines) >= GROUP_ROWS:
                writer.write_table(_table(lines))
                lines = []
        writer.write_table(_table(lines))
    beside.replace(to)


def _lines(number: int, checked: CheckedRows) -> list[tuple[int, int, str, str | None]]:
    ready = [(number, row.source.number, to_json(row.values).decode(), None) for row in checked.ready]
    bad = [(number, each.row.number, shown(each.row.values), each.reason) for each in checked.rejects]
    return [*ready, *bad]


def _table(rows: list[tuple[int, int, str, str | None]]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def prepared(path: Path, file: str) -> Iterator[CheckedRows]:
    """The chunks of a file that was prepared, in their order."""
    with pq.ParquetFile(path) as opened:
        for group in range(opened.num_row_groups):
            columns = opened.read_row_group(group, use_threads=False).to_pydict()
            lines = zip(columns["chunk"], columns["row"], columns["values"], columns["reason"], strict=True)
            for _, chunk in groupby(lines, key=itemgetter(0)):
                yield _checked(file, chunk)


def _checked(file: str, lines: Iterator[tuple[int, int, str, str | None]]) -> CheckedRows:
    checked = CheckedRows([], [])
    for _, number, text, reason in lines:
        # What is set aside may be what orjson refuses: an unpaired surrogate, an integer beyond 64 bits.
        values = orjson.loads(text) if reason is None else json.loads(text)
        row = SourceRow(file, number, values, len(text), reason)
        if reason is None:
            checked.ready.append(Ready(row, values))
        else:
            checked.rejects.append(Reject(row, reason))
    return checked


# Spark reads many large files, a task for each. Then only the posting is left to do here, in order.

FUNCTION = "headrace.loading.preparing:prepare"
PACKAGES = ("headrace", "api", "controller", "worker", "migrations", "domains", "zookeeper", "headrace_client")
"""Packages that the function imports, directly or not."""
LOOK_SECONDS = 0.5

Tell = Callable[[str], None]


class PreparedChunks:
    """The chunks of all files, in a directory of this load. A load that goes on finds what was prepared before."""

    def __init__(self, files: Sequence[Path], directory: Path, table: LoadedTable, options: FileOptions) -> None:
        self._files = [file.resolve() for file in files]
        self._directory = directory
        self._items = [item(file, self._part(number), table, options) for number, file in enumerate(self._files)]

    def _part(self, number: int) -> Path:
        return self._directory / f"part-{number:05}.parquet"

    def run(self, spark: SparkSettings, tell: Tell) -> None:
        """Read all files. ``tell`` hears how far the job is.

        :raises SparkUnavailable: there is no Java; nothing was begun.
        :raises LoadError: a file cannot be read.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        what = {"function": FUNCTION, "items": self._items, "packages": list(PACKAGES)}
        with SparkJob("loading", what, spark) as job:
            while not job.wait(LOOK_SECONDS):
                done, total = job.progress.get("tasks_done", 0), len(self._items)
                tell(f"Spark reads: {done} of {total} files {job.progress.get('ui') or ''}")
            for answer in job.result():
                if "error" in answer:
                    raise LoadError(answer["error"], hint=answer["hint"])

    def chunks(self, names: Sequence[Path]) -> Iterator[CheckedRows]:
        """``names``: the files as they were given, for the rejects."""
        for number, name in enumerate(names):
            yield from prepared(self._part(number), str(name))

    def remove(self) -> None:
        """The load is done."""
        shutil.rmtree(self._directory, ignore_errors=True)
