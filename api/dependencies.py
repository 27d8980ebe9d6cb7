"""The routes' FastAPI dependencies: the deployment, the checked body, an endpoint's answer; and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from api.encoding import parse, serialize
from api.endpoints import Endpoints, token_of
from api.limits import check_browser
from api.metrics import Metrics
from api.schemas import Model, checked
from controller.deployment import Deployment
from domains.errors import NotFound

# All of these are coroutines, though none waits: FastAPI sends a plain function to another thread, at 80 µs a request.


async def _serving(request: Request) -> Deployment:
    deployment: Deployment = request.app.state.deployment
    return deployment


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _token(
    headrace_token: Annotated[
        str | None,
        Header(alias="Headrace-Token", description="A write's token: the read waits until it reflects that write"),
    ] = None,
) -> None:
    """Documents the header, which ``_answered`` reads."""


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
    begun = call.work(name, request.scope["query_string"], await request.body(), token_of(headers))
    body, types = begun if isinstance(begun, tuple) else await begun
    shown = {"Headrace-Types": types.decode()} if types else None
    return Response(body, media_type="application/json", headers=shown)


Serving = Annotated[Deployment, Depends(_serving)]
Measuring = Annotated[Metrics, Depends(_metrics)]
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


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(serialize(value), status, headers, "application/json")
