"""The judge: the whole demo program is equal, and what was planted is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.calls import Call
from headrace.embedding import Embedded
from migrations.backfill.spark.held import HeldView
from migrations.backfill.spark.segments import ArchiveFiles
from migrations.backfill.spark.verify import EQUAL, Court
from tests.migrations.spark.judged_site import dumps, open_site

SCALE = 0.002


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Embedded]:
    with open_site(folder, SCALE) as db:
        yield db


@pytest.fixture(scope="module")
def court(spark: SparkSession, site: Embedded, folder: Path) -> Court:
    site.send(Call("POST", "/v1/archive", dict))
    return Court(spark, ArchiveFiles(str(folder / "archive")))


def test_the_demo_is_equal(court: Court, site: Embedded, tmp_path: Path) -> None:
    verdicts = [court.judge(HeldView(path)) for path in dumps(site, tmp_path)]
    assert len(verdicts) == 32
    assert [v for v in verdicts if v["verdict"] != EQUAL] == []
    assert sum(v["keys"] for v in verdicts) > 100
    assert sum(v["rows"] for v in verdicts) > 200, "there is something to be wrong about"
    print({v["view"]: (v["keys"], v["rows"], v["seconds"]) for v in verdicts})
