"""Headrace by its public HTTP: each query is a view, and a read is one request, with its references as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import orjson

from loadgen.peers.sql import changed_rows
from loadgen.peers.store import (
    Answer,
    Change,
    Conflict,
    DeleteRow,
    InsertRow,
    LoadRunError,
    Lookup,
    Lost,
    NotSent,
    PeerServer,
    PeerSession,
    Program,
    Progress,
    RequestFailed,
    Rows,
    Target,
    UpdateRow,
    Upsert,
)

# HTTP/1.1 as a load needs it: kept-alive connections, several requests written at once, answers left as bytes.
#
# The generator shares the machine with what it measures, so a request must cost it little. Requests of one round of a
# page are *pipelined*: one write to the socket, and the answers are taken as they come, in order. An answer's head is
# searched for its length and nothing else; its body is parsed by whoever needs a value out of it.

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_CHUNKED = b"transfer-encoding: chunked"
_CLOSE = b"connection: close"
ANSWER_WITHIN = 60.0
"""Seconds after which a round is given up. Far past any answer that is of use: shorter, and a target that stalls would
be spared its longest times."""


class HttpAnswer(NamedTuple):
    status: int
    body: bytes


class HeadraceConnection(asyncio.Protocol):
    """One connection, with one round of requests under way at a time."""

    def __init__(self) -> None:
        self.open = False
        self._transport: asyncio.Transport | None = None
        self._wanted = 0
        self._answers: list[HttpAnswer] = []
        self._done: asyncio.Future[list[HttpAnswer]] | None = None
        self._data = b""

    @classmethod
    async def connect(cls, host: str, port: int) -> HeadraceConnection:
        """Raises LoadRunError when nobody listens there."""
        try:
            _, made = await asyncio.get_running_loop().create_connection(cls, host, port)
        except OSError as error:
            raise LoadRunError(
                f"cannot reach {host}:{port}: {error.strerror or error}",
                hint="is the server running, and on that port?",
            ) from error
        return made

    async def ask(self, requests: Sequence[bytes]) -> list[HttpAnswer]:
        """The answers in the order of the requests. Raises NotSent, and Lost when the connection ends before."""
        assert self._done is None, "one round at a time"
        if not self.open or self._transport is None:
            raise NotSent("the connection was closed by the server")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[HttpAnswer]] = loop.create_future()
        self._done = done
        self._wanted, self._answers = len(requests), []
        guard = loop.call_later(ANSWER_WITHIN, self._give_up)
        self._transport.write(b"".join(requests))
        try:
            return await done
        except asyncio.CancelledError:
            self.close()  # Answers may be under way that nobody will ask for.
            raise
        finally:
            guard.cancel()
            self._done = None

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class
        self.open = True

    def connection_lost(self, exception: Exception | None) -> None:
        self.open = False
        self._fail(f"the connection ended: {exception or 'closed by the server'}")

    def data_received(self, data: bytes) -> None:
        # Runs once a packet, with most of what the generator costs: no parser, no header object.
        data = self._data + data if self._data else data
        at = 0
        while True:
            end = data.find(_END, at)
            if end < 0:
                break
            head = data[at:end].lower()
            place = head.find(_LENGTH)
            if place < 0:
                if _CHUNKED in head:
                    self._fail("an answer in chunks, which this client does not read")
                    self.close()
                    return
                size = 0
            else:
                size = int(head[place + len(_LENGTH) :].split(b"\r\n", 1)[0])
            if _CLOSE in head:
                self.open = False
            body_end = end + 4 + size
            if len(data) < body_end:
                break
            self._answers.append(HttpAnswer(int(head[9:12]), data[end + 4 : body_end]))
            at = body_end
        self._data = data[at:] if at else data
        if self._done is not None and len(self._answers) >= self._wanted and not self._done.done():
            self._done.set_result(self._answers)

    def _give_up(self) -> None:
        self._fail(f"no answer within {ANSWER_WITHIN:g} s")
        self.close()

    def _fail(self, text: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(Lost(text))


def request(method: str, path: str, host: str, body: bytes = b"") -> bytes:
    """A request's bytes."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


LOADING = 4
"""Requests of rows under way while loading: enough that the server never waits for the network."""
MIGRATED_WITHIN = 1800.0
"""Seconds that making the views may take."""


class HeadraceTarget(Target):
    """One deployment, embedded or a cluster: the same calls."""

    name = "headrace"

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.servers = (PeerServer(host, port, "headrace"),)
        self._idle: list[HeadraceConnection] = []

    async def describe(self) -> dict[str, str]:
        status = await self._call("GET", "/v1/status")
        limit = status.get("memory", {}).get("limit")
        told = {"memory limit": f"{limit / 2**20:.0f} MiB"} if limit else {}
        return {"server": f"Headrace {status.get('version', '')}".strip(), **told}

    async def check(self, program: Program, probe: Lookup | None) -> None:
        there = {view["name"] for view in (await self._call("GET", "/v1/views"))["views"]}
        missing = [name for name in program.queries if name not in there]
        if missing:
            raise LoadRunError(
                f'{self._where} has no view "{missing[0]}" of the {program.name} program', hint="load it with --prime"
            )
        if probe is not None:
            session = await self.session()
            (found,) = await session.read([probe])
            await session.close()
            if not found.rows():
                raise LoadRunError(
                    f"{self._where} holds less data than the run would ask for",
                    hint="give the --data-scale and --data-seed that it was primed with, or --prime an empty server",
                )

    async def prime(self, program: Program, batches: Rows, total: int, tell: Progress) -> None:
        there = {table["name"] for table in (await self._call("GET", "/v1/tables"))["tables"]}
        if there & set(program.tables):
            raise LoadRunError(f"{self._where} has tables of that name already", hint="prime an empty server")
        await self._migrate(program.schema)
        loading = [await HeadraceConnection.connect(self.host, self.port) for _ in range(LOADING)]
        rows = iter(batches)
        sent = 0

        async def load(connection: HeadraceConnection) -> None:
            nonlocal sent
            for table, batch in rows:  # shared by all: a batch goes to whoever is free
                body = orjson.dumps({"rows": batch})
                (answer,) = await connection.ask([request("POST", f"/v1/tables/{table}/rows", self._host, body)])
                if answer.status != 200:
                    raise LoadRunError(f"loading {table} failed: {error_of(answer)}")
                sent += len(batch)
                tell(table, sent, total)

        try:
            await asyncio.gather(*(load(each) for each in loading))
        finally:
            for each in loading:
                each.close()
        tell("views", sent, total)
        await self._migrate(program.views + "\n" + program.query_text)

    async def session(self) -> HeadraceSession:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return HeadraceSession(self, connection)
        return HeadraceSession(self, await HeadraceConnection.connect(self.host, self.port))

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def give_back(self, connection: HeadraceConnection) -> None:
        if connection.open:
            self._idle.append(connection)

    async def _migrate(self, sql: str) -> None:
        queued = await self._call("POST", "/v1/migrations", {"sql": sql})
        loop = asyncio.get_running_loop()
        until = loop.time() + MIGRATED_WITHIN
        while loop.time() < until:
            migration = await self._call("GET", f"/v1/migrations/{queued['id']}")
            if migration["state"] == "done":
                return
            if migration["state"] in ("failed", "cancelled"):
                raise LoadRunError(f"the migration {migration['state']}: {migration.get('error')}")
            await asyncio.sleep(0.1)
        raise LoadRunError(f"the migration was not done within {MIGRATED_WITHIN:g} s")

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        connection = await HeadraceConnection.connect(self.host, self.port)
        try:
            data = b"" if body is None else orjson.dumps(body)
            (answer,) = await connection.ask([request(method, path, self._host, data)])
        except RequestFailed as error:
            raise LoadRunError(f"{self._where} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status not in (200, 201, 202):
            raise LoadRunError(f"{method} {path} of {self._where}: {error_of(answer)}")
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError as error:
            raise LoadRunError(
                f"{self._where} does not speak as Headrace does", hint="is it another server?"
            ) from error

    @property
    def _host(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def _where(self) -> str:
        return f"http://{self._host}"


class JointAnswers:
    """The answers to the look-ups of one read: ``{"results": [[[row, …], …], …]}``, parsed when somebody asks."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._results: list[list[list[dict[str, Any]]]] | None = None

    def pages(self, place: int) -> list[list[dict[str, Any]]]:
        if self._results is None:
            self._results = orjson.loads(self._body)["results"]
        return self._results[place]


class LookupPages(NamedTuple):
    """The answer to one look-up of a read."""

    together: JointAnswers
    place: int

    def rows(self) -> list[dict[str, Any]]:
        return list(chain.from_iterable(self.together.pages(self.place)))

    def column(self, name: str) -> list[Any]:
        return [row[name] for page in self.together.pages(self.place) for row in page]


class HeadraceSession(PeerSession):
    """One connection."""

    def __init__(self, target: HeadraceTarget, connection: HeadraceConnection) -> None:
        self._target = target
        self._connection = connection
        self._head = f"POST /v1/lookups HTTP/1.1\r\nhost: {target.host}\r\ncontent-length: ".encode()

    async def read(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        return await self.ask(lookups)  # The server takes references, so a read is one round.

    async def ask(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        # One key with its lists inside: the server binds it once, and answers with one page.
        wanted = [{"view": each.query.name, "keys": [each.values]} for each in lookups]
        (answer,) = await self._send([self._request(orjson.dumps({"lookups": wanted}))])
        if answer.status != 200:
            raise RequestFailed(error_of(answer))
        together = JointAnswers(answer.body)
        return [LookupPages(together, place) for place in range(len(lookups))]

    async def write(self, changes: Sequence[Change]) -> int:
        answers = await self._send([self._change(each) for each in changes])
        affected = 0
        for answer in answers:
            if answer.status == 409:
                raise Conflict(error_of(answer))
            if answer.status != 200:
                raise RequestFailed(error_of(answer))
            affected += affected_by(answer)
        return affected

    async def close(self) -> None:
        self._target.give_back(self._connection)

    async def _send(self, requests: Sequence[bytes]) -> list[HttpAnswer]:
        if not self._connection.open:
            try:
                self._connection = await HeadraceConnection.connect(self._target.host, self._target.port)
            except LoadRunError as error:
                raise RequestFailed(error.message) from error
        return await self._connection.ask(requests)

    def _request(self, body: bytes) -> bytes:
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)

    def _change(self, change: Change) -> bytes:
        method, path, body = changed(change)
        return request(method, path, self._target.host, orjson.dumps(body))


def changed(change: Change) -> tuple[str, str, dict[str, Any]]:
    """Method, path and body of the request that makes the change."""
    path = f"/v1/tables/{change.table}/rows"
    match change:
        case InsertRow():
            return "POST", path, {"rows": change.rows}
        case Upsert():
            return "POST", path, {"rows": change.rows, "on_duplicate": "update", "update": change.set}
        case DeleteRow():
            return "DELETE", path, {"key": change.key}
        case UpdateRow() if not change.add:
            return "PATCH", path, {"key": change.key, "set": change.set}
        case UpdateRow():  # As SQL, which can add to what is there.
            ((text, values),) = changed_rows(change, "`", "?")
            return "POST", "/v1/sql", {"sql": text, "params": values}


def affected_by(answer: HttpAnswer) -> int:
    """Rows that a write changed, as either kind of call says it."""
    told = orjson.loads(answer.body)
    if "results" in told:
        return sum(int(each["rows_affected"]) for each in told["results"])
    return int(told["rows_affected"])


def error_of(answer: HttpAnswer) -> str:
    """Status, code and message of an error."""
    try:
        error = orjson.loads(answer.body)["error"]
        return f"{answer.status} {error['code']}: {error['message']}"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return f"{answer.status}: {answer.body[:200]!r}"
