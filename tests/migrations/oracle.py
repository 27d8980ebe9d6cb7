"""SQLite as the judge: the same small random tables, the same text, the same answer."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from domains.language.types import BIGINT, DOUBLE, TEXT, Row, TableColumn, TableSchema, Value
from migrations.catalog import Catalog, ViewDefinition
from migrations.joint_graph.graph import JointGraph
from migrations.parse.reading import exp, parse
from migrations.query.view import PlannedView, plan_view
from tests.migrations.evaluate import answer

SCHEMAS = (
    TableSchema(
        "stories",
        tuple(TableColumn(n, t) for n, t in (("id", BIGINT), ("author", BIGINT), ("title", TEXT), ("score", BIGINT))),
        primary_key=(0,),
    ),
    TableSchema("votes", tuple(TableColumn(n, BIGINT) for n in ("user", "story_id", "vote"))),
    TableSchema(
        "users",
        tuple(TableColumn(n, t) for n, t in (("id", BIGINT), ("name", TEXT), ("karma", DOUBLE), ("boss", BIGINT))),
        primary_key=(0,),
    ),
    TableSchema(
        "tags",
        tuple(TableColumn(n, t) for n, t in (("story_id", BIGINT), ("tag", TEXT), ("weight", BIGINT))),
        primary_key=(0, 1),
    ),
    TableSchema("vacant", (TableColumn("x", BIGINT), TableColumn("y", TEXT))),
)

VIEWS = (
    "CREATE VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id",
    "CREATE VIEW StoriesWithVC AS SELECT id, author, title, vcount FROM stories JOIN VoteCount ON id = story_id",
    "CREATE VIEW Titles (story, words) AS SELECT id, title FROM stories WHERE title IS NOT NULL",
    "CREATE VIEW Best AS SELECT id, score FROM stories ORDER BY score DESC, id LIMIT 4",
)


def catalog() -> Catalog:
    """The judge's tables and views."""
    known = Catalog()
    for schema in SCHEMAS:
        known = known.with_table(schema)
    for sql in VIEWS:
        known = with_view(known, sql)
    return known


def with_view(known: Catalog, sql: str) -> Catalog:
    """The catalog with a CREATE VIEW statement carried out."""
    [parsed] = parse(sql)
    create = parsed.expression
    head = create.this
    names = tuple(column.name for column in head.expressions) if isinstance(head, exp.Schema) else ()
    name = head.this.name if isinstance(head, exp.Schema) else head.name
    return known.with_view(ViewDefinition(name, sql, parsed.external, False, create.expression, names))


def random_tables(seed: int) -> dict[str, list[Row]]:
    """Small tables with NULLs, duplicates and keys that miss each other."""
    rng = random.Random(seed)

    def maybe(value: Value) -> Value:
        return None if rng.random() < 0.2 else value

    words = ["apple", "Bread", "corn", "apple pie", ""]
    return {
        "stories": [
            (i, maybe(rng.randint(1, 4)), maybe(rng.choice(words)), maybe(rng.randint(-3, 6)))
            for i in sorted(rng.sample(range(1, 10), 7))
        ],
        "votes": [(maybe(rng.randint(1, 4)), maybe(rng.randint(1, 9)), maybe(rng.randint(-1, 1))) for _ in range(14)],
        "users": [
            (i, maybe(rng.choice(words)), maybe(rng.randint(0, 8) / 2), maybe(rng.randint(1, 5))) for i in range(1, 5)
        ],
        "tags": [
            (story, tag, maybe(rng.randint(0, 3)))
            for story in range(1, 8)
            for tag in ("a", "b", "c")
            if rng.random() < 0.4
        ],
        "vacant": [],
    }


def judge(tables: dict[str, list[Row]]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    affinities = {"INTEGER": "INTEGER", "DOUBLE": "REAL", "TEXT": "TEXT"}
    for schema in SCHEMAS:
        columns = ", ".join(f'"{c.name}" {affinities[c.type.kind.value]}' for c in schema.columns)
        connection.execute(f"CREATE TABLE {schema.name} ({columns})")
        places = ", ".join("?" * len(schema.columns))
        connection.executemany(f"INSERT INTO {schema.name} VALUES ({places})", tables[schema.name])
    for sql in VIEWS:
        connection.execute(sql)
    return connection


def plan(sql: str, known: Catalog | None = None) -> tuple[JointGraph, PlannedView]:
    graph = JointGraph()
    [parsed] = parse(sql)
    return graph, plan_view(known or catalog(), graph, "v", parsed.expression)


def planned_answer(
    graph: JointGraph, view: PlannedView, tables: dict[str, list[Row]], values: Sequence[Any]
) -> list[Row]:
    """The view's rows for one value a placeholder (a list for IN), as the text names them."""
    arguments: list[Any] = [None] * len(view.parameters)
    for place, value in zip(view.placeholders, values, strict=True):
        arguments[place] = value
    return answer(graph, view.root, view.reader, tables, arguments, view.finish)


def comparable(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Rows as both engines can agree on them: numbers as numbers, rounded to what AVG keeps."""
    return [tuple(_number(value) for value in row) for row in rows]


def as_bag(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(comparable(rows))


def _number(value: Value) -> Any:
    if isinstance(value, (Decimal, float)):
        return round(float(value), 3)
    return value
