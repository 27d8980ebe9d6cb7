"""A deployment with nothing behind it but SQLite in memory, to test HTTP, client and CLI without the engine.

It answers as the real one does in shape, statuses and tokens. It recomputes every answer, and only remembers which keys
were asked before, so that misses, hits and evictions can be told apart.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from time import monotonic
from typing import Any, cast

import orjson
from headrace_client.tokens import merge

from controller.access.session import ANONYMOUS, OPEN, Caller
from controller.deployment import (
    REFUSED,
    ArchivedPositions,
    MapReading,
    MigrationStatus,
    Missed,
    OnDuplicate,
    PreparedLookup,
    Reason,
    RequestMoment,
    SelectPage,
    StatementResult,
    Tried,
    ViewInfo,
    WriteResult,
    health_of,
    not_archived,
    numbered_upsert,
)
from controller.live.live_views import LivePort, LiveViews
from controller.statements.running import Lists, RunningStatements
from controller.transactions.in_doubt import InDoubt
from controller.transactions.sessions import Sessions
from controller.transactions.snapshots import Snapshots
from controller.transactions.temporary import TemporaryTables
from controller.upstreams.following import FollowedUpstreams
from domains.errors import (
    AlreadyExists,
    BadRequest,
    ConstraintViolation,
    HeadraceError,
    NotFound,
    OutOfOrder,
    ReadTimeout,
    RowsRefused,
    SqlSyntaxError,
    TypeViolation,
    UnknownName,
    Unsupported,
)
from domains.language.types import (
    BIGINT,
    DATE,
    DATETIME,
    TEXT,
    Column,
    Row,
    SqlType,
    TableColumn,
    TableSchema,
    decimal_type,
)
from domains.plan.graph import Parameter, ParameterKind
from domains.plan.packets import FIRST_DOMAIN, Clock, Once
from migrations.parse.measure import SqlLimits, measure
from worker.reader_map import BoundLookup
from worker.service.child_pool import ChildPool

VIEW = re.compile(r"CREATE\s+(?:EXT\s+)?VIEW\s+(\w+)\s+AS\s+(.*)", re.I | re.S)
PARAMETER = re.compile(r"([\w.]+)\s*(=|>=|<=|>|<|IN)\s*\(?\?", re.I)
DECLARED = {"DECIMAL(8,2)": decimal_type(2), "DATE": DATE, "DATETIME": DATETIME}
WRITTEN = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|CREATE\s+TABLE)\s+(\w+)", re.I)


def _on_conflict(schema: TableSchema, row: Mapping[str, Any], duplicate: OnDuplicate) -> str:
    if duplicate.act != "update":
        return ""
    keys = {schema.columns[at].name for at in schema.primary_key}
    names = [name for name in row if name not in keys] if duplicate.columns is None else duplicate.columns
    return f" ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}"


class FakeLookup:
    """A prepared look-up: hits only for keys that were filled before."""

    def __init__(self, deployment: FakeDeployment, info: ViewInfo) -> None:
        self._deployment = deployment
        self.info = info
        self.types = info.types
        self.stale = False
        self.since = monotonic()

    def try_page(self, text: Mapping[str, Sequence[str]], asker: Caller = OPEN) -> bytes | BoundLookup:
        key = self._deployment.key_of_text(self.info, text)
        page = self._hit(key)
        return BoundLookup((key,)) if page is None else page

    def try_pages(
        self,
        keys: Sequence[Any],
        reading: MapReading,
        rows: list[Row] | None = None,
        moment: RequestMoment | None = None,
    ) -> Tried:
        bound = [self._deployment.key_of_json(self.info, key) for key in keys]
        pages = [self._hit(key) for key in bound]
        return pages, [BoundLookup((key,)) for key, page in zip(bound, pages, strict=True) if page is None]

    def try_integers(self, values: Sequence[int], reading: MapReading) -> None:
        return None

    def try_short(self, key: Any, reading: MapReading) -> None:
        return None

    def version(self, reading: MapReading) -> bytes | None:
        return None

    def markers(self, rows: Sequence[Row]) -> list[bytes] | None:
        return None

    def states(self, markers: Sequence[bytes], reading: MapReading) -> list[bytes | None]:
        raise AssertionError("there are no markers")

    def again(self, keys: int, told: bool) -> bool:
        raise AssertionError("an answer without a version is not kept")

    def tell(self, keys: Sequence[Any]) -> None:
        raise AssertionError("an answer without a version is not kept")

    def _hit(self, key: tuple[Any, ...]) -> bytes | None:
        filled = (self.info.name, key) in self._deployment.filled
        self._deployment.counters["hits" if filled else "misses"] += 1
        return self._deployment.rows(self.info, key) if filled else None


async def _no_transactions(*_: Any) -> Any:
    raise Unsupported("a transaction", hint="not in this one")


class FakeDeployment:
    def __init__(self, read_timeout: float = 0.2) -> None:
        self.read_timeout = read_timeout
        self.lists = Lists(list, RunningStatements())
        self.live = LiveViews(cast(LivePort, self), cast(Any, None))
        self.sessions = Sessions(_no_transactions, lambda: None, _no_transactions, TemporaryTables(self))
        self.in_doubt = InDoubt(_no_transactions, _no_transactions, _no_transactions, list)
        self.upstreams = FollowedUpstreams(self)
        self.snapshots = Snapshots(_no_transactions, _no_transactions, _no_transactions, lambda: [FIRST_DOMAIN])
        self.database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self.database.row_factory = sqlite3.Row
        self.definitions: dict[str, ViewInfo] = {}
        self.lookups: list[FakeLookup] = []
        self.filled: set[tuple[str, tuple[Any, ...]]] = set()
        self.clock: Clock = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.counters = {"hits": 0, "misses": 0, "writes": 0}
        self.begun: dict[str, MigrationStatus] = {}
        self.pausing = False
        """Migrations stay running until they are cancelled."""
        self.condition: tuple[Reason, ...] = ()
        self.closed = False
        self.accounts = None
        self.archive_url: str | None = None
        self.broken: Exception | None = None
        """Raised by every call that awaits."""

    def read_within(self, limits: SqlLimits, beside: ChildPool) -> None:
        self.limits = limits

    def count_outside(self, size: int) -> None:
        self.outside = size

    async def check_text(self, sql: str, session: Caller = OPEN) -> None:
        measure(sql, self.limits)

    async def execute(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        token: Clock | None = None,
        session: Caller = OPEN,
        atomic: bool = False,
    ) -> tuple[list[StatementResult], Clock]:
        await self._reached(token)
        results, clock, left = [], {}, list(params)
        for statement in filter(None, (part.strip() for part in sql.split(";"))):
            if view := VIEW.match(statement):
                self._create_view(view[1], statement)
                results.append(StatementResult(done=f"view {view[1]} created"))
                continue
            wanted = statement.count("?")
            mine, left = left[:wanted], left[wanted:]
            if len(mine) < wanted:
                raise BadRequest(f"{wanted} parameters are needed, {len(mine)} were given")
            results.append(self._run(statement, mine))
            if table := WRITTEN.match(statement):
                clock = merge(clock, self._advance(table[1]))
        return results, clock

    async def described(self, sql: str, session: Caller) -> tuple[Column, ...]:
        return ()

    def try_select(self, sql: str, params: Sequence[Any], token: Clock, session: Caller) -> SelectPage | None:
        return None

    def prepare(self, view: str) -> FakeLookup:
        info = self._view(view)
        kept = next((each for each in self.lookups if each.info is info and not each.stale), None)
        if kept is None:
            kept = FakeLookup(self, info)
            self.lookups.append(kept)
        return kept

    async def page(
        self,
        view: str,
        text: Mapping[str, Sequence[str]],
        *,
        token: Clock | None = None,
        moment: RequestMoment | None = None,
    ) -> bytes:
        await self._reached(token)
        info = self._view(view)
        return self._fill(info, self.key_of_text(info, text))

    def policed(self, name: str) -> Sequence[str]:
        return ()

    async def fill_page(
        self,
        lookup: PreparedLookup,
        missed: BoundLookup,
        text: Mapping[str, Sequence[str]],
        asker: Caller = ANONYMOUS,
    ) -> bytes:
        await self._reached(None)
        (key,) = missed.keys
        return self._fill(lookup.info, key)

    async def pages(
        self, view: str, keys: Sequence[Any], *, token: Clock | None = None, moment: RequestMoment | None = None
    ) -> list[bytes]:
        await self._reached(token)
        info = self._view(view)
        return [self._fill(info, self.key_of_json(info, key)) for key in keys]

    async def fill(self, wanted: Sequence[Missed]) -> list[list[bytes]]:
        await self._reached(None)
        return [[self._fill(each.lookup.info, bound.keys[0]) for bound in each.bounds] for each in wanted]

    async def insert(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        once: Once | None = None,
        duplicate: OnDuplicate = REFUSED,
        asker: Caller = OPEN,
    ) -> WriteResult:
        schema = self._table(table)
        if once is not None:
            if duplicate.act != "error":
                raise numbered_upsert()
            return await self._insert_once(schema, rows, once)
        affected = 0
        self.database.execute("BEGIN")
        try:
            for row in rows:
                self._check(schema, row)
                taken = duplicate.act != "error" and self._is_taken(schema, row)
                affected += (0 if duplicate.act == "ignore" else 2) if taken else 1
                holes = ", ".join("?" * len(row))
                verb = {"ignore": "INSERT OR IGNORE", "replace": "REPLACE"}.get(duplicate.act, "INSERT")
                self._run(
                    f"{verb} INTO {table} ({', '.join(row)}) VALUES ({holes}){_on_conflict(schema, row, duplicate)}",
                    list(row.values()),
                )
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")
        return WriteResult(affected, self._advance(schema.name))

    def _is_taken(self, schema: TableSchema, row: Mapping[str, Any]) -> bool:
        """Whether a row with its primary key is there."""
        keys = [schema.columns[position].name for position in schema.primary_key]
        where = " AND ".join(f"{name} = ?" for name in keys)
        found = self.database.execute(f"SELECT 1 FROM {schema.name} WHERE {where}", [row.get(name) for name in keys])
        return bool(found.fetchall())

    async def _insert_once(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]], once: Once) -> WriteResult:
        last = self.numbers.get((schema.name, once.stream), 0)
        if once.number <= last:
            return WriteResult(0, {schema.name: self.clock.get(schema.name, 0)}, repeated=True)
        if once.number > last + 1:
            raise OutOfOrder(f"number {once.number} skips numbers: the last is {last}")
        refused = []
        keys = [schema.columns[position].name for position in schema.primary_key]
        where = " AND ".join(f"{name} = ?" for name in keys)
        for number, row in enumerate(rows, 1):
            key = [row.get(name) for name in keys]
            if keys and self.database.execute(f"SELECT 1 FROM {schema.name} WHERE {where}", key).fetchall():
                refused.append((number, "the key is taken"))
        if refused:
            raise RowsRefused.of(tuple(refused))
        result = await self.insert(schema.name, rows)
        self.numbers[schema.name, once.stream] = once.number
        return result

    async def streams(self, table: str) -> dict[str, int]:
        schema = self._table(table)
        return {stream: number for (name, stream), number in sorted(self.numbers.items()) if name == schema.name}

    async def forget_stream(self, table: str, stream: str) -> None:
        self.numbers.pop((self._table(table).name, stream), None)

    async def update(
        self, table: str, key: Mapping[str, Any], changes: Mapping[str, Any], asker: Caller = OPEN
    ) -> WriteResult:
        schema = self._table(table)
        self._check(schema, {**key, **changes})
        assigned = ", ".join(f"{name} = ?" for name in changes)
        return self._written(schema, f"UPDATE {table} SET {assigned}", changes, key)

    async def delete(self, table: str, key: Mapping[str, Any], asker: Caller = OPEN) -> WriteResult:
        schema = self._table(table)
        self._check(schema, key)
        return self._written(schema, f"DELETE FROM {table}", {}, key)

    async def evict(self, view: str, keys: Sequence[Any], moment: RequestMoment | None = None) -> int:
        await self._reached(None)
        info = self._view(view)
        entries = {(info.name, self.key_of_json(info, key)) for key in keys} & self.filled
        self.filled -= entries
        return len(entries)

    async def migrate(self, sql: str) -> MigrationStatus:
        if not self.pausing:
            await self.execute(sql)
        state, progress = ("running", 0.5) if self.pausing else ("done", 1.0)
        id = f"m{len(self.begun) + 1}"
        self.begun[id] = MigrationStatus(id, sql, state, "plan", progress, ("plan", "swap"))
        return self.begun[id]

    async def migrations(self) -> list[MigrationStatus]:
        return list(reversed(self.begun.values()))

    async def migration(self, id: str) -> MigrationStatus:
        if id not in self.begun:
            raise NotFound(f'no migration "{id}"')
        return self.begun[id]

    async def cancel_migration(self, id: str) -> MigrationStatus:
        before = await self.migration(id)
        if before.state == "running":
            error = ("cancelled", f'migration "{id}" was cancelled', None)
            self.begun[id] = MigrationStatus(id, before.sql, "cancelled", "plan", 0.5, before.steps, error)
        return self.begun[id]

    def tables(self) -> list[TableSchema]:
        names = self.database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return [self._table(each["name"]) for each in names]

    def views(self) -> list[ViewInfo]:
        return list(self.definitions.values())

    def schema(self) -> str:
        """SQLite keeps the texts of tables, and the fake those of views."""
        tables = self.database.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")
        texts = [*(each[0] for each in tables), *(info.sql for info in self.definitions.values())]
        return "\n\n".join(f"{text};" for text in texts)

    def explain(self, view: str) -> str:
        return f'reader "{self._view(view).name}" partial'

    async def lineage(self, view: str, key: Any, place: int, session: Caller = OPEN) -> Sequence[tuple[Any, ...]]:
        raise Unsupported(f'lineage of view "{self._view(view).name}": the fake has no dataflow')

    async def graph(self, view: str | None = None) -> dict[str, Any]:
        return {"domains": [], "nodes": [], "edges": [], "links": []}

    async def unready(self) -> tuple[Reason, ...]:
        return self.condition

    async def status(self) -> dict[str, Any]:
        if self.broken:
            raise self.broken
        memory = {"used": 1024, "limit": 4096}
        return {"health": health_of(self.condition), "uptime": 1.5, "memory": memory, "counters": dict(self.counters)}

    async def archive(self) -> ArchivedPositions:
        if self.broken:
            raise self.broken
        if self.archive_url is None:
            raise not_archived()
        return ArchivedPositions(self.archive_url, dict(self.clock), 1, '{"format": 1, "entries": []}')

    def stopping(self) -> None:
        """Its migrations are over at once."""

    async def close(self) -> None:
        self.closed = True
        self.database.close()

    # --- how the fake does it -------------------------------------------------------------------------------------

    def key_of_text(self, info: ViewInfo, text: Mapping[str, Sequence[str]]) -> tuple[Any, ...]:
        for name in text:
            if name not in [each.name for each in info.parameters]:
                known = ", ".join(f'"{each.name}"' for each in info.parameters)
                raise BadRequest(f'unknown parameter "{name}"', hint=f"known are {known}")
        key: list[Any] = []
        for parameter in info.parameters:
            if parameter.name not in text:
                raise BadRequest(f'parameter "{parameter.name}" is missing')
            values = text[parameter.name]
            if len(values) > 1 and parameter.kind != ParameterKind.IN:
                raise BadRequest(f'parameter "{parameter.name}" is given {len(values)} times')
            key.append(tuple(_coerce(parameter, value) for value in values))
        return tuple(key)

    def key_of_json(self, info: ViewInfo, key: Any) -> tuple[Any, ...]:
        if isinstance(key, dict):
            if set(key) != {each.name for each in info.parameters}:
                raise BadRequest(f'the key must name the parameters of "{info.name}"')
            key = [key[each.name] for each in info.parameters]
        if not isinstance(key, list) or len(key) != len(info.parameters):
            raise BadRequest(f'a key of "{info.name}" has {len(info.parameters)} values')
        return tuple(
            tuple(_coerce(parameter, each) for each in (value if isinstance(value, list) else [value]))
            for parameter, value in zip(info.parameters, key, strict=True)
        )

    def rows(self, info: ViewInfo, key: tuple[Any, ...]) -> bytes:
        select = VIEW.match(info.sql)
        assert select
        found = []
        for value in key[0] if key else [None]:
            arguments = [value, *(rest[0] for rest in key[1:])] if key else []
            found += self.database.execute(select[2], arguments).fetchall()
        return b",".join(orjson.dumps(dict(row)) for row in found)

    def _fill(self, info: ViewInfo, key: tuple[Any, ...]) -> bytes:
        self.filled.add((info.name, key))
        return self.rows(info, key)

    async def _reached(self, token: Clock | None) -> None:
        if self.broken:
            raise self.broken
        if token and merge(token, self.clock) != self.clock:
            await asyncio.sleep(self.read_timeout)
            raise ReadTimeout(f"the view did not reach the token within {self.read_timeout} s")

    def _advance(self, table: str) -> Clock:
        self.counters["writes"] += 1
        self.clock[table] = self.clock.get(table, 0) + 1
        return {table: self.clock[table]}

    def _create_view(self, name: str, sql: str) -> None:
        if name in self.definitions:
            raise AlreadyExists(f'view "{name}" is there already')
        parameters = tuple(
            Parameter(column.split(".")[-1], ParameterKind(operator.lower()), None, self._type(column.split(".")[-1]))
            for column, operator in PARAMETER.findall(sql)
        )
        select = VIEW.match(sql)
        assert select
        cursor = self.database.execute(select[2], [None] * len(parameters))
        columns = tuple(Column(each[0], self._type(each[0])) for each in cursor.description)
        created = "2026-01-31 08:00:00"
        self.definitions[name] = ViewInfo(name, sql, columns, parameters, True, False, "partial", created=created)

    def _run(self, statement: str, params: list[Any]) -> StatementResult:
        if re.search(r"\bWITH RECURSIVE\b", statement, re.I):
            raise Unsupported("WITH RECURSIVE", hint="use a view")
        if dropped := re.match(r"DROP\s+VIEW\s+(\w+)", statement, re.I):
            gone = self._view(dropped[1])
            del self.definitions[gone.name]
            for lookup in self.lookups:
                lookup.stale = lookup.stale or lookup.info is gone
            return StatementResult(done=f"view {gone.name} dropped")
        try:
            cursor = self.database.execute(statement, params)
        except sqlite3.Error as error:
            raise _translated(error) from error
        names = [each[0] for each in cursor.description or ()]
        rows = tuple(tuple(row) for row in cursor.fetchall())
        first_id = cursor.lastrowid if re.search(r"\bauto_increment_probe\b", statement) else None
        columns = tuple(Column(name, self._type(name)) for name in names)
        defined = re.match(r"CREATE TABLE (\w+)", statement, re.I)
        done = f"table {defined[1]} created" if defined else None
        return StatementResult(columns, rows, max(cursor.rowcount, 0), first_id, done=done)

    def _written(
        self, schema: TableSchema, head: str, changes: Mapping[str, Any], key: Mapping[str, Any]
    ) -> WriteResult:
        where = " AND ".join(f"{name} = ?" for name in key)
        result = self._run(f"{head} WHERE {where}", [*changes.values(), *key.values()])
        return WriteResult(result.rows_affected, self._advance(schema.name))

    def _view(self, name: str) -> ViewInfo:
        for known, info in self.definitions.items():
            if known.lower() == name.lower():
                return info
        near = get_close_matches(name, self.definitions, 1)
        raise NotFound(f'no view "{name}"', hint=f'did you mean "{near[0]}"?' if near else None)

    def _table(self, name: str) -> TableSchema:
        columns = self.database.execute(f"PRAGMA table_info({name})").fetchall()
        if not columns:
            raise NotFound(f'no table "{name}"')
        keys = sorted((each["pk"], each["cid"]) for each in columns if each["pk"])
        return TableSchema(
            name,
            tuple(TableColumn(each["name"], _declared(each["type"]), not each["notnull"]) for each in columns),
            tuple(position for _, position in keys),
        )

    def _type(self, column: str) -> SqlType:
        for schema in self.tables():
            position = schema.position(column)
            if position is not None:
                return schema.columns[position].type
        return BIGINT

    def _check(self, schema: TableSchema, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            position = schema.position(name)
            if position is None:
                raise UnknownName(f'no column "{name}" in "{schema.name}"')
            column = schema.columns[position]
            if column.type is BIGINT and value is not None and not isinstance(value, int):
                raise TypeViolation(f'column "{name}" of "{schema.name}": {value!r} is no BIGINT')


def _coerce(parameter: Parameter, value: Any) -> Any:
    if parameter.type is not BIGINT or value is None or isinstance(value, int):
        return value
    try:
        return int(value)
    except ValueError as error:
        raise TypeViolation(f'parameter "{parameter.name}": "{value}" is no BIGINT') from error


def _declared(name: str) -> SqlType:
    return BIGINT if "INT" in name.upper() else DECLARED.get(name.upper(), TEXT)


def _translated(error: sqlite3.Error) -> HeadraceError:
    text = str(error)
    if isinstance(error, sqlite3.IntegrityError):
        return ConstraintViolation(f'"{text}"')
    if "syntax error" in text or "incomplete" in text:
        return SqlSyntaxError(text, line=1, column=1)
    if "already exists" in text:
        return AlreadyExists(text)
    return UnknownName(text)
