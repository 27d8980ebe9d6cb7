"""A crash at each point of a migration, one after the other: what is opened then is what was before it or after it.

The data directory is copied before and after each command to the dataflow and each write of the recipe, while all is
quiet, and each copy is opened.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.migrating.executor import LocalBook
from domains.errors import StorageFailure

BEFORE = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title TEXT);
INSERT INTO stories VALUES (1, 10, 'one'), (2, 10, 'two'), (3, 11, 'three');
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL);
INSERT INTO votes VALUES (1, 1), (1, 2), (2, 1);
CREATE EXT VIEW Counts AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story;
CREATE TABLE old (a INT PRIMARY KEY);
INSERT INTO old VALUES (7);
CREATE VIEW Star AS SELECT * FROM stories WHERE id = ?
"""

CHANGES = [
    "CREATE VIEW Partial AS SELECT title FROM stories WHERE author = ?",
    "CREATE EXT VIEW Whole AS SELECT author, COUNT(*) AS n FROM stories JOIN votes ON story = id GROUP BY author",
    "ALTER TABLE stories ADD COLUMN score INT NOT NULL DEFAULT 5",
    "ALTER TABLE votes ADD COLUMN at DATE",
    "CREATE INDEX by_author ON stories (author)",
    "DROP TABLE old",
    "DROP TABLE old; CREATE TABLE old (b TEXT, c INT)",
    "DROP VIEW Counts",
    "CREATE OR REPLACE VIEW Counts AS SELECT story, COUNT(*) + 1 AS n FROM votes GROUP BY story",
    "CREATE TABLE more (x INT PRIMARY KEY)",
    "CREATE TABLE made AS SELECT id, title FROM stories",
]

State = dict[str, Any]


async def state_of(deployment: LocalDeployment) -> State:
    """Tables with their schemas and rows, views with their answers."""
    found: State = {}
    for schema in deployment.tables():
        stores = list(deployment.dataflow.stores.values())[: deployment.state.shards]
        rows = [row for store in stores for row in store.table(schema.name).find((), ())]
        found[f"table {schema.name}"] = (schema, sorted(rows))
    for view in deployment.views():
        arguments = [10 for _ in view.parameters]
        page = await deployment.read(view.name, lambda binding, given=arguments: binding.from_arguments(given))
        found[f"view {view.name}"] = (view.sql, sorted(page.split(b"},")))
    return found


async def opened(path: Path, domains: int, shards: int = 1) -> State:
    deployment = await LocalDeployment.open(path, domains=domains, shards=shards)
    try:
        return await state_of(deployment)
    finally:
        await deployment.close()


def book_of(deployment: LocalDeployment) -> LocalBook:
    book = deployment.migrator._book
    assert isinstance(book, LocalBook)
    return book


def copies_of(deployment: LocalDeployment, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Has a copy made around every command and every write of the recipe."""
    copies: list[Path] = []

    def copy() -> None:
        copies.append(path.with_name(f"copy {len(copies)}"))
        shutil.copytree(path, copies[-1])

    perform, authority = deployment.dataflow.command, book_of(deployment)._authority
    write = authority.write

    def command(*arguments: Any) -> Any:
        copy()
        answer = perform(*arguments)
        answer.result(60)
        copy()
        return answer

    async def written(*arguments: Any) -> int:
        copy()
        version = await write(*arguments)
        copy()
        return version

    monkeypatch.setattr(deployment.dataflow, "command", command)
    monkeypatch.setattr(authority, "write", written)
    return copies


@pytest.mark.parametrize(("domains", "shards"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_crash_at_each_point_of_a_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, domains: int, shards: int
) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data", domains=domains, shards=shards)
    await deployment.execute(BEFORE)
    before = await state_of(deployment)
    with monkeypatch.context() as patching:
        copies = copies_of(deployment, tmp_path / "data", patching)
        await deployment.execute(change)
    after = await state_of(deployment)
    await deployment.close()
    assert len(copies) >= 4
    allowed = [before, after]
    if change.startswith("DROP TABLE old;"):  # two changes, and a crash may come between them
        allowed.append({name: state for name, state in before.items() if name != "table old"})
    reached = []
    for copy in copies:
        state = await opened(copy, domains, shards)
        assert state in allowed, f"{copy.name}: {state}"
        reached.append(allowed.index(state))
    assert reached[0] == 0
    assert reached[-1] == 1
    assert await opened(tmp_path / "data", domains, shards) == after


async def test_a_recipe_that_was_half_written_beside_the_old_one(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute(BEFORE)
    before = await state_of(deployment)
    await deployment.close()
    (tmp_path / "recipe.new").write_text('{"format": 1, "entr')
    assert await opened(tmp_path, 1) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda recipe: recipe.write_text(recipe.read_text()[:-20]), "damaged"),
        (lambda recipe: recipe.write_text('{"format": 99, "entries": []}'), "format 99"),
        (lambda recipe: recipe.write_text('{"format": 1, "entries": ["x"]}'), "recipe"),
        (lambda recipe: recipe.write_text('{"format": 1, "entries": [{"statements": ["SELEC"]}]}'), "played"),
        (lambda recipe: recipe.write_text('{"format": 1, "entries": []}'), 'stored table "'),
        (lambda recipe: recipe.unlink(), "is missing"),
    ],
)
async def test_a_damaged_recipe_is_refused_and_nothing_is_lost(
    tmp_path: Path, damage: Callable[[Path], Any], message: str
) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute(BEFORE)
    before = await state_of(deployment)
    await deployment.close()
    recipe = tmp_path / "recipe.json"
    kept = recipe.read_bytes()
    damage(recipe)
    with pytest.raises(StorageFailure, match=message):
        await LocalDeployment.open(tmp_path)
    recipe.write_bytes(kept)
    assert await opened(tmp_path, 1) == before


async def test_a_recipe_that_cannot_be_written_leaves_the_old_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute(BEFORE)
    before, nodes = await state_of(deployment), len(deployment.dataflow.domains[0].vertices)

    async def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patching:
        patching.setattr(book_of(deployment)._authority, "write", full)
        for change in CHANGES:
            with pytest.raises(StorageFailure, match="No space left"):
                await deployment.execute(change)
    assert await state_of(deployment) == before
    assert len(deployment.dataflow.domains[0].vertices) == nodes
    for change in CHANGES[:5]:
        await deployment.execute(change)
    await deployment.close()
