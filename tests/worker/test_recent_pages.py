"""Look-ups of many INTEGER keys: the pages of the map's present state, whatever was read before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from domains.language.types import BIGINT, TEXT, Column
from domains.plan.graph import NodeIndex, OrderTerm, Reader
from domains.plan.packets import Publish
from worker.reader_map import ReaderLayout, ReaderMap, seek_cache

COLUMNS = (Column("id", BIGINT), Column("name", TEXT))
NODE = NodeIndex(1)


def layout(*order: OrderTerm) -> ReaderLayout:
    return ReaderLayout(1, Reader("v", (0,), (), order, 2), COLUMNS)


@pytest.fixture
def reader_map(tmp_path: Path) -> Iterator[ReaderMap]:
    made = ReaderMap(tmp_path / "readers")
    yield made
    made.close()


@pytest.mark.parametrize("order", [(), (OrderTerm(1),)])
def test_a_publish_is_seen_by_the_next_look_up(reader_map: ReaderMap, order: tuple[OrderTerm, ...]) -> None:
    made = layout(*order)
    client = reader_map.client()
    assert client.integer_pages(made, [1, 2]) == [None, None]
    reader_map.publish([(made, Publish(NODE, filled=[((1,), [((1, "a"), 1)]), ((2,), [])]))])
    assert client.integer_pages(made, [2, 1, 1]) == [b"", b'{"id":1,"name":"a"}', b'{"id":1,"name":"a"}']
    reader_map.publish([(made, Publish(NODE, deltas=[((1,), ((1, "a"), -1)), ((1,), ((1, "b"), 1))]))])
    assert client.integer_pages(made, [1]) == [b'{"id":1,"name":"b"}']
    reader_map.publish([(made, Publish(NODE, deltas=[((1,), ((1, "c"), 1))]))])
    (page,) = client.integer_pages(made, [1]) or []
    assert sorted((page or b"").replace(b"},{", b"}\n{").split()) == [b'{"id":1,"name":"b"}', b'{"id":1,"name":"c"}']
    reader_map.publish([(made, Publish(NODE, evicted=[(1,)]))])
    assert client.integer_pages(made, [1, 2]) == [None, b""]


def test_the_same_as_by_key(reader_map: ReaderMap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seek_cache, "RECENT_BYTES", 300)
    made = layout()
    keys = [-(2**63), -1, 0, 1, 2**63 - 1]
    reader_map.publish([(made, Publish(NODE, filled=[((key,), [((key, "x"), 1)]) for key in keys[1:]]))])
    client = reader_map.client()
    for asked in (keys, keys[::-1], keys[:2] * 3, []):
        assert client.integer_pages(made, asked) == client.pages(made, [(key,) for key in asked])
    assert client.integer_pages(made, [2**63]) is None


def test_publishes_of_one_batch_are_merged_in_order(reader_map: ReaderMap) -> None:
    made = layout()
    steps = [
        Publish(NODE, filled=[((1,), [((1, "a"), 1)])]),
        Publish(NODE, deltas=[((1,), ((1, "a"), -1)), ((1,), ((1, "b"), 1))]),
        Publish(NODE, deltas=[((1,), ((1, "b"), -1)), ((1,), ((1, "c"), 1))]),
        Publish(NODE, evicted=[(2,)], filled=[((2,), [((2, "z"), 1)])]),
        Publish(NODE, deltas=[((2,), ((2, "z"), -1))]),
    ]
    before = [list(step.deltas) for step in steps]
    reader_map.publish([(made, step) for step in steps])
    assert reader_map.client().integer_pages(made, [1, 2]) == [b'{"id":1,"name":"c"}', b""]
    assert [step.deltas for step in steps] == before, "the steps' own publishes are left as they are"
