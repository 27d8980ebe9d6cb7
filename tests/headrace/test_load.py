"""Files into tables of an embedded server: values, rows that are set aside, and going on after being broken off."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import embedded
from headrace.embedding import Embedded
from headrace.errors import ConnectionFailed, NotFound
from headrace.loading import running
from headrace.loading.chunks import FileOptions, LoadError, TooManyRejects
from headrace.loading.running import LoadProgress, LoadRequest, load

SCHEMA = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(20), UNIQUE KEY (id, author));
CREATE TABLE votes (story_id INT, user_id INT);
CREATE TABLE kinds (t TINYINT, u BIGINT UNSIGNED, b BOOL, f DOUBLE, d DECIMAL(6,2), c CHAR(3), x VARBINARY(4), day DATE,
                    at DATETIME, n INT NOT NULL DEFAULT 7, a INT NOT NULL AUTO_INCREMENT, PRIMARY KEY (a));
CREATE VIEW VoteCount AS SELECT story_id, COUNT(*) AS n FROM votes WHERE story_id = ? GROUP BY story_id
"""


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "data", shards=request.param, read_your_writes=True) as opened:
        opened.execute(SCHEMA)
        yield opened


def lines(file: Path, *rows: Any) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def in_csv(file: Path, header: str, rows: list[tuple[Any, ...]]) -> Path:
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([header.split(","), *rows])
    return file


def rejected(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def rows_of(db: Embedded, sql: str) -> list[tuple[Any, ...]]:
    return list(db.execute(sql))


# --- values -------------------------------------------------------------------------------------------------------

DAY, AT = date(2026, 1, 31), datetime(2026, 1, 31, 8)
EXPECTED = (-5, 2**64 - 1, 1, 0.5, Decimal("10.01"), "abc", b"\x00\xff", DAY, AT)
NAMES = ("t", "u", "b", "f", "d", "c", "x", "day", "at")
TEXTS = ("-5", str(2**64 - 1), "TRUE", "0.5", "10.005", "abc", "AP8=", "2026-01-31", "2026-01-31T10:00:00+02:00")


def test_values_of_all_types_out_of_all_formats(db: Embedded, tmp_path: Path) -> None:
    files = [
        in_csv(tmp_path / "a.csv", ",".join(NAMES), [TEXTS]),
        lines(tmp_path / "b.jsonl", dict(zip(NAMES, (-5, 2**64 - 1, True, 0.5, 10.005, *TEXTS[5:]), strict=True))),
    ]
    at = datetime(2026, 1, 31, 10, tzinfo=timezone(timedelta(hours=2)))
    values = [-5, 2**64 - 1, True, 0.5, Decimal("10.005"), "abc", b"\x00\xff", date(2026, 1, 31), at]
    arrays = [
        pa.array([value], pa.uint64() if name == "u" else None) for name, value in zip(NAMES, values, strict=True)
    ]
    pq.write_table(pa.table(dict(zip(NAMES, arrays, strict=True))), tmp_path / "c.parquet")
    ended = load(db, LoadRequest("KINDS", [*files, tmp_path / "c.parquet"]))
    assert (ended.rows, ended.rejected, ended.bytes_read) == (3, 0, ended.bytes_total)
    found = rows_of(db, f"SELECT {', '.join(NAMES)}, n FROM kinds")
    assert found == [(*EXPECTED, 7)] * 3
    assert len({a for (a,) in rows_of(db, "SELECT a FROM kinds")}) == 3


def test_dates_in_a_format_of_their_own(db: Embedded, tmp_path: Path) -> None:
    file = in_csv(tmp_path / "a.csv", "day,at", [("31.01.2026", "Jan 31 2026 8AM"), ("2026-01-31", "Jan 31 2026 8AM")])
    options = FileOptions(date_format="%d.%m.%Y", datetime_format="%b %d %Y %I%p")
    ended = load(db, LoadRequest("kinds", [file], options, tmp_path / "bad.jsonl"))
    assert (ended.rows, ended.rejected) == (1, 1)
    assert rows_of(db, "SELECT day, at FROM kinds") == [(DAY, AT)]
    assert "is not written as %d.%m.%Y" in rejected(tmp_path / "bad.jsonl")[0]["reason"]


WRONG = {
    "t": ("128", "x", "", "1e3"),
    "u": ("-1", str(2**64)),
    "b": ("yes", "300"),
    "f": ("x", "nan", "1e999"),
    "d": ("10000", "1,5"),
    "c": ("abcd",),
    "x": ("AAAAAAA=", "?"),
    "day": ("2026-02-30", "yesterday", "0000-00-00"),
    "at": ("2026-01-31 25:00:00", "now"),
    "n": ("x", None),
}


def test_values_that_do_not_fit_are_set_aside_with_the_reason(db: Embedded, tmp_path: Path) -> None:
    cases = [(name, value) for name, values in WRONG.items() for value in values]
    rows: list[dict[str, Any]] = []
    for name, value in cases:
        rows += [{name: value}, {"t": 1}]
    file, bad = lines(tmp_path / "a.jsonl", *rows), tmp_path / "bad.jsonl"
    ended = load(db, LoadRequest("kinds", [file], rejects=bad))
    assert (ended.rows, ended.rejected) == (len(cases), len(cases))
    assert rows_of(db, "SELECT COUNT(*) FROM kinds WHERE t = 1") == [(len(cases),)]
    for number, ((name, value), each) in enumerate(zip(cases, rejected(bad), strict=True)):
        assert (each["file"], each["row"]) == (str(file), 2 * number + 1)
        assert each["values"] == {name: value}
        assert f'"{name}"' in each["reason"]


# --- rows that are set aside --------------------------------------------------------------------------------------


def test_keys_that_are_taken_are_set_aside(db: Embedded, tmp_path: Path) -> None:
    db.table("stories").insert([{"id": id, "author": 1} for id in (3, 50, 51)])
    rows = [(id, id % 5, f"story {id}") for id in range(60)]
    rows += [(7, 1, "again"), (70, None, "no author"), (8, 1, "again"), (71, 1, "x" * 21), (72, 1, "last")]
    bad = tmp_path / "bad.jsonl"
    request = LoadRequest(
        "stories", [in_csv(tmp_path / "a.csv", "id,author,title", rows)], FileOptions(chunk_rows=13), bad
    )
    ended = load(db, request)
    found = sorted(rejected(bad), key=lambda each: each["row"])
    assert [each["row"] for each in found] == [4, 51, 52, 61, 62, 63, 64]
    assert (ended.rows, ended.rejected) == (58, 7)
    assert all("has the value" in found[at]["reason"] for at in (0, 1, 2, 3, 5))
    assert found[4]["reason"] == 'column "author" must not be NULL'
    assert "21 characters" in found[6]["reason"]
    assert rows_of(db, "SELECT COUNT(*) FROM stories") == [(61,)]
    again = load(db, request)
    assert (again.rows, again.skipped, again.rejected) == (0, 65, 7)
    assert sorted(each["row"] for each in rejected(bad)) == [4, 51, 52, 61, 62, 63, 64]


def test_without_a_file_for_them_the_first_stops_the_load(db: Embedded, tmp_path: Path) -> None:
    rows = [(1, 1), ("x", 2), (3, 3)]
    file = in_csv(tmp_path / "a.csv", "story_id,user_id", rows)
    with pytest.raises(TooManyRejects, match=r"row 2 of file .*a\.csv.*'x' does not fit type INT") as caught:
        load(db, LoadRequest("votes", [file]))
    assert "--rejects" in (caught.value.hint or "")
    assert rows_of(db, "SELECT COUNT(*) FROM votes") == [(0,)]
    assert load(db, LoadRequest("votes", [file], rejects=tmp_path / "bad.jsonl")).rows == 2


def test_more_than_allowed_stop_it_and_it_goes_on_when_more_are(db: Embedded, tmp_path: Path) -> None:
    file = in_csv(tmp_path / "a.csv", "story_id,user_id", [(1, i if i % 10 else "x") for i in range(100)])
    bad, options = tmp_path / "bad.jsonl", FileOptions(chunk_rows=20)
    with pytest.raises(TooManyRejects, match=r"^6 rows.* 5 "):
        load(db, LoadRequest("votes", [file], options, bad, 5))
    assert rows_of(db, "SELECT COUNT(*) FROM votes") == [(36,)]
    ended = load(db, LoadRequest("votes", [file], options, bad, 10))
    assert (ended.rows, ended.skipped, ended.rejected) == (54, 40, 10)
    assert [each["row"] for each in rejected(bad)] == list(range(1, 100, 10))


def test_a_dry_run_stores_nothing(db: Embedded, tmp_path: Path) -> None:
    file = in_csv(tmp_path / "a.csv", "story_id,user_id", [(1, i if i % 10 else "x") for i in range(100)])
    ended = load(db, LoadRequest("votes", [file], rejects=tmp_path / "bad.jsonl", dry_run=True))
    assert (ended.rows, ended.rejected) == (90, 10)
    assert rows_of(db, "SELECT COUNT(*) FROM votes") == [(0,)]
    assert db.table("votes").streams() == {}
    assert load(db, LoadRequest("votes", [file], rejects=tmp_path / "bad.jsonl")).rows == 90


def test_what_is_asked_is_checked_first(db: Embedded, tmp_path: Path) -> None:
    file = in_csv(tmp_path / "a.csv", "story_id", [(1,)])
    with pytest.raises(NotFound, match='no table "vote"') as caught:
        load(db, LoadRequest("vote", [file]))
    assert caught.value.hint == 'did you mean "votes"?'
    with pytest.raises(LoadError, match=r"none\.csv"):
        load(db, LoadRequest("votes", [tmp_path / "none.csv"]))
    with pytest.raises(LoadError, match="no file"):
        load(db, LoadRequest("votes", []))


# --- exactly once -------------------------------------------------------------------------------------------------


class Broken(Exception):
    """The loader's process ends here."""


def test_a_load_that_is_broken_off_anywhere_goes_on_behind_what_is_done(db: Embedded, tmp_path: Path) -> None:
    """A table without a key, equal rows in the files, several files: nothing is doubled, nothing is left out."""
    files = [
        in_csv(tmp_path / "a.csv", "story_id,user_id", [(i % 3, i % 7) for i in range(50)]),
        lines(tmp_path / "b.jsonl", *({"story_id": i % 3, "user_id": i if i % 9 else "x"} for i in range(40))),
    ]
    request = LoadRequest("votes", files, FileOptions(chunk_rows=8), tmp_path / "bad.jsonl")
    at = -1
    for stop in (1, 2, 5, 6, 9):

        def tell(progress: LoadProgress, stop: int = stop) -> None:
            nonlocal at
            at = progress.rows + progress.skipped
            if progress.identified and at >= 8 * stop:
                raise Broken

        with pytest.raises(Broken):
            load(db, request, tell)
    ended = load(db, request)
    assert ended.rejected == 5
    assert ended.rows + ended.skipped + 5 >= 90 > ended.rows
    assert rows_of(db, "SELECT COUNT(*) FROM votes") == [(85,)]
    assert db.view("VoteCount").lookup(story_id=1) == [{"story_id": 1, "n": 30}]
    assert [each["row"] for each in rejected(tmp_path / "bad.jsonl")] == [1, 10, 19, 28, 37]
    assert load(db, request).rows == 0
    assert (
        load(
            db, LoadRequest("votes", files, FileOptions(chunk_rows=8), tmp_path / "c.jsonl", stream="second time")
        ).rows
        == 85
    )
    assert rows_of(db, "SELECT COUNT(*) FROM votes") == [(170,)]


def test_other_files_under_a_name_that_was_used_are_another_load(db: Embedded, tmp_path: Path) -> None:
    """A name like "nightly" is used every night: what is new must not be skipped as what was there."""
    for number in range(2):
        file = in_csv(tmp_path / "votes.csv", "story_id,user_id", [(number, i) for i in range(20)])
        request = LoadRequest("votes", [file], FileOptions(chunk_rows=8), stream="nightly")
        assert [load(db, request).rows for _ in range(2)] == [20, 0]
    assert rows_of(db, "SELECT COUNT(*) FROM votes") == [(40,)]


def test_answers_that_are_lost(db: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is carried out and its answer lost once: the loader sends it again."""
    monkeypatch.setattr(running, "FIRST_PAUSE", 0.001)
    file = in_csv(tmp_path / "a.csv", "story_id,user_id", [(i % 3, i % 7) for i in range(100)])
    send, lost = db.send, set()

    def losing(call: Any, token: str | None = None) -> Any:
        answer = send(call, token)
        if call.body is not None and call.body not in lost:
            lost.add(call.body)
            raise ConnectionFailed("lost by the test")
        return answer

    monkeypatch.setattr(db, "send", losing)
    ended = load(db, LoadRequest("votes", [file], FileOptions(chunk_rows=8)))
    assert (ended.rows, len(lost)) == (100, 13)
    monkeypatch.setattr(db, "send", send)
    assert rows_of(db, "SELECT COUNT(*) FROM votes") == [(100,)]


def test_a_server_that_stays_away_is_told_of(db: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = in_csv(tmp_path / "a.csv", "story_id,user_id", [(1, 1)])
    send = db.send

    def away(call: Any, token: str | None = None) -> Any:
        if call.body is not None:
            raise ConnectionFailed("no server answers")
        return send(call, token)

    monkeypatch.setattr(db, "send", away)
    with pytest.raises(ConnectionFailed):
        load(db, LoadRequest("votes", [file], patience=0.2))


def test_a_pipe_is_refused_and_a_quote_that_is_not_closed_stores_nothing(db: Embedded, tmp_path: Path) -> None:
    pipe = tmp_path / "votes.csv"
    os.mkfifo(pipe)
    with pytest.raises(LoadError, match="is not a regular file"):
        load(db, LoadRequest("votes", [pipe]))
    whole, broken = tmp_path / "a.csv", tmp_path / "b.csv"
    whole.write_text("story_id,user_id\n1,2\n")
    broken.write_text('story_id,user_id\n3,"4\n5,6\n')
    with pytest.raises(LoadError, match=r"b\.csv.*line 2"):
        load(db, LoadRequest("votes", [whole, broken]))
    assert db.execute("SELECT COUNT(*) FROM votes").rows == ((0,),)
