"""What went wrong inside Spark, as an error of ours: the cause, not the hundred lines around it.

An error of ours that is raised in a task comes back as the text of a Python traceback, or (where SQL's ``raise_error``
raised it) as Spark's message. Either has its code and message between marks, by which it is known again here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException

from domains.errors import HeadraceError
from migrations.backfill.spark.launching import SparkFailed, error_of_code

OPENING, CLOSING = "⟦headrace:", "⟧"

_MARKED = re.compile(re.escape(OPENING) + r"(.*?)" + re.escape(CLOSING), re.S)

_NO_FILE_SYSTEM = re.compile(r'No FileSystem for scheme "(.+?)"|Class org\.apache\.hadoop\.fs\.(\w+)\.\w+ not found')
"""What Hadoop says of a scheme that it does not know, and of one whose class it knows and whose jar it has not got."""

_QUERY = "\n== "
"""Behind it Spark shows where in the query's text it was, which is text of ours that nobody has written."""

LONGEST = 400
"""Characters of a message of Spark's own that are shown; its first line has what it is about."""


def marked(error: HeadraceError) -> str:
    """The error as text that :func:`error_of` finds again."""
    return OPENING + json.dumps([error.code, error.message, error.hint]) + CLOSING


class Marked(Exception):
    """An error of ours on its way out of a task."""

    def __init__(self, error: HeadraceError) -> None:
        super().__init__(marked(error))


def error_of(error: BaseException) -> HeadraceError:
    """The error of ours that is the cause, else SparkFailed with the line that says most."""
    text = str(error)
    found = _MARKED.search(text)
    if found is not None:
        return error_of_code(*json.loads(found[1]))
    found = _NO_FILE_SYSTEM.search(text)
    if found is not None:
        return _no_file_system(found[1] or found[2])
    if isinstance(error, PySparkException) and error.getCondition():
        return SparkFailed(f"Spark: {' '.join(text.partition(_QUERY)[0].split())[:LONGEST]}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Java's stack names classes like ``QueryExecution$.withInternalError``: where it was, not what it was.
    causes = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return SparkFailed(f"Spark: {(causes or lines or [type(error).__name__])[-1][:LONGEST]}")


def _no_file_system(scheme: str) -> SparkFailed:
    if scheme == "s3a":
        jars = f"--spark-conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{_hadoops_version()} brings it"
    else:
        jars = "its jar goes into --spark-conf spark.jars.packages=GROUP:NAME:VERSION, or spark.jars=FILE"
    return SparkFailed(f"Spark has no file system for {scheme}:// in its jars", hint=f"{jars}: see docs/spark.md")


def _hadoops_version() -> str:
    """Of the Hadoop that PySpark brings along; hadoop-aws must be of the same."""
    jars = Path(pyspark.__file__).parent / "jars"
    return next((file.stem.rpartition("-")[2] for file in jars.glob("hadoop-client-api-*.jar")), "VERSION")
