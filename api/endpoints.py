"""The endpoints that an application calls all day. Each is *parse → call → render*, written once for every door.

They are the look-ups of views, ``POST /v1/sql``, and the writes of rows. The short HTTP path
(``api/doors/wire_http.py``) and ASGI (``api/doors/asgi.py``) enter them through ``EndpointCall.begin``, which counts
the request and renders errors; FastAPI's routes, which document them, through ``EndpointCall.work``.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from time import perf_counter, time
from typing import Any, Protocol

from headrace_client import tokens

from api.doors.browsers import AllowedHosts
from api.encoding import LONG_BODY, ROWS_TOGETHER, in_parts, loads, parse, serialize, sql_value
from api.limits import Admission
from api.lookups.etags import check_unchanged, etag_of, in_transaction
from api.lookups.lookups import (
    CONSISTENT,
    ETAGS,
    LookupAnswers,
    LookupCalls,
    Typed,
    parse_keys,
    parse_lookups,
    parse_query,
    wants,
)
from api.schemas import DeleteRequest, RowsBody, SqlRequest, UpdateRequest, checked
from api.statuses import describe
from controller.access.authentication import Authentication, PeerCertificate
from controller.access.session import OPEN, Caller
from controller.deployment import Deployment, StatementResult, WriteResult
from controller.status import one_line
from controller.transactions.sessions import Sessions
from domains.errors import BadRequest, Conflict, HeadraceError
from domains.language.json_rows import nested
from domains.language.types import Column, Kind
from domains.plan.packets import Clock
from migrations.access.rights import Privilege
from migrations.access.secrets import without_body
from worker.service.child_pool import ChildPool, Turn

Answer = tuple[int, bytes, bytes]
"""Status, body, which is JSON, and the columns that JSON has no type for."""
Body = Typed | Coroutine[Any, Any, Typed]
Work = Callable[[str, bytes, bytes, Clock | None, Caller], Body]
"""Answers by the name of a view or table, the query string, the request's body, its token, and who asks."""

CLAIMS = b"headrace-claims"
"""The header that says for whom a request is: JSON, {"sub": 7}."""
TRANSACTION = b"headrace-transaction"
"""The header with the id of the transaction that a request is in."""
SESSION_NAME = b"headrace-session"
"""The header with the name of the session that it belongs to."""
SNAPSHOT = b"headrace-snapshot"
"""The header with the name of the snapshot that it reads, or ``latest``."""
AS_OF = "as_of"
"""The same in the query string of a look-up, where the view has no parameter of this name."""
ATTEMPTS = 100
"""The most that look-ups of one position are done anew, since others have changed what they have read."""
_CONSISTENT, _ETAGS, _AS_OF = f'"{CONSISTENT}"'.encode(), f'"{ETAGS}"'.encode(), f"{AS_OF}=".encode()
_ENTERS = (TRANSACTION, SESSION_NAME, SNAPSHOT)
_ALL_OF_THEM = "Headrace-Transaction, Headrace-Session and Headrace-Snapshot"
NAME = "*"
"""Stands for the name of a view or table in a path."""
_log = logging.getLogger("headrace.api")
_PLACEHOLDER = re.compile(r"\{\w+\}")


# The times of requests, by route.
#
# Plain lists, because a labelled ``prometheus_client`` histogram costs several microseconds an observation, which is as
# much as the look-up that it times.

BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds. A hit takes tenths of a millisecond, a miss milliseconds, a wait for a token up to the read timeout."""


class RouteTimes:
    """Counts one route's answers by status and by latency, and logs those that took ``slow`` seconds or more."""

    __slots__ = ("buckets", "route", "slow", "statuses", "total")

    def __init__(self, route: str = "", slow: float = inf) -> None:
        self.route = route
        self.slow = slow
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, status: int, seconds: float, about: str = "") -> None:
        """``about``: the view, the table or the SQL, for the log."""
        if seconds >= self.slow:
            _log.warning("slow request: %s took %.3f s, status %d: %s", self.route, seconds, status, one_line(about))
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class RequestMetrics:
    """The times of all routes. Routes are templates (``GET /v1/views/{view}``), so there are few."""

    def __init__(self, slow: float = 0.0) -> None:
        """``slow``: seconds from which on a request is logged; 0 logs none."""
        self.routes: dict[str, RouteTimes] = {}
        self._slow = slow or inf

    def route(self, name: str) -> RouteTimes:
        times = self.routes.get(name)
        if times is None:
            times = self.routes[name] = RouteTimes(name, self._slow)
        return times


class CallAudit(Protocol):
    """See :class:`api.auditing.HttpAudit`."""

    def audited(self, call: EndpointCall) -> EndpointCall:
        """The call as it is to be asked instead."""

    def refused(
        self, route: str, answer: Answer, address: str, session: Caller | None, asked: tuple[str, bytes]
    ) -> None:
        """An answer that may be a refusal, to the name in the path and the body."""

    def turned_away(self, address: str, error: HeadraceError) -> None:
        """A connection or request was, before it was read."""


@dataclass(frozen=True, slots=True)
class EndpointCall:
    """One endpoint."""

    work: Work
    route: str
    times: RouteTimes
    writes: bool
    """A browser's request is checked first, see ``check_browser``."""
    privilege: Privilege | None
    """What it needs on the view or table that it names; None: that is in its body, and ``work`` checks it."""
    admission: Admission
    audit: CallAudit | None = None

    def done(self, name: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Body:
        """What ``work`` answers, where the session may ask it. Raises what it raises, Unauthenticated, Forbidden."""
        if session.rights is not None:
            if self.privilege is None:
                session.check_known()
            else:
                session.check(self.privilege, name)
        return self.work(name, query, body, token, session)

    def begin(
        self, name: str, query: bytes, body: bytes, token: Clock | None, session: Caller, address: str = ""
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """An answer that is there at once, or what awaits it. An exception becomes an answer, too.

        ``address``: where the request comes from, for an audit log."""
        started = perf_counter()
        try:
            # A hit has its right looked up here: two calls less.
            free = session.rights is None or (self.privilege, name) in session.found
            found = (self.work if free else self.done)(name, query, body, token, session)
            if not isinstance(found, tuple):
                if self.admission.waiting >= self.admission.limits.max_waiting:
                    found.close()
                    raise self.admission.too_many_waiting()
                self.admission.waiting += 1
                asked = None if self.audit is None else (address, session, (name, body[: LONG_BODY + 1]))
                return self._awaited(found, started, name or without_body(body[:500].decode("utf-8", "replace")), asked)
            if len(found[0]) > self.admission.limits.max_answer_size:
                self.admission.check_answer(len(found[0]))
            answer = (200, *found)
        except Exception as error:
            answer = (*describe(error, self.route), b"")
            if self.audit is not None:
                self.audit.refused(self.route, answer, address, session, (name, body))
        self.times.add(answer[0], perf_counter() - started)
        return answer

    async def _awaited(
        self,
        coming: Awaitable[Typed],
        started: float,
        about: str,
        asked: tuple[str, Caller, tuple[str, bytes]] | None,
    ) -> Answer:
        try:
            answer = (200, *await coming)
            if len(answer[1]) > self.admission.limits.max_answer_size:
                self.admission.check_answer(len(answer[1]))
        except Exception as error:
            answer = (*describe(error, self.route), b"")
            if self.audit is not None and asked is not None:
                self.audit.refused(self.route, answer, *asked)
        finally:
            self.admission.waiting -= 1
        self.times.add(answer[0], perf_counter() - started, about)
        return answer


class Endpoints:
    """The endpoints of one deployment."""

    def __init__(
        self,
        deployment: Deployment,
        requests: RequestMetrics,
        admission: Admission,
        authentication: Authentication,
        hosts: AllowedHosts | None = None,
        audit: CallAudit | None = None,
    ) -> None:
        """``hosts``: the names that are answered; all, if not given."""
        self.audit = audit
        self.asks_origin = False
        """The address of a request that came by a proxy is wanted; it takes the long way, which knows it."""
        self.admission = admission
        self.authentication = authentication
        self.hosts = hosts or AllowedHosts()
        self.admitted = self.hosts.admitted
        """The values of ``Host`` that were found to be allowed; None: all are. A hit looks here, and calls nothing."""
        self.max_body = admission.limits.max_body_size
        self.beside = ChildPool()
        """The processes beside that read long bodies and texts."""
        self._deployment = deployment
        self.sessions: Sessions = deployment.sessions
        self._lookups = LookupCalls(deployment)
        reads: dict[str, tuple[Work, Privilege | None]] = {
            "GET /v1/views/{view}": (self._page, Privilege.SELECT),
            "POST /v1/views/{view}/lookup": (self._lookup, Privilege.SELECT),
            "POST /v1/lookups": (self._many, None),
        }
        writes: dict[str, tuple[Work, Privilege | None]] = {
            "POST /v1/sql": (self._sql, None),
            "POST /v1/tables/{table}/rows": (self._insert, Privilege.INSERT),
            "PATCH /v1/tables/{table}/rows": (self._update, Privilege.UPDATE),
            "DELETE /v1/tables/{table}/rows": (self._delete, Privilege.DELETE),
        }
        self._calls = {
            _PLACEHOLDER.sub(NAME, route): EndpointCall(
                work, route, requests.route(route), route in writes, privilege, admission
            )
            for route, (work, privilege) in {**reads, **writes}.items()
        }
        if audit is not None:
            self._calls = {path: audit.audited(call) for path, call in self._calls.items()}

    def known(self, header: bytes | PeerCertificate | None) -> Caller | None:
        """The session of who sends this header ``Authorization``, or has this certificate, where it is verified
        already. It runs with each hit, and is here for that."""
        authentication = self.authentication
        if authentication.is_open:
            return OPEN
        found = authentication.sessions.get(header)
        return found if found is not None and found.expires > time() else None

    def claimed(self, session: Caller, header: bytes) -> Caller | None:
        """The session with the claims that a request's header gives it; None where the long way refuses that."""
        try:
            return session.with_claims(header)
        except HeadraceError:
            return None

    def entered(self, session: Caller, headers: Sequence[tuple[bytes, bytes]]) -> Caller:
        """Who asks, in the transaction, the session or the snapshot that the headers name.

        :raises TransactionEnded, Forbidden, BadRequest, Overloaded"""
        given = {name: value.decode("latin-1") for name, value in headers if name in _ENTERS}
        if not given:
            return session
        if len(given) > 1:
            raise BadRequest(_ALL_OF_THEM, hint="a request has one of these headers")
        sessions = self.sessions
        if SNAPSHOT in given:
            return self._reading(session, given[SNAPSHOT])
        if SESSION_NAME in given:
            return replace(session, session=sessions.named(given[SESSION_NAME], session.account))
        return replace(session, session=sessions.found(given[TRANSACTION], session.account))

    def _reading(self, session: Caller, snapshot: str) -> Caller:
        return replace(session, session=self._deployment.snapshots.session(snapshot))

    def find(self, method: str, path: str) -> tuple[EndpointCall, str] | None:
        """The endpoint, and the view or table that it is about; None where there is none at this path."""
        parts, name = path.split("/"), ""
        if len(parts) > 3 and parts[3]:
            name, parts[3] = parts[3], NAME
        call = self._calls.get(f"{method} {'/'.join(parts)}")
        return None if call is None else (call, name)

    # --- look-ups ---------------------------------------------------------------------------------------------------

    def _page(self, view: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Body:
        parameters = parse_query(query)
        if _AS_OF in query and AS_OF in parameters and not self._lookups.takes(view, AS_OF):
            if session.session is not None or len(named := parameters.pop(AS_OF)) > 1:
                raise BadRequest(AS_OF, hint="a look-up reads one snapshot, and in no transaction or session")
            session = self._reading(session, named[0])
        return self._lookups.page(view, parameters, token, session)

    def _lookup(self, view: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Body:
        if _ETAGS in body and wants(ETAGS, body):
            return self._tagged(view, body, token, session)
        awaited = token is not None or session.session is not None
        found = None if awaited else self._lookups.try_numbers(view, body)
        return self._lookups.pages(view, parse_keys(body), token, session) if found is None else found

    async def _tagged(self, view: str, body: bytes, token: Clock | None, session: Caller) -> Typed:
        keys = parse_keys(body)
        answer, types = await self._lookups.pages(view, keys, token, session)
        pages = [serialize(rows)[1:-1] for rows in loads(answer)["results"]]
        tags = [etag_of(view, key, page) for key, page in zip(keys, pages, strict=True)]
        return answer[:-1] + b',"etags":' + serialize(tags) + b"}", types

    def _many(self, name: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Body:
        many = self._lookups.many
        if _CONSISTENT in body and wants(CONSISTENT, body):
            return self._at_one_position(body, token, session)
        if session.session is not None and token is None:
            token = {}  # All of it is to be awaited.
        asked = many.ask(body, token, session) if session.rights is None else self._allowed(body, token, session)
        return many.finish(asked, token) if asked.late else many.typed(asked)

    async def _at_one_position(self, body: bytes, token: Clock | None, session: Caller) -> Typed:
        """In a transaction that only reads: its answers are of one position, or it is done again."""
        for attempt in count(1):
            try:
                async with in_transaction(self._deployment, session) as (caller, own):
                    asked = self._allowed(body, token or {}, caller)
                    return await self._lookups.many.finish(asked, token or {})
            except Conflict:
                if own is None or attempt == ATTEMPTS:
                    raise
        raise AssertionError("it counts on for ever")

    def _allowed(self, body: bytes, token: Clock | None, session: Caller) -> LookupAnswers:
        """What is asked of views that the session may read. What is wrong with look-ups of others is not told."""
        try:
            asked = self._lookups.many.ask(body, token, session)
        except HeadraceError:
            for each in parse_lookups(body):
                session.check(Privilege.SELECT, each.view)
            raise
        for view in asked.views():
            session.check(Privilege.SELECT, view)
        return asked

    # --- statements and writes --------------------------------------------------------------------------------------

    async def _sql(self, name: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Typed:
        asked = checked(SqlRequest, parse(body)) if len(body) <= LONG_BODY else await self._long_sql(body)
        params = list(map(sql_value, asked.params))
        if asked.follows:
            session = replace(session, follows=True)
        if asked.unchanged:
            results, clock = await self._if_unchanged(asked, params, session)
        else:
            results, clock = await self._deployment.execute(
                asked.sql, params, token=token, session=session, atomic=asked.atomic
            )
        reached = tokens.encode(tokens.merge(token or {}, clock))
        if sum([len(result.rows) for result in results]) <= ROWS_TOGETHER:
            return serialize({"results": list(map(_statement, results)), "token": reached}), b""
        return await self._long_answer(results, reached), b""

    async def _if_unchanged(
        self, asked: SqlRequest, params: Sequence[Any], session: Caller
    ) -> tuple[list[StatementResult], Clock]:
        """All of it or nothing, and nothing where one of the answers has other rows."""
        async with in_transaction(self._deployment, session) as (caller, own):
            await check_unchanged(self._deployment, asked.unchanged, caller)
            results, _ = await self._deployment.execute(asked.sql, params, session=caller)
            return results, {} if own is None else (await own.commit())[1]

    async def _long_sql(self, body: bytes) -> SqlRequest:
        """Parsed beside."""
        asked: SqlRequest | None = None
        async for part in self.beside.run(in_parts, body, "params", self.admission.limits.of_sql()):
            if asked is None:
                asked = checked(SqlRequest, loads(part))
            else:
                asked.params += loads(part)
        assert asked is not None
        return asked

    async def _long_answer(self, results: Sequence[StatementResult], token: str) -> bytes:
        """In pieces, whose size is looked at while they are made."""
        turn, size, written = Turn(), 0, []
        for result in results:
            head, tail = serialize(_statement(replace(result, rows=()))).rsplit(b'"rows":[]', 1)
            rows = []
            for at in range(0, len(result.rows), ROWS_TOGETHER):
                rows.append(serialize(_rows_shown(result.rows[at : at + ROWS_TOGETHER], result.columns))[1:-1])
                size += len(rows[-1])
                self.admission.check_answer(size)
                await turn.pause()
            written.append(head + b'"rows":[' + b",".join(rows) + b"]" + tail)
        return b'{"results":[' + b",".join(written) + b'],"token":' + serialize(token) + b"}"

    async def _insert(self, table: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Typed:
        asked = checked(RowsBody, parse(body)) if len(body) <= LONG_BODY else await self._rows(body)
        more = _FOR_DUPLICATES.get(asked.duplicate.act)
        if more is not None:
            session.check(more, table)
        return _written(await self._deployment.insert(table, asked.rows, asked.place, asked.duplicate, session))

    async def _rows(self, body: bytes) -> RowsBody:
        """The rows of a long body, which a process beside parses."""
        asked: RowsBody | None = None
        async for part in self.beside.run(in_parts, body, "rows"):
            if asked is None:
                asked = checked(RowsBody, loads(part))
            else:
                asked.rows += loads(part)
        assert asked is not None
        return asked

    async def _update(self, table: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Typed:
        asked = checked(UpdateRequest, parse(body))
        if not asked.unchanged:
            return _written(await self._deployment.update(table, asked.key, asked.set, session))
        async with in_transaction(self._deployment, session) as (caller, own):
            await check_unchanged(self._deployment, asked.unchanged, caller)
            written = await self._deployment.update(table, asked.key, asked.set, caller)
            return _written(written if own is None else replace(written, clock=(await own.commit())[1]))

    async def _delete(self, table: str, query: bytes, body: bytes, token: Clock | None, session: Caller) -> Typed:
        return _written(await self._deployment.delete(table, checked(DeleteRequest, parse(body)).key, session))


_FOR_DUPLICATES = {"replace": Privilege.DELETE, "update": Privilege.UPDATE}
"""What an insert needs, too, by what becomes of rows whose key is taken."""


def _statement(result: StatementResult) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "columns": [{"name": column.name, "type": str(column.type)} for column in result.columns],
        "rows": _rows_shown(result.rows, result.columns),
        "rows_affected": result.rows_affected,
    }
    if result.first_id is not None:
        shown["first_id"] = result.first_id
    if result.done is not None:
        shown["done"] = result.done
    return shown


def _rows_shown(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> Sequence[Sequence[Any]]:
    """Rows with documents as the values that they are."""
    if all(column.type.kind is not Kind.JSON for column in columns):
        return rows
    shows = [nested if column.type.kind is Kind.JSON else None for column in columns]
    return [[value if show is None else show(value) for show, value in zip(shows, row, strict=True)] for row in rows]


def _written(result: WriteResult) -> Typed:
    shown: dict[str, Any] = {"rows_affected": result.rows_affected, "token": tokens.encode(result.clock)}
    if result.first_id is not None:
        shown["first_id"] = result.first_id
    if result.repeated:
        shown["repeated"] = True
    return serialize(shown), b""


def token_of(headers: Sequence[tuple[bytes, bytes]]) -> Clock | None:
    """The clock that a read waits for. Raises BadRequest."""
    for name, value in headers:
        if name == b"headrace-token":
            return tokens.decode(value.decode("latin-1"))
    return None
