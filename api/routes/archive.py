"""The archive of the base tables: bring it up to now."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Response
from headrace_client import tokens

from api.dependencies import Serving, answer, needs
from api.schemas import ArchiveAnswer
from controller.deployment import ArchivedPositions
from migrations.access.rights import Privilege

router = APIRouter(tags=["archive"])


@router.post("/v1/archive", response_model=ArchiveAnswer, dependencies=needs(Privilege.ARCHIVE))
async def archive(deployment: Serving) -> Response:
    """Archive everything that was written so far, and say up to where. 400 where the server has no archive."""
    return answer(_shown(await deployment.archive()))


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
