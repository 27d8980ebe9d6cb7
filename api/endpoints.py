"""The calls that an application makes all day: what is there is answered at once, the rest is awaited.

They are ``GET /v1/views/{view}``, ``POST /v1/views/{view}/lookup``, ``POST /v1/lookups``, ``POST /v1/sql``, and the
writes of ``/v1/tables/{table}/rows``. Two doors lead here: ASGI (``api/doors/asgi.py``), and, under our own server, one
before it (``api/doors/wire_http.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from api.dependencies import checked
from api.encoding import serialize
from api.lookups.lookups import LookupCalls, Typed, parse_keys, parse_query
from api.metrics import RequestMetrics, RouteTimes
from api.routes.sql import executed
from api.routes.tables import written
from api.schemas import SqlRequest
from api.statuses import describe
from controller.deployment import Deployment, WriteResult
from domains.plan.packets import Clock

Answer = tuple[int, bytes, bytes]
"""Status, body, which is JSON, and the columns that JSON has no type for."""
Body = Typed | Coroutine[Any, Any, Typed]
Write = Callable[[Deployment, str, bytes], Awaitable[WriteResult]]

PREFIX = "/v1/views/"
LOOKUP = "/lookup"
LOOKUPS = "/v1/lookups"
SQL = "/v1/sql"
TABLES = "/v1/tables/"
ROWS = "/rows"
PAGE_ROUTE = "GET /v1/views/{view}"
LOOKUP_ROUTE = "POST /v1/views/{view}/lookup"
LOOKUPS_ROUTE = "POST /v1/lookups"
SQL_ROUTE = "POST /v1/sql"
ROWS_ROUTE = "/v1/tables/{table}/rows"


@dataclass(frozen=True, slots=True)
class EndpointCall:
    """One of the calls; ``begin`` makes it, of a view or table."""

    work: Callable[[str, bytes, bytes, Clock | None], Body]
    """By the name, the query string, the request's body and its token."""
    route: str
    times: RouteTimes
    writes: bool = False

    def begin(self, name: str, query: bytes, body: bytes, token: Clock | None) -> Answer | Coroutine[Any, Any, Answer]:
        """Whatever is raised is an answer, too."""
        started = perf_counter()
        try:
            found = self.work(name, query, body, token)
            if not isinstance(found, tuple):
                return self._awaited(found, started, name or body[:500].decode("utf-8", "replace"))
            answer = (200, *found)
        except Exception as error:
            answer = (*describe(error, self.route), b"")
        self.times.add(answer[0], perf_counter() - started)
        return answer

    async def _awaited(self, coming: Awaitable[Typed], started: float, about: str) -> Answer:
        try:
            answer = (200, *await coming)
        except Exception as error:
            answer = (*describe(error, self.route), b"")
        self.times.add(answer[0], perf_counter() - started, about)
        return answer


class Endpoints:
    """Those of one deployment. ``writes`` are its writes by method."""

    def __init__(
        self,
        lookups: LookupCalls,
        deployment: Deployment,
        requests: RequestMetrics,
        writes: Mapping[str, Write],
        max_body: int,
    ) -> None:
        self.max_body = max_body
        self._lookups = lookups
        self._deployment = deployment
        self._page = EndpointCall(self._begin_page, PAGE_ROUTE, requests.route(PAGE_ROUTE))
        self._lookup = EndpointCall(self._begin_lookup, LOOKUP_ROUTE, requests.route(LOOKUP_ROUTE))
        self._many = EndpointCall(self._begin_many, LOOKUPS_ROUTE, requests.route(LOOKUPS_ROUTE)), ""
        self._sql = EndpointCall(self._begin_sql, SQL_ROUTE, requests.route(SQL_ROUTE), writes=True), ""
        self._writes = {method: self._write_call(method, write, requests) for method, write in writes.items()}

    def _write_call(self, method: str, write: Write, requests: RequestMetrics) -> EndpointCall:
        async def work(table: str, query: bytes, body: bytes, token: Clock | None) -> Typed:
            return serialize(written(await write(self._deployment, table, body))), b""

        route = f"{method} {ROWS_ROUTE}"
        return EndpointCall(work, route, requests.route(route), writes=True)

    def find(self, method: str, path: str) -> tuple[EndpointCall, str] | None:
        """The call, and the view or table that it is about; None where it is none of these."""
        if path == LOOKUPS:
            return self._many if method == "POST" else None
        if path == SQL:
            return self._sql if method == "POST" else None
        if path.startswith(PREFIX):
            name = path[len(PREFIX) :]
            if method == "GET" and name and "/" not in name:
                return self._page, name
            if method == "POST" and name.endswith(LOOKUP) and name.count("/") == 1 and name != LOOKUP:
                return self._lookup, name[: -len(LOOKUP)]
        elif path.startswith(TABLES) and path.endswith(ROWS):
            table, call = path[len(TABLES) : -len(ROWS)], self._writes.get(method)
            if call is not None and table and "/" not in table:
                return call, table
        return None

    # --- what each begins -----------------------------------------------------------------------------------------

    def _begin_page(self, view: str, query: bytes, body: bytes, token: Clock | None) -> Body:
        return self._lookups.page(view, parse_query(query), token)

    def _begin_lookup(self, view: str, query: bytes, body: bytes, token: Clock | None) -> Body:
        found = None if token is not None else self._lookups.try_numbers(view, body)
        return self._lookups.pages(view, parse_keys(body), token) if found is None else found

    def _begin_many(self, name: str, query: bytes, body: bytes, token: Clock | None) -> Body:
        many = self._lookups.many
        asked = many.ask(body, token)
        return many.finish(asked, token) if asked.late else many.typed(asked)

    async def _begin_sql(self, name: str, query: bytes, body: bytes, token: Clock | None) -> Typed:
        return serialize(await executed(self._deployment, checked(SqlRequest, body), token)), b""
