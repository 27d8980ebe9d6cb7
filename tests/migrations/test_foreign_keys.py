"""FOREIGN KEY as it is declared: where it can be kept, what it needs, and as earlier versions took it."""

from __future__ import annotations

import pytest

from domains.errors import AlreadyExists, HeadraceError, SqlError, StillInUse, UnknownName, Unsupported
from domains.language.json_rows import schema_from_json, schema_to_json
from domains.language.types import ForeignKey, Reaction, TableSchema
from migrations.catalog import Catalog
from migrations.change import change_of
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe, RecipeEntry
from migrations.replaying import replayed
from migrations.statements.definitions.written import schema_text
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import CreateTableStatement

PARENTS = [
    "p (id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(9), UNIQUE (a, b), UNIQUE (b))",
    "one (id INT PRIMARY KEY)",
]


def catalog_of(*tables: str, shards: int = 1) -> Catalog:
    catalog = Catalog(shards=shards)
    for table in tables:
        catalog = catalog.with_table(created(f"CREATE TABLE {table}", catalog))
    return catalog


def created(sql: str, catalog: Catalog) -> TableSchema:
    statement = interpret_one(split(sql)[0], catalog, (), "")
    assert isinstance(statement, CreateTableStatement)
    return statement.schema


def test_what_is_kept_and_shown() -> None:
    catalog = catalog_of(
        *PARENTS,
        "c (id INT PRIMARY KEY REFERENCES One, p INT, q VARCHAR(20), n INT, "
        "CONSTRAINT k FOREIGN KEY (P) REFERENCES P (ID) ON DELETE CASCADE ON UPDATE SET NULL, "
        "FOREIGN KEY named (q, p) REFERENCES p (b, a) ON DELETE RESTRICT, "
        "FOREIGN KEY (n) REFERENCES nowhere (x) ON DELETE CASCADE NOT ENFORCED)",
    )
    c = catalog.table("c")
    assert c.foreign_keys == (
        ForeignKey("c_ibfk_1", (0,), "one", ("id",)),
        ForeignKey("k", (1,), "p", ("id",), Reaction.CASCADE, Reaction.SET_NULL),
        ForeignKey("c_ibfk_2", (2, 1), "p", ("b", "a"), Reaction.RESTRICT),
        ForeignKey("c_ibfk_3", (3,), "nowhere", ("x",), Reaction.CASCADE, enforced=False),
    )
    assert dict(zip(c.index_names, c.indexes, strict=True)) == {"k": (1,), "named": (2, 1)}
    assert schema_from_json(schema_to_json(c)) == c
    again = catalog_of(*(text.strip().removeprefix("CREATE TABLE ") for text in schema_text(catalog).split(";")[:-1]))
    assert dict(again.tables) == dict(catalog.tables)


WRONG: list[tuple[str, type[HeadraceError], str]] = [
    ("a INT REFERENCES elsewhere (id)", UnknownName, "create it first"),
    ("a INT REFERENCES p (nope)", UnknownName, "p.nope"),
    ("a INT REFERENCES p (a)", SqlError, "neither PRIMARY KEY nor a UNIQUE key"),
    ("a BIGINT REFERENCES p (id)", SqlError, "BIGINT, and .* is INT"),
    ("a INT UNSIGNED REFERENCES p (id)", SqlError, "INT UNSIGNED"),
    ("a INT, FOREIGN KEY (a) REFERENCES p (a, b)", SqlError, "has 1 columns, and names 2"),
    ("a INT NOT NULL REFERENCES p (id) ON DELETE SET NULL", SqlError, "which is NOT NULL"),
    ("b INT, a INT AS (b) REFERENCES p (id) ON UPDATE CASCADE", SqlError, "which is generated"),
    ("a INT REFERENCES p (id) ON DELETE SET DEFAULT", Unsupported, "SET DEFAULT"),
    ("a INT REFERENCES p (id) MATCH FULL", Unsupported, "MATCH FULL"),
    ("a INT, FOREIGN KEY (b) REFERENCES p (id)", UnknownName, "c.b"),
    ("a INT, CONSTRAINT k CHECK (a > 0), CONSTRAINT K FOREIGN KEY (a) REFERENCES p (id)", AlreadyExists, '"K"'),
]


@pytest.mark.parametrize(("columns", "error", "said"), WRONG, ids=[each[0] for each in WRONG])
def test_what_is_refused(columns: str, error: type[HeadraceError], said: str) -> None:
    with pytest.raises(error, match=said):
        created(f"CREATE TABLE c ({columns})", catalog_of(*PARENTS))


SHARDED: list[tuple[str, str, str]] = [
    ("(id INT PRIMARY KEY, p INT REFERENCES p (id))", "different shards", "SHARDS 1 for both"),
    ("(p INT REFERENCES p (id), n INT, PRIMARY KEY (p, n))", "", ""),
    ("(p INT REFERENCES p (id)) SHARD BY (p)", "", ""),
    ("(p INT, n INT REFERENCES p (id)) SHARD BY (p)", "different shards", "SHARD BY .`n`"),
    ("(p INT REFERENCES p (id)) SHARD BY (p) SHARDS 2", "in 2 shards by p", ""),
    ("(p INT REFERENCES p (id) ON DELETE SET NULL) SHARD BY (p)", "by which table", ""),
    ("(p INT REFERENCES p (id) ON DELETE CASCADE) SHARD BY (p)", "", ""),
    ("(p INT REFERENCES alone (id) ON DELETE SET NULL) SHARD BY (p) SHARDS 1", "", ""),
    ("(p INT REFERENCES alone (id)) SHARD BY (p)", "in 1 shard", ""),
    ("(id INT PRIMARY KEY, p INT REFERENCES p (id) NOT ENFORCED)", "", ""),
    ("(id INT PRIMARY KEY, up INT REFERENCES c (id))", "different shards", ""),
    ("(id INT PRIMARY KEY, up INT REFERENCES c (id)) SHARD BY (id) SHARDS 1", "", ""),
]


@pytest.mark.parametrize(("table", "said", "hint"), SHARDED, ids=[each[0] for each in SHARDED])
def test_rows_have_to_be_in_the_shard_of_those_that_they_name(table: str, said: str, hint: str) -> None:
    catalog = catalog_of("p (id INT PRIMARY KEY)", "alone (id INT PRIMARY KEY) SHARD BY (id) SHARDS 1", shards=4)
    if not said:
        assert created(f"CREATE TABLE c {table}", catalog).foreign_keys
        return
    with pytest.raises(Unsupported, match=said) as refused:
        created(f"CREATE TABLE c {table}", catalog)
    assert refused.match(hint)


def state_of(*statements: str) -> State:
    state = State()
    for sql in statements:
        state = change_of(state, RecipeEntry((sql,)), one_domain).state
    return state


NEEDED = [
    "DROP TABLE p",
    "ALTER TABLE p DROP INDEX only_one",
    "ALTER TABLE p DROP INDEX only_one, DROP COLUMN a",
    "ALTER TABLE p CHANGE a z BIGINT NOT NULL",
    "ALTER TABLE c MODIFY x BIGINT",
    "ALTER TABLE c DROP INDEX k",
    "ALTER TABLE c MODIFY x INT NOT NULL",
]


@pytest.mark.parametrize("sql", NEEDED)
def test_what_a_foreign_key_needs_stays(sql: str) -> None:
    child = "CREATE TABLE c (x INT, n INT, CONSTRAINT k FOREIGN KEY (x) REFERENCES p (a) ON DELETE SET NULL)"
    state = state_of("CREATE TABLE p (a INT NOT NULL, b INT, UNIQUE KEY only_one (a))", child)
    with pytest.raises(StillInUse, match='"k" of table "c"'):
        change_of(state, RecipeEntry((sql,)), one_domain)
    for way in ("FOREIGN KEY", "CONSTRAINT"):
        after = change_of(state, RecipeEntry((f"ALTER TABLE c DROP {way} k",)), one_domain).state
        assert not after.catalog.table("c").foreign_keys
    renamed = change_of(state, RecipeEntry(("ALTER TABLE c RENAME COLUMN x TO y",)), one_domain).state
    assert "FOREIGN KEY (`y`)" in schema_text(renamed.catalog)


COMING = [
    ("ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (a) ON DELETE CASCADE", ["Expect", "BuildIndex", "CheckRows"]),
    ("ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (a) NOT ENFORCED", []),
    ("ALTER TABLE c ADD COLUMN y INT, ADD FOREIGN KEY (y) REFERENCES p (a)", []),
    ("ALTER TABLE c ADD COLUMN y INT REFERENCES p (a)", []),
    ("ALTER TABLE p ADD COLUMN z INT;ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (a)", ["Expect"]),
    ("ALTER TABLE p ADD UNIQUE (b); ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (b)", ["Expect"]),
    ("CREATE TABLE q (i INT PRIMARY KEY); ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES q (i)", ["Expect"]),
    ("CREATE TABLE q (x INT); ALTER TABLE q ADD FOREIGN KEY (x) REFERENCES p (a)", []),
]


@pytest.mark.parametrize(("sql", "first"), COMING, ids=[each[0] for each in COMING])
def test_stored_rows_are_checked_before_it_is_decided(sql: str, first: list[str]) -> None:
    state = state_of("CREATE TABLE p (a INT PRIMARY KEY, b INT)", "CREATE TABLE c (x INT, n INT)")
    change = change_of(state, RecipeEntry((sql,)), one_domain)
    steps = [type(step.command).__name__ for step in change.checks]
    assert steps[: len(first)] == first
    assert bool(steps) == bool(first)


UNREAD = [
    ("ALTER TABLE c ADD COLUMN y INT DEFAULT 1, ADD FOREIGN KEY (y) REFERENCES p (a)", "comes with values"),
    ("ALTER TABLE p ADD COLUMN z INT, ADD UNIQUE (z); ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (z)", "adds or"),
    ("ALTER TABLE p RENAME COLUMN a TO z; ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (z)", "adds or renames"),
    ("ALTER TABLE p RENAME COLUMN a TO z, ADD FOREIGN KEY (b) REFERENCES p (z)", "adds or renames"),
]


@pytest.mark.parametrize(("sql", "why"), UNREAD, ids=[each[0] for each in UNREAD])
def test_what_stored_rows_cannot_be_checked_by_is_refused(sql: str, why: str) -> None:
    state = state_of("CREATE TABLE p (a INT PRIMARY KEY, b INT)", "CREATE TABLE c (x INT, n INT)")
    with pytest.raises(Unsupported, match=why):
        change_of(state, RecipeEntry((sql,)), one_domain)


RENAMED = [
    ("ALTER TABLE p RENAME COLUMN a TO z", "(`x`) REFERENCES `p` (`z`, `b`)"),
    ("ALTER TABLE p CHANGE a z INT NOT NULL AFTER b", "(`x`) REFERENCES `p` (`z`, `b`)"),
    (
        "ALTER TABLE p RENAME COLUMN a TO t, RENAME COLUMN b TO a, RENAME COLUMN t TO b",
        "(`x`) REFERENCES `p` (`b`, `a`)",
    ),
    ("ALTER TABLE p RENAME COLUMN a TO z; ALTER TABLE p RENAME COLUMN z TO y", "(`x`) REFERENCES `p` (`y`, `b`)"),
    ("RENAME TABLE p TO q; ALTER TABLE q RENAME COLUMN a TO z", "(`x`) REFERENCES `q` (`z`, `b`)"),
    ("ALTER TABLE c DROP FOREIGN KEY k; ALTER TABLE p RENAME COLUMN a TO z", ""),
]


@pytest.mark.parametrize(("sql", "shown"), RENAMED, ids=[each[0] for each in RENAMED])
def test_a_foreign_key_follows_the_names_of_what_it_names(sql: str, shown: str) -> None:
    child = "CREATE TABLE c (x INT, n INT, CONSTRAINT k FOREIGN KEY (x, n) REFERENCES p (a, b))"
    state = state_of("CREATE TABLE p (a INT NOT NULL, b INT NOT NULL, UNIQUE KEY (b, a))", child, *sql.split("; "))
    assert shown.replace("(`x`)", "(`x`, `n`)") in schema_text(state.catalog)
    assert state.catalog.table("c").foreign_keys or not shown


def test_a_foreign_key_of_a_table_that_names_itself_follows_it() -> None:
    state = state_of(
        "CREATE TABLE p (a INT PRIMARY KEY, x INT, CONSTRAINT k FOREIGN KEY (x) REFERENCES p (a))",
        "ALTER TABLE p RENAME COLUMN a TO z, RENAME COLUMN x TO a",
    )
    assert "FOREIGN KEY (`a`) REFERENCES `p` (`z`)" in schema_text(state.catalog)


def test_tables_that_name_each_other_are_made_again() -> None:
    texts = [
        "CREATE TABLE a (id INT PRIMARY KEY, b INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, a INT REFERENCES a (id))",
        "ALTER TABLE a ADD CONSTRAINT k FOREIGN KEY (b) REFERENCES b (id) ON DELETE SET NULL",
    ]
    catalog = state_of(*texts).catalog
    again = state_of(*(text for text in schema_text(catalog).split(";") if text.strip())).catalog
    assert dict(again.tables) == dict(catalog.tables)


def test_a_recipe_of_an_earlier_version_has_keys_that_are_not_enforced() -> None:
    texts = (
        "CREATE TABLE t (id INT PRIMARY KEY REFERENCES none, n INT NOT NULL, CONSTRAINT f FOREIGN KEY (n) REFERENCES "
        "x (y) ON DELETE SET DEFAULT MATCH FULL, CONSTRAINT f FOREIGN KEY (n) REFERENCES x (y) ON UPDATE SET NULL, "
        "CONSTRAINT g FOREIGN KEY (missing) REFERENCES x (y))",
        "ALTER TABLE t DROP FOREIGN KEY never, DROP CONSTRAINT neither, ADD FOREIGN KEY (n) REFERENCES z (z)",
    )
    earlier = Recipe(tuple(RecipeEntry((text,), ignored_keys=True) for text in texts))
    assert b"foreign_keys" not in earlier.to_json()
    read = Recipe.from_json(earlier.to_json())
    assert read == earlier
    state = State()
    for entry in read.entries:
        state = replayed(state, entry, one_domain)
    keys = state.catalog.table("t").foreign_keys
    assert [key.parent for key in keys] == ["none", "x", "x", "z"]
    assert not any(key.enforced for key in keys)
    now = Recipe((RecipeEntry(("CREATE TABLE t (id INT PRIMARY KEY, up INT REFERENCES t (id))",)),))
    (again,) = Recipe.from_json(now.to_json()).entries
    assert replayed(State(), again, one_domain).catalog.table("t").foreign_keys[0].enforced
