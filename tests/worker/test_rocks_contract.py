"""The promises of domains/store/storage.py, run against the store of dicts and the store on disk alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from domains.errors import AlreadyExists, NotFound
from domains.language.expressions import Field
from domains.language.functions import call
from domains.language.json_rows import stored_expression
from domains.language.types import BIGINT, BLOB, DOUBLE, TEXT, Delta, Row, TableColumn, TableSchema, decimal_type
from domains.plan.copies import PartCopy
from domains.plan.graph import DomainIndex
from domains.store.memory_store import MemoryStore
from domains.store.storage import TransactionPart, TransactionRecord
from domains.store.widening import widening
from worker.rocks import RocksStore

AnyStore = MemoryStore | RocksStore

STORIES = TableSchema(
    "stories",
    (TableColumn("id", BIGINT, nullable=False), TableColumn("author", BIGINT), TableColumn("title", TEXT)),
    primary_key=(0,),
    unique=((2,),),
    indexes=((1,), (1, 2), (2, 1)),
)
VOTES = TableSchema("votes", (TableColumn("story", BIGINT), TableColumn("user", TEXT)), indexes=((0,),))
PRICES = TableSchema(
    "prices",
    (TableColumn("a", BIGINT), TableColumn("b", TEXT), TableColumn("price", decimal_type(2)), TableColumn("x", DOUBLE)),
    primary_key=(1, 0),
)
LONG = "a text that does not fit into the key of a row or into an index entry " * 4


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    if request.param == "memory":
        yield MemoryStore()
    else:
        opened = RocksStore(tmp_path / "base")
        yield opened
        opened.close()


def step(store: AnyStore, table: str, *deltas: Delta) -> None:
    store.table(table).stage(deltas)
    store.commit([(table, store.position(table) + 1, deltas)])


def found(deltas: list[Delta]) -> Counter[Row]:
    """As a bag: the order of a look-up is not promised."""
    assert len({row for row, _ in deltas}) == len(deltas), "equal rows come as one weight"
    return Counter(dict(deltas))


def test_look_ups_by_primary_key_index_and_scan(store: AnyStore) -> None:
    stories = store.create_table(STORIES)
    rows: list[Row] = [(1, 7, "b"), (2, 7, LONG), (3, None, "c"), (-4, 8, None)]
    step(store, "stories", *[(row, 1) for row in rows])
    assert stories.find((0,), (1,)) == [(rows[0], 1)]
    assert stories.find((0,), (99,)) == []
    assert stories.find_many((0,), [(3,), (9,), (-4,)]) == [[(rows[2], 1)], [], [(rows[3], 1)]]
    assert stories.has_index((1,))
    assert stories.has_index((2,))
    assert found(stories.find((1,), (7,))) == {rows[0]: 1, rows[1]: 1}
    answers = stories.find_many((1,), [(8,), (7,), (6,)])
    assert [found(answer) for answer in answers] == [{rows[3]: 1}, {rows[0]: 1, rows[1]: 1}, {}]
    assert stories.find((2,), (LONG,)) == [(rows[1], 1)]
    assert stories.find((2, 1), ("b", 7)) == stories.find((1, 2), (7, "b")) == [(rows[0], 1)]
    assert not stories.has_index((0, 1))
    assert stories.find((0, 1), (2, 7)) == [(rows[1], 1)]
    assert stories.find_many((0, 1), [(2, 7), (2, 8)]) == [[(rows[1], 1)], []]
    assert found(stories.find((), ())) == Counter(dict.fromkeys(rows, 1))
    assert stories.row_count == 4


def test_composite_keys_are_found_in_any_order_of_their_columns(store: AnyStore) -> None:
    prices = store.create_table(PRICES)
    row: Row = (5, "x", Decimal("1.50"), 0.5)
    step(store, "prices", (row, 1), ((6, "x", None, None), 1))
    assert prices.find((0, 1), (5, "x")) == prices.find((1, 0), ("x", 5)) == [(row, 1)]
    assert prices.find_many((0, 1), [(5, "y"), (6, "x")]) == [[], [((6, "x", None, None), 1)]]
    assert type(prices.find((1, 0), ("x", 5))[0][0][2]) is Decimal


def test_an_update_replaces_the_row_and_its_index_entries(store: AnyStore) -> None:
    stories = store.create_table(STORIES)
    step(store, "stories", ((1, 7, "old"), 1))
    step(store, "stories", ((1, 8, LONG), 1), ((1, 7, "old"), -1))
    assert stories.find((0,), (1,)) == [((1, 8, LONG), 1)]
    assert stories.find((1,), (7,)) == stories.find((2,), ("old",)) == []
    assert stories.find((1,), (8,)) == [((1, 8, LONG), 1)]
    step(store, "stories", ((1, 8, LONG), -1))
    assert stories.find((), ()) == stories.find((1,), (8,)) == []
    assert stories.row_count == 0


def test_a_bag_counts_equal_rows(store: AnyStore) -> None:
    votes = store.create_table(VOTES)
    for user in ("u", LONG):
        step(store, "votes", ((1, user), 3), ((2, user), 1))
        step(store, "votes", ((1, user), 2), ((1, None), 1))
        assert found(votes.find((0,), (1,))) == {(1, user): 5, (1, None): 1}
        assert votes.find((0, 1), (1, user)) == [((1, user), 5)]
        step(store, "votes", ((1, user), -4), ((1, None), -1))
        assert votes.find_many((0,), [(1,), (2,)]) == [[((1, user), 1)], [((2, user), 1)]]
        step(store, "votes", ((1, user), -1), ((2, user), -1))
        assert votes.find((), ()) == []
        assert votes.row_count == 0


def test_a_row_may_come_and_go_within_a_step(store: AnyStore) -> None:
    votes, stories = store.create_table(VOTES), store.create_table(STORIES)
    votes.stage([((1, "u"), 2)])
    votes.stage([((1, "u"), -1)])
    stories.stage([((1, 1, "t"), 1)])
    stories.stage([((1, 2, "t"), 1), ((1, 1, "t"), -1)])
    store.commit([])
    assert votes.find((0,), (1,)) == [((1, "u"), 1)]
    assert stories.find((), ()) == stories.find((1,), (2,)) == [((1, 2, "t"), 1)]
    assert stories.find((1,), (1,)) == []
    votes.stage([((1, "u"), -1)])
    votes.stage([((1, "u"), 2)])
    store.commit([])
    assert votes.find((0,), (1,)) == [((1, "u"), 2)]


def test_look_ups_wait_for_the_commit(store: AnyStore) -> None:
    votes = store.create_table(VOTES)
    votes.stage([((1, "u"), 1)])
    for look_up in (lambda: votes.find((), ()), lambda: votes.scan(None, 1), lambda: votes.find_many((0,), [(1,)])):
        with pytest.raises(AssertionError):
            look_up()
    store.rollback()
    assert votes.find((), ()) == []


def test_rollback_forgets_rows_counts_and_numbers(store: AnyStore) -> None:
    stories = store.create_table(STORIES)
    assert stories.next_auto_increment(2) == 1
    step(store, "stories", ((1, 7, "a"), 1))
    stories.stage([((2, 7, "b"), 1), ((1, 7, "a"), -1)])
    assert stories.next_auto_increment(10) == 3
    stories.raise_auto_increment(100)
    store.rollback()
    assert found(stories.find((1,), (7,))) == {(1, 7, "a"): 1}
    assert stories.row_count == 1
    assert stories.next_auto_increment(1) == 3
    stories.raise_auto_increment(10)
    stories.raise_auto_increment(5)
    assert stories.next_auto_increment(1) == 11


def test_the_log_holds_every_step(store: AnyStore) -> None:
    prices = store.create_table(PRICES)
    deltas: list[Delta] = [((1, "a", Decimal("2.00"), 1.5), 1), ((2, "a", None, None), 1)]
    assert store.position("prices") == 0
    step(store, "prices", *deltas)
    step(store, "prices", ((2, "a", None, None), -1))
    prices.stage([])
    store.commit([("prices", 9, [])])
    assert store.position("prices") == 9
    assert store.log("prices", 0, 10) == [(1, deltas), (2, [((2, "a", None, None), -1)]), (9, [])]
    assert store.log("prices", 1, 1) == [(2, [((2, "a", None, None), -1)])]
    store.trim_log("prices", 2)
    assert store.log("prices", 0, 10) == [(9, [])]
    with pytest.raises(AssertionError):
        store.commit([("prices", 9, [])])


@pytest.mark.parametrize("schema", [STORIES, VOTES], ids=["keyed", "bag"])
def test_a_scan_in_slices_sees_each_row_once(store: AnyStore, schema: TableSchema) -> None:
    table = store.create_table(schema)
    if schema is STORIES:
        rows = {(i, i % 3, LONG if i % 5 else "short"): 1 for i in range(-6, 20)}
    else:
        rows = {(i, LONG if i % 5 else "short"): 1 + i % 4 for i in range(20)}
    step(store, schema.name, *rows.items())
    for limit in (1, 2, 7, 100):
        seen: list[Delta] = []
        cursor = None
        while True:
            part, cursor = table.scan(cursor, limit)
            assert len(part) <= limit
            seen += part
            here = {row for row, _ in seen}
            assert all(table.before(row, cursor) == (row in here) for row in rows)
            if cursor is None:
                break
        assert found(seen) == Counter(rows)
    assert table.scan(None, 5)[0] == table.scan(None, 100)[0][:5]


def test_an_index_is_built_while_steps_go_on(store: AnyStore) -> None:
    for schema, columns in ((STORIES, (1, 0)), (VOTES, (1,))):
        table = store.create_table(schema)
        wide = schema is STORIES
        rows: list[Row] = [(i, i % 3, f"t{i}") if wide else (i, f"t{i % 3}" + LONG * (i % 2)) for i in range(10)]
        step(store, schema.name, *[(row, 1) for row in rows])
        table.add_index(columns)
        assert not table.has_index(columns)
        cursor = table.build_index(columns, None, 4)
        step(store, schema.name, (rows[0], -1), (rows[9], -1))
        step(store, schema.name, ((-1, 1, "new") if wide else (-1, "new"), 1))
        slices = 0
        while cursor is not None:
            cursor = table.build_index(columns, cursor, 2)
            slices += 1
        assert slices > 1
        assert table.has_index(columns)
        everything = table.find((), ())
        for row, _ in everything:
            key = tuple(row[at] for at in columns)
            assert found(table.find(columns, key)) == Counter(
                {other: n for other, n in everything if tuple(other[at] for at in columns) == key}
            )
        assert table.find(columns, tuple(rows[0][at] for at in columns)) == [
            (row, n) for row, n in everything if all(row[at] == rows[0][at] for at in columns)
        ]
        table.drop_index(columns)
        assert not table.has_index(columns)


def test_an_index_of_an_empty_table_is_in_use_at_once(store: AnyStore) -> None:
    votes = store.create_table(VOTES)
    votes.add_index((1,))
    votes.add_index((1,))
    assert votes.has_index((1,))
    assert votes.build_index((1,), None, 10) is None
    step(store, "votes", ((1, "u"), 1))
    assert votes.find((1,), ("u",)) == [((1, "u"), 1)]


@pytest.mark.parametrize("schema", [STORIES, VOTES], ids=["keyed", "bag"])
def test_appended_columns_are_padded(store: AnyStore, schema: TableSchema) -> None:
    table = store.create_table(schema)
    old: Row = (1, 7, "a") if schema is STORIES else (1, "a")
    step(store, schema.name, (old, 1))
    pads: Row = (Decimal("0.50"), None, b"x")
    added = (
        TableColumn("d", decimal_type(2), default=Decimal("0.50"), has_default=True),
        TableColumn("e", BIGINT),
        TableColumn("f", BLOB, default=b"x", has_default=True),
    )
    wider = TableSchema(schema.name, schema.columns + added, schema.primary_key, schema.unique, schema.indexes)
    table = store.alter_table(wider)
    assert table.schema == wider
    assert table.find((), ()) == [(old + pads, 1)]
    at = 1 if schema is STORIES else 0
    assert table.find((at,), (old[at],)) == [(old + pads, 1)]
    new: Row = (2, *old[1:], Decimal("1.00"), 5, None)
    again: Row = (3, *old[1:], *pads)
    step(store, schema.name, (new, 1), (again, 1))
    assert found(table.find((), ())) == {old + pads: 1, new: 1, again: 1}
    assert [deltas for _, deltas in store.log(schema.name, 1, 9)] == [[(new, 1), (again, 1)]]
    step(store, schema.name, (old + pads, -1), (again, -1))
    assert table.find((), ()) == [(new, 1)]
    assert table.find((at,), (old[at],)) == ([(new, 1)] if schema is STORIES else [])


@pytest.mark.parametrize("schema", [STORIES, VOTES], ids=["keyed", "bag"])
def test_appended_columns_are_computed_and_found_before_they_are_there(store: AnyStore, schema: TableSchema) -> None:
    """Rows that are stored, written, and taken away while an index of columns to come is made, and afterwards."""
    table = store.create_table(schema)
    narrow = len(schema.columns)
    of_text = stored_expression("", call("upper", Field(narrow - 1, TEXT)))
    added = (TableColumn("n", BIGINT, default=5), TableColumn("big", TEXT, initial_of=of_text))
    wider = TableSchema(schema.name, schema.columns + added, schema.primary_key, schema.unique, schema.indexes)
    widen, key = widening(schema, wider), (narrow + 1, narrow)
    rows: list[Row] = [(at, 7, "a") if schema is STORIES else (at, "a") for at in range(5)]
    step(store, schema.name, *[(row, 1) for row in rows[:3]])
    table.add_index(key, widen)
    step(store, schema.name, (rows[0], -1), (rows[3], 1))
    cursor = None
    while (cursor := table.build_index(key, cursor, 1)) is not None:
        pass
    step(store, schema.name, (rows[1], -1), (rows[4], 1))
    assert found(table.find_many(key, [("A", 5), ("a", 5)])[0]) == dict.fromkeys(rows[2:], 1)
    table = store.alter_table(wider)
    assert found(table.find(key, ("A", 5))) == {widen(row): 1 for row in rows[2:]}
    step(store, schema.name, (widen(rows[2]), -1), ((*rows[2], 5, "other"), 1))
    assert found(table.find_many(key, [("A", 5)])[0]) == {widen(row): 1 for row in rows[3:]}
    assert table.find(key, ("other", 5)) == [((*rows[2], 5, "other"), 1)]
    assert found(table.find((), ())) == {(*rows[2], 5, "other"): 1, **{widen(row): 1 for row in rows[3:]}}


def test_tables_come_and_go(store: AnyStore) -> None:
    store.create_table(STORIES)
    store.create_table(VOTES)
    step(store, "votes", ((1, "u"), 1))
    step(store, "stories", ((1, 1, "t"), 1))
    assert store.tables() == [STORIES, VOTES]
    with pytest.raises(AlreadyExists):
        store.create_table(VOTES)
    store.drop_table("stories")
    with pytest.raises(NotFound):
        store.table("stories")
    assert store.create_table(STORIES).find((), ()) == []
    assert store.position("stories") == 0
    assert store.log("stories", 0, 9) == []
    assert store.table("votes").find((0,), (1,)) == [((1, "u"), 1)]


def test_a_step_spans_tables(store: AnyStore) -> None:
    stories, votes = store.create_table(STORIES), store.create_table(VOTES)
    stories.stage([((1, 1, "t"), 1)])
    votes.stage([((1, "u"), 1)])
    store.commit([("stories", 1, [((1, 1, "t"), 1)]), ("votes", 1, [((1, "u"), 1)])])
    assert (stories.row_count, votes.row_count) == (1, 1)
    assert (store.position("stories"), store.position("votes")) == (1, 1)


def test_a_retraction_of_what_is_not_stored_is_a_mistake(store: AnyStore) -> None:
    store.create_table(VOTES)
    mistake: Callable[[], None] = lambda: step(store, "votes", ((1, "u"), -1))
    with pytest.raises(AssertionError):
        mistake()


def test_the_numbers_of_streams_go_with_their_step(store: AnyStore) -> None:
    votes = store.create_table(VOTES)
    assert votes.last_number("load") == 0
    votes.remember("load", 1)
    votes.stage([((1, "u"), 1)])
    assert votes.last_number("load") == 0, "as of the last commit"
    store.commit([("votes", 1, [((1, "u"), 1)])])
    votes.remember("load", 2)
    votes.remember("other", 9)
    store.rollback()
    assert votes.last_number("load") == 1, "a step that is forgotten has no number"
    votes.remember("other", 1)
    store.commit([])
    assert dict(votes.streams()) == {"load": 1, "other": 1}
    assert store.position("votes") == 1, "a number without rows is nothing for the log"
    votes.remember("load", 0)
    store.commit([])
    assert dict(votes.streams()) == {"other": 1}
    store.drop_table("votes")
    assert dict(store.create_table(VOTES).streams()) == {}, "a table that is made anew knows no stream"


def test_rows_are_counted_no_further_than_asked(store: AnyStore) -> None:
    stories, votes = store.create_table(STORIES), store.create_table(VOTES)
    step(store, "stories", *[((id, id % 2, None), 1) for id in range(9)])
    step(store, "votes", ((1, "u"), 3), ((1, LONG), 2), ((2, "u"), 1))
    assert votes.count_many((0,), [(1,), (2,), (3,)], 100) == [5, 1, 0]
    assert votes.count_many((0,), [(1,), (2,), (3,)], 4) == [4, 1, 0]
    assert votes.count_many((0,), [(1,)], 1) == [1]
    assert votes.count_many((1,), [("u",), (LONG,)], 3) == [3, 2], "without an index"
    assert stories.count_many((1,), [(0,), (1,)], 5) == [5, 4]
    assert stories.count_many((0,), [(3,), (99,)], 5) == [1, 0]


def test_an_index_of_columns_to_come_is_lost_with_the_process(tmp_path: Path) -> None:
    """And begun again with nothing of the first."""
    wider = TableSchema("votes", (*VOTES.columns, TableColumn("n", BIGINT, default=5)), indexes=VOTES.indexes)
    widen, row = widening(VOTES, wider), (1, "a")
    for width in (2, 2, 3):
        store = RocksStore(tmp_path / "base")
        try:
            if width == 2 and not store.tables():
                step(store, store.create_table(VOTES).schema.name, (row, 1))
            table = store.table("votes")
            assert not table.has_index((2, 0))
            assert len(table.indexes.all) == 1
            table.add_index((2, 0), widen)
            assert table.build_index((2, 0), None, 9) is None
            assert table.find_many((2, 0), [(5, 1)]) == [[(row, 1)]]
            if width == 3:
                store.alter_table(wider)
        finally:
            store.close()
    store = RocksStore(tmp_path / "base")
    assert store.table("votes").find((2, 0), (5, 1)) == [((1, "a", 5), 1)]
    assert store.table("votes").has_index((2, 0))
    store.close()


def test_what_is_kept_of_transactions_comes_and_goes_with_the_step(store: AnyStore) -> None:
    store.create_table(VOTES)
    there = DomainIndex(3)
    prepared = TransactionRecord(there, (), 1, ("votes",), {"votes": [((1, "a"), 1)]}, 7.5, {"votes@1": 4}, 2)
    part = TransactionPart(there, (DomainIndex(1),), {"votes@1": 4}, {"votes@1": 5}, {"votes@1": 6}, 2, 3)
    store.keep("a", prepared)
    store.note_part("b", part)
    assert (store.records(), store.parts()) == ({}, {})
    store.rollback()
    store.commit([])
    assert (store.records(), store.parts()) == ({}, {})
    store.keep("a", prepared)
    store.note_part("b", part)
    copies = (PartCopy(there, 7, 2, b"[]", (("c", 1, b"[]"),)), PartCopy(DomainIndex(1), 5, is_left_out=True))
    store.note_part("a", replace(part, order=9), copies)
    assert store.copies_of("a") == ()
    store.commit([])
    assert (store.copies_of("a"), store.copies_of("b"), store.copies_of("never")) == (copies, (), ())
    assert (store.part("b"), store.part("never")) == (part, None)
    assert store.records() == {"a": prepared}
    assert list(store.parts().items()) == [("a", replace(part, order=9)), ("b", part)]
    store.keep("a", None)
    store.commit([])
    store.forget_parts(["b", "never"])
    assert (store.records(), list(store.parts())) == ({}, ["a"])
    store.forget_parts(["a"])
    assert (store.parts(), store.copies_of("a")) == ({}, ())
