"""The store on disk does what the store of dicts does, under random steps, indexes, schema changes and restarts."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from domains.language.encoding import row_encoder
from domains.language.types import BIGINT, TEXT, TIME, Delta, Row, TableColumn, TableSchema, decimal_type
from domains.plan.deltas import consolidate
from domains.store.memory_store import MemoryStore
from domains.store.storage import declared_indexes
from domains.store.walking import orders_of
from worker.rocks import RocksStore

WORDS = st.sampled_from([None, "", "a", "a\x00b", "ü" * 20, "long " * 40])
PRICES = st.sampled_from([None, Decimal("0.00"), Decimal("-0.00"), Decimal("1.50"), Decimal("-12.25")])
BAG = TableSchema("bag", (TableColumn("a", BIGINT), TableColumn("b", TEXT)), indexes=((0,),))
KEYED = TableSchema(
    "keyed",
    (TableColumn("price", decimal_type(2)), TableColumn("id", BIGINT), TableColumn("word", TEXT)),
    primary_key=(1,),
    indexes=((2,), (0, 2)),
)
ADDED = [TableColumn("c", BIGINT, default=5, has_default=True), TableColumn("d", TIME)]


class Twins(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.disk, self.memory = RocksStore(self.directory.name), MemoryStore()
        for store in (self.disk, self.memory):
            store.create_table(BAG)
            store.create_table(KEYED)

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.close()
            self.directory.cleanup()

    @rule(data=st.data(), kept=st.sampled_from([True, True, False]))
    def step(self, data: st.DataObject, kept: bool) -> None:
        log = []
        for name, deltas in (("bag", self.bag_deltas(data)), ("keyed", self.keyed_deltas(data))):
            for store in (self.disk, self.memory):
                store.table(name).stage(deltas)
            log.append((name, self.memory.position(name) + data.draw(st.integers(1, 3)), deltas))
        firsts = {store.table("keyed").next_auto_increment(2) for store in (self.disk, self.memory)}
        assert len(firsts) == 1
        for store in (self.disk, self.memory):
            if kept:
                store.commit(log)
            else:
                store.rollback()

    def bag_deltas(self, data: st.DataObject) -> list[Delta]:
        width = len(self.memory.table("bag").schema.columns)
        deltas = []
        for row, weight in self.memory.table("bag").find((), ()):
            if data.draw(st.booleans()):
                deltas.append((row, -data.draw(st.integers(1, weight))))
        extra = st.tuples(st.sampled_from([5, None]), st.sampled_from([None, -timedelta(hours=1)]))
        rows = st.tuples(st.none() | st.integers(0, 2), WORDS, extra)
        for a, b, more in data.draw(st.lists(rows, max_size=4, unique=True)):
            row: Row = (a, b, *more)[:width]
            if row not in [known for known, _ in deltas]:
                deltas.append((row, data.draw(st.integers(1, 3))))
        return deltas

    def keyed_deltas(self, data: st.DataObject) -> list[Delta]:
        deltas = []
        for id_, word, price in data.draw(
            st.lists(st.tuples(st.integers(-2, 3), WORDS, PRICES), unique_by=lambda x: x[0])
        ):
            old = self.memory.table("keyed").find((1,), (id_,))
            if data.draw(st.booleans()):
                deltas.append(((price, id_, word), 1))
            elif not old:
                continue
            deltas += [(row, -1) for row, _ in old]
        return deltas

    @rule(columns=st.sampled_from([(1,), (1, 0)]), data=st.data())
    def index(self, columns: tuple[int, ...], data: st.DataObject) -> None:
        for name in ("bag", "keyed"):
            for store in (self.disk, self.memory):
                table = store.table(name)
                if data.draw(st.booleans()) and columns != table.schema.primary_key:
                    table.drop_index(columns)
                    continue
                table.add_index(columns)
                cursor = None if table.has_index(columns) else table.build_index(columns, None, 2)
                while cursor is not None and data.draw(st.booleans()):
                    cursor = table.build_index(columns, cursor, data.draw(st.integers(1, 3)))

    @rule()
    def widen(self) -> None:
        schema = self.memory.table("bag").schema
        if len(schema.columns) < 4:
            added = ADDED[len(schema.columns) - 2]
            wider = TableSchema("bag", (*schema.columns, added), schema.primary_key, schema.unique, schema.indexes)
            for store in (self.disk, self.memory):
                store.alter_table(wider)

    @rule()
    def restart(self) -> None:
        self.disk.close()
        self.disk = RocksStore(self.directory.name, create=False)

    @invariant()
    def both_answer_alike(self) -> None:
        if not hasattr(self, "disk"):
            return
        assert self.disk.tables() == self.memory.tables()
        for name in ("bag", "keyed"):
            ours, theirs = self.disk.table(name), self.memory.table(name)
            rows = alike(ours.find((), ()), theirs.find((), ()))
            assert ours.row_count == theirs.row_count
            assert self.disk.position(name) == self.memory.position(name)
            assert self.disk.log(name, 0, 1000) == self.memory.log(name, 0, 1000)
            for columns in ((0,), (1,), (0, 1), (1, 0), (2,), (0, 2)):
                if max(columns) < len(theirs.schema.columns):
                    keys = sorted({tuple(row[at] for at in columns) for row, _ in rows}, key=repr)
                    for mine, other in zip(ours.find_many(columns, keys), theirs.find_many(columns, keys), strict=True):
                        alike(mine, other)
                    for key in keys[:2]:
                        alike(ours.find(columns, key), theirs.find(columns, key))
            walked_alike(ours, theirs, [row for row, _ in rows])
            seen: list[Delta] = []
            part, cursor = ours.scan(None, 2)
            while cursor is not None:
                seen += part
                assert [ours.before(row, cursor) for row, _ in seen] == [True] * len(seen)
                part, cursor = ours.scan(cursor, 2)
            alike(seen + part, rows)
            ours.scan(None, 1)  # What it has read ahead is there when the next step is taken.


def walked_alike(ours: Any, theirs: Any, rows: list[Row]) -> None:
    """Both ways, the whole and from one row to another, in slices that cut equal rows in two."""
    declared = orders_of(theirs.schema, declared_indexes(theirs.schema))
    assert set(declared) <= set(ours.orders)
    assert set(declared) <= set(theirs.orders)
    for order in sorted(set(ours.orders) & set(theirs.orders)):
        encode = row_encoder(order, [theirs.schema.columns[at].type for at in order])
        edges = sorted(encode(row) for row in rows)[:: max(1, len(rows) // 2)]
        for interval in [(b"", None), *((edge, None) for edge in edges), *((b"", edge) for edge in edges)]:
            start, end = interval
            inside = [n for row, w in theirs.find((), ()) for n in [encode(row)] * w]
            wanted = sorted(key for key in inside if start <= key and (end is None or key < end))
            for down in (False, True):
                both = [list(table.walk(order, interval, 1, 3, descending=down)) for table in (ours, theirs)]
                keys = [[encode(row) for part in parts for row, w in part for _ in range(w)] for parts in both]
                assert keys == [wanted[::-1] if down else wanted] * 2
                alike(*(consolidate(chain.from_iterable(parts)) for parts in both))


def alike(left: list[Delta], right: list[Delta]) -> list[Delta]:
    def as_sorted(deltas: list[Delta]) -> list[Any]:
        return sorted(
            deltas,
            key=lambda delta: [
                (value is not None, value or 0, "") if not isinstance(value, str) else (True, 0, value)
                for value in delta[0]
            ],
        )

    assert as_sorted(left) == as_sorted(right)
    return right


Twins.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=12,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestTwins = Twins.TestCase
