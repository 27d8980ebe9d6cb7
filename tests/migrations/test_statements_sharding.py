"""``SHARD BY (column) SHARDS n``: how it is read, and what a table of several shards does not allow."""

from __future__ import annotations

import pytest

from domains.errors import HeadraceError, LimitExceeded, SqlError, SqlSyntaxError, Unsupported
from domains.language.types import TableSchema
from migrations.catalog import Catalog
from migrations.change import change_of, entries_of
from migrations.flow.plan import State, one_domain
from migrations.parse.reading import parse
from migrations.recipe import Recipe, RecipeEntry
from migrations.statements.statement import CreateTableStatement
from tests.migrations.statement_catalog import each, one, perform
from tests.played_recipe import play


def made(sql: str, shards: int = 4) -> TableSchema:
    statement = one(sql, catalog=Catalog(shards=shards))
    assert isinstance(statement, CreateTableStatement)
    return statement.schema


@pytest.mark.parametrize(
    ("clause", "column", "shards"),
    [
        ("", 0, 0),
        ("SHARD BY (b)", 1, 0),
        ("shard by (B) shards 2", 1, 2),
        ("SHARD BY (`b`) SHARDS 1", 1, 1),
        ("ENGINE=InnoDB SHARD BY (b) SHARDS 4", 1, 4),
        ("SHARD BY (b) SHARDS 4 DEFAULT CHARSET=utf8", 1, 4),
    ],
)
def test_shard_by(clause: str, column: int, shards: int) -> None:
    schema = made(f"CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)) {clause}")
    assert (schema.shard_column, schema.shards) == (column, shards)


def test_without_a_clause_it_is_the_first_of_the_key_or_the_first_column() -> None:
    assert made("CREATE TABLE t (a INT, b INT, PRIMARY KEY (b, a))").shard_column == 1
    assert made("CREATE TABLE t (a INT, b INT)").shard_column == 0


def test_the_words_remain_names() -> None:
    """A column may be called so."""
    schema = made("CREATE TABLE shard (shard INT PRIMARY KEY, shards INT) SHARD BY (shard) SHARDS 2")
    assert [column.name for column in schema.columns] == ["shard", "shards"]


@pytest.mark.parametrize(
    "clause",
    [
        "SHARD BY b",
        "SHARD BY ()",
        "SHARD BY (a, b)",
        "SHARD BY (b) SHARDS",
        "SHARD BY (b) SHARDS 0",
        "SHARD BY (b) SHARDS x",
    ],
)
def test_what_is_written_wrong_is_told_with_its_place(clause: str) -> None:
    with pytest.raises(SqlSyntaxError, match="expected SHARD") as caught:
        parse(f"CREATE TABLE t (a INT, b INT)\n{clause}")
    assert caught.value.line == 2


def refused(sql: str, catalog: Catalog) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        each(sql, catalog)
    return caught.value


def test_more_shards_than_there_are() -> None:
    error = refused("CREATE TABLE t (a INT) SHARD BY (a) SHARDS 5", Catalog(shards=4))
    assert isinstance(error, LimitExceeded)
    assert "SHARDS 4" in error.hint


def test_an_unknown_column() -> None:
    error = refused("CREATE TABLE t (author INT) SHARD BY (auther)", Catalog(shards=4))
    assert (error.message, error.hint) == ('unknown column "t.auther"', 'did you mean "author"?')


@pytest.mark.parametrize("key", ["PRIMARY KEY (a)", "UNIQUE (a)", "PRIMARY KEY (b), UNIQUE KEY u (a)"])
def test_every_key_contains_the_column(key: str) -> None:
    error = refused(f"CREATE TABLE t (a INT, b INT, {key}) SHARD BY (b)", Catalog(shards=4))
    assert isinstance(error, SqlError)
    assert '(a) of table "t" does not contain "b", by which it is sharded' in error.message
    assert made(f"CREATE TABLE t (a INT, b INT, {key}) SHARD BY (b)", shards=1).shard_by == 1
    assert made(f"CREATE TABLE t (a INT, b INT, {key}) SHARD BY (b) SHARDS 1").shards == 1


@pytest.mark.parametrize(
    ("keys", "by", "shards"),
    [
        ("PRIMARY KEY (a, b)", 0, 0),
        ("PRIMARY KEY (a, b), UNIQUE (b)", 1, 0),
        ("UNIQUE (b), UNIQUE (c, b)", 1, 0),
        ("PRIMARY KEY (a), UNIQUE (b)", 0, 1),
    ],
)
def test_undeclared_a_table_is_spread_by_a_column_that_all_keys_have(keys: str, by: int, shards: int) -> None:
    schema = made(f"CREATE TABLE t (a INT, b INT, c INT, {keys})")
    assert (schema.shard_by, schema.shards) == (by, shards)


TABLES = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT);
CREATE TABLE tags (tag INT PRIMARY KEY, n INT) SHARD BY (tag) SHARDS 1;
CREATE TABLE log (day INT, body INT)
"""
CATALOG = perform(TABLES, Catalog(shards=4))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE stories SET id = id + 1",
        "UPDATE stories SET author = 1, id = id WHERE id = 7",
        "UPDATE stories SET id = 3 WHERE author IN (SELECT n FROM tags)",
        "INSERT INTO stories VALUES (1, 2) ON DUPLICATE KEY UPDATE id = 3",
        "UPDATE log SET day = 2",
    ],
)
def test_a_row_does_not_move_to_another_shard(sql: str) -> None:
    error = refused(sql, CATALOG)
    assert isinstance(error, Unsupported)
    assert "by which the table is sharded" in error.message
    assert "DELETE the row and INSERT it" in error.hint


def test_it_may_where_there_is_one_shard() -> None:
    each("UPDATE tags SET tag = 3; UPDATE stories SET author = 1", CATALOG)
    each("UPDATE stories SET id = id + 1", perform(TABLES.replace("SHARDS 1", ""), Catalog()))


def test_the_column_is_not_dropped() -> None:
    assert isinstance(refused("ALTER TABLE log DROP COLUMN day", CATALOG), Unsupported)
    after = perform("ALTER TABLE log DROP COLUMN body; ALTER TABLE log ADD COLUMN body INT", CATALOG)
    assert after.table("log").shard_column == 0


def test_a_recipe_says_it_again() -> None:
    """Also where the table was made together with others."""
    text = "CREATE TABLE a (x INT, y INT) SHARD BY (y) SHARDS 2; CREATE TABLE b (x INT)"
    entries = entries_of(RecipeEntry((text, "CREATE EXT VIEW v AS SELECT x FROM a")))
    state, recipe = State(shards=4), Recipe()
    for entry in entries:
        state = change_of(state, entry, one_domain).state
        recipe = recipe.with_entry(entry)
    again = play(Recipe.from_json(recipe.to_json()), one_domain, shards=4)
    assert again.catalog.tables == state.catalog.tables
    assert (again.catalog.table("a").shard_by, again.catalog.table("a").shards) == (1, 2)
    assert again.flow.sharding == state.flow.sharding
