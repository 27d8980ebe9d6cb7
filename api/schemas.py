"""The shapes of requests and answers, as pydantic models.

Requests are checked against them. Answers are only documented by them: they are written as bytes from what the
deployment gave, because checking one's own output again costs more than making it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controller.deployment import REFUSED, OnDuplicate
from domains.errors import BadRequest
from domains.plan.packets import Once
from domains.store.storage import NAME_MAX

Json = Any
"""A JSON value. INTEGER and DOUBLE are numbers; DECIMAL, TEXT, DATE and DATETIME strings; BLOB a base64 string; JSON is
the value itself."""


Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], value: Any) -> Model:
    """A body's JSON value as ``model``. Raises BadRequest."""
    if not isinstance(value, dict):
        raise BadRequest("the request's body must be a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise shape_error(error.errors(include_url=False)) from error


def shape_error(problems: Any) -> BadRequest:
    """The first of pydantic's complaints as our error."""
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"])
    return BadRequest(f'"{where}": {first["msg"][0].lower()}{first["msg"][1:]}', hint="see /docs for the call's shape")


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


IF_UNCHANGED = "Tags of answers (`etags` of a look-up): it is done, all or none, if these have the same rows still"


class SqlRequest(_Request):
    sql: str = Field(description="One statement, or several separated by `;`", examples=["SELECT * FROM votes"])
    params: list[Json] = Field(
        default_factory=list,
        description='Of the `?` of all statements; a list for `IN (?)`; or `{"BLOB": "YWI="}`, `{"DECIMAL": "0.10"}`',
    )
    atomic: bool = Field(default=False, description="All of it is done, or nothing; it has no definitions then")
    unchanged: list[str] = Field(default_factory=list, alias="if", description=IF_UNCHANGED)
    follows: bool = Field(default=False, description="It may write to tables that follow a database elsewhere")


class LiveSubscription(_Request):
    view: str = Field(default="", description="Its name; or `sql`")
    sql: str = Field(default="", description="A SELECT that can be a view; with a `name`", examples=["SELECT …"])
    params: list[Json] = Field(default_factory=list, description="Values of its `?`")
    parameters: dict[str, Json] = Field(default_factory=dict, description="By name; a list for `IN (?)`")
    offset: str | None = Field(default=None, description="Where it left off; without it all rows come first")
    name: str | None = Field(
        default=None, max_length=NAME_MAX, description="The `type` of its messages; the view's name, if not given"
    )

    @property
    def called(self) -> str:
        """:raises BadRequest: it is not said what is subscribed to."""
        if bool(self.view) == bool(self.sql) or not (self.name or self.view):
            raise BadRequest(
                "a subscription has a view, or sql and a name", hint='{"view": …} or {"sql": …, "name": …}'
            )
        if self.params and self.view:
            raise BadRequest('the values of a view\'s parameters are its "parameters"', hint='"params" are of sql')
        return self.name or self.view


class LiveRequest(_Request):
    subscriptions: list[LiveSubscription] = Field(min_length=1)


class OnceRequest(_Request):
    stream: str = Field(min_length=1, max_length=NAME_MAX, description="A name that no other writer uses")
    number: int = Field(ge=1, lt=2**63, strict=True, description="From 1 on, without gaps")


class RowsBody(_Request):
    rows: list[dict[str, Json]] = Field(description="Rows by column name; all of them are inserted, or none")
    on_duplicate: Literal["error", "ignore", "replace", "update"] = Field(
        default="error",
        description="Where a row's PRIMARY KEY or UNIQUE is taken: refuse all, leave it out, replace what is there "
        "(REPLACE), or update that (ON DUPLICATE KEY UPDATE)",
    )
    update: list[str] | None = Field(
        default=None,
        description="Columns that `update` sets to the row's values; by default whatever the rows give that stands in "
        "no PRIMARY KEY or UNIQUE",
    )
    once: OnceRequest | None = Field(
        default=None, description="A place in a stream of writes: what is sent again is not done again"
    )

    @property
    def place(self) -> Once | None:
        return None if self.once is None else Once(self.once.stream, self.once.number)

    @property
    def duplicate(self) -> OnDuplicate:
        if self.on_duplicate == "error" and self.update is None:
            return REFUSED
        return OnDuplicate(self.on_duplicate, None if self.update is None else tuple(self.update))


class UpdateRequest(_Request):
    key: dict[str, Json] = Field(description="Which rows: columns that must equal these values")
    set: dict[str, Json] = Field(description="Columns to change and their new values")
    unchanged: list[str] = Field(default_factory=list, alias="if", description=IF_UNCHANGED)


class DeleteRequest(_Request):
    key: dict[str, Json] = Field(description="Which rows: columns that must equal these values")


class KeysRequest(_Request):
    keys: list[list[Json] | dict[str, Json]] = Field(
        description="The view's parameters, by position or by name", examples=[[[1], [2]], [{"id": 1}]]
    )


class TaggedKeysRequest(KeysRequest):
    etags: bool = Field(default=False, description="Answer a tag of each answer, for the `if` of a write")


class ViewKeys(KeysRequest):
    view: str
    keys: list[list[Json] | dict[str, Json]] = Field(
        description="The view's parameters, by position or by name. A value may refer to the answer of an earlier "
        'look-up, by its place and a column: `{"first": [0, "id"]}`, `{"all": [0, "id"]}` (a list), '
        '`{"each": [0, "id"]}` (as many keys)',
        examples=[[[1], [2]], [{"id": {"first": [0, "id"]}}]],
    )


class LookupsRequest(_Request):
    lookups: list[ViewKeys] = Field(
        description="Views and their keys, answered in this order",
        examples=[[{"view": "StoriesWithVC", "keys": [[1]]}, {"view": "VoteCount", "keys": [[1], [2]]}]],
    )
    consistent: bool = Field(default=False, description="All answers are of one position, at the cost of SELECTs")


class MigrationRequest(_Request):
    sql: str = Field(description="DDL statements separated by `;`", examples=["DROP VIEW old; CREATE VIEW new AS …"])


class ColumnAnswer(BaseModel):
    name: str
    type: str


class StatementAnswer(BaseModel):
    columns: list[ColumnAnswer]
    rows: list[list[Json]]
    rows_affected: int
    first_id: int | None = Field(
        default=None, description="Only of rows inserted with a generated AUTO_INCREMENT value"
    )
    done: str | None = Field(default=None, description="Only of CREATE, ALTER and DROP: what was done, in words")


class SqlAnswer(BaseModel):
    results: list[StatementAnswer]
    token: str


class QueryShape(BaseModel):
    query: str = Field(description="With its constants as parameters, where a view can have them")
    calls: int
    milliseconds: float = Field(description="Of evaluating it, in all")
    rows: int = Field(description="Of all answers that were evaluated")
    view: str | None = Field(description="The automatic view that answers it now")
    why: str = Field(description="Why there is one, or none")
    create_view: str = Field(description="The statement that declares a view of it")


class SilentProcess(BaseModel):
    process: str
    why: str = Field(description="Why this api process does not tell what it was asked and what it performs")


class QueriesAnswer(BaseModel):
    queries: list[QueryShape]
    missing: list[SilentProcess]


class RunningQuery(BaseModel):
    id: int
    sql: str
    seconds: float
    process: str | None = Field(description="The api process that performs it; only in a cluster")


class RunningQueriesAnswer(BaseModel):
    running: list[RunningQuery]
    missing: list[SilentProcess]


class PageAnswer(BaseModel):
    rows: list[dict[str, Json]]


class PagesAnswer(BaseModel):
    results: list[list[dict[str, Json]]]
    etags: list[str] | None = Field(default=None, description="Only where they are asked for")


class LookupsAnswer(BaseModel):
    results: list[list[list[dict[str, Json]]]] = Field(description="For each look-up, what `lookup` answers")


class WriteAnswer(BaseModel):
    rows_affected: int
    token: str
    first_id: int | None = Field(
        default=None, description="Only of rows inserted with a generated AUTO_INCREMENT value"
    )
    repeated: bool = Field(default=False, description="Only where its number was done before: nothing was changed now")


class StreamAnswer(BaseModel):
    stream: str
    number: int = Field(description="The last that is done; 0: the stream is not known")


class StreamsAnswer(BaseModel):
    streams: list[StreamAnswer]


class EvictAnswer(BaseModel):
    evicted: int


class MigrationAccepted(BaseModel):
    id: str


class RefusedRow(BaseModel):
    row: int
    reason: str


class ErrorDetail(BaseModel):
    code: str
    message: str
    hint: str | None
    rows: list[RefusedRow] | None = Field(default=None, description="Only of `rows_refused`: each row, from 1")


class ErrorAnswer(BaseModel):
    error: ErrorDetail


class MigrationAnswer(BaseModel):
    id: str
    sql: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    step: str
    progress: float = Field(ge=0, le=1)
    steps: list[str]
    backfill: str | None = Field(
        description="How full state is built: `slices`, `spark`, `local`; null if there is none"
    )
    why: str | None = Field(description="Why in this way")
    rows: int = Field(description="Base rows read so far")
    rows_total: int = Field(description="To be read, about")
    stages_done: int
    stages: int = Field(description="Of a bulk job")
    tasks_done: int
    tasks: int = Field(description="Of Spark's, as far as it has begun them")
    seconds_left: float | None = Field(description="Of the feeding of base rows, about, once it can be told")
    ui: str | None = Field(description="Where a bulk job shows more of itself")
    error: ErrorDetail | None


class MigrationsAnswer(BaseModel):
    migrations: list[MigrationAnswer]


class TableColumnAnswer(ColumnAnswer):
    nullable: bool
    default: Json
    auto_increment: bool
    collation: str | None = Field(description="By which texts are compared; null where it is no text")


class ForeignKeyAnswer(BaseModel):
    name: str
    columns: list[str]
    parent: str
    key: list[str] = Field(description="the parent's columns")
    on_delete: str
    on_update: str
    enforced: bool


class TableAnswer(BaseModel):
    name: str
    columns: list[TableColumnAnswer]
    primary_key: list[str]
    unique: list[list[str]]
    indexes: list[list[str]]
    foreign_keys: list[ForeignKeyAnswer]


class TablesAnswer(BaseModel):
    tables: list[TableAnswer]


class ParameterAnswer(BaseModel):
    name: str
    kind: str
    type: str


class ViewAnswer(BaseModel):
    name: str
    sql: str
    columns: list[ColumnAnswer]
    parameters: list[ParameterAnswer]
    moments: list[str]
    external: bool
    ad_hoc: bool
    materialization: Literal["none", "partial", "full"]
    created: str | None = Field(description="In UTC; null of an automatic view, and of one that an earlier build made")


class ViewsAnswer(BaseModel):
    views: list[ViewAnswer]


class ExplainAnswer(BaseModel):
    view: str
    explain: str


class SchemaAnswer(BaseModel):
    sql: str


class GraphNode(BaseModel):
    node: int
    domain: int = Field(description="Its group")
    stands_in: list[int] = Field(description="The domains that have a shard of it")
    operator: str
    text: str = Field(description="The operator in symbols")
    view: str | None = Field(description="Whose reader it is")
    table: str | None = Field(description="The base table that it is")
    columns: list[ColumnAnswer]
    materialization: str
    state: str = Field(description="What it keeps, by which columns")
    sharding: str | None
    reason: str | None = Field(description="Why its state is full")
    keys: int
    bytes: int
    deltas: int = Field(description="What it has said to those below it since it was made: rows, each with a weight")
    shared: bool = Field(default=False, description="With `?view=`: whether other views stand on it, too")


class GraphAnswer(BaseModel):
    domains: list[int]
    nodes: list[GraphNode]
    edges: list[dict[str, Json]]
    links: list[dict[str, Json]]
    reader: dict[str, Json] | None = Field(default=None, description="With `?view=`: what the status says of the view")


class ViewBox(BaseModel):
    view: str
    materialization: str
    reasons: list[str] = Field(description="Why nodes of it are full")
    nodes: int
    shared: int = Field(description="Of these, those that other views stand on, too")
    keys: int
    bytes: int
    deltas: int = Field(description="What its reader was told")


class OverviewAnswer(BaseModel):
    tables: list[dict[str, Json]]
    views: list[ViewBox]
    edges: list[dict[str, Json]]


class BaseRow(BaseModel):
    table: str
    row: dict[str, Json]


class LineageAnswer(BaseModel):
    rows: list[BaseRow]
    more: bool = Field(description="There are more base rows than are told")


class ReaderAnswer(BaseModel):
    account: str = Field(description='"" for all, where there are no accounts')
    last_read: str | None = Field(description="When it looked a key up last, in UTC, up to 10 s late")
    live: int = Field(description="Its subscriptions")


class ViewStatsAnswer(BaseModel):
    view: str
    materialization: str
    hits: int = Field(description="In this api process, since the view was prepared there; so are the misses")
    misses: int
    hit_rate: float | None
    miss_milliseconds: float | None = Field(description="Of filling a hole, on average")
    keys: int
    bytes: int = Field(description="Of the reader")
    lag: int | None = Field(description="Only in a cluster: writes that it does not reflect yet")
    nodes: int
    shared_nodes: int
    state_bytes: int = Field(description="Of all nodes that it stands on, base tables not counted")
    deltas: int
    deltas_per_write: float | None = Field(description="Of all its nodes, for each delta of its base tables")
    reasons: list[str]
    created: str | None = Field(description="In UTC; null of an automatic view, and of one that an earlier build made")
    age: int | None = Field(description="Seconds since then")
    counted: float = Field(description="Seconds for which this process counts: since it prepared what the view is now")
    readers: list[ReaderAnswer] | None = Field(description="Through this process; null without the right PROCESS")


class GrantedKey(BaseModel):
    id: str
    label: str
    expires: str | None


class AccountAnswer(BaseModel):
    account: str
    role: bool
    ways: list[str] = Field(description="Beside keys: password, certificate")
    keys: list[GrantedKey]
    locked: bool
    expires: str | None = Field(description="In UTC, as all times here")
    grants: list[str] = Field(description="The statements that give it what it has")


class AccountsAnswer(BaseModel):
    accounts: list[AccountAnswer]


class SessionAnswer(BaseModel):
    account: str
    way: str = Field(description="key, token, password, certificate")
    credentials: int
    expires: str | None = Field(description="Of the one that expires first")
    last_read: str | None = Field(description="When the account read a view last, up to 10 s late")
    live: int = Field(description="The account's subscriptions to live views")


class SessionsAnswer(BaseModel):
    sessions: list[SessionAnswer]


class DrillAnswer(BaseModel):
    drill: str
    says: str
    seed: int
    held: bool = Field(description="Nothing was lost, doubled or wrong, and service came back")
    time: str = Field(description="When its result was written, in UTC")
    goals: list[dict[str, Json]] = Field(description="Each with its limit, what was seen, whether it is met")
    picture: bool = Field(description="Whether there is one at /v1/drills/{drill}/picture")


class DrillsAnswer(BaseModel):
    drills: list[DrillAnswer]


class HealthAnswer(BaseModel):
    status: str


class ReasonAnswer(BaseModel):
    reason: str = Field(description="Its kind, by which it may be excluded: starting, storage, shards, leader, changes")
    message: str


class ReadyAnswer(BaseModel):
    status: str
    reasons: list[ReasonAnswer] = Field(description="Those that were excluded")


class UnreadyAnswer(BaseModel):
    error: ErrorDetail
    reasons: list[ReasonAnswer]
