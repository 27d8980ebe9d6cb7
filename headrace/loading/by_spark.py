"""Many large files read by Spark, a task for each: then only the posting is left to do here, in order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headrace.loading.chunks import CheckedRows
from headrace.loading.options import FileOptions, LoadError
from headrace.loading.preparing import item, prepared
from headrace.loading.table import LoadedTable
from migrations.backfill.spark.launching import SparkJob
from migrations.backfill.spark.settings import SparkSettings

FUNCTION = "headrace.loading.preparing:prepare"
PACKAGES = ("headrace", "api", "controller", "worker", "migrations", "domains", "zookeeper", "headrace_client")
"""What the function imports, and what that imports."""
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
