"""MemoryStore against the equations of a bag, under random steps; its promises as a Store are in
tests/worker/test_rocks_contract.py, which runs on both twins."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from domains.language.types import BIGINT, TEXT, Row, TableColumn, TableSchema
from domains.store.memory_store import MemoryStore

BAG = TableSchema("bag", (TableColumn("a", BIGINT), TableColumn("b", TEXT)), indexes=((0,), (1,)))
ROWS = st.tuples(st.none() | st.integers(0, 3), st.sampled_from(["x", "y", None]))


@given(st.lists(st.tuples(st.booleans(), st.dictionaries(ROWS, st.integers(-2, 3), max_size=4)), max_size=12))
def test_the_store_is_the_sum_of_its_committed_steps(steps: list[tuple[bool, dict[Row, int]]]) -> None:
    store = MemoryStore()
    table = store.create_table(BAG)
    model: Counter[Row] = Counter()
    for kept, wanted in steps:
        step = [(row, weight) for row, weight in wanted.items() if weight and model[row] + weight >= 0]
        table.stage(step)
        if not kept:
            store.rollback()
            continue
        store.commit([("bag", store.position("bag") + 1, step)])
        for row, weight in step:
            model[row] += weight
        live = {row: weight for row, weight in model.items() if weight}
        assert dict(table.find((), ())) == live
        assert table.row_count == sum(live.values())
        for value in range(4):
            assert dict(table.find((0,), (value,))) == {row: n for row, n in live.items() if row[0] == value}
        assert sorted(table.scan(None, 100)[0], key=repr) == sorted(live.items(), key=repr)
    folded: Counter[Row] = Counter()
    for _, deltas in store.log("bag", 0, 100):
        for row, weight in deltas:
            folded[row] += weight
    assert {row: n for row, n in folded.items() if n} == dict(table.find((), ()))
