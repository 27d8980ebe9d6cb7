"""Snapshots as an application reads them: views and SELECTs as they were, while others write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from headrace_client.calls import Call
from typer.testing import CliRunner

from controller.transactions import reading
from controller.transactions.snapshots import ANSWER_COST, COLLECTED_SECONDS, SNAPSHOTS_MAX, SnapshotAnswers
from domains.store.storage import SnapshotRecord
from headrace import connect_async
from headrace.cli import app
from headrace.embedding import Embedded, embedded
from headrace.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    LimitExceeded,
    NotFound,
    SnapshotGone,
    UnknownName,
)
from migrations.flow.evaluation_plan import plan_evaluation
from worker.reader_map import BoundLookup

SCHEMA = """
CREATE TABLE acc (id INT PRIMARY KEY, branch INT, n INT NOT NULL, KEY (branch));
CREATE EXT VIEW one AS SELECT id, n FROM acc WHERE id = ?;
CREATE EXT VIEW best AS SELECT id, n FROM acc WHERE branch = ? ORDER BY n DESC LIMIT 2;
CREATE EXT VIEW total AS SELECT SUM(n) AS s FROM acc;
INSERT INTO acc VALUES (1, 1, 100), (2, 1, 100), (3, 2, 5);
"""


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path, read_your_writes=True, read_timeout=60, shards=request.param) as db:
        db.execute(SCHEMA)
        yield db


def test_it_shows_all_as_it_was(db: Embedded) -> None:
    db.view("one").lookup(id=1)  # One key is filled, the others are holes.
    then = db.as_of(db.take_snapshot())
    db.execute("UPDATE acc SET n = n + id; DELETE FROM acc WHERE id = 2; INSERT INTO acc VALUES (4, 1, 7)")
    assert then.view("one").lookup_many([[1], [2], [3], [4]]) == [
        [{"id": 1, "n": 100}],
        [{"id": 2, "n": 100}],
        [{"id": 3, "n": 5}],
        [],
    ]
    assert db.view("one").lookup_many([[1], [2], [4]]) == [[{"id": 1, "n": 101}], [], [{"id": 4, "n": 7}]]
    assert then.view("total").lookup() == [{"s": 205}]
    assert then.execute("SELECT id FROM acc ORDER BY id").rows == ((1,), (2,), (3,))
    assert then.lookups([("best", [[1], [2]]), ("total", [[]])]) == [
        [[{"id": 1, "n": 100}, {"id": 2, "n": 100}], [{"id": 3, "n": 5}]],
        [[{"s": 205}]],
    ]
    db.execute("CREATE EXT VIEW later AS SELECT branch, COUNT(*) AS c FROM acc GROUP BY branch HAVING c > ?")
    assert then.view("later").lookup({"c": 1}) == [{"branch": 1, "c": 2}], "a view that was made since"
    assert db.view("total").lookup() == [{"s": 101 + 8 + 7}]


def test_the_latest_and_those_by_name(db: Embedded) -> None:
    with pytest.raises(SnapshotGone, match="no snapshot"):
        db.as_of().view("total").lookup()
    assert db.take_snapshot("first", hold=True) == "first"
    db.execute("UPDATE acc SET n = 0")
    db.take_snapshot("second")
    db.execute("UPDATE acc SET n = 1")
    assert [(each["name"], each["held"]) for each in db.snapshots()] == [("first", True), ("second", False)]
    assert db.as_of("first").view("total").lookup() == [{"s": 205}]
    assert db.as_of().view("total").lookup() == [{"s": 0}]
    with pytest.raises(AlreadyExists):
        db.take_snapshot("first")
    db.drop_snapshot("first")
    with pytest.raises(SnapshotGone, match="first"):
        db.as_of("first").view("total").lookup()
    with pytest.raises(NotFound):
        db.drop_snapshot("first")
    for name in ("latest", "a/b", "x" * 129, "\n"):
        with pytest.raises(BadRequest):
            db.take_snapshot(name)


def test_an_answer_is_worked_out_once(db: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes with its snapshot, and when tables or views are others."""
    worked_out: list[str] = []

    def counted(state: Any, definition: Any) -> Any:
        worked_out.append(definition.name)
        return plan_evaluation(state, definition)

    monkeypatch.setattr(reading, "plan_evaluation", counted)
    db.take_snapshot("s", hold=True)
    then = db.as_of("s")
    for _ in range(3):
        assert then.view("one").lookup_many([[1], [9]]) == [[{"id": 1, "n": 100}], []]
        assert then.view("one").lookup(id=1) == [{"id": 1, "n": 100}]
        assert db.as_of().view("best").lookup(branch=2) == [{"id": 3, "n": 5}]
        db.execute("UPDATE acc SET n = n + 1")
    assert worked_out == ["one", "best"]
    assert then.view("one").lookup_many([[1], [2]]) == [[{"id": 1, "n": 100}], [{"id": 2, "n": 100}]]
    assert worked_out == ["one", "best", "one"], "a key that was not asked for"

    db.drop_snapshot("s")
    with pytest.raises(SnapshotGone):
        then.view("one").lookup(id=1)
    db.take_snapshot("s", hold=True)
    assert then.view("one").lookup(id=1) == [{"id": 1, "n": 103}], "another one of the same name"
    db.execute("DROP VIEW one; CREATE EXT VIEW one AS SELECT id, n + 1 AS n FROM acc WHERE id = ?")
    assert then.view("one").lookup(id=1) == [{"id": 1, "n": 104}], "another view of the same name"
    db.execute("ALTER TABLE acc ADD COLUMN more INT DEFAULT 7")
    with pytest.raises(SnapshotGone):
        then.view("one").lookup(id=1)


def test_answers_that_are_kept_are_few_and_counted() -> None:
    """Those that were asked for last; none of another snapshot, or of other tables."""
    state, lookups = object(), [BoundLookup(((n,),)) for n in range(20)]
    answers = SnapshotAnswers(most=10 * (ANSWER_COST + 200))
    one, other = SnapshotRecord("a", 1.0, True), SnapshotRecord("a", 2.0, True)
    answers.retain(state, {("a", 1.0)})
    for lookup in lookups:
        answers.of(one, state).keep("v", lookup, b"1")
        assert answers.of(one, state).find("V", lookups[0]) == b"1"
    there = [lookup for lookup in lookups if answers.of(one, state).find("v", lookup)]
    assert 5 < len(there) < len(lookups)
    assert there[0] == lookups[0]
    assert there[1:] == lookups[-len(there) + 1 :]
    assert len(there) * ANSWER_COST < answers.bytes <= 10 * (ANSWER_COST + 200)
    assert answers.of(one, state).find("v", BoundLookup(((0.0,),))) is None, "another value, though equal"
    assert answers.of(one, object()).find("v", lookups[0]) is None
    answers.of(other, state).keep("v", lookups[0], b"2")
    assert answers.of(other, state).find("v", lookups[0]) is None, "nobody has told of it"
    answers.retain(state, {("a", 2.0)})
    assert answers.bytes == 0
    answers.of(other, state).keep("v", lookups[0], b"2")
    answers.of(other, state).keep("v", lookups[1], bytes(10**6))
    assert (answers.of(other, state).find("v", lookups[0]), answers.bytes < 1_000) == (b"2", True)


def test_a_request_reads_one_by_its_url(db: Embedded) -> None:
    db.take_snapshot("then")
    db.execute("UPDATE acc SET n = 0")

    def rows(path: str) -> list[dict[str, int]]:
        return list(db.send(Call("GET", path, lambda answer: answer["rows"], None)))

    assert rows("/v1/views/one?id=1&as_of=then") == [{"id": 1, "n": 100}]
    assert rows("/v1/views/one?id=1&as_of=latest") == [{"id": 1, "n": 100}]
    assert rows("/v1/views/one?id=1") == [{"id": 1, "n": 0}]
    with pytest.raises(BadRequest):
        rows("/v1/views/one?id=1&as_of=then&as_of=latest")
    db.execute("CREATE EXT VIEW named AS SELECT id FROM acc WHERE id = :as_of")
    assert rows("/v1/views/named?as_of=1") == [{"id": 1}], "the view's own parameter"


def test_nothing_is_written_in_one(db: Embedded) -> None:
    then = db.as_of(db.take_snapshot())
    for text in (
        "UPDATE acc SET n = 0",
        "INSERT INTO acc VALUES (9, 9, 9)",
        "BEGIN; SELECT 1; COMMIT",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "SELECT 1; DELETE FROM acc",
    ):
        with pytest.raises(BadRequest, match="only read"):
            then.execute(text)
    with pytest.raises(BadRequest, match="only read"):
        then.table("acc").insert({"id": 9, "branch": 9, "n": 9})
    with pytest.raises(UnknownName) as caught:
        then.execute("SELECT * FROM nothing")
    assert "transaction" not in str(caught.value)
    with db.transaction() as t, pytest.raises(BadRequest):
        t.send(Call("GET", "/v1/views/one?id=1&as_of=latest", lambda answer: answer, None))
    assert db.view("total").lookup() == [{"s": 205}]


def test_a_table_that_is_another_now_is_gone(db: Embedded) -> None:
    then = db.as_of(db.take_snapshot())
    db.execute("CREATE TABLE later (id INT PRIMARY KEY); CREATE EXT VIEW laters AS SELECT id FROM later WHERE id = ?")
    db.execute("INSERT INTO later VALUES (1)")
    for read in (lambda: then.execute("SELECT * FROM later"), lambda: then.view("laters").lookup(id=1)):
        with pytest.raises(SnapshotGone, match="later"):
            read()
    db.execute("ALTER TABLE acc ADD COLUMN more INT DEFAULT 7")
    with pytest.raises(SnapshotGone, match="acc"):
        then.view("total").lookup()
    db.execute("DROP VIEW one, best, total; DROP TABLE acc; CREATE TABLE acc (id INT PRIMARY KEY, n INT)")
    with pytest.raises(SnapshotGone, match="acc"):
        then.execute("SELECT * FROM acc")


def test_one_that_is_held_is_there_after_a_restart(tmp_path: Path) -> None:
    with embedded(tmp_path, read_your_writes=True, read_timeout=60, shards=3) as db:
        db.execute(SCHEMA)
        db.take_snapshot("month-end", hold=True)
        db.take_snapshot("passing")
        db.execute("UPDATE acc SET n = n + 1")
    with embedded(tmp_path, read_your_writes=True, read_timeout=60, shards=3) as db:
        assert [(each["name"], each["held"]) for each in db.snapshots()] == [("month-end", True)]
        db.execute("DELETE FROM acc WHERE id = 3; CREATE EXT VIEW later AS SELECT n FROM acc WHERE branch = ?")
        then = db.as_of("month-end")
        assert then.view("total").lookup() == [{"s": 205}]
        assert then.view("later").lookup(branch=2) == [{"n": 5}]
        assert then.execute("SELECT COUNT(*) FROM acc JOIN acc b ON b.branch = acc.branch").rows == ((5,),)
        assert db.view("total").lookup() == [{"s": 202}]
        with pytest.raises(SnapshotGone, match="passing"):
            db.as_of("passing").view("total").lookup()
        with pytest.raises(AlreadyExists):
            db.take_snapshot("month-end")
        db.drop_snapshot("month-end")
    assert not list(tmp_path.rglob("held/*"))


def test_many_rows_are_read_of_it_by_a_process_beside(db: Embedded) -> None:
    db.table("acc").insert([{"id": id, "branch": id % 7, "n": 1} for id in range(10, 5_010)])
    then = db.as_of(db.take_snapshot())
    db.execute("UPDATE acc SET n = n + 1")
    assert then.execute("SELECT SUM(n), COUNT(*) FROM acc").rows == ((5_205, 5_003),)
    assert len(then.execute("SELECT a.id, b.n FROM acc a JOIN acc b ON a.id = b.id WHERE b.n = 1").rows) == 5_000
    assert then.execute("SELECT SUM(n) FROM acc").rows == ((5_205,),), "whoever has read it has not closed it"


def test_money_is_neither_there_twice_nor_missing(tmp_path: Path) -> None:
    over, seen = [False], set[tuple[int, int]]()
    with embedded(tmp_path, shards=3) as db:
        db.execute(SCHEMA)
        db.table("acc").insert([{"id": id, "branch": 0, "n": 100} for id in range(10, 30)])

        def move(first: int) -> None:
            at = first
            while not over[0]:
                at = 10 + (at - 10) * 7 % 19
                text = f"UPDATE acc SET n = n - 1 WHERE id = {at}; UPDATE acc SET n = n + 1 WHERE id = {at + 1}"
                try:
                    db.execute(text, atomic=True)
                except Conflict:
                    continue

        movers = [Thread(target=move, args=[first]) for first in (11, 13)]
        for mover in movers:
            mover.start()
        try:
            until = time.monotonic() + 60
            while len(seen) < 8 and time.monotonic() < until:
                then = db.as_of(db.take_snapshot())
                ((n,),) = then.execute("SELECT n FROM acc WHERE id = 17").rows
                seen.add((n, then.view("total").lookup()[0]["s"]))
        finally:
            over[0] = True
            for mover in movers:
                mover.join()
    assert len(seen) >= 8, "nothing is moved"
    assert {total for _, total in seen} == {2_205}


def test_they_are_taken_now_and_then_and_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.transactions.snapshots.COLLECTED_SECONDS", 0.2)
    with embedded(tmp_path, snapshot_every=0.05) as db:
        db.execute(SCHEMA)
        db.take_snapshot("held", hold=True)
        names, until = set[str](), time.monotonic() + 60
        while len(names) < 8:
            assert time.monotonic() < until, f"only {len(names)} were taken"
            kept = [each["name"] for each in db.snapshots()]
            names |= set(kept)
            time.sleep(0.02)
        kept = [each["name"] for each in db.snapshots()]
        assert "held" in kept
        assert len(kept) < len(names), "those that nobody holds go"
        db.execute("UPDATE acc SET n = 0")
        while db.as_of().view("total").lookup() != [{"s": 0}]:
            assert time.monotonic() < until, "the latest is not of now"
            time.sleep(0.02)
    assert COLLECTED_SECONDS > 1


def test_there_are_so_many_and_no_more(tmp_path: Path) -> None:
    with embedded(tmp_path) as db:
        db.execute(SCHEMA)
        for _ in range(SNAPSHOTS_MAX):
            db.take_snapshot()
        with pytest.raises(LimitExceeded, match="64 snapshots"):
            db.take_snapshot()
        db.drop_snapshot(db.snapshots()[0]["name"])
        db.take_snapshot()


def test_the_command(served_local: str) -> None:
    url = ["--url", served_local]

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["snapshots", *arguments, *url])
        assert result.exit_code == 0, result.output
        return result.output

    assert "no snapshot is kept" in said()
    assert said("--take", "--name", "month-end", "--hold").strip() == "month-end"
    assert said().startswith("month-end 20")
    assert "held" in said()
    said("--drop", "month-end")
    assert "no snapshot is kept" in said()
    assert CliRunner().invoke(app, ["snapshots", "--hold", *url]).exit_code != 0

    async def read() -> object:
        async with connect_async(served_local) as db:
            await db.execute(SCHEMA)
            then = db.as_of(await db.take_snapshot())
            await db.execute("UPDATE acc SET n = 0")
            assert [each["held"] for each in await db.snapshots()] == [False]
            return await then.view("total").lookup()

    assert asyncio.run(read()) == [{"s": 205}]
