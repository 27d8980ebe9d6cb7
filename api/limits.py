"""Limits of what clients may bring and hold, and the one count that both ways in keep of it.

Each limit is a setting of the same name. The error that it raises says that name, its value and what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from controller.live.limits import LiveLimits
from controller.transactions.limits import Isolation, TransactionLimits
from domains.errors import (
    BadRequest,
    HeadersTooLarge,
    HeadraceError,
    LimitExceeded,
    Overloaded,
    RequestTooSlow,
    TooManyRequests,
    UrlTooLong,
)
from migrations.parse.measure import SqlLimits
from worker.service.cycles import CycleCollector

MAX_BODY_BYTES = 32_000_000
"""The most bytes of one body. Not more, because a body stands in memory several times (bytes, parsed, coerced) while
its one step runs; not less, so that a bulk load may send tens of thousands of rows at once."""

HEADER_OVERHEAD = 32
"""Bytes that a header counts beside its text, as in HTTP/2 (RFC 9113, 6.5.2): an empty one takes memory, too."""

CONNECTION_BYTES = 12_000
"""Bytes that an idle connection takes: its socket, protocol, parser and timers."""

SMALL_REQUEST = 2_000
"""Bytes that come together. Such ones are taken beyond ``max_in_flight``, which a few clients with large bodies may use
up: a poll, or KILL."""
PIECES_A_TURN = 8
"""Pieces of long bodies, of up to 256 kB, that are read in one turn of the event loop, a quarter of a millisecond each:
60 bodies that come at once would have the loop for 15 ms in each turn. With 4 they come slower on a busy machine."""
FOR_SMALL = 8
"""One part in so many of ``max_in_flight`` is for small requests alone."""

_LIVE = LiveLimits()
_TRANSACTIONS = TransactionLimits()

Receive = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Limits(SqlLimits):
    """The limits of one process that answers HTTP."""

    max_body_size: int = MAX_BODY_BYTES
    max_header_size: int = 64_000
    max_pipelined: int = 100
    max_message_size: int = 1_000_000
    """Of a WebSocket: a thousand subscriptions with a kilobyte each."""
    max_in_flight: int = 128_000_000
    """Four of the greatest bodies. What fits into one read of a socket is never refused for it."""
    max_answer_size: int = 64_000_000
    max_connections: int = 10_000
    max_connections_per_address: int = 2_000
    """A proxy in front has one address for all of its users."""
    max_waiting: int = 2_000
    max_live: int = _LIVE.max_live
    max_live_per_connection: int = _LIVE.max_live_per_connection
    max_live_selects: int = _LIVE.max_live_selects
    max_live_size: int = _LIVE.max_live_size
    live_steps: int = _LIVE.live_steps
    max_transactions: int = _TRANSACTIONS.max_transactions
    max_transaction_size: int = _TRANSACTIONS.max_transaction_size
    transaction_idle: float = _TRANSACTIONS.transaction_idle
    transaction_isolation: Isolation = _TRANSACTIONS.transaction_isolation
    max_temporary_tables: int = _TRANSACTIONS.max_temporary_tables
    lock_wait: float = _TRANSACTIONS.lock_wait
    request_timeout: float = 60.0
    """The greatest body, at 5 Mbit/s."""
    idle_timeout: float = 75.0
    """Longer than clients and proxies keep an idle connection (5 to 60 s), so that it is they who close it: a server
    that closes first may do so while a request is on its way."""

    @classmethod
    def of(cls, settings: object) -> Limits:
        """The limits that the settings name."""
        return cls(**{each.name: getattr(settings, each.name) for each in fields(cls)})

    def of_live(self) -> LiveLimits:
        return LiveLimits(**{each.name: getattr(self, each.name) for each in fields(LiveLimits)})

    def of_transactions(self) -> TransactionLimits:
        return TransactionLimits(**{each.name: getattr(self, each.name) for each in fields(TransactionLimits)})

    def of_sql(self) -> SqlLimits:
        return SqlLimits(**{each.name: getattr(self, each.name) for each in fields(SqlLimits)})


LASTS = "headrace.lasts"
"""In the scope of a request that is answered until its client goes: where it sends no more, it has gone. Of any other
request the client may have closed its half, and wait."""


STRAIGHT = "headrace.straight"
"""In the scope of what came by a socket of this process: its :class:`StraightWay`."""


class StraightWay(Protocol):
    """The socket of an answer that lasts, once it has begun, for what is said of it again and again. By ASGI, with a
    task that is woken and what stands around each route, a piece costs three times as much."""

    def takes(self) -> bool:
        """Whether the client reads. Else who waits for it goes by ASGI."""

    def put(self, piece: bytes) -> None: ...


HEAD = "headrace.head"
"""In the scope of a request that asks for an answer's head alone, and is answered as GET."""


class Unread(Protocol):
    """A connection whose client does not read its answers."""

    def give_up(self) -> None: ...


class Admission:
    """What is under way in a process: counted where it comes and goes, and refused past its limit."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.collector: CycleCollector | None = None
        """The collector of the process's cycles, which the status shows."""
        self.connections = 0
        self.waiting = 0
        """Requests that are not answered at once: writes, misses, statements."""
        self.received = 0
        """Bytes of requests that are not answered yet."""
        self.unsent = 0
        """Bytes of answers that their clients have not read, past what a socket buffers."""
        self.refused: dict[str, int] = {}
        """How often, by the limit's name."""
        self._addresses: dict[str, int] = {}
        self._unread: dict[Unread, int] = {}
        """Keyed by the time since when it is so."""
        self._pieces = 0
        """Of bodies, that were let in in this turn of the event loop."""

    def bytes(self) -> int:
        """What all of it takes."""
        return self.received + self.unsent + self.connections * CONNECTION_BYTES

    def status(self) -> dict[str, Any]:
        garbage = {} if self.collector is None else {"garbage": self.collector.status()}
        return {
            **garbage,
            "connections": self.connections,
            "waiting": self.waiting,
            "received_bytes": self.received,
            "unsent_bytes": self.unsent,
            "bytes": self.bytes(),
            "refused": dict(self.refused),
        }

    # --- connections ------------------------------------------------------------------------------------------------

    def enter(self, address: str) -> HeadraceError | None:
        """A connection comes; the error where it is one too many. It leaves in either case."""
        limits = self.limits
        self.connections += 1
        self._addresses[address] = self._addresses.get(address, 0) + 1
        if self.connections > limits.max_connections:
            self.count("max_connections")
            return Overloaded(
                f'more than "max_connections", {limits.max_connections}, are open',
                hint="try again later, or start the server with a greater max_connections",
            )
        if self._addresses[address] > limits.max_connections_per_address:
            self.count("max_connections_per_address")
            return TooManyRequests(
                f'more than "max_connections_per_address", {limits.max_connections_per_address}, come from {address}',
                hint="use connections again, or start the server with a greater max_connections_per_address",
            )
        return None

    def leave(self, connection: Unread, address: str, received: int) -> None:
        """A connection goes, and with it the bytes of its requests, and of answers that were not read."""
        self.received -= received
        self.has_read(connection)
        self.connections -= 1
        left = self._addresses[address] - 1
        if left:
            self._addresses[address] = left
        else:
            del self._addresses[address]

    # --- requests ---------------------------------------------------------------------------------------------------

    def receive(self, size: int) -> HeadraceError | None:
        """Bytes of a request have come; the error where it is too much by now. They are released in either case."""
        self.received += size
        limit = self.limits.max_in_flight
        if self.received <= (limit if size > SMALL_REQUEST else limit + limit // FOR_SMALL):
            return None
        self.count("max_in_flight")
        return Overloaded(
            f'unanswered requests have more than "max_in_flight", {self.limits.max_in_flight} bytes',
            hint="try again later, send smaller bodies, or start the server with a greater max_in_flight",
        )

    def release(self, size: int) -> None:
        self.received -= size

    async def read_on(self) -> None:
        """Return when one more piece of a long body may be read."""
        while self._pieces >= PIECES_A_TURN:
            await asyncio.sleep(0)
        self._pieces += 1
        if self._pieces == 1:
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._pieces = 0

    def too_many_waiting(self) -> HeadraceError:
        self.count("max_waiting")
        return Overloaded(
            f'"max_waiting", {self.limits.max_waiting} requests, are waiting already; nothing was done',
            hint="send fewer at once, try again later, or start the server with a greater max_waiting",
        )

    def headers_too_large(self, url: int) -> HeadraceError:
        """``url``: bytes of the first line's URL."""
        limit = self.limits.max_header_size
        self.count("max_header_size")
        if url > limit:
            return UrlTooLong(
                f'the request\'s URL exceeds "max_header_size", {limit} bytes',
                hint="send long keys in a body: POST /v1/views/{view}/lookup",
            )
        return HeadersTooLarge(
            f'the request\'s headers exceed "max_header_size", {limit} bytes, where each counts {HEADER_OVERHEAD} more',
            hint="send fewer or shorter headers, or start the server with a greater max_header_size",
        )

    def too_many_pipelined(self) -> HeadraceError:
        self.count("max_pipelined")
        return TooManyRequests(
            f'more than "max_pipelined", {self.limits.max_pipelined} requests, wait on this connection',
            hint="read answers before sending more, or start the server with a greater max_pipelined",
        )

    def too_slow(self) -> HeadraceError:
        self.count("request_timeout")
        return RequestTooSlow(
            f'the request was not there whole within "request_timeout", {self.limits.request_timeout:g} s',
            hint="send it faster or in parts, or start the server with a greater request_timeout",
        )

    # --- answers ----------------------------------------------------------------------------------------------------

    def check_answer(self, size: int) -> None:
        """Raises LimitExceeded. Called while an answer is made, with its size so far."""
        if size > self.limits.max_answer_size:
            self.count("max_answer_size")
            raise LimitExceeded(
                f'the answer exceeds "max_answer_size", {self.limits.max_answer_size} bytes',
                hint="ask for fewer rows or columns (LIMIT), or start the server with a greater max_answer_size",
            )

    def leave_unread(self, connection: Unread, size: int) -> None:
        """Its answers of this size wait for their client; who has waited longest is given up where it is too much."""
        self.unsent += size - self._unread.pop(connection, 0)
        self._unread[connection] = size
        while self.unsent > self.limits.max_in_flight and len(self._unread) > 1:
            self.count("max_in_flight")
            oldest = next(iter(self._unread))
            self.has_read(oldest)
            oldest.give_up()

    def has_read(self, connection: Unread) -> None:
        self.unsent -= self._unread.pop(connection, 0)

    def count(self, limit: str) -> None:
        """Something was refused."""
        self.refused[limit] = self.refused.get(limit, 0) + 1


def body_too_large(limit: int) -> LimitExceeded:
    return LimitExceeded(
        f'the request\'s body exceeds "max_body_size", {limit} bytes',
        hint="send the rows in several requests, or start the server with a greater max_body_size",
    )


async def read_body(headers: list[tuple[bytes, bytes]], receive: Receive, admission: Admission) -> bytes:
    """All of a request's body; raises LimitExceeded before more than ``max_body_size`` bytes were kept."""
    limit = admission.limits.max_body_size
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise body_too_large(limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > limit:
            raise body_too_large(limit)
        return body
    pieces, size = [body], len(body)
    try:
        while message.get("more_body"):
            await admission.read_on()
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("the connection closed before the request's body was complete")
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                raise body_too_large(limit)
        return b"".join(pieces)
    finally:
        pieces.clear()  # An error's trace has this frame, and may be part of a cycle that is collected later.


def check_browser(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises BadRequest for a browser's request that is not declared as JSON: a page of any origin could otherwise
    post to a server on its reader's own machine without asking. Others may declare anything, as ``curl -d`` does."""
    given = dict(headers)
    sent_as = given.get(b"content-type", b"").decode("latin-1")
    if b"origin" in given and not sent_as.startswith("application/json"):
        raise BadRequest(f'a browser sent "{sent_as}"', hint="send content-type: application/json")
