"""The archive of the base tables and the back-ups made of it: what there is, and bringing the archive up to now."""

from __future__ import annotations

from asyncio import to_thread
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from headrace_client import tokens
from pydantic import BaseModel, Field

from api.dependencies import Serving, answer, needs
from api.limits import check_browser
from api.schemas import Json
from controller.deployment import ArchivedPositions
from migrations.access.rights import Privilege

router = APIRouter(tags=["archive"])


class ArchivedShardAnswer(BaseModel):
    position: int = Field(description="The last archived write")
    behind: int = Field(description="Writes since then: a lost disk takes these with it")
    begin: int = Field(description="How far back it reaches")
    segments: int = Field(description="Files")
    rows: int
    bytes: int


class ProcessArchive(BaseModel):
    worker: str | None = Field(description="Null where one process is all")
    url: str
    interval: float = Field(description="Seconds between two archivings")
    retention: float = Field(description="Seconds for which every archived position can be gone back to")
    last: str | None = Field(description="When it archived last")
    compacting: bool
    holds: dict[str, Json] = Field(description="Positions whose log is kept for somebody")
    shards: dict[str, ArchivedShardAnswer]
    alarms: list[dict[str, Json]]


class ArchiveState(BaseModel):
    archives: list[ProcessArchive]


class BackupAnswer(BaseModel):
    backup: str = Field(description="Its directory's name")
    time: str | None = Field(description="When it was begun")
    shards: int | None
    files: int | None
    writes: int | None = Field(description="That it has, to all tables: the sum of its positions")
    damage: str | None = Field(description="Why it cannot be restored; its files' digests are not looked at")


class BackupsAnswer(BaseModel):
    known: bool = Field(description="Whether the setting `backups` says where they are")
    backups: list[BackupAnswer]


class ArchiveAnswer(BaseModel):
    url: str
    positions: dict[str, int] = Field(description="The last archived position of each base shard")
    token: str = Field(description="The same as a token: what `headrace restore --as-of` takes")
    shards: int
    recipe: dict[str, Json] = Field(description="Every migration so far, in order: that of the cut")
    identities: dict[str, str] = Field(description="Of the table that each base shard is part of")
    time: str = Field(description="When it was cut; not before that of any earlier recipe in the archive")
    number: int = Field(description="Of the recipe's record in the archive: records are in this order")


@router.get("/v1/archive", response_model=ArchiveState, dependencies=needs(Privilege.METRICS))
async def state(deployment: Serving) -> Response:
    """What each process has archived of each shard, how far behind that is, and its alarms. None where there is no
    archive."""
    status = await deployment.status()
    own = [{"worker": None, **status["archive"]}] if "archive" in status else []
    workers = [{"worker": each["worker"], **each["archive"]} for each in status.get("workers", ()) if "archive" in each]
    return answer({"archives": own + workers})


@router.post("/v1/archive", response_model=ArchiveAnswer, dependencies=needs(Privilege.ARCHIVE))
async def archive(request: Request, deployment: Serving) -> Response:
    """Archive everything that was written so far, and say up to where. 400 where the server has no archive."""
    check_browser(request.headers.raw)  # It has no body, whose reading looks at that.
    return answer(_shown(await deployment.archive()))


@router.get("/v1/backups", response_model=BackupsAnswer, dependencies=needs(Privilege.METRICS))
async def backups(request: Request) -> Response:
    """The back-ups under the directory or URL that the setting `backups` names, the latest first: at most 100."""
    listed = request.app.state.backups
    return answer({"known": listed is not None, "backups": [] if listed is None else await to_thread(listed)})


def _shown(archived: ArchivedPositions) -> dict[str, Any]:
    return {
        "url": archived.url,
        "positions": dict(archived.positions),
        "token": tokens.encode(archived.positions),
        "shards": archived.shards,
        "recipe": orjson.loads(archived.recipe),
        "identities": archived.identities,
        "time": archived.time,
        "number": archived.number,
    }
