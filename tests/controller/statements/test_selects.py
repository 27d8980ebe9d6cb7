"""SELECTs that nobody declared: read while their table is altered, and forgotten to make room for one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.lookups.binding import Binding
from controller.statements import selects
from domains.plan.packets import Clock
from migrations.recipe import Recipe, RecipeEntry, without_forgotten
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name
from worker.reader_map import BoundLookup
from zookeeper.local_authority import stored_state

STAR = "SELECT * FROM t"


@pytest.mark.parametrize(
    ("alteration", "expected"),
    [
        ("ALTER TABLE t ADD COLUMN b INT DEFAULT 5", [("id", "a", "b"), (1, 10, 5)]),
        ("ALTER TABLE t DROP COLUMN a", [("id",), (1,)]),
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a INT DEFAULT 7", [("id", "a"), (1, 7)]),
    ],
)
@pytest.mark.parametrize("after", [False, True], ids=["before the reading", "after the reading"])
async def test_a_select_during_an_alteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alteration: str, expected: list[Any], after: bool
) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 10)")
        read = LocalDeployment.read
        alterations = [alteration]

        async def altered(
            self: LocalDeployment, view: str, bind: Callable[[Binding], BoundLookup], token: Clock
        ) -> bytes:
            page = await read(self, view, bind, token) if after else b""
            if alterations:
                await self.execute(alterations.pop())
            return page or await read(self, view, bind, token)

        monkeypatch.setattr(LocalDeployment, "read", altered)
        ((result,), _) = await deployment.execute(STAR)
        assert [tuple(column.name for column in result.columns), *result.rows] == expected
    finally:
        await deployment.close()


# --- views of ad-hoc SELECTs make room for one another ------------------------------------------------------------


KEPT = 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selects, "AD_HOC_VIEWS_MAX", KEPT)


async def ask(deployment: LocalDeployment, numbers: range) -> None:
    for number in numbers:
        ((result,), _) = await deployment.execute(f"SELECT a + {number} AS x FROM t")
        assert result.rows == ((10 + number,),)


@pytest.mark.usefixtures("few")
async def test_a_start_plans_only_what_is_left(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 10)")
    await ask(deployment, range(10))
    left = set(deployment.state.catalog.views)
    assert len(left) == KEPT
    await deployment.close()
    deployment = await LocalDeployment.open(tmp_path)
    try:
        assert set(deployment.state.catalog.views) == left
        await ask(deployment, range(10, 11))
        recipe = Recipe.from_json(stored_state(tmp_path / "recipe.json"))
        assert len(recipe.entries) == 1 + KEPT + 2  # The table, what was left, one that came and one that went.
    finally:
        await deployment.close()


@pytest.mark.usefixtures("few")
async def test_a_select_that_a_view_reads_is_not_forgotten(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 10)")
        await ask(deployment, range(1))
        (name,) = deployment.state.catalog.views
        await deployment.execute(f"CREATE VIEW v AS SELECT x FROM {name}")
        await ask(deployment, range(1, 10))
        ((result,), _) = await deployment.execute("SELECT x FROM v")
        assert result.rows == ((10,),)
    finally:
        await deployment.close()


def test_what_others_name_stays_in_the_recipe() -> None:
    table = RecipeEntry(("CREATE TABLE t (a INT)",))
    one, two = (RecipeEntry((f"SELECT a + {number} AS x FROM t",), ad_hoc=True) for number in range(2))
    names = [ad_hoc_name(entry.statements[0]) for entry in (one, two)]
    forget = [RecipeEntry(forget=(name,)) for name in names]
    view = RecipeEntry((f"CREATE VIEW v AS SELECT x FROM {names[0].upper()}",))
    assert without_forgotten(Recipe((table, one, forget[0], one, two, forget[1]))) == Recipe((table, one))
    assert without_forgotten(Recipe((table, one, two, view, *forget))) == Recipe((table, one, view, forget[0]))
    both = RecipeEntry(forget=tuple(names))
    assert without_forgotten(Recipe((table, one, two, view, both))) == Recipe((table, one, view, forget[0]))
    assert without_forgotten(Recipe((table, one, both))) == Recipe((table, forget[1]))
