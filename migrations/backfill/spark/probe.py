"""A job that says what Spark runs with: to be asked before a master is trusted, and by the tests of the child."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

import domains
from migrations.backfill.spark.reporting import Reporter, Watch


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """``tasks`` tasks that take ``seconds`` each; where they ran, by what Python, and from where our code came."""
    tasks, seconds = int(what.get("tasks", 1)), float(what.get("seconds", 0.0))

    def look(_rows: Iterable[int]) -> Iterator[tuple[str, str]]:
        time.sleep(seconds)
        yield sys.executable, str(domains.__file__)

    with Watch(spark, reporter):
        found = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    return {
        "spark": spark.version,
        "master": spark.sparkContext.master,
        "python": sorted({python for python, _ in found}),
        "code": sorted({code for _, code in found}),
    }
