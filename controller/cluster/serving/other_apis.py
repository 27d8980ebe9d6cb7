"""The other api processes of a cluster: what they were asked, and what they perform now.

::

    SHOW QUERIES, SHOW PROCESSLIST ──► znodes of all api processes ──► asked together, each over one connection
    KILL 3000000000007 ──► the process of number 3
    Headrace-Transaction: …-18f2a… ──► the process of this incarnation, which has begun it

Each api process counts what it is asked for itself and needs none of the others. Only these lists ask them, and a
process that does not answer within :data:`PATIENCE` is named in the answer. A connection is made at the first request
and kept while the other process is registered.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import astuple
from typing import Any, Protocol, TypeVar

from controller.cluster.serving.connections import Connections
from controller.statement_lists import Listing, MissingProcess, QueryInfo, RunningInfo
from controller.statements.running import unknown
from domains.errors import HeadraceError, OutcomeUnknown, TransactionEnded, Unavailable
from worker.protocol.messages import Hello, ProtocolError, Role
from worker.protocol.operations import (
    AskedShapesRequest,
    ForwardedAnswer,
    ForwardedRequest,
    Listed,
    RunningRequest,
    StopRequest,
)
from worker.wire.connection import Connection
from worker.wire.server import WireServer
from zookeeper.authority import ClusterAuthority
from zookeeper.errors import AuthorityError
from zookeeper.registration import EVERYWHERE, ApiDescriptor, NumberedRegistration

PATIENCE = 1.0
"""Seconds for ZooKeeper, and then for all processes together."""

Each = TypeVar("Each")
Answering = Callable[[ForwardedRequest], Awaitable[ForwardedAnswer]]


class OwnLists(Protocol):
    """The lists of this process; see :class:`controller.statements.running.Lists`."""

    def own_queries(self) -> list[QueryInfo]: ...

    def own_running(self) -> list[RunningInfo]: ...

    def stop_own(self, id: int) -> RunningInfo: ...


class OtherApis:
    """Asks the other api processes, and answers them on a port of its own."""

    def __init__(self, authority: ClusterAuthority, hello: Hello, own: OwnLists) -> None:
        self.name = hello.name
        self._authority = authority
        self._own = own
        self._server = WireServer(hello.deployment, self._answer, hello.name, hello.incarnation)
        self._server.secret, self._server.door = authority.secret, Role.API
        self._connections = Connections(hello, authority.secret)
        self._registration: NumberedRegistration | None = None
        self._described: ApiDescriptor | None = None
        self._known: dict[int, ApiDescriptor] = {}
        """The others, as ZooKeeper has told them last."""
        self.answering: Answering | None = None
        """Answers what others pass on."""

    @property
    def number(self) -> int:
        return 0 if self._registration is None else self._registration.number

    async def begin(self, host: str, port: int, advertise: str | None) -> None:
        """Listen for the others, and be known to them. Raises Unavailable: the port is taken."""
        await self._server.listen(host, port)
        place = advertise or (socket.gethostname() if host in EVERYWHERE else host)
        self._described = ApiDescriptor(self.name, place, self._server.port, self._server.incarnation, os.getpid())
        self._registration = await self._authority.register_api(self._described)

    # --- asked by the others --------------------------------------------------------------------------------------

    def _answer(self, connection: Connection, message: Any) -> Listed | Awaitable[ForwardedAnswer]:
        found: list[QueryInfo] | list[RunningInfo]
        match message:
            case AskedShapesRequest():
                found = self._own.own_queries()
            case RunningRequest():
                found = self._own.own_running()
            case StopRequest(id=id):
                found = [self._own.stop_own(id)]
            case ForwardedRequest() if self.answering is not None:
                return self.answering(message)
            case _:
                raise ProtocolError(f'"{type(message).__name__}" is not asked of an api process')
        return Listed(tuple(map(astuple, found)))

    # --- asking them ----------------------------------------------------------------------------------------------

    async def queries(self) -> Listing[QueryInfo]:
        return await self._all(AskedShapesRequest(), lambda row: QueryInfo(*row))

    async def running(self) -> Listing[RunningInfo]:
        return await self._all(RunningRequest(), lambda row: RunningInfo(*row))

    async def stop(self, process: int, id: int) -> RunningInfo:
        """Raises NotFound, Unavailable."""
        await self._look()
        api = self._known.get(process)
        if api is None:
            raise unknown(id)
        told = await self._ask(api, StopRequest(id))
        if isinstance(told, str):
            raise Unavailable(f'api process "{api.name}", which performs it, does not answer: {told}')
        (stopped,) = told.rows
        return RunningInfo(*stopped)

    async def forward(self, process: int, request: ForwardedRequest) -> ForwardedAnswer:
        """The answer of the process of an incarnation.

        :raises TransactionEnded: it is gone, and with it what it had begun. :raises Unavailable: it does not answer.
        :raises OutcomeUnknown: it has gone while it was asked."""
        api = self._of(process) or await self._registered(process)
        try:
            async with asyncio.timeout(PATIENCE):
                connection = await self._connections.to(api)
        except (TimeoutError, Unavailable) as error:
            await self._registered(process)
            raise Unavailable(
                f'api process "{api.name}", which has begun the transaction, does not answer', hint="try again"
            ) from error
        try:
            answer: ForwardedAnswer = await connection.ask(request)
        except Unavailable as error:
            raise OutcomeUnknown(
                f'api process "{api.name}", which has begun the transaction, has gone meanwhile: {error.message}',
                hint="look before it is done again",
            ) from error
        return answer

    async def _registered(self, process: int) -> ApiDescriptor:
        trouble = await self._look()
        api = self._of(process)
        if api is None and trouble is not None:
            raise Unavailable(f"the api process that has begun the transaction is not known: {trouble}")
        if api is None:
            raise TransactionEnded(
                "the api process that has begun the transaction is gone",
                hint="it is rolled back, unless its COMMIT was sent before and not answered; begin another one",
            )
        return api

    def _of(self, process: int) -> ApiDescriptor | None:
        return next((api for api in self._known.values() if api.incarnation == process), None)

    async def alive(self) -> frozenset[int] | None:
        """The incarnations of all processes that are registered; None: that is not known now."""
        if await self._look() is not None or self._described is None:
            return None
        return frozenset({self._described.incarnation, *(api.incarnation for api in self._known.values())})

    async def _all(self, message: AskedShapesRequest | RunningRequest, read: Callable[..., Each]) -> Listing[Each]:
        trouble = await self._look()
        missing = [] if trouble is None else [MissingProcess("any that ZooKeeper knows", trouble)]
        others = list(self._known.values())
        found: list[Each] = []
        told = await asyncio.gather(*(self._ask(api, message) for api in others), return_exceptions=True)
        for api, answer in zip(others, told, strict=True):
            if isinstance(answer, Listed):
                found.extend(map(read, answer.rows))
            elif isinstance(answer, HeadraceError | str):
                why = answer if isinstance(answer, str) else answer.message
                missing.append(MissingProcess(f"{api.name} at {api.host}:{api.port}", why))
            else:
                raise answer
        return Listing(found, missing)

    async def _look(self) -> str | None:
        """Look who is there. Why that is not known now; the last that was known counts then."""
        try:
            async with asyncio.timeout(PATIENCE):
                there = await self._authority.apis()
        except AuthorityError as error:
            return error.message
        except TimeoutError:
            return "ZooKeeper does not answer"
        mine = self._described
        # A process whose session was lost may stand there twice for a moment.
        others = {(api.name, api.incarnation): number for number, api in there.items() if api != mine}
        self._known = {number: there[number] for number in others.values()}
        self._connections.keep(self._known.values())
        return None

    async def _ask(self, api: ApiDescriptor, message: object) -> Listed | str:
        """The answer, or why there is none. Raises what the other process answers."""
        try:
            async with asyncio.timeout(PATIENCE):
                connection = await self._connections.to(api)
                answer: Listed = await connection.ask(message)
        except TimeoutError:
            return f"it did not answer within {PATIENCE:g} s"
        except Unavailable as error:
            return error.message
        return answer

    async def close(self) -> None:
        if self._registration is not None:
            self._registration.stop()
        await self._connections.close()
        await self._server.close()
