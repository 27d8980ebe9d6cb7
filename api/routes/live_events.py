"""How what is watched is written, and the loop that sends it: by server-sent events, and as texts of a WebSocket.

::

    Topic ── steps ──► Subscription ── wakes ──► LiveStream.run ── bytes ──► a client
                                                     └── LiveForm: EventForm, TextForm

The client's pace is the loop's: a connection that takes nothing is not written to, and what its subscriptions miss
meanwhile is told as a few steps, or one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, time
from typing import Any, Protocol

from headrace_client import tokens

from api.doors.web_socket import text_frame
from api.encoding import serialize
from api.limits import StraightWay
from controller.live.live_views import QUIET_SECONDS, LiveConnection, LiveViews, Subscription, caught_up
from controller.live.steps import TopicStep, Vector, clock_of
from controller.live.topics import Topic
from domains.language.coercion import json_value

CURSOR_SECONDS = 20
"""The protocol's cursor changes so often: it sets requests of different times apart."""
MOST_WRITTEN = 16
"""Forms of a step that are kept until the next one, for others who are sent the same: names of an answer, mostly one,
by events and by WebSockets."""
SNAPSHOT_START, SNAPSHOT_END = b'{"headers":{"control":"snapshot-start"}}', b'{"headers":{"control":"snapshot-end"}}'


class LiveForm(Protocol):
    """How messages, and where a subscription is, become bytes."""

    quiet: bytes
    """What says that the connection is alive."""

    def data(self, messages: bytes) -> bytes: ...

    def control(self, offset: str, shown: bytes) -> bytes: ...


class EventForm:
    """Server-sent events."""

    quiet = b": still here\n\n"

    def data(self, messages: bytes) -> bytes:
        return b"event: data\ndata: " + messages + b"\n\n"

    def control(self, offset: str, shown: bytes) -> bytes:
        return b"id: %b\nevent: control\ndata: %b\n\n" % (offset.encode(), shown)


class TextForm:
    """Frames of a WebSocket, each a text of JSON: an array of messages, or an object that says where it is."""

    quiet = text_frame(b"[]")

    def data(self, messages: bytes) -> bytes:
        return text_frame(messages)

    def control(self, offset: str, shown: bytes) -> bytes:
        return text_frame(shown)


EVENTS, TEXTS = EventForm(), TextForm()


class LiveStream:
    """What one connection is sent: snapshots of what is ``fresh``, then steps."""

    def __init__(self, live: LiveViews, form: LiveForm, *, several: bool = False) -> None:
        """``several``: each event says of which subscription it is."""
        self.live = live
        self.connection = LiveConnection()
        self.fresh: deque[Subscription] = deque()
        self.said: list[bytes] = []
        """Of no subscription."""
        self._form = form
        self._several = several
        self._cursor = ""
        self._straight: StraightWay | None = None
        self._failed: Exception | None = None

    async def run(
        self,
        write: Callable[[bytes], Awaitable[None]],
        straight: StraightWay | None,
        idle: float | None = None,
    ) -> None:
        """Until the client has gone, or nothing is watched: for so many seconds, where ``idle`` is given."""
        connection = self.connection
        if straight is not None:
            self._straight, connection.deliver = straight, self._deliver
        # At the least something, so that the client hears at once that it is heard.
        pieces = [] if self.fresh else [self._form.quiet]
        while not connection.gone:
            pieces += self._new()
            if pieces:
                connection.sent = monotonic()
                await write(b"".join(pieces))
                pieces = []
            if not connection.subscriptions and idle is None:
                return
            if connection.pending or self.fresh or self.said:
                continue
            if monotonic() - connection.sent > QUIET_SECONDS and connection.subscriptions:
                pieces.append(self._form.quiet)
                continue
            try:
                async with asyncio.timeout(None if connection.subscriptions else idle):
                    await connection.wait()
            except TimeoutError:
                return
            if self._failed is not None:
                raise self._failed

    def _deliver(self) -> bool:
        """Write what is new while :meth:`run` waits for it, which costs no task its turn. False: it is for ``run``."""
        connection, straight = self.connection, self._straight
        if self.fresh or self.said or not connection.pending or connection.gone:
            return False
        if straight is None or not straight.takes():
            return False
        try:
            straight.put(b"".join(self._new()))
        except Exception as error:  # What it was to say is lost, so the stream ends; the loop has others to serve.
            self._failed = error
            return False
        connection.sent = monotonic()
        return bool(connection.subscriptions)

    def _new(self) -> list[bytes]:
        connection = self.connection
        self._cursor = cursor()
        pieces, self.said = self.said, []
        while self.fresh:
            pieces.append(self._begun(self.fresh.popleft()))
        while connection.pending:
            own = next(iter(connection.pending))
            del connection.pending[own]
            pieces.append(self._steps(own))
            if own.ended:
                connection.subscriptions.pop(own, None)
                self.live.drop(own)
        return pieces

    def _begun(self, own: Subscription) -> bytes:
        """Its snapshot, as of now."""
        own.take()
        if not own.ended:
            own.connection.pending.pop(own, None)
        return self._form.data(snapshot_of(own.topic, own.name)) + self._now(own)

    def _steps(self, own: Subscription) -> bytes:
        """What is new: an event of each step, and then where it is."""
        topic = own.topic
        if own.ended:
            return self._now(own, own.ended)
        behind = topic.now.number - own.step.number
        if behind > 1 or own.reopened != topic.migrations:
            return self._several_steps(own)
        # What nearly all events are. All who call the answer the same are sent the same: it is written once.
        own.step, own.offset = topic.now, topic.offset
        key = self._form, self._several, behind, self._cursor, own.name
        found = None if own.is_new else topic.written.get(key)
        if found is None:
            shares = not own.is_new and len(topic.written) < MOST_WRITTEN
            found = self._data(own, topic.now) + self._now(own) if behind else self._now(own)
            if shares:
                topic.written[key] = found
        return found

    def _several_steps(self, own: Subscription) -> bytes:
        topic = own.topic
        pieces = []
        for step in own.take():
            pieces.append(self._data(own, step))
            if step is not topic.now:
                place = _place(topic, step.offset, tokens.encode(clock_of(step.vector)), step.vector, False)
                pieces.append(self._control(own, step.offset, place))
        return b"".join([*pieces, self._now(own)])

    def _data(self, own: Subscription, step: TopicStep) -> bytes:
        return self._form.data(messages_of(step, own.name))

    def _now(self, own: Subscription, ended: str = "") -> bytes:
        """That it has ended is said once, and last: a snapshot may come before it."""
        topic, key = own.topic, self._cursor
        place = topic.written.get(key) if not ended else None
        if place is None:
            place = _place(topic, topic.offset, topic.token, topic.vector, not ended)
            if not ended:
                topic.written[key] = place
        return self._control(own, topic.offset, place, ended)

    def _control(self, own: Subscription, offset: str, place: bytes, ended: str = "") -> bytes:
        """Where a subscription is, with what is its own."""
        topic = own.topic
        if self._several:
            place += b',"subscription":' + serialize(own.name)
            if own.is_new and topic.lookup.types:
                place += b',"types":"%b"' % topic.lookup.types
        own.is_new = False
        if ended:
            place += b',"ended":' + serialize(ended)
        if own.reopened != topic.migrations:
            own.reopened = topic.migrations
            place += b',"migrated":true'
        return self._form.control(offset, place + b"}")


def _place(topic: Topic, offset: str, token: str, vector: Vector, is_now: bool) -> bytes:
    """Where an answer is, for all who follow it: a ``control`` but for its end."""
    shown: dict[str, Any] = {
        "streamNextOffset": offset,
        "streamCursor": cursor(),
        "upToDate": is_now,
        "token": token,
    }
    if parts := topic.parts_at(vector):
        shown["parts"] = [
            {"keys": [list(map(json_value, key)) for key in keys], "token": tokens.encode(clock)}
            for keys, clock in parts
        ]
    return serialize(shown)[:-1]


def cursor() -> str:
    return str(int(time() // CURSOR_SECONDS))


def messages_of(step: TopicStep, name: str) -> bytes:
    """A step's messages, as those of a subscription of this name."""
    return _listed(step.messages, name)


def snapshot_of(topic: Topic, name: str) -> bytes:
    rows = _listed(caught_up(topic), name)
    return b",".join([b"[" + SNAPSHOT_START, *([rows[1:-1]] if len(rows) > 2 else []), SNAPSHOT_END + b"]"])


def _listed(messages: Sequence[bytes], name: str) -> bytes:
    if not messages:
        return b"[]"
    begin = b'{"type":' + serialize(name) + b","
    return b"[" + begin + (b"}," + begin).join(messages) + b"}]"
