"""Statements of any kind."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Response

from api.dependencies import TAKES_TOKEN, Answered, Serving, answer, documented, needs
from api.schemas import QueriesAnswer, RunningQueriesAnswer, RunningQuery, SqlAnswer, SqlRequest
from migrations.access.rights import Privilege

router = APIRouter(tags=["sql"])


@router.post("/v1/sql", response_model=SqlAnswer, openapi_extra=documented(SqlRequest), dependencies=TAKES_TOKEN)
async def execute(answered: Answered) -> Response:
    """Run one statement or several, in order. A SELECT that no view answers is evaluated over the base tables; one that
    is asked again and again becomes a view, see ``GET /v1/queries``."""
    return answered


@router.get("/v1/queries", response_model=QueriesAnswer, dependencies=needs(Privilege.PROCESS))
async def queries(deployment: Serving) -> Response:
    """The SELECTs that were asked without a view since the start, by their shape: constants are parameters. Those that
    took longest come first. In a cluster: of all api processes together."""
    told = await deployment.lists.queries()
    return answer({"queries": list(map(asdict, told.found)), "missing": list(map(asdict, told.missing))})


@router.get("/v1/queries/running", response_model=RunningQueriesAnswer, dependencies=needs(Privilege.PROCESS))
async def running(deployment: Serving) -> Response:
    """The statements that are performed now, the oldest first. In a cluster: by all api processes."""
    told = await deployment.lists.running()
    return answer({"running": list(map(asdict, told.found)), "missing": list(map(asdict, told.missing))})


@router.delete("/v1/queries/running/{id}", response_model=RunningQuery, dependencies=needs(Privilege.PROCESS))
async def stop(id: int, deployment: Serving) -> Response:
    """Stop a statement, whichever api process performs it: what evaluates it ends, and its client is told. What it has
    written stays; a migration that it waits for goes on, and is cancelled by its own id."""
    return answer(asdict(await deployment.lists.stop(id)))
