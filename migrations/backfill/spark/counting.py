"""A job that folds tables and counts their rows: how fast a fold is, and the cheapest proof of a sound archive."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from domains.archived_rows import WEIGHT
from migrations.backfill.spark.fold import fold, shards_at
from migrations.backfill.spark.reporting import Reporter, Watch
from migrations.backfill.spark.segments import ArchiveFiles
from migrations.backfill.spark.trouble import error_of


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """``{"archive": URL, "clock": {base: position}}`` → by table its rows; and the seconds, without those of the
    start."""
    files, counts = ArchiveFiles(what["archive"]), {}
    clock: dict[str, int] = what["clock"]
    began = time.monotonic()
    with Watch(spark, reporter):
        for table in sorted({base.partition("@")[0] for base in clock}):
            reporter.progress(table=table)
            rows = fold(spark, files, shards_at(files, table, clock))  # Its own errors are ours already.
            try:
                counts[table] = rows.agg(F.sum(WEIGHT)).collect()[0][0] or 0
            except Exception as error:
                raise error_of(error) from error
    return {"rows": counts, "seconds": time.monotonic() - began}
