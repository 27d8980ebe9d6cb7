"""Base tables: what they are, and writes to them. A request's rows are applied all or none in each shard."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from api.dependencies import FOR_ACCOUNTS, UNCHANGED, Answered, Asking, Serving, answer, documented, needs, tagged
from api.schemas import (
    DeleteRequest,
    RowsBody,
    StreamAnswer,
    StreamsAnswer,
    TablesAnswer,
    UpdateRequest,
    WriteAnswer,
)
from domains.language.collating.collation import BINARY
from domains.language.json_rows import json_value
from domains.language.types import Kind, TableSchema
from migrations.access.rights import Privilege

router = APIRouter(tags=["tables"])


@router.get("/v1/tables", response_model=TablesAnswer, responses=UNCHANGED, dependencies=FOR_ACCOUNTS)
async def list_tables(request: Request, deployment: Serving, session: Asking) -> Response:
    """All base tables with their columns, keys and indexes: those that the account has a right on. 304 for who sends
    the `ETag` of the same list as `If-None-Match`."""
    shown = [_table(each) for each in deployment.tables() if session.may(None, each.title)]
    return tagged(request, {"tables": shown})


@router.post("/v1/tables/{table}/rows", response_model=WriteAnswer, openapi_extra=documented(RowsBody))
async def insert(table: str, answered: Answered) -> Response:
    """Insert rows; `on_duplicate` says what becomes of those whose key is taken."""
    return answered


@router.patch("/v1/tables/{table}/rows", response_model=WriteAnswer, openapi_extra=documented(UpdateRequest))
async def update(table: str, answered: Answered) -> Response:
    """Change columns of the rows with this key."""
    return answered


@router.delete("/v1/tables/{table}/rows", response_model=WriteAnswer, openapi_extra=documented(DeleteRequest))
async def delete(table: str, answered: Answered) -> Response:
    """Delete the rows with this key."""
    return answered


@router.get("/v1/tables/{table}/streams", response_model=StreamsAnswer, dependencies=needs(Privilege.INSERT, "table"))
async def streams(table: str, deployment: Serving) -> Response:
    """Streams of numbered inserts that the table remembers."""
    found = await deployment.streams(table)
    return answer({"streams": [{"stream": name, "number": number} for name, number in found.items()]})


@router.get(
    "/v1/tables/{table}/streams/{stream}", response_model=StreamAnswer, dependencies=needs(Privilege.INSERT, "table")
)
async def stream(table: str, stream: str, deployment: Serving) -> Response:
    """How far a stream has come."""
    return answer({"stream": stream, "number": (await deployment.streams(table)).get(stream, 0)})


@router.delete(
    "/v1/tables/{table}/streams/{stream}", response_model=StreamAnswer, dependencies=needs(Privilege.INSERT, "table")
)
async def forget_stream(table: str, stream: str, deployment: Serving) -> Response:
    """Forget a stream whose writer is done: its next number is 1."""
    await deployment.forget_stream(table, stream)
    return answer({"stream": stream, "number": 0})


def _table(schema: TableSchema) -> dict[str, Any]:
    def names(positions: tuple[int, ...]) -> list[str]:
        return [schema.columns[position].name for position in positions]

    return {
        "name": schema.title,
        "columns": [
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.nullable,
                "default": "CURRENT_TIMESTAMP" if column.default_now else json_value(column.default),
                "auto_increment": column.auto_increment,
                "collation": (column.type.collation or BINARY) if column.type.kind is Kind.TEXT else None,
            }
            for column in (schema.columns[position] for position in schema.live())
        ],
        "primary_key": names(schema.shown_key),
        "unique": [names(each) for each in schema.unique[schema.late_primary :]],
        "indexes": [names(each) for each in schema.indexes],
        "foreign_keys": [
            {
                "name": key.name,
                "columns": names(key.columns),
                "parent": key.parent,
                "key": key.key,
                "on_delete": key.on_delete,
                "on_update": key.on_update,
                "enforced": key.enforced,
            }
            for key in schema.foreign_keys
        ],
    }
