"""Old cycles go with the next collection, unless a walk over all that is there would be a pause."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from worker.service import cycles
from worker.service.cycles import CycleCollector


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.other = self


class Clock:
    def __init__(self) -> None:
        self.at = 0.0
        self.step = 0.0

    def __call__(self) -> float:
        self.at += self.step
        return self.at


@pytest.fixture
def collecting() -> Iterator[None]:
    before = gc.get_threshold()
    gc.disable()
    gc.unfreeze()  # What an earlier test of this process has set apart.
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.usefixtures("collecting")
def test_an_old_cycle_goes() -> None:
    clock = Clock()
    collector = CycleCollector(lambda: True, clock, clock)
    node = Node()
    kept = weakref.ref(node)
    gc.collect()
    del node
    collector.collect()
    assert kept() is None
    assert collector.found > 0
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("collecting")
def test_after_a_pause_only_what_is_new_is_walked_over_until_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cycles, "GROWN_OBJECTS", 10**9)  # Whatever other tests have left in this process.
    clock = Clock()
    idle = False
    collector = CycleCollector(lambda: idle, clock, clock)
    node = Node()
    kept = weakref.ref(node)
    clock.step = 2 * cycles.PAUSE_SECONDS
    collector.collect()
    assert gc.get_freeze_count() > 0
    del node
    collector.collect()
    assert kept() is not None
    young = Node()
    gone = weakref.ref(young)
    del young
    collector.collect()
    assert gone() is None
    clock.at += cycles.WHOLE_SECONDS
    collector.collect()
    assert kept() is not None
    idle = True
    collector.collect()
    assert kept() is None
    assert collector.status()["longest_whole_pause"] == pytest.approx(2 * cycles.PAUSE_SECONDS)


@pytest.mark.usefixtures("collecting")
def test_what_was_set_apart_is_walked_over_once_it_has_grown_though_more_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cycles, "GROWN_OBJECTS", 1_000)
    clock = Clock()
    gc.freeze()
    collector = CycleCollector(lambda: False, clock, clock)
    clock.step = 2 * cycles.PAUSE_SECONDS
    nodes = [Node() for _ in range(gc.get_freeze_count())]
    kept = weakref.ref(nodes[0])
    collector.collect()
    nodes.clear()
    collector.collect()
    assert kept() is not None
    clock.at += cycles.GROWN_SECONDS
    collector.collect()
    assert kept() is None
