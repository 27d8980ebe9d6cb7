"""One connection: bytes to packets and back, its login, TLS in its middle, and one command at a time."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

from api.doors.tls import TlsConnection
from api.mysql.commands import Commands
from api.mysql.errors import message_of, number_of
from api.mysql.packets import (
    CLIENT_COMPRESS,
    CLIENT_SSL,
    CompressedFeed,
    PacketFeed,
    enveloped,
    framed,
    greeting,
    ok,
    refusal,
)
from api.mysql.passing import PassingCommands
from api.mysql.proving import SHA2, ClientAnswer, Proving, new_nonce
from api.mysql.shared import MysqlShared
from api.mysql.values import UTF8, charset_of
from api.statuses import describe
from controller.access.authentication import PeerCertificate
from domains.errors import BadRequest, HeadraceError, TooManyRequests, Unauthenticated, Unsupported

LOGIN_BYTES = 65_536
"""Bytes of a packet before the client is known."""
HELD_MAX = 1 << 18
"""Bytes that are read while a command is answered; more stay in the socket."""
AT_ONCE = 32
"""Commands that are answered one after the other where they arrive, at some 40 µs each, before others have a turn."""
WAIT_SECONDS = 28_800.0
"""Seconds after which a connection without a command is closed: MySQL's ``wait_timeout``. Pools count on it."""
KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Two minutes after the last sign of a client that has vanished, its connection goes."""

_log = logging.getLogger("headrace.mysql")


class MysqlConnection(asyncio.Protocol):
    """See :class:`api.mysql.shared.MysqlClient`, which it implements."""

    def __init__(self, door: MysqlShared) -> None:
        self._door = door
        self._admission = door.admission
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.certificate: PeerCertificate | None = None
        self.address = ""
        self.id = 0
        self._feed = PacketFeed(LOGIN_BYTES)
        self._charged = 0
        """Bytes of it that are counted as received."""
        self._task: asyncio.Task[None] | None = None
        """The login, or the command that is being answered."""
        self._next: asyncio.Future[bytes] | None = None
        """The login waits for a packet."""
        self._drain: asyncio.Future[None] | None = None
        """What is answered waits for the client to read."""
        self.is_full = self._paused = False
        self._ending = False
        """It is closed when its command is answered."""
        self._counted = False
        self._sequence = 0
        self._idle: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        """Until a packet that has begun is there whole."""
        self._seen = monotonic()
        self.commands: Commands | None = None
        """Once the client is known."""

    # --- its beginning and end ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self._counted = True
        _keep_alive(transport.get_extra_info("socket"))
        error = self._admission.enter(self.address)
        if error is not None:
            if self._door.audit is not None:
                self._door.audit.turned_away(self.address, error)
            self._refuse(error)
            return
        self.id = self._door.deployment.lists.connected(self.end)
        self._door.connections[self.id] = self
        self._task = self._loop.create_task(self._log_in())
        self._task.add_done_callback(self._finish)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending = True
        if self._counted:
            self._admission.leave(self, self.address, self._charged)
            self._charged, self._counted = 0, False
        self._door.connections.pop(self.id, None)
        self._door.deployment.lists.disconnected(self.id)
        self._stop_deadline()
        if self._idle is not None:
            self._idle.cancel()
        for waiting in (self._next, self._drain):
            if waiting is not None and not waiting.done():
                waiting.cancel()
        if self._task is not None:
            self._task.cancel()
        if self.commands is not None:
            self.commands.leave()

    def eof_received(self) -> bool:
        return False

    def end(self) -> None:
        """After the command that is being answered."""
        self._ending = True
        if self._task is None or self.commands is None:
            self.transport.close()

    def give_up(self) -> None:
        """At once: the client does not read its answers, or the server ends."""
        self.transport.abort()

    def _refuse(self, error: HeadraceError) -> None:
        """Say why, and close."""
        self.send((refusal(*number_of(error), message_of(error)),))
        self._ending = True
        self.transport.close()

    # --- what arrives ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        self._feed.add(data)
        self._charged += len(data)
        error = self._admission.receive(len(data))
        if error is not None:
            self._refuse(error)
            return
        if self._task is not None and self._next is None and self._feed.size > HELD_MAX and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._go_on()

    def _go_on(self) -> None:
        """Take the next packet, if somebody waits for one and it is there."""
        at_once = 0
        while not self._ending and (self._task is None or self._next is not None):
            try:
                payload = self._feed.next()
            except HeadraceError as error:
                self._sequence = self._feed.sequence
                self._refuse(error)
                return
            if payload is None:
                if self._feed.size and self._deadline is None:
                    self._deadline = self._loop.call_later(self._admission.limits.request_timeout, self._is_too_slow)
                return
            self._stop_deadline()
            if self._next is not None:
                waiting, self._next = self._next, None
                self._sequence = self._feed.sequence
                if not waiting.done():
                    waiting.set_result(payload)
                return
            assert self.commands is not None, "the login is over"
            self._sequence, self._feed.sequence = self._feed.sequence, 0
            begun = self.commands.begin(payload)
            if begun is None:
                self._release()
                at_once += 1
                if at_once < AT_ONCE:
                    continue
                begun = asyncio.sleep(0)  # Others have their turn.
            self._task = self._loop.create_task(begun)
            self._task.add_done_callback(self._finish)

    def _finish(self, done: asyncio.Task[None]) -> None:
        self._task = None
        self._release()
        if self.transport.is_closing():
            return
        # One that was stopped when it had nothing to wait for any more has answered.
        if (error := None if done.cancelled() else done.exception()) is not None:
            if isinstance(error, Exception) and not isinstance(error, HeadraceError):
                describe(error, "a MySQL connection")  # It logs what happened.
            self._refuse(error if isinstance(error, HeadraceError) else BadRequest("internal error"))
            return
        self._feed.sequence = 0
        if self._ending:
            self.transport.close()
            return
        self._seen = monotonic()
        if self._idle is None:
            self._look_later(WAIT_SECONDS)
        if self.commands is not None and self.commands.session.in_transaction:
            self._look_later(self._door.deployment.sessions.limits.transaction_idle)
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        self._go_on()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_too_slow(self) -> None:
        self._deadline = None
        self._sequence = self._feed.sequence
        self._refuse(self._admission.too_slow())

    def _release(self) -> None:
        held = self._feed.size
        self._admission.release(self._charged - held)
        self._charged = held

    async def read(self) -> bytes:
        """The next packet, of a login."""
        self._feed.sequence = self._sequence
        self._next = self._loop.create_future()
        waiting = self._next
        self._loop.call_soon(self._go_on)
        return await waiting

    def _look_later(self, seconds: float) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Whether a client is silent for too long; with an open transaction that is sooner."""
        self._idle = None
        if self._task is not None:
            self._look_later(WAIT_SECONDS)
            return
        idle = monotonic() - self._seen
        opens = self.commands is not None and self.commands.session.in_transaction
        most = self._door.deployment.sessions.limits.transaction_idle if opens else WAIT_SECONDS
        if idle + 0.001 >= most:
            self.transport.close()
        else:
            self._look_later(most - idle)

    # --- what leaves ----------------------------------------------------------------------------------------------

    def send(self, payloads: Iterable[bytes]) -> None:
        data, self._sequence = framed(payloads, self._sequence)
        self.write(data)

    def write(self, data: bytes) -> None:
        """Packets that are whole, and the last of an answer."""
        if isinstance(self._feed, CompressedFeed):
            data, self._feed.envelope = enveloped(data, self._feed.envelope)
        if not self.transport.is_closing():
            self.transport.write(data)

    async def drained(self) -> None:
        """When the client has read enough of what was sent. One that does not read is given up."""
        if not self.is_full:
            return
        self._drain = self._loop.create_future()
        self._admission.leave_unread(self, self.transport.get_write_buffer_size())
        try:
            async with asyncio.timeout(self._admission.limits.request_timeout):
                await self._drain
        except TimeoutError:
            self.give_up()
            raise asyncio.CancelledError from None
        finally:
            self._drain = None
            self._admission.has_read(self)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

    # --- the login ------------------------------------------------------------------------------------------------

    async def _log_in(self) -> None:
        door, nonce = self._door, new_nonce()
        self.send((greeting(door.announced, self.id, nonce, SHA2, UTF8.collation & 0xFF, tls=door.tls is not None),))
        tried = ""
        try:
            async with asyncio.timeout(self._admission.limits.request_timeout):
                payload = await self.read()
                secure = False
                if len(payload) == 32 and door.tls is not None and payload[1] & (CLIENT_SSL >> 8):
                    self._begin_tls()
                    payload, secure = await self.read(), True
                answer = ClientAnswer.of(payload)
                tried = answer.user
                await self.log_in(answer, nonce, secure=secure)
        except TimeoutError:
            raise self._admission.too_slow() from None
        except HeadraceError as error:
            if door.audit is not None and isinstance(error, Unauthenticated | TooManyRequests):
                door.audit.stranger(self.address, tried, error)
            raise

    async def log_in(self, answer: ClientAnswer, nonce: bytes, *, secure: bool) -> None:
        """The same for COM_CHANGE_USER.

        :raises HeadraceError: the client is not let in."""
        charset = charset_of(answer.collation)
        if charset is None:
            raise Unsupported(
                f"the character set of collation number {answer.collation}",
                hint="utf8mb4, utf8mb3, latin1, ascii and binary are there",
            )
        proving = Proving(self._door.authentication, self.address, self._send_one, self.read, secure=secure)
        caller = await proving.session(answer, nonce)
        if self.commands is not None:
            await self.commands.reset()
        self._feed.most = self._admission.limits.max_body_size
        login = self._door.login_of(caller.account)
        kind = Commands if login is None else PassingCommands
        self.commands = kind(self._door, self, caller, answer, charset, secure=secure)
        if isinstance(self.commands, PassingCommands) and login is not None:
            self.commands.pass_on(login, answer.collation)
        if answer.schema:
            await self.commands.use(answer.schema)
        self.send((ok(status=self.commands.session.status()),))
        if answer.capabilities & CLIENT_COMPRESS and not isinstance(self._feed, CompressedFeed):
            self._feed = CompressedFeed(self._feed.most, self._feed.rest())

    def _send_one(self, payload: bytes) -> None:
        self.send((payload,))

    def _begin_tls(self) -> None:
        """What comes from now on is TLS: a :class:`TlsConnection` stands between the socket and this."""
        assert self._door.tls is not None
        plain, rest = self.transport, self._feed.rest()
        secured = MysqlTls(self._door.tls, lambda: self)  # type: ignore[arg-type, return-value]
        plain.set_protocol(secured)
        secured.begin(plain)
        self.transport = secured  # type: ignore[assignment]
        self._admission.release(self._charged)
        self._charged = 0
        if rest:
            secured.data_received(rest)


class MysqlTls(TlsConnection):
    """TLS that begins on a connection which is there already, and was counted."""

    def begin(self, plain: asyncio.Transport) -> None:
        self._socket = plain
        self._timer = None

    def _say_plainly(self) -> None:
        self._fail("the client asked for TLS, and does not speak it")


def _keep_alive(plain: object) -> None:
    """Not every system knows every option, and a socket of a test is none of TCP."""
    options = getattr(plain, "setsockopt", None)
    if options is None:
        return
    with suppress(OSError):
        options(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                options(socket.IPPROTO_TCP, getattr(socket, name), value)
