"""A recipe that is made short comes to the same: tables, views, nodes under their numbers, and whatever comes next."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from domains.errors import HeadraceError, StorageFailure
from migrations.change import change_of
from migrations.compacting import compaction, removals, worth_compacting
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe, RecipeEntry
from tests.played_recipe import play

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)"
COUNT = "SELECT a, COUNT(*) AS n FROM t"


def recipe_of(*statements: str) -> Recipe:
    return Recipe(tuple(RecipeEntry((sql,)) for sql in statements))


def made_short(recipe: Recipe, shards: int = 1) -> Recipe | None:
    steps = compaction(recipe, State(shards=shards), one_domain)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            if ended.value is None:
                return None
            short, state = ended.value
            assert shown(play(short, one_domain, shards=shards)) == shown(state)
            return Recipe.from_json(short.to_json())


def shown(state: State) -> list[object]:
    catalog, flow = state.catalog, state.flow
    tables, views = list(catalog.tables.items()), list(catalog.views.items())
    return [tables, views, dict(catalog.dropped), dict(catalog.policies), replace(flow, variants={}), flow.next_index]


@pytest.mark.parametrize(
    ("statements", "left"),
    [
        ([TABLE, *[f"CREATE EXT VIEW v AS {COUNT} GROUP BY a", "DROP VIEW v"] * 30], 2),
        ([TABLE, *[f"CREATE EXT VIEW v AS {COUNT} WHERE b > {n} GROUP BY a;DROP VIEW v" for n in range(30)]], 1),
        ([TABLE, *[f"CREATE OR REPLACE EXT VIEW v AS {COUNT} WHERE b > {n} GROUP BY a" for n in range(30)]], 2),
        # It is read: that it came first stays, and what took its place last.
        (
            [TABLE, "CREATE VIEW v AS SELECT a, b FROM t", "CREATE EXT VIEW d AS SELECT a FROM v WHERE b = ?"]
            + [f"CREATE OR REPLACE VIEW v AS SELECT a, b FROM t WHERE id > {n}" for n in range(30)],
            4,
        ),
        # Each has nodes of the one before, which the first made.
        (
            [TABLE, f"CREATE EXT VIEW v0 AS {COUNT} GROUP BY a"]
            + [
                sql
                for n in range(20)
                for sql in (
                    f"CREATE EXT VIEW v{n + 1} AS SELECT a, COUNT(*) + {n} AS n FROM t GROUP BY a",
                    f"DROP VIEW v{n}",
                )
            ],
            4,
        ),
        # A policy stays with its table, and a view that was there before it.
        (
            [TABLE, "CREATE VIEW w AS SELECT a FROM t", "CREATE POLICY p ON t USING (a = CURRENT_CLAIM('sub'))"]
            + [f"CREATE EXT VIEW v AS {COUNT} GROUP BY a", "DROP VIEW v"] * 30
            + ["CREATE POLICY q ON t FOR SELECT USING (b > 1)", "DROP POLICY p ON t", "DROP VIEW w"],
            6,
        ),
        (
            [TABLE, *["CREATE POLICY p ON t USING (a > 1)", "DROP TABLE t", TABLE] * 20],
            2,
        ),
        # Its rows may lie on a disk that is away: the next table of the name is another.
        (
            [
                TABLE,
                *["CREATE TABLE u (x INT)", "ALTER TABLE u ADD COLUMN y INT", "DROP TABLE u"] * 9,
                "CREATE TABLE u (z INT)",
            ],
            3,
        ),
        ([TABLE, *["ALTER TABLE t ADD COLUMN c INT", "ALTER TABLE t DROP COLUMN c"] * 3], 7),
        ([TABLE, "CREATE TABLE u (x INT)", "CREATE VIEW w AS SELECT x FROM u", "DROP VIEW w", "DROP TABLE u"], 2),
        # A table cannot be made without that which its foreign key names.
        (
            [
                TABLE,
                "CREATE TABLE p (x INT PRIMARY KEY)",
                "CREATE TABLE c (x INT)",
                "ALTER TABLE c ADD CONSTRAINT k FOREIGN KEY (x) REFERENCES p (x)",
                "ALTER TABLE c DROP FOREIGN KEY k",
                "DROP TABLE p",
                *["CREATE TABLE u (x INT)", "DROP TABLE u"] * 9,
            ],
            7,
        ),
        # Nothing can be in a database that is not there.
        (["CREATE DATABASE d", TABLE, "RENAME TABLE t TO d.t", *["CREATE TABLE d.u (x INT)", "DROP TABLE d.u"] * 9], 4),
        ([TABLE, *["CREATE DATABASE d", "CREATE TABLE d.u (x INT)", "DROP DATABASE d"] * 9], 2),
    ],
)
@pytest.mark.parametrize("shards", [1, 3])
def test_what_cancels_out_goes(statements: Sequence[str], left: int, shards: int) -> None:
    recipe = recipe_of(*statements)
    short = made_short(recipe, shards)
    assert len((short or recipe).entries) == left
    if short is not None:
        assert shown(play(short, one_domain, shards=shards)) == shown(play(recipe, one_domain, shards=shards))
        assert short.changes == recipe.changes + 1, "it is a later one"


def test_it_stays_as_small_for_ever() -> None:
    recipe, reached, most = recipe_of(TABLE), 0, 0
    for _ in range(20):
        for sql in [f"CREATE EXT VIEW v AS {COUNT} WHERE b = ? GROUP BY a", "DROP VIEW v"] * 20:
            recipe = recipe.with_entry(RecipeEntry((sql,)))
        assert worth_compacting(recipe, 0)
        short = made_short(recipe)
        assert short is not None
        recipe = short
        state = play(recipe, one_domain)
        assert state.flow.next_index > reached, "no number is used again"
        reached, most = state.flow.next_index, max(most, len(recipe.to_json()))
    assert len(recipe.entries) == 2
    assert most < 300
    assert recipe.changes == 1 + 20 * 41


def test_ad_hoc_views_of_an_earlier_build_go_but_for_what_stands_on_them() -> None:
    selects = [f"SELECT id FROM t WHERE a > {n}" for n in range(40)]
    entries = [RecipeEntry((TABLE,)), *(RecipeEntry((sql,), ad_hoc=True) for sql in selects)]
    entries.append(RecipeEntry((f"CREATE EXT VIEW v AS {COUNT} WHERE b = ? GROUP BY a",)))
    state = play(Recipe(tuple(entries)), one_domain)
    forget = tuple(view.name for view in state.catalog.views.values() if view.ad_hoc)
    assert len(forget) == 40
    short = made_short(Recipe((*entries, RecipeEntry(forget=forget))))
    assert short is not None
    after = play(short, one_domain)
    # The first made the node of the table.
    assert [len(entry.forget) for entry in short.entries if entry.forget] == [1]
    assert len(short.entries) == 4
    assert {i: n for i, n in state.flow.nodes.items() if i in after.flow.nodes} == after.flow.nodes
    assert not removals(short) > 1


def test_what_an_earlier_version_would_misread_has_another_format() -> None:
    short = made_short(recipe_of(TABLE, *["CREATE TABLE u (x INT)", "DROP TABLE u"] * 9))
    assert short is not None
    text = short.to_json()
    assert b'"format": 3' in text
    assert b'"format": 2' in recipe_of(TABLE).to_json()
    for damage in ((b'"u": 9', b'"u": 8'), (b'"left_out": 18', b'"left_out": 17')):
        assert damage[0] in text
        with pytest.raises(StorageFailure, match="damaged"):
            Recipe.from_json(text.replace(*damage))


# --- any recipe ------------------------------------------------------------------------------------------------------


def _changes(chance: random.Random) -> Callable[[], RecipeEntry]:
    numbers = range(4)

    def select(source: str) -> str:
        bound = chance.randrange(3)
        return chance.choice(
            (
                f"SELECT a, COUNT(*) AS n FROM {source} WHERE b > {bound} GROUP BY a",
                f"SELECT a, b FROM {source} WHERE b = ?",
                f"SELECT a, b FROM {source} WHERE id > {bound}",
                f"SELECT id, a, b FROM {source}",
                f"SELECT x.a, y.b FROM {source} x JOIN t0 y ON x.a = y.id WHERE x.a = ?",
                f"SELECT a, b FROM {source} ORDER BY a LIMIT {bound + 1}",
                f"SELECT * FROM {source}",
            )
        )

    def change() -> RecipeEntry:
        number, other = chance.choice(numbers), chance.choice(numbers)
        source = chance.choice((f"t{other % 2}", f"v{other}"))
        sql = chance.choice(
            (
                f"CREATE TABLE t{number % 2} (id INT PRIMARY KEY, a INT, b INT)",
                f"DROP TABLE t{number % 2}",
                f"ALTER TABLE t{number % 2} ADD COLUMN c{other} INT",
                f"ALTER TABLE t{number % 2} DROP COLUMN c{other}",
                f"CREATE INDEX i{other} ON t{number % 2} (b)",
                f"{chance.choice(('CREATE', 'DROP'))} DATABASE d",
                f"CREATE TABLE d.t{number % 2} (id INT PRIMARY KEY, a INT, b INT)",
                f"CREATE VIEW d.v AS {select(source)}",
                f"RENAME TABLE t{number % 2} TO d.t{number % 2}",
                *[f"CREATE {chance.choice(('', 'EXT '))}VIEW v{number} AS {select(source)}"] * 3,
                *[f"CREATE OR REPLACE VIEW v{number} AS {select(source)}"] * 3,
                *[f"DROP VIEW v{number}"] * 4,
                "",
            )
        )
        if not sql:
            return RecipeEntry(readers=(f"v{number}",))
        if chance.random() < 0.1:
            return RecipeEntry((f"SELECT id FROM t{number % 2} WHERE b > {other}",), ad_hoc=True)
        return RecipeEntry((sql,))

    return change


@pytest.mark.parametrize("seed", range(12))
def test_any_recipe_comes_to_the_same(seed: int) -> None:
    chance = random.Random(f"recipe {seed}")
    change, shards = _changes(chance), chance.choice((1, 1, 3))
    recipe, state, shortened, number = Recipe(), State(shards=shards), 0, 0
    while number < 200:
        entry = change()
        if any(name not in state.catalog.views for name in entry.readers):
            continue
        if chance.random() < 0.03:
            entry = RecipeEntry(forget=tuple(view.name for view in state.catalog.views.values() if view.ad_hoc))
        try:
            after = change_of(state, entry, one_domain).state
        except HeadraceError:
            continue
        recipe, state, number = recipe.with_entry(entry), after, number + 1
        if number % 40 == 0 and (short := made_short(recipe, shards)) is not None:
            played = play(short, one_domain, shards=shards)
            assert shown(played) == shown(state), f"seed {seed}, after {number}"
            recipe, state, shortened = short, played, shortened + 1
    assert shortened > 1, f"seed {seed}: {len(recipe.entries)} entries"
