"""Anomalies that are planted in a history without any: what the checker has to find, by its name.

A mutator takes committed transactions of the run between which there is already a dependency, and gives them
micro-operations on keys of their own, or changes how one has ended. The first reads what the second wrote, and so on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from tests.histories.events import Event

FIRST_KEY = 1_000_000_000
NEAR = 10
"""Among so many that completed in a row, some are found that have no key in common."""


class Planter:
    """A run's events, and its committed transactions."""

    def __init__(self, events: Sequence[Event], seed: int, *, lists: bool) -> None:
        self.events = deepcopy(list(events))
        self.draws = random.Random(seed)
        self.lists = lists
        self._key = FIRST_KEY
        self._invoked: dict[int, Event] = {}
        running: dict[Any, Event] = {}
        self.committed: list[Event] = []
        for event in self.events:
            if event["type"] == "invoke":
                running[event["process"]] = event
                continue
            self._invoked[id(event)] = running.pop(event["process"])
            if event["type"] == "ok":
                self.committed.append(event)

    def key(self) -> int:
        self._key += 1
        return self._key

    def invoked(self, one: Event) -> Event:
        return self._invoked[id(one)]

    def write(self, one: Event, key: int, value: int) -> None:
        self._add(one, ["append" if self.lists else "w", key, value])

    def read(self, one: Event, key: int, *values: int) -> None:
        """At the version that these writes, one after the other, lead to."""
        self._add(one, ["r", key, list(values) if self.lists else values[-1] if values else None])

    def _add(self, one: Event, operation: list[Any]) -> None:
        one["value"].append(operation)
        asked = [*operation[:2], None] if operation[0] == "r" else operation
        self.invoked(one)["value"].append(asked)

    def some(self, count: int) -> list[Event]:
        """Of the same time, and without a key in common: what they have to do with each other is what is planted."""
        while True:
            first = self.draws.randrange(len(self.committed) - NEAR)
            drawn = self.draws.sample(self.committed[first : first + NEAR], count)
            keys = [key for one in drawn for key in {operation[1] for operation in one["value"]}]
            if len(keys) == len(set(keys)):
                return drawn

    def reads_of_another(self) -> list[tuple[Event, Event, list[Any]]]:
        """Each writer, a reader that saw its write last, and that read, of transactions with one access to the key."""
        writers = {(key, value): one for one in self.committed for what, key, value in one["value"] if what != "r"}
        found = []
        for reader in self.committed:
            for read in reader["value"]:
                what, key, value = read
                last = (value[-1] if value else None) if what == "r" and self.lists else value
                writer = writers.get((key, last)) if what == "r" else None
                if writer is not None and writer is not reader and _once(reader, key) and _once(writer, key):
                    found.append((writer, reader, read))
        return found

    def a_read_of_another(self) -> tuple[Event, Event, list[Any]]:
        return self.draws.choice(self.reads_of_another())


def _once(one: Event, key: Any) -> bool:
    return sum(each[1] == key for each in one["value"]) == 1


def g0(run: Planter) -> None:
    """Two write two keys, in opposite orders, as a third sees."""
    one, other, reader = run.some(3)
    there, back = run.key(), run.key()
    run.write(one, there, 1), run.write(other, there, 2)
    run.write(other, back, 1), run.write(one, back, 2)
    run.read(reader, there, 1, 2), run.read(reader, back, 1, 2)


def g1a(run: Planter) -> None:
    """One that was read has aborted."""
    writer, _, _ = run.a_read_of_another()
    writer["type"] = "fail"


def g1b(run: Planter) -> None:
    """One writes once more to the key, and all see it but the one who read it."""
    writer, _, read = run.a_read_of_another()
    key, seen = read[1], read[2][-1] if run.lists else read[2]
    more = 10**6
    run.write(writer, key, more)
    for each in run.committed:
        for operation in each["value"]:
            what, of, value = operation
            if what != "r" or of != key or operation is read:
                continue
            if run.lists and value and seen in value:
                value.insert(value.index(seen) + 1, more)
            elif value == seen:
                operation[2] = more


def g1c(run: Planter) -> None:
    """One has read what the other wrote, and the other what the first did."""
    writer, reader, _ = run.a_read_of_another()
    key = run.key()
    run.write(reader, key, 1)
    run.read(writer, key, 1)


def g_single(run: Planter) -> None:
    """The third of a chain of reads does not see what the first has written."""
    first, second, _ = run.a_read_of_another()
    third = next(each for each in run.some(3) if each is not first and each is not second)
    link, missed = run.key(), run.key()
    run.write(second, link, 1), run.read(third, link, 1)
    run.write(first, missed, 1), run.read(third, missed)


def fractured_read(run: Planter) -> None:
    """One sees a part of what the other has written, and not the other part."""
    writer, reader, _ = run.a_read_of_another()
    key = run.key()
    run.write(writer, key, 1)
    run.read(reader, key)


def g2(run: Planter) -> None:
    """Two write what the other has found without a value."""
    one, other = run.some(2)
    there, back = run.key(), run.key()
    run.read(one, there), run.write(other, there, 1)
    run.read(other, back), run.write(one, back, 1)


def long_fork(run: Planter) -> None:
    """Two see the writes of two others, in opposite orders."""
    one, other, first, second = run.some(4)
    left, right = run.key(), run.key()
    run.write(one, left, 1), run.write(other, right, 1)
    run.read(first, left, 1), run.read(first, right)
    run.read(second, left), run.read(second, right, 1)


def lost_update(run: Planter) -> None:
    one, other = run.some(2)
    key = run.key()
    run.read(one, key), run.write(one, key, 1)
    run.read(other, key), run.write(other, key, 2)


def dirty_update(run: Planter) -> None:
    """What has aborted is built upon."""
    one, other, reader = run.some(3)
    key = run.key()
    run.write(one, key, 1)
    run.read(other, key, 1), run.write(other, key, 2)
    run.read(reader, key, 1, 2)
    one["type"] = "fail"


def internal(run: Planter) -> None:
    """Who has written does not see it."""
    (one,) = run.some(1)
    key = run.key()
    run.write(one, key, 1)
    run.read(one, key)


def unwritten(run: Planter) -> None:
    (one,) = run.some(1)
    run.read(one, run.key(), 1)


def duplicate(run: Planter) -> None:
    writer, reader = run.some(2)
    key = run.key()
    run.write(writer, key, 1)
    run.read(reader, key, 1, 1)


def incompatible(run: Planter) -> None:
    one, other, first, second = run.some(4)
    key = run.key()
    run.write(one, key, 1), run.write(other, key, 2)
    run.read(first, key, 1, 2), run.read(second, key, 2, 1)


def stale_read(run: Planter) -> None:
    """Serializable, but not by the clock: the second does not see what had been committed before it began."""
    one, other = next(
        (one, other)
        for one in run.committed
        for other in run.committed
        if one["index"] < run.invoked(other)["index"] and one["process"] != other["process"]
    )
    key = run.key()
    run.write(one, key, 1)
    run.read(other, key)


def forgotten_write(run: Planter) -> None:
    """A process does not see what it has written itself, a transaction earlier."""
    one, other = [each for each in run.committed if each["process"] == 0][:2]
    key = run.key()
    run.write(one, key, 1)
    run.read(other, key)


BOTH: dict[str, Callable[[Planter], None]] = {
    "G1a": g1a,
    "G1b": g1b,
    "G1c": g1c,
    "G-single": g_single,
    "fractured-read": fractured_read,
    "G2-item": g2,
    "G-nonadjacent": long_fork,
    "lost-update": lost_update,
    "dirty-update": dirty_update,
    "internal": internal,
    "unwritten-read": unwritten,
    "G-single-process": forgotten_write,
    "G-single-realtime": stale_read,
}
LISTS = {**BOTH, "G0": g0, "duplicate-elements": duplicate, "incompatible-order": incompatible}
"""What a list shows and a register does not: the order of its versions."""
