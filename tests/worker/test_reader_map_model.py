"""The reader map against a dict of bags, under random steps.

Rows that ORDER BY leaves equal may come in any order, but always in the same one: an answer without a limit is judged
as a bag that is sorted, one with a limit as a part of the answer without.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from domains.language.types import BIGINT, DOUBLE, TEXT, Column, Row, Value
from domains.plan.graph import NodeIndex, OrderTerm, Reader
from domains.plan.packets import Publish
from worker.reader_map import ReaderLayout, ReaderMap
from worker.reader_map.application import ENTRY_OVERHEAD
from worker.reader_map.layout import Bound

LONG = "x" * 600
WORDS = ["", "a", "a\x00", "b", "ü", LONG, LONG + "a", LONG + "b"]
COLUMNS = (
    Column("id", BIGINT),
    Column("word", TEXT),
    Column("number", DOUBLE),
    Column("rank", BIGINT),
    Column("key", BIGINT),
    Column("name", TEXT),
)
SHOWN = 3

IDS = st.sampled_from([None, -1, 0, 1, 2**63])
TEXTS = st.none() | st.sampled_from(WORDS)
KEYS = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from(["k", LONG, None]))
CONTENTS = st.tuples(IDS, TEXTS, st.sampled_from([None, -1.5, 0.0, 2.5]), st.sampled_from([None, -1, 0, 1]))


def reader(
    key: tuple[int, ...],
    seek: tuple[int, ...] = (),
    order: tuple[tuple[int, bool], ...] = (),
    limit: int | None = None,
    offset: int = 0,
    empty: Row | None = None,
) -> Reader:
    terms = tuple(OrderTerm(column, down) for column, down in order)
    return Reader("view", key, seek, terms, SHOWN, limit=limit, offset=offset, empty=empty)


READERS = [
    reader((4,)),
    reader((4, 5), empty=(0, None, None)),
    reader((), order=((3, True),)),
    reader((5,), order=((1, False), (2, True))),
    reader((4,), order=((1, True),), limit=2, offset=1),
    reader((4,), seek=(3,), order=((3, False), (0, True))),
    reader((4,), seek=(1, 2), order=((3, True),)),
    reader((5,), seek=(1,), empty=(0, None, None)),
    reader((4,), seek=(3,)),
    reader((4,), seek=(1, 3)),
]
LAYOUTS = {NodeIndex(at): ReaderLayout(at * 7, found, COLUMNS) for at, found in enumerate(READERS)}

Bag = Counter[Row]


def sort_key(found: Reader, row: Row) -> list[tuple[int, Any]]:
    """Sorts as ORDER BY does; descending values are compared the other way round."""
    return [
        ((1 if row[term.column] is not None else 0) * (-1 if term.descending else 1), Turned(row[term.column], term))
        for term in found.order
    ]


class Turned:
    def __init__(self, value: Value, term: OrderTerm) -> None:
        self.value: Any = value
        self.down = term.descending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Turned) and self.value == other.value

    def __lt__(self, other: Turned) -> bool:
        return bool(other.value < self.value if self.down else self.value < other.value)


def within(value: Any, low: Bound | None, high: Bound | None) -> bool:
    for bound, sign in ((low, 1), (high, -1)):
        if bound is not None:
            edge: Any = bound[0]
            if value is None or edge is None or (value != edge and (value > edge) != (sign > 0)):
                return False
            if value == edge and not bound[1]:
                return False
    return True


def shown(row: Row) -> tuple[Value, ...]:
    return row[:SHOWN]


def read(answer: bytes | None) -> list[tuple[Value, ...]] | None:
    return None if answer is None else [tuple(row.values()) for row in json.loads(b"[" + answer + b"]")]


def matches(found: Reader, row: Row, seek: Row, low: Bound | None, high: Bound | None) -> bool:
    equal = all(row[at] == value for at, value in zip(found.seek, seek, strict=False))
    return equal and (not found.seek or within(row[found.seek[-1]], low, high))


def judge(found: Reader, bags: Sequence[Bag], answer: list[tuple[Value, ...]] | None) -> None:
    """Whether the answer is these rows in the reader's order (ties in any)."""
    rows = [row for bag in bags for row in bag.elements()]
    if not rows and found.empty is not None:
        assert answer == [found.empty]
        return
    assert answer is not None
    rows.sort(key=lambda row: sort_key(found, row))
    at = 0
    for _, tied in groupby(rows, key=lambda row: sort_key(found, row)):
        expected = [shown(row) for row in tied]
        assert Counter(answer[at : at + len(expected)]) == Counter(expected)
        at += len(expected)
    assert at == len(answer)


class ReaderMapMachine(RuleBasedStateMachine):
    @initialize(data=st.data())
    def open(self, data: st.DataObject) -> None:
        self.directory = tempfile.TemporaryDirectory()
        # Small enough that it has to grow in the middle of steps.
        self.map = ReaderMap(self.directory.name, initial_size=data.draw(st.sampled_from([2**15, 2**24])))
        self.client = self.map.client()
        self.model: dict[tuple[NodeIndex, Row], Bag] = {}
        self.stood: dict[tuple[bytes, bytes | None], bytes | None] = {}

    def teardown(self) -> None:
        if hasattr(self, "map"):
            self.map.close()
            self.directory.cleanup()

    def key_of(self, node: NodeIndex, key: Row) -> Row:
        return tuple(key[column - 4] for column in READERS[node].key)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        publishes = []
        for node in data.draw(st.lists(st.sampled_from(list(LAYOUTS)), min_size=1, max_size=4, unique=True)):
            publish = Publish(node)
            for key in data.draw(st.lists(KEYS, max_size=2)):
                publish.evicted.append(self.key_of(node, key))
                self.model.pop((node, publish.evicted[-1]), None)
            for wanted in data.draw(st.lists(KEYS, max_size=3)):
                key = self.key_of(node, wanted)
                if (node, key) not in self.model:
                    rows = data.draw(st.dictionaries(CONTENTS, st.integers(1, 3), max_size=4))
                    bag = Counter({(*content, *wanted): weight for content, weight in rows.items()})
                    self.model[node, key] = bag
                    publish.filled.append((key, list(bag.items())))
            # A key may be changed twice, what came first go again: deltas need not be consolidated.
            for wanted in data.draw(st.lists(KEYS, max_size=4)):
                publish.deltas += self.change(data, node, wanted)
            publishes.append(publish)
        before = {node: self.map.bytes_of(layout.reader_id) for node, layout in LAYOUTS.items()}
        net = self.map.publish([(LAYOUTS[publish.reader], publish) for publish in publishes])
        for node, layout in LAYOUTS.items():
            assert self.map.bytes_of(layout.reader_id) - before[node] == net.get(layout.reader_id, 0)

    def change(self, data: st.DataObject, node: NodeIndex, wanted: Row) -> list[tuple[Row, tuple[Row, int]]]:
        key = self.key_of(node, wanted)
        bag = self.model.get((node, key))
        come = data.draw(st.dictionaries(CONTENTS, st.integers(1, 2), max_size=2))
        changes: Bag = Counter({(*content, *wanted): weight for content, weight in come.items()})
        for row, weight in list((bag or {}).items()):
            if data.draw(st.booleans()):
                changes[row] -= data.draw(st.integers(1, weight))
        deltas = [(row, weight) for row, weight in changes.items() if weight]
        if bag is not None:
            for row, weight in deltas:
                bag[row] += weight
                if not bag[row]:
                    del bag[row]
        return [(key, delta) for delta in deltas]

    @invariant()
    def whole_keys_are_answered(self) -> None:
        if not hasattr(self, "map"):
            return
        with self.client.snapshot() as snapshot:
            for node, layout in LAYOUTS.items():
                found = READERS[node]
                keys = sorted({self.key_of(node, (a, b)) for a in (None, 1, 2) for b in ("k", LONG, None)}, key=repr)
                answers = snapshot.pages(layout, keys)
                assert answers == [self.client.page(layout, key) for key in keys]
                assert snapshot.holes(layout, keys) == [key for key in keys if (node, key) not in self.model]
                for key, answer in zip(keys, answers, strict=True):
                    bag = self.model.get((node, key))
                    if bag is None:
                        assert answer is None
                    elif found.limit is None:
                        judge(found, [bag], read(answer))
                    else:
                        whole = read(snapshot.page(layout, key, limit=1000))
                        assert read(answer) == (whole or [])[: found.limit]

    @invariant()
    def a_page_stands_as_long_as_its_state(self) -> None:
        if not hasattr(self, "map"):
            return
        with self.client.snapshot() as snapshot:
            for node, layout in LAYOUTS.items():
                keys = sorted({self.key_of(node, (a, b)) for a in (None, 1, 2) for b in ("k", LONG)}, key=repr)
                markers = layout.markers(keys)
                for key, marker, state in zip(keys, markers, snapshot.states(markers), strict=True):
                    page = snapshot.page(layout, key, limit=1000)
                    assert self.stood.setdefault((marker, state), page) == page

    @invariant()
    def bytes_are_those_of_the_entries(self) -> None:
        if not hasattr(self, "map"):
            return
        held: Counter[bytes] = Counter()
        with self.map._environment.begin() as transaction:
            for key, value in transaction.cursor():
                held[key[:4]] += len(key) + len(value) + ENTRY_OVERHEAD
        assert {layout.prefix: self.map.bytes_of(layout.reader_id) for layout in LAYOUTS.values()} == {
            layout.prefix: held[layout.prefix] for layout in LAYOUTS.values()
        }

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(list(LAYOUTS)))
        layout, found = LAYOUTS[node], READERS[node]
        keys = [self.key_of(node, key) for key in data.draw(st.lists(KEYS, min_size=1, max_size=3))]
        kinds = [{0: IDS, 1: TEXTS, 2: st.just(2.5), 3: st.sampled_from([None, -1, 0, 1])}[at] for at in found.seek]
        ranged = bool(kinds) and data.draw(st.booleans())
        sought = st.tuples(*(kinds[:-1] if ranged else kinds))
        seeks = data.draw(st.lists(sought, min_size=1, max_size=4))
        bound = st.none() | st.tuples(kinds[-1] if kinds else st.none(), st.booleans())
        low, high = (data.draw(bound), data.draw(bound)) if ranged else (None, None)
        limit, offset = data.draw(st.none() | st.integers(0, 4)), data.draw(st.integers(0, 3))
        bags = [self.model.get((node, key)) for key in dict.fromkeys(keys)]
        many = self.client.rows(layout, keys, seeks, low, high, limit=1000)
        one = self.client.page(layout, keys[0], seeks[0], low, high, limit=1000)
        assert (many is None) == (None in bags)
        for _ in range(2):  # the second time with what was remembered of the first
            with self.client.snapshot() as snapshot:
                assert snapshot.rows(layout, keys, seeks, low, high) == self.client.rows(layout, keys, seeks, low, high)
                plain = self.client.page(layout, keys[0], seeks[0], low, high)
                assert snapshot.page(layout, keys[0], seeks[0], low, high) == plain
        if found.limit is None and not found.offset:
            assert self.client.rows(layout, keys, seeks, low, high) == many, "the way without a limit is another one"
        for answer, taken, asked in ((one, bags[:1], seeks[:1]), (many, bags, seeks)):
            if answer is None:
                continue
            parts = [
                Counter({row: n for row, n in bag.items() if any(matches(found, row, s, low, high) for s in asked)})
                for bag in taken
                if bag is not None
            ]
            # The reader's own offset holds as well; what it cuts off is judged by the readers that have none.
            if not found.offset:
                judge(found, parts, read(answer))
        if limit is not None and not found.offset:
            cut = slice(offset, offset + limit)
            for short, whole in (
                (self.client.rows(layout, keys, seeks, low, high, limit, offset), many),
                (self.client.page(layout, keys[0], seeks[0], low, high, limit, offset), one),
            ):
                assert read(short) == (None if whole is None else (read(whole) or [])[cut])


ReaderMapMachine.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=12,
    deadline=None,
    # Shrinking whole histories takes minutes and helps little: the failing one is printed.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestReaderMapModel = ReaderMapMachine.TestCase


RANGED = [
    reader((4,), seek=(3,), order=((3, False), (0, True))),
    reader((4,), seek=(3,), order=((3, True),)),
    reader((4,), seek=(3,), order=((1, False),)),
    reader((4,), seek=(2, 1)),
    reader((4,), seek=(0, 3), order=((3, False), (1, True))),
    reader((), seek=(1,), order=((1, True),), empty=(0, None, None)),
]
SEEKS: dict[int, st.SearchStrategy[Value]] = {
    0: IDS,
    1: TEXTS,
    2: st.sampled_from([None, 0.0, 2.5]),
    3: st.sampled_from([None, -1, 0, 1]),
}


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
@given(data=st.data(), contents=st.lists(CONTENTS, max_size=12))
def test_ranges_take_what_sql_takes(data: st.DataObject, contents: list[Row]) -> None:
    found = data.draw(st.sampled_from(RANGED))
    layout, key = ReaderLayout(9, found, COLUMNS), (1,) if found.key else ()
    bag = Counter((*content, 1, "k") for content in contents)
    bound = st.none() | st.tuples(SEEKS[found.seek[-1]], st.booleans())
    with tempfile.TemporaryDirectory() as directory:
        readers = ReaderMap(directory, initial_size=2**20)
        readers.publish([(layout, Publish(NodeIndex(9), filled=[(key, list(bag.items()))]))])
        with readers.client().snapshot() as snapshot:
            for _ in range(8):
                seek = data.draw(st.tuples(*(SEEKS[at] for at in found.seek[:-1])))
                low, high = data.draw(bound), data.draw(bound)
                part = Counter({row: n for row, n in bag.items() if matches(found, row, seek, low, high)})
                judge(found, [part], read(snapshot.page(layout, key, seek, low, high)))
                seeks = data.draw(st.lists(st.tuples(*(SEEKS[at] for at in found.seek[:-1])), min_size=1, max_size=5))
                part = Counter(
                    {row: n for row, n in bag.items() if any(matches(found, row, s, low, high) for s in seeks)}
                )
                judge(found, [part], read(snapshot.rows(layout, [key], seeks, low, high)))
        readers.close()
