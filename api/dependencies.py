"""The routes' FastAPI dependencies: the deployment, the token, the checked body; and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response
from headrace_client import tokens
from pydantic import BaseModel, ValidationError

from api.encoding import parse, serialize
from api.lookups.lookups import LookupCalls
from api.metrics import Metrics
from controller.deployment import Deployment
from domains.errors import BadRequest
from domains.plan.packets import Clock

Model = TypeVar("Model", bound=BaseModel)

# All of these are coroutines, though none waits: FastAPI sends a plain function to another thread, at 80 µs a request.


async def _serving(request: Request) -> Deployment:
    deployment: Deployment = request.app.state.deployment
    return deployment


async def _lookups(request: Request) -> LookupCalls:
    lookups: LookupCalls = request.app.state.lookups
    return lookups


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _token(
    headrace_token: Annotated[
        str | None,
        Header(alias="Headrace-Token", description="A write's token: the read waits until it reflects that write"),
    ] = None,
) -> Clock | None:
    return None if headrace_token is None else tokens.decode(headrace_token)


Serving = Annotated[Deployment, Depends(_serving)]
Looking = Annotated[LookupCalls, Depends(_lookups)]
Measuring = Annotated[Metrics, Depends(_metrics)]
Token = Annotated[Clock | None, Depends(_token)]


def json_body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """A dependency that reads the body as ``model``, through our strict JSON rather than FastAPI's parser.

    Any content type will do (``curl -d`` sends a form's), except from a browser: a page of any origin could else post
    to a server on its reader's own machine without asking.
    """

    async def read(request: Request) -> Model:
        sent_as = request.headers.get("content-type", "")
        if "origin" in request.headers and not sent_as.startswith("application/json"):
            raise BadRequest(f'a browser sent "{sent_as}"', hint="send content-type: application/json")
        return checked(model, await request.body())

    return read


def checked(model: type[Model], body: bytes) -> Model:
    """A body as ``model``. Raises BadRequest."""
    value = parse(body)
    if not isinstance(value, dict):
        raise BadRequest("the request's body must be a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise shape_error(error.errors(include_url=False)) from error


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


def shape_error(problems: Any) -> BadRequest:
    """The first of pydantic's complaints as our error."""
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"])
    return BadRequest(f'"{where}": {first["msg"][0].lower()}{first["msg"][1:]}', hint="see /docs for the call's shape")


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(serialize(value), status, headers, "application/json")
