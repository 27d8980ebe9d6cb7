"""The routes of whoever runs the server: health, status, graph, metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from api.dependencies import Measuring, Serving, answer
from api.schemas import HealthAnswer, SchemaAnswer
from api.version import VERSION
from domains.errors import Unavailable

router = APIRouter(tags=["operations"])

HEALTHY = "ok"


@router.get("/healthz", response_model=HealthAnswer)
async def health(deployment: Serving) -> Response:
    """200 while all of the deployment serves, else 503."""
    state = await deployment.health()
    if state != HEALTHY:
        raise Unavailable(f"not all is served: {state}")
    return answer({"status": state})


@router.get("/livez", response_model=HealthAnswer)
async def alive() -> Response:
    """200 as long as the process answers, whatever it serves."""
    return answer({"status": HEALTHY})


@router.get("/v1/status", response_model=dict[str, Any])
async def status(measured: Measuring) -> Response:
    """Version, health, memory, counters, uptime, and what is under way."""
    return answer({"version": VERSION, **await measured.status()})


@router.get("/v1/schema", response_model=SchemaAnswer)
async def schema(deployment: Serving) -> Response:
    """The statements that make all tables and views anew, in an order in which they can be run."""
    return answer({"sql": deployment.schema()})


@router.get("/v1/graph", response_model=dict[str, Any])
async def graph(deployment: Serving) -> Response:
    """The dataflow: domains, nodes, edges, links."""
    return answer(await deployment.graph())


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def metrics(measured: Measuring) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(await measured.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
