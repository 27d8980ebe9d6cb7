"""Statements of any kind."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from headrace_client import tokens

from api.dependencies import Serving, Token, answer, documented, json_body
from api.encoding import sql_value
from api.schemas import SqlAnswer, SqlRequest
from controller.deployment import Deployment, StatementResult
from domains.plan.packets import Clock

router = APIRouter(tags=["sql"])


@router.post("/v1/sql", response_model=SqlAnswer, openapi_extra=documented(SqlRequest))
async def execute(
    body: Annotated[SqlRequest, Depends(json_body(SqlRequest))], deployment: Serving, token: Token
) -> Response:
    """Run one statement or several, in order. A SELECT becomes a view and is served by it from then on."""
    return answer(await executed(deployment, body, token))


async def executed(deployment: Deployment, asked: SqlRequest, token: Clock | None) -> dict[str, Any]:
    results, clock = await deployment.execute(asked.sql, [sql_value(each) for each in asked.params], token=token)
    return {"results": [_result(each) for each in results], "token": tokens.encode(tokens.merge(token or {}, clock))}


def _result(result: StatementResult) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "columns": [{"name": column.name, "type": str(column.type)} for column in result.columns],
        "rows": result.rows,
        "rows_affected": result.rows_affected,
    }
    if result.first_id is not None:
        shown["first_id"] = result.first_id
    if result.done is not None:
        shown["done"] = result.done
    return shown
