"""Rows whose key is taken, by the rows' own call: what SQL's IGNORE, REPLACE and ON DUPLICATE KEY UPDATE do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.embedding import Embedded, embedded
from headrace.errors import BadRequest, ConstraintViolation, UnknownName, Unsupported

TABLE = """
CREATE TABLE ribbons (id BIGINT NOT NULL AUTO_INCREMENT, user INT NOT NULL, story INT NOT NULL, at DATETIME NOT NULL,
                      note VARCHAR(20) DEFAULT 'none', PRIMARY KEY (user, id), UNIQUE KEY (user, story), KEY (id))
                      SHARD BY (user);
CREATE EXT VIEW OfUser AS SELECT story, at, note FROM ribbons WHERE user = ? ORDER BY story;
"""
NOON, LATER = datetime(2026, 1, 31, 12), datetime(2026, 1, 31, 13)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def shards(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def db(shards: int, tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path, shards=shards, read_your_writes=True) as db:
        db.execute(TABLE)
        yield db


def of_user(db: Embedded, user: int) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.view("OfUser").lookup(user=user)]


def ribbon(user: int, story: int, at: datetime = NOON, **more: Any) -> dict[str, Any]:
    return {"user": user, "story": story, "at": at, **more}


def test_update_sets_what_the_rows_give_beside_keys(db: Embedded) -> None:
    ribbons = db.table("ribbons")
    ribbons.insert([ribbon(1, 1, note="kept"), ribbon(2, 1)])
    assert of_user(db, 1) == [(1, NOON, "kept")]
    written = ribbons.insert([ribbon(1, 1, LATER), ribbon(1, 2, LATER), ribbon(2, 1, NOON)], on_duplicate="update")
    assert written.rows_affected == 3, "two for what is updated, one for what is new, none for what is so already"
    assert of_user(db, 1) == [(1, LATER, "kept"), (2, LATER, "none")]
    assert of_user(db, 2) == [(1, NOON, "none")]


def test_update_of_chosen_columns(db: Embedded) -> None:
    ribbons = db.table("ribbons")
    ribbons.insert([ribbon(user, 1) for user in range(9)])
    ribbons.insert([ribbon(user, 1, LATER, note="new") for user in range(9)], on_duplicate="update", update=["NOTE"])
    assert [of_user(db, user) for user in range(9)] == [[(1, NOON, "new")]] * 9
    ribbons.insert([ribbon(1, 1, LATER)], on_duplicate="update", update=[])
    assert of_user(db, 1) == [(1, NOON, "new")]


def test_the_same_key_twice_in_a_request(db: Embedded) -> None:
    rows = [ribbon(1, 1, note="a"), ribbon(1, 1, note="b"), ribbon(1, 1, LATER, note="c")]
    assert db.table("ribbons").insert(rows, on_duplicate="update", update=["note"]).rows_affected == 5
    assert of_user(db, 1) == [(1, NOON, "c")]


def test_ignore_and_replace(db: Embedded) -> None:
    ribbons = db.table("ribbons")
    ribbons.insert(ribbon(1, 1, note="old"))
    assert ribbons.insert([ribbon(1, 1, LATER), ribbon(1, 2)], on_duplicate="ignore").rows_affected == 1
    assert of_user(db, 1) == [(1, NOON, "old"), (2, NOON, "none")]
    assert ribbons.insert(ribbon(1, 1, LATER), on_duplicate="replace").rows_affected == 2
    assert of_user(db, 1) == [(1, LATER, "none"), (2, NOON, "none")]
    with pytest.raises(ConstraintViolation):
        ribbons.insert(ribbon(1, 1))


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"on_duplicate": "update", "update": ["when"]}, UnknownName, "unknown column"),
    ({"on_duplicate": "update", "update": ["at", "AT"]}, BadRequest, "names a column twice"),
    ({"on_duplicate": "update", "update": ["note"]}, BadRequest, 'row 1 has no "note"'),
    ({"on_duplicate": "ignore", "update": ["at"]}, BadRequest, '"on_duplicate" is "ignore"'),
    ({"update": ["at"]}, BadRequest, '"on_duplicate" is "error"'),
    ({"on_duplicate": "sometimes"}, BadRequest, '"on_duplicate": input should be'),
    ({"on_duplicate": "update", "once": ("s", 1)}, BadRequest, '"once" goes with'),
]


def test_what_is_wrong_is_said(db: Embedded, subtests: pytest.Subtests) -> None:
    for how, kind, message in WRONG:
        with subtests.test(message):
            with pytest.raises(kind, match=message):
                db.table("ribbons").insert([ribbon(1, 1)], **how)
            assert of_user(db, 1) == []


def test_rows_that_give_different_columns(db: Embedded) -> None:
    """A column that only some rows give would be set to its default by the others."""
    rows = [ribbon(1, 1, note="x"), ribbon(1, 2)]
    with pytest.raises(BadRequest, match='row 2 has no "note"'):
        db.table("ribbons").insert(rows, on_duplicate="update")
    db.table("ribbons").insert(rows, on_duplicate="update", update=["at"])
    assert of_user(db, 1) == [(1, NOON, "x"), (2, NOON, "none")]


def test_the_column_of_the_shard_is_not_updated(db: Embedded, shards: int) -> None:
    rows = [ribbon(1, 1)]
    if shards == 1:
        db.table("ribbons").insert(rows, on_duplicate="update", update=["user"])
        assert of_user(db, 1) == [(1, NOON, "none")]
    else:
        with pytest.raises(Unsupported, match="by which the table is sharded"):
            db.table("ribbons").insert(rows, on_duplicate="update", update=["user"])


def test_the_first_id_is_that_of_a_row_that_was_inserted(db: Embedded) -> None:
    ribbons = db.table("ribbons")
    ribbons.insert([ribbon(1, story) for story in range(3)])
    assert ribbons.insert(ribbon(1, 1, LATER), on_duplicate="ignore").first_id is None
    assert ribbons.insert(ribbon(1, 1, LATER), on_duplicate="update").first_id is None
    text = "INSERT INTO ribbons (user, story, at) VALUES (1, 1, '2026-02-01') ON DUPLICATE KEY UPDATE at = VALUES(at)"
    assert db.execute(text).first_id is None
    assert db.execute(text.replace("INSERT", "INSERT IGNORE").split(" ON ")[0]).first_id is None
    first = ribbons.insert([ribbon(1, 1), ribbon(1, 7), ribbon(1, 8)], on_duplicate="ignore").first_id
    assert [row[0] for row in db.execute("SELECT story FROM ribbons WHERE user = 1 AND id = ?", [first]).rows] == [7]


def test_the_first_id_of_several_shards_is_the_least(db: Embedded) -> None:
    written = db.table("ribbons").insert([ribbon(user, 1) for user in range(20)])
    rows = db.execute("SELECT MIN(id) FROM ribbons", token=written.token).rows
    assert [tuple(row) for row in rows] == [(written.first_id,)]
    again = db.table("ribbons").insert([ribbon(user, 2) for user in range(20)], once=("s", 1))
    rows = db.execute("SELECT MIN(id) FROM ribbons WHERE story = 2", token=again.token).rows
    assert [tuple(row) for row in rows] == [(again.first_id,)]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_call_and_sql_do_the_same(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with embedded(tmp_path / "call", shards=2) as call, embedded(tmp_path / "sql") as sql:
        for db in (call, sql):
            db.execute(TABLE)
        for _ in range(30):
            rows = [
                ribbon(rng.randrange(5), rng.randrange(5), rng.choice((NOON, LATER)), note=rng.choice(("a", "b", None)))
                for _ in range(rng.randrange(1, 9))
            ]
            act = rng.choice(("ignore", "replace", "update"))
            ours = call.table("ribbons").insert(rows, on_duplicate=act)  # type: ignore[arg-type]
            theirs = sql.execute(_sql(act, len(rows)), [value for row in rows for value in row.values()])
            assert ours.rows_affected == theirs.rows_affected
        everything = "SELECT user, story, at, note FROM ribbons ORDER BY user, story"
        token = call.table("ribbons").insert([]).token
        assert call.execute(everything, token=token).rows == sql.execute(everything).rows


def _sql(act: str, count: int) -> str:
    verb = {"ignore": "INSERT IGNORE", "replace": "REPLACE", "update": "INSERT"}[act]
    text = f"{verb} INTO ribbons (user, story, at, note) VALUES {', '.join(['(?, ?, ?, ?)'] * count)}"
    return f"{text} ON DUPLICATE KEY UPDATE at = VALUES(at), note = VALUES(note)" if act == "update" else text
