"""Files that Spark reads are loaded as those that are read here: the same rows, rejects, chunks and stream."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import embedded
from headrace.embedding import Embedded
from headrace.loading import preparing
from headrace.loading.chunks import FileOptions, LoadError
from headrace.loading.preparing import item, prepare, prepared
from headrace.loading.running import LoadProgress, LoadRequest, load
from headrace.loading.table import read_table
from migrations.backfill.spark.launching import SparkUnavailable
from migrations.backfill.spark.settings import SparkSettings

SPARK = SparkSettings(
    "local[2]",
    (
        ("spark.ui.enabled", "false"),
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    ),
    512 * 2**20,
)
FILES, ROWS = 3, 250
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "data", shards=2) as opened:
        opened.execute("CREATE TABLE t (id INT NOT NULL, price DECIMAL(8,2), body BLOB, big BIGINT UNSIGNED)")
        yield opened


def files_in(directory: Path) -> list[Path]:
    files = []
    for number in range(FILES):
        rows: list[dict[str, Any]] = [
            {"id": row if row % 40 else "x", "price": f"{row}.255", "body": "AP8=", "big": 2**64 - 1 - row}
            for row in range(ROWS)
        ]
        file = directory / f"{number}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no JSON\n")
        files.append(file)
    return files


def request(tmp_path: Path, name: str, **given: Any) -> LoadRequest:
    options = FileOptions(chunk_rows=60)
    files = files_in(tmp_path)
    return LoadRequest("t", files, options, tmp_path / name, scratch=tmp_path / "scratch", spark=SPARK, **given)


def found(db: Embedded) -> list[Any]:
    return list(db.execute("SELECT id, price, body, big, COUNT(*) FROM t GROUP BY id, price, body, big ORDER BY id"))


def rejected(tmp_path: Path, name: str) -> list[Any]:
    return sorted((tmp_path / name).read_text().splitlines())


def test_a_file_that_is_prepared_is_what_reading_it_gives(db: Embedded, tmp_path: Path) -> None:
    file, to = files_in(tmp_path)[0], tmp_path / "part.parquet"
    told = json.loads(json.dumps(item(file, to, read_table(db, "t"), FileOptions(chunk_rows=60))))
    assert prepare(told) == {"rows": ROWS + 1}
    chunks = list(prepared(to, "as given.jsonl"))
    assert [len(chunk) for chunk in chunks] == [60, 60, 60, 60, 11]
    assert chunks[0].ready[0].values == {"id": 1, "price": "1.26", "body": {"BLOB": "AP8="}, "big": 2**64 - 2}
    assert [(each.row.number, each.row.file) for each in chunks[-1].rejects] == [
        (241, "as given.jsonl"),
        (251, "as given.jsonl"),
    ]
    to.touch()
    file.unlink()
    assert prepare(told) == {"rows": ROWS + 1}, "it is there already"
    to.unlink()
    assert "0.jsonl" in prepare(told)["error"]


def test_rows_set_aside_are_kept_as_they_were(db: Embedded, tmp_path: Path) -> None:
    """An unpaired surrogate and a number of many digits, which not every reader of JSON takes."""
    file, to = tmp_path / "0.jsonl", tmp_path / "part.parquet"
    file.write_text('{"id": "\\ud800"}\n{"id": 123456789012345678901234567890}\n')
    assert prepare(item(file, to, read_table(db, "t"), FileOptions())) == {"rows": 2}
    ((first, second),) = [chunk.rejects for chunk in prepared(to, "0.jsonl")]
    assert (first.row.values, second.row.values) == ({"id": "\ud800"}, {"id": 123456789012345678901234567890})


@needs_java
@pytest.mark.spark
def test_spark_reads_what_is_read_here(db: Embedded, tmp_path: Path) -> None:
    here = load(db, request(tmp_path, "here.jsonl", stream="here"))
    once, bad = found(db), rejected(tmp_path, "here.jsonl")
    assert (here.rows, here.rejected, here.by_spark) == (FILES * (ROWS - 7), FILES * 8, False)

    class Broken(Exception):
        pass

    def tell(progress: LoadProgress) -> None:
        if progress.rows >= 200:
            raise Broken

    # Begun here, broken off, and finished by Spark: they cut alike.
    with pytest.raises(Broken):
        load(db, request(tmp_path, "spark.jsonl"), tell)
    notes: list[str] = []
    ended = load(db, request(tmp_path, "spark.jsonl", spark_threshold=1), lambda progress: notes.append(progress.note))
    assert ended.by_spark
    assert ended.skipped > 200
    assert any("Spark reads" in note for note in notes)
    assert found(db) == [(*row, 2 * count) for *row, count in once]
    assert rejected(tmp_path, "spark.jsonl") == sorted(line.replace(here.stream, ended.stream) for line in bad)
    assert not list((tmp_path / "scratch").iterdir()), "what was prepared goes when the load is done"


class JobHere:
    """As Spark's job, without Spark: the function for each item, one after the other."""

    def __init__(self, name: str, what: dict[str, Any], settings: SparkSettings) -> None:
        assert name == "loading"
        assert what["function"] == f"{prepare.__module__}:{prepare.__name__}"
        self.progress: dict[str, Any] = {}
        self._answers = [prepare(each) for each in json.loads(json.dumps(what["items"]))]

    def __enter__(self) -> JobHere:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        return True

    def result(self) -> Any:
        return self._answers


def test_a_file_that_cannot_be_loaded_ends_it_by_name(
    db: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "SparkJob", JobHere)
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("idd\n1\n")
    files = [*files_in(tmp_path), wrong]
    with pytest.raises(LoadError, match=r'wrong\.csv.*no column "idd"'):
        load(db, LoadRequest("t", files, spark_threshold=1, scratch=tmp_path / "scratch"))
    assert found(db) == []
    wrong.write_text("id\n1000\n")
    ended = load(
        db, LoadRequest("t", files, FileOptions(), tmp_path / "b", spark_threshold=1, scratch=tmp_path / "scratch")
    )
    assert (ended.by_spark, ended.rows) == (True, FILES * (ROWS - 7) + 1)


def test_without_java_files_are_read_here(db: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: Any) -> Any:
        raise SparkUnavailable("there is no Java", hint="install it")

    monkeypatch.setattr(preparing, "SparkJob", unavailable)
    notes: list[str] = []
    ended = load(db, request(tmp_path, "bad.jsonl", spark_threshold=1), lambda progress: notes.append(progress.note))
    assert (ended.rows, ended.by_spark) == (FILES * (ROWS - 7), False)
    assert "read here and not by Spark: there is no Java" in notes
