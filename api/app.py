"""Puts the two doors together: the hot route in front, FastAPI behind it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from api.dependencies import shape_error
from api.gate import Gate
from api.hot_route import HotRoute
from api.limits import MAX_BODY_BYTES
from api.lookups import Lookups
from api.metrics import Metrics, Requests
from api.routes import ROUTERS
from api.schemas import ErrorAnswer
from api.statuses import METHOD_NOT_ALLOWED, describe, error_body
from controller.deployment import Deployment
from domains.errors import BadRequest, HeadraceError, NotFound

DESCRIPTION = """Answers to SQL queries, kept ready to read.

A write's `token`, given to any read as the header `Headrace-Token`, makes that read wait until it reflects the write.
Every error is `{"error": {"code", "message", "hint"}}`."""

ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}}


def create_app(deployment: Deployment, *, max_body: int = MAX_BODY_BYTES) -> HotRoute:
    """The ASGI application for a deployment that is open. Closing it stays with the caller."""
    requests, lookups = Requests(), Lookups(deployment)
    fastapi = FastAPI(
        title="Headrace", version="0.1.0", description=DESCRIPTION, responses=ERRORS, redirect_slashes=False
    )
    fastapi.state.deployment = deployment
    fastapi.state.lookups = lookups
    fastapi.state.metrics = Metrics(deployment, requests)
    for router in ROUTERS:
        fastapi.include_router(router)
    fastapi.add_middleware(Gate, requests=requests, max_body=max_body)
    fastapi.add_exception_handler(HeadraceError, _known)
    fastapi.add_exception_handler(RequestValidationError, _invalid)
    fastapi.add_exception_handler(HTTPException, _refused)
    return HotRoute(fastapi, lookups, deployment, requests, max_body)


async def _known(request: Request, error: Exception) -> Response:
    status, body = describe(error, request.url.path)
    return Response(body, status, media_type="application/json")


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _known(request, shape_error(error.errors()))


async def _refused(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such path, and a method that the path does not take."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        return await _known(request, NotFound(f'no such path "{path}"', hint="see /docs for all calls"))
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        hint = f"it takes {allowed}" if allowed else None
        body = error_body(METHOD_NOT_ALLOWED, f'"{path}" does not take {request.method}', hint)
        return Response(body, 405, dict(error.headers or {}), "application/json")
    return await _known(request, BadRequest(str(error.detail)))
