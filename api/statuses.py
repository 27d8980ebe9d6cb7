"""The one table from exception to HTTP status, and the one shape of an error's body."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.schemas import shape_error
from domains import errors
from domains.errors import BadRequest, HeadraceError, NotFound, RowsRefused
from worker.protocol.messages import NotHere, StaleEpoch

STATUSES: dict[type[HeadraceError], int] = {
    errors.SqlError: 400,
    errors.SqlSyntaxError: 400,
    errors.UnknownName: 400,
    errors.Unsupported: 422,
    errors.TypeViolation: 422,
    errors.ConstraintViolation: 409,
    errors.RowsRefused: 409,
    errors.Conflict: 409,
    errors.TransactionEnded: 410,
    errors.SnapshotGone: 410,
    errors.OutOfOrder: 409,
    errors.AlreadyExists: 409,
    errors.StillInUse: 409,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.OffsetGone: 410,
    errors.BadRequest: 400,
    errors.HostNotAllowed: 421,
    errors.ReadTimeout: 504,
    errors.LimitExceeded: 413,
    errors.UrlTooLong: 414,
    errors.HeadersTooLarge: 431,
    errors.RequestTooSlow: 408,
    errors.TooManyRequests: 429,
    errors.Overloaded: 503,
    errors.Cancelled: 409,
    errors.StorageFailure: 503,
    errors.Unavailable: 503,
    errors.OutcomeUnknown: 503,
    errors.Locked: 503,
    errors.LockNotFree: 503,
    errors.NotServed: 503,
    errors.RowsChanged: 503,
    errors.NoLeader: 503,
    errors.LeaderLost: 503,
    StaleEpoch: 503,
    NotHere: 503,
}

SESSION = "headrace.session"
"""The key of a request's session in ASGI's scope."""
CERTIFICATE = "headrace.certificate"
"""The key of the client's certificate there, where the connection has one."""
SCHEMES = b'Bearer realm="headrace", Basic realm="headrace"'
"""The answer's header ``WWW-Authenticate`` with 401: by which tools know what to send."""
INTERNAL_ERROR = "internal_error"
METHOD_NOT_ALLOWED = "method_not_allowed"

log = logging.getLogger("headrace.api")


def error_body(code: str, message: str, hint: str | None = None, rows: Sequence[tuple[int, str]] = ()) -> bytes:
    """``{"error": {"code", "message", "hint"}}``; every error that leaves the server has this shape.

    One of many rows (``rows_refused``) also has ``"rows"``: ``[{"row": from 1, "reason"}]``.
    """
    shown: dict[str, Any] = {"code": code, "message": message, "hint": hint}
    if rows:
        shown["rows"] = [{"row": row, "reason": reason} for row, reason in rows]
    try:
        return orjson.dumps({"error": shown})
    except orjson.JSONEncodeError:  # A message that quotes what was sent may quote half a surrogate pair.
        return json.dumps({"error": shown}, ensure_ascii=False).encode("utf-8", "replace")


def status_of(error: HeadraceError) -> int:
    """The status of the error's class, or of the nearest class above it that the table names."""
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)


def describe(error: Exception, doing: str) -> tuple[int, bytes]:
    """Status and body for any exception. An unexpected one is logged under an id, which is all that the answer says.

    The frames that it passed are let go: where one of them knows the task that it ended, they would stay until garbage
    is collected, with bodies and answers of 100 MB.
    """
    if isinstance(error, HeadraceError):
        log.debug("%s refused: %s", doing, error)
        let_frames_go(error)
        rows = error.rows if isinstance(error, RowsRefused) else ()
        return status_of(error), error_body(error.code, error.message, error.hint, rows)
    reference = secrets.token_hex(6)
    log.error("internal error %s in %s", reference, doing, exc_info=error)
    let_frames_go(error)
    hint = f'the server\'s log has the details under "{reference}"'
    return 500, error_body(INTERNAL_ERROR, f"internal error {reference}", hint)


def let_frames_go(error: BaseException) -> None:
    """Clear the frames of an error that nobody raises again, and of its causes."""
    behind: BaseException | None = error
    while behind is not None and behind.__traceback__ is not None:
        behind.__traceback__ = None
        behind = behind.__cause__ or behind.__context__


# Every error that leaves a FastAPI application of ours has one shape, whoever raised it.

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def answer_errors(app: FastAPI) -> None:
    """Ours, those of a body or parameter that does not fit, and Starlette's own."""
    app.add_exception_handler(HeadraceError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)


async def _known(request: Request, error: Exception) -> Response:
    status, body = describe(error, request.url.path)
    headers = {"www-authenticate": SCHEMES.decode()} if status == 401 else None
    return Response(body, status, headers, "application/json")


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
