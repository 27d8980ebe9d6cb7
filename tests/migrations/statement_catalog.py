"""A small catalog made by the statements themselves, for the tests of migrations/statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domains.language.types import TableSchema
from migrations.catalog import Catalog
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import (
    AlterTableStatement,
    CreateIndex,
    CreateTableStatement,
    CreateView,
    DropIndex,
    DropTableStatement,
    DropView,
    Statement,
)

NOW = "2026-01-31 08:00:00"

PROGRAM = """
CREATE TABLE stories (id INT PRIMARY KEY AUTO_INCREMENT, author INT NOT NULL, title VARCHAR(20) DEFAULT 'none',
                      score DECIMAL(6,2), made DATETIME DEFAULT CURRENT_TIMESTAMP, KEY by_author (author));
CREATE TABLE votes (user INT, story_id INT, PRIMARY KEY (user, story_id));
CREATE TABLE log (day DATE, body BLOB, weight DOUBLE);
CREATE VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id;
CREATE EXT VIEW StoriesWithVC AS SELECT id, title, vcount FROM stories JOIN VoteCount ON story_id = id WHERE id = ?;
CREATE EXT VIEW Ranked AS SELECT id, title FROM stories WHERE author IN (?) AND score > ?;
"""


def perform(sql: str, catalog: Catalog) -> Catalog:
    """The catalog after the DDL statements of a text."""
    for parsed in split(sql):
        match interpret_one(parsed, catalog, (), NOW):
            case CreateTableStatement(schema=schema) | CreateIndex(schema=schema) | DropIndex(schema=schema):
                catalog = catalog.with_table(schema)
            case AlterTableStatement(schema=schema):
                catalog = catalog.with_table(schema)
            case DropTableStatement(name=name):
                catalog = catalog.without_table(name)
            case CreateView(definition=definition):
                catalog = catalog.with_view(definition)
            case DropView(name=name):
                catalog = catalog.without_view(name)
    return catalog


CATALOG = perform(PROGRAM, Catalog())


def one(sql: str, *params: Any, catalog: Catalog = CATALOG) -> Statement:
    """The only statement of a text."""
    (parsed,) = split(sql)
    return interpret_one(parsed, catalog, params, NOW)


def each(sql: str, catalog: Catalog = CATALOG) -> list[Statement]:
    """The statements of a text without parameters, all against one catalog."""
    return [interpret_one(parsed, catalog, (), NOW) for parsed in split(sql)]


def schema_of(sql: str, catalog: Catalog = CATALOG) -> TableSchema:
    statement = one(sql, catalog=catalog)
    assert isinstance(statement, (CreateTableStatement, AlterTableStatement, CreateIndex, DropIndex)), statement
    return statement.schema


def names(schema: TableSchema, positions: Sequence[int]) -> tuple[str, ...]:
    return tuple(schema.columns[at].name for at in positions)
