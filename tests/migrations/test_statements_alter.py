"""ALTER TABLE and indexes: the next schema of a table."""

from __future__ import annotations

import json

import pytest

from domains.errors import AlreadyExists, HeadraceError, SqlError, StillInUse, UnknownName, Unsupported
from domains.language.json_rows import schema_from_json, schema_to_json
from domains.language.types import ForeignKey, SqlType, TableSchema
from domains.store.widening import widening
from migrations.catalog import Catalog
from migrations.statements.definitions.written import table_text
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import AlterTableStatement, CreateIndex, DropIndex
from tests.migrations.statement_catalog import CATALOG, NOW, names, one, perform, schema_of


def test_added_columns_come_last_and_pad_what_is_stored() -> None:
    schema = schema_of(
        "ALTER TABLE votes ADD COLUMN a INT DEFAULT 3, ADD b TEXT NOT NULL, ADD c DATETIME DEFAULT NOW(),"
        " ADD COLUMN d DECIMAL(4,2) NOT NULL, ADD COLUMN e INT, ADD KEY (b),"
        " ADD CONSTRAINT f FOREIGN KEY (e) REFERENCES x (y) NOT ENFORCED"
    )
    assert names(schema, schema.live()) == ("user", "story_id", "a", "b", "c", "d", "e")
    added = schema.columns[2:]
    assert [str(column.default) for column in added] == ["3", "", "None", "0.00", "None"]
    assert [column.has_default for column in added] == [True, False, False, False, False]
    assert [column.default_now for column in added] == [False, False, True, False, False]
    assert (schema.indexes, schema.index_names) == (((3,),), ("b",))
    assert schema.foreign_keys == (ForeignKey("f", (6,), "x", ("y",), enforced=False),)


def test_a_dropped_column_is_a_tombstone_and_its_name_is_free() -> None:
    schema = schema_of("ALTER TABLE stories DROP COLUMN title, ADD COLUMN title TEXT")
    assert [column.dropped for column in schema.columns] == [False, False, True, False, False, False]
    assert schema.position("title") == 5
    assert names(schema, schema.live()) == ("id", "author", "score", "made", "title")


def test_indexes_come_and_go_by_name() -> None:
    created = one("CREATE INDEX i ON stories (title(10) DESC, score)")
    assert isinstance(created, CreateIndex)
    assert (created.table, created.columns, created.schema.index_names) == ("stories", (2, 3), ("by_author", "i"))
    dropped = one("DROP INDEX BY_AUTHOR ON stories")
    assert isinstance(dropped, DropIndex)
    assert (dropped.columns, dropped.schema.indexes, dropped.schema.index_names) == ((1,), (), ())
    altered = one("ALTER TABLE stories DROP INDEX by_author, ADD INDEX other (score)")
    assert isinstance(altered, AlterTableStatement)
    assert (altered.schema.indexes, altered.schema.index_names) == (((3,),), ("other",))


NOTHING = [
    "ALTER TABLE stories ADD COLUMN IF NOT EXISTS id INT",
    "ALTER TABLE stories DROP COLUMN IF EXISTS q",
    "ALTER TABLE stories DROP FOREIGN KEY IF EXISTS f",
    "ALTER TABLE stories ENGINE=InnoDB, COMMENT 'x', ALGORITHM=INPLACE, LOCK=NONE",
    "ALTER TABLE stories AUTO_INCREMENT = 100",
    "CREATE INDEX IF NOT EXISTS by_author ON stories (id)",
]


@pytest.mark.parametrize("sql", NOTHING)
def test_where_there_is_nothing_to_do_the_schema_stays(sql: str) -> None:
    assert one(sql) == AlterTableStatement("stories", CATALOG.table("stories"))


COPY = "make a new table and copy: INSERT … SELECT"
WRONG: list[tuple[str, type[HeadraceError], str]] = [
    (
        "ALTER TABLE storys ADD a INT",
        UnknownName,
        'unknown table "storys" at line 1, column 13 (did you mean "stories"?)',
    ),
    ("ALTER TABLE votes ADD user INT", AlreadyExists, 'column "votes.user" exists'),
    (
        "ALTER TABLE votes DROP usr",
        UnknownName,
        'unknown column "votes.usr" at line 1, column 24 (did you mean "user"?)',
    ),
    ("ALTER TABLE votes DROP user", Unsupported, f'dropping column "votes.user" of the PRIMARY KEY ({COPY})'),
    (
        "ALTER TABLE stories DROP author",
        StillInUse,
        'column "stories.author" is in index "by_author" (DROP INDEX by_author ON stories first)',
    ),
    (
        "ALTER TABLE log DROP day, DROP body, DROP weight",
        SqlError,
        'column "log.weight" is the last column of "log" (DROP TABLE log)',
    ),
    ("ALTER TABLE votes ADD a INT AFTER usr", UnknownName, 'unknown column "votes.usr"'),
    ("ALTER TABLE votes MODIFY user INT AFTER user", SqlError, 'column "user" cannot come after itself'),
    (
        "ALTER TABLE votes ADD a INT AUTO_INCREMENT UNIQUE",
        Unsupported,
        'ADD COLUMN "a" with AUTO_INCREMENT: no stored row says its number (make a new table with it',
    ),
    (
        "ALTER TABLE votes ADD a INT AS (a + 1)",
        SqlError,
        'generated column "a" reads "a", a generated column behind it',
    ),
    ("ALTER TABLE votes ADD a INT AS (user) DEFAULT 3", SqlError, 'generated column "a" cannot have a DEFAULT'),
    ("ALTER TABLE votes ADD a INT PRIMARY KEY", AlreadyExists, 'table "votes" has a PRIMARY KEY'),
    (
        "ALTER TABLE votes ADD a DATE NOT NULL",
        Unsupported,
        'ADD COLUMN "a" DATE NOT NULL without a DEFAULT (give it one, or allow NULL and UPDATE',
    ),
    ("ALTER TABLE stories ADD UNIQUE by_author (title)", AlreadyExists, 'index "by_author" of table "stories" exists'),
    ("CREATE UNIQUE INDEX u ON votes (x)", UnknownName, 'unknown column "votes.x"'),
    ("ALTER TABLE votes ADD PRIMARY KEY (user)", AlreadyExists, 'table "votes" has a PRIMARY KEY'),
    ("ALTER TABLE log DROP PRIMARY KEY", SqlError, 'table "log" has no PRIMARY KEY'),
    ("ALTER TABLE votes DROP PRIMARY KEY", Unsupported, 'DROP PRIMARY KEY of "votes", by which its rows are stored'),
    ("DROP INDEX `PRIMARY` ON votes", Unsupported, 'DROP PRIMARY KEY of "votes", by which its rows are stored'),
    ("ALTER TABLE votes RENAME TO Stories", AlreadyExists, 'table "stories" exists'),
    ("ALTER TABLE votes RENAME TO votecount", AlreadyExists, 'view "VoteCount" exists'),
    ("ALTER TABLE votes RENAME COLUMN user TO Story_Id", AlreadyExists, 'column "votes.Story_Id" exists'),
    (
        "ALTER TABLE votes RENAME COLUMN user TO x, RENAME COLUMN story_id TO X",
        AlreadyExists,
        'column "votes.x" exists',
    ),
    ("ALTER TABLE votes RENAME COLUMN user TO x, RENAME COLUMN user TO y", UnknownName, 'unknown column "votes.user"'),
    (
        "ALTER TABLE votes MODIFY COLUMN user SMALLINT",
        Unsupported,
        'SMALLINT for column "votes.user", which is INT and in the PRIMARY KEY, by which rows are stored (CREATE',
    ),
    (
        "ALTER TABLE votes MODIFY COLUMN user DATE",
        Unsupported,
        'DATE for column "votes.user", which is INT (ADD COLUMN user_2 DATE, UPDATE',
    ),
    ("ALTER TABLE votes MODIFY COLUMN user INT UNSIGNED", Unsupported, 'INT UNSIGNED for column "votes.user"'),
    ("ALTER TABLE votes MODIFY COLUMN user TEXT", Unsupported, 'TEXT for column "votes.user"'),
    ("ALTER TABLE stories MODIFY id INT", Unsupported, 'MODIFY of column "stories.id" that gives or takes AUTO_INC'),
    ("ALTER TABLE votes MODIFY user INT UNIQUE", Unsupported, 'MODIFY of column "votes.user" with a key'),
    ("ALTER TABLE votes ALTER COLUMN user SET DEFAULT 'x'", SqlError, 'the default of column "user" does not fit'),
    ("ALTER TABLE stories ALTER id SET DEFAULT 3", SqlError, 'column "id" cannot have a DEFAULT'),
    ("ALTER TABLE votes DROP CHECK c", UnknownName, 'unknown check "votes.c"'),
    ("ALTER TABLE stories RENAME INDEX by_author TO by_author_2, RENAME INDEX x TO y", UnknownName, "unknown index"),
    ("ALTER VIEW VoteCount AS SELECT 1", Unsupported, "ALTER VIEW (CREATE OR REPLACE VIEW)"),
    ("CREATE INDEX by_author ON stories (id)", AlreadyExists, 'index "by_author" of table "stories" exists'),
    (
        "DROP INDEX by_autor ON stories",
        UnknownName,
        'unknown index "stories.by_autor" at line 1, column 12 (did you mean "by_author"?)',
    ),
    ("DROP INDEX by_author", SqlError, "DROP INDEX needs a table (DROP INDEX name ON table)"),
]


@pytest.mark.parametrize(("sql", "kind", "message"), WRONG, ids=[sql[:60] for sql, _, _ in WRONG])
def test_what_is_wrong_is_said(sql: str, kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        one(sql)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


def test_a_unique_column_and_the_index_of_auto_increment_stay() -> None:
    catalog = perform("CREATE TABLE t (a INT AUTO_INCREMENT, b INT UNIQUE, KEY k (a))", CATALOG)
    with pytest.raises(StillInUse, match=r'column "t\.b" is in key "b" \(DROP INDEX `b` ON t first'):
        one("ALTER TABLE t DROP b", catalog=catalog)
    with pytest.raises(StillInUse, match='index "k" serves AUTO_INCREMENT column "a"'):
        one("DROP INDEX k ON t", catalog=catalog)


def test_keys_come_go_and_are_renamed_by_name() -> None:
    keyed = schema_of(
        "ALTER TABLE log ADD UNIQUE (day), ADD UNIQUE KEY u (weight, day), ADD CONSTRAINT c UNIQUE (weight)"
    )
    assert (keyed.unique, keyed.unique_names) == (((0,), (2, 0), (2,)), ("day", "u", "c"))
    catalog = Catalog().with_table(keyed)
    assert one("CREATE UNIQUE INDEX IF NOT EXISTS U ON log (body)", catalog=catalog) == AlterTableStatement(
        "log", keyed
    )
    renamed = one("ALTER TABLE log RENAME INDEX u TO w, DROP INDEX day, DROP CONSTRAINT c", catalog=catalog)
    assert isinstance(renamed, AlterTableStatement)
    assert (renamed.schema.unique, renamed.schema.unique_names) == (((2, 0),), ("w",))
    # Recipes of before keys had names say an index's name where the key is now called so.
    older = perform("CREATE TABLE t (a INT, b INT, UNIQUE KEY (a, b)); CREATE INDEX a ON t (a)", Catalog()).table("t")
    assert (older.unique_names, older.index_names) == (("a_2",), ("a",))
    assert schema_from_json(json.loads(json.dumps(schema_to_json(older)))) == older


def test_a_primary_key_that_comes_later_is_shown_as_one() -> None:
    keyed = schema_of("ALTER TABLE log ADD UNIQUE (weight), ADD PRIMARY KEY (day, weight)")
    assert (keyed.shown_key, keyed.primary_key, keyed.unique) == ((0, 2), (), ((0, 2), (2,)))
    assert [column.nullable for column in keyed.columns] == [False, True, False]
    text = table_text(keyed)
    assert "PRIMARY KEY (`day`, `weight`)" in text
    assert text.count("KEY") == 2
    assert perform(text, Catalog()).table("log").primary_key == (0, 2)
    dropped = one("ALTER TABLE log DROP PRIMARY KEY", catalog=Catalog().with_table(keyed))
    assert isinstance(dropped, AlterTableStatement)
    assert (dropped.schema.shown_key, dropped.schema.unique, dropped.schema.late_primary) == ((), ((2,),), False)


def altered(*actions: str) -> TableSchema:
    text = "CREATE TABLE t (a INT NOT NULL DEFAULT 1, b VARCHAR(5), c DECIMAL(4,2), d DATETIME, KEY k (b))"
    return perform("; ".join([text, *(f"ALTER TABLE t {action}" for action in actions)]), Catalog()).table("t")


def test_columns_are_shown_first_and_after_others_and_stored_where_they_are() -> None:
    schema = altered("ADD x INT FIRST", "ADD y INT AFTER b", "MODIFY d DATETIME AFTER a, ADD z INT", "DROP c")
    assert names(schema, schema.live()) == ("x", "a", "d", "b", "y", "z")
    assert [column.name for column in schema.columns] == ["a", "b", "c", "d", "x", "y", "z"]
    assert altered("ADD x INT FIRST", "MODIFY x INT AFTER d").order == ()


def test_a_changed_column_is_what_its_definition_says() -> None:
    schema = altered("CHANGE a aa BIGINT DEFAULT 7", "MODIFY b TEXT", "MODIFY c DECIMAL(9,2) DEFAULT 1.5")
    a, b, c, _ = schema.columns
    assert (a.name, a.type.name, a.nullable, a.default, a.has_default) == ("aa", "BIGINT", True, 7, True)
    assert (b.type.name, c.type.name, str(c.default)) == ("TEXT", "DECIMAL(9,2)", "1.50")
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))) == schema


HELD = [
    ("TINYINT", "SMALLINT"),
    ("TINYINT UNSIGNED", "SMALLINT"),
    ("BOOL", "INT"),
    ("INT", "INT"),
    ("VARCHAR(3)", "VARCHAR(4)"),
    ("VARCHAR(3)", "TEXT"),
    ("DECIMAL(4,2)", "DECIMAL(5,2)"),
    ("DECIMAL(4,2) UNSIGNED", "DECIMAL(4,2)"),
    ("FLOAT", "DOUBLE"),
    ("DATETIME", "TIMESTAMP"),
    ("ENUM('a', 'b')", "ENUM('a', 'b', 'c')"),
]
NOT_HELD = [
    ("SMALLINT", "TINYINT"),
    ("SMALLINT", "INT UNSIGNED"),
    ("INT UNSIGNED", "INT"),
    ("TINYINT UNSIGNED", "YEAR"),
    ("YEAR", "INT"),
    ("BIT(8)", "BIGINT UNSIGNED"),
    ("VARCHAR(4)", "VARCHAR(3)"),
    ("TEXT", "VARCHAR(3)"),
    ("VARCHAR(3)", "BLOB"),
    ("VARCHAR(3)", "ENUM('a')"),
    ("ENUM('a', 'b')", "ENUM('b', 'a')"),
    ("ENUM('a', 'b')", "ENUM('a')"),
    ("ENUM('a', 'b')", "SET('a', 'b')"),
    ("ENUM('a', 'b')", "TEXT"),
    ("JSON", "TEXT"),
    ("DECIMAL(5,2)", "DECIMAL(4,2)"),
    ("DECIMAL(5,2)", "DECIMAL(6,3)"),
    ("DECIMAL(5,2)", "DECIMAL(5,2) UNSIGNED"),
    ("DOUBLE", "DOUBLE UNSIGNED"),
    ("INT", "DECIMAL(20,0)"),
    ("DATE", "DATETIME"),
]
REFUSED = (("TINYINT UNSIGNED", "YEAR"), ("ENUM('a', 'b')", "SET('a', 'b')"))


@pytest.mark.parametrize(("old", "new", "held"), [(*pair, pair in HELD) for pair in (*HELD, *NOT_HELD)])
def test_a_type_changes_to_one_that_holds_its_values(old: str, new: str, held: bool) -> None:
    text = f"CREATE TABLE t (a {old}); ALTER TABLE t MODIFY a {new}"
    if (old, new) in REFUSED:
        with pytest.raises(Unsupported, match=r'for column "t[.]a", which is'):
            perform(text, Catalog())
        return
    columns = perform(text, Catalog()).table("t").columns
    assert columns[-1].type == schema_of_type(new)
    if held:
        assert len(columns) == 1
        return
    first, last = columns
    assert (first.dropped, last.name, last.initial_of is not None) == (True, "a", True)


def test_a_changed_column_is_another_one_that_is_shown_in_its_place() -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 1, b TEXT, UNIQUE u (a), KEY k (b(3), a))"
    schema = perform(f"{text}; ALTER TABLE t CHANGE a c VARCHAR(9) NOT NULL DEFAULT 'x'", Catalog()).table("t")
    assert names(schema, schema.live()) == ("id", "c", "b")
    assert (schema.unique, schema.indexes) == (((3,),), ((2, 3),))
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))) == schema
    again = perform(f"{text}; ALTER TABLE t MODIFY a TEXT, MODIFY a INT FIRST, ADD c INT AS (a + 1)", Catalog())
    schema = again.table("t")
    assert names(schema, schema.live()) == ("a", "id", "b", "c")
    widen = widening(perform(text, Catalog()).table("t"), schema)
    assert widen((1, 7, "x")) == (1, 7, "x", "7", 7, 8)
    assert widen.sources((0, 5)) == (0, 1)
    for action in ("MODIFY id TEXT", "DROP a, MODIFY a TEXT"):
        with pytest.raises(HeadraceError):
            perform(f"{text}; ALTER TABLE t {action}", Catalog())


def schema_of_type(name: str) -> SqlType:
    return perform(f"CREATE TABLE t (a {name})", Catalog()).table("t").columns[0].type


def test_what_stored_rows_have_does_not_follow_the_default() -> None:
    before = altered()
    schema = altered(
        "ADD x INT DEFAULT 3, ADD y INT", "ALTER x SET DEFAULT 4, ALTER y SET DEFAULT 5", "ALTER x DROP DEFAULT"
    )
    assert widening(before, schema).constants == (3, None)
    assert [(column.default, column.has_default) for column in schema.columns[-2:]] == [(None, False), (5, True)]
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))) == schema


def test_a_check_goes_by_its_name() -> None:
    text = "CREATE TABLE t (a INT, b INT AS (a), CONSTRAINT c CHECK (a > 0), CHECK (a < 9))"
    schema = perform(f"{text}; ALTER TABLE t DROP CHECK C, DROP CONSTRAINT t_chk_1", Catalog()).table("t")
    assert schema.checks == ()
    for action in ("DROP COLUMN a", "RENAME COLUMN a TO x", "MODIFY a BIGINT"):
        with pytest.raises(StillInUse, match=r'generated column "b" reads column "t[.]a"'):
            perform(f"{text}; ALTER TABLE t DROP CHECK c, DROP CHECK t_chk_1; ALTER TABLE t {action}", Catalog())
        with pytest.raises(StillInUse, match=r'check "c" reads column "t[.]a"'):
            perform(f"{text}; ALTER TABLE t {action}", Catalog())


def test_rows_that_are_stored_get_the_moment_of_the_change() -> None:
    """As the recipe's entry has it; one of an earlier build has none, and its rows have NULL."""
    schema = schema_of("ALTER TABLE votes ADD a DATETIME NOT NULL DEFAULT NOW(), ADD b DATE DEFAULT (CURDATE())")
    assert widening(CATALOG.table("votes"), schema).constants == (NOW, NOW[:10])
    assert [column.default_now for column in schema.columns[-2:]] == [True, True]
    (parsed,) = split("ALTER TABLE votes ADD a DATETIME DEFAULT NOW()")
    earlier = interpret_one(parsed, CATALOG, (), "")
    assert isinstance(earlier, AlterTableStatement)
    assert widening(CATALOG.table("votes"), earlier.schema).constants == (None,)
    with pytest.raises(Unsupported, match="without a DEFAULT"):
        interpret_one(split("ALTER TABLE votes ADD a DATETIME NOT NULL DEFAULT NOW()")[0], CATALOG, (), "")
