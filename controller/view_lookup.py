"""Look-ups of one view against the reader map: the path of every read that hits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controller.binding import Binding, BoundLookup
from controller.deployment import ViewInfo
from domains.graph import DomainIndex, NodeIndex
from domains.types import Row
from worker.reader_map import ReaderClient, ReaderLayout

SAMPLE = 16
"""One look-up in so many tells the domain its key, for the order of use. The reader map itself keeps no such order."""
SAMPLES_TOGETHER = 256
"""Sampled keys are told this many at once: each time wakes the dataflow thread, for which a request waits 50 µs."""


class ViewLookup:
    """A prepared look-up (``PreparedLookup``); ``stale`` once the view has gone or was given another reader."""

    def __init__(
        self,
        info: ViewInfo,
        binding: Binding,
        layout: ReaderLayout | None,
        node: NodeIndex,
        domain: DomainIndex,
        client: ReaderClient,
        touch: Callable[[DomainIndex, NodeIndex, tuple[Row, ...]], None],
    ) -> None:
        self.info = info
        self.binding = binding
        self.layout = layout
        """None while the view has no reader yet."""
        self.node = node
        self.domain = domain
        self.stale = False
        self.hits = 0
        self.misses = 0
        self._client = client
        self._touch = touch
        self._sampled: list[Row] = []
        self._single = binding.single_integer and layout is not None and layout.plain
        self._name = binding.parameters[0].name if binding.single_key else ""

    def try_page(self, text: Mapping[str, Sequence[str]]) -> bytes | None:
        if self._single and len(text) == 1:
            values = text.get(self._name)
            # The common case, 2 µs less than the general one: one whole number.
            if values is not None and len(values) == 1:
                value = values[0]
                if value.isascii() and value.isdigit() and len(value) < 19:
                    return self._counted_page((int(value),))
        return self.read(self.binding.from_text(text))

    def _counted_page(self, key: Row) -> bytes | None:
        assert self.layout is not None
        page = self._client.page(self.layout, key)
        if page is None:
            self.misses += 1
        else:
            self.hits += 1
            if not self.hits % SAMPLE:
                self._sample((key,))
        return page

    def try_pages(self, keys: Sequence[Any]) -> list[bytes | None]:
        if self.layout is not None and self._single and self.layout.by_integer:
            values = single_integers(keys)
            pages = None if values is None else self._client.integer_pages(self.layout, values)
            if pages is not None and values is not None:
                missing = pages.count(None)
                self.misses += missing
                self.hits += len(pages) - missing
                self._sample([(value,) for value in values[::SAMPLE]])
                return pages
        return [self.read(self.binding.from_json(key)) for key in keys]

    def look(self, bound: BoundLookup) -> bytes | None:
        """The rows, or None where one of the keys is a hole. Counts nothing: any thread may call it."""
        layout = self.layout
        if layout is None:
            return None
        if not bound.keys:
            return layout.empty or b""
        keys, seek, low, high = bound.keys, bound.seek, bound.low, bound.high
        if len(keys) == 1:
            return self._client.page(layout, keys[0], seek, low, high, bound.limit, bound.offset)
        return self._client.rows(layout, keys, seek, low, high, bound.limit, bound.offset)

    def read(self, bound: BoundLookup) -> bytes | None:
        """``look``, counted as a hit or a miss."""
        page = self.look(bound)
        if page is None:
            self.misses += 1
        else:
            self.hits += 1
            if not self.hits % SAMPLE:
                self._sample(bound.keys[:1])
        return page

    def _sample(self, keys: Sequence[Row]) -> None:
        self._sampled.extend(keys)
        if len(self._sampled) >= SAMPLES_TOGETHER:
            sampled, self._sampled = self._sampled, []
            self._touch(self.domain, self.node, tuple(sampled))


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
