"""A session whose statements are passed on: a view answers what it can here, and the upstream everything else.

::

    COM_QUERY, COM_STMT_EXECUTE
       │ no transaction is open upstream, nothing is set by which texts mean something else there
       ├─► a view of tables that follow has it, and reflects what this session has written ──► here
       └─► may who asks do that? ──► the upstream, on the session's own connection ──► its packets, as they come

The upstream has the session: its variables, its transaction, LAST_INSERT_ID(). It tells of each change in the packet
that ends an answer, so nothing of SET is read here. The connection is made when the first statement needs it. One that
is lost while it is idle is made again with what was set, if that is all there was; else the client is told so as by
MySQL, with 2013 or 2006, and its connection ends: nothing is sent twice, and no transaction goes on without its
beginning.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from api.mysql.commands import EXECUTE_HEAD, Commands, PreparedText
from api.mysql.errors import message_of
from api.mysql.packets import (
    CLIENT_DEPRECATE_EOF,
    CLIENT_MULTI_STATEMENTS,
    STATUS_AUTOCOMMIT,
    STATUS_CURSOR_EXISTS,
    STATUS_LAST_ROW_SENT,
    eof,
    ok,
    refusal,
)
from api.mysql.passed_texts import HOLDS, KINDS, OF_BEFORE, SHADOWS, is_plain
from api.mysql.upstream import (
    UpstreamConnection,
    UpstreamLost,
    UpstreamRefused,
    lost,
    with_number,
)
from api.statuses import status_of
from controller.upstreams.passing_on import JudgedText
from domains.errors import BadRequest, Cancelled, HeadraceError, NotFound, ReadTimeout, Unavailable, Unsupported

KEPT_SETTINGS = 100
"""Statements that are said again to another connection."""


@dataclass(slots=True)
class PassedStatement(PreparedText):
    """A prepared statement that the upstream has."""

    number: int = 0
    """Its number there."""
    said_types: bytes = b""
    """The types of its parameters, as the client said them."""
    has_types: bool = False
    """The upstream was told them."""
    left: list[bytes] | None = None
    """The rows of its cursor that were not fetched yet."""


class PassingCommands(Commands):
    """Of one connection; see above."""

    def pass_on(self, login: tuple[str, str], collation: int) -> None:
        """Begin: ``login`` is the account upstream."""
        slots, followed = self._door.slots, self._door.followed
        assert slots is not None, "the door has an upstream"
        assert followed is not None, "the door has an upstream"
        self._slots, self._followed = slots, followed
        self._login, self._collation = login, collation
        self._judge = self._door.deployment.passing_on
        self._times = self._door.passed
        self._up: UpstreamConnection | None = None
        self._tracked = self._slots.began_with
        self._is_plain = is_plain(self._tracked)
        self._schema = ""
        self._settings: list[bytes] = []
        self._holds = self._is_shadowed = False
        self._answered_here = False
        """The statement before was: what is asked about it is answered here."""
        self._gtid = ""
        """Of what was passed on, if it may not be in all views yet."""
        self._unsure = False
        """It may be a later one: the upstream has not said."""
        self._in_view: set[str] = set()
        """The tables whose views are known to reflect it."""
        self.session.show_only(self._may_show)

    # --- what may be answered here ----------------------------------------------------------------------------------

    def _is_free(self) -> bool:
        """Whether a view may answer at all."""
        up = self._up
        is_there = self._schema == self._slots.server.database
        return self._is_plain and is_there and not self._is_shadowed and (up is None or not up.in_transaction)

    def _may_show(self, tables: Collection[str]) -> bool:
        names = {each.lower() for each in tables}
        return self._followed.may_show(names) and (not (self._gtid or self._unsure) or names <= self._in_view)

    async def _reflects(self, tables: Collection[str]) -> bool:
        """Wait until views of these tables reflect what was passed on."""
        if not self._followed.may_show(tables):
            return False
        if self._unsure:
            up = self._up
            if up is None or up.is_lost:
                return False
            ((told,),) = await up.ask(b"SELECT @@last_gtid")
            self._gtid, self._unsure = told or self._gtid, False
        if self._may_show(tables):
            return True
        clock = await self._followed.reached(self._gtid, tables)
        if clock is None:
            return False
        self.session.wait_for(clock)
        self._in_view |= set(tables)
        return True

    # --- commands ---------------------------------------------------------------------------------------------------

    def _begin(self, command: int, payload: bytes) -> Coroutine[Any, Any, None] | None:
        match command:
            case 0x03:
                return self._text(payload)
            case 0x0E:
                self._ping()
                return None
            case 0x19:  # COM_STMT_CLOSE has no answer.
                gone = self._prepared.pop(int.from_bytes(payload[1:5], "little"), None)
                if isinstance(gone, PassedStatement) and self._up is not None:
                    return self._alone(self._up.send(with_number(payload, gone.number)))
                return None
            case 0x1A:
                return self._guarded(self._reset_passed(payload))
            case 0x1B:
                return self._guarded(self._set_option(payload))
        return super()._begin(command, payload)

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        """What has no answer."""
        try:
            await work
        except UpstreamLost:
            self._connection.end()

    def _text(self, payload: bytes) -> Coroutine[Any, Any, None] | None:
        try:
            sql: str | None = self.session.read.text_of(payload[1:])
        except BadRequest:
            sql = None
        if sql is not None and self._is_free() and self.session.found(sql, (), binary=False):
            self._answered_here = True
            return self._read_by_client()
        return self._guarded(self._asked_text(payload, sql))

    async def _asked_text(self, payload: bytes, sql: str | None) -> None:
        kinds = KINDS.match(sql) if sql is not None else None
        if sql is not None and kinds is not None and self._is_done_here(kinds):
            await self.session.answer(sql, (), "COM_QUERY", binary=False)
            return
        if sql is not None and self._answered_here and OF_BEFORE.search(sql):
            raise Unsupported(
                "to ask about a statement that a view has answered, with something else", hint="ask for it alone"
            )
        judged = await self._judged(sql)
        tries = sql is not None and (judged.view is not None or judged.is_ours)
        if tries and await self._has_answered(sql or "", (), judged, binary=False):
            return
        await self._passed(payload, sql or "", judged)
        if kinds is not None and kinds["setting"] and self._up is not None and not self._up.has_failed:
            self._settings.append(payload)
            self._holds |= len(self._settings) > KEPT_SETTINGS

    def _is_done_here(self, kinds: re.Match[str]) -> bool:
        if kinds["kill"] and int(kinds["kill"]) in self._door.connections:
            return True
        return bool(kinds["own"] or kinds["define"] or (kinds["ask"] and self._answered_here))

    async def _judged(self, sql: str | None) -> JudgedText:
        found: JudgedText = await self._judge.judged(sql, self.session.asker(), is_plain=self._is_plain)
        return found

    async def _has_answered(self, sql: str, params: Sequence[Any], judged: JudgedText, *, binary: bool) -> bool:
        """Whether a view did. Where it takes too long, or is not there, the upstream does."""
        if not self._is_free():
            return False
        if not await self._reflects(judged.tables):
            if judged.is_ours:
                raise ReadTimeout("the view does not reflect the upstream in time", hint="does the follower run?")
            return False
        route = "COM_STMT_EXECUTE" if binary else "COM_QUERY"
        try:
            await self.session.answer(sql, params, route, binary=binary)
        except (Unavailable, ReadTimeout):  # Nothing was sent yet.
            if judged.is_ours:
                raise
            return False
        self._answered_here = True
        return True

    # --- what is passed on ------------------------------------------------------------------------------------------

    async def _upstream(self) -> UpstreamConnection:
        """The session's connection.

        :raises UpstreamLost: there was one, and what it had is gone with it."""
        up = self._up
        if up is not None and not up.is_lost:
            return up
        if up is not None:
            up.close()
            if up.in_transaction or self._holds or self._prepared:
                raise lost()
        many = CLIENT_MULTI_STATEMENTS if self._many else 0
        capabilities = self._capabilities & ~CLIENT_MULTI_STATEMENTS | many
        made = await self._slots.connect(self._login, capabilities, self._collation, self._schema)
        try:
            for each in self._settings:
                await made.ask(each[1:])
            if up is not None and up.first_id:
                await made.ask(f"SELECT LAST_INSERT_ID({up.first_id})".encode())
        except BaseException:
            made.close()
            raise
        self._up = made
        self._heard(made)
        return made

    def _heard(self, up: UpstreamConnection) -> None:
        """What the upstream has said of the session."""
        if up.tracked != self._tracked or self._tracked is self._slots.began_with:
            self._tracked = dict(up.tracked)
            self._is_plain = is_plain(self._tracked)
            client, results = (self._tracked.get(f"character_set_{each}") for each in ("client", "results"))
            self.session.speak(client, results or None)
            self._schema = self._tracked.get("schema", "")
        if up.gtid and up.gtid != self._gtid:
            self._gtid = up.gtid
            self._in_view.clear()
        self.session.inserted(up.first_id)

    async def _passed(self, payload: bytes, sql: str, judged: JudgedText) -> None:
        """Send it, and what is answered to the client."""
        up = await self._connected()
        if up is None:
            return
        self._answered_here = False
        self._holds |= HOLDS.search(sql) is not None
        self._is_shadowed |= SHADOWS.search(sql) is not None
        await self._relayed(up, sql, judged, self._sent(up, payload))
        self._unsure |= up.has_failed and judged.select is None

    async def _connected(self) -> UpstreamConnection | None:
        """None: why there is none was told to the client."""
        try:
            return await self._upstream()
        except UpstreamLost as error:
            self._say_lost(error, 2006)
        except UpstreamRefused as error:
            self._connection.send((error.packet,))
        except Unavailable as error:
            self.session.say(error, (2003, "HY000"))
        return None

    def _say_lost(self, error: HeadraceError, number: int) -> None:
        self._connection.send((refusal(number, "HY000", message_of(error)),))
        self._connection.end()

    async def _sent(self, up: UpstreamConnection, *payloads: bytes) -> AsyncIterator[list[bytes]]:
        for each in payloads:
            await up.send(each)
        async for some in up.answer(self._capabilities):
            yield some

    async def _relayed(
        self, up: UpstreamConnection, sql: str, judged: JudgedText, answers: AsyncIterator[list[bytes]]
    ) -> None:
        """KILL ends it by a KILL there, whose error is the answer; so does a client that leaves."""
        began, status = perf_counter(), 200

        async def relay() -> None:
            async for some in answers:
                self._connection.send(some)
                await self._connection.drained()

        relaying = asyncio.create_task(relay())
        try:
            try:
                with self._judge.entered(sql, self._connection.id):
                    await asyncio.shield(relaying)
            except Cancelled:
                self._slots.kill(up, self._login, query=True)
                await relaying
        except UpstreamLost as error:
            status = status_of(error)
            self._say_lost(error, 2013)
            return
        except BaseException as error:
            status = status_of(error) if isinstance(error, HeadraceError) else 500
            relaying.cancel()
            self._slots.kill(up, self._login, query=False)
            up.close()
            raise
        finally:
            took = perf_counter() - began
            self._times.add(500 if status == 200 and up.has_failed else status, took, sql)
        self._heard(up)
        self._judge.count(judged, took)

    async def _plainly(self, payload: bytes) -> None:
        """What is answered by one packet."""
        up = await self._connected()
        if up is None:
            return
        try:
            await up.send(payload)
            self._connection.send((await up.plain(),))
        except UpstreamLost as error:
            self._say_lost(error, 2013)
            return
        self._heard(up)

    async def use(self, schema: str) -> None:
        """At the login: the database of the upstream is taken to be there until a statement needs it."""
        self._schema = schema
        if schema != self._slots.server.database:
            await self._upstream()

    async def _init_db(self, payload: bytes) -> None:
        await self._plainly(payload)
        self._settings.append(b"\x03USE `" + payload[1:].replace(b"`", b"``") + b"`")

    async def _set_option(self, payload: bytes) -> None:
        self._many = not int.from_bytes(payload[1:3], "little")
        if self._up is None or self._up.is_lost:
            self._connection.send((self.session.end(0),))
            return
        await self._up.send(payload)
        await self._up.plain()
        self._connection.send((self.session.end(0),))

    def _ping(self) -> None:
        up = self._up
        if up is not None and up.is_lost and (up.in_transaction or self._holds or self._prepared):
            self._say_lost(lost(), 2006)
            return
        self._connection.send((ok(status=STATUS_AUTOCOMMIT if up is None else up.status & 3),))

    async def _field_list(self, payload: bytes) -> None:
        raise Unsupported("COM_FIELD_LIST where statements are passed on", hint="SHOW COLUMNS")

    # --- prepared statements ----------------------------------------------------------------------------------------

    async def _prepare(self, payload: bytes) -> None:
        sql = self.session.read.text_of(payload[1:])
        if not self._has_room(sql):
            return
        await self._judged(sql)
        up = await self._connected()
        if up is None:
            return
        try:
            await up.send(payload)
            answer, number, parameters = await up.prepared(self._capabilities)
        except UpstreamLost as error:
            self._say_lost(error, 2013)
            return
        if number:
            self._last_prepared += 1
            self._prepared[self._last_prepared] = PassedStatement(sql, parameters, number=number)
            answer[0] = with_number(answer[0], self._last_prepared)
        self._connection.send(answer)

    def _perform(
        self,
        statement: PreparedText,
        params: Sequence[Any],
        payload: bytes,
        long: dict[int, bytes],
        *,
        wants_cursor: bool,
    ) -> Coroutine[Any, Any, None] | None:
        assert isinstance(statement, PassedStatement), "all of this session are"
        if not wants_cursor and self._is_free() and self.session.found(statement.sql, params, binary=True):
            self._answered_here = True
            return self._read_by_client()
        return self._guarded(self._executed_there(statement, params, payload, long, wants_cursor=wants_cursor))

    async def _executed_there(
        self,
        statement: PassedStatement,
        params: Sequence[Any],
        payload: bytes,
        long: dict[int, bytes],
        *,
        wants_cursor: bool,
    ) -> None:
        judged = await self._judged(statement.sql)
        tries = (judged.view is not None or judged.is_ours) and not wants_cursor
        if tries and await self._has_answered(statement.sql, params, judged, binary=True):
            return
        up = await self._connected()
        if up is None:
            return
        self._answered_here = False
        head = b"\x18" + statement.number.to_bytes(4, "little")
        pieces = [head + place.to_bytes(2, "little") + value for place, value in long.items()]
        sent = (*pieces, _executing(payload, statement))
        answers = self._gathered(up, statement, sent) if wants_cursor else self._sent(up, *sent)
        await self._relayed(up, statement.sql, judged, answers)
        self._unsure |= up.has_failed and judged.select is None

    async def _gathered(
        self, up: UpstreamConnection, statement: PassedStatement, payloads: Sequence[bytes]
    ) -> AsyncIterator[list[bytes]]:
        """All rows at once, which are fetched from here."""
        for each in payloads:
            await up.send(each)
        head, rows = await up.gathered(self._door.admission.limits.max_answer_size)
        statement.left = rows
        yield head if rows is None else [*head, self._end(STATUS_CURSOR_EXISTS)]

    def _end(self, more: int) -> bytes:
        status = more | (STATUS_AUTOCOMMIT if self._up is None else self._up.status & 3)
        return ok(status=status, head=0xFE) if self._capabilities & CLIENT_DEPRECATE_EOF else eof(status)

    async def _fetch(self, payload: bytes) -> None:
        statement, count = (
            self._statement(int.from_bytes(payload[1:5], "little")),
            int.from_bytes(payload[5:9], "little"),
        )
        assert isinstance(statement, PassedStatement), "all of this session are"
        if statement.left is None:
            raise NotFound("prepared statement has no open cursor")
        some, statement.left = statement.left[:count], statement.left[count:] or None
        self._connection.send((*some, self._end(STATUS_CURSOR_EXISTS if statement.left else STATUS_LAST_ROW_SENT)))

    async def _reset_passed(self, payload: bytes) -> None:
        statement = self._statement(int.from_bytes(payload[1:5], "little"))
        assert isinstance(statement, PassedStatement), "all of this session are"
        statement.long.clear()
        statement.is_too_long, statement.left = False, None
        await self._plainly(with_number(payload, statement.number))

    # --- its end ----------------------------------------------------------------------------------------------------

    async def reset(self) -> None:
        self._leave_upstream()
        await super().reset()
        self.pass_on(self._login, self._collation)

    async def _reset_connection(self, payload: bytes) -> None:
        schema, gtid = self._schema, self._gtid
        await super()._reset_connection(payload)
        self._schema, self._gtid = schema, gtid

    def leave(self) -> None:
        self._leave_upstream()
        super().leave()

    def _leave_upstream(self) -> None:
        if self._up is not None:
            self._up.close()
            self._up = None


def _executing(payload: bytes, statement: PassedStatement) -> bytes:
    """COM_STMT_EXECUTE by the upstream's number, with the types of its parameters if it was not told them: a client
    says them once, and that may have been answered here."""
    made = with_number(payload, statement.number)
    made = made[:5] + b"\0" + made[6:]
    if not statement.parameters:
        return made
    at = EXECUTE_HEAD + (statement.parameters + 7) // 8
    if made[at]:
        statement.said_types = made[at + 1 : at + 1 + 2 * statement.parameters]
    elif not statement.has_types:
        made = made[:at] + b"\x01" + statement.said_types + made[at + 1 :]
    statement.has_types = True
    return made
