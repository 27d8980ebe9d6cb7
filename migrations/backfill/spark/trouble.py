"""What went wrong inside Spark, as an error of ours: the cause, not the hundred lines around it.

An error of ours that is raised in a task comes back as the text of a Python traceback, or (where SQL's ``raise_error``
raised it) as Spark's message. Either has its code and message between marks, by which it is known again here.
"""

from __future__ import annotations

import json
import re

from pyspark.errors import PySparkException

from domains.errors import HeadraceError
from migrations.backfill.spark.launching import SparkFailed, error_of_code

OPENING, CLOSING = "⟦headrace:", "⟧"

_MARKED = re.compile(re.escape(OPENING) + r"(.*?)" + re.escape(CLOSING), re.S)

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
    if isinstance(error, PySparkException) and error.getCondition():
        return SparkFailed(f"Spark: {text.strip()[:LONGEST]}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "Error" in line or "Exception" in line]
    return SparkFailed(f"Spark: {(causes or lines or [type(error).__name__])[-1][:LONGEST]}")
