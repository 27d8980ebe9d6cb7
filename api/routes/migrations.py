"""Migrations: changes of the running dataflow, queued, watched and cancelled."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from api.dependencies import FOR_ACCOUNTS, Asking, Serving, answer, documented, json_body, needs
from api.schemas import MigrationAccepted, MigrationAnswer, MigrationRequest, MigrationsAnswer
from controller.deployment import BackfillStatus, MigrationStatus
from migrations.access.rights import Privilege

router = APIRouter(tags=["migrations"])


@router.post(
    "/v1/migrations",
    status_code=202,
    response_model=MigrationAccepted,
    openapi_extra=documented(MigrationRequest),
    dependencies=FOR_ACCOUNTS,
)
async def migrate(
    body: Annotated[MigrationRequest, Depends(json_body(MigrationRequest))], deployment: Serving, session: Asking
) -> Response:
    """Queue a migration. What planning can tell (syntax, unknown names) is answered at once."""
    await deployment.check_text(body.sql, session)
    status = await deployment.migrate(body.sql)
    return answer({"id": status.id}, 202, {"location": f"/v1/migrations/{status.id}"})


@router.get("/v1/migrations", response_model=MigrationsAnswer, dependencies=needs(Privilege.PROCESS))
async def list_all(deployment: Serving) -> Response:
    """The migrations that wait or run, whoever began them, and those that ended lately; the latest first."""
    return answer({"migrations": list(map(migration_answer, await deployment.migrations()))})


@router.get("/v1/migrations/{id}", response_model=MigrationAnswer, dependencies=FOR_ACCOUNTS)
async def show(id: str, deployment: Serving) -> Response:
    """State, current step, and progress from 0 to 1."""
    return answer(migration_answer(await deployment.migration(id)))


@router.delete("/v1/migrations/{id}", response_model=MigrationAnswer, dependencies=needs(Privilege.PROCESS))
async def cancel(id: str, deployment: Serving) -> Response:
    """Cancel; the graph serves on as it was before. One that is done stays done."""
    return answer(migration_answer(await deployment.cancel_migration(id)))


def migration_answer(status: MigrationStatus) -> dict[str, Any]:
    """The document of :class:`~api.schemas.MigrationAnswer`; a controller answers so for a rebuild, too."""
    return {
        "id": status.id,
        "sql": status.sql,
        "state": status.state,
        "step": status.step,
        "progress": status.progress,
        "steps": status.steps,
        **_backfill(status.backfill),
        "error": None if status.error is None else dict(zip(("code", "message", "hint"), status.error, strict=True)),
    }


def _backfill(status: BackfillStatus | None) -> dict[str, Any]:
    shown = asdict(status or BackfillStatus("", ""))
    return {"backfill": shown.pop("way") or None, "why": shown.pop("why") or None, **shown}
