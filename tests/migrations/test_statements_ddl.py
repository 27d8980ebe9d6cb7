"""CREATE and DROP of tables and views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domains.errors import AlreadyExists, HeadraceError, LimitExceeded, SqlError, UnknownName, Unsupported
from domains.language.types import TableSchema
from migrations.catalog import Catalog
from migrations.statements.definitions.written import table_text
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import CreateTableStatement, CreateView, DropTableStatement, DropView
from tests.migrations.statement_catalog import CATALOG, NOW, names, one, perform, schema_of

BIG = """CREATE TABLE `T` (
  `id` int(11) unsigned NOT NULL AUTO_INCREMENT COMMENT 'the key',
  `name` varchar(40) CHARACTER SET utf8 COLLATE utf8_bin DEFAULT 'x',
  n decimal(10,2) NULL DEFAULT -1.005,
  at timestamp DEFAULT now(), since DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  day DATE DEFAULT (CURRENT_DATE), flag BOOL DEFAULT TRUE, sum INT DEFAULT (1+2),
  PRIMARY KEY (`id`), UNIQUE KEY `u` (`name`), UNIQUE (n, at), KEY k (name(10), n), INDEX (n) USING BTREE, KEY (n),
  CONSTRAINT fk FOREIGN KEY (n) REFERENCES x (y) ON DELETE CASCADE NOT ENFORCED
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8 ROW_FORMAT=DYNAMIC"""


def test_a_table_as_mysqldump_prints_it() -> None:
    schema = schema_of(BIG)
    assert schema.name == "T"
    assert names(schema, schema.live()) == ("id", "name", "n", "at", "since", "day", "flag", "sum")
    assert names(schema, schema.primary_key) == ("id",)
    assert [names(schema, key) for key in schema.unique] == [("name",), ("n", "at")]
    assert [names(schema, key) for key in schema.indexes] == [("name", "n"), ("n",), ("n",)]
    assert schema.index_names == ("k", "n", "n_2")
    by_name = {column.name: column for column in schema.columns}
    assert by_name["id"].auto_increment
    assert [column.name for column in schema.columns if not column.nullable] == ["id", "since"]
    assert [column.name for column in schema.columns if column.default_now] == ["at", "since", "day"]
    defaults = {column.name: str(column.default) for column in schema.columns if column.has_default}
    assert defaults == {"name": "x", "n": "-1.01", "flag": "1", "sum": "3"}


KEYS: list[tuple[str, tuple[str, ...], list[tuple[str, ...]], list[tuple[str, ...]]]] = [
    ("a INT, b INT", (), [], []),
    ("a INT PRIMARY KEY, b INT UNIQUE", ("a",), [("b",)], []),
    ("a INT KEY, b INT", ("a",), [], []),
    ("a INT, b INT, PRIMARY KEY (b, a)", ("b", "a"), [], []),
    ("a INT, b INT, CONSTRAINT p PRIMARY KEY (a), CONSTRAINT u UNIQUE KEY (b)", ("a",), [("b",)], []),
    ("a INT UNIQUE, b INT, UNIQUE (a)", (), [("a",)], []),
    ("A INT, b INT, KEY (a, B)", (), [], [("A", "b")]),
    ("a INT REFERENCES stories (id), b INT", (), [], [("a",)]),
]


@pytest.mark.parametrize(("columns", "primary", "unique", "indexes"), KEYS, ids=[key[0] for key in KEYS])
def test_keys(columns: str, primary: tuple[str, ...], unique: list[object], indexes: list[object]) -> None:
    schema = schema_of(f"CREATE TABLE t ({columns})")
    assert names(schema, schema.primary_key) == primary
    assert [names(schema, key) for key in schema.unique] == unique
    assert [names(schema, key) for key in schema.indexes] == indexes
    assert all(not schema.columns[at].nullable for at in schema.primary_key)


WRONG: list[tuple[str, type[HeadraceError], str]] = [
    ("CREATE TABLE stories (a INT)", AlreadyExists, 'table "stories" exists'),
    ("CREATE TABLE VOTECOUNT (a INT)", AlreadyExists, 'view "VoteCount" exists'),
    ("CREATE TABLE t", SqlError, 'table "t" has no columns'),
    ("CREATE TABLE t ()", SqlError, 'table "t" has no columns'),
    ("CREATE TABLE t (a)", SqlError, 'table "t" has no columns'),
    ("CREATE TABLE t (b INT, a)", SqlError, 'column "a" has no type'),
    ("CREATE TABLE t (a INT, A TEXT)", SqlError, 'column "A" is named twice'),
    (
        "CREATE TABLE t (name INT, KEY (nam))",
        UnknownName,
        'unknown column "t.nam" at line 1, column 32 (did you mean "name"?)',
    ),
    ("CREATE TABLE t (a INT, KEY (a, A))", SqlError, 'index names column "A" twice'),
    ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", SqlError, 'table "t" has two primary keys'),
    (
        "CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)",
        SqlError,
        'table "t" has two primary keys (write PRIMARY KEY (a, b) after the columns)',
    ),
    (
        "CREATE TABLE t (a INT AUTO_INCREMENT)",
        SqlError,
        'AUTO_INCREMENT column "a" is not the first column of a key (make it the PRIMARY KEY)',
    ),
    (
        "CREATE TABLE t (a TEXT AUTO_INCREMENT PRIMARY KEY)",
        SqlError,
        'AUTO_INCREMENT column "a" is TEXT (it must be of an INT type)',
    ),
    (
        "CREATE TABLE t (a INT AUTO_INCREMENT KEY, b INT AUTO_INCREMENT UNIQUE)",
        SqlError,
        'table "t" has two AUTO_INCREMENT columns',
    ),
    (
        "CREATE TABLE t (a INT DEFAULT 3 AUTO_INCREMENT KEY)",
        SqlError,
        'AUTO_INCREMENT column "a" cannot have a DEFAULT',
    ),
    (
        "CREATE TABLE t (a INT DEFAULT 'q')",
        SqlError,
        'the default of column "a" does not fit: \'q\' does not fit type INT of column "a": it is not a number',
    ),
    ("CREATE TABLE t (a INT DEFAULT NOW())", SqlError, 'column "a" is INT and cannot default to the time'),
    ("CREATE TABLE t (a INT NOT NULL DEFAULT NULL)", SqlError, 'NOT NULL column "a" cannot have DEFAULT NULL'),
    (
        "CREATE TABLE t (a INT DEFAULT NULL, PRIMARY KEY (a))",
        SqlError,
        'primary key column "a" cannot have DEFAULT NULL',
    ),
    ("CREATE TABLE t (a INT CHECK (b > 1))", UnknownName, 'unknown column "b"'),
    ("CREATE TABLE t (a INT, CHECK (a > (SELECT 1)))", SqlError, "a subquery in CHECK"),
    ("CREATE TABLE t (a DATETIME, CHECK (a < NOW()))", Unsupported, "NOW()"),
    ("CREATE TABLE t (a INT, CONSTRAINT c CHECK (a > 1), CONSTRAINT C CHECK (a > 2))", AlreadyExists, 'check "C"'),
    ("CREATE TABLE t (a INT, b INT AS (COUNT(a)))", SqlError, "the aggregate COUNT(a)"),
    (
        "CREATE TABLE t (a INT, b INT AS (c), c INT AS (a))",
        SqlError,
        'generated column "b" reads "c", a generated column behind it',
    ),
    (
        "CREATE TABLE t (a INT AS (a + 1), b INT)",
        SqlError,
        'generated column "a" reads "a", a generated column behind it',
    ),
    (
        "CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b INT AS (a))",
        SqlError,
        'generated column "b" reads "a", an AUTO_INCREMENT column',
    ),
    ("CREATE TABLE t (a INT, b INT AS (a) DEFAULT 3)", SqlError, 'generated column "b" cannot have a DEFAULT'),
    (
        "CREATE TABLE t (a INT ON UPDATE CURRENT_TIMESTAMP)",
        SqlError,
        'column "a" is INT: ON UPDATE CURRENT_TIMESTAMP is not possible',
    ),
    ("CREATE TABLE t (a TEXT, FULLTEXT KEY (a))", Unsupported, "FULLTEXT index (use KEY; LIKE scans)"),
    ("CREATE TEMPORARY TABLE t (a INT)", Unsupported, "CREATE TEMPORARY TABLE"),
    ("CREATE TABLE t LIKE storys", UnknownName, 'unknown table "storys"'),
    ("CREATE TABLE votes LIKE stories", AlreadyExists, 'table "votes" exists'),
    (
        "CREATE TABLE t AS SELECT 1",
        Unsupported,
        "CREATE TABLE … AS SELECT as a migration (send it as a statement: POST /v1/sql)",
    ),
    ("CREATE OR REPLACE TABLE t (a INT)", Unsupported, 'CREATE OR REPLACE TABLE (DROP TABLE IF EXISTS "t" first)'),
    ("CREATE TABLE d.t (a INT)", UnknownName, 'unknown database "d"'),
    ("CREATE DATABASE headrace", AlreadyExists, 'database "headrace" exists'),
    ("CREATE DATABASE `a.b`", SqlError, '"a.b" is not a name for a database'),
    (f"CREATE TABLE {'x' * 65} (a INT)", LimitExceeded, f'table name "{"x" * 64}…" has 65 characters (at most 64)'),
    (
        "CREATE TABLE ` t` (a INT)",
        SqlError,
        '" t" is not a name for a table (a name is not empty and has no spaces at its ends)',
    ),
    (
        "CREATE TABLE `a/b` (a INT)",
        SqlError,
        '"a/b" is not a name for a table (a path over HTTP could not name it)',
    ),
    ("CREATE VIEW `..` AS SELECT 1", SqlError, '".." is not a name for a view (a path over HTTP could not name it)'),
    (
        "CREATE TABLE adhoc_1 (a INT)",
        SqlError,
        'the name "adhoc_1" is reserved (views of ad-hoc SELECTs start with "adhoc_")',
    ),
    ("CREATE VIEW v (a, A) AS SELECT id, title FROM stories", SqlError, 'column "A" is named twice'),
    ("CREATE VIEW stories AS SELECT 1", AlreadyExists, 'table "stories" exists'),
    ("CREATE OR REPLACE VIEW stories AS SELECT 1", AlreadyExists, 'table "stories" exists'),
    ("CREATE VIEW votecount AS SELECT 1", AlreadyExists, 'view "VoteCount" exists'),
    ("CREATE TABLE t (a INT) WITH (b = 1)", Unsupported, "the option b of CREATE TABLE (leave it out)"),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM stories",
        Unsupported,
        "CREATE MATERIALIZED VIEW (every view is kept up to date: CREATE EXT VIEW)",
    ),
    ("DROP TABLE storys", UnknownName, 'unknown table to drop "storys" at line 1, column 12 (did you mean "stories"?)'),
    ("DROP TABLE VoteCount", SqlError, '"VoteCount" is a view (DROP VIEW VoteCount)'),
    ("DROP VIEW stories", SqlError, '"stories" is a table (DROP TABLE stories)'),
    (
        "DROP VIEW Votes_Count",
        UnknownName,
        'unknown view to drop "Votes_Count" at line 1, column 11 (did you mean "VoteCount"?)',
    ),
    ("DROP DATABASE d", UnknownName, 'unknown database "d"'),
    ("DROP DATABASE headrace", Unsupported, "DROP DATABASE headrace (it is there from the beginning"),
]


def test_a_name_of_a_condition_may_end_in_a_space() -> None:
    made = one("CREATE TABLE g (a INT, CONSTRAINT ` by two ` CHECK (a > 1))")
    assert isinstance(made, CreateTableStatement)
    assert [each.name for each in made.schema.checks] == [" by two "]


def test_a_generated_column_is_virtual_unless_it_says_otherwise() -> None:
    for words, virtual in (("", True), (" VIRTUAL", True), (" STORED", False)):
        made = one(f"CREATE TABLE g (a INT, b INT GENERATED ALWAYS AS (a + 2){words})")
        assert isinstance(made, CreateTableStatement)
        assert made.schema.columns[1].generated is not None
        assert made.schema.columns[1].virtual is virtual


@pytest.mark.parametrize(("sql", "kind", "message"), WRONG, ids=[sql[:60] for sql, _, _ in WRONG])
def test_what_is_wrong_is_said(sql: str, kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        one(sql)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


def test_too_many_columns_and_indexes() -> None:
    with pytest.raises(LimitExceeded, match="has 1018 columns"):
        one(f"CREATE TABLE t ({', '.join(f'c{i} INT' for i in range(1018))})")
    with pytest.raises(LimitExceeded, match="too many indexes"):
        one(f"CREATE TABLE t (a INT, {', '.join('KEY (a)' for _ in range(65))})")


def test_if_exists_and_if_not_exists() -> None:
    assert one("DROP TABLE IF EXISTS t") == DropTableStatement("t", if_exists=True)
    assert one("DROP VIEW IF EXISTS v") == DropView("v", if_exists=True)
    assert one("DROP VIEW IF EXISTS votecount") == DropView("VoteCount", if_exists=True)
    for name in ("t", "STORIES"):
        created = one(f"CREATE TABLE IF NOT EXISTS {name} (a INT)")
        assert isinstance(created, CreateTableStatement)
        assert (created.schema.name, created.if_not_exists) == (name, True)
    view = one("CREATE VIEW IF NOT EXISTS VoteCount AS SELECT id FROM stories")
    assert isinstance(view, CreateView)
    assert view.if_not_exists


def test_drop_table_of_several_is_several_statements() -> None:
    dropped = [interpret_one(parsed, CATALOG, (), NOW) for parsed in split("DROP TABLE IF EXISTS votes, nothing, LOG")]
    assert dropped == [
        DropTableStatement("votes", True),
        DropTableStatement("nothing", True),
        DropTableStatement("log", True),
    ]
    assert [parsed.sql for parsed in split("drop table votes, log")] == ["DROP TABLE votes", "DROP TABLE log"]


VIEWS: list[tuple[str, str, bool]] = [
    ("CREATE VIEW v AS SELECT id FROM stories", "SELECT id FROM stories", False),
    (
        "CREATE EXT VIEW v AS  SELECT id AS as_is FROM stories WHERE id = ? ",
        "SELECT id AS as_is FROM stories WHERE id = ?",
        True,
    ),
    ("create /* as */ view `v` as select 'x AS y' from stories", "select 'x AS y' from stories", False),
    ("CREATE ALGORITHM=MERGE VIEW v AS (SELECT id FROM stories)", "(SELECT id FROM stories)", False),
    (
        "CREATE VIEW v AS WITH a AS (SELECT id FROM stories) SELECT * FROM a",
        "WITH a AS (SELECT id FROM stories) SELECT * FROM a",
        False,
    ),
]


@pytest.mark.parametrize(("sql", "text", "external"), VIEWS, ids=[view[0][:50] for view in VIEWS])
def test_a_view_keeps_its_select_as_written(sql: str, text: str, external: bool) -> None:
    statement = one(sql)
    assert isinstance(statement, CreateView)
    definition = statement.definition
    assert (definition.name, definition.sql, definition.external, definition.ad_hoc) == ("v", text, external, False)


def test_a_view_with_columns_and_its_flags() -> None:
    statement = one("CREATE OR REPLACE VIEW VoteCount (s, n) AS SELECT story_id, COUNT(*) FROM votes GROUP BY 1")
    assert isinstance(statement, CreateView)
    assert statement.definition.columns == ("s", "n")
    assert (statement.or_replace, statement.if_not_exists) == (True, False)


def test_a_view_keeps_the_columns_that_its_table_had() -> None:
    """What is planned anew later, and what a recipe plays again: the star is written out when the view is made."""
    catalog = perform("CREATE VIEW everything AS SELECT * FROM votes", CATALOG)
    wider = perform("ALTER TABLE votes ADD COLUMN at DATETIME", catalog)
    kept = wider.views["everything"].relation
    assert [column.name for column in kept.expressions] == ["user", "story_id"]
    assert wider.views["everything"].sql == "SELECT * FROM votes"


@pytest.mark.parametrize("key", ["UNIQUE KEY (a(3))", "UNIQUE (b, a(3) DESC)"])
def test_a_key_on_a_prefix_is_not_one_on_the_column(key: str) -> None:
    table = perform(f"CREATE TABLE prefixed (a VARCHAR(10), b INT, {key})", CATALOG).table("prefixed")
    assert [column.name for column in table.columns if column.hidden] == ["a(3)"]
    assert names(table, table.live()) == ("a", "b")
    assert table.position("a(3)") is None
    with pytest.raises(Unsupported, match='on the beginning of column "a"'):
        one("CREATE TABLE prefixed (a VARCHAR(10), b INT, PRIMARY KEY (a(3)))")


def test_like_takes_over_all_that_is_shown() -> None:
    catalog = perform(
        "CREATE TABLE s (gone INT, a INT AUTO_INCREMENT PRIMARY KEY, b DATETIME ON UPDATE NOW(), c INT AS (b IS NULL),"
        " UNIQUE u (b, a), KEY k (c), CHECK (a <> 3)); ALTER TABLE s DROP COLUMN gone; CREATE TABLE t LIKE s",
        Catalog(),
    )
    made = catalog.table("t")
    assert table_text(made) == table_text(replace(catalog.table("s"), name="t"))
    assert len(made.columns) == 3, "what was dropped stays behind"


def test_a_table_is_not_spread_by_what_no_statement_gives() -> None:
    keyed = create("CREATE TABLE t (a INT, b INT AS (a + 1), PRIMARY KEY (b))", shards=4)
    assert keyed.shards == 1, "no key is left to spread it by"
    with pytest.raises(Unsupported, match='sharded by "b", which is generated'):
        create("CREATE TABLE t (a INT, b INT AS (a + 1)) SHARD BY (b)", shards=4)
    with pytest.raises(Unsupported, match='sharded by "b", which has ON UPDATE'):
        create("CREATE TABLE t (a INT, b DATETIME ON UPDATE NOW()) SHARD BY (b)", shards=4)


def create(sql: str, shards: int) -> TableSchema:
    (parsed,) = split(sql)
    statement = interpret_one(parsed, Catalog(shards=shards), (), NOW)
    assert isinstance(statement, CreateTableStatement)
    return statement.schema
