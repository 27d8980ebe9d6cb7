"""One TCP connection: requests with their answers in any order, and notices, both ways.

Both ends are a :class:`Connection`; ``server.py`` has the accepting end. Sending never waits for the network: all
messages of one turn of the event loop go out as one write at its end.

What a caller may rely on:

* Messages arrive, and are handed to the handler, in the order in which they were sent.
* A request gets one answer, a message or an error, or fails with ``ConnectionLost``. Its ``sent`` is False if no byte
  of the request was given to the network: then it surely was not done.
* A connection that is silent for :data:`SILENCE` is lost, even if the kernel does not know: the connecting end sends a
  beat when it hears nothing, and the other end sends it back.
* Bytes that are not of the protocol end the connection, after an error that says so; the process lives on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, assert_never, cast

from domains.errors import HeadraceError
from domains.transitions import moved
from worker.protocol.messages import ConnectionLost, Done, Hello, ProtocolError, RemoteFault, Role, Welcome
from worker.wire import codec
from worker.wire.frames import BEAT, Cutter, framed, opened
from worker.wire.proof import Asking, entered
from worker.wire.vocabulary import PROTOCOL
from zookeeper.secret import Secret

SILENCE = 4.0
"""Seconds. A long step or the opening of a store may hold up a worker's event loop for a second. With much more than
that, reads would wait that could go elsewhere."""
CONNECT_SECONDS = 3.0
"""Seconds for the connection and its greeting."""
LINGER_SECONDS = 2.0
"""Seconds for the other side to read the reason for the end."""
BUFFER_HIGH = 1 << 20
"""Bytes in the write buffer from which on a connection is ``full``."""

_log = logging.getLogger("headrace.wire")

Handler = Callable[["Connection", Any], Any]
"""Takes a message; returns the answer, an awaitable of it, or None (``Done``). It may raise a HeadraceError."""


def refuse_all(connection: Connection, message: Any) -> Any:
    """The handler of an end that takes no requests."""
    raise ProtocolError(f'"{type(message).__name__}" is not asked for here')


class ConnectionStage(Enum):
    OPENING = "opening"
    """Until the other side has greeted."""
    OPEN = "open"
    CLOSING = "closing"
    """Nothing more is sent or handled; what was sent before may still arrive."""
    CLOSED = "closed"


TRANSITIONS = {
    ConnectionStage.OPENING: (ConnectionStage.OPEN, ConnectionStage.CLOSING, ConnectionStage.CLOSED),
    ConnectionStage.OPEN: (ConnectionStage.CLOSING, ConnectionStage.CLOSED),
    ConnectionStage.CLOSING: (ConnectionStage.CLOSED,),
    ConnectionStage.CLOSED: (),
}


class Connection(asyncio.Protocol):
    """Made by ``connect`` or ``WireServer``. All methods are for the event loop's thread."""

    def __init__(self, handler: Handler, *, silence: float, beats: bool) -> None:
        self.handler = handler
        self.stage = ConnectionStage.OPENING
        self.peer: Hello | Welcome | None = None
        """The process on the other side, after its greeting."""
        self.error: HeadraceError | None = None
        """Why the connection ends or has ended; None while it is open."""
        self.closed = asyncio.Event()
        self.on_lost: list[Callable[[Connection], None]] = []
        """Called once, when the connection has ended."""
        self.on_drained: Callable[[], None] | None = None
        """Called when the write buffer is no longer ``full``."""
        self.full = False
        self.traffic = Counter(messages_in=0, messages_out=0, bytes_in=0, bytes_out=0)
        self._silence = silence
        self._beats = beats
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._cutter = Cutter()
        self._number = 0
        self._flushed = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._outgoing: list[bytes] = []
        self._answering: set[asyncio.Future[Any]] = set()
        self._heard = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    def __str__(self) -> str:
        where = self._transport.get_extra_info("peername") if self._transport is not None else None
        place = f"{where[0]}:{where[1]}" if where else "nowhere"
        return f"{self.peer.name} at {place}" if self.peer is not None else place

    def is_open(self) -> bool:
        """Or opening."""
        return self.stage is ConnectionStage.OPEN or self.stage is ConnectionStage.OPENING

    def greeted(self, peer: Hello | Welcome) -> None:
        """The connection may have ended before its greeting is handled."""
        self.peer = peer
        if self.is_open():
            self.stage = moved(TRANSITIONS, self.stage, ConnectionStage.OPEN)

    # --- sending ----------------------------------------------------------------------------------------------

    def ask(self, message: object) -> asyncio.Future[Any]:
        """Send a request at once; the future is its answer, or raises the error that the other side answered, or
        ConnectionLost. If it is cancelled the answer is ignored, but the request may be done all the same."""
        if self.error is not None:
            raise ConnectionLost(self.error.message, hint=self.error.hint, sent=False)
        frame = framed(self._number + 1, message)  # It may raise, and then no number is used up.
        self._number += 1
        number, future = self._number, self._loop.create_future()
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        self._write(frame)
        return future

    def tell(self, message: object) -> None:
        """Send a notice, which has no answer. On a connection that has ended it is lost."""
        if self.is_open():
            self._write(framed(0, message))

    def close(self) -> None:
        """End the connection after sending what waits; ``await closed.wait()`` for its end."""
        self._end(ConnectionLost("the connection was closed on this side"))

    def abort(self, error: HeadraceError) -> None:
        """End the connection without sending what waits."""
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def _write(self, frame: bytes) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self.traffic["messages_out"] += 1
        self._outgoing.append(frame)

    def _flush(self) -> None:
        # A connection that broke closes its transport a turn of the loop before ``connection_lost`` is called. uvloop
        # raises on a write in between; what waits is lost, and is not counted as sent.
        if not self._outgoing or self._transport is None or self._transport.is_closing():
            return
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        self._flushed = self._number
        self.traffic["bytes_out"] += len(data)
        self._transport.write(data)

    def _close(self, error: HeadraceError, after: ConnectionStage = ConnectionStage.CLOSING) -> bool:
        """Whether this ends it; the first error stays."""
        match self.stage:
            case ConnectionStage.OPENING | ConnectionStage.OPEN:
                self.stage, self.error = moved(TRANSITIONS, self.stage, after), error
                return True
            case ConnectionStage.CLOSING | ConnectionStage.CLOSED:
                return False
            case stage:
                assert_never(stage)

    def _end(self, error: HeadraceError) -> None:
        if not self._close(error):
            return
        self._flush()
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(LINGER_SECONDS, self._transport.abort)

    def _refuse(self, error: HeadraceError, number: int = 0) -> None:
        """End the connection because of what came over it, and tell the other side why."""
        if self._close(error):
            self.tell_of(error)
            self._write(framed(-number, error))
            self._flush()
            assert self._transport is not None
            # Closing with bytes unread would reset the connection, and the other side might not get the reason.
            if not self._transport.is_closing():
                self._transport.write_eof()
            self._loop.call_later(LINGER_SECONDS, self._transport.abort)

    def tell_of(self, error: HeadraceError) -> None:
        _log.warning("the connection of %s ends: %s", self, error)

    # --- asyncio's side ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods of asyncio.Transport, but is not a subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_HIGH)
        self._heard = self._loop.time()
        self._watch = self._loop.call_later(self._silence / 4, self._watch_silence, self._heard)

    def connection_lost(self, exception: Exception | None) -> None:
        reason = f": {exception}" if exception else ""
        lost = ConnectionLost(f"the connection of {self} was lost{reason}")
        if not self._close(lost, ConnectionStage.CLOSED):
            self.stage = moved(TRANSITIONS, self.stage, ConnectionStage.CLOSED)
        error = self.error or lost
        if self._watch is not None:
            self._watch.cancel()
        for number, future in list(self._waiting.items()):
            if not future.done():
                sent = number <= self._flushed
                future.set_exception(ConnectionLost(error.message, hint=error.hint, sent=sent))
        self._waiting.clear()
        self.closed.set()
        for callback in self.on_lost:
            callback(self)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self.on_drained is not None:
            self.on_drained()

    def _watch_silence(self, then: float) -> None:
        now = self._loop.time()
        period = self._silence / 4
        late = now - then > 2 * period  # This process was held up itself, and may have unread bytes.
        if now - self._heard > self._silence and not late:
            self.abort(ConnectionLost(f"nothing was heard of {self} for {self._silence:g} s"))
            return
        if self._beats and now - self._heard > period / 2 and self.is_open():
            self._write(BEAT)
        self._watch = self._loop.call_later(period, self._watch_silence, now)

    # --- receiving --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self.is_open():
            return
        self._heard = self._loop.time()
        self.traffic["bytes_in"] += len(data)
        try:
            while contents := self._cutter.cut(data):
                data = b""
                for content in contents:
                    if not self.is_open():
                        return
                    self._take(content)
        except HeadraceError as error:
            self._refuse(error)

    def _take(self, content: bytes) -> None:
        if not content:
            if not self._beats:
                self._write(BEAT)
            return
        self.traffic["messages_in"] += 1
        number, packed = opened(content)
        try:
            message = self._read(packed)
        except HeadraceError as error:
            self._refuse(error, max(number, 0))
            return
        if number > 0:
            self._answer(number, message)
        elif number < 0:
            self._answered(-number, message)
        elif isinstance(message, HeadraceError):
            self._end(message)
        else:
            self._notice(message)

    def _read(self, packed: Any) -> Any:
        return codec.unpack_object(packed)

    def _answered(self, number: int, answer: Any) -> None:
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            if not 0 < number <= self._number:
                raise ProtocolError(f"an answer to request {number}, which was not asked")
            return  # The caller was cancelled.
        if isinstance(answer, HeadraceError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _notice(self, message: Any) -> None:
        result = self._handled(message)
        if isinstance(result, HeadraceError):
            self._refuse(result)
        elif inspect.isawaitable(result):
            self._follow(result, lambda _: None, message)

    def _answer(self, number: int, message: Any) -> None:
        result = self._handled(message)
        if inspect.isawaitable(result):
            self._follow(result, lambda answer: self._reply(number, answer, message), message)
        else:
            self._reply(number, result, message)

    def _handled(self, message: Any) -> Any:
        """The handler's result, or the error that it raised."""
        try:
            return self.handler(self, message)
        except HeadraceError as error:
            return error
        except Exception as error:
            return self._fault(message, error)

    def _follow(self, result: Awaitable[Any], then: Callable[[Any], None], message: Any) -> None:
        """A request that was begun is carried through, even if its answer is no longer awaited."""
        future = asyncio.ensure_future(result)
        self._answering.add(future)

        def done(ended: asyncio.Future[Any]) -> None:
            self._answering.discard(ended)
            if ended.cancelled():
                then(RemoteFault("the request was given up", hint="the process is stopping"))
            elif (error := ended.exception()) is None:
                then(ended.result())
            elif isinstance(error, HeadraceError):
                then(error)
            else:
                then(self._fault(message, error))

        future.add_done_callback(done)

    def _reply(self, number: int, answer: Any, message: Any) -> None:
        if not self.is_open():
            return
        try:
            frame = framed(-number, Done() if answer is None else answer)
        except HeadraceError as error:
            frame = framed(-number, error)
        except Exception as error:
            frame = framed(-number, self._fault(message, error))
        self._write(frame)

    def _fault(self, message: Any, error: BaseException) -> RemoteFault:
        reference = secrets.token_hex(6)
        _log.error('internal error %s in "%s"', reference, type(message).__name__, exc_info=error)
        return RemoteFault(
            f'"{type(message).__name__}" failed on an internal error', hint=f'its log has it under "{reference}"'
        )


async def connect(
    host: str,
    port: int,
    hello: Hello,
    *,
    handler: Handler = refuse_all,
    timeout: float = CONNECT_SECONDS,
    silence: float = SILENCE,
    secret: Secret | None = None,
    door: Role = Role.WORKER,
) -> Connection:
    """An open connection; its ``peer`` is the ``Welcome`` of the other side. With a ``secret`` both sides prove that
    first; ``door`` is whose port it is.

    :raises ConnectionLost: nobody answers there in time.
    :raises WrongDeployment, ProtocolError: the answer is not that of a process of this deployment.
    """
    loop = asyncio.get_running_loop()
    connection = Connection(handler, silence=silence, beats=True)
    try:
        async with asyncio.timeout(timeout):
            if secret is None:
                await loop.create_connection(lambda: connection, host, port)
            else:
                await entered(connection, host, port, Asking(secret, hello.role, door))
            welcome = await connection.ask(hello)
    except TimeoutError:
        connection.abort(ConnectionLost("no answer in time"))
        raise ConnectionLost(f'"{host}:{port}" did not answer within {timeout:g} s') from None
    except OSError as error:
        raise ConnectionLost(
            f'"{host}:{port}" cannot be reached: {error.strerror or error}', hint="is the process running there?"
        ) from None
    except HeadraceError as error:
        last = connection.error
        connection.close()
        # The other side's last message says more than that it closed.
        raise (last if isinstance(error, ConnectionLost) and last else error) from None
    except BaseException:
        connection.close()
        raise
    if not isinstance(welcome, Welcome):
        connection.close()
        raise ProtocolError(f'"{host}:{port}" answers a greeting with "{type(welcome).__name__}"')
    connection.greeted(welcome)
    return connection


def greeting(deployment: str, role: Role, name: str, incarnation: int) -> Hello:
    """This process's greeting, for ``connect`` and ``Peers``."""
    return Hello(PROTOCOL, deployment, role, name, incarnation)
