"""Deadlocks of transactions over several workers: found by whoever waits, and ended by the youngest in the ring.

A worker sees who waits for whom in its own shards, and ends a ring that closes there at once. A ring over several
workers none of them sees::

    a statement waits ─► after LOOK_SECONDS: every base shard, who waits for whom, and since which wait
                         a ring in which it is the youngest? ─► the same again ─► still the same waits: it ends

**What is found is real**: *all waits of a ring stood at one moment.* A wait has a number that no other wait of its
shard has, so one that is there at both looks was there all the while between them. And so was the reason for it: who
waits in such a ring does nothing else meanwhile, so those for whom it waits let nothing go. (Rings that were never
there at once, the phantoms of E. Knapp, *Deadlock Detection in Distributed Databases*, 1987, differ in some wait from
one look to the next.) It stands until one of its transactions ends, and only the youngest looks for it: so one ends,
not two.

One look serves all who wait in a process, and nobody looks while nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from domains.plan.graph import DomainIndex
from worker.protocol.cuts import KnownWait

LOOK_SECONDS = 0.1
"""From when a statement waits to a look, and between two: MySQL's users wait as long for a busy disk. A look is one
message to each base shard."""
ANSWER_SECONDS = 1.0
"""A shard that does not tell by then is left out: it is away, and who waits in it has lost what it held."""
LONG_SECONDS = 1.0
"""Who holds something for longer may have gone."""


class Deadlocks:
    """Of the transactions of one process. It lives on one event loop."""

    def __init__(
        self,
        waits: Callable[[DomainIndex], Awaitable[Sequence[KnownWait]]],
        bases: Callable[[], Sequence[DomainIndex]],
        on_long: Callable[[], None],
    ) -> None:
        """``waits``: those in a base shard. ``on_long`` hears that something is held for long."""
        self._waits = waits
        self._bases = bases
        self._on_long = on_long
        self._waiting: dict[asyncio.Future[None], str] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self, id: str) -> Iterator[asyncio.Future[None]]:
        """While a statement of this transaction waits: what it is given is done once the transaction is to end."""
        ring: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ring] = id
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield ring
        finally:
            del self._waiting[ring]
            ring.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            if loop.time() - began > LONG_SECONDS:
                self._on_long()
                began = loop.time()
            found = await self._found()
            if any(in_ring(id, found) for id in self._waiting.values()):
                found &= await self._found()
                for ring, id in self._waiting.items():
                    if not ring.done() and in_ring(id, found):
                        ring.set_result(None)

    async def _found(self) -> set[tuple[DomainIndex, KnownWait]]:
        bases = self._bases()
        told = await asyncio.gather(*map(self._told, bases), return_exceptions=True)
        return {
            (base, each) for base, waits in zip(bases, told, strict=True) if isinstance(waits, tuple) for each in waits
        }

    async def _told(self, base: DomainIndex) -> tuple[KnownWait, ...]:
        async with asyncio.timeout(ANSWER_SECONDS):
            return tuple(await self._waits(base))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def in_ring(id: str, waits: Collection[tuple[DomainIndex, KnownWait]]) -> bool:
    """Whether a transaction waits for itself, by others that are all older."""
    ways: dict[str, set[str]] = {}
    for _, each in waits:
        if each.id <= id and each.holder <= id:
            ways.setdefault(each.id, set()).add(each.holder)
    seen, left = set[str](), [id]
    while left:
        for holder in ways.get(left.pop(), ()):
            if holder == id:
                return True
            if holder not in seen:
                seen.add(holder)
                left.append(holder)
    return False
