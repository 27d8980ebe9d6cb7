"""The routes of whoever runs the server: health, status, graph, metrics."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse

from api.dependencies import FOR_ACCOUNTS, FOR_ALL, Asking, Measuring, Serving, answer, needs
from api.encoding import loads
from api.graph import collapsed
from api.schemas import (
    DrillsAnswer,
    GraphAnswer,
    HealthAnswer,
    LineageAnswer,
    OverviewAnswer,
    ReadyAnswer,
    SchemaAnswer,
    UnreadyAnswer,
)
from api.statuses import STATUSES
from api.version import VERSION
from controller.access.accounts import time_text
from controller.deployment import ReasonKind, health_of
from domains.errors import BadRequest, NotFound, Unavailable
from migrations.access.rights import Privilege
from worker.adhoc.lineage import LINEAGE_MOST

router = APIRouter(tags=["operations"])

HEALTHY = "ok"


@router.get("/healthz", response_model=HealthAnswer, dependencies=FOR_ALL)
async def alive() -> Response:
    """200 as long as the process answers, whatever it serves."""
    return answer({"status": HEALTHY})


@router.get("/readyz", response_model=ReadyAnswer, responses={503: {"model": UnreadyAnswer}}, dependencies=FOR_ALL)
async def ready(
    deployment: Serving,
    exclude: Annotated[str, Query(description="Kinds of reasons that do not count, by commas: `leader,changes`")] = "",
) -> Response:
    """200 while all of the deployment is served and can be changed, else 503 with the reasons."""
    reasons = await deployment.unready()
    left_out = _kinds(exclude)
    shown = [{"reason": each.kind.value, "message": each.message} for each in reasons]
    counted = [each for each in reasons if each.kind not in left_out]
    if not counted:
        return answer({"status": HEALTHY, "reasons": shown})
    hint = "tried again, it may serve; ?exclude= leaves kinds of reasons out"
    error = {"code": Unavailable.code, "message": f"not ready: {health_of(counted)}", "hint": hint}
    return answer({"error": error, "reasons": shown}, STATUSES[Unavailable])


def _kinds(text: str) -> set[ReasonKind]:
    """Raises BadRequest."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [kind.value for kind in ReasonKind]
    for name in names:
        if name not in known:
            raise BadRequest(f'"{name}" is no kind of reason', hint=f"exclude some of {', '.join(known)}")
    return {ReasonKind(name) for name in names}


@router.get("/v1/status", response_model=dict[str, Any], dependencies=needs(Privilege.METRICS))
async def status(measured: Measuring) -> Response:
    """Version, health, memory, counters, uptime, and what is under way."""
    return answer({"version": VERSION, **await measured.status()})


@router.get("/v1/schema", response_model=SchemaAnswer, dependencies=needs(Privilege.SHOW_VIEW))
async def schema(deployment: Serving) -> Response:
    """The statements that make all tables and views anew, in an order in which they can be run."""
    return answer({"sql": deployment.schema()})


@router.get("/v1/graph", response_model=GraphAnswer | OverviewAnswer, dependencies=needs(Privilege.METRICS))
async def graph(
    deployment: Serving,
    view: Annotated[str | None, Query(description="Only what this view's answers are computed by")] = None,
    by: Annotated[Literal["node", "view"], Query(description="`view`: a box for each table and view")] = "node",
) -> Response:
    """The dataflow: domains, nodes, edges, links; or only the tables, the views, and which reads which."""
    if view is not None:
        deployment.prepare(view)  # Raises NotFound, with the nearest name.
    told = await deployment.graph(view)
    # Of thousands of nodes that takes a tenth of a second, for which no read is to wait.
    return answer(await to_thread(collapsed, told) if by == "view" else told)


@router.get("/v1/lineage", response_model=LineageAnswer, dependencies=FOR_ACCOUNTS)
async def lineage(
    deployment: Serving,
    session: Asking,
    view: Annotated[str, Query(description="Its tables are to be readable, too")],
    key: Annotated[str, Query(description='As JSON, by position or by name: `[7]`, `{"id": 7}`')] = "[]",
    row: Annotated[int, Query(description="Its place in the answer, from 0")] = 0,
) -> Response:
    """The base rows that one row of an answer comes from, as the tables are now: all of a group's, where it counts or
    sums. Where row policies apply to who asks, those that they let through."""
    try:
        asked = loads(key.encode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f'"key" is not JSON: {error}', hint="for example key=[7]") from error
    found = await deployment.lineage(view, asked, row, session)
    told = [
        {"table": table, "row": dict(zip(names, values, strict=True))} for table, names, values in found[:LINEAGE_MOST]
    ]
    return answer({"rows": told, "more": len(found) > LINEAGE_MOST})


@router.get("/v1/drills", response_model=DrillsAnswer, dependencies=needs(Privilege.METRICS))
async def drills(request: Request) -> Response:
    """What `headrace drill --out` has found, from the directory that the setting `drills` names; the latest first."""
    return answer({"drills": await to_thread(_drills, request.app.state.drills)})


@router.get(
    "/v1/drills/{drill}/picture",
    response_class=FileResponse,
    dependencies=needs(Privilege.METRICS),
    responses={200: {"content": {"image/png": {}}}},
)
async def picture(drill: str, request: Request) -> Response:
    """Requests and faults of a drill over time."""
    found = [each for each in await to_thread(_drills, request.app.state.drills) if each["drill"] == drill]
    if not found or not found[0]["picture"]:
        raise NotFound(f'there is no picture of a drill "{drill}"', hint="GET /v1/drills lists what there is")
    return FileResponse(request.app.state.drills / f"{drill}.png", media_type="image/png")


def _drills(directory: Path | None) -> list[dict[str, Any]]:
    """What is no result of a drill is left out."""
    found = []
    for path in () if directory is None else directory.glob("*.json"):
        try:
            told, written = loads(path.read_bytes()), path.stat().st_mtime
            shown = {name: told[name] for name in ("drill", "says", "seed", "held", "goals")}
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if shown["drill"] == path.stem:
            found.append(
                (written, {**shown, "time": time_text(written), "picture": path.with_suffix(".png").is_file()})
            )
    return [shown for _, shown in sorted(found, key=lambda each: each[0], reverse=True)]


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    dependencies=needs(Privilege.METRICS),
)
async def metrics(measured: Measuring) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(await measured.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
