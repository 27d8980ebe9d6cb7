"""What a connection remembers between its statements, and how one is performed and answered: at once, or in full."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from time import perf_counter, time
from typing import Any

from headrace_client import tokens

from api.auditing import REFUSALS, StatementWitness
from api.mysql.errors import message_of, number_of
from api.mysql.packets import (
    CLIENT_DEPRECATE_EOF,
    CLIENT_FOUND_ROWS,
    STATUS_AUTOCOMMIT,
    STATUS_CURSOR_EXISTS,
    STATUS_IN_TRANSACTION,
    eof,
    ok,
    refusal,
)
from api.mysql.proving import ROOT
from api.mysql.shared import MysqlClient, MysqlShared
from api.mysql.values import CHARSETS, ROWS_AT_A_TIME, UTF8, Charset, RowWriter
from api.statuses import status_of
from controller.access.audit_log import AuditKind
from controller.access.session import Caller
from controller.deployment import StatementResult
from domains.errors import HeadraceError, Unauthenticated
from domains.language.types import Column
from domains.plan.packets import Clock
from migrations.statements.sessions.session_values import SessionValues, SessionWarning
from migrations.statements.sessions.setting import ISOLATION, LOCK_WAIT
from worker.service.child_pool import Turn

_DIAGNOSTIC = re.compile(
    r"\s*(?:SHOW\s+(?:COUNT\s*\(\s*\*\s*\)\s+)?(?:WARNINGS|ERRORS)\b|SELECT\s+@@(?:warning|error)_count)", re.IGNORECASE
)
"""Statements that ask about the one before, and leave what they ask about."""

_CLIENT, _RESULTS = "character_set_client", "character_set_results"
"""The variables that say how a connection's texts are read, and written."""

LeftRows = tuple[RowWriter, Sequence[Sequence[Any]]]
"""Rows that are sent later, and how they are written."""


def _chosen(name: object, now: Charset) -> Charset:
    return now if name == now.name else CHARSETS.get(str(name or UTF8.name), UTF8)


class ConnectionSession:
    """Of one connection, from a login to the next one."""

    def __init__(
        self, door: MysqlShared, connection: MysqlClient, caller: Caller, capabilities: int, charset: Charset
    ) -> None:
        self._door = door
        self._connection = connection
        self._capabilities = capabilities
        self._began_with = self.read = self._charset = charset
        """Of what is read, and of what is written."""
        self._changes = door.authentication.changes
        self._values = SessionValues()
        self._caller = caller
        self._clock: Clock = {}
        """The positions of its own writes, which its reads wait for."""
        self._begin()

    @property
    def in_transaction(self) -> bool:
        return self._caller.transaction is not None

    @property
    def charset(self) -> Charset:
        """Of what is written."""
        return self._charset

    def status(self, more: int = 0) -> int:
        session = self._caller.session
        assert session is not None
        autocommit = STATUS_AUTOCOMMIT if session.autocommit else 0
        return autocommit | (STATUS_IN_TRANSACTION if session.transaction is not None else 0) | more

    def _begin(self) -> None:
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
        self.read = self._charset = self._began_with
        self._values.variables |= dict.fromkeys((_CLIENT, _RESULTS, "character_set_connection"), self._charset.name)
        session = self._door.deployment.sessions.connected(connection.id, account)
        self._values.variables |= dict.fromkeys(ISOLATION, session.isolation.shown)
        self._values.variables[LOCK_WAIT] = int(session.lock_wait)
        self._caller = replace(self._caller, session=session, values=self._values)

    async def reset(self) -> None:
        """All that the connection remembers goes, but for its own writes."""
        if self._caller.session is not None:
            await self._caller.session.roll_back()
        self._begin()

    def forget_writes(self) -> None:
        self._clock = {}

    # --- where statements are passed on ---------------------------------------------------------------------------

    def show_only(self, may_show: Callable[[Collection[str]], bool]) -> None:
        """Views answer at once only where their tables allow it."""
        self._values.may_show = may_show

    def wait_for(self, clock: Clock) -> None:
        self._clock = tokens.merge(self._clock, clock)

    def speak(self, client: str | None, results: str | None) -> None:
        """In the character sets that the upstream's session has now."""
        self.read, self._charset = _chosen(client, self.read), _chosen(results, self._charset)
        self._values.variables |= {_CLIENT: self.read.name, _RESULTS: self._charset.name}

    def inserted(self, first_id: int) -> None:
        self._values.last_insert_id = first_id

    def asker(self) -> Caller:
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

    # --- the short way --------------------------------------------------------------------------------------------

    def found(self, sql: str, params: Sequence[Any], *, binary: bool) -> bool:
        """Answer a SELECT whose rows a view has, at once: a tenth of what it takes in full. False: nothing was done.

        Who asks has to be known as they are now, and what is recorded of each statement is left to the full way."""
        door, caller, values, began = self._door, self._caller, self._values, perf_counter()
        recorded = door.audit is not None and door.audit.log.records_data
        is_known = self._changes == door.authentication.changes and caller.expires > time()
        if recorded or not is_known or (caller.rights is not None and not caller.account):
            return False
        found = door.deployment.try_select(sql, params, self._clock, caller)
        if found is None:
            return False
        writer = self._writer(found.columns, binary=binary)
        answer = door.answers.of(writer, found.page)
        if answer is None:
            return False
        data, values.found_rows = answer
        door.admission.check_answer(len(data))
        values.warnings.clear()
        values.row_count = -1
        self._connection.write(data)
        door.times.add(200, perf_counter() - began, sql)
        return True

    def _writer(self, columns: tuple[Column, ...], *, binary: bool) -> RowWriter:
        is_short = bool(self._capabilities & CLIENT_DEPRECATE_EOF)
        return self._door.answers.writer(columns, self._charset, binary=binary, is_short=is_short)

    # --- in full --------------------------------------------------------------------------------------------------

    async def perform(self, sql: str, params: Sequence[Any], route: str) -> StatementResult:
        """One statement, with the connection's token, session and rights: counted, timed and recorded.

        :raises HeadraceError: it is refused."""
        door, began, caller = self._door, perf_counter(), self.asker()
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

    async def answer(
        self, sql: str, params: Sequence[Any], route: str, *, binary: bool, more: int = 0, cursor: bool = False
    ) -> LeftRows | None:
        """Perform a statement and send its result; with ``cursor`` all but the rows, which are given back."""
        try:
            result = await self.perform(sql, params, route)
        except HeadraceError as error:
            self._values.row_count = -1
            self._values.warnings[:] = [SessionWarning("Error", number_of(error)[0], message_of(error))]
            raise
        self._remember(sql, result)
        if not result.columns:
            affected = result.rows_affected
            if self._capabilities & CLIENT_FOUND_ROWS and result.matched is not None:
                affected = result.matched
            self._connection.send((ok(affected, result.first_id or result.given_id or 0, self.status(more)),))
            return None
        writer = self._writer(result.columns, binary=binary)
        head = list(writer.head)
        if cursor:
            self._connection.send((*head, self.end(STATUS_CURSOR_EXISTS)))
            return writer, result.rows
        if not self._capabilities & CLIENT_DEPRECATE_EOF:
            head.append(eof(self.status(more)))
        await self.send_rows(head, writer, result.rows, more)
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
        self.read = _chosen(values.variables[_CLIENT], self.read)
        self._charset = _chosen(values.variables[_RESULTS], self._charset)

    async def send_rows(
        self, head: Iterable[bytes], writer: RowWriter, rows: Sequence[Sequence[Any]], more: int
    ) -> None:
        connection, admission, turn, size = self._connection, self._door.admission, Turn(), 0
        if len(rows) <= ROWS_AT_A_TIME:
            pieces = list(writer.rows(rows))
            admission.check_answer(sum(map(len, pieces)))
            connection.send((*head, *pieces, self.end(more)))
            return
        connection.send(head)
        for at in range(0, len(rows), ROWS_AT_A_TIME):
            pieces = list(writer.rows(rows[at : at + ROWS_AT_A_TIME]))
            size += sum(map(len, pieces))
            admission.check_answer(size)
            connection.send(pieces)
            await connection.drained()
            await turn.pause()
        connection.send((self.end(more),))

    def end(self, more: int) -> bytes:
        """What ends rows, or the columns before them."""
        if self._capabilities & CLIENT_DEPRECATE_EOF:
            return ok(status=self.status(more), head=0xFE)
        return eof(self.status(more))

    def say(self, error: HeadraceError, number: tuple[int, str] | None = None) -> None:
        self._connection.send((refusal(*(number or number_of(error)), message_of(error)),))
