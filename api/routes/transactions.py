"""Transactions: begun here, entered by the header ``Headrace-Transaction``, and ended here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Response
from headrace_client import tokens
from pydantic import BaseModel, ConfigDict, Field

from api.dependencies import FOR_ACCOUNTS, Asking, Serving, answer, documented, json_body, needs
from controller.transactions.limits import Isolation
from migrations.access.rights import Privilege

router = APIRouter(tags=["transactions"])


class TransactionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    read_only: bool = Field(default=False, description="Writes in it are refused")
    follows: bool = Field(default=False, description="It may write to tables that follow a database elsewhere")
    isolation: Literal["serializable", "repeatable-read", "read-committed"] | None = Field(
        default=None, description="Other than what the server's setting `transaction_isolation` says"
    )


class NoFields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TransactionAnswer(BaseModel):
    id: str = Field(description="For the header `Headrace-Transaction`")
    idle: float = Field(description="Seconds without a request after which it is rolled back")
    isolation: str = Field(description="At least what was asked for: in a cluster all are serializable")


class CommitAnswer(BaseModel):
    rows_affected: int
    token: str = Field(description="A read with it shows all of the transaction")


class TransactionRow(BaseModel):
    id: str
    account: str
    seconds: float = Field(description="Since it was begun")
    idle: float = Field(description="Since its last request")
    statements: int
    read_only: bool
    state: str = Field(description="`open`; `in doubt`: prepared; `committed`: some shards have yet to hear of it")
    shards: list[int] = Field(description="Those that have a part of it")
    holds: list[str] = Field(description="What others wait for, or the first of it")


class TransactionsAnswer(BaseModel):
    transactions: list[TransactionRow]
    missing: list[int] = Field(description="Shards that do not tell now what they have of transactions")


class RolledBack(BaseModel):
    rolled_back: bool


@router.post(
    "/v1/transactions",
    status_code=201,
    response_model=TransactionAnswer,
    openapi_extra=documented(TransactionRequest),
    dependencies=FOR_ACCOUNTS,
)
async def begin(
    body: Annotated[TransactionRequest, Depends(json_body(TransactionRequest))], deployment: Serving, session: Asking
) -> Response:
    """Begin a transaction. Requests are in it by the header `Headrace-Transaction`: `/v1/sql`, look-ups, writes of
    rows."""
    sessions = deployment.sessions
    level = Isolation(body.isolation) if body.isolation else sessions.limits.transaction_isolation
    id = sessions.open(session.account, read_only=body.read_only, isolation=level, follows=body.follows)
    headers = {"location": f"/v1/transactions/{id}"}
    return answer({"id": id, "idle": sessions.limits.transaction_idle, "isolation": level}, 201, headers)


@router.get("/v1/transactions", response_model=TransactionsAnswer, dependencies=needs(Privilege.PROCESS))
async def list_open(deployment: Serving) -> Response:
    """Those that are open in this process, and those that any shard has prepared, the oldest first."""
    listed, missing = await deployment.in_doubt.listed(deployment.sessions.list())
    return answer({"transactions": [asdict(each) for each in listed], "missing": missing})


@router.post(
    "/v1/transactions/{id}/commit",
    response_model=CommitAnswer,
    openapi_extra=documented(NoFields),
    dependencies=FOR_ACCOUNTS,
)
async def commit(
    id: str, body: Annotated[NoFields, Depends(json_body(NoFields))], deployment: Serving, session: Asking
) -> Response:
    """Do all of it, or nothing: `conflict` where others have changed what it has read. Sent again, it is answered as it
    was."""
    affected, clock = await deployment.sessions.commit(id, session.account)
    return answer({"rows_affected": affected, "token": tokens.encode(clock)})


@router.post(
    "/v1/transactions/{id}/rollback",
    response_model=RolledBack,
    openapi_extra=documented(NoFields),
    dependencies=FOR_ACCOUNTS,
)
async def roll_back(
    id: str, body: Annotated[NoFields, Depends(json_body(NoFields))], deployment: Serving, session: Asking
) -> Response:
    """Forget all of it."""
    await deployment.sessions.roll_back(id, session.account)
    return answer({"rolled_back": True})
