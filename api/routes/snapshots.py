"""Snapshots: taken, listed and dropped here, and read by the header ``Headrace-Snapshot``."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from api.dependencies import FOR_ACCOUNTS, Serving, answer, documented, json_body, needs
from api.schemas import Json
from domains.language.json_rows import schema_to_json
from domains.store.storage import SnapshotRecord
from migrations.access.rights import Privilege

router = APIRouter(tags=["snapshots"])


class SnapshotRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(default="", description="One that is made up, if it is left out")
    hold: bool = Field(
        default=False, description="Until it is dropped, over restarts; else it goes 10 s after there is a later one"
    )


class SnapshotRow(BaseModel):
    name: str = Field(description="For the header `Headrace-Snapshot`, and `?as_of=`")
    at: str = Field(description="When it was taken, in UTC")
    held: bool


class SnapshotsAnswer(BaseModel):
    snapshots: list[SnapshotRow]


class SnapshotCut(SnapshotRow):
    positions: dict[str, int] = Field(description="The last write to each base shard that is in it")
    tables: list[dict[str, Json]] = Field(description="Its tables as they were, as the archive's manifests have them")


class SnapshotDropped(BaseModel):
    dropped: str


def _row(record: SnapshotRecord) -> dict[str, Any]:
    return asdict(record) | {"at": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds")}


@router.post(
    "/v1/snapshots",
    status_code=201,
    response_model=SnapshotRow,
    openapi_extra=documented(SnapshotRequest),
    dependencies=needs(Privilege.ARCHIVE),
)
async def take(body: Annotated[SnapshotRequest, Depends(json_body(SnapshotRequest))], deployment: Serving) -> Response:
    """Keep all tables as they are at one moment, over all shards. Requests read them so by the header
    `Headrace-Snapshot`: SELECTs of `/v1/sql`, and look-ups of views."""
    record = await deployment.snapshots.take(body.name, hold=body.hold)
    return answer(_row(record), 201, {"location": f"/v1/snapshots/{record.name}"})


@router.get("/v1/snapshots", response_model=SnapshotsAnswer, dependencies=FOR_ACCOUNTS)
async def list_kept(deployment: Serving) -> Response:
    """Those that are kept, the oldest first; the last one is `latest`."""
    return answer({"snapshots": [_row(each) for each in await deployment.snapshots.list()]})


@router.get("/v1/snapshots/{name}", response_model=SnapshotCut, dependencies=needs(Privilege.ARCHIVE))
async def cut(name: str, deployment: Serving) -> Response:
    """Where all base shards are in it: what `headrace backup` and `headrace verify` take of the archive. 410 where a
    shard does not keep it."""
    record, positions, tables = await deployment.snapshots.cut(name)
    return answer(_row(record) | {"positions": positions, "tables": [schema_to_json(each) for each in tables]})


@router.delete("/v1/snapshots/{name}", response_model=SnapshotDropped, dependencies=needs(Privilege.ARCHIVE))
async def drop(name: str, deployment: Serving) -> Response:
    """Keep it no more."""
    await deployment.snapshots.drop(name)
    return answer({"dropped": name})
