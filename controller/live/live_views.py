"""All that is watched through one process: topics, subscriptions, their limits, and what happens as time passes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Protocol, TypeVar

from controller.access.session import Caller
from controller.hosts import Hosts
from controller.live.limits import LiveLimits
from controller.live.steps import TopicStep, snapshot
from controller.live.topics import Topic
from controller.lookups.binding import Binding, RequestMoment
from controller.lookups.view_lookup import ViewLookup
from controller.statements.listing import unique_of
from domains.errors import HeadraceError, LimitExceeded, NotFound, Unavailable, Unsupported
from domains.plan.packets import Clock
from migrations.access.rights import Right
from migrations.flow.plan import State
from worker.dataflow.batch import Ended
from worker.reader_map import BoundLookup

TICK_SECONDS = 0.5
"""Between two looks at all topics and subscriptions: rights that are revoked end a stream within twice as long."""
PROGRESS_SECONDS, LONGEST_PROGRESS = 1.0, 5.0
"""After so long the offset of a topic whose rows did not change is told, if it has moved; with many subscriptions it is
told less often, as that costs as much as an event does."""
PROGRESSES_A_SECOND = 2_000
QUIET_SECONDS = 15.0
"""After so long something is sent, lest somebody on the way takes the connection for dead."""
LINGER_SECONDS = 30.0
"""A topic without subscriptions is kept for so long: whoever has just caught up comes back for what follows, and
so does whoever has lost the connection."""


ITEMS_A_TURN, TOLD_A_TURN = 200, 50
TURN_SECONDS = 0.002
"""Of 10,000 topics a look at all takes a tenth of a second, and the loop a millisecond at a time. One that has moved is
told to all who follow it, which with ten of them takes 50 µs."""
Item = TypeVar("Item")


Bind = Callable[[Binding, RequestMoment], BoundLookup]
"""Gives the parameters of a view their values."""


class LivePort(Protocol):
    """What live views need of a deployment."""

    hosts: Hosts
    read_timeout: float

    @property
    def state(self) -> State: ...

    def prepare(self, view: str) -> ViewLookup: ...

    async def ready(self, view: str) -> ViewLookup: ...


class Followed(Protocol):
    """A SELECT as a look-up of a view."""

    @property
    def view(self) -> str: ...

    @property
    def needed(self) -> frozenset[Right]: ...

    @property
    def bind(self) -> Bind: ...


class SelectPort(Protocol):
    """See ``statements/followed.py``."""

    async def follow(self, sql: str, params: Sequence[Any], caller: Caller, most: int) -> Followed: ...

    def hold(self, view: str) -> None: ...

    def leave(self, view: str) -> None: ...


class LiveConnection:
    """Who has subscriptions, and is woken when there is something for one of them."""

    def __init__(self) -> None:
        self.subscriptions: dict[Subscription, None] = {}
        self.pending: dict[Subscription, None] = {}
        self.deliver: Callable[[], bool] | None = None
        """Sends what is pending at once, if it can; else who waits does."""
        self._due = False
        """It is woken once for all that a turn of the loop brings."""
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self.gone = False
        """Whether the client has closed it."""
        self.sent = monotonic()
        """When something was sent last."""

    def wake(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        waiter = self._waiter
        if waiter is None:
            self._woken = True
        elif not waiter.done() and not (self.deliver is not None and self.deliver()):
            waiter.set_result(None)

    async def wait(self) -> None:
        """Until there may be something to send, which ``deliver`` could not."""
        if not self._woken:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._woken = False


class Subscription:
    """A place among a topic's steps."""

    __slots__ = (
        *("caller", "claims", "connection", "ended", "is_new", "name", "needed", "offset", "reopened", "step", "topic"),
    )

    def __init__(
        self, topic: Topic, connection: LiveConnection, name: str, caller: Caller, step: TopicStep, offset: str
    ):
        self.topic = topic
        self.needed = topic.needed
        """What who asks may, at every moment."""
        self.connection = connection
        self.name = name
        """What its messages are of: their ``type``."""
        self.caller = caller
        self.claims = caller.policy_claims
        self.step = step
        self.offset = offset
        """What was sent last."""
        self.ended = ""
        """Why it is over."""
        self.reopened = topic.migrations
        self.is_new = True
        """It was told nothing yet."""

    def wake(self) -> None:
        self.connection.pending[self] = None
        self.connection.wake()

    def end(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self.wake()

    def take(self) -> list[TopicStep]:
        """The steps that are not sent yet; the net difference as one, where some of them are not known any more."""
        topic = self.topic
        steps = topic.since(self.step)
        found = [topic.net(self.step)] if steps is None else list(steps)
        self.step, self.offset = topic.now, topic.offset
        return found

    def net(self) -> TopicStep:
        """What is not sent yet, as one step."""
        step, self.step, self.offset = self.topic.net(self.step), self.topic.now, self.topic.offset
        return step

    def check(self) -> None:
        """Ends it where who asks may not go on."""
        try:
            now = self.caller.renewed()
            now.check_all(self.needed)
        except HeadraceError as error:
            self.end("expired" if error.code == "unauthenticated" else "forbidden")
        else:
            if now.policy_claims != self.claims:
                self.end("expired")


class LiveViews:
    """See the package. It lives on one event loop."""

    def __init__(self, port: LivePort, selects: SelectPort) -> None:
        self._port = port
        self._selects = selects
        self.limits = LiveLimits()
        self._topics: dict[tuple[str, BoundLookup], Topic] = {}
        self._subscriptions: dict[Subscription, None] = {}
        self._ticking: asyncio.Task[None] | None = None
        self.evicted = 0
        """Subscriptions that were ended by a limit, or for want of memory."""
        self.stopping = False
        self._tables: object = None
        self._uniques: dict[str, Sequence[str] | None] = {}
        """What tells the rows of a view apart, while the tables are these."""

    # --- opening ----------------------------------------------------------------------------------------------------

    async def topic(
        self,
        view: str,
        bind: Bind,
        caller: Caller,
        token: Clock | None = None,
    ) -> Topic:
        """The answer that a read would give now, kept up to date; where there is a token, it reflects that.

        Raises what a read raises; Unsupported for a view whose answer depends on the time.
        """
        if self.stopping:
            raise Unavailable("the server is stopping", hint="connect again")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._port.read_timeout
        lookup = await self._port.ready(view)
        if lookup.binding.of_time:
            raise Unsupported(
                f'a live view of "{lookup.info.name}": its answer changes with the time, without a write',
                hint="give the moment as a parameter",
            )
        bound = bind(lookup.binding, RequestMoment(asker=caller))
        key = view.lower(), bound
        topic = self._topics.get(key)
        if topic is not None and (topic.lost is not None or topic.lookup.stale):
            self._again(key, topic)  # The view may be another one since, or have moved.
            topic = self._topics.get(key)
        if topic is None or topic.error is not None:
            self._check_room()
            topic = Topic(lookup, bound, self._unique(key[0]), self.limits.live_steps)
            self._topics[key] = topic
            self._selects.hold(key[0])
            topic.watch(self._port.hosts)
        topic.unused_since = monotonic()
        self._tick_on()
        await topic.until(lambda: bool(topic.steps), deadline, "could not be filled")
        if token is not None:
            await self._reach(topic, token, deadline)
        return topic

    async def reach(self, topics: Iterable[Topic], token: Clock) -> None:
        """Until answers reflect a write, of which who follows them is told, also where it changed nothing there.

        :raises Unavailable: it takes too long."""
        deadline = asyncio.get_running_loop().time() + self._port.read_timeout
        for topic in dict.fromkeys(topics):
            await self._reach(topic, token, deadline)

    async def _reach(self, topic: Topic, token: Clock, deadline: float) -> None:
        if topic.reflects(token):
            return
        await topic.lookup.fill([topic.bound], token, deadline)
        self._port.hosts.catch_up()
        topic.progress()
        topic.hurried += 1  # Where the rows did not change, somebody has to look whether the clock has.
        try:
            await topic.until(lambda: topic.reflects(token), deadline, "did not reach the token")
        finally:
            topic.hurried -= 1

    async def select(
        self, sql: str, params: Sequence[Any], caller: Caller, token: Clock | None
    ) -> tuple[Topic, frozenset[Right]]:
        """The same of a SELECT, by the view that answers it, and what who follows it may."""
        followed = await self._selects.follow(sql, params, caller, self.limits.max_live_selects)
        try:
            return await self.topic(followed.view, followed.bind, caller, token), followed.needed
        finally:
            self._selects.leave(followed.view)  # The topic holds it by itself.

    def _unique(self, view: str) -> Sequence[str] | None:
        """What tells the view's rows apart. It is planned once for as long as no table is another one."""
        state = self._port.state
        if self._tables is not state.catalog.tables:
            self._tables = state.catalog.tables
            self._uniques.clear()
        if view not in self._uniques:
            self._uniques[view] = unique_of(state, view)
        return self._uniques[view]

    def _size(self) -> int:
        return sum(topic.size for topic in self._topics.values())

    def _check_room(self) -> None:
        if self._size() <= self.limits.max_live_size:
            return
        for key, topic in list(self._topics.items()):
            if not topic.subscriptions and topic.steps:
                self._close(key, topic)
        if self._size() > self.limits.max_live_size:
            raise LimitExceeded(
                f'the rows of all live views exceed "max_live_size", {self.limits.max_live_size} bytes',
                hint="watch fewer rows, or start the server with a greater max_live_size",
            )

    def subscribe(
        self,
        topic: Topic,
        connection: LiveConnection,
        name: str,
        caller: Caller,
        offset: str | None = None,
        needed: frozenset[Right] | None = None,
    ) -> Subscription | None:
        """From an offset on, or from now; None where the topic does not know the offset any more."""
        limits = self.limits
        step = topic.now if offset is None else topic.at(offset)
        if step is None:
            return None
        if len(connection.subscriptions) >= limits.max_live_per_connection:
            raise LimitExceeded(
                f'the connection has "max_live_per_connection", {limits.max_live_per_connection} subscriptions',
                hint="open another, or start the server with a greater max_live_per_connection",
            )
        while len(self._subscriptions) >= limits.max_live:
            oldest = next(iter(self._subscriptions))
            del self._subscriptions[oldest]
            self.evicted += 1
            oldest.end("evicted")
        found = Subscription(topic, connection, name, caller, step, topic.offset if offset is None else offset)
        found.needed = found.needed if needed is None else needed
        self._subscriptions[found] = connection.subscriptions[found] = topic.subscriptions[found] = None
        if found.offset != topic.offset:
            found.wake()
        return found

    def leave(self, connection: LiveConnection) -> None:
        """Nobody reads any more: nothing of it is left."""
        for subscription in connection.subscriptions:
            self.drop(subscription)
        connection.subscriptions.clear()
        connection.pending.clear()

    def drop(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)
        topic = subscription.topic
        topic.subscriptions.pop(subscription, None)
        topic.unused_since = monotonic()

    def stop(self) -> None:
        """The server stops: all streams end, whose clients come again."""
        self.stopping = True
        for subscription in self._subscriptions:
            subscription.end("stopping")

    async def close(self) -> None:
        self.stop()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])

    # --- time -------------------------------------------------------------------------------------------------------

    def _tick_on(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        """As long as there is a topic."""
        told = monotonic()
        while self._topics:
            await asyncio.sleep(TICK_SECONDS)
            for key, topic in list(self._topics.items()):
                if topic.lost is not None or topic.lookup.stale:
                    self._again(key, topic)
            self._rename()
            self._port.hosts.catch_up()
            now = monotonic()
            wanted = min(LONGEST_PROGRESS, len(self._subscriptions) / PROGRESSES_A_SECOND)
            progresses = now - told >= max(PROGRESS_SECONDS, wanted)
            told = now if progresses else told
            async for subscription in _with_turns(list(self._subscriptions), ITEMS_A_TURN):
                if subscription.caller.rights is not None and subscription in self._subscriptions:
                    subscription.check()
                if now - subscription.connection.sent > QUIET_SECONDS:
                    subscription.connection.wake()
            topics = list(self._topics.items())
            async for key, topic in _with_turns(topics, TOLD_A_TURN if progresses else ITEMS_A_TURN):
                if self._topics.get(key) is not topic:
                    continue  # Closed since.
                if progresses or topic.waiting:
                    topic.progress()
                if not topic.subscriptions and now - topic.unused_since > LINGER_SECONDS:
                    self._close(key, topic)

    def _again(self, key: tuple[str, BoundLookup], topic: Topic) -> None:
        """The reader is elsewhere, or another: go on there, where it answers the same question."""
        if topic.lost is Ended.EVICTED:
            self.evicted += len(topic.subscriptions)
            self._end(key, topic, "evicted", Unavailable(f'memory is too short to watch view "{topic.view}"'))
            return
        try:
            lookup = self._port.prepare(key[0])
        except NotFound as error:
            self._end(key, topic, "dropped", error)
            return
        if lookup.info != topic.lookup.info or lookup.binding.reader != topic.lookup.binding.reader:
            self._end(key, topic, "replaced", Unavailable(f'view "{topic.view}" is another now', hint="read it anew"))
        elif lookup.shards:  # Else it is being built.
            topic.lookup = lookup
            topic.migrations += 1
            topic.watch(self._port.hosts)

    def _rename(self) -> None:
        """After ALTER TABLE: rows that were told apart by a UNIQUE key that has gone have other names from now on."""
        if self._tables is self._port.state.catalog.tables:
            return
        for key, topic in list(self._topics.items()):
            if key[0] in self._port.state.planned and self._unique(key[0]) != topic.names.unique:
                self._end(key, topic, "replaced", Unavailable(f'the rows of view "{topic.view}" have other names now'))

    def _end(self, key: tuple[str, BoundLookup], topic: Topic, why: str, error: HeadraceError) -> None:
        topic.fail(error)
        for subscription in list(topic.subscriptions):
            subscription.end(why)
        self._close(key, topic)

    def _close(self, key: tuple[str, BoundLookup], topic: Topic) -> None:
        if self._topics.get(key) is topic:
            del self._topics[key]
            self._selects.leave(key[0])
        topic.close()

    # --- what there is ----------------------------------------------------------------------------------------------

    def readers(self) -> Counter[tuple[str, str]]:
        """How many subscriptions there are, by the view's name in lower case and the account's."""
        return Counter((each.topic.view.lower(), each.caller.account) for each in self._subscriptions)

    def status(self) -> dict[str, Any]:
        return {
            "subscriptions": len(self._subscriptions),
            "topics": len(self._topics),
            "keys": sum(len(topic.bound.keys) for topic in self._topics.values()),
            "bytes": self._size(),
            "evicted": self.evicted,
        }


async def _with_turns(items: Sequence[Item], size: int) -> AsyncIterator[Item]:
    """All of them, with turns for others between."""
    for start in range(0, len(items), size):
        for item in items[start : start + size]:
            yield item
        if start + size < len(items):
            await asyncio.sleep(TURN_SECONDS)


def caught_up(topic: Topic) -> list[bytes]:
    """All rows of now, as messages."""
    return snapshot(topic.now.rows, topic.names, topic.ordered)
