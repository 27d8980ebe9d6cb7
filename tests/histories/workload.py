"""Transactions that are drawn from a seed, the clients that run them, and what they record.

Keys come in blocks, of which two are in use at a time: all of a block's keys are written so often that transactions
contend, and then the block is left, so that a key's history is short and can be checked while the run goes on. A
transaction takes keys of both blocks, so what belongs together is not cut where one block ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.histories.events import Event
from tests.histories.system import Aborted, How, Modelled, System, Unknown, interleaved

MOST_BLOCKS = 10_000
"""So many a run has at most: a system that joins by blocks has a row for each."""

Step = tuple[str, Sequence[int], How | int]
"""A read of these keys, and how; or a write to a key of a value."""


@dataclass
class Workload:
    seed: int
    lists: bool = True
    keys: int = 6
    """Of a block: with the two blocks, the set that clients contend for."""
    writes: int = 16
    """Of a key, on the average."""
    longest: int = 5
    rollbacks: float = 0.03
    plain: float = 0.5
    """Of the transactions that are one write: these are none, but a write as it is made without one."""
    most: int | None = None
    """So many transactions; without it, as long as ``go_on`` says."""
    most_blocks: int = MOST_BLOCKS - 2
    go_on: Callable[[], bool] = lambda: True
    begun: int = 0
    block: int = 0
    _writes_left: int = 0
    _written: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draws = random.Random(self.seed)
        self._writes_left = self.keys * self.writes

    def transaction(self) -> list[Step] | None:
        if self.begun == self.most or not self.go_on() or self.block >= self.most_blocks:
            return None
        self.begun += 1
        return [self._step() for _ in range(1 + int(self.draws.random() * self.longest))]

    def _step(self) -> Step:
        draw = self.draws.random
        first = (self.block + int(draw() * 2)) * self.keys
        key = first + int(draw() * self.keys)
        what = draw()
        if what < 0.45:
            return ("append" if self.lists else "w", (key,), self._value(key))
        if what < 0.8:
            return ("r", (key,), "key")
        if what < 0.9:
            return ("r", range(key, min(key + 3, first + self.keys)), "range")
        return ("r", range(first, first + self.keys), "join")

    def _value(self, key: int) -> int:
        value = self._written[key] = self._written.get(key, 0) + 1
        self._writes_left -= 1
        if self._writes_left <= 0:
            for left in range(self.block * self.keys, (self.block + 1) * self.keys):
                self._written.pop(left, None)
            self.block += 1
            self._writes_left = self.keys * self.writes
        return value

    def is_plain(self, steps: Sequence[Step]) -> bool:
        return len(steps) == 1 and steps[0][0] != "r" and self.draws.random() < self.plain

    def ends_with_rollback(self) -> bool:
        return self.draws.random() < self.rollbacks


class Recorder:
    """Numbers events, and gives them on."""

    def __init__(self, give: Callable[[Event], None], processes: int) -> None:
        self._give = give
        self._next = 0
        self._processes = processes

    def new_process(self) -> int:
        """Of a client whose last transaction is unknown, and may yet go on: the next one is another's."""
        self._processes += 1
        return self._processes - 1

    def __call__(self, process: int, kind: str, value: list[list[Any]]) -> None:
        self._give({"index": self._next, "process": process, "type": kind, "f": "txn", "value": value})
        self._next += 1


async def client(process: int, system: System, workload: Workload, record: Recorder) -> None:
    """Run transactions one after the other, as long as there are any."""
    session = await system.session()
    nothing: Any = [] if system.lists else None
    while (steps := workload.transaction()) is not None:
        asked = [[what, key, how if what != "r" else None] for what, keys, how in steps for key in keys]
        record(process, "invoke", asked)
        seen: list[list[Any]] = []
        try:
            if workload.is_plain(steps):
                await session.write_plainly(*asked[0][1:])
                seen = [*asked]
            else:
                await session.begin()
                for what, keys, how in steps:
                    if what == "r":
                        values = await session.read(keys, how)
                        seen += [["r", key, values.get(key, nothing)] for key in keys]
                    else:
                        await session.write(keys[0], how)
                        seen.append([what, keys[0], how])
                if workload.ends_with_rollback():
                    await session.rollback()
                    raise Aborted
                await session.commit()
        except Aborted:
            record(process, "fail", asked)
        except Unknown:
            record(process, "info", asked)
            process = record.new_process()
        else:
            record(process, "ok", seen)
    await session.close()


KEPT_BLOCKS = 20
"""So many blocks after they were left, no client is still busy with one."""


def modelled(level: str, workload: Workload, clients: int = 8, unknown: float = 0.01) -> Iterator[Event]:
    """The history of a run against the system in memory, drawn from the workload's seed."""
    draws = random.Random(workload.seed)
    events: list[Event] = []
    system = Modelled(level, draws, lists=workload.lists, unknown=unknown)
    record = Recorder(events.append, clients)
    forgotten = 0
    for _ in interleaved([client(number, system, workload, record) for number in range(clients)], draws):
        yield from events
        events.clear()
        while forgotten < workload.block - KEPT_BLOCKS:
            system.forget(range(forgotten * workload.keys, (forgotten + 1) * workload.keys))
            forgotten += 1
