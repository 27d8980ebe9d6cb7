"""Puts the two doors together: the endpoints in front, FastAPI behind them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from api import pages
from api.doors.asgi import AsgiDoor
from api.endpoints import Endpoints
from api.gate import Gate
from api.limits import MAX_BODY_BYTES
from api.metrics import Metrics, RequestMetrics
from api.routes import ROUTERS
from api.schemas import ErrorAnswer
from api.statuses import answer_errors
from api.version import VERSION
from controller.deployment import Deployment

DESCRIPTION = """Answers to SQL queries, kept ready to read.

A write's `token`, given to any read as the header `Headrace-Token`, makes that read wait until it reflects the write.
Every error is `{"error": {"code", "message", "hint"}}`."""

ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}}


def create_app(deployment: Deployment, *, max_body: int = MAX_BODY_BYTES, slow: float = 0.0) -> AsgiDoor:
    """The ASGI application for a deployment that is open. Closing it stays with the caller.

    Requests that take ``slow`` seconds or longer are logged; 0: none."""
    requests = RequestMetrics(slow)
    endpoints = Endpoints(deployment, requests, max_body)
    fastapi = FastAPI(
        title="Headrace",
        version=VERSION,
        description=DESCRIPTION,
        responses=ERRORS,
        redirect_slashes=False,
        docs_url=None,  # See pages.py.
        redoc_url=None,
    )
    fastapi.state.deployment = deployment
    fastapi.state.endpoints = endpoints
    fastapi.state.metrics = Metrics(deployment, requests)
    for router in (*ROUTERS, pages.router):
        fastapi.include_router(router)
    fastapi.add_middleware(Gate, requests=requests, max_body=max_body)
    answer_errors(fastapi)
    return AsgiDoor(fastapi, endpoints)
