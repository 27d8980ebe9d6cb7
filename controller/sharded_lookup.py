"""Look-ups of a view whose reader stands in several shards, each with the keys that are its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from controller.binding import Binding
from controller.deployment import ViewInfo
from controller.hosts import Hosts, ReaderShard
from controller.view_lookup import ViewLookup
from domains.packets import Clock
from domains.sharding import shard_of
from domains.types import Row
from worker.reader_map import BoundLookup, Parts, Reading
from worker.reader_map.merging import Ranked

Divided = dict[ReaderShard, BoundLookup]
"""What each shard is asked for by one look-up: the keys that are its own."""
NO_VERSION = bytes(8)
"""Of a shard that nothing was published to. Those that are there begin at the first transaction."""
Answer = TypeVar("Answer")
Ask = Callable[[ReaderShard, Sequence[BoundLookup], Clock, float], Awaitable[list[Answer | None]]]


class ShardedLookup(ViewLookup):
    """``at`` is the place in the key of the column that decides the shard."""

    def __init__(
        self, info: ViewInfo, binding: Binding, shards: tuple[ReaderShard, ...], hosts: Hosts, at: int
    ) -> None:
        super().__init__(info, binding, shards, hosts)
        self._at = at

    def shard_of(self, key: Row) -> ReaderShard:
        return self.shards[shard_of(key[self._at], len(self.shards))]

    def _counted_page(self, key: Row) -> bytes | None:
        shard = self.shard_of(key)
        assert shard.client is not None
        page = shard.client.page(shard.layout, key)
        self._count(page, (key,))
        return page

    def by_shard(self, keys: Iterable[Row]) -> dict[ReaderShard, tuple[Row, ...]]:
        found: dict[ReaderShard, list[Row]] = {}
        for key in keys:
            found.setdefault(self.shard_of(key), []).append(key)
        return {shard: tuple(own) for shard, own in found.items()}

    def version(self, reading: Reading) -> bytes | None:
        found: list[bytes] = []
        for shard in self.shards:
            if shard.client is None:
                return None
            found.append(reading[shard.client].version(shard.layout.version_key) or NO_VERSION)
        return b"".join(found)

    def markers(self, rows: Sequence[Row]) -> list[bytes] | None:
        return None  # They would be each shard's own; what is kept stands with the version of all.

    def look(self, bound: BoundLookup, reading: Reading) -> bytes | None:
        divided = self.divided(bound)
        if len(divided) == 1:
            ((shard, own),) = divided.items()
            return None if shard.client is None else own.page(reading[shard.client], shard.layout)
        found: dict[ReaderShard, Parts] = {}
        for shard, own in divided.items():
            parts = None if shard.client is None else own.parts(reading[shard.client], shard.layout)
            if parts is None:
                return None
            found[shard] = parts
        return self.joined(bound, divided, found)

    async def fill(self, bounds: Sequence[BoundLookup], token: Clock, deadline: float) -> list[bytes | None]:
        divided = [self.divided(bound) for bound in bounds]
        if all(len(each) == 1 for each in divided):
            pages = await self._ask(self._hosts.pages, divided, token, deadline)
            return [next(pages[shard]) for each in divided for shard in each]
        parts = await self._ask(self._hosts.parts, divided, token, deadline)
        answers: list[bytes | None] = []
        for bound, each in zip(bounds, divided, strict=True):
            found = {shard: part for shard in each if (part := next(parts[shard])) is not None}
            answers.append(self.joined(bound, each, found) if len(found) == len(each) else None)
        return answers

    async def _ask(
        self, ask: Ask[Answer], divided: Sequence[Divided], token: Clock, deadline: float
    ) -> dict[ReaderShard, Iterator[Answer | None]]:
        """Ask all the shards at once; each answers in the order of the look-ups that it has a part in."""
        asked: dict[ReaderShard, list[BoundLookup]] = {}
        for each in divided:
            for shard, own in each.items():
                asked.setdefault(shard, []).append(own)
        answers = await asyncio.gather(
            *(ask(shard, own, shard.concerns(token), deadline) for shard, own in asked.items())
        )
        return {shard: iter(answer) for shard, answer in zip(asked, answers, strict=True)}

    def divided(self, bound: BoundLookup) -> Divided:
        return {shard: replace(bound, keys=own) for shard, own in self.by_shard(bound.keys).items()}

    def joined(self, bound: BoundLookup, divided: Divided, found: Mapping[ReaderShard, Parts]) -> bytes:
        """The answer out of what every shard has found: as if one had all keys, in the order of ``bound``'s."""
        by_key: dict[Row, list[Ranked]] = {}
        for shard, own in divided.items():
            by_key.update(zip(own.keys, found[shard], strict=True))
        return bound.joined(self.shards[0].layout, [by_key[key] for key in bound.keys])

    def _integer_pages(self, values: Sequence[int], reading: Reading) -> list[bytes | None] | None:
        places: list[list[int]] = [[] for _ in self.shards]
        count = len(self.shards)
        for place, value in enumerate(values):
            places[value % count].append(place)  # as ``shard_of`` does with an INTEGER
        pages: list[bytes | None] = [None] * len(values)
        for shard, own in zip(self.shards, places, strict=True):
            if not own:
                continue
            assert shard.client is not None
            client = shard.client
            found = client.recent_pages(reading[client], shard.layout, [values[place] for place in own])
            if found is None:
                return None
            for place, page in zip(own, found, strict=True):
                pages[place] = page
        return pages
