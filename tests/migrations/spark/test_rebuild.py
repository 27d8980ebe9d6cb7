"""Base shards out of an archive, by Spark's sorted runs: the rows, the position, and the tail that was not archived."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from headrace_client.calls import Call
from pyspark.sql import SparkSession

import headrace
from domains.archive.manifest import SegmentCorrupt
from headrace.backup import restoring
from headrace.backup.restoring import rebuild, report
from headrace.errors import BadRequest
from migrations.backfill.spark.rebuild import run
from migrations.backfill.spark.reporting import Reporter
from tests.migrations.spark.conftest import SMALL
from worker.archive.place import Place
from worker.rocks.store import RocksStore

PROGRAM = """
CREATE TABLE stories
  (id INT PRIMARY KEY AUTO_INCREMENT, title VARCHAR(20), price DECIMAL(6,2), made DATETIME, KEY (title));
CREATE TABLE log (line TEXT, n DOUBLE);
"""


@pytest.fixture
def in_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job on the session that is there, instead of one in a process of its own."""

    class Here:
        progress: dict[str, Any] = {}  # noqa: RUF012

        def __init__(self, name: str, what: dict[str, Any], _settings: object) -> None:
            assert name == "rebuild"
            self._found = run(spark, what, Reporter(open("/dev/null", "w")))  # noqa: SIM115

        def wait(self, _seconds: float) -> bool:
            return True

        def result(self) -> Any:
            return self._found

        def __enter__(self) -> Here:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing runs any more."""

    monkeypatch.setattr(restoring, "SparkJob", Here)


def written(path: Path, shards: int) -> tuple[dict[str, int], dict[str, int], dict[str, Any]]:
    """Rows in a server with an archive: the archived positions, others to be taken for the last ones, the rows."""
    with headrace.embedded(path / "data", archive=str(path / "archive"), shards=shards) as db:
        db.migrate(PROGRAM).wait()
        db.table("stories").insert([{"title": f"t{i}", "price": f"{i}.25", "made": "2026-01-31"} for i in range(50)])
        db.table("stories").delete({"id": 7})
        db.table("log").insert([{"line": "a\0é", "n": 0.5}] * 3 + [{"line": None, "n": None}])
        archived = db.send(Call("POST", "/v1/archive", dict))["positions"]
        rows = {name: db.execute(f"SELECT * FROM {name}").rows for name in ("stories", "log")}
    return archived, {**archived, "stories": archived.get("stories", 0) + 1}, rows


@pytest.mark.usefixtures("in_process")
def test_a_lost_disk_comes_back_and_the_tail_is_named(tmp_path: Path) -> None:
    archived, reached, rows = written(tmp_path, 1)
    found = rebuild(str(tmp_path / "archive"), tmp_path / "new", SMALL, known=reached)
    assert {each.base: each.position for each in found} == archived
    assert {each.base: each.rows for each in found} == {"stories": 49, "log": 4}
    lost = {each.base: each.lost for each in found}
    assert lost == {"stories": (archived["stories"] + 1, archived["stories"] + 1), "log": None}
    assert "were not archived and are lost" in report(found, time.monotonic())
    store = RocksStore(tmp_path / "new" / "base", create=False)
    try:
        assert {schema.name: store.position(schema.name) for schema in store.tables()} == archived
        table = store.table("stories")
        assert table.row_count == 49
        assert [row[0] for row, _ in table.find((1,), ("t3",))] == [4], "secondary indexes are there"
    finally:
        store.close()
    # The recipe says which views there are; on the same disk or in ZooKeeper, it is not what was lost.
    for recipe in (tmp_path / "data").glob("recipe.*"):
        shutil.copy(recipe, tmp_path / "new")
    with headrace.embedded(tmp_path / "new") as db:
        assert {name: sorted(map(repr, db.execute(f"SELECT * FROM {name}").rows)) for name in rows} == {
            name: sorted(map(repr, of_table)) for name, of_table in rows.items()
        }
        assert db.table("stories").insert({"title": "next"}).first_id == 51, "no value is given twice"


@pytest.mark.usefixtures("in_process")
def test_one_of_several_shards(tmp_path: Path) -> None:
    written(tmp_path, 3)
    found = rebuild(str(tmp_path / "archive"), tmp_path / "new", SMALL, shards=[1])
    assert {each.base for each in found} == {"stories@1", "log@1"}
    assert sorted(path.name for path in (tmp_path / "new" / "shards").iterdir()) == ["0001"]
    with pytest.raises(BadRequest, match="is there already"):
        rebuild(str(tmp_path / "archive"), tmp_path / "new", SMALL, shards=[1])
    with pytest.raises(BadRequest, match="no such shard"):
        rebuild(str(tmp_path / "archive"), tmp_path / "other", SMALL, shards=[9])


@pytest.mark.usefixtures("in_process")
def test_a_damaged_archive_makes_nothing(tmp_path: Path) -> None:
    written(tmp_path, 1)
    (segment,) = (tmp_path / "archive").glob("table=stories/shard=0/log-*.parquet")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(SegmentCorrupt, match=segment.name):
        rebuild(str(tmp_path / "archive"), tmp_path / "new", SMALL)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.usefixtures("in_process")
def test_what_is_broken_off_is_not_taken_for_the_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 1)
    load = restoring._loaded

    def broken(store: RocksStore, runs: Place, name: str, shard: int) -> int:
        if name == "stories":
            raise KeyboardInterrupt
        return load(store, runs, name, shard)

    monkeypatch.setattr(restoring, "_loaded", broken)
    with pytest.raises(KeyboardInterrupt):
        rebuild(str(tmp_path / "archive"), tmp_path / "new", SMALL)
    assert list((tmp_path / "new").iterdir()) == []
    monkeypatch.setattr(restoring, "_loaded", load)
    assert len(rebuild(str(tmp_path / "archive"), tmp_path / "new", SMALL)) == 2
