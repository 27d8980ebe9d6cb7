"""The maps as one request sees them, and the versions by which kept answers are known to stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from domains.errors import Unavailable
from domains.language.types import BIGINT, TEXT, Column
from domains.plan.graph import NodeIndex, Reader
from domains.plan.packets import Publish
from worker.reader_map import MapReading, ReaderLayout, ReaderMap, in_one_state

COLUMNS = (Column("id", BIGINT), Column("name", TEXT))
NODE = NodeIndex(1)
ONE, OTHER = (ReaderLayout(number, Reader("v", (0,), (), (), 2), COLUMNS) for number in (1, 2))


@pytest.fixture
def reader_map(tmp_path: Path) -> Iterator[ReaderMap]:
    made = ReaderMap(tmp_path / "readers", initial_size=2**20)
    yield made
    made.close()


def filled(key: int, name: str) -> Publish:
    return Publish(NODE, filled=[((key,), [((key, name), 1)])])


def version(reader_map: ReaderMap, layout: ReaderLayout) -> bytes | None:
    with reader_map.client().snapshot() as snapshot:
        return snapshot.version(layout.version_key)


def test_a_version_changes_with_every_publish_to_its_reader_and_no_other(reader_map: ReaderMap) -> None:
    assert version(reader_map, ONE) is None
    seen = set()
    for change in (
        filled(1, "a"),
        Publish(NODE, deltas=[((1,), ((1, "a"), -1)), ((1,), ((1, "b"), 1))]),
        Publish(NODE, evicted=[(1,)]),
    ):
        other = version(reader_map, OTHER)
        reader_map.publish([(ONE, change)])
        seen.add(version(reader_map, ONE))
        assert version(reader_map, OTHER) == other
    assert len(seen) == 3
    assert None not in seen


def test_a_reader_of_the_number_of_one_that_was_dropped_has_no_version_of_that(reader_map: ReaderMap) -> None:
    reader_map.publish([(ONE, filled(1, "a"))])
    before = version(reader_map, ONE)
    reader_map.drop(ONE)
    assert version(reader_map, ONE) is None
    reader_map.publish([(ONE, filled(1, "b"))])
    assert version(reader_map, ONE) not in (None, before)


def test_a_full_reader_that_is_revealed_has_another_version(reader_map: ReaderMap) -> None:
    full = ReaderLayout(3, Reader("v", (), (), (), 2), COLUMNS)
    full.concealed = True
    reader_map.publish([(full, Publish(NODE, filled=[((), [((1, "a"), 1)])]))])
    before = version(reader_map, full)
    reader_map.reveal(full)
    assert version(reader_map, full) not in (None, before)


def test_all_look_ups_of_a_request_see_one_state(reader_map: ReaderMap) -> None:
    client = reader_map.client()
    reader_map.publish([(ONE, filled(1, "a")), (OTHER, filled(1, "a"))])

    def read(reading: MapReading) -> list[bytes | None]:
        first = reading[client].page(ONE, (1,))
        reader_map.publish([(ONE, filled(1, "b")), (OTHER, filled(1, "b"))])
        return [first, reading[client].page(OTHER, (1,))]

    assert in_one_state(read) == [b'{"id":1,"name":"a"}'] * 2


def test_a_request_begins_again_where_the_map_grows_under_it(reader_map: ReaderMap) -> None:
    client = reader_map.client()
    reader_map.publish([(ONE, filled(1, "a"))])
    attempts = []

    def read(reading: MapReading) -> bytes | None:
        attempts.append(reading)
        reading[client].page(ONE, (1,))
        if len(attempts) == 1:
            reader_map.publish([(ONE, filled(key, "x" * 400)) for key in range(2, 6000)])  # more than a MiB
        return reading[client].page(ONE, (1,))

    assert in_one_state(read) == b'{"id":1,"name":"a"}'
    assert len(attempts) == 2


def test_a_closed_map_is_said_to_be_so(reader_map: ReaderMap, tmp_path: Path) -> None:
    other = ReaderMap(tmp_path / "other")
    client = other.client()
    other.close()
    with pytest.raises(Unavailable):
        in_one_state(lambda reading: reading[client].page(ONE, (1,)))
