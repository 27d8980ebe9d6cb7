"""What waits at a worker's port until something is known: api processes for a domain to be linked here, and a new
leader's messages until ZooKeeper's state has its epoch.

A worker obeys the greatest epoch that it has heard of, and refuses lower ones. So whoever could make it believe in an
epoch that no leader has would leave it without a leader for good. Leaders write an epoch into the state before they use
it, so a worker that hears of a greater one reads the state first::

    Ping(7) ─► greater than 6? ──no──► obeyed at once
                    │ yes
                    └─► waits ─► the state has 7? ──yes──► obeyed, in the order in which they came
                                                └──no───► BadRequest: nothing has changed
"""

from __future__ import annotations

import asyncio
import inspect
import re
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from domains.errors import BadRequest, HeadraceError, Overloaded, Unavailable
from domains.plan.graph import DomainIndex
from worker.protocol.messages import Done, NotHere
from zookeeper.authority import ClusterAuthority
from zookeeper.errors import AuthorityError

WAITING_MAX = 10_000
"""Messages of leaders that wait for the state at once. A recovery sends some to each domain."""
HEAD_BYTES = 4096
"""Bytes of the unpacked state that are looked at: its epoch stands in the first 200."""
_EPOCH = re.compile(rb'"epoch": (\d{1,18}),')


def epoch_of(state: bytes | None) -> int:
    """The epoch in a cluster's state, without reading the rest of it: a recipe has megabytes. 0: there is none."""
    if state is None:
        return 0
    try:
        found = _EPOCH.search(zlib.decompressobj().decompress(state, HEAD_BYTES))
    except zlib.error:
        found = None
    return int(found[1]) if found is not None else 0


def decided_epochs(authority: ClusterAuthority) -> Callable[[], Awaitable[int]]:
    """The epoch of the state, each time it is asked. Raises Unavailable."""

    async def decided() -> int:
        try:
            state, _ = await authority.read()
        except AuthorityError as error:
            raise Unavailable(error.message, hint=error.hint) from error
        return epoch_of(state)

    return decided


class FromLeader(Protocol):
    @property
    def epoch(self) -> int: ...


class LeaderEpochs:
    """Begins the messages of leaders, in the order in which they came. On the event loop."""

    def __init__(
        self, known: Callable[[], int], obey: Callable[[Any], Any], decided: Callable[[], Awaitable[int]] | None
    ) -> None:
        """``known`` is the epoch that is followed, ``obey`` begins a message. Without ``decided`` all are believed."""
        self._known = known
        self._obey = obey
        self._decided = decided
        self._waiting: list[tuple[FromLeader, asyncio.Future[Any]]] = []
        self._looking: asyncio.Task[None] | None = None

    def take(self, message: FromLeader) -> Any:
        """What ``obey`` answers to it, or an awaitable of that."""
        if message.epoch <= self._known() or self._decided is None:
            return self._obey(message)
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} messages of leaders wait for ZooKeeper already", hint="try again later")
        begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, begun))
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(self._decided), name="epoch of the state")
        return _answered(begun)

    async def _look(self, decided: Callable[[], Awaitable[int]]) -> None:
        while waiting := len(self._waiting):
            epoch, failed = 0, None
            try:
                epoch = await decided()
            except HeadraceError as error:
                failed = error
            # Those that came meanwhile may be of an epoch that was decided after the state was read.
            asked, self._waiting = self._waiting[:waiting], self._waiting[waiting:]
            for message, begun in asked:
                if not begun.done():
                    self._begin(message, begun, epoch, failed)
        self._looking = None

    def _begin(self, message: FromLeader, begun: asyncio.Future[Any], epoch: int, failed: HeadraceError | None) -> None:
        try:
            if failed is not None:
                raise failed
            if message.epoch > epoch:
                raise BadRequest(
                    f"no leader has epoch {message.epoch}: the state in ZooKeeper has {epoch}",
                    hint="a leader writes its epoch there before it uses it",
                )
            begun.set_result(self._obey(message))
        except Exception as error:  # As if the handler had raised it: it is answered, or logged as a fault.
            begun.set_exception(error)


async def _answered(begun: asyncio.Future[Any]) -> Any:
    answer = await begun
    return await answer if inspect.isawaitable(answer) else answer


class LinkWaits:
    """Api processes that know that a domain comes to this worker, and wait until it is linked. On the event loop.

    Nobody misses a link: each wait looks first, and ``look_again`` comes after each change.
    """

    def __init__(self, is_linked: Callable[[DomainIndex], bool]) -> None:
        self._is_linked = is_linked
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Domains have been linked."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, domain: DomainIndex, within: float) -> Done:
        try:
            async with asyncio.timeout(within):
                while not self._is_linked(domain):
                    await self._changed.wait()
        except TimeoutError:
            raise NotHere(f"domain {domain} was not linked here within {within:g} s", unlinked=True) from None
        return Done()
