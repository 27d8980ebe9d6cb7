"""Statements of any kind."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.dependencies import TAKES_TOKEN, Answered, documented
from api.schemas import SqlAnswer, SqlRequest

router = APIRouter(tags=["sql"])


@router.post("/v1/sql", response_model=SqlAnswer, openapi_extra=documented(SqlRequest), dependencies=TAKES_TOKEN)
async def execute(answered: Answered) -> Response:
    """Run one statement or several, in order. A SELECT becomes a view and is served by it from then on."""
    return answered
