"""The commands of a client that is known, and its prepared statements."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from api.limits import body_too_large
from api.mysql.errors import GENERAL
from api.mysql.packets import (
    CLIENT_DEPRECATE_EOF,
    CLIENT_MULTI_STATEMENTS,
    NULL,
    STATUS_CURSOR_EXISTS,
    STATUS_LAST_ROW_SENT,
    STATUS_MORE_RESULTS,
    PayloadReader,
    eof,
    ok,
    refusal,
)
from api.mysql.proving import ClientAnswer, new_nonce
from api.mysql.session import ConnectionSession
from api.mysql.shared import MysqlClient, MysqlShared
from api.mysql.values import (
    PARAMETER,
    Charset,
    ParameterTypes,
    RowWriter,
    column_definition,
    read_parameters,
)
from api.statuses import describe
from controller.access.session import Caller
from domains.errors import HeadraceError, NotFound, Overloaded, SqlSyntaxError, Unauthenticated, Unsupported
from domains.language.types import Column
from migrations.access.rights import Privilege
from migrations.query.sources.origins import own_columns

PREPARED_CHARACTERS = 16_000_000
"""Characters of the prepared statements of one connection."""
EXECUTE_HEAD = 10
"""Bytes of COM_STMT_EXECUTE before the parameters: the command, the statement's number, flags, and how often, which is
once."""
_QUERY, _EXECUTE = "COM_QUERY", "COM_STMT_EXECUTE"


@dataclass(slots=True)
class PreparedText:
    """A prepared statement: its text, which is performed anew each time, and what the client has sent for it."""

    sql: str
    parameters: int
    types: ParameterTypes = ()
    long: dict[int, bytearray] = field(default_factory=dict)
    is_too_long: bool = False
    """More was sent for it than it may have."""
    cursor: tuple[RowWriter, Sequence[Sequence[Any]], int] | None = None
    """What is left to be fetched: how it is written, the rows, and how many were."""


class Commands:
    """Of one connection. Each command is answered before the next one begins."""

    def __init__(
        self,
        door: MysqlShared,
        connection: MysqlClient,
        caller: Caller,
        answer: ClientAnswer,
        charset: Charset,
        *,
        secure: bool,
    ) -> None:
        self._door = door
        self._connection = connection
        self._capabilities = answer.capabilities
        self._secure = secure
        self.session = ConnectionSession(door, connection, caller, answer.capabilities, charset)
        self._prepared: dict[int, PreparedText] = {}
        self._last_prepared = 0
        self._many = bool(answer.capabilities & CLIENT_MULTI_STATEMENTS)
        self._commands: dict[int, Callable[[bytes], Coroutine[Any, Any, None]]] = {
            0x02: self._init_db,
            0x04: self._field_list,
            0x0A: self._process_info,
            0x0C: self._kill,
            0x11: self._change_user,
            0x16: self._prepare,
            0x1C: self._fetch,
            0x1F: self._reset_connection,
        }

    async def reset(self) -> None:
        """All that the connection remembers goes."""
        self._prepared.clear()
        await self.session.reset()

    def leave(self) -> None:
        """The connection is gone."""
        self._prepared.clear()
        self._door.deployment.sessions.disconnected(self._connection.id)

    # --- commands -------------------------------------------------------------------------------------------------

    def begin(self, payload: bytes) -> Coroutine[Any, Any, None] | None:
        """Answer a command; where that takes a while, what does it."""
        self._door.questions += 1
        if not payload:
            self.session.say(Unsupported("an empty command"), (1047, "08S01"))
            return None
        command = payload[0]
        found = self._commands.get(command)
        if found is not None:
            return self._guarded(found(payload))
        try:
            return self._begin(command, payload)
        except Exception as error:
            self._tell(error)
            return None

    def _begin(self, command: int, payload: bytes) -> Coroutine[Any, Any, None] | None:
        """The commands that are mostly answered at once."""
        match command:
            case 0x03:
                return self._query(self.session.read.text_of(payload[1:]))
            case 0x17:
                return self._execute(payload)
            case 0x01:  # COM_QUIT
                self._connection.end()
            case 0x09:
                self._connection.send((self._door.statistics().encode(),))
            case 0x0E:  # COM_PING
                self._connection.send((ok(status=self.session.status()),))
            case 0x18:
                self._long_data(payload)
            case 0x19:  # COM_STMT_CLOSE
                self._prepared.pop(int.from_bytes(payload[1:5], "little"), None)
            case 0x1A:
                self._reset_statement(payload)
            case 0x1B:  # COM_SET_OPTION
                self._many = not int.from_bytes(payload[1:3], "little")
                self._connection.send((self.session.end(0),))
            case other:
                self.session.say(Unsupported(f"the command {other} of MySQL's protocol"), (1047, "08S01"))
        return None

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """An error is an answer; one that says that nobody is known any more is the last."""
        admission = self._door.admission
        if admission.waiting >= admission.limits.max_waiting:
            work.close()
            self.session.say(admission.too_many_waiting())
            return
        admission.waiting += 1
        try:
            await work
        except Unauthenticated:
            raise
        except Exception as error:
            self._tell(error)
        finally:
            admission.waiting -= 1

    def _tell(self, error: Exception) -> None:
        if isinstance(error, HeadraceError):
            self.session.say(error)
            return
        _, body = describe(error, "a command of a MySQL client")
        self._connection.send((refusal(*GENERAL, body.decode()),))

    async def use(self, schema: str) -> None:
        await self.session.perform(f"USE `{schema.replace('`', '``')}`", (), "COM_INIT_DB")

    async def _init_db(self, payload: bytes) -> None:
        await self.use(self.session.read.text_of(payload[1:]))
        self._connection.send((ok(status=self.session.status()),))

    async def _reset_connection(self, payload: bytes) -> None:
        await self.reset()
        self.session.forget_writes()
        self._connection.send((ok(status=self.session.status()),))

    async def _change_user(self, payload: bytes) -> None:
        answer = ClientAnswer.of_change(payload, self._capabilities)
        # The proof was made for the greeting's nonce, which a client may have forgotten: another one is asked for.
        async with asyncio.timeout(self._door.admission.limits.request_timeout):
            await self._connection.log_in(replace(answer, plugin="", proof=b""), new_nonce(), secure=self._secure)

    async def _process_info(self, payload: bytes) -> None:
        await self.session.answer("SHOW FULL PROCESSLIST", (), _QUERY, binary=False)

    async def _kill(self, payload: bytes) -> None:
        await self.session.answer(f"KILL {PayloadReader(payload, 1).number(4)}", (), _QUERY, binary=False)

    async def _field_list(self, payload: bytes) -> None:
        """The columns of a table or view, as old clients ask for them."""
        reader = PayloadReader(payload, 1)
        name = self.session.read.text_of(reader.until_nul())
        caller, deployment = self.session.asker(), self._door.deployment
        caller.check(Privilege.SELECT, name)
        table = next((each for each in deployment.tables() if each.title.lower() == name.lower()), None)
        view = next((each for each in deployment.views() if each.name.lower() == name.lower()), None)
        if table is not None:
            columns = own_columns(table)
        elif view is not None:
            columns = view.columns
        else:
            raise NotFound(f'no table or view "{name}"')
        described = [column_definition(each, self.session.charset) + NULL for each in columns]
        self._connection.send((*described, self.session.end(0)))

    # --- statements -----------------------------------------------------------------------------------------------

    def _query(self, sql: str) -> Coroutine[Any, Any, None] | None:
        if self.session.found(sql, (), binary=False):
            return self._read_by_client()
        return self._guarded(self._asked(sql))

    def _read_by_client(self) -> Coroutine[Any, Any, None] | None:
        """What waits for it, where there is too much that it has not read."""
        return self._connection.drained() if self._connection.is_full else None

    async def _asked(self, sql: str) -> None:
        if not sql.strip("; \t\r\n"):
            self.session.say(SqlSyntaxError("the query is empty"), (1065, "42000"))
            return
        if ";" not in sql.rstrip("; \t\r\n"):
            await self.session.answer(sql, (), _QUERY, binary=False)
            return
        statements = await self._door.deployment.divided(sql)
        if len(statements) > 1 and not self._many:
            raise SqlSyntaxError(
                "the text has several statements, and the connection was opened for one at a time",
                hint="set CLIENT_MULTI_STATEMENTS, or send them one by one",
            )
        for number, statement in enumerate(statements, 1):
            more = STATUS_MORE_RESULTS if number < len(statements) else 0
            await self.session.answer(statement.sql, (), _QUERY, binary=False, more=more)

    # --- prepared statements --------------------------------------------------------------------------------------

    async def _prepare(self, payload: bytes) -> None:
        sql = self.session.read.text_of(payload[1:])
        if not self._has_room(sql):
            return
        self.session.asker().check_known()
        statements = await self._door.deployment.divided(sql)
        if len(statements) != 1:
            raise SqlSyntaxError("a prepared statement is one statement")
        columns = await self._door.deployment.described(sql, self.session.asker())
        self._last_prepared += 1
        self._prepared[self._last_prepared] = PreparedText(sql, statements[0].parameters)
        self._send_prepared(self._last_prepared, statements[0].parameters, columns)

    def _has_room(self, sql: str) -> bool:
        """For one more prepared statement; else the client is told."""
        limit = self._door.max_prepared
        held = sum(len(each.sql) for each in self._prepared.values())
        if len(self._prepared) >= limit or held + len(sql) > PREPARED_CHARACTERS:
            self._door.admission.count("max_prepared")
            error = Overloaded(
                f'the connection has "max_prepared", {limit} prepared statements, or {PREPARED_CHARACTERS} characters '
                "of them",
                hint="close those that are not used, or start the server with a greater max_prepared",
            )
            self.session.say(error, (1461, "42000"))
            return False
        return True

    def _send_prepared(self, number: int, parameters: int, columns: Sequence[Column]) -> None:
        """The columns come again with each result, since they may be others by then."""
        counts = struct.pack("<HHxH", len(columns), parameters, 0)
        marks = [column_definition(PARAMETER, self.session.charset)] * parameters
        own = [column_definition(each, self.session.charset) for each in columns]
        end = () if self._capabilities & CLIENT_DEPRECATE_EOF else (eof(self.session.status()),)
        told = [payload for some in (marks, own) if some for payload in (*some, *end)]
        self._connection.send((b"\0" + number.to_bytes(4, "little") + counts, *told))

    def _statement(self, number: int) -> PreparedText:
        """:raises NotFound: there is none of this number."""
        found = self._prepared.get(number)
        if found is None:
            raise NotFound(f"prepared statement {number} is not known")
        return found

    def _execute(self, payload: bytes) -> Coroutine[Any, Any, None] | None:
        reader = PayloadReader(payload, EXECUTE_HEAD)
        statement = self._statement(int.from_bytes(payload[1:5], "little"))
        wants_cursor = bool(payload[5:6] and payload[5] & 1)
        params, long = list[Any](), {place: bytes(value) for place, value in statement.long.items()}
        statement.long.clear()
        if statement.is_too_long:
            statement.is_too_long = False
            raise body_too_large(self._door.admission.limits.max_body_size)
        if statement.parameters:
            charset = self.session.read
            params, statement.types = read_parameters(reader, statement.parameters, statement.types, long, charset)
        statement.cursor = None
        return self._perform(statement, params, payload, long, wants_cursor=wants_cursor)

    def _perform(
        self,
        statement: PreparedText,
        params: Sequence[Any],
        payload: bytes,
        long: dict[int, bytes],
        *,
        wants_cursor: bool,
    ) -> Coroutine[Any, Any, None] | None:
        if not wants_cursor and self.session.found(statement.sql, params, binary=True):
            return self._read_by_client()
        return self._guarded(self._executed(statement, params, wants_cursor=wants_cursor))

    async def _executed(self, statement: PreparedText, params: Sequence[Any], *, wants_cursor: bool) -> None:
        left = await self.session.answer(statement.sql, params, _EXECUTE, binary=True, cursor=wants_cursor)
        if left is not None:
            statement.cursor = (*left, 0)

    async def _fetch(self, payload: bytes) -> None:
        reader = PayloadReader(payload, 1)
        statement, count = self._statement(reader.number(4)), reader.number(4)
        if statement.cursor is None:
            raise NotFound("prepared statement has no open cursor")
        writer, rows, at = statement.cursor
        wanted = rows[at : at + count]
        is_last = at + count >= len(rows)
        statement.cursor = None if is_last else (writer, rows, at + count)
        await self.session.send_rows((), writer, wanted, STATUS_LAST_ROW_SENT if is_last else STATUS_CURSOR_EXISTS)

    def _long_data(self, payload: bytes) -> None:
        """A piece of a parameter's value. It has no answer: what is wrong with it is said when it is executed."""
        if len(payload) < 7:
            return
        statement = self._prepared.get(int.from_bytes(payload[1:5], "little"))
        place = int.from_bytes(payload[5:7], "little")
        if statement is None or place >= statement.parameters:
            return
        whole = sum(map(len, statement.long.values())) + len(payload)
        if whole > self._door.admission.limits.max_body_size:
            statement.long.clear()
            statement.is_too_long = True
            return
        statement.long.setdefault(place, bytearray()).extend(payload[7:])

    def _reset_statement(self, payload: bytes) -> None:
        try:
            statement = self._statement(int.from_bytes(payload[1:5], "little"))
        except HeadraceError as error:
            self.session.say(error)
            return
        statement.long.clear()
        statement.is_too_long, statement.cursor = False, None
        self._connection.send((ok(status=self.session.status()),))
