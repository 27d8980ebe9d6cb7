"""A job that says what Spark runs with: to be asked before a master is trusted, and by the tests of the child."""

from __future__ import annotations

import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import domains
from domains.archive.rows import WEIGHT
from domains.errors import HeadraceError, LimitExceeded
from domains.language.json_rows import json_value, schema_from_json, type_from_json
from migrations.backfill.spark.fold import as_relation, fold, shards_at
from migrations.backfill.spark.launching import ROWS
from migrations.backfill.spark.reporting import Reporter, StageWatch, error_of
from migrations.backfill.spark.segments import ArchiveFiles
from migrations.backfill.spark.verify import of_spark

# A job that reads files that are to be loaded: a task for each file, on whatever machine.
#
# What is done with a file is not this room's business: the function comes by its name, as all our code comes to
# tasks. ``headrace/loading`` names the one that reads, checks and cuts a file's rows and writes them where who loads
# finds them; the files and that place are thus to be reached by every worker under the same names.

ARCHIVE = "headrace-loading.zip"


def read_files(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> list[Any]:
    """What ``function`` (``module:name``) of ``packages`` answers for each of ``items``, in their order."""
    module, _, name = what["function"].partition(":")
    items = list(what["items"])
    if not str(spark.sparkContext.master).startswith("local"):
        _ship(spark.sparkContext, what["packages"])

    def act(item: Any) -> Any:
        function: Callable[[Any], Any] = getattr(import_module(module), name)
        return function(item)

    with StageWatch(spark, reporter):
        found: list[Any] = spark.sparkContext.parallelize(items, max(1, len(items))).map(act).collect()
    return found


def _ship(context: SparkContext, packages: list[str]) -> None:
    """Send the packages along, in front of what the workers' Python has."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ARCHIVE
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            for package in packages:
                found = find_spec(package)
                assert found is not None, f"no package {package}"
                for root in map(Path, found.submodule_search_locations or ()):
                    for module in sorted(root.rglob("*.py")):
                        target.write(module, str(package / module.relative_to(root)))
        context.addPyFile(str(path))


# A job that folds tables and counts their rows: how fast a fold is, and the cheapest proof of a sound archive.


def count_rows(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """``{"archive": URL, "clock": {base: position}}`` → by table its rows; and the seconds, without those of the
    start."""
    files, counts = ArchiveFiles(what["archive"]), {}
    clock: dict[str, int] = what["clock"]
    began = time.monotonic()
    with StageWatch(spark, reporter):
        for table in sorted({base.partition("@")[0] for base in clock}):
            reporter.progress(table=table)
            rows = fold(spark, files, shards_at(files, table, clock))  # Its own errors are ours already.
            try:
                counts[table] = rows.agg(F.sum(WEIGHT)).collect()[0][0] or 0
            except Exception as error:
                raise error_of(error) from error
    return {"rows": counts, "seconds": time.monotonic() - began}


# A job that answers one SELECT over base tables as of a clock.

ROWS_A_LINE = 500
"""Rows of the answer in a line, so that whoever reads a line holds the interpreter for a millisecond."""


def select(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> int:
    """``{"archive": URL, "clock": {base: position}, "tables": {name: {"schema": …, "columns": stored positions that are
    read}}, "text": Spark's SQL over these names, "types": of its columns, "rows": the most that it may answer, "bytes":
    the same}`` → how many rows it has. They are told before, as JSON takes them.

    :raises LimitExceeded: they are more.
    """
    files, types = ArchiveFiles(what["archive"]), [type_from_json(each) for each in what["types"]]
    with StageWatch(spark, reporter):
        for name, table in what["tables"].items():
            schema, read = schema_from_json(table["schema"]), tuple(table["columns"])
            shards = shards_at(files, schema.name, what["clock"], schema.generation)
            as_relation(fold(spark, files, shards, schema, columns=read), schema, read).createOrReplaceTempView(name)
        try:
            found = spark.sql(what["text"]).limit(what["rows"] + 1).toArrow()
        except HeadraceError:
            raise
        except Exception as error:
            raise error_of(error) from error
    if found.num_rows > what["rows"] or found.nbytes > what["bytes"]:
        limit = f"{what['rows']:,} rows" if found.num_rows > what["rows"] else f"{what['bytes']:,} bytes"
        raise LimitExceeded(f"the answer has more than {limit}", hint="ask for a part of it with LIMIT")
    for batch in found.to_batches(max_chunksize=ROWS_A_LINE):
        columns = [[json_value(of_spark(v, type)) for v in c.to_pylist()] for c, type in zip(batch, types, strict=True)]
        reporter.say(ROWS, list(zip(*columns, strict=True)))
    return int(found.num_rows)


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """``tasks`` tasks that take ``seconds`` each; where they ran, by what Python, and from where our code came."""
    tasks, seconds = int(what.get("tasks", 1)), float(what.get("seconds", 0.0))

    def look(_rows: Iterable[int]) -> Iterator[tuple[str, str]]:
        time.sleep(seconds)
        yield sys.executable, str(domains.__file__)

    with StageWatch(spark, reporter):
        found = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    return {
        "spark": spark.version,
        "master": spark.sparkContext.master,
        "python": sorted({python for python, _ in found}),
        "code": sorted({code for _, code in found}),
    }
