"""The archive on S3 as Spark is told of it: its names, Hadoop's settings, and a job whose files are at either door.

PySpark has no jar for ``s3a://``. So in Hadoop's own view of mounted directories, the bucket's files are a directory's:
Spark reads them by the very names that it would ask S3 for, and all that is ours (manifests, digests, what a job
writes) goes to moto's server.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.fs
import pytest
from pyspark.sql import SparkSession

from domains.archive.manifest import url_below
from domains.language.types import BIGINT, TEXT, TableColumn, TableSchema
from migrations.backfill.spark import rebuild, small_jobs
from migrations.backfill.spark.reporting import Reporter
from migrations.backfill.spark.segments import ArchiveFiles
from tests.migrations.spark.written_archive import WrittenShard
from tests.object_store import ObjectStore

STORIES = TableSchema("top stories", (TableColumn("id", BIGINT, nullable=False), TableColumn("title", TEXT)), (0,))
VIEW = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
IMPLEMENTATION = "fs.s3a.impl"
FILE = "table=t/shard=0/log-1.parquet"


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("s3://bucket/a/b?endpoint_override=localhost%3A9000&scheme=http", "s3a://bucket/a/b/"),
        ("s3a://bucket/a%20b/", "s3a://bucket/a b/"),
        ("s3://key:secret@bucket/a", "s3a://bucket/a/"),
        ("s3://bucket", "s3a://bucket/"),
        ("hdfs://namenode:8020/a", "hdfs://namenode:8020/a/"),
        ("gs://bucket/a?retry_limit_seconds=5", "gs://bucket/a/"),
        ("/srv/a%20b", "file:///srv/a%20b/"),
    ],
)
def test_what_spark_is_to_read(url: str, file: str) -> None:
    assert ArchiveFiles(url).for_spark(FILE) == file + FILE


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ()),
        ("?region=eu-west-1", [("endpoint.region", "eu-west-1")]),
        (
            "?endpoint_override=localhost%3A9000&scheme=http",
            [("connection.ssl.enabled", "false"), ("endpoint", "http://localhost:9000"), ("path.style.access", "true")],
        ),
        (
            "?endpoint_override=https%3A%2F%2Fs3.example.org&force_virtual_addressing=true",
            [
                ("connection.ssl.enabled", "true"),
                ("endpoint", "https://s3.example.org"),
                ("path.style.access", "false"),
            ],
        ),
    ],
)
def test_what_hadoop_is_told_of_the_query(query: str, expected: list[tuple[str, str]]) -> None:
    wanted = {f"fs.s3a.{name}": value for name, value in expected}
    assert ArchiveFiles(f"s3://bucket/a{query}").options_for_spark() == wanted
    assert ArchiveFiles(f"gs://bucket/a{query}").options_for_spark() == {}


@contextmanager
def mounted(spark: SparkSession, bucket: str, directory: Path) -> Iterator[None]:
    """``s3a://bucket/`` is a directory, until the block ends."""
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    before = conf.get(IMPLEMENTATION)
    conf.set(IMPLEMENTATION, VIEW)
    conf.set(f"fs.viewfs.mounttable.{bucket}.link./site", directory.as_uri())
    try:
        yield
    finally:
        conf.set(IMPLEMENTATION, before)


def test_a_job_reads_it_and_writes_below_it(spark: SparkSession, tmp_path: Path) -> None:
    """With keys in the URL, since the Java that runs the tasks had begun before this test had any."""
    written = WrittenShard(tmp_path / "site", STORIES)
    written.snapshot(3, [((1, "one"), 1), ((2, "two"), 1)])
    written.log(4, 5, [(4, (1, "one"), -1), (5, (3, "drei"), 1)])
    store, bucket = ObjectStore("KEY"), f"spark-{uuid4().hex[:8]}"
    try:
        url = store.bucket(bucket)("site").replace("s3://", "s3://KEY:secret@")
        pyarrow.fs.copy_files(str(tmp_path / "site"), url)
        reporter = Reporter(io.StringIO())
        with mounted(spark, bucket, tmp_path / "site"):
            counted = small_jobs.count_rows(spark, {"archive": url, "clock": {STORIES.name: 5}}, reporter)
            out = url_below(url, "_rebuild/7-r1")
            what = {"archive": url, "out": out, "shards": [[STORIES.name, 0, 5]]}
            (made,) = rebuild.run(spark, what, reporter)
        assert counted["rows"] == {STORIES.name: 2}
        assert made["rows"] == 2
        opened, root = pyarrow.fs.FileSystem.from_uri(out)
        found = opened.get_file_info(pyarrow.fs.FileSelector(root, recursive=True))
        assert {info.size for info in found if info.type is pyarrow.fs.FileType.File}
    finally:
        store.close()
