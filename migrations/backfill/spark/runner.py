"""Spark as the runner of bulk jobs, as the controller sees it. Imports no Spark: the job is a process of its own."""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from domains.archive.rows import SPARKS_DIGITS, digits_of
from domains.errors import HeadraceError, Unavailable
from domains.language.types import Kind, TableSchema
from migrations.backfill.job import BulkJob, Folding, JobProgress, StateFile
from migrations.backfill.runner import BulkFailed
from migrations.backfill.spark.launching import ABOUT, SparkFailed, SparkJob, check_java
from migrations.backfill.spark.settings import SparkSettings


def order_of(job: BulkJob) -> dict[str, Any]:
    """What the child is told, and what ``bulk.run`` takes."""
    return {"job": b64encode(pickle.dumps(job)).decode("ascii"), ABOUT: job.rows}


class SparkRunner:
    """See :class:`migrations.backfill.runner.BulkRunner`."""

    name = "spark"

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings

    def check(self, tables: Sequence[TableSchema]) -> None:
        for table in tables:
            for column in table.columns:  # Dropped ones, too: rows are told apart with them.
                if column.type.kind is Kind.DECIMAL and digits_of(column.type) > SPARKS_DIGITS:
                    raise Unavailable(
                        f'column "{column.name}" of table "{table.name}" is {column.type}, and Spark reads DECIMALs of '
                        f"{SPARKS_DIGITS} digits at most"
                    )
        check_java()

    def start(self, job: BulkJob) -> SparkRun:
        return SparkRun(job, SparkJob("bulk", order_of(job), self._settings))


class SparkRun:
    """See :class:`migrations.backfill.runner.BulkRun`."""

    def __init__(self, job: BulkJob, child: SparkJob) -> None:
        self._job = job
        self.child = child

    def progress(self) -> JobProgress:
        return _progress(self.child.progress, self._job.rows, len(self._job.stages))

    def results(self) -> tuple[StateFile, ...] | None:
        try:
            files = self.child.result()
        except SparkFailed as error:
            raise BulkFailed(error.message, hint="nothing was changed; try again") from error
        except HeadraceError:
            raise
        return None if files is None else tuple(StateFile(**file) for file in files)

    def cancel(self) -> None:
        self.child.cancel()


class SparkFolder:
    """See :class:`migrations.backfill.runner.Folder`."""

    name = "spark"

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings

    def check(self) -> None:
        check_java()

    def start(self, folding: Folding) -> SparkFoldRun:
        shards = [list(each) for each in folding.shards]
        what = {"archive": folding.archive, "out": folding.out, "shards": shards, ABOUT: folding.rows}
        return SparkFoldRun(folding, SparkJob("rebuild", what, self._settings))


class SparkFoldRun:
    """See :class:`migrations.backfill.runner.FoldRun`."""

    def __init__(self, folding: Folding, child: SparkJob) -> None:
        self._folding = folding
        self.child = child

    def progress(self) -> JobProgress:
        told = self.child.progress
        return _progress(told, told.get("total", self._folding.rows), len(self._folding.shards))

    def is_done(self) -> bool:
        try:
            return self.child.result() is not None
        except SparkFailed as error:
            raise BulkFailed(error.message, hint=error.hint) from error

    def cancel(self) -> None:
        self.child.cancel()


def _progress(told: dict[str, Any], total: int, stages: int) -> JobProgress:
    rows = told.get("rows", 0)
    return JobProgress(
        rows=rows,
        total=max(total, rows),
        stages_done=told.get("stages_done", 0),
        stages=stages,
        tasks_done=told.get("tasks_done", 0),
        tasks=told.get("tasks", 0),
        seconds_left=told.get("seconds_left"),
        ui=told.get("ui"),
    )
