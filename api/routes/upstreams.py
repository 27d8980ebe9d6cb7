"""Databases elsewhere whose tables are kept here: a position of one as a token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from headrace_client import tokens
from pydantic import BaseModel, Field

from api.dependencies import FOR_ACCOUNTS, Serving, answer
from controller.upstreams.following import wait_for_upstream

router = APIRouter(tags=["upstreams"])


class UpstreamToken(BaseModel):
    token: str = Field(description="For the header `Headrace-Token`: a read that carries it reflects the position")


@router.get("/v1/upstreams/{source}/token", response_model=UpstreamToken, dependencies=FOR_ACCOUNTS)
async def reached(
    source: str,
    position: Annotated[str, Query(description="Of MariaDB a GTID, `0-1-42`; of PostgreSQL an LSN, `0/16B3748`")],
    deployment: Serving,
) -> Response:
    """Waits until what that database had written at the position is here, for as long as a read waits for a token."""
    return answer({"token": tokens.encode(await wait_for_upstream(deployment, source, position))})
