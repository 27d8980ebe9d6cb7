"""Views: look-ups (documented here, answered by ``api/endpoints.py``), explanations, evictions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from api.dependencies import TAKES_TOKEN, Answered, Serving, answer, documented, json_body
from api.schemas import (
    EvictAnswer,
    ExplainAnswer,
    KeysRequest,
    LookupsAnswer,
    LookupsRequest,
    PageAnswer,
    PagesAnswer,
    ViewsAnswer,
)
from controller.deployment import ViewInfo

router = APIRouter(tags=["views"])

PARAMETERS = {
    "parameters": [
        {
            "name": "parameters",
            "in": "query",
            "description": "The view's parameters, each named after its column; repeat one for an IN list",
            "style": "form",
            "explode": True,
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
            "example": {"id": "7"},
        }
    ]
}


@router.get("/v1/views", response_model=ViewsAnswer)
async def list_views(deployment: Serving) -> Response:
    """All views with their SQL, columns, parameters, and whether they are partial or full."""
    return answer({"views": [_view(info) for info in deployment.views()]})


@router.get("/v1/views/{view}", response_model=PageAnswer, openapi_extra=PARAMETERS, dependencies=TAKES_TOKEN)
async def page(view: str, answered: Answered) -> Response:
    """The rows of one view for these parameters; a miss is filled first."""
    return answered


@router.post(
    "/v1/views/{view}/lookup",
    response_model=PagesAnswer,
    openapi_extra=documented(KeysRequest),
    dependencies=TAKES_TOKEN,
)
async def lookup(view: str, answered: Answered) -> Response:
    """The rows for each of many keys, in the order asked."""
    return answered


@router.post(
    "/v1/lookups", response_model=LookupsAnswer, openapi_extra=documented(LookupsRequest), dependencies=TAKES_TOKEN
)
async def lookups(answered: Answered) -> Response:
    """Several views at once: for each, the rows of its keys, which may be taken from answers of earlier ones.

    All that a page needs in one request.
    """
    return answered


@router.get(
    "/v1/views/{view}/held",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
async def held(view: str, deployment: Serving) -> Response:
    """All that the view's reader holds now, key by key, with the positions that it reflects: lines of JSON.

    The last line is `{"end": …}`; an answer without it was broken off.
    """
    lines = deployment.held(view)
    # What is wrong from the start is an error as any other; past the first line there is only breaking off.
    first = await anext(lines)

    async def all_lines() -> AsyncIterator[bytes]:
        yield first
        async for line in lines:
            yield line

    return StreamingResponse(all_lines(), media_type="application/x-ndjson")


@router.post("/v1/views/{view}/evict", response_model=EvictAnswer, openapi_extra=documented(KeysRequest))
async def evict(
    view: str, body: Annotated[KeysRequest, Depends(json_body(KeysRequest))], deployment: Serving
) -> Response:
    """Forget these keys' answers; the next read of each is a miss."""
    return answer({"evicted": await deployment.evict(view, body.keys)})


@router.get(
    "/v1/views/{view}/explain",
    response_model=ExplainAnswer,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def explain(view: str, request: Request, deployment: Serving) -> Response:
    """The view's part of the dataflow as a tree; bare text for who accepts ``text/plain``."""
    tree = deployment.explain(view)
    if "text/plain" in request.headers.get("accept", ""):
        return Response(tree + "\n", media_type="text/plain")
    return answer({"view": view, "explain": tree})


def _view(info: ViewInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "sql": info.sql,
        "columns": [{"name": column.name, "type": str(column.type)} for column in info.columns],
        "parameters": [{"name": each.name, "kind": each.kind, "type": str(each.type)} for each in info.parameters],
        "moments": list(info.moments),
        "external": info.external,
        "ad_hoc": info.ad_hoc,
        "materialization": info.materialization,
    }
