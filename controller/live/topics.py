"""One answer that is watched: its rows now, what they reflect, and its last steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol

from headrace_client import tokens

from controller.hosts import Hosts, ReaderShard, ShardWatch
from controller.live.steps import (
    Offsets,
    RowNames,
    Rows,
    TopicStep,
    Vector,
    clock_of,
    difference,
    is_later,
    moved,
    vector_of,
)
from controller.lookups.view_lookup import ViewLookup
from domains.errors import HeadraceError, Unavailable
from domains.language.types import Row
from domains.plan.packets import Clock
from migrations.access.rights import Privilege, Right
from worker.dataflow.batch import Ended
from worker.reader_map import BoundLookup, Parts
from worker.reader_map.merging import Ranked


class TopicFollower(Protocol):
    """Who is told of a topic's steps."""

    def wake(self) -> None: ...

    def end(self, why: str) -> None: ...


PLACE_BYTES = 8
"""Of each row of a step."""


class TopicPart:
    """What one shard of the reader shows. See :class:`controller.hosts.PartWatcher`, which it implements."""

    def __init__(self, topic: Topic, shard: ReaderShard, lookup: BoundLookup) -> None:
        self._topic = topic
        self.shard = shard
        self.lookup = lookup
        self.rows: Parts | None = None
        """None: they are not known yet, or a key was evicted and is asked for again."""
        self.watch: ShardWatch | None = None

    def show(self, seen: Parts | Ended | None) -> None:
        if isinstance(seen, Ended):
            self.rows = None
            self._topic.lose(seen)
        else:
            self.rows = seen

    def settle(self) -> None:
        self._topic.settle()

    def clock(self) -> tuple[frozenset[str], Clock]:
        return self.shard.bases, {} if self.watch is None else self.watch.clock()


class Topic:
    """``ring``: how many steps it keeps. ``lookup`` and ``bound`` are what a read of the same would be."""

    def __init__(self, lookup: ViewLookup, bound: BoundLookup, unique: Sequence[str] | None, ring: int) -> None:
        self.view = lookup.info.name
        self.needed: frozenset[Right] = frozenset((Right(Privilege.SELECT, self.view.lower()),))
        """What who reads the view may."""
        self.lookup = lookup
        self.bound = bound
        self._offsets = Offsets(repr((lookup.info.sql, lookup.shards[0].node, bound.keys, bound.seeks, unique)))
        self.names = RowNames(unique)
        self.ordered = bool(lookup.binding.reader.order) or bound.ordered
        self.steps: list[TopicStep] = []
        """Empty until its rows are known."""
        self._ring = ring
        self.size = 0
        """Bytes of its rows, about. Steps share those that did not change."""
        self.subscriptions: dict[TopicFollower, None] = {}
        self.lost: Ended | None = None
        """Why a part of it is not watched any more: it is to be opened again, or to end."""
        self.migrations = 0
        """How often it was opened again."""
        self.unused_since = 0.0
        self.hurried = 0
        """How many wait for it to reflect a token."""
        self._parts: list[TopicPart] = []
        self._token = ""
        self.written: dict[Any, bytes] = {}
        """How doors have written where it is, and the step that led there: once for all who are sent the same."""
        self._settled = False
        """Whether its rows are those of its parts; else it has to stand still."""
        self._told: dict[str, TopicStep] = {}
        """Offsets that were given to clients, with the step whose rows they stand for."""
        self.vector: Vector = ()
        self.offset = ""
        """Of the last step, or later: what it is known to reflect."""
        self._changed: asyncio.Event | None = None
        """Of who waits until it is another."""
        self.error: HeadraceError | None = None

    # --- what it stands on ------------------------------------------------------------------------------------------

    def watch(self, hosts: Hosts) -> None:
        """Begin to watch, at the place where each shard is now. Its rows stand still until all shards have shown
        theirs: their clocks may be known before, of what else is watched there."""
        self.lost = None
        self._settled = False
        self.close()
        self._parts = [TopicPart(self, shard, lookup) for shard, lookup in self.lookup.parts_of(self.bound).items()]
        for part in self._parts:
            part.watch = hosts.watch(part.shard, part.lookup, part)
        if not self._parts:
            self.settle()

    def close(self) -> None:
        for part in self._parts:
            if part.watch is not None:
                part.watch.end()
        self._parts = []

    def lose(self, why: Ended) -> None:
        self.lost = why

    def settle(self) -> None:
        """Shards have told what one moment has changed: a step, where the answer is another now."""
        rows = self._rows()
        self._settled = False
        if rows is None:
            return
        vector = vector_of(part.clock() for part in self._parts)
        if self.steps and not is_later(self.vector, vector):
            return  # A shard that has moved is on its way to where it was.
        if not self.steps or rows != self.steps[-1].rows:
            if self.steps and vector == self.vector:
                return
            self._step(rows, vector)
        self._settled = True

    def _rows(self) -> Rows | None:
        by_key: dict[Row, list[Ranked]] = {}
        for part in self._parts:
            if part.rows is None or self.lost is not None:
                return None
            by_key.update(zip(part.lookup.keys, part.rows, strict=True))
        layout = self.lookup.shards[0].layout
        rows = tuple(self.bound.listed(layout, [by_key[key] for key in self.bound.keys]))
        if len(self._parts) > 1:
            # A row on its way from one shard to another may be in both for a moment, and no answer has it twice.
            names = [name for name in map(self.names.of, rows) if name is not None]
            if len(set(names)) < len(names):
                return None
        return rows

    def _step(self, rows: Rows, vector: Vector) -> None:
        before = self.steps[-1] if self.steps else None
        offset, token = self._offsets.of(vector), tokens.encode(moved(self.vector, vector))
        messages = [] if before is None else difference(before.rows, rows, self.names, self.ordered, token)
        step = TopicStep(0 if before is None else before.number + 1, offset, vector, token, rows, messages)
        self.steps.append(step)
        del self.steps[: -self._ring]
        self.size = sum(map(len, rows)) + PLACE_BYTES * sum(len(each.rows) for each in self.steps)
        self._tell(vector, offset)

    def progress(self) -> bool:
        """Move the offset to what it reflects by now, without a change of its rows. Whether it has moved."""
        if not self._settled:
            self.settle()
        if not self._settled:
            return False
        vector = vector_of(part.clock() for part in self._parts)
        if vector == self.vector or not is_later(self.vector, vector):
            return False
        self._tell(vector, self._offsets.of(vector))
        return True

    def _tell(self, vector: Vector, offset: str) -> None:
        self.vector, self.offset, self._token = vector, offset, ""
        self.written.clear()
        self._told[offset] = self.steps[-1]
        oldest = self.steps[0].number
        while self._told[first := next(iter(self._told))].number < oldest or len(self._told) > 2 * self._ring:
            del self._told[first]
        for subscription in self.subscriptions:
            subscription.wake()
        self._has_changed()

    def _has_changed(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    # --- what it is asked -------------------------------------------------------------------------------------------

    @property
    def now(self) -> TopicStep:
        return self.steps[-1]

    @property
    def token(self) -> str:
        """Exactly what it reflects."""
        if not self._token:
            self._token = tokens.encode(clock_of(self.vector))
        return self._token

    def parts_at(self, vector: Vector) -> list[tuple[Sequence[Row], Clock]]:
        """Of a state whose keys are in several shards that had come to different places: the keys of each, and exactly
        what their rows reflect. Else nothing: the token says it."""
        sizes = [len(part.shard.bases) for part in self._parts]
        if len(sizes) < 2 or sum(sizes) != len(vector) or len(set(vector)) == len(dict(vector)):
            return []
        ends = list(accumulate(sizes))
        each = zip(self._parts, sizes, ends, strict=True)
        return [(part.lookup.keys, dict(vector[end - size : end])) for part, size, end in each]

    def at(self, offset: str) -> TopicStep | None:
        """The state that an offset stands for; None where it is not known any more, or is none of this topic's."""
        return self._told.get(offset)

    def since(self, step: TopicStep) -> Iterator[TopicStep] | None:
        """The steps behind this one; None where some are not known any more."""
        first = self.steps[0].number
        if step.number + 1 < first:
            return None
        return (self.steps[at] for at in range(step.number + 1 - first, len(self.steps)))

    def net(self, step: TopicStep) -> TopicStep:
        """One step from a state to now."""
        now = self.now
        token = tokens.encode(moved(step.vector, now.vector))
        messages = difference(step.rows, now.rows, self.names, self.ordered, token)
        return TopicStep(now.number, now.offset, now.vector, token, now.rows, messages)

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for its clock, or it stands still until a shard is where it was."""
        return bool(self.hurried) or (bool(self.steps) and not self._settled)

    async def until(self, met: Callable[[], bool], deadline: float, what: str) -> None:
        """:raises Unavailable: it is not so by the deadline, a time of the loop."""
        try:
            async with asyncio.timeout_at(deadline):
                while not met():
                    if self.error is not None:
                        raise self.error
                    changed = self._changed = self._changed or asyncio.Event()
                    await changed.wait()
        except TimeoutError:
            raise Unavailable(f'view "{self.view}" {what} in time', hint="try again, or raise --read-timeout") from None

    def fail(self, error: HeadraceError) -> None:
        """Whoever waits for it hears this."""
        self.error = error
        self._has_changed()

    def reflects(self, token: Clock) -> bool:
        clock = clock_of(self.vector)
        return all(clock[base] >= at for base, at in token.items() if base in clock)
