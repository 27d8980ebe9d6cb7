"""What the judge writes for Spark means what MySQL's text means: the planner's own cases, run by Spark.

Long: hundreds of queries, each of which Spark plans anew. ``SAMPLE`` of them run always.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from domains.errors import Unsupported
from domains.language.types import Row
from domains.plan.graph import ParameterKind
from migrations.backfill.spark.rounds import carry_out
from migrations.backfill.spark.verify import of_spark
from migrations.parse.reading import parse
from migrations.spark_sql import judged
from tests.migrations.oracle import SCHEMAS, as_bag, catalog, plan, planned_answer, random_tables
from tests.migrations.query_cases import Case, read_cases

CATALOG = catalog()
BEYOND = read_cases("queries_beyond_sqlite.txt")
CASES = [*read_cases("queries.txt"), *read_cases("queries_in_order.txt"), *BEYOND]
LATE = "a part of it is applied when the view is read"
"""Such a view is never judged, however much of SQL the judge knows."""
SAMPLE = 40
"""Every so many of the cases are in the sample."""

ARROW = {"INTEGER": pa.int64(), "DOUBLE": pa.float64(), "TEXT": pa.string()}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[Row]]:
    rows = random_tables(0)
    for schema in SCHEMAS:
        columns = zip(*rows[schema.name], strict=True) if rows[schema.name] else [()] * len(schema.columns)
        arrays = [pa.array(list(c), ARROW[s.type.kind.value]) for c, s in zip(columns, schema.columns, strict=True)]
        names = [f"c{place}" for place in range(len(schema.columns))]
        spark.createDataFrame(pa.Table.from_arrays(arrays, names=names)).createOrReplaceTempView(
            f"judged_{schema.name}"
        )
    return rows


def check(spark: SparkSession, tables: dict[str, list[Row]], case: Case) -> str:
    """Compares the answer for each of the case's values; answers why it is not judged, or nothing."""
    graph, view = plan(case.sql, CATALOG)
    if view.finish is not None:
        return LATE
    names = {schema.name.lower(): f"judged_{schema.name}" for schema in SCHEMAS}
    [parsed] = parse(case.sql)
    try:
        query = judged(CATALOG, names, parsed.expression)
    except Unsupported as error:
        return error.message
    for recursion in query.rounds:
        carry_out(spark, recursion)
    assert [column.type for column in query.columns] == [column.type for column in view.columns]
    columns = [parameter for parameter in view.parameters if parameter.column is not None]
    assert [parameter.kind for parameter in columns] == [slot.kind for slot in query.parameters]
    if len(columns) != len(view.parameters) or view.reader.limit is not None or view.reader.offset:
        return ""  # What a reader cuts off at reading, the judge does not.
    if any(parameter.kind not in (ParameterKind.EQUAL, ParameterKind.IN) for parameter in columns):
        return ""
    everything = [tuple(row) for row in spark.sql(query.text).collect()]
    count = len(query.columns)
    types = [*(column.type for column in query.columns), *(slot.type for slot in query.parameters)]
    rows = [tuple(of_spark(value, type) for value, type in zip(row, types, strict=True)) for row in everything]
    for values in case.values:
        wanted: list[list[Any]] = [[] for _ in columns]
        for place, value in zip(view.placeholders, values, strict=True):
            wanted[place] += value if isinstance(value, list) else [value]
        found = [row[:count] for row in rows if all(row[count + i] in some for i, some in enumerate(wanted))]
        expected = planned_answer(graph, view, tables, values)
        if not found and query.counts_nothing and columns:
            nothing = [tuple(row)[:count] for row in spark.sql(query.nothing).collect()]
            found = [tuple(of_spark(v, t) for v, t in zip(row, types[:count], strict=True)) for row in nothing]
        assert as_bag(found) == as_bag(expected), (case.sql, values, query.text)
    return ""


@pytest.mark.parametrize("case", CASES[::SAMPLE], ids=lambda case: case.sql)
def test_a_sample_means_the_same(spark: SparkSession, tables: dict[str, list[Row]], case: Case) -> None:
    check(spark, tables, case)


def test_what_sqlite_cannot_say_means_the_same(spark: SparkSession, tables: dict[str, list[Row]]) -> None:
    assert [case.sql for case in BEYOND if check(spark, tables, case)] == []


@pytest.mark.long
def test_all_cases_mean_the_same(spark: SparkSession, tables: dict[str, list[Row]]) -> None:
    wrong, left = [], []
    for case in CASES:
        try:
            reason = check(spark, tables, case)
        except Exception as error:
            wrong.append(f"{case.sql}\n    {type(error).__name__}: {str(error)[:1500]}")
        else:
            left += [f"{case.sql}: {reason}"] if reason and reason != LATE else []
    print("\n".join(left))
    assert not wrong, "\n".join(wrong)
    assert len(left) < len(CASES) / 10, "\n".join(left)
