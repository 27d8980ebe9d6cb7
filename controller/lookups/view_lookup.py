"""Look-ups of one view against the reader map: the path of every read that hits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from time import monotonic
from typing import Any, TypeVar, cast

from controller.access.session import ANONYMOUS, Caller
from controller.deployment import Tried, ViewInfo
from controller.hosts import Hosts, ReaderShard
from controller.lookups.binding import Binding, FinishedLookup, RequestMoment
from controller.lookups.short_lane import Short, ShortLane
from domains.language.types import Row
from domains.plan.packets import Clock
from domains.plan.sharding import shard_of
from worker.reader_map import BoundLookup, MapReading, Parts, in_one_state
from worker.reader_map.merging import Ranked
from worker.service.child_pool import ChildPool

SAMPLE = 16
"""One look-up in so many tells the domain its key, for the order of use. The reader map itself keeps no such order."""
KEPT_SAMPLE = 64
"""The same of answers that were kept (``api/lookups/response_cache.py``), whose keys have to be parsed for it: some 20
µs. Where it matters, while memory is short, each eviction changes what is kept, and most answers are read anew."""
SAMPLES_TOGETHER = 256
"""Sampled keys are reported this many at once: each time wakes the dataflow thread, for which a request waits 50 µs."""


def reads_of(lookup: ViewLookup | None) -> dict[str, Any]:
    """What a view's status says of its reads in this process."""
    hits, misses, seconds = (lookup.hits, lookup.misses, lookup.seconds) if lookup else (0, 0, 0.0)
    return {"hits": hits, "misses": misses, "seconds": round(seconds, 3)}


class ViewLookup:
    """A prepared look-up (``PreparedLookup``); ``stale`` once the view has gone, or its reader was replaced or moved.

    For a reader in one shard, or a view without one; ``ShardedLookup`` is for several.
    """

    def __init__(self, info: ViewInfo, binding: Binding, shards: tuple[ReaderShard, ...], hosts: Hosts) -> None:
        self.info = info
        self.types = info.types
        self.binding = binding
        self.shards = shards
        """In the order of their numbers; none while the view has no reader yet."""
        self.stale = False
        self.hits = 0
        self.misses = 0
        """Look-ups that a domain was asked for: ``Serving`` counts them. What is missed here may be tried again."""
        self.seconds = 0.0
        """In which what was missed was filled."""
        self.since = monotonic()
        """When it was prepared: that is how long it has counted."""
        self._hosts = hosts
        self._sampled: list[Row] = []
        self._telling = AccessReporter()
        self.is_here = here = bool(shards) and all(shard.client is not None for shard in shards)
        """Whether this process reads the map that has it."""
        self._client = shards[0].client if here else None
        self._layout = shards[0].layout if here else None
        self._version_key = shards[0].layout.version_key if here else b""
        self._single = here and binding.single_integer and shards[0].layout.plain
        self._lane = ShortLane.of(binding, shards[0].layout) if here and len(shards) == 1 else None
        self._many = self._single and shards[0].layout.by_integer
        self._name = binding.parameters[0].name if binding.single_key else ""

    def try_page(self, text: Mapping[str, Sequence[str]], asker: Caller = ANONYMOUS) -> bytes | BoundLookup:
        if self._single and len(text) == 1:
            values = text.get(self._name)
            # The common case, 2 µs less than the general one: one whole number.
            if values is not None and len(values) == 1:
                value = values[0]
                if value.isascii() and value.isdigit() and len(value) < 19:
                    key = (int(value),)
                    page = self._counted_page(key)
                    return BoundLookup((key,)) if page is None else page
        bound = self.binding.from_text(text, RequestMoment(asker=asker) if self.binding.of_now else None)
        page = in_one_state(lambda reading: self.read(bound, reading))
        return bound if page is None else page

    def _counted_page(self, key: Row) -> bytes | None:
        # By hand what ``look`` does, without asking for the shard: 0.2 µs, a seventh of it all.
        assert self._client is not None
        assert self._layout is not None
        page = self._client.page(self._layout, key)
        self._count(page, (key,))
        return page

    def try_integer(self, value: int) -> bytes | None:
        """The page of a key that is one whole number of its column's range; None if it is a hole, or the view's keys
        are none such: then it is to be asked for in general."""
        return self._counted_page((value,)) if self._single else None

    def try_pages(
        self,
        keys: Sequence[Any],
        reading: MapReading,
        rows: list[Row] | None = None,
        moment: RequestMoment | None = None,
    ) -> Tried:
        if self._many:
            values = single_integers(keys)
            pages = None if values is None else self._integer_pages(values, reading)
            if pages is not None and values is not None:
                if rows is not None:
                    rows += [(value,) for value in values]
                missing = pages.count(None)
                self.hits += len(pages) - missing
                self._sample([(value,) for value in values[::SAMPLE]])
                if missing or self._telling.owed:
                    self._tell_of(values, pages)
                holes = compress(values, map(_is_missing, pages)) if missing else ()
                return pages, [BoundLookup(((value,),)) for value in holes]
        bounds = self.binding.all_of(keys, moment)
        if rows is not None:
            for bound in bounds:
                rows += bound.keys
        return self.read_all(bounds, reading)

    def read_all(self, bounds: Sequence[BoundLookup], reading: MapReading) -> Tried:
        """``try_pages`` of keys that are bound already."""
        pages = [self.read(bound, reading) for bound in bounds]
        return pages, list(compress(bounds, map(_is_missing, pages)))

    def try_integers(self, values: Sequence[int], reading: MapReading) -> Sequence[bytes] | None:
        """Nothing is counted where something is missing, or the domain waits for a report of keys: it is asked
        again."""
        if not self._many or self._telling.owed:
            return None
        pages = self._integer_pages(values, reading)
        if pages is None or (not all(pages) and None in pages):  # A key without rows is b"": the first is quicker.
            return None
        self.hits += len(pages)
        self._sample([(value,) for value in values[::SAMPLE]])
        return cast(list[bytes], pages)

    def try_short(self, key: Any, reading: MapReading) -> Short | None:
        if self._lane is None or self._client is None:
            return None
        found = self._lane.find(key, reading[self._client])
        if found is not None:
            self._count(found.page, (found.key,))
        return found

    def version(self, reading: MapReading) -> bytes | None:
        """Stands as long as everything that was read here does; None where that is not known."""
        if self._client is None:
            return None
        return reading[self._client].version(self._version_key)

    def markers(self, rows: Sequence[Row]) -> list[bytes] | None:
        return None if self._client is None or self._layout is None else self._layout.markers(rows)

    def states(self, markers: Sequence[bytes], reading: MapReading) -> list[bytes | None]:
        assert self._client is not None
        return reading[self._client].states(markers)

    # --- what depends on how many shards there are ----------------------------------------------------------------

    def shard_of(self, key: Row) -> ReaderShard:
        """The shard that has the key's rows; not to be called while the view has no reader."""
        return self.shards[0]

    def by_shard(self, keys: Iterable[Row]) -> dict[ReaderShard, tuple[Row, ...]]:
        return {self.shards[0]: tuple(keys)}

    def parts_of(self, bound: BoundLookup) -> Mapping[ReaderShard, BoundLookup]:
        """Each shard's part of a look-up; none where SQL finds nothing."""
        return {self.shards[0]: bound.sent} if bound.keys else {}

    def look(self, bound: BoundLookup, reading: MapReading) -> bytes | None:
        """The rows, or None where one of the keys is a hole, or on another host. Counts nothing."""
        if self._client is None or self._layout is None:
            return None
        page = bound.page(reading[self._client], self._layout)
        return None if page is None else bound.finished(page)

    def _integer_pages(self, values: Sequence[int], reading: MapReading) -> list[bytes | None] | None:
        """None where one of them is beyond 64 bits."""
        assert self._client is not None
        assert self._layout is not None
        return self._client.recent_pages(reading[self._client], self._layout, values)

    async def fill(self, bounds: Sequence[BoundLookup], token: Clock, deadline: float) -> list[bytes | None]:
        """Wait for the token, have the keys filled, and what they hold then, which is what a finish begins with; None
        where the reader is gone."""
        shard = self.shards[0]
        about = token and shard.concerns(token)
        sent = bounds if self.binding.finish is None else [bound.sent for bound in bounds]
        return await self._hosts.pages(shard, sent, about, deadline)

    def has_reached(self, token: Clock, bounds: Iterable[BoundLookup]) -> bool:
        """Whether all that these look-ups read is known to reflect the token."""
        shards = {self.shard_of(key) for bound in bounds for key in bound.keys}
        return all(self._hosts.has_reached(shard, shard.concerns(token)) for shard in shards)

    # --- counting and telling -------------------------------------------------------------------------------------

    def read(self, bound: BoundLookup, reading: MapReading) -> bytes | None:
        """``look``, counted if it is a hit."""
        page = self.look(bound, reading)
        self._count(page, bound.keys)
        return page

    def _count(self, page: bytes | None, keys: Sequence[Row]) -> None:
        if page is None:
            self._telling.missed(keys[:1])  # One at least is a hole; which, nobody has asked.
            return
        self.hits += 1
        if not self.hits % SAMPLE:
            self._sample(keys)
        if self._telling.owed:
            self._sample(self._telling.news(keys))

    def again(self, keys: int, told: bool) -> bool:
        """Count hits of an answer that was kept. Whether :meth:`tell` is to hear the keys; ``told``: it has before."""
        self.hits += keys
        if self._telling.owed:
            if not told:
                return True
            self._telling.pass_over(keys)
        return self.hits % KEPT_SAMPLE < keys

    def tell(self, keys: Sequence[Any]) -> None:
        """These, as JSON values, were hits of a kept answer."""
        rows = [row for key in keys for row in self.binding.from_json(key).keys]
        self._sample(rows)
        if self._telling.owed:
            self._telling.news(rows)  # They are reported already.

    def _tell_of(self, values: Sequence[int], pages: Sequence[bytes | None]) -> None:
        telling = self._telling
        telling.missed([(value,) for value, page in zip(values, pages, strict=True) if page is None])
        if telling.owed:
            self._sample(
                telling.news([(value,) for value, page in zip(values, pages, strict=True) if page is not None])
            )

    def _sample(self, keys: Sequence[Row]) -> None:
        self._sampled.extend(keys)
        if len(self._sampled) >= SAMPLES_TOGETHER:
            sampled, self._sampled = self._sampled, []
            for shard, own in self.by_shard(sampled).items():
                self._hosts.touch(shard, own)


async def finished(
    beside: ChildPool | None, bounds: Sequence[BoundLookup], pages: Sequence[bytes | None]
) -> list[bytes | None]:
    """The answers out of what readers hold, beside where that is more than the loop is to be held for."""
    answers: list[bytes | None] = []
    for bound, page in zip(bounds, pages, strict=True):
        answer = None if page is None else bound.finished(page)
        if page is not None and answer is None:
            assert isinstance(bound, FinishedLookup)
            if beside is None:
                answer = b"".join(bound.parts_of(page))
            else:
                answer = b"".join([part async for part in beside.run(bound.parts_of, page)])
        answers.append(answer)
    return answers


def _is_missing(page: bytes | None) -> bool:
    return page is None


def single_integers(keys: Sequence[Any]) -> list[int] | None:
    """The values of ``[[1], [2]]``, or None if any of them is anything but one number: 50 ns a key."""
    # A one-letter name of an object would unpack too; only lists of one int go this way. (type, not isinstance: True.)
    if set(map(type, keys)) != {list}:
        return None
    try:
        values: list[int] = [value for (value,) in keys]
    except ValueError:
        return None
    return values if set(map(type, values)) == {int} else None


# Look-ups of a view whose reader stands in several shards, each with the keys that are its own.

Divided = dict[ReaderShard, BoundLookup]
"""One look-up's keys by shard."""
NO_VERSION = bytes(8)
"""The version of a shard that nothing was published to. Others begin with the first transaction."""
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

    def version(self, reading: MapReading) -> bytes | None:
        found: list[bytes] = []
        for shard in self.shards:
            if shard.client is None:
                return None
            found.append(reading[shard.client].version(shard.layout.version_key) or NO_VERSION)
        return b"".join(found)

    def markers(self, rows: Sequence[Row]) -> list[bytes] | None:
        return None  # They would be each shard's own; what is kept stands with the version of all.

    def look(self, bound: BoundLookup, reading: MapReading) -> bytes | None:
        divided = self.divided(bound)
        if len(divided) == 1:
            ((shard, own),) = divided.items()
            page = None if shard.client is None else own.page(reading[shard.client], shard.layout)
            return None if page is None else bound.finished(page)
        found: dict[ReaderShard, Parts] = {}
        for shard, own in divided.items():
            parts = None if shard.client is None else own.parts(reading[shard.client], shard.layout)
            if parts is None:
                return None
            found[shard] = parts
        return bound.finished(self.joined(bound, divided, found))

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

    def parts_of(self, bound: BoundLookup) -> Mapping[ReaderShard, BoundLookup]:
        return self.divided(bound)

    def divided(self, bound: BoundLookup) -> Divided:
        return {shard: replace(bound.sent, keys=own) for shard, own in self.by_shard(bound.keys).items()}

    def joined(self, bound: BoundLookup, divided: Divided, found: Mapping[ReaderShard, Parts]) -> bytes:
        """The rows out of what every shard has found: as if one had all keys, in the order of ``bound``'s."""
        by_key: dict[Row, list[Ranked]] = {}
        for shard, own in divided.items():
            by_key.update(zip(own.keys, found[shard], strict=True))
        return bound.joined(self.shards[0].layout, [by_key[key] for key in bound.keys])

    def _integer_pages(self, values: Sequence[int], reading: MapReading) -> list[bytes | None] | None:
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


# The choice of hits that are reported to the domain, beside a sample of all reads.
#
# The domain protects a key from eviction once it has been read a second time, and only the reading side knows of
# that: a hit never reaches the domain. From a sample of one read in sixteen it hears of most such keys too late: in a
# simulation of Zipf(1.15) reads, protection then gains 0.2 % of hits, and 1.1 % where it hears of all. To tell of
# every hit would cost 2 µs each. But the keys that are hit most often are few, so those told of lately are remembered
# and not told of again.

TOLD = 16_384
"""Keys remembered as reported, then all are forgotten: about 2 MB to a view. With twice as many, hot keys are reported
too seldom for a small memory limit (0.3 % fewer hits with room for 20,000 keys); with a quarter, half as many again are
told of for no more hits."""
HITS_PER_MISS = 64
"""Hits that are looked at for each miss. Without misses there is no pressure, and what goes first does not matter:
reads that all hit pay nothing. A miss and the eviction for it cost some 400 µs, to look at 64 hits 4 µs, to tell of
them all (one in six is usual) 140. At three misses in two hundred or more, all hits are looked at."""
OWED = 4_096
"""Hits that may be looked at for the misses so far: a burst of misses is not paid for long after it."""


class AccessReporter:
    """Reports which keys of one view this process reads."""

    __slots__ = ("_told", "owed")

    def __init__(self) -> None:
        self._told: set[Row] = set()
        self.owed = 0
        """Hits that are still to be looked at."""

    def missed(self, keys: Sequence[Row]) -> None:
        """These were holes. When they are filled they are new: their next hit is reported."""
        self._told.difference_update(keys)
        self.owed = min(OWED, self.owed + HITS_PER_MISS * len(keys))

    def pass_over(self, hits: int) -> None:
        """The number of hits on keys that were reported before."""
        self.owed = max(0, self.owed - hits)

    def news(self, keys: Sequence[Row]) -> list[Row]:
        """The hit keys that are to be reported; from now on they count as reported."""
        told = self._told
        looked_at = keys[: self.owed]
        self.owed -= len(looked_at)
        new = [key for key in dict.fromkeys(looked_at) if key not in told]
        if len(told) + len(new) > TOLD:
            told.clear()
        told.update(new)
        return new
