"""Which shards a write goes to, and which one answers a look-up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domains.errors import Unsupported
from domains.language.types import Row, TableSchema
from domains.plan.packets import Delete, Insert, Operation, Update
from domains.plan.sharding import shard_of
from migrations.catalog import Catalog
from migrations.change import change_of
from migrations.flow.plan import State, one_domain
from migrations.flow.routing import Split, split, split_numbered
from migrations.recipe import RecipeEntry
from migrations.statements.statement import WriteStatement
from tests.migrations.statement_catalog import one
from tests.shard_of_key import shard_of_key

SHARDS = 4
TABLES = """
CREATE TABLE stories (id INT PRIMARY KEY AUTO_INCREMENT, author INT);
CREATE TABLE votes (user INT, story_id INT) SHARD BY (story_id) SHARDS 3;
CREATE TABLE tags (tag VARCHAR(9) PRIMARY KEY, n INT) SHARD BY (tag) SHARDS 1;
CREATE TABLE events (at DATETIME DEFAULT CURRENT_TIMESTAMP, n INT)
"""


def state() -> State:
    found = State(shards=SHARDS)
    for sql in TABLES.split(";"):
        found = change_of(found, RecipeEntry((sql,)), one_domain).state
    return found


CATALOG: Catalog = state().catalog


def operation_of(sql: str) -> Operation:
    statement = one(sql, catalog=CATALOG)
    assert isinstance(statement, WriteStatement)
    return statement.operation


def routed(sql: str, turn: int = 0) -> Split:
    operation = operation_of(sql)
    return split(operation, schema(operation.table), SHARDS, turn)


def schema(table: str) -> TableSchema:
    return CATALOG.table(table)


def rows_of(found: Split) -> dict[int, Sequence[Row]]:
    return {shard: part.rows for shard, part in found if isinstance(part, Insert)}


def test_rows_go_to_their_shards_in_their_order() -> None:
    found = routed("INSERT INTO votes VALUES (1, 7), (2, 3), (3, 4), (4, 7), (5, NULL)")
    assert rows_of(found) == {0: ((2, 3), (5, None)), 1: ((1, 7), (3, 4), (4, 7))}
    assert found.limit is None


def test_a_row_goes_whole_and_as_it_is() -> None:
    """Also what is to be done where its key is there already."""
    operation = operation_of("INSERT INTO stories VALUES (6, 1) ON DUPLICATE KEY UPDATE author = 2")
    assert list(split(operation, schema("stories"), SHARDS)) == [(2, operation)]
    parts = routed("INSERT IGNORE INTO stories VALUES (5, 1), (6, 1)")
    assert [(shard, part.on_conflict) for shard, part in parts if isinstance(part, Insert)] == [
        (1, "ignore"),
        (2, "ignore"),
    ]


def test_rows_that_ask_for_a_number_go_together_and_by_turns_elsewhere() -> None:
    sql = "INSERT INTO stories (author) VALUES (1), (2), (3)"
    assert [[shard for shard, _ in routed(sql, turn)] for turn in range(5)] == [[0], [1], [2], [3], [0]]
    mixed = rows_of(routed("INSERT INTO stories VALUES (NULL, 1), (4, 2), (NULL, 3), (5, 4)", turn=1))
    assert mixed == {0: ((4, 2),), 1: ((None, 1), (None, 3), (5, 4))}


@pytest.mark.parametrize(
    ("where", "shards"),
    [
        ("id = 6", [2]),
        ("id IN (1, 5, 9)", [1]),
        ("id IN (1, 2)", [1, 2]),
        ("id = 6 AND author = 1", [2]),
        ("id = 6 OR author = 1", [0, 1, 2, 3]),
        ("author = 1", [0, 1, 2, 3]),
        ("id > 6", [0, 1, 2, 3]),
        ("id = NULL", [0]),
        ("id IN (1, NULL)", [1]),
        ("id = 1.5", [0]),
        ("id > 1.5", [0, 1, 2, 3]),
        ("id = '6'", [2]),
    ],
)
def test_where_an_update_or_delete_goes(where: str, shards: list[int]) -> None:
    for sql in (f"DELETE FROM stories WHERE {where}", f"UPDATE stories SET author = 1 WHERE {where}"):
        operation = operation_of(sql)
        assert list(routed(sql)) == [(shard, operation) for shard in shards]


def test_a_truncation_goes_everywhere() -> None:
    assert [shard for shard, _ in routed("TRUNCATE votes")] == [0, 1, 2]


def test_with_a_limit_shards_are_asked_in_turn_for_what_is_left() -> None:
    found = routed("DELETE FROM votes WHERE user = 1 LIMIT 5")
    assert (len(found), found.limit) == (3, 5)
    asked = [found.limited(number, affected) for number, affected in ((0, 0), (1, 2), (2, 5))]
    assert [(part[0], limit_of(part[1])) if part else None for part in asked] == [(0, 5), (1, 3), None]


def test_a_limit_of_nothing_is_still_asked_once() -> None:
    """Whoever asks gets an answer from somebody."""
    found = routed("DELETE FROM votes LIMIT 0")
    first = found.limited(0, 0)
    assert first is not None
    assert limit_of(first[1]) == 0
    assert found.limited(1, 0) is None


def test_one_shard_takes_its_limit_itself() -> None:
    found = routed("DELETE FROM stories WHERE id = 6 LIMIT 1")
    assert found.limit is None
    assert [(shard, limit_of(part)) for shard, part in found] == [(2, 1)]


def limit_of(operation: Operation) -> int | None:
    assert isinstance(operation, Update | Delete)
    return operation.limit


def test_a_table_in_one_shard_is_not_split() -> None:
    operation = operation_of("INSERT INTO tags VALUES ('a', 1), ('b', 2)")
    assert list(split(operation, schema("tags"), SHARDS)) == [(0, operation)]


def test_a_deployment_of_one_shard_does_not_split() -> None:
    operation = operation_of("INSERT INTO stories VALUES (1, 1), (2, 2)")
    assert list(split(operation, schema("stories"), 1)) == [(0, operation)]


def test_where_a_reader_has_a_key() -> None:
    found = state()
    for sql in (
        "CREATE EXT VIEW by_id AS SELECT * FROM stories WHERE author = ? AND id = ?",
        "CREATE EXT VIEW by_user AS SELECT * FROM votes WHERE user = ?",
        "CREATE EXT VIEW everything AS SELECT * FROM votes",
    ):
        found = change_of(found, RecipeEntry((sql,)), one_domain).state
    flow = found.flow
    by_id, by_user, everything = (flow.readers[view] for view in ("by_id", "by_user", "everything"))
    keys = [flow.node(by_id).columns[column].name for column in flow.node(by_id).operator.key]  # type: ignore[union-attr]
    key = {"id": 6, "author": 9}
    assert shard_of_key(flow, by_id, tuple(key[name] for name in keys)) == shard_of(6, 4)
    assert [shard_of_key(flow, by_user, (user,)) for user in range(4)] == [0, 1, 2, 0]
    assert shard_of_key(flow, everything, ()) == flow.sharding[everything].first


# --- numbered inserts -----------------------------------------------------------------------------------------------


def test_every_shard_takes_every_number() -> None:
    rows: tuple[Row, ...] = ((1, 4), (2, 0), (3, 4), (4, 1))
    parts = split_numbered(Insert("votes", rows), CATALOG.tables["votes"], SHARDS, 7)
    assert [part.shard for part in parts] == [0, 1, 2]
    assert [part.operation.rows for part in parts] == [((2, 0),), ((1, 4), (3, 4), (4, 1)), ()]
    assert [part.numbers for part in parts] == [(2,), (1, 3, 4), ()]
    assert {part.operation.on_conflict for part in parts} == {"list"}
    (whole,) = split_numbered(Insert("tags", (("a", 1),)), CATALOG.tables["tags"], SHARDS, 7)
    assert (whole.shard, whole.operation.rows, whole.numbers) == (0, (("a", 1),), (1,))


def test_where_numbered_rows_go_depends_on_the_number_alone() -> None:
    insert, stories = Insert("stories", ((None, 1), (5, 2), (None, 3))), CATALOG.tables["stories"]
    parts = [split_numbered(insert, stories, SHARDS, number) for number in (6, 6, 7)]
    assert parts[0] == parts[1]
    assert [part.numbers for part in parts[0]] == [(), (2,), (1, 3), ()]
    assert [part.numbers for part in parts[2]] == [(), (2,), (), (1, 3)]


def test_rows_that_the_time_spreads_have_no_number() -> None:
    insert = Insert("events", (("2026-01-31 08:00:00", 1),))
    with pytest.raises(Unsupported, match='"at", the time by default'):
        split_numbered(insert, CATALOG.tables["events"], SHARDS, 1)
    assert len(split_numbered(insert, CATALOG.tables["events"], 1, 1)) == 1
