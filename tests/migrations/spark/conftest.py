"""What is small of Spark here, and that its tests are skipped where there is no Java."""

from __future__ import annotations

import shutil

import pytest

from migrations.backfill.spark.settings import SparkSettings

SMALL = SparkSettings(
    "local[2]",
    (
        ("spark.ui.enabled", "false"),
        ("spark.sql.shuffle.partitions", "2"),
        # Of a small job most of the time would go into compiling: Java for it, and that to machine code twice over.
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        ("spark.sql.adaptive.enabled", "false"),
    ),
    512 * 2**20,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "migrations/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)
            if shutil.which("java") is None:
                item.add_marker(pytest.mark.skip(reason="there is no java on PATH"))
