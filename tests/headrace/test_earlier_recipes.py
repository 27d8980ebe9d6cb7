"""A directory that an earlier build of 0.1 wrote, with statements that are refused now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace
from domains.plan.graph import DomainIndex
from headrace.cli import app
from headrace.errors import HeadraceError, StorageFailure
from migrations.flow.plan import State
from migrations.recipe import Recipe, RecipeEntry
from migrations.replaying import replayed, without_view

RECIPE = """{"format": 2, "checksum": "d482ca46", "entries": [
{"statements": ["CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(60), rank INT, height FLOAT(7,2), UNIQUE KEY by_name (name(10))) DEFAULT CHARSET=binary"]},
{"statements": ["CREATE EXT VIEW Either AS SELECT id FROM people WHERE name = ? UNION ALL SELECT rank FROM people WHERE name = ?"]},
{"statements": ["CREATE EXT VIEW Both AS SELECT id, name FROM people WHERE rank IN (?, ?)"]},
{"statements": ["CREATE VIEW Tall (who) AS SELECT name FROM people WHERE rank IN (?, ?) AND height > 1"]},
{"statements": ["CREATE EXT VIEW Refused AS SELECT id FROM people WHERE CONVERT(name USING latin1) = 'x' AND rank = ?"]}
]}
"""  # noqa: E501  (as that build wrote it)
PEOPLE = [(1, "ann marie long", 2, 1.5), (2, "ann marie lang", 3, 1.25), (3, "bob", 2, 1.75)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Its rows by this build, which stores them as that one did."""
    with headrace.embedded(tmp_path) as db:
        db.execute("CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(60), rank INT, height FLOAT, UNIQUE (name))")
        for row in PEOPLE:
            db.execute("INSERT INTO people VALUES (?, ?, ?, ?)", row)
    (tmp_path / "recipe.json").write_text(RECIPE)
    (tmp_path / "recipe.slots").unlink()
    return tmp_path


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_what_was_taken_once_keeps_its_meaning_and_the_rest_is_named(directory: Path) -> None:
    with pytest.raises(StorageFailure, match=r'cannot be played again: "Refused": text in latin1') as refused:
        headrace.embedded(directory)
    assert "headrace leave-out Refused" in str(refused.value.hint)
    assert (directory / "recipe.json").read_text() == RECIPE
    done = CliRunner().invoke(app, ["leave-out", "refused", "--data", str(directory)])
    assert (done.exit_code, "is left out" in done.output) == (0, True), done.output
    for _ in range(2):
        with headrace.embedded(directory, read_your_writes=True) as db:
            assert ids(db.view("Either").lookup(name="bob")) == [2, 3]
            assert ids(db.view("Both").lookup(rank=[2, 3])) == [1, 2, 3]
            assert sorted(row["who"] for row in db.view("Tall").lookup(rank=[2])) == ["ann marie long", "bob"]
            with pytest.raises(HeadraceError, match="has the value 'bob' already"):
                db.execute("INSERT INTO people VALUES (9, 'bob', 1, 1)")
            db.execute("CREATE OR REPLACE EXT VIEW Refused AS SELECT id FROM people WHERE rank = ?")
            assert ids(db.view("Refused").lookup(rank=2)) == [1, 3]
    with headrace.embedded(directory, read_your_writes=True) as db:
        assert "`name` = :name" in db.schema() or "name = :name" in db.schema()
        db.execute("DROP VIEW Either; ALTER TABLE people ADD COLUMN age INT")
        assert ids(db.view("Both").lookup(rank=[3])) == [2]
    assert CliRunner().invoke(app, ["leave-out", "nobody", "--data", str(directory)]).exit_code == 1


def test_a_view_that_reads_one_that_is_refused_is_named_next() -> None:
    recipe = Recipe.from_json(RECIPE.encode())
    more = RecipeEntry(
        ("CREATE EXT VIEW Above AS SELECT id FROM Refused", "DROP VIEW IF EXISTS `refused`"), ("Refused",)
    )
    left = without_view(recipe.with_entry(more), "REFUSED")
    assert [entry.statements for entry in left.entries[-2:]] == [recipe.entries[-2].statements, more.statements[:1]]
    assert left.entries[-1].readers == ()
    state = State()
    for entry in left.entries[:-1]:
        state = replayed(state, entry, lambda _: DomainIndex(0))
    with pytest.raises(StorageFailure, match='"Above": unknown table or view "Refused"') as refused:
        replayed(state, left.entries[-1], lambda _: DomainIndex(0))
    assert "leave-out Above" in str(refused.value.hint)
    assert without_view(left, "refused") is left


def test_a_unique_key_on_the_beginning_of_a_column_was_on_all_of_it() -> None:
    """An entry of this version says that it has read it: ``key_parts``."""
    table = "CREATE TABLE t (name VARCHAR(60), n INT, UNIQUE KEY by_name (n, name(10)))"
    mine = Recipe((RecipeEntry((table,)),))
    assert b'"key_parts": true' in mine.to_json()
    assert Recipe.from_json(mine.to_json()) == mine
    earlier = Recipe((RecipeEntry((table,), whole_keys=True),))
    assert b"key_parts" not in earlier.to_json()
    assert Recipe.from_json(earlier.to_json()) == earlier
    for recipe, key in ((mine, (1, 2)), (earlier, (1, 0))):
        state = replayed(State(), recipe.entries[0], lambda _: DomainIndex(0))
        assert state.catalog.table("t").unique == (key,)
