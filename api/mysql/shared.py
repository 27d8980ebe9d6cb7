"""What all connections of a port share, and what the commands of one need of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Protocol

from api.auditing import HttpAudit
from api.doors.tls import Tls
from api.endpoints import Endpoints, RequestMetrics
from api.limits import Admission
from api.mysql.follower import FollowedTables
from api.mysql.packets import STATUS_AUTOCOMMIT, eof, ok
from api.mysql.proving import ClientAnswer
from api.mysql.upstream import CONNECT_SECONDS, UpstreamConnection, UpstreamServer
from api.mysql.values import Charset, RowWriter
from controller.deployment import Deployment
from domains.errors import HeadraceError, Overloaded
from domains.language.types import Column

PASSED_ON = "mysql passed on"
ROUTE = "mysql"
"""What metrics and the audit log call it."""


class MysqlClient(Protocol):
    """A connection, as its commands see it; ``connection.py`` implements it."""

    id: int
    address: str
    is_full: bool
    """The client does not read what was sent."""

    def send(self, payloads: Iterable[bytes]) -> None: ...

    def write(self, data: bytes) -> None:
        """An answer as packets, numbered from 1 on."""

    async def drained(self) -> None:
        """When the client has read enough of what was sent. One that does not read is given up."""

    async def log_in(self, answer: ClientAnswer, nonce: bytes, *, secure: bool) -> None:
        """Raises HeadraceError: the client is not let in."""

    def end(self) -> None:
        """After the command that is being answered."""

    def give_up(self) -> None:
        """At once."""


WRITERS = 1_000
"""Makers of answers that are kept: each takes some 50 µs to be made, and a kB for a few columns."""
ANSWERS_BYTES = 16 * 2**20
"""Bytes of answers that are kept, with the pages that they were made of."""
ANSWER_OVERHEAD = 300
"""Bytes that one takes beside."""


class WholeAnswers:
    """Answers of the short way as packets, by the very page of a view that they were made of: so none is ever behind.

    They are in no transaction, and of sessions that commit by themselves, so nothing else in them is a connection's
    own. To write one of a row anew takes some 12 µs."""

    def __init__(self) -> None:
        self._writers: dict[tuple[int, str, int, bool, bool], RowWriter] = {}
        self._kept: dict[tuple[RowWriter, bytes], tuple[bytes, int]] = {}
        self._size = 0

    def writer(self, columns: tuple[Column, ...], charset: Charset, *, binary: bool, is_short: bool) -> RowWriter:
        """The one that was made for these very columns before, which a plan has as long as it is kept. ``is_short``:
        there is no EOF between columns and rows (CLIENT_DEPRECATE_EOF)."""
        name = id(columns), charset.name, charset.collation, binary, is_short
        known = self._writers.get(name)
        if known is not None and known.columns is columns:
            return known
        if len(self._writers) >= WRITERS:
            self._writers.clear()
        between = b"" if is_short else eof(STATUS_AUTOCOMMIT)
        last = ok(head=0xFE) if is_short else eof(STATUS_AUTOCOMMIT)
        made = self._writers[name] = RowWriter(columns, charset, binary=binary, between=between, last=last)
        return made

    def of(self, writer: RowWriter, page: bytes) -> tuple[bytes, int] | None:
        """See :meth:`RowWriter.answer`."""
        found = self._kept.get((writer, page))
        if found is None:
            found = writer.answer(page)
            if found is not None:
                self._size += len(page) + len(found[0]) + ANSWER_OVERHEAD
                if self._size > ANSWERS_BYTES:
                    self._kept.clear()
                    self._size = len(page) + len(found[0]) + ANSWER_OVERHEAD
                self._kept[writer, page] = found
        return found


class UpstreamSlots:
    """The connections of a process to its upstream."""

    def __init__(self, server: UpstreamServer) -> None:
        self.server = server
        self.version = ""
        """The upstream's, once it was heard."""
        self.began_with: dict[str, str] = {}
        """What a session there begins with."""
        self._open: set[UpstreamConnection] = set()
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def hear(self) -> None:
        """The upstream's version, if it is there."""
        with suppress(HeadraceError):
            greeted = await UpstreamConnection.greeted(self.server)
            self.version = greeted.version
            greeted.close()

    async def connect(
        self, login: tuple[str, str], capabilities: int, collation: int, schema: str
    ) -> UpstreamConnection:
        """:raises Overloaded: there are as many as may be. :raises Unavailable, UpstreamRefused"""
        self._open = {each for each in self._open if not each.is_lost}
        most = self.server.connections
        if len(self._open) + self._opening >= most:
            raise Overloaded(
                f'"mysql_upstream_connections", {most} connections to the upstream, are open',
                hint="close those that are not used, or start the server with more",
            )
        self._opening += 1
        try:
            made = await UpstreamConnection.connect(self.server, login, capabilities, collation, schema.encode())
        finally:
            self._opening -= 1
        self._open.add(made)
        self.version = made.version
        if not self.began_with:
            self.began_with = {**made.tracked, "schema": ""}
        return made

    def kill(self, victim: UpstreamConnection, login: tuple[str, str], *, query: bool) -> asyncio.Task[None]:
        """Have the upstream stop what a connection asks, on another one: it would go on with it to its end."""
        task = asyncio.create_task(self._kill(victim, login, query=query))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _kill(self, victim: UpstreamConnection, login: tuple[str, str], *, query: bool) -> None:
        with suppress(HeadraceError):  # It has ended by itself, or the upstream is gone.
            beside = await UpstreamConnection.connect(self.server, login, 0, 45, b"")
            with suppress(HeadraceError):
                await beside.ask(f"KILL {'QUERY ' if query else ''}{victim.id}".encode())
            beside.close()

    async def close(self) -> None:
        for each in self._open:
            each.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CONNECT_SECONDS)


class MysqlShared:
    """Of one port of one process."""

    def __init__(
        self,
        deployment: Deployment,
        endpoints: Endpoints,
        requests: RequestMetrics,
        *,
        tls: Tls | None = None,
        version: str,
        max_prepared: int,
        upstream: UpstreamServer | None = None,
    ) -> None:
        """``endpoints``: those of HTTP, whose limits and accounts are the same. ``version``: the announced one.
        ``max_prepared``: prepared statements of a connection. ``upstream``: where what no view answers is passed on."""
        self.deployment = deployment
        self.authentication = endpoints.authentication
        self.admission: Admission = endpoints.admission
        self.tls = tls
        self.version = version
        self.max_prepared = max_prepared
        self.times = requests.route(ROUTE)
        log = None if deployment.accounts is None else deployment.accounts.audit
        self.audit = None if log is None else HttpAudit(log, deployment.migration, ROUTE)
        self.answers = WholeAnswers()
        self.slots = None if upstream is None else UpstreamSlots(upstream)
        self.followed = None if upstream is None else FollowedTables(deployment, upstream)
        self.passed = requests.route(PASSED_ON)
        self.began = monotonic()
        self.questions = 0
        self.connections: dict[int, MysqlClient] = {}

    @property
    def announced(self) -> str:
        """The version that clients are told: the upstream's, which their statements are for."""
        return (self.slots.version if self.slots is not None else "") or self.version

    def login_of(self, account: str) -> tuple[str, str] | None:
        """The account upstream that an account's statements are passed on under; None: they are performed here."""
        if self.slots is None:
            return None
        server = self.slots.server
        return server.accounts.get(account) if account else server.owner

    async def close(self) -> None:
        if self.followed is not None:
            await self.followed.close()
        if self.slots is not None:
            await self.slots.close()

    def statistics(self) -> str:
        """What COM_STATISTICS tells."""
        uptime = monotonic() - self.began
        return (
            f"Uptime: {int(uptime)}  Threads: {len(self.connections)}  Questions: {self.questions}  Slow queries: 0  "
            f"Opens: 0  Flush tables: 0  Open tables: {len(self.deployment.tables())}  "
            f"Queries per second avg: {self.questions / max(uptime, 1):.3f}"
        )
