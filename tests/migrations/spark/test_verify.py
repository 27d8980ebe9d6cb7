"""The judge: the whole demo program is equal, and what was planted is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from headrace_client.calls import Call
from pyspark.sql import SparkSession

import headrace
from domains.language.types import Row
from domains.plan.packets import Publish
from headrace.embedding import Embedded
from migrations.backfill.spark.segments import ArchiveFiles
from migrations.backfill.spark.verify import (
    DIFFERENT,
    EQUAL,
    NOT_JUDGED,
    Court,
    HeldView,
    matched,
    text_of_key,
    text_of_row,
)
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


SOME = ("frontpage_ids", "story_comments", "stats_of_user", "favourite_tag", "story_votes_of_user", "user_by_name")
"""Of the demo's views: full and partial, by one key and by two, joins, aggregates, LIMIT; and by text."""


def test_views_of_the_demo_are_equal(court: Court, site: Embedded, tmp_path: Path) -> None:
    views = [HeldView(path) for path in dumps(site, tmp_path, SOME)]
    court.check(views)
    verdicts = [court.judge(view) for view in views]
    assert [v["view"] for v in verdicts if v["verdict"] == EQUAL] == sorted(SOME, key=[v.name for v in views].index)


@pytest.mark.long
def test_the_whole_demo_is_equal(court: Court, site: Embedded, tmp_path: Path) -> None:
    views = [HeldView(path) for path in dumps(site, tmp_path)]
    court.check(views)
    verdicts = [court.judge(view) for view in views]
    assert len(verdicts) == 32
    assert [v for v in verdicts if v["verdict"] != EQUAL] == []
    assert sum(v["keys"] for v in verdicts) > 100
    assert sum(v["rows"] for v in verdicts) > 200, "there is something to be wrong about"


# --- what is planted ------------------------------------------------------------------------------------------------


def plant(db: Embedded, view: str, key: Row, rows: list[dict[str, Any]]) -> None:
    """Have a reader hold these rows at a key, as a fault of the engine would. Each has the hidden columns too."""
    deployment: Any = db._deployment
    node = deployment.state.flow.node(deployment.state.flow.readers[view])
    layout = deployment.dataflow.layouts[node.domain, node.index]
    stored = [(tuple(row[column.name] for column in node.columns), 1) for row in rows]
    deployment.dataflow.reader_map.publish([(layout, Publish(node.index, [], [(key, stored)]))])


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Embedded]:
    """Three views: keyed, counting, and full with a range; some keys of each are filled."""
    with headrace.embedded(tmp_path / "data", archive=str(tmp_path / "archive")) as db:
        db.migrate(
            "CREATE TABLE stories (id INT PRIMARY KEY, author INT, score DECIMAL(6,2), ratio DOUBLE);"
            "CREATE EXT VIEW by_author AS"
            " SELECT id, score, ratio FROM stories WHERE author = ? ORDER BY id DESC LIMIT 2;"
            "CREATE EXT VIEW counted AS SELECT COUNT(*) AS n, AVG(score) AS mean FROM stories WHERE author = ?;"
            "CREATE EXT VIEW better AS SELECT id FROM stories WHERE score > ?;"
        ).wait()
        rows = [{"id": i, "author": i % 3, "score": f"{i}.5", "ratio": i / 7} for i in range(20)]
        db.table("stories").insert(rows)
        for author in (0, 1, 99):
            db.view("by_author").lookup(author=author)
            db.view("counted").lookup(author=author)
        db.view("better").lookup(score=3)
        db.table("stories").delete({"id": 19})
        yield db


def verdicts(spark: SparkSession, db: Embedded, folder: Path) -> dict[str, dict[str, Any]]:
    paths = dumps(db, folder)
    db.send(Call("POST", "/v1/archive", dict))
    court = Court(spark, ArchiveFiles(str(folder / "archive")))
    return {found["view"]: found for found in (court.judge(HeldView(path)) for path in paths)}


def test_nothing_is_found_where_nothing_is_wrong(spark: SparkSession, small: Embedded, tmp_path: Path) -> None:
    found = verdicts(spark, small, tmp_path)
    assert {view: (each["verdict"], each["keys"], each["rows"]) for view, each in found.items()} == {
        "by_author": (EQUAL, 3, 4),
        "counted": (EQUAL, 3, 3),
        "better": (EQUAL, 1, 19),
    }


def test_each_planted_row_is_found(spark: SparkSession, small: Embedded, tmp_path: Path) -> None:
    row = {"id": 18, "score": Decimal("18.50"), "ratio": 18 / 7, "author": 0}
    plant(small, "by_author", (0,), [row])  # one is missing
    plant(small, "by_author", (99,), [{**row, "id": 7, "author": 99}])  # known to be empty, and it is not
    plant(small, "counted", (1,), [{"n": 7, "mean": Decimal("8.500000"), "author": 1}])  # another count
    everything = [{"id": i, "score": Decimal(f"{i}.50")} for i in range(20)]
    plant(small, "better", (), everything)  # one that was deleted
    found = verdicts(spark, small, tmp_path)
    assert {each["verdict"] for each in found.values()} == {DIFFERENT}
    by_key = {json.loads(each["key"])[0]: each for each in found["by_author"]["differences"]}
    assert [len(by_key[0][side]) for side in ("expected", "held")] == [1, 0]
    assert json.loads(by_key[0]["expected"][0])[0] == 15
    assert [len(by_key[99][side]) for side in ("expected", "held")] == [0, 1]
    (count,) = found["counted"]["differences"]
    assert json.loads(count["key"]) == [1]
    assert [json.loads(text)[0] for text in (*count["expected"], *count["held"])] == [6, 7]
    (gone,) = found["better"]["differences"]
    assert (gone["expected"], [json.loads(text)[-1] for text in gone["held"]]) == ([], [19])


def test_a_count_of_nothing_that_is_wrong(spark: SparkSession, small: Embedded, tmp_path: Path) -> None:
    plant(small, "counted", (99,), [{"n": 1, "mean": None, "author": 99}])
    (difference,) = verdicts(spark, small, tmp_path)["counted"]["differences"]
    assert [json.loads(text)[0] for text in (*difference["expected"], *difference["held"])] == [0, 1]


# --- values in one form ---------------------------------------------------------------------------------------------


def test_documents_and_members_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    """As they stand; what Spark writes otherwise is named."""
    with headrace.embedded(tmp_path / "data", archive=str(tmp_path / "archive")) as db:
        db.migrate(
            "CREATE TABLE t (id INT PRIMARY KEY, size ENUM('b', 'a'), tags SET('x', 'y'), doc JSON, made YEAR,"
            " bits BIT(64), price DECIMAL(5,2) UNSIGNED);"
            "CREATE EXT VIEW whole AS SELECT id, size, tags, doc, made, bits, price FROM t WHERE size = ?;"
            "CREATE EXT VIEW counted AS SELECT size, COUNT(*) AS n FROM t GROUP BY size;"
            "CREATE EXT VIEW arrays AS SELECT size, JSON_ARRAYAGG(id) AS ids FROM t WHERE size = ? GROUP BY size;"
            "CREATE EXT VIEW places AS SELECT id, size + 1 AS place FROM t WHERE size = ?"
        ).wait()
        docs = ('{"k": [1.5, "é"]}', "null", None, '"text"')
        rows = [
            {"id": i, "size": "ab"[i % 2], "tags": i % 4, "doc": docs[i % 4], "made": 2000 + i, "bits": 2**63 + i}
            for i in range(8)
        ]
        db.table("t").insert(rows)
        for view in ("whole", "arrays", "places"):
            db.view(view).lookup(size="a")
        db.view("counted").lookup()
        found = verdicts(spark, db, tmp_path)
    assert {view: each["verdict"] for view, each in found.items()} == {
        "whole": EQUAL,
        "counted": EQUAL,
        "arrays": NOT_JUDGED,
        "places": NOT_JUDGED,
    }, found


def test_doubles_are_equal_to_nine_digits() -> None:
    one, near, far = (text_of_row((7, value)) for value in (0.1 + 0.2, 0.3, 0.3000001))
    assert matched([one], [near]) == ([], [])
    assert matched([one], [far]) == ([one], [far])
    assert matched([one, one], [near]) == ([one], [])
    assert text_of_row((None, Decimal("1.50"), b"\0", "é", 2**70)) == f'[null,"1.50","AA==","é",{2**70}]'
    assert text_of_key(("x" * 300,), 250).startswith("#")
