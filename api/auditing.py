"""What the ways in by HTTP tell the audit log: requests that were refused, operations, statements, and data if wanted.

::

    WireHttp, AsgiDoor ──► AuditedCall ──► work: a Witness in the session hears of each definition
          │                    └── data: one event a request
          └── refused before, or by a route of FastAPI: HttpAudit.refused, HttpAudit.watched

Without an audit log none of this is in a request's way; with one that leaves data out, look-ups and writes of rows pass
it by too, but for their refusals.
"""

from __future__ import annotations

from asyncio import CancelledError, Task, create_task, sleep, wait
from base64 import b64decode
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.encoding import loads
from api.endpoints import Answer, EndpointCall
from api.statuses import SESSION, describe, status_of
from controller.access.audit_log import AuditEvent, AuditKind, AuditLog
from controller.access.session import ANONYMOUS, Caller
from controller.deployment import MigrationStatus
from domains.errors import HeadraceError, NotFound, Unavailable
from domains.plan.packets import Clock
from migrations.access.secrets import without_body

DOOR = "http"
REFUSALS = (401, 403, 429)
READS = ("GET", "HEAD")
SQL, MIGRATIONS, MANY = "POST /v1/sql", "POST /v1/migrations", "POST /v1/lookups"
BODY_MAX = 64_000
"""Bytes of a body that is parsed for its statement: a tenth of a millisecond. Of a longer one its head is shown."""
GONE = 499
"""The status where nobody is there any more to be answered."""
OVER = ("done", "failed", "cancelled")
"""States in which a migration is at its end."""
LOOK_SECONDS = 1.0
"""Between two looks at a migration whose end is to be recorded."""
ERROR_MAX = 100_000
"""Bytes of an error's body that is read for its code."""


class HttpAudit:
    """Of one process. ``migration`` tells how one is."""

    def __init__(self, log: AuditLog, migration: Callable[[str], Awaitable[MigrationStatus]], door: str = DOOR) -> None:
        self.log = log
        self._door = door
        self._migration = migration
        self._following: set[Task[None]] = set()

    async def close(self) -> None:
        for following in self._following:
            following.cancel()
        if self._following:
            await wait(self._following)

    def audited(self, call: EndpointCall) -> EndpointCall:
        """The call as it is to be asked: SQL may define something; others are about data."""
        if call.route == SQL or self.log.records_data:
            return AuditedCall(**{**{each.name: getattr(call, each.name) for each in fields(call)}, "audit": self})
        return replace(call, audit=self)

    def event(self, kind: AuditKind, session: Caller | None, address: str, **told: Any) -> AuditEvent:
        asks = session or ANONYMOUS
        subject = str(asks.claims.get("sub", ""))
        return AuditEvent(kind, self._door, address, asks.account, subject=subject, **told)

    def refused(
        self,
        route: str,
        answer: Answer,
        address: str,
        session: Caller | None = None,
        asked: tuple[str, bytes] = ("", b""),
    ) -> None:
        """``asked``: the name in the path, and the body."""
        if answer[0] in REFUSALS:
            on, body = asked
            code, why = _error_of(answer)
            told = {"on": on, "status": answer[0], "code": code, "why": why, **self.told(route, body)}
            self.log.add(self.event(AuditKind.REFUSAL, session, address, route=route, **told))

    def turned_away(self, address: str, error: HeadraceError) -> None:
        """Before its request was read."""
        told = {"status": 429, "code": error.code, "why": error.message}
        self.log.add(self.event(AuditKind.REFUSAL, None, address, **told))

    def stranger(self, address: str, tried: str, error: HeadraceError) -> None:
        """Somebody was not let in, who said this name."""
        told = {"status": status_of(error), "code": error.code, "why": error.message, "tried": tried}
        self.log.add(self.event(AuditKind.REFUSAL, None, address, **told))

    def not_let_in(self, scope: Scope, answer: Answer, address: str, headers: Sequence[bytes]) -> None:
        if answer[0] not in REFUSALS:
            return
        event = self.event(AuditKind.REFUSAL, None, address, route=f"{scope['method']} {scope['path']}")
        event.code, event.why = _error_of(answer)
        event.status, event.tried = answer[0], _tried(headers)
        self.log.add(event)

    def told(self, route: str, body: bytes) -> dict[str, Any]:
        """A body's statement; one that cannot be read is shown as it is, but for what may be a password."""
        is_statement = route in (SQL, MIGRATIONS)
        if len(body) <= BODY_MAX and (is_statement or route == MANY):
            found = _json(body)
            if is_statement and isinstance(found.get("sql"), str):
                return {"statement": found["sql"]}
            if route == MANY:
                asked = found.get("lookups")
                views = [str(each.get("view")) for each in asked or () if isinstance(each, dict)]
                return {"on": ", ".join(dict.fromkeys(views))}
        if not is_statement:
            return {}
        text = body[: 4 * self.log.statement_size].decode("utf-8", "replace")
        return {"statement": without_body(text), "length": len(body)}

    def check(self, scope: Scope) -> None:
        """:raises Unavailable: it could not be recorded, and is to be."""
        if self._is_recorded(scope):
            self.log.check()

    def _is_recorded(self, scope: Scope) -> bool:
        reads = self.log.records_data and scope["path"].startswith(("/v1/views/", "/v1/live"))
        return reads or scope["method"] not in READS

    async def watched(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        """A request that a route of FastAPI answers: recorded where it is refused, and where it changes something."""
        session: Caller | None = scope.get(SESSION)
        began, status, kept, error, queued = perf_counter(), 0, bytearray(), bytearray(), b""
        route, recorded = f"{scope['method']} {scope['path']}", self._is_recorded(scope)

        async def receiving() -> Message:
            message = await receive()
            if len(kept) <= BODY_MAX:
                kept.extend(message.get("body", b"")[: BODY_MAX + 1])
            return message

        async def sending(message: Message) -> None:
            nonlocal status, queued
            status = 101 if message["type"] == "websocket.accept" else message.get("status", status)
            if status == 202 and route == MIGRATIONS:
                queued = dict(message.get("headers", ())).get(b"location", queued)
            if status >= 400 and len(error) < ERROR_MAX:
                error.extend(message.get("body", b"")[:ERROR_MAX])
            await send(message)

        try:
            await app(scope, receiving, sending)
        finally:
            if recorded or status in REFUSALS:
                kind = AuditKind.DATA if scope["method"] in READS else AuditKind.OPERATION
                if status in REFUSALS:
                    kind = AuditKind.REFUSAL
                elif route == MIGRATIONS:
                    kind = AuditKind.DEFINITION
                event = self.event(kind, session, address, route=route, **self.told(route, bytes(kept)))
                event.status, event.ms = status, (perf_counter() - began) * 1000
                if status >= 400 or not status:
                    event.code, event.why = _error_of((status, bytes(error), b""))
                event.on = queued.decode().rpartition("/")[2]
                self.log.add(event)
                if queued:
                    following = create_task(self._follow(replace(event, status=None), began))
                    self._following.add(following)
                    following.add_done_callback(self._following.discard)
                if kind is not AuditKind.REFUSAL:
                    await self.log.settled()

    async def _follow(self, event: AuditEvent, began: float) -> None:
        """Record what became of a migration, ``event.on``, that was queued."""
        event.code = "unknown"  # Where the server stops before its end, or no controller knows it any more.
        try:
            while True:
                await sleep(LOOK_SECONDS)
                try:
                    status = await self._migration(event.on)
                except NotFound:
                    return
                except HeadraceError:  # The cluster has no leader now.
                    continue
                if status.state in OVER:
                    event.code = "ok" if status.state == "done" else status.state
                    if status.error is not None:
                        event.code = status.error[0]  # Without the message, which may quote a value.
                    return
        finally:
            event.ms = (perf_counter() - began) * 1000
            self.log.add(event)


@dataclass(frozen=True, slots=True)
class AuditedCall(EndpointCall):
    """One that is recorded: each definition of a text of SQL, and the request where data are."""

    def begin(
        self, name: str, query: bytes, body: bytes, token: Clock | None, session: Caller, address: str = ""
    ) -> Answer | Coroutine[Any, Any, Answer]:
        assert isinstance(self.audit, HttpAudit)
        began = perf_counter()
        if self.audit.log.records_data:
            try:
                self.audit.log.check()
            except Unavailable as error:
                answer = (*describe(error, self.route), b"")
                self.times.add(answer[0], 0.0)
                return answer
        witness = StatementWitness(self.audit, session, address) if self.route == SQL else None
        known = session if witness is None else replace(session, witness=witness)
        begun = EndpointCall.begin(self, name, query, body, token, known, address)
        if isinstance(begun, tuple):
            self._record(begun, began, name, query, body, session, address)
            return begun
        return self._recorded(begun, witness, began, (name, query, body, session, address))

    async def _recorded(
        self, coming: Coroutine[Any, Any, Answer], witness: StatementWitness | None, began: float, asked: Any
    ) -> Answer:
        try:
            answer = await coming
        except CancelledError:  # The client has gone; what it had done stays.
            self._record((GONE, b"", b""), began, *asked)
            raise
        self._record(answer, began, *asked)
        if witness is not None:
            await witness.settled()
        return answer

    def _record(
        self, answer: Answer, began: float, name: str, query: bytes, body: bytes, session: Caller, address: str
    ) -> None:
        audit = self.audit
        assert isinstance(audit, HttpAudit)
        if not audit.log.records_data or answer[0] in REFUSALS:
            return
        event = audit.event(AuditKind.DATA, session, address, route=self.route, on=name, status=answer[0])
        event.ms = (perf_counter() - began) * 1000
        if answer[0] == GONE:
            event.code = "cancelled"
        elif answer[0] >= 400:
            event.code = _error_of(answer)[0]  # Without the message, which may quote a value.
        for member, value in audit.told(self.route, body).items():
            setattr(event, member, value)
        if audit.log.shows_values and not event.statement:
            event.statement = (query or body[: 4 * audit.log.statement_size]).decode("utf-8", "replace")
            event.length = len(query or body)
        audit.log.add(event)


class StatementWitness:
    """Of the statements of one request; see :class:`controller.access.session.Witness`."""

    def __init__(self, audit: HttpAudit, session: Caller, address: str, route: str = SQL) -> None:
        self._saw_some = False
        self._route = route
        self._audit, self._session, self._address = audit, session, address

    def check(self) -> None:
        self._audit.log.check()

    async def settled(self) -> None:
        """What was changed is told when its line is written."""
        if self._saw_some:
            await self._audit.log.settled()

    def saw(self, kind: str, statement: str, seconds: float, error: BaseException | None) -> None:
        self._saw_some = True
        if isinstance(error, HeadraceError) and status_of(error) in REFUSALS:
            return  # The request has a line of its own.
        event = self._audit.event(AuditKind(kind), self._session, self._address, route=self._route, statement=statement)
        event.ms = seconds * 1000
        if isinstance(error, HeadraceError):
            event.code = error.code  # Without the message, which may quote a value.
        elif error is not None:
            event.code = "internal_error" if isinstance(error, Exception) else "cancelled"
        self._audit.log.add(event)


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error_of(answer: Answer) -> tuple[str, str]:
    """The code and message of an error's body."""
    try:
        told = orjson.loads(answer[1])["error"]
        return str(told["code"]), str(told["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "unknown", ""


def _tried(headers: Sequence[bytes]) -> str:
    """The name of a Basic header, of which the password is not said."""
    scheme, _, given = (headers[0] if headers else b"").partition(b" ")
    if scheme.lower() != b"basic":
        return ""
    try:
        return b64decode(given.strip()[:1_000]).decode("utf-8", "replace").partition(":")[0]
    except ValueError:
        return ""
