"""Connections over real sockets: answers in any order, errors, losses, strangers and garbage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from wire_objects import instance, update

from domains.errors import BadRequest, ConstraintViolation, HeadraceError, LimitExceeded, Unavailable
from domains.plan.commands import AddNodes, Progress
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Written
from domains.transitions import moved
from tests.kit.tcp_proxy import Proxy, until
from worker.protocol.messages import (
    ConnectionLost,
    Done,
    Pages,
    Perform,
    Ping,
    Pong,
    ProtocolError,
    ReadRequest,
    RemoteFault,
    Role,
    StaleEpoch,
    TouchRequest,
    WriteRequest,
    WrongDeployment,
)
from worker.wire import codec, frames
from worker.wire.connection import TRANSITIONS, Connection, ConnectionStage, connect, greeting
from worker.wire.frames import BEAT, framed, opened
from worker.wire.proof import SOURCES_MAX, Refusals
from worker.wire.server import WireServer, serve

HELLO = greeting("news", Role.API, "api-1", 11)


class Worker:
    """Answers by what it is asked."""

    def __init__(self) -> None:
        self.held: list[asyncio.Future[Any]] = []
        self.heard: list[Any] = []

    def __call__(self, connection: Connection, message: Any) -> Any:
        self.heard.append(message)
        match message:
            case Ping(epoch=0):
                raise StaleEpoch("a later leader is known", hint="resign", epoch=5)
            case Ping(epoch=epoch):
                return Pong("w1", epoch)
            case WriteRequest():
                return self.write()
            case ReadRequest():
                self.held.append(asyncio.get_running_loop().create_future())
                return self.held[-1]
            case Perform():
                raise ZeroDivisionError
            case TouchRequest():
                return None
        return Pages((b"x" * 2000,))

    def refuse(self, connection: Connection, message: Any) -> Any:
        if message == Ping(9):
            raise BadRequest("no leader has epoch 9")
        return self(connection, message)

    async def write(self) -> Written:
        await asyncio.sleep(0)
        raise ConstraintViolation('duplicate value for "id"')


READ = instance(Random(1), ReadRequest)
WRITE = instance(Random(1), WriteRequest)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
async def server(worker: Worker) -> AsyncIterator[WireServer]:
    server = await serve("127.0.0.1", 0, "news", worker, name="w1", incarnation=3, greeting_seconds=1.0)
    yield server
    await server.close()


@pytest.fixture
async def link(server: WireServer) -> AsyncIterator[Connection]:
    link = await connect("127.0.0.1", server.port, HELLO)
    yield link
    link.close()
    await link.closed.wait()


async def alive(server: WireServer) -> None:
    """The process lives on: whoever belongs here is served."""
    link = await connect("127.0.0.1", server.port, HELLO)
    assert await link.ask(Ping(4)) == Pong("w1", 4)
    link.close()
    await link.closed.wait()


# --- asking -------------------------------------------------------------------------------------------------------


def test_a_connection_has_these_transitions_and_no_others() -> None:
    opening, is_open, closing, closed = ConnectionStage
    possible = {(opening, is_open), (is_open, closing), (closing, closed)}
    possible |= {(opening, closing), (opening, closed), (is_open, closed)}
    for before, after in product(ConnectionStage, ConnectionStage):
        if (before, after) in possible:
            assert moved(TRANSITIONS, before, after) is after
        else:
            with pytest.raises(AssertionError, match=f"from {before.value} to {after.value}"):
                moved(TRANSITIONS, before, after)


async def test_a_connection_opens_with_the_greeting_and_ends_once(server: WireServer) -> None:
    link = await connect("127.0.0.1", server.port, HELLO)
    (accepted,) = server.connections
    assert (link.stage, accepted.stage) == (ConnectionStage.OPEN, ConnectionStage.OPEN)
    link.close()
    assert link.stage is ConnectionStage.CLOSING
    reason = link.error
    link.abort(ConnectionLost("again"))
    assert link.error is reason
    await link.closed.wait()
    await accepted.closed.wait()
    assert (link.stage, accepted.stage) == (ConnectionStage.CLOSED, ConnectionStage.CLOSED)
    with pytest.raises(AssertionError, match="from closed to closed"):
        link.connection_lost(None)


async def test_answers_come_in_any_order(link: Connection, worker: Worker) -> None:
    asked = [link.ask(READ) for _ in range(500)]
    await until(lambda: len(worker.held) == 500)
    order = list(range(500))
    Random(1).shuffle(order)
    for number in order:
        worker.held[number].set_result(Progress(number, True))
    assert await asyncio.gather(*asked) == [Progress(number, True) for number in range(500)]


async def test_messages_are_handled_in_their_order(link: Connection, worker: Worker) -> None:
    for number in range(1, 300):
        if number % 3:
            link.tell(TouchRequest(DomainIndex(number), NodeIndex(1), ()))
        else:
            answer = link.ask(Ping(number))
    await answer
    seen = [m.epoch if isinstance(m, Ping) else m.domain for m in worker.heard]
    assert seen == list(range(1, 300))


async def test_errors_are_raised_where_it_was_asked(link: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StaleEpoch, match="a later leader") as stale:
        await link.ask(Ping(0))
    assert (stale.value.epoch, stale.value.hint) == (5, "resign")
    with pytest.raises(ConstraintViolation, match='"id"'):
        await link.ask(WRITE)
    with caplog.at_level(logging.CRITICAL + 1), pytest.raises(RemoteFault, match="internal error"):
        await link.ask(Perform(1, DomainIndex(0), AddNodes(())))
    assert await link.ask(Ping(9)) == Pong("w1", 9)


async def test_who_gave_up_waiting_disturbs_nobody(link: Connection, worker: Worker) -> None:
    task = asyncio.ensure_future(link.ask(READ))
    await until(lambda: len(worker.held) == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    worker.held[0].set_result(Done())
    assert await link.ask(Ping(9)) == Pong("w1", 9)


async def test_an_answer_or_a_request_that_is_too_large(
    link: Connection, monkeypatch: pytest.MonkeyPatch, worker: Worker
) -> None:
    monkeypatch.setattr(frames, "FRAME_MAX", 1000)
    with pytest.raises(LimitExceeded, match="over the limit of 1000"):
        await link.ask(Done())
    heard = len(worker.heard)
    with pytest.raises(LimitExceeded, match="over the limit of 1000"):
        await link.ask(TouchRequest(DomainIndex(1), NodeIndex(1), (("x" * 2000,),)))
    assert len(worker.heard) == heard
    assert await link.ask(Ping(9)) == Pong("w1", 9)


# --- losing -------------------------------------------------------------------------------------------------------


async def test_what_is_said_in_the_turn_in_which_a_link_breaks_is_lost_with_it(link: Connection) -> None:
    """uvloop raises on a write to a transport that is closed, before the protocol has heard of it."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    assert link._transport is not None
    link._transport.abort()
    answer = link.ask(READ)
    with pytest.raises(ConnectionLost) as lost:
        await answer
    assert not lost.value.sent
    link.tell(Ping(1))
    await asyncio.sleep(0)
    assert not failures


async def test_a_lost_connection_fails_what_is_outstanding(server: WireServer, worker: Worker) -> None:
    link = await connect("127.0.0.1", server.port, HELLO)
    lost: list[Connection] = []
    link.on_lost.append(lost.append)
    sent = [link.ask(READ) for _ in range(3)]
    await until(lambda: len(worker.held) == 3)
    server.abort()
    for future in sent:
        with pytest.raises(ConnectionLost) as error:
            await future
        assert error.value.sent
    assert lost == [link]
    assert not link.is_open()
    with pytest.raises(ConnectionLost) as refused:
        await link.ask(Ping(1))
    assert not refused.value.sent
    link.tell(Ping(1))
    for held in worker.held:
        held.set_result(Done())  # Nobody is there to hear of it.


async def test_what_was_not_sent_says_so(link: Connection, worker: Worker) -> None:
    early = link.ask(READ)
    await until(lambda: len(worker.held) == 1)
    late = link.ask(READ)
    link._outgoing.clear()  # It did not come to the write at the end of this turn.
    assert link._transport is not None
    link._transport.abort()
    for future, sent in ((early, True), (late, False)):
        with pytest.raises(ConnectionLost) as error:
            await future
        assert error.value.sent is sent
    assert len(worker.held) == 1


async def test_a_server_that_stops_sends_what_it_has_answered(worker: Worker) -> None:
    server = await serve("127.0.0.1", 0, "news", worker, name="w1", incarnation=3)
    link = await connect("127.0.0.1", server.port, HELLO)
    asked = [link.ask(Ping(number)) for number in range(1, 200)]
    await until(lambda: len(worker.heard) == 199)
    await server.close()
    assert await asyncio.gather(*asked) == [Pong("w1", number) for number in range(1, 200)]
    await link.closed.wait()


async def test_silence_is_a_loss(server: WireServer, worker: Worker) -> None:
    async with Proxy(server.port) as proxy:
        link = await connect("127.0.0.1", proxy.port, HELLO, silence=0.4)
        asked = link.ask(READ)
        await until(lambda: len(worker.held) == 1)
        heard = link.traffic["bytes_in"]
        await until(lambda: link.traffic["bytes_in"] > heard + 5 * len(BEAT))
        assert not asked.done()  # A request may take as long as it likes while beats come back.
        proxy.held = True
        with pytest.raises(ConnectionLost, match="nothing was heard") as lost:
            await asked
        assert lost.value.sent


async def test_a_client_that_is_silent_is_let_go(worker: Worker) -> None:
    server = await serve("127.0.0.1", 0, "news", worker, name="w1", incarnation=3, client_silence=0.3)
    async with Proxy(server.port) as proxy:
        await connect("127.0.0.1", proxy.port, HELLO, silence=0.1)
        assert len(server.connections) == 1
        proxy.held = True
        await until(lambda: not server.connections)
    await server.close()


async def test_who_does_not_read_is_asked_no_more(server: WireServer, worker: Worker) -> None:
    """Answers pile up to the limit of the buffers, not of the memory."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(framed(1, HELLO))
    await reader.read(1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    asked = 0
    for _ in range(400):
        for _ in range(100):
            asked += 1
            writer.write(framed(1 + asked, Done()))
        await asyncio.sleep(0)
        (accepted,) = server.connections
        if accepted.full:
            break
    assert accepted.full
    assert accepted._transport is not None
    assert not accepted._transport.is_reading()
    await alive(server)
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    total = 0
    while total < 2000 * asked:
        total += len(await asyncio.wait_for(reader.read(1 << 20), 60))
    assert len(worker.heard) >= asked
    writer.transport.abort()


# --- strangers ----------------------------------------------------------------------------------------------------


async def answer_to(server: WireServer, data: bytes) -> HeadraceError | None:
    """What a stranger who sends this is told before the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return None
    finally:
        writer.transport.abort()
    contents = frames.Cutter().cut(answer)
    message = codec.unpack_object(opened(contents[-1])[1])
    assert isinstance(message, HeadraceError)
    return message


def codec_frame(envelope: Any) -> bytes:
    """A frame whose envelope no sender of ours makes."""
    body = codec.pack(envelope)
    return len(body).to_bytes(4, "big") + body


HUGE = 1 << 20_000
"""More digits than Python makes a text of: an error that named it would be another error."""
STRANGERS = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "over the limit"),
    (b"\x16\x03\x01\x02\x00\x01\x00", "over the limit"),
    (b"POST / HTTP/1.1\r\n\r\n" + bytes(4 << 20), "over the limit"),  # It is told although it is still sending.
    ((5000).to_bytes(4, "big"), "over the limit of 4096"),
    (b"\x00\x00\x00\x05hello", "not msgpack"),
    (b"\x00\x00\x00\x01\x07", "not a message"),
    (framed(1, Ping(1)), "not a greeting"),
    (framed(0, HELLO), "greeting is a request"),
    (framed(-1, HELLO), "not asked"),
    (framed(1, replace(HELLO, protocol="headrace-0")), "speaks"),
    (framed(1, replace(HELLO, deployment="shop")), "belongs to the deployment"),
    (framed(1, HELLO) + framed(2, Done())[:-4] + b"Pang", "unknown message"),
    (framed(1, HELLO) + b"\x7f\xff\xff\xff", "over the limit"),
    (framed(1, HELLO) + framed(-7, Done()), "not asked"),
    (framed(1, HELLO) + b"\x00\x00\x00\x03\x93\x00\x00", "not msgpack"),
    (b"\x00\x00\x00", "no greeting came"),
    (codec_frame((1, ("Hello", HUGE))), "not msgpack"),
    (codec_frame((-HUGE, codec.pack_object(HELLO))), "not msgpack"),
]


@pytest.mark.parametrize(
    ("data", "said"), STRANGERS, ids=[f"{place} {said}" for place, (_, said) in enumerate(STRANGERS)]
)
async def test_strangers_are_told_and_let_go(server: WireServer, data: bytes, said: str) -> None:
    answer = await answer_to(server, data)
    assert answer is not None
    assert said in str(answer)
    await alive(server)


async def test_what_is_refused_is_counted_and_said_once_a_minute(
    server: WireServer, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    for data, _ in STRANGERS[:4] * 5:
        await answer_to(server, data)
    assert server.refusals.counts == {"protocol_error": 20}
    assert [record.message for record in caplog.records if "refused 127.0.0.1:" in record.message] == [
        record.message for record in caplog.records
    ]
    assert len(caplog.records) == 1
    link = await connect("127.0.0.1", server.port, HELLO)
    server.handler = worker.refuse
    (accepted,) = (each for each in server.connections if each.is_open())
    accepted.handler = worker.refuse
    for _ in range(3):
        with pytest.raises(BadRequest):
            await link.ask(Ping(9))
    assert await link.ask(Ping(4)) == Pong("w1", 4), "the connection goes on"
    assert server.refusals.total == 23
    assert len(caplog.records) == 2
    assert "api-1 at 127.0.0.1" in caplog.records[1].message
    link.close()


def test_what_was_not_said_is_said_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((0.0, 1.0, 59.0, 61.0))
    refusals = Refusals(lambda: next(times, 61.0))
    for _ in range(4):
        refusals.note("10.0.0.1", "10.0.0.1:7", ProtocolError("no greeting came"))
    refusals.note("10.0.0.2", "10.0.0.2:7", ProtocolError("no greeting came"))
    assert [record.message for record in caplog.records] == [
        "refused 10.0.0.1:7: no greeting came",
        "refused 10.0.0.1:7: no greeting came; and 2 times before that",
        "refused 10.0.0.2:7: no greeting came",
    ]
    for number in range(SOURCES_MAX + 5):
        refusals.note(f"10.1.{number}", "x", ProtocolError("no greeting came"))
    assert len(refusals._said) <= SOURCES_MAX
    assert refusals.total == SOURCES_MAX + 10


async def test_who_connects_to_the_wrong_process_is_told(server: WireServer) -> None:
    with pytest.raises(WrongDeployment, match='"news", not to "shop"'):
        await connect("127.0.0.1", server.port, replace(HELLO, deployment="shop"))
    with pytest.raises(ProtocolError, match="run the same version"):
        await connect("127.0.0.1", server.port, replace(HELLO, protocol="headrace-0"))
    await alive(server)


async def test_nobody_there(server: WireServer) -> None:
    await server.close()
    with pytest.raises(ConnectionLost, match="cannot be reached") as error:
        await connect("127.0.0.1", server.port, HELLO)
    assert not error.value.sent


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None])
async def test_another_program_answers(says: bytes | None) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if says is not None:
            writer.write(says)
            writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    with pytest.raises((ProtocolError, ConnectionLost)):
        await connect("127.0.0.1", other.sockets[0].getsockname()[1], HELLO, timeout=0.3)
    other.close()


async def test_a_port_that_is_taken(server: WireServer, worker: Worker) -> None:
    with pytest.raises(Unavailable, match="cannot listen"):
        await serve("127.0.0.1", server.port, "news", worker, name="w2", incarnation=1)


async def test_fuzz(server: WireServer, link: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """Spoilt bytes before and after the greeting: each connection ends or is served, others notice nothing."""
    caplog.set_level(logging.CRITICAL + 1)
    messages = [framed(number, update(number)) for number in range(2, 6)] + [framed(6, WRITE), framed(7, Ping(3)), BEAT]
    for seed in range(300):
        random = Random(seed)
        sent = [framed(1, HELLO), *random.choices(messages, k=3)]
        data = bytearray(b"".join(sent))
        first = 0 if random.random() < 0.3 else len(sent[0])
        for _ in range(random.randint(1, 6)):
            data[random.randrange(first, len(data))] = random.randrange(256)
        if random.random() < 0.3:
            data += random.randbytes(200)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(bytes(data))
        writer.write_eof()
        if random.random() < 0.2:
            writer.transport.abort()
        if not seed % 20:
            assert await link.ask(Ping(seed + 1)) == Pong("w1", seed + 1)
        writer.close()
    await until(lambda: len(server.connections) == 1)
    await alive(server)


async def test_traffic_is_counted_by_role_beyond_the_end_of_a_connection() -> None:
    server = await serve("127.0.0.1", 0, "news", Worker(), name="w1", incarnation=7)
    try:
        link = await connect("127.0.0.1", server.port, HELLO)
        await link.ask(Ping(1))
        open_still = server.traffic()["api"]
        assert (open_still["messages_in"], open_still["messages_out"]) == (2, 2), "a greeting and a request"
        assert open_still["bytes_in"] == link.traffic["bytes_out"]
        assert open_still["bytes_out"] == link.traffic["bytes_in"]
        link.close()
        await until(lambda: not server.connections)
        assert server.traffic() == {"api": open_still}
    finally:
        await server.close()
