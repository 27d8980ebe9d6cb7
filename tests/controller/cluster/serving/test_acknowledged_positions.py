"""What an api process was told of base shards is known for as long as their table is there, whatever it becomes."""

from __future__ import annotations

import pytest

from controller.cluster.serving.cluster_hosts import AcknowledgedPositions
from domains.plan.packets import Written
from migrations.flow.plan import one_domain
from migrations.recipe import Recipe, RecipeEntry
from tests.played_recipe import play

CREATED = "CREATE TABLE Votes (id INT PRIMARY KEY)"


@pytest.mark.parametrize(
    ("sql", "shards", "left"),
    [
        ("ALTER TABLE votes ADD COLUMN a INT", 1, {"Votes"}),
        ("ALTER TABLE votes ADD COLUMN a INT", 3, {"Votes@0", "Votes@2"}),
        ("DROP TABLE votes", 3, set()),
        (f"DROP TABLE votes; {CREATED}", 3, set()),
        ("CREATE TABLE other (a INT)", 3, {"Votes@0", "Votes@2"}),
    ],
)
def test_what_is_known_after(sql: str, shards: int, left: set[str]) -> None:
    known = AcknowledgedPositions()
    for base in ("Votes",) if shards == 1 else ("Votes@0", "Votes@2"):
        known.note(Written(1, {base: 7}))
    recipe = Recipe(tuple(RecipeEntry((each,)) for each in (CREATED, *sql.split("; "))))
    known.forget(play(recipe, one_domain, shards=shards))
    assert set(known.positions) == left
