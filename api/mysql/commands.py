"""The commands of a client that is known, and what its connection remembers between them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Any

from headrace_client import tokens

from api.auditing import REFUSALS, StatementWitness
from api.limits import body_too_large
from api.mysql.errors import GENERAL, message_of, number_of
from api.mysql.packets import (
    CLIENT_DEPRECATE_EOF,
    CLIENT_FOUND_ROWS,
    CLIENT_MULTI_STATEMENTS,
    NULL,
    STATUS_AUTOCOMMIT,
    STATUS_CURSOR_EXISTS,
    STATUS_IN_TRANSACTION,
    STATUS_LAST_ROW_SENT,
    STATUS_MORE_RESULTS,
    PayloadReader,
    eof,
    length_of,
    ok,
    refusal,
)
from api.mysql.proving import ROOT, ClientAnswer, new_nonce
from api.mysql.shared import MysqlClient, MysqlShared
from api.mysql.values import (
    CHARSETS,
    PARAMETER,
    UTF8,
    Charset,
    ParameterTypes,
    RowWriter,
    column_definition,
    read_parameters,
    shape_of,
)
from api.statuses import describe, status_of
from controller.access.audit_log import AuditKind
from controller.access.session import Caller
from controller.deployment import StatementResult
from domains.errors import HeadraceError, NotFound, Overloaded, SqlSyntaxError, Unauthenticated, Unsupported
from domains.plan.packets import Clock
from migrations.access.rights import Privilege
from migrations.statements.sessions.session_values import SessionValues, SessionWarning
from worker.service.child_pool import Turn

ROWS_AT_A_TIME = 500
"""Rows that are written between two looks at whether the client reads, and at what else waits."""
PREPARED_CHARACTERS = 16_000_000
"""Characters of the prepared statements of one connection."""
_QUERY, _EXECUTE = "COM_QUERY", "COM_STMT_EXECUTE"
_DIAGNOSTIC = re.compile(
    r"\s*(?:SHOW\s+(?:COUNT\s*\(\s*\*\s*\)\s+)?(?:WARNINGS|ERRORS)\b|SELECT\s+@@(?:warning|error)_count)", re.IGNORECASE
)
"""Statements that ask about the one before, and leave what they ask about."""

_CLIENT, _RESULTS = "character_set_client", "character_set_results"
"""The variables that say how a connection's texts are read, and written."""


def _chosen(name: object, now: Charset) -> Charset:
    return now if name == now.name else CHARSETS[str(name or UTF8.name)]


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
        self._began_with = self._read = self._charset = charset
        """Of what is read, and of what is written."""
        self._secure = secure
        self._changes = door.authentication.changes
        self._values = SessionValues()
        self._caller = caller
        self._begin_session()
        self._clock: Clock = {}
        """The positions of its own writes, which its reads wait for."""
        self._prepared: dict[int, PreparedText] = {}
        self._last_prepared = 0
        self._many = bool(answer.capabilities & CLIENT_MULTI_STATEMENTS)
        self._commands: dict[int, Callable[[bytes], Coroutine[Any, Any, None]]] = {
            0x02: self._init_db,
            0x03: self._query,
            0x04: self._field_list,
            0x0A: self._process_info,
            0x0C: self._kill,
            0x11: self._change_user,
            0x16: self._prepare,
            0x17: self._execute,
            0x1C: self._fetch,
            0x1F: self._reset_connection,
        }

    # --- the session ----------------------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self._caller.transaction is not None

    def status(self, more: int = 0) -> int:
        session = self._caller.session
        assert session is not None
        autocommit = STATUS_AUTOCOMMIT if session.autocommit else 0
        return autocommit | (STATUS_IN_TRANSACTION if session.transaction is not None else 0) | more

    def _begin_session(self) -> None:
        connection, account = self._connection, self._caller.account
        self._values = SessionValues(
            account or ROOT,
            connection.address,
            connection=connection.id,
            version=self._door.version,
            last_insert_id=0,
            found_rows=0,
            row_count=-1,
        )
        self._read = self._charset = self._began_with
        self._values.variables |= dict.fromkeys((_CLIENT, _RESULTS, "character_set_connection"), self._charset.name)
        session = self._door.deployment.sessions.connected(connection.id, account)
        self._caller = replace(self._caller, session=session, values=self._values)

    async def reset(self) -> None:
        """All that the connection remembers goes."""
        self._prepared.clear()
        if self._caller.session is not None:
            await self._caller.session.roll_back()
        self._begin_session()

    def leave(self) -> None:
        """The connection is gone."""
        self._prepared.clear()
        self._door.deployment.sessions.disconnected(self._connection.id)

    def _asker(self) -> Caller:
        """Who asks, as they are now.

        :raises Unauthenticated: the account, or what proved it, is gone."""
        caller, authentication = self._caller, self._door.authentication
        if self._changes != authentication.changes or caller.expires <= time():
            if caller.rights is None and not caller.account and not authentication.is_open:
                raise Unauthenticated("there are accounts now", hint="connect as one of them")
            fresh = caller.renewed()
            self._caller = caller = replace(fresh, session=caller.session, values=caller.values)
            self._changes = authentication.changes
        return caller

    # --- commands -------------------------------------------------------------------------------------------------

    def begin(self, payload: bytes) -> Coroutine[Any, Any, None] | None:
        """Answer a command; where that takes a while, what does it."""
        self._door.questions += 1
        if not payload:
            self._say(Unsupported("an empty command"), (1047, "08S01"))
            return None
        command = payload[0]
        found = self._commands.get(command)
        if found is not None:
            return self._guarded(found(payload))
        match command:
            case 0x01:  # COM_QUIT
                self._connection.end()
            case 0x09:
                self._connection.send((self._door.statistics().encode(),))
            case 0x0E:  # COM_PING
                self._connection.send((ok(status=self.status()),))
            case 0x18:
                self._long_data(payload)
            case 0x19:  # COM_STMT_CLOSE
                self._prepared.pop(int.from_bytes(payload[1:5], "little"), None)
            case 0x1A:
                self._reset_statement(payload)
            case 0x1B:  # COM_SET_OPTION
                self._many = not int.from_bytes(payload[1:3], "little")
                self._connection.send((self._end(0),))
            case other:
                self._say(Unsupported(f"the command {other} of MySQL's protocol"), (1047, "08S01"))
        return None

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """An error is an answer; one that says that nobody is known any more is the last."""
        admission = self._door.admission
        if admission.waiting >= admission.limits.max_waiting:
            work.close()
            self._say(admission.too_many_waiting())
            return
        admission.waiting += 1
        try:
            await work
        except Unauthenticated:
            raise
        except HeadraceError as error:
            self._say(error)
        except Exception as error:
            _, body = describe(error, "a command of a MySQL client")
            self._connection.send((refusal(*GENERAL, body.decode()),))
        finally:
            admission.waiting -= 1

    def _say(self, error: HeadraceError, number: tuple[int, str] | None = None) -> None:
        self._connection.send((refusal(*(number or number_of(error)), message_of(error)),))

    async def use(self, schema: str) -> None:
        await self._perform(f"USE `{schema.replace('`', '``')}`", (), "COM_INIT_DB")

    async def _init_db(self, payload: bytes) -> None:
        await self.use(self._read.text_of(payload[1:]))
        self._connection.send((ok(status=self.status()),))

    async def _reset_connection(self, payload: bytes) -> None:
        await self.reset()
        self._clock = {}
        self._connection.send((ok(status=self.status()),))

    async def _change_user(self, payload: bytes) -> None:
        answer = ClientAnswer.of_change(payload, self._capabilities)
        # The proof was made for the greeting's nonce, which a client may have forgotten: another one is asked for.
        async with asyncio.timeout(self._door.admission.limits.request_timeout):
            await self._connection.log_in(replace(answer, plugin="", proof=b""), new_nonce(), secure=self._secure)

    async def _process_info(self, payload: bytes) -> None:
        await self._answer("SHOW FULL PROCESSLIST", (), _QUERY, binary=False)

    async def _kill(self, payload: bytes) -> None:
        await self._answer(f"KILL {PayloadReader(payload, 1).number(4)}", (), _QUERY, binary=False)

    async def _field_list(self, payload: bytes) -> None:
        """The columns of a table or view, as old clients ask for them."""
        reader = PayloadReader(payload, 1)
        name = self._read.text_of(reader.until_nul())
        caller, deployment = self._asker(), self._door.deployment
        caller.check(Privilege.SELECT, name)
        table = next((each for each in deployment.tables() if each.title.lower() == name.lower()), None)
        view = next((each for each in deployment.views() if each.name.lower() == name.lower()), None)
        if table is not None:
            columns = [(table.columns[place].name, table.columns[place].type) for place in table.live()]
        elif view is not None:
            columns = [(column.name, column.type) for column in view.columns]
        else:
            raise NotFound(f'no table or view "{name}"')
        described = [column_definition(each, shape_of(type), self._charset) + NULL for each, type in columns]
        self._connection.send((*described, self._end(0)))

    # --- statements -----------------------------------------------------------------------------------------------

    async def _query(self, payload: bytes) -> None:
        sql = self._read.text_of(payload[1:])
        if not sql.strip("; \t\r\n"):
            self._say(SqlSyntaxError("the query is empty"), (1065, "42000"))
            return
        if ";" not in sql.rstrip("; \t\r\n"):
            await self._answer(sql, (), _QUERY, binary=False)
            return
        statements = await self._door.deployment.divided(sql)
        if len(statements) > 1 and not self._many:
            raise SqlSyntaxError(
                "the text has several statements, and the connection was opened for one at a time",
                hint="set CLIENT_MULTI_STATEMENTS, or send them one by one",
            )
        for number, statement in enumerate(statements, 1):
            more = STATUS_MORE_RESULTS if number < len(statements) else 0
            await self._answer(statement.sql, (), _QUERY, binary=False, more=more)

    async def _perform(self, sql: str, params: Sequence[Any], route: str) -> StatementResult:
        """One statement, with the connection's token, session and rights: counted, timed and recorded.

        :raises HeadraceError: it is refused."""
        door, began, caller = self._door, perf_counter(), self._asker()
        audit, status, code, witness = door.audit, 200, "", None
        try:
            caller.check_known()
            if audit is not None:
                if audit.log.records_data:
                    audit.log.check()
                witness = StatementWitness(audit, caller, self._connection.address, route)
                caller = replace(caller, witness=witness)
            results, moved = await door.deployment.execute(sql, params, token=self._clock, session=caller)
            if moved:
                self._clock = tokens.merge(self._clock, moved)
        except HeadraceError as error:
            status, code = status_of(error), error.code
            if audit is not None and status in REFUSALS:
                told = {"status": status, "code": code, "why": error.message, "statement": sql}
                audit.log.add(audit.event(AuditKind.REFUSAL, caller, self._connection.address, route=route, **told))
            raise
        except BaseException:
            status, code = 500, "cancelled"
            raise
        finally:
            took = perf_counter() - began
            door.times.add(status, took, sql)
            if audit is not None and audit.log.records_data and status not in REFUSALS:
                event = audit.event(AuditKind.DATA, caller, self._connection.address, route=route, statement=sql)
                event.status, event.ms = status, took * 1000
                if code:
                    event.code = code
                audit.log.add(event)
        if witness is not None:
            await witness.settled()
        return results[0] if results else StatementResult()

    async def _answer(
        self, sql: str, params: Sequence[Any], route: str, *, binary: bool, more: int = 0, cursor: bool = False
    ) -> tuple[RowWriter, Sequence[Sequence[Any]]] | None:
        """Perform a statement and send its result; with ``cursor`` all but the rows, which are given back."""
        try:
            result = await self._perform(sql, params, route)
        except HeadraceError as error:
            self._values.row_count = -1
            self._values.warnings[:] = [SessionWarning("Error", number_of(error)[0], message_of(error))]
            raise
        self._remember(sql, result)
        if not result.columns:
            affected = result.rows_affected
            if self._capabilities & CLIENT_FOUND_ROWS and result.matched is not None:
                affected = result.matched
            self._connection.send((ok(affected, result.first_id or 0, self.status(more)),))
            return None
        writer = RowWriter(result.columns, self._charset, binary=binary)
        definitions = writer.definitions()
        head = [length_of(len(definitions)), *definitions]
        if cursor:
            self._connection.send((*head, self._end(STATUS_CURSOR_EXISTS)))
            return writer, result.rows
        if not self._capabilities & CLIENT_DEPRECATE_EOF:
            head.append(eof(self.status(more)))
        await self._send_rows(head, writer, result.rows, more)
        return None

    def _remember(self, sql: str, result: StatementResult) -> None:
        """What the next statements may ask about this one."""
        values, session = self._values, self._caller.session
        if _DIAGNOSTIC.match(sql) is None:
            values.warnings.clear()
        if result.columns:
            values.found_rows, values.row_count = len(result.rows), -1
        else:
            values.row_count = result.rows_affected
        if result.first_id is not None:
            values.last_insert_id = result.first_id
        assert session is not None
        values.variables["autocommit"] = session.autocommit
        self._read = _chosen(values.variables[_CLIENT], self._read)
        self._charset = _chosen(values.variables[_RESULTS], self._charset)

    async def _send_rows(
        self, head: Iterable[bytes], writer: RowWriter, rows: Sequence[Sequence[Any]], more: int
    ) -> None:
        connection, admission, turn, size = self._connection, self._door.admission, Turn(), 0
        if len(rows) <= ROWS_AT_A_TIME:
            connection.send((*head, *writer.rows(rows), self._end(more)))
            return
        connection.send(head)
        for at in range(0, len(rows), ROWS_AT_A_TIME):
            pieces = list(writer.rows(rows[at : at + ROWS_AT_A_TIME]))
            size += sum(map(len, pieces))
            admission.check_answer(size)
            connection.send(pieces)
            await connection.drained()
            await turn.pause()
        connection.send((self._end(more),))

    def _end(self, more: int) -> bytes:
        """What ends rows, or the columns before them."""
        if self._capabilities & CLIENT_DEPRECATE_EOF:
            return ok(status=self.status(more), head=0xFE)
        return eof(self.status(more))

    # --- prepared statements --------------------------------------------------------------------------------------

    async def _prepare(self, payload: bytes) -> None:
        sql = self._read.text_of(payload[1:])
        limit = self._door.max_prepared
        held = sum(len(each.sql) for each in self._prepared.values())
        if len(self._prepared) >= limit or held + len(sql) > PREPARED_CHARACTERS:
            self._door.admission.count("max_prepared")
            error = Overloaded(
                f'the connection has "max_prepared", {limit} prepared statements, or {PREPARED_CHARACTERS} characters '
                "of them",
                hint="close those that are not used, or start the server with a greater max_prepared",
            )
            self._say(error, (1461, "42000"))
            return
        self._asker().check_known()
        statements = await self._door.deployment.divided(sql)
        if len(statements) != 1:
            raise SqlSyntaxError("a prepared statement is one statement")
        self._last_prepared += 1
        self._prepared[self._last_prepared] = PreparedText(sql, statements[0].parameters)
        await self._send_prepared(self._last_prepared, statements[0].parameters)

    async def _send_prepared(self, number: int, parameters: int) -> None:
        """The columns come with each result: they may be others by then."""
        head = b"\0" + number.to_bytes(4, "little") + b"\0\0" + parameters.to_bytes(2, "little") + b"\0\0\0"
        marks = [column_definition("?", PARAMETER, self._charset)] * parameters
        end = [] if not parameters or self._capabilities & CLIENT_DEPRECATE_EOF else [eof(self.status())]
        self._connection.send((head, *marks, *end))

    def _statement(self, number: int) -> PreparedText:
        """:raises NotFound: there is none of this number."""
        found = self._prepared.get(number)
        if found is None:
            raise NotFound(f"prepared statement {number} is not known")
        return found

    async def _execute(self, payload: bytes) -> None:
        reader = PayloadReader(payload, 1)
        statement = self._statement(reader.number(4))
        wants_cursor = bool(reader.number(1) & 1)
        reader.take(4)
        params: list[Any] = []
        if statement.is_too_long:
            statement.is_too_long = False
            raise body_too_large(self._door.admission.limits.max_body_size)
        if statement.parameters:
            long = {place: bytes(value) for place, value in statement.long.items()}
            statement.long.clear()
            params, statement.types = read_parameters(reader, statement.parameters, statement.types, long, self._read)
        statement.cursor = None
        left = await self._answer(statement.sql, params, _EXECUTE, binary=True, cursor=wants_cursor)
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
        await self._send_rows((), writer, wanted, STATUS_LAST_ROW_SENT if is_last else STATUS_CURSOR_EXISTS)

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
            self._say(error)
            return
        statement.long.clear()
        statement.is_too_long, statement.cursor = False, None
        self._connection.send((ok(status=self.status()),))
