"""Requests to the worker that hosts a domain, also while the domain moves.

* A request that surely was not done (``NotHere``, or a connection that never took it) is repeated until the deadline,
  at the domain's present host.
* If the domain is on its way to the worker, the router waits for it there (``LinkRequest``); if the domain is given to
  another worker, it asks that one at once.
* A read that may have been done is repeated, too. A write is not: :class:`OutcomeUnknown`.
* When a domain is given to another worker, requests to the former one fail, since a process that hangs would never
  answer. A write has :data:`GRACE_SECONDS` more, since a worker that gives up its domains in order answers first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controller.cluster.serving.connections import Connections
from controller.cluster.serving.directory import Directory
from controller.cluster.state import Assignment
from domains.errors import HeadraceError, Locked, NotServed, OutcomeUnknown, Unavailable
from domains.plan.graph import DomainIndex
from worker.protocol.messages import ConnectionLost, NotHere
from worker.protocol.operations import LinkRequest
from worker.wire.connection import Connection
from zookeeper.registration import WorkerDescriptor

FIRST_PAUSE = 0.005
"""Seconds until a request is repeated. A recovery takes hundreds of times that, but an outdated directory is up to date
by then."""
LONGEST_PAUSE = 0.1
PATIENCE = 4
"""A pause is the time waited so far, divided by this. With pauses that double, a request could wait twice as long as
the domain is away, which is some 40 ms if it moves."""
LINK_SECONDS = 0.5
"""Seconds to wait for a domain to be linked before the directory is read again. A change of the directory ends the wait
earlier; only without ZooKeeper there is none."""
GRACE_SECONDS = 1.0


@dataclass(eq=False)
class RoutedRequest:
    """A request under way."""

    domain: DomainIndex
    place: Assignment | None
    """The domain's assignment when it was asked."""
    answer: asyncio.Future[Any]
    repeatable: bool


class DomainRouter:
    def __init__(self, directory: Directory, connections: Connections) -> None:
        self._directory = directory
        self._connections = connections
        self._asked: set[RoutedRequest] = set()
        directory.on_moved.append(self._moved)

    async def ask(
        self,
        domain: DomainIndex,
        message: Callable[[float], object],
        deadline: float,
        *,
        repeatable: bool,
        outdated: Callable[[], HeadraceError | None] = lambda: None,
    ) -> Any:
        """The answer of the domain's host to ``message``, which is given the seconds that are left.

        ``outdated`` is called before each repetition; its error, if any, is raised. Also raises what the worker
        answers, NotServed, OutcomeUnknown; TimeoutError if a repeatable request got no answer in time.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            failure: HeadraceError
            owner, place = self._directory.owner(domain), self._directory.assignment(domain)
            try:
                if owner is None:
                    raise NotServed(f"no worker has domain {domain} now")
                return await self.once(domain, place, owner, message, deadline, repeatable=repeatable)
            except (NotHere, NotServed) as error:
                failure = error
            except ConnectionLost as error:
                if error.sent and not repeatable:
                    raise _unknown(error.message) from error
                failure = error
            except Unavailable as error:
                if not repeatable or isinstance(error, Locked):
                    raise  # Who wants a lock has a patience of its own.
                failure = error
            coming = self._is_coming(failure)
            if owner is None or not (coming and await self._is_linked(domain, owner, place, deadline)):
                await self._pause(domain, place, loop.time() - began, failure, deadline)
            over = outdated()
            if over is not None:
                raise over from failure

    def _is_coming(self, failure: HeadraceError) -> bool:
        """Whether the worker will get the domain. If it follows a later epoch than our directory, it has lost it."""
        decided = self._directory.cluster
        return (
            isinstance(failure, NotHere) and failure.unlinked and decided is not None and failure.epoch <= decided.epoch
        )

    async def _is_linked(
        self, domain: DomainIndex, owner: WorkerDescriptor, place: Assignment | None, deadline: float
    ) -> bool:
        """Wait until the host has linked the domain; False if the domain goes elsewhere, or it takes too long."""
        until = min(deadline, asyncio.get_running_loop().time() + LINK_SECONDS)
        try:
            await self.once(domain, place, owner, lambda left: LinkRequest(domain, left), until)
        except (NotHere, Unavailable, TimeoutError):
            return False
        return True

    async def _pause(
        self, domain: DomainIndex, place: Assignment | None, waited: float, failure: HeadraceError, deadline: float
    ) -> None:
        """Returns when to ask again: at once if the domain is elsewhere. Raises NotServed."""
        pause = min(max(FIRST_PAUSE, waited / PATIENCE), LONGEST_PAUSE)
        if asyncio.get_running_loop().time() + pause >= deadline:
            raise NotServed(
                f"domain {domain} is not served now: {failure.message}",
                hint="its worker is away or being replaced; try again, GET /v1/status shows how far it is",
            ) from failure
        await self._directory.catch_up()
        if self._directory.assignment(domain) == place:
            await asyncio.sleep(pause)

    async def once(
        self,
        domain: DomainIndex,
        place: Assignment | None,
        owner: WorkerDescriptor,
        message: Callable[[float], object],
        deadline: float,
        *,
        repeatable: bool = True,
    ) -> Any:
        """``ask`` of this worker alone, for as long as the domain is placed there."""
        connection = self._connections.known(owner) or await self._connected(owner, deadline)
        if self._directory.assignment(domain) != place:  # ``_moved`` comes only for later changes.
            raise NotServed(f'domain {domain} was taken from worker "{owner.name}" meanwhile')
        left = deadline - asyncio.get_running_loop().time()
        asked = RoutedRequest(domain, place, connection.ask(message(max(0.0, left))), repeatable)
        self._asked.add(asked)
        try:
            async with asyncio.timeout_at(deadline):
                return await asked.answer
        except TimeoutError:
            if not repeatable:
                raise _unknown(f'worker "{owner.name}" did not answer in time') from None
            raise
        finally:
            self._asked.discard(asked)

    async def _connected(self, owner: WorkerDescriptor, deadline: float) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._connections.to(owner)
        except TimeoutError:
            raise ConnectionLost(f'worker "{owner.name}" was not reached in time') from None

    def _moved(self) -> None:
        for asked in list(self._asked):
            if self._directory.assignment(asked.domain) != asked.place:
                if asked.repeatable:
                    _give_up(asked)
                else:
                    asyncio.get_running_loop().call_later(GRACE_SECONDS, _give_up, asked)


def _give_up(asked: RoutedRequest) -> None:
    if not asked.answer.done():
        asked.answer.set_exception(ConnectionLost("the domain was given to another worker meanwhile", sent=True))


def _unknown(why: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"it is not known whether the write was done: {why}", hint="look before you send it again")
