"""The routes' FastAPI dependencies: the deployment, the checked body, an endpoint's answer; and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from fastapi.routing import APIRoute, APIWebSocketRoute
from pydantic import BaseModel
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Route

from api.encoding import parse, serialize
from api.endpoints import Endpoints, token_of
from api.limits import check_browser
from api.metrics import Metrics
from api.schemas import Model, checked
from api.statuses import SESSION
from controller.access.authentication import Authentication
from controller.access.session import ANONYMOUS, Caller
from controller.deployment import Deployment
from domains.errors import NotFound
from migrations.access.rights import EVERYTHING, Privilege

# All of these are coroutines, though none waits: FastAPI sends a plain function to another thread, at 80 µs a request.


def session_of(request: HTTPConnection) -> Caller:
    """Who asks: ``AsgiDoor`` has found that out. A request that came another way is nobody's."""
    session: Caller | None = request.scope.get(SESSION)
    return session or request.app.state.endpoints.known(None) or ANONYMOUS


class NeedsRight:
    """A route's dependency: the right that it needs. Every route has one, or answers an endpoint that does."""

    def __init__(self, privilege: Privilege | None, on: str = "") -> None:
        """``on``: the parameter of the path that names the view or table; none: the deployment."""
        self.privilege = privilege
        self.on = on

    async def __call__(self, request: HTTPConnection) -> None:
        """:raises Unauthenticated, Forbidden: who asks has not got it."""
        session_of(request).check(self.privilege, request.path_params[self.on] if self.on else EVERYTHING)


class AsksForAccount(NeedsRight):
    """Of a route that shows what the session may see, or checks what it is asked itself."""

    def __init__(self) -> None:
        super().__init__(None)

    async def __call__(self, request: HTTPConnection) -> None:
        session_of(request).check_known()


class OpenToAll(NeedsRight):
    """Of a route that says nothing of what is stored."""

    def __init__(self) -> None:
        super().__init__(None)

    async def __call__(self, request: HTTPConnection) -> None:
        """Nothing."""


def needs(privilege: Privilege, on: str = "") -> list[Any]:
    return [Depends(NeedsRight(privilege, on))]


UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "As `If-None-Match` has it"}}
FOR_ACCOUNTS = [Depends(AsksForAccount())]
FOR_ALL = [Depends(OpenToAll())]


def undeclared(routes: Sequence[BaseRoute]) -> list[str]:
    """The paths of routes that say nothing of who may ask them."""
    found = []
    for route in routes:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            calls = [each.call for each in route.dependant.dependencies]
            if not any(isinstance(call, NeedsRight) or call is _answered for call in calls):
                found.append(route.path)
        elif isinstance(route, Route) and route.path != "/openapi.json":  # FastAPI's own: nothing of what is stored.
            found.append(route.path)
    return found


async def _session(request: Request) -> Caller:
    return session_of(request)


async def _serving(request: Request) -> Deployment:
    deployment: Deployment = request.app.state.deployment
    return deployment


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _authentication(request: Request) -> Authentication:
    endpoints: Endpoints = request.app.state.endpoints
    return endpoints.authentication


async def _token(
    headrace_token: Annotated[
        str | None,
        Header(alias="Headrace-Token", description="A write's token: the read waits until it reflects that write"),
    ] = None,
    headrace_claims: Annotated[
        str | None,
        Header(alias="Headrace-Claims", description="The user for whom it is asked: row policies compare it"),
    ] = None,
    headrace_transaction: Annotated[
        str | None, Header(alias="Headrace-Transaction", description="The id of the transaction that it is in")
    ] = None,
    headrace_session: Annotated[
        str | None,
        Header(alias="Headrace-Session", description="A name: statements under it share BEGIN … COMMIT and autocommit"),
    ] = None,
    headrace_snapshot: Annotated[
        str | None, Header(alias="Headrace-Snapshot", description="The snapshot that is read, or `latest`")
    ] = None,
) -> None:
    """Documents the headers, which ``_answered`` and the doors read."""


async def _answered(request: Request) -> Response:
    """The answer of the endpoint that the route documents."""
    endpoints: Endpoints = request.app.state.endpoints
    found = endpoints.find(request.method, request.scope["path"])
    if found is None:  # A name that has "/" in it, as "%2F".
        raise NotFound(f'no such path "{request.url.path}"', hint="see /docs for all calls")
    call, name = found
    headers = request.headers.raw
    if call.writes:
        check_browser(headers)
    session = endpoints.entered(session_of(request), headers)
    body = await request.body()
    begun = call.done(name, request.scope["query_string"], body, token_of(headers), session)
    body, types = begun if isinstance(begun, tuple) else await begun
    shown = {"Headrace-Types": types.decode()} if types else None
    return Response(body, media_type="application/json", headers=shown)


Asking = Annotated[Caller, Depends(_session)]
Serving = Annotated[Deployment, Depends(_serving)]
Measuring = Annotated[Metrics, Depends(_metrics)]
Knowing = Annotated[Authentication, Depends(_authentication)]
Answered = Annotated[Response, Depends(_answered)]
TAKES_TOKEN = [Depends(_token)]


def json_body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """A dependency that reads the body as ``model``, through our strict JSON rather than FastAPI's parser."""

    async def read(request: Request) -> Model:
        check_browser(request.headers.raw)
        return checked(model, parse(await request.body()))

    return read


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """The ``openapi_extra`` of a route whose body ``json_body`` reads."""
    schema = model.model_json_schema()
    whole = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": whole}}}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A model's schema with those of the models in it at their places: references to them lead nowhere in OpenAPI."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    beside = {name: _inlined(value, definitions) for name, value in schema.items() if name != "$ref"}
    reference = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    return {**_inlined(definitions[reference], definitions), **beside} if reference else beside


def tagged(request: Request, value: Any) -> Response:
    """The answer with a tag of what it says, and 304 for who has just that: so a list is followed by asking again."""
    body = serialize(value)
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Headrace-Claims"}
    known = request.headers.get("if-none-match", "")
    if tag in {each.strip().removeprefix("W/") for each in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(serialize(value), status, headers, "application/json")
