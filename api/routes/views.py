"""Views: look-ups (documented here, answered by ``api/endpoints.py``), explanations, evictions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from time import monotonic, time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from api.dependencies import (
    FOR_ACCOUNTS,
    TAKES_TOKEN,
    UNCHANGED,
    Answered,
    Asking,
    Knowing,
    Serving,
    answer,
    documented,
    json_body,
    needs,
    tagged,
)
from api.graph import stats_of
from api.schemas import (
    EvictAnswer,
    ExplainAnswer,
    KeysRequest,
    LookupsAnswer,
    LookupsRequest,
    PageAnswer,
    PagesAnswer,
    TaggedKeysRequest,
    ViewsAnswer,
    ViewStatsAnswer,
)
from controller.access.accounts import seconds, time_text
from controller.access.authentication import Authentication
from controller.deployment import RequestMoment, ViewInfo
from controller.live.live_views import LiveViews
from migrations.access.rights import Privilege

router = APIRouter(tags=["views"])

LOOK_SECONDS = 1.0
"""Between two looks of a stream at whether its reader still may: a right that is revoked is gone within two seconds."""

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


@router.get("/v1/views", response_model=ViewsAnswer, responses=UNCHANGED, dependencies=FOR_ACCOUNTS)
async def list_views(request: Request, deployment: Serving, session: Asking) -> Response:
    """All views with their SQL, columns, parameters, and whether they are partial or full: those that the account has a
    right on, and their SQL where it may show it. 304 for who sends the `ETag` of the same list as `If-None-Match`."""
    seen = [each for each in deployment.views() if session.may(None, each.name)]
    shown = [each if session.may(Privilege.SHOW_VIEW, each.name) else replace(each, sql="") for each in seen]
    return tagged(request, {"views": list(map(_view, shown))})


@router.get("/v1/views/{view}", response_model=PageAnswer, openapi_extra=PARAMETERS, dependencies=TAKES_TOKEN)
async def page(view: str, answered: Answered) -> Response:
    """The rows of one view for these parameters; a miss is filled first."""
    return answered


@router.post(
    "/v1/views/{view}/lookup",
    response_model=PagesAnswer,
    openapi_extra=documented(TaggedKeysRequest),
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
    dependencies=needs(Privilege.SELECT, "view"),
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
async def held(view: str, deployment: Serving, session: Asking) -> Response:
    """All that the view's reader holds now, key by key, with the positions that it reflects: lines of JSON.

    The last line is `{"end": …}`; an answer without it was broken off.
    """
    session.check_unfiltered(deployment.policed(view))
    lines = deployment.held(view)
    # What is wrong from the start is an error as any other; past the first line there is only breaking off.
    first = await anext(lines)

    async def all_lines() -> AsyncIterator[bytes]:
        yield first
        looked = monotonic()
        async for line in lines:
            if monotonic() - looked > LOOK_SECONDS:  # A right that is revoked ends it meanwhile.
                now = session.renewed()
                now.check(Privilege.SELECT, view)
                now.check_unfiltered(deployment.policed(view))
                looked = monotonic()
            yield line

    return StreamingResponse(all_lines(), media_type="application/x-ndjson")


@router.post(
    "/v1/views/{view}/evict",
    response_model=EvictAnswer,
    openapi_extra=documented(KeysRequest),
    dependencies=needs(Privilege.EVICT, "view"),
)
async def evict(
    view: str, body: Annotated[KeysRequest, Depends(json_body(KeysRequest))], deployment: Serving, session: Asking
) -> Response:
    """Forget these keys' answers; the next read of each is a miss."""
    return answer({"evicted": await deployment.evict(view, body.keys, RequestMoment(asker=session))})


@router.get(
    "/v1/views/{view}/explain",
    response_model=ExplainAnswer,
    dependencies=needs(Privilege.SHOW_VIEW, "view"),
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def explain(view: str, request: Request, deployment: Serving) -> Response:
    """The view's part of the dataflow as a tree; bare text for who accepts ``text/plain``."""
    tree = deployment.explain(view)
    if "text/plain" in request.headers.get("accept", ""):
        return Response(tree + "\n", media_type="text/plain")
    return answer({"view": view, "explain": tree})


@router.get("/v1/views/{view}/stats", response_model=ViewStatsAnswer, dependencies=needs(Privilege.METRICS))
async def stats(view: str, deployment: Serving, session: Asking, authentication: Knowing) -> Response:
    """Hits and misses, what the view holds, what a miss and a write cost; and for who has PROCESS, who reads it."""
    lookup = deployment.prepare(view)
    name = lookup.info.name
    told = stats_of(name, await deployment.graph(name))
    readers = _readers(name, authentication, deployment.live) if session.may(Privilege.PROCESS) else None
    created = lookup.info.created or None
    age = None if created is None else max(0, int(time() - seconds(created)))
    times = {"created": created, "age": age, "counted": round(monotonic() - lookup.since, 1)}
    return answer({**told, **times, "readers": readers})


def _readers(view: str, authentication: Authentication, live: LiveViews) -> list[dict[str, Any]]:
    """Who watches it comes first, then who read it last; "" is everybody, where there are no accounts."""
    read = authentication.readers(view)
    watching = {account: number for (name, account), number in live.readers().items() if name == view.lower()}
    rows = [
        {"account": account, "last_read": time_text(read.get(account)), "live": watching.get(account, 0)}
        for account in {**read, **watching}
    ]
    return sorted(rows, key=lambda row: (bool(row["live"]), row["last_read"] or ""), reverse=True)


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
        "created": info.created or None,
    }
