"""What went wrong inside Spark, said in a line: the cause, and not where in Java's stack it came by."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from migrations.backfill.spark.reporting import error_of


@pytest.mark.parametrize("scheme", ["s3a", "gs", "unheard"])
def test_a_scheme_that_spark_has_no_jar_for_is_named(spark: SparkSession, scheme: str) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        spark.read.schema("story BIGINT").parquet(f"{scheme}://bucket/log.parquet")
    told = error_of(caught.value)
    assert f"{scheme}://" in told.message
    assert told.hint is not None
    assert "--spark-conf spark.jars.packages=" in told.hint
    named = told.hint.partition("org.apache.hadoop:hadoop-aws:")[2]
    assert named[:1].isdigit() == (scheme == "s3a"), "the version is that of PySpark's own Hadoop"


def test_the_last_cause_is_told_and_no_place_in_the_stack() -> None:
    text = """An error occurred while calling o30.parquet.
: java.lang.RuntimeException: java.lang.IllegalStateException: outer
\tat org.apache.spark.sql.execution.QueryExecution$.withInternalError(QueryExecution.scala:927)
Caused by: java.lang.IllegalStateException: inner
\tat org.apache.hadoop.conf.Configuration.getClass(Configuration.java:2724)
\tat org.apache.spark.sql.errors.QueryExecutionErrors.stop(QueryExecutionErrors.scala:1)
\t... 30 more"""
    assert error_of(Exception(text)).message == "Spark: Caused by: java.lang.IllegalStateException: inner"


def test_a_number_that_does_not_fit_is_told_without_the_text_of_our_query(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.sql("SELECT CAST(CAST('123456' AS DECIMAL(8,2)) AS DECIMAL(4,2)) AS n").collect()
    told = error_of(caught.value).message
    assert "123456" in told
    assert "\n" not in told
    assert "SELECT" not in told
