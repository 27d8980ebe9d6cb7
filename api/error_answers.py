"""Every error that leaves a FastAPI application of ours has one shape, whoever raised it."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from api.dependencies import shape_error
from api.statuses import METHOD_NOT_ALLOWED, describe, error_body
from domains.errors import BadRequest, HeadraceError, NotFound


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
        allowed = (error.headers or {}).get("Allow", "")
        hint = f"it takes {allowed}" if allowed else None
        body = error_body(METHOD_NOT_ALLOWED, f'"{path}" does not take {request.method}', hint)
        return Response(body, 405, dict(error.headers or {}), "application/json")
    return await _known(request, BadRequest(str(error.detail)))
