"""What Spark answers to the judge's comparisons is what the engine answers: the matrix of ``tests/comparisons``."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from domains.errors import Unsupported
from domains.functions import call
from domains.functions.conversion import number_of_text
from domains.types import SqlType, Value
from migrations.spark_sql.expressions import Names
from migrations.spark_sql.values import literal, spark_type
from tests.comparisons.answers import Pair, column_type, column_values, compiled, constant
from tests.comparisons.matrix import COLUMNS, CONSTANTS

MOST = Decimal(10) ** 20
"""Numbers, and texts that are numbers, have fewer digits before the point for Spark; a row beyond fails its query."""


def is_held(value: Value) -> bool:
    """Whether Spark answers to a row with the value; the others fail all of the query."""
    if isinstance(value, Decimal):
        return value < MOST
    if isinstance(value, str):
        return "e1" not in value and Decimal(number_of_text(value)) < MOST
    return value != b"\xff"


def stored_as(value: Value, type: SqlType) -> str:
    return f"CAST({'NULL' if value is None else literal(value, type)} AS {spark_type(type)})"


def judged(spark: SparkSession, column: str) -> tuple[int, int]:
    """How many of the constants Spark was asked about, and how many it was not."""
    type = column_type(column)
    kept = [(k, v) for k, v in enumerate(column_values(column)) if is_held(v)]
    stored = [f"({k}, {stored_as(v, type)})" for k, v in kept]
    source = f"(SELECT * FROM VALUES {', '.join(stored)} AS t(k, x))"
    wanted, texts = [], []
    for text in CONSTANTS:
        names = Names()
        field = names.add("x", type)
        try:
            told = [names.truth(call(operator, field, constant(text))) for operator in ("lt", "eq", "gt")]
        except Unsupported:
            continue
        if text.startswith("x'"):
            continue  # The planner has made numbers of them where they meet numbers.
        wanted.append(text)
        cases = zip(told, "<=>", strict=True)
        texts.append(f"CASE {' '.join(f'WHEN {t} THEN {sign!r}' for t, sign in cases)} ELSE 'N' END")
    rows = spark.sql(f"SELECT k, {', '.join(texts)} FROM {source} ORDER BY k").collect()
    for place, text in enumerate(wanted, 1):
        expected = compiled(Pair(column, text))
        assert "".join(row[place] for row in rows) == "".join(expected[k] for k, _ in kept), (
            column,
            text,
            texts[place - 1],
        )
    return len(wanted), len(CONSTANTS) - len(wanted)


@pytest.mark.parametrize("column", COLUMNS)
def test_spark_compares_alike(spark: SparkSession, column: str) -> None:
    asked, left = judged(spark, column)
    assert asked > left, f"{left} constants are not judged"
