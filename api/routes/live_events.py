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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import monotonic, time
from typing import Any, Protocol

from headrace_client import tokens

from api.doors.web_socket import text_frame
from api.encoding import serialize
from controller.live.live_views import QUIET_SECONDS, LiveConnection, LiveViews, Subscription, caught_up
from controller.live.steps import TopicStep, Vector, clock_of
from controller.live.topics import Topic
from domains.language.coercion import json_value

CURSOR_SECONDS = 20
"""The protocol's cursor changes so often: it sets requests of different times apart."""
SNAPSHOT_START, SNAPSHOT_END = b'{"headers":{"control":"snapshot-start"}}', b'{"headers":{"control":"snapshot-end"}}'


class LiveForm(Protocol):
    """How messages, and where a subscription is, become bytes."""

    quiet: bytes
    """What says that the connection is alive."""

    def data(self, messages: bytes) -> bytes: ...

    def control(self, shown: Mapping[str, Any]) -> bytes: ...


class EventForm:
    """Server-sent events."""

    quiet = b": still here\n\n"

    def data(self, messages: bytes) -> bytes:
        return b"event: data\ndata: " + messages + b"\n\n"

    def control(self, shown: Mapping[str, Any]) -> bytes:
        return b"id: %b\nevent: control\ndata: %b\n\n" % (shown["streamNextOffset"].encode(), serialize(shown))


class TextForm:
    """Frames of a WebSocket, each a text of JSON: an array of messages, or an object that says where it is."""

    quiet = text_frame(b"[]")

    def data(self, messages: bytes) -> bytes:
        return text_frame(messages)

    def control(self, shown: Mapping[str, Any]) -> bytes:
        return text_frame(serialize(shown))


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

    async def run(self, write: Callable[[bytes], Awaitable[None]], idle: float | None = None) -> None:
        """Until the client has gone, or nothing is watched: for so many seconds, where ``idle`` is given."""
        connection = self.connection
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

    def _new(self) -> list[bytes]:
        connection = self.connection
        pieces, self.said = self.said, []
        while self.fresh:
            pieces.append(self._begun(self.fresh.popleft()))
        while connection.pending:
            own = next(iter(connection.pending))
            del connection.pending[own]
            pieces += self._steps(own)
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

    def _steps(self, own: Subscription) -> list[bytes]:
        """What is new: an event of each step, and then where it is."""
        topic = own.topic
        if own.ended:
            return [self._now(own, own.ended)]
        steps = own.take()
        if len(steps) == 1 and steps[0].offset == topic.offset and own.reopened == topic.migrations:
            # What nearly all events are. All who call it as the view is called are sent the same: it is written once.
            if own.name != topic.view:
                return [self._data(own, steps[0]), self._now(own)]
            key = self._form, self._several, cursor()
            if key not in topic.written:
                topic.written[key] = self._data(own, steps[0]) + self._now(own)
            return [topic.written[key]]
        pieces = []
        for step in steps:
            pieces.append(self._data(own, step))
            if step is not topic.now:
                pieces.append(self._control(own, step.offset, tokens.encode(clock_of(step.vector)), step.vector))
        return [*pieces, self._now(own)]

    def _data(self, own: Subscription, step: TopicStep) -> bytes:
        return self._form.data(b"[" + messages_of(step, own) + b"]")

    def _now(self, own: Subscription, ended: str = "") -> bytes:
        return self._control(own, own.topic.offset, own.topic.token, own.topic.vector, ended)

    def _control(self, own: Subscription, offset: str, token: str, vector: Vector, ended: str = "") -> bytes:
        """Where a subscription is. That it has ended is said once, and last: a snapshot may come before it."""
        topic = own.topic
        shown: dict[str, Any] = {
            "streamNextOffset": offset,
            "streamCursor": cursor(),
            "upToDate": offset == topic.offset and not ended,
            "token": token,
        }
        if parts := topic.parts_at(vector):
            shown["parts"] = [
                {"keys": [list(map(json_value, key)) for key in keys], "token": tokens.encode(clock)}
                for keys, clock in parts
            ]
        if self._several:
            shown["subscription"] = own.name
        if ended:
            shown["ended"] = ended
        if own.reopened != topic.migrations:
            own.reopened = topic.migrations
            shown["migrated"] = True
        return self._form.control(shown)


def cursor() -> str:
    return str(int(time() // CURSOR_SECONDS))


def messages_of(step: TopicStep, own: Subscription) -> bytes:
    """A step's messages, without the brackets. They are kept for those who call it as the view is called: a name of
    its own is one subscription's, and its bytes would stay here for each step."""
    if own.name != own.topic.view:
        return b",".join(_named(step.messages, own.name))
    if step.written is None:
        step.written = b",".join(_named(step.messages, own.name))
    return step.written


def snapshot_of(topic: Topic, name: str) -> bytes:
    return b"[" + b",".join([SNAPSHOT_START, *_named(caught_up(topic), name), SNAPSHOT_END]) + b"]"


def _named(messages: Iterable[bytes], name: str) -> list[bytes]:
    begin = b'{"type":' + serialize(name) + b","
    return [begin + message + b"}" for message in messages]
