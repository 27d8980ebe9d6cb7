"""Every error that leaves a FastAPI application of ours has one shape, whoever raised it."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.dependencies import shape_error
from api.statuses import METHOD_NOT_ALLOWED, describe, error_body
from domains.errors import BadRequest, HeadraceError, NotFound

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def answer_errors(app: FastAPI) -> None:
    """Ours, those of a body or parameter that does not fit, and Starlette's own."""
    app.add_exception_handler(HeadraceError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)


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
    if isinstance(error.__cause__, HeadraceError):  # Of ours, met by FastAPI while it read the body: too large.
        return await _known(request, error.__cause__)
    if error.status_code == 404:
        return await _known(request, NotFound(f'no such path "{path}"', hint="see /docs for all calls"))
    if error.status_code == 405:
        allowed = ", ".join(_methods_of(request))
        body = error_body(METHOD_NOT_ALLOWED, f'"{path}" does not take {request.method}', f"it takes {allowed}")
        return Response(body, 405, {"allow": allowed}, "application/json")
    return await _known(request, BadRequest(str(error.detail)))


def _methods_of(request: Request) -> list[str]:
    """All that the path takes. Starlette's refusal names those of one of its routes."""
    methods = [method for method in METHODS if _takes(request, method)]
    return sorted([*methods, "HEAD"] if "GET" in methods else methods)


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
