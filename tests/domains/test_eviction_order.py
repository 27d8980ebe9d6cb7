"""Which keys go first under memory pressure. What is left must be right whichever go; that is tested elsewhere."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate

from domains.operators.edges import PROTECTED, ReaderIndex, ReaderOperator
from domains.operators.state import Index
from domains.plan.packets import Touch
from tests.domains.graphs import Flow, count

Values = Sequence[int]


def counted(*views: str) -> Flow:
    """Readers of one count a group, over a hundred groups of a row each."""
    flow = Flow(check=False)
    root = flow.group(flow.table("rows", "g", "x"), (0,), count())
    for view in views:
        flow.reader(view, root, 0)
    flow.start()
    flow.insert("rows", *((group, 0) for group in range(100)))
    return flow


def fill(flow: Flow, view: str, values: Values) -> None:
    for value in values:
        flow.ask(view, value)


def touch(flow: Flow, view: str, *values: int) -> None:
    node = flow.reader_node(view)
    flow.simulation.send(node.domain, Touch(node.index, tuple((value,) for value in values)))


def filled(flow: Flow, view: str) -> list[int]:
    return [value for value in range(100) if flow.has(view, value)]


def index_of(flow: Flow, view: str) -> ReaderIndex:
    reader = flow.simulation.domains[0].vertices[flow.reader_node(view).index]
    assert isinstance(reader.operator, ReaderOperator)
    return reader.operator.filled


def above(flow: Flow, view: str) -> Index:
    """The counts that the view is read from."""
    reader = flow.simulation.domains[0].vertices[flow.reader_node(view).index]
    (index,) = reader.parents[0].indexes.values()
    return index


def press(flow: Flow, count: int) -> None:
    """Evict about so many keys (with what they pin), a few at a time as pressure does."""
    share = flow.accounted() // len(index_of(flow, flow.ready[0]))
    for _ in range(count):
        flow.evict_memory(0, share)


def test_what_was_read_again_outlives_what_is_newer() -> None:
    """By last use alone 0 to 4 would all go, before the ten that were asked for once."""
    flow = counted("v")
    fill(flow, "v", range(10))
    touch(flow, "v", *range(5))
    fill(flow, "v", range(10, 20))
    press(flow, 10)
    assert filled(flow, "v") == [*range(5), *range(15, 20)]


def test_what_was_read_once_goes_in_the_order_of_its_fill() -> None:
    flow = counted("v")
    fill(flow, "v", range(20))
    press(flow, 5)
    assert filled(flow, "v") == list(range(5, 20))


def test_a_key_that_was_popular_once_is_forgotten() -> None:
    """0 to 9 are protected and never read again; what is read instead takes their place."""
    flow = counted("v")
    fill(flow, "v", range(20))
    touch(flow, "v", *range(10))
    touch(flow, "v", *range(10, 20))
    assert len(index_of(flow, "v").protected) <= 20 * PROTECTED // 100
    press(flow, 4)
    assert filled(flow, "v") == list(range(4, 20))


def test_the_state_above_goes_with_the_keys_of_its_only_reader() -> None:
    """Else it would go in an order of its own, and take the reader's protected keys with it."""
    flow = counted("v")
    fill(flow, "v", range(30))
    touch(flow, "v", *range(0, 30, 3))
    press(flow, 15)
    assert sorted(above(flow, "v").keys()) == [(value,) for value in filled(flow, "v")]
    assert set(range(0, 30, 3)) <= set(filled(flow, "v"))


def test_state_that_nobody_below_asks_for_goes_first() -> None:
    flow = counted("v")
    fill(flow, "v", range(30))
    flow.evict("v", 7)
    touch(flow, "v", *range(7), *range(8, 30))
    assert (7,) in above(flow, "v")
    flow.evict_memory(0, 1)
    assert (7,) not in above(flow, "v")
    assert filled(flow, "v") == [*range(7), *range(8, 30)]


def test_state_that_two_readers_share_goes_by_its_own_last_use() -> None:
    """One reader has read each key once; the other's favourites among them must not go for it."""
    flow = counted("one", "other")
    fill(flow, "one", range(20))
    fill(flow, "other", range(20))
    touch(flow, "other", *range(5))
    press(flow, 4)
    assert len(filled(flow, "other")) < 20
    assert set(range(5)) <= set(filled(flow, "other"))


def test_at_least_the_excess_is_freed_and_one_key_more_at_most() -> None:
    flow = counted("v")
    fill(flow, "v", range(100))
    touch(flow, "v", *range(0, 100, 2))
    entry = flow.accounted() // 100
    for excess in (1, entry, entry + 1, 17 * entry):
        before = flow.accounted()
        flow.evict_memory(0, excess)
        assert excess <= before - flow.accounted() <= excess + 2 * entry


def test_writes_to_protected_keys_are_accounted_and_given_back() -> None:
    flow = counted("v")
    fill(flow, "v", range(10))
    touch(flow, "v", 1, 2, 3)
    flow.insert("rows", *((group, 1) for group in range(10)))
    flow.settle()
    flow.compare()
    index = index_of(flow, "v")
    assert index.bytes == sum(index.once.values()) + sum(index.protected.values())
    flow.evict_memory(0)
    assert flow.accounted() == 0
    assert not filled(flow, "v")


def test_more_hits_than_by_last_use() -> None:
    """Zipf reads of a hundred keys with room for thirty: the same draw against a plain LRU."""
    flow = counted("v")
    rng = random.Random(11)
    weights = list(accumulate(rank**-1.15 for rank in range(1, 101)))
    ours = plain = 0
    recent: dict[int, None] = {}
    for _ in range(4000):
        value = bisect(weights, rng.random() * weights[-1])
        if flow.has("v", value):
            ours += 1
            touch(flow, "v", value)
        else:
            flow.ask("v", value)
            while len(index_of(flow, "v")) > 30:
                flow.evict_memory(0, 1)
        plain += value in recent
        recent.pop(value, None)
        recent[value] = None
        if len(recent) > 30:
            del recent[next(iter(recent))]
    assert ours > plain + 80, f"seed 11: {ours} hits against {plain}"


def test_an_answer_that_is_most_of_the_memory_stays_when_it_is_asked_for_again() -> None:
    """It is in the largest index, so it is the victim of the batch that fills it; what nobody asks for is not to stay
    in its place for ever."""
    flow = Flow(check=False)
    big, small = flow.table("big", "g", "x"), flow.table("small", "g", "x")
    flow.reader("big", big, 0)
    flow.reader("small", small, 0)
    flow.start()
    flow.insert("big", *((0, at) for at in range(200)))
    flow.insert("small", *((group, 0) for group in range(100)))
    fill(flow, "small", range(100))
    fill(flow, "big", [0])
    limit = flow.accounted() - 1000
    for _ in range(2):
        fill(flow, "big", [0])
        if (excess := flow.accounted() - limit) > 0:
            flow.evict_memory(0, excess)
    assert filled(flow, "big") == [0]
    assert len(filled(flow, "small")) > 50


def test_what_is_evicted_and_not_asked_for_again_makes_way_for_good() -> None:
    flow = counted("one", "other")
    fill(flow, "one", [0])
    fill(flow, "other", range(1, 20))
    for _ in range(30):
        flow.evict_memory(0, 1)
    assert not filled(flow, "other")
    assert not filled(flow, "one")
