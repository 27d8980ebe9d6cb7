"""What a workload asks of a system under test, and an exact one in memory at each isolation level."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

How = Literal["key", "range", "join"]


class Aborted(Exception):
    """The transaction has had no effect, and is over."""


class Unknown(Exception):
    """Nobody knows whether the transaction has committed; it is over for its client."""


class Session(Protocol):
    """One client's connection. Anything but a rollback may raise ``Aborted`` or, from the commit on, ``Unknown``."""

    async def begin(self) -> None: ...

    async def read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        """The lists, or the registers' values, of consecutive keys; the absent ones may be left out. A join reads all
        of a block's keys."""

    async def write(self, key: int, value: int) -> None:
        """Append to the list, or set the register; the key may not be there yet."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def write_plainly(self, key: int, value: int) -> None:
        """A write outside of any transaction."""

    async def close(self) -> None: ...


class System(Protocol):
    lists: bool

    async def session(self) -> Session: ...


class Turn:
    """Where another client may go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def interleaved(clients: Iterable[Coroutine[Any, Any, None]], draws: random.Random) -> Iterator[None]:
    """Run coroutines that wait for nothing but their turn, a turn at a time, in an order that is drawn."""
    running = list(clients)
    while running:
        at = int(draws.random() * len(running))
        try:
            running[at].send(None)
        except StopIteration:
            running[at] = running[-1]
            running.pop()
        yield


class Modelled:
    """Versions by key, each with the number of its commit. A snapshot is a number of a commit.

    At ``read-uncommitted`` writes are in place at once. At ``read-committed`` a read shows the last commit, and a key
    that is being written is locked for other writers, which abort instead of waiting. At ``snapshot`` a read shows the
    last commit before the transaction began, and who writes a key that was written since aborts; at ``serializable``
    who has read one, too. That is strict: a commit takes effect within the transaction's time.
    """

    def __init__(self, level: str, draws: random.Random, *, lists: bool = True, unknown: float = 0.01) -> None:
        self.level, self.draws, self.lists, self.unknown = level, draws, lists, unknown
        self.values: dict[int, list[int]] = defaultdict(list)
        self.commits: dict[int, list[int]] = defaultdict(list)
        self.writing: dict[int, ModelledSession] = {}
        self.now = 0

    async def session(self) -> ModelledSession:
        return ModelledSession(self)

    def shown(self, values: Sequence[int]) -> Any:
        return list(values) if self.lists else values[-1] if values else None

    def forget(self, keys: Iterable[int]) -> None:
        """No transaction to come has these keys."""
        for key in keys:
            self.values.pop(key, None)
            self.commits.pop(key, None)


class ModelledSession:
    def __init__(self, system: Modelled) -> None:
        self.system = system
        self.began = 0
        self.own: dict[int, list[int]] = {}
        self.touched: set[int] = set()

    async def begin(self) -> None:
        await Turn()
        self.began = self.system.now
        self.own, self.touched = {}, set()

    async def read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        await Turn()
        return {key: self.system.shown(self._visible(key)) for key in keys}

    def _visible(self, key: int) -> list[int]:
        system = self.system
        if system.level == "serializable":
            self.touched.add(key)
        values = system.values[key]
        if system.level in ("snapshot", "serializable"):
            values = values[: bisect_right(system.commits[key], self.began)]
        return values + self.own.get(key, []) if key in self.own else values

    async def write(self, key: int, value: int) -> None:
        await Turn()
        if self.system.level == "read-uncommitted":
            self.system.values[key].append(value)
            self.touched.add(key)
            return
        if self.system.level == "read-committed" and self.system.writing.setdefault(key, self) is not self:
            self._end()
            raise Aborted
        self.own.setdefault(key, []).append(value)
        self.touched.add(key)

    async def commit(self) -> None:
        await Turn()
        system = self.system
        if system.level in ("snapshot", "serializable"):
            commits = system.commits
            if any(key in commits and commits[key] and commits[key][-1] > self.began for key in self.touched):
                raise Aborted
        self._end()
        lost = system.draws.random() < system.unknown
        if not lost or system.draws.random() < 0.5:
            system.now += 1
            for key, values in self.own.items():
                system.values[key] += values
                system.commits[key] += [system.now] * len(values)
        if lost:
            raise Unknown

    async def rollback(self) -> None:
        """What was written in place stays there: others have built on it."""
        await Turn()
        self._end()

    def _end(self) -> None:
        for key in self.touched if self.system.level == "read-committed" else ():
            self.system.writing.pop(key, None)

    async def write_plainly(self, key: int, value: int) -> None:
        await self.begin()
        await self.write(key, value)
        await self.commit()

    async def close(self) -> None:
        """Nothing is held."""
