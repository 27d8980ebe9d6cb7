"""The control interface of a controller: HTTP, for api processes and for whoever runs the cluster.

====================================  =============================================================================
``GET /v1/status``                    this controller, and the cluster as its leader sees it
``GET /v1/directory``                 which worker has which domain, and where it answers
``POST /v1/migrations``               queue a change of tables and views; ``wait``: answer when it has ended
``GET /v1/migrations``                those that wait or run, and those that ended lately
``GET, DELETE /v1/migrations/{id}``   how far it is; cancel it
``POST /v1/automatic``                have an automatic view of a SELECT, tell how often those that are there were asked
``POST /v1/workers/{name}/drain``     have its domains go to others; answers when they have
``DELETE /v1/workers/{name}/drain``   let it have domains again
``POST /v1/rebuild``                  have lost shards rebuilt from the archive; answers when they are, or at once
``GET, DELETE /v1/rebuild/{id}``      how far it is; cancel it while nothing is given up
====================================  =============================================================================

A controller that does not lead answers 503 with the code ``not_leading`` and says who does.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from api.endpoints import RequestMetrics
from api.gate import Gate
from api.limits import MAX_BODY_BYTES, Admission, Limits
from api.routes.migrations import migration_answer
from api.statuses import answer_errors
from api.version import VERSION
from controller.cluster.leader import draining
from controller.cluster.leader.candidate import Candidate
from controller.cluster.leader.leader import directory_of
from controller.cluster.lost_shards.rebuild_way import Rebuilding
from migrations.backfill.spark.settings import By
from migrations.filling import fill_from_json
from migrations.recipe import RecipeEntry


class EntryBody(BaseModel):
    """See ``migrations.recipe.RecipeEntry``."""

    model_config = ConfigDict(extra="forbid")

    statements: list[str] = Field(default=[], description="planned together")
    readers: list[str] = Field(default=[], description="views that are given a reader")
    ad_hoc: bool = Field(default=False, description="the statement is a SELECT in its normal form")
    forget: list[str] = Field(default=[], description="views of SELECTs that go")

    def entry(self) -> RecipeEntry:
        return RecipeEntry(tuple(self.statements), tuple(self.readers), self.ad_hoc, tuple(self.forget))


class MigrationBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    entry: EntryBody
    sql: str = Field(description="as it is shown", max_length=MAX_BODY_BYTES)
    wait: bool = Field(default=False, description="answer when it has ended")
    rows: dict[str, Any] | None = Field(default=None, description="those of the table that it creates")


class AutomaticBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keep: str | None = Field(default=None, description="a SELECT in its normal form", max_length=MAX_BODY_BYTES)
    lately: int = Field(default=0, description="how often that was asked lately")
    used: dict[str, int] = Field(default={}, description="how often each view was asked since, by name")
    written: dict[str, int] = Field(default={}, description="how often each table was written to so far")


class RebuildBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    shards: list[int] = Field(default=[], description="their numbers; none: all that are lost")
    known: dict[str, int] = Field(default={}, description="positions that were acknowledged, by base shard")
    by: By = Field(default="auto", description="who folds the archive")
    wait: bool = Field(default=True, description="answer when it has ended")


def create_control_app(candidate: Candidate, limits: Limits | None = None) -> FastAPI:
    """The ASGI application of one controller."""
    app = FastAPI(title="Headrace controller", version=VERSION, description=__doc__, redirect_slashes=False)

    @app.get("/v1/status")
    async def status() -> dict[str, Any]:
        return candidate.status()

    @app.get("/v1/directory")
    async def directory() -> dict[str, Any]:
        return directory_of(await candidate.leading())

    @app.post("/v1/migrations")
    async def start(body: MigrationBody) -> dict[str, Any]:
        rows = None if body.rows is None else fill_from_json(body.rows)
        migration = (await candidate.leading()).serving().start(body.entry.entry(), body.sql, rows=rows)
        if body.wait:
            await migration.ended.wait()
        return asdict(migration.status())

    @app.get("/v1/migrations")
    async def migrations() -> list[dict[str, Any]]:
        return list(map(asdict, (await candidate.leading()).serving().statuses()))

    @app.get("/v1/migrations/{id}")
    async def migration(id: str) -> dict[str, Any]:
        return asdict((await candidate.leading()).serving().status(id))

    @app.delete("/v1/migrations/{id}")
    async def cancel(id: str) -> dict[str, Any]:
        return asdict((await candidate.leading()).serving().cancel(id))

    @app.post("/v1/automatic")
    async def automatic(body: AutomaticBody) -> dict[str, Any]:
        views = (await candidate.leading()).keeping()
        views.used(body.used, body.written)
        if body.keep is not None:
            await views.keep(body.keep, body.lately)
        return asdict(views.told())

    @app.post("/v1/workers/{name}/drain")
    async def drain(name: str) -> dict[str, Any]:
        await draining.drain(await candidate.leading(), name)
        return {"worker": name, "drained": True}

    @app.delete("/v1/workers/{name}/drain")
    async def undrain(name: str) -> dict[str, Any]:
        await draining.undrain(await candidate.leading(), name)
        return {"worker": name, "drained": False}

    @app.post("/v1/rebuild")
    async def rebuild(body: RebuildBody) -> dict[str, Any]:
        one = (await candidate.leading()).rebuild_operations.start(body.shards, body.known, body.by)
        if body.wait:
            await one.ended.wait()
            if one.error is not None:
                raise one.error
        return _rebuilding(one)

    @app.get("/v1/rebuild/{id}")
    async def rebuilding(id: str) -> dict[str, Any]:
        return _rebuilding((await candidate.leading()).rebuild_operations.get(id))

    @app.delete("/v1/rebuild/{id}")
    async def cancel_rebuild(id: str) -> dict[str, Any]:
        return _rebuilding((await candidate.leading()).rebuild_operations.cancel(id))

    app.add_middleware(Gate, requests=RequestMetrics(), admission=Admission(limits or Limits()))
    answer_errors(app)
    return app


def _rebuilding(one: Rebuilding) -> dict[str, Any]:
    """The status in the form that migrations have: a command shows both by the same bar."""
    return {**migration_answer(one.status()), "rebuilt": one.rebuilt}
