"""The proof of the deployment's secret, and the stranger at the door: without one, with another, with what was said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from tests.kit.tcp_proxy import until
from worker.protocol.messages import ConnectionLost, Ping, Pong, ProtocolError, Role
from worker.wire import proof as wire_proof
from worker.wire.connection import Connection, connect, greeting
from worker.wire.frames import framed
from worker.wire.proof import ANSWER_BYTES, FIRST_BYTES, MAGIC, PROOF_BYTES, ROLES, Asking, Listening
from worker.wire.server import WireServer
from worker.wire.vocabulary import PROTOCOL
from zookeeper.secret import Secret

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64
OURS = Secret(None, (ONE,))
HELLO = greeting("news", Role.API, "api-1", 11)
NAMES = (b"news", b"w1", PROTOCOL.encode(), b"Hello")


def met(asking: Asking, listening: Listening) -> None:
    """Both ends, without a network. Raises ProtocolError."""
    answer = asking.take(listening.take(asking.first()))
    asking.take(listening.take(answer))
    assert asking.proven
    assert listening.proven


# --- without a socket -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("role", "door"), list(product(Role, (Role.WORKER, Role.API, Role.CONTROLLER))))
def test_both_ends_prove_a_role(role: Role, door: Role) -> None:
    listening = Listening(OURS, door)
    met(Asking(OURS, role, door), listening)
    assert listening.role is role


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        ((ONE,), (TWO,), False),
        ((ONE,), (ONE, TWO), True),
        ((TWO,), (ONE, TWO), True),
        ((ONE, TWO), (TWO, ONE), True),
        ((TWO, ONE), (TWO,), True),
        ((ONE, TWO), (TWO,), False),  # The third step before the second: the new one is not proven yet.
        ((THREE,), (ONE, TWO), False),
    ],
)
def test_two_secrets_are_valid_while_one_is_replaced(mine: Any, theirs: Any, fits: bool) -> None:
    asking, listening = Asking(Secret(None, mine), Role.API, Role.WORKER), Listening(Secret(None, theirs), Role.WORKER)
    if fits:
        met(asking, listening)
    else:
        with pytest.raises(ProtocolError, match="another secret"):
            met(asking, listening)
        assert not listening.proven


def test_a_proof_is_for_one_role_one_door_and_one_link() -> None:
    with pytest.raises(ProtocolError, match="another secret"):
        met(Asking(OURS, Role.API, Role.WORKER), Listening(OURS, Role.CONTROLLER))
    asking = Asking(OURS, Role.API, Role.WORKER)
    listening = Listening(OURS, Role.WORKER)
    first = bytearray(asking.first())
    first[len(MAGIC)] = ROLES.index(Role.CONTROLLER)  # Who forwards it would like to be another.
    proven = asking.take(listening.take(bytes(first)))
    with pytest.raises(ProtocolError, match="another secret"):
        listening.take(proven)


def test_what_was_overheard_proves_nothing() -> None:
    asking, listening = Asking(OURS, Role.CONTROLLER, Role.WORKER), Listening(OURS, Role.WORKER)
    first = asking.first()
    answer = listening.take(first)
    proven = asking.take(answer)
    last = listening.take(proven)
    again = Listening(OURS, Role.WORKER)
    again.take(first)
    with pytest.raises(ProtocolError):
        again.take(proven)
    once_more = Asking(OURS, Role.CONTROLLER, Role.WORKER)
    once_more.first()
    once_more.take(answer)
    with pytest.raises(ProtocolError, match="does not prove"):
        once_more.take(last)


def test_no_proof_can_be_sent_back() -> None:
    """A stranger who listens returns what it is sent, or has another listener of ours answer."""
    asking = Asking(OURS, Role.API, Role.API)
    first = asking.first()
    mine = asking.take(MAGIC + first[-32:])
    with pytest.raises(ProtocolError, match="does not prove"):
        asking.take(mine)
    listening = Listening(OURS, Role.API)
    asked = Asking(OURS, Role.API, Role.API)
    proven = asked.take(listening.take(asked.first()))
    assert listening.take(proven) != proven


@pytest.mark.parametrize("seed", range(20))
def test_bytes_come_in_any_pieces_and_not_one_too_many(seed: int) -> None:
    random = Random(seed)

    def pieces(data: bytes, take: Callable[[bytes], bytes]) -> bytes:
        told = b""
        while data:
            size = random.randint(1, 9)
            told += take(data[:size])
            data = data[size:]
        return told

    asking, listening = Asking(OURS, Role.API, Role.WORKER), Listening(OURS, Role.WORKER)
    answer = pieces(pieces(asking.first(), listening.take), asking.take)
    pieces(pieces(answer, listening.take), asking.take)
    assert asking.proven
    assert listening.proven
    for size in (FIRST_BYTES + 1, 1 << 20):
        with pytest.raises(ProtocolError):
            Listening(OURS, Role.WORKER).take((MAGIC + bytes(size))[:size])
    with pytest.raises(ProtocolError, match="no proof"):
        Listening(OURS, Role.WORKER).take(b"G")
    with pytest.raises(ProtocolError, match="a role that there is not"):
        Listening(OURS, Role.WORKER).take(MAGIC + b"\xff" + bytes(32))


def test_a_nonce_is_new_each_time() -> None:
    assert len({Asking(OURS, Role.API, Role.WORKER).first() for _ in range(100)}) == 100
    first = Asking(OURS, Role.API, Role.WORKER).first()
    assert len({Listening(OURS, Role.WORKER).take(first) for _ in range(100)}) == 100


# --- at a port --------------------------------------------------------------------------------------------------------


def answering(connection: Connection, message: Any) -> Any:
    assert isinstance(message, Ping)
    return Pong("w1", message.epoch)


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    server = WireServer("news", answering, "w1", 3, 0.5, secret=OURS)
    await server.listen("127.0.0.1", 0)
    yield server
    await server.close()


async def alive(server: WireServer) -> None:
    link = await connect("127.0.0.1", server.port, HELLO, secret=OURS)
    assert await link.ask(Ping(4)) == Pong("w1", 4)
    link.close()
    await link.closed.wait()


async def told(server: WireServer, data: bytes, *, pieces: int = 0) -> bytes:
    """All that a stranger hears who sends this."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for at in range(0, len(data), pieces or len(data) or 1):
            writer.write(data[at : at + (pieces or len(data))])
            if pieces:
                await asyncio.sleep(0.01)
        return await asyncio.wait_for(reader.read(), 30)
    except (ConnectionError, RuntimeError):  # uvloop's word for one that is closed already.
        return b""
    finally:
        writer.transport.abort()


FIRST = Asking(OURS, Role.API, Role.WORKER).first()
STRANGERS = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a greeting without a proof": framed(1, HELLO),
    "a giant length": b"\xff\xff\xff\xff" + bytes(1 << 20),
    "half of the magic": MAGIC[:7],
    "the magic": MAGIC,
    "half of the first message": FIRST[:-10],
    "a role that there is not": MAGIC + b"\x77" + bytes(32),
    "a byte too many": FIRST + b"x",
    "the first message, and a guess": FIRST + bytes(PROOF_BYTES),
}


@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("pieces", [0, 1])
async def test_a_stranger_hears_nothing_of_the_deployment(server: WireServer, data: bytes, pieces: int) -> None:
    heard = await told(server, data[:200] if pieces else data, pieces=pieces)
    assert heard == b"" or (heard.startswith(MAGIC) and len(heard) == ANSWER_BYTES)
    assert not [name for name in NAMES if name in heard]
    await alive(server)
    await until(lambda: not server._gate.unproven)  # type: ignore[union-attr]
    assert server.refusals.total >= 1


async def test_a_guess_after_the_nonce_is_closed_without_a_word(server: WireServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(FIRST)
    assert len(await reader.readexactly(ANSWER_BYTES)) == ANSWER_BYTES
    writer.write(bytes(PROOF_BYTES))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await asyncio.wait_for(reader.readexactly(1), 30)
    writer.transport.abort()
    await alive(server)


async def test_a_link_of_before_cannot_be_played_again(server: WireServer) -> None:
    heard: list[bytes] = []

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", server.port)

        async def carry(one: asyncio.StreamReader, other: asyncio.StreamWriter, keep: bool) -> None:
            while data := await one.read(4096):
                if keep:
                    heard.append(data)
                other.write(data)
            other.close()

        await asyncio.gather(carry(reader, to, True), carry(there, writer, False), return_exceptions=True)

    tap = await asyncio.start_server(between, "127.0.0.1", 0)
    link = await connect("127.0.0.1", tap.sockets[0].getsockname()[1], HELLO, secret=OURS)
    assert await link.ask(Ping(4)) == Pong("w1", 4)
    link.close()
    await link.closed.wait()
    tap.close()
    before = server.refusals.total
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answered = b""
    for data in heard:
        writer.write(data)
        try:
            answered += await asyncio.wait_for(reader.read(4096), 5)
        except ConnectionError:
            break
    writer.transport.abort()
    assert len(answered) == ANSWER_BYTES
    assert server.refusals.total == before + 1
    await alive(server)


async def test_who_has_another_secret_or_none_is_told_what_to_look_at(server: WireServer) -> None:
    with pytest.raises(ConnectionLost, match="secret was proven") as lost:
        await connect("127.0.0.1", server.port, HELLO, secret=Secret(None, (TWO,)))
    assert "--secret-file" in str(lost.value.hint)
    with pytest.raises(ConnectionLost):
        await connect("127.0.0.1", server.port, HELLO)
    open_door = WireServer("news", answering, "w1", 3)
    await open_door.listen("127.0.0.1", 0)
    with pytest.raises((ProtocolError, ConnectionLost), match=r"no proof|secret was proven"):
        await connect("127.0.0.1", open_door.port, HELLO, secret=OURS)
    await open_door.close()
    await alive(server)


async def test_a_door_that_proves_nothing_is_not_spoken_to() -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readexactly(FIRST_BYTES))
        writer.write(MAGIC + bytes(32))
        heard.extend(await reader.readexactly(PROOF_BYTES))
        writer.write(bytes(32))
        heard.extend(await reader.read())
        writer.close()

    stranger = await asyncio.start_server(listen, "127.0.0.1", 0)
    with pytest.raises(ProtocolError, match="does not prove the deployment's secret"):
        await connect("127.0.0.1", stranger.sockets[0].getsockname()[1], HELLO, secret=OURS)
    stranger.close()
    assert len(heard) == FIRST_BYTES + PROOF_BYTES
    assert not [name for name in NAMES if name in heard]


async def test_a_door_that_says_nothing_is_given_up(server: WireServer) -> None:
    silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
    with pytest.raises(ConnectionLost, match="did not answer within"):
        await connect("127.0.0.1", silent.sockets[0].getsockname()[1], HELLO, secret=OURS, timeout=0.2)
    silent.close()


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.API])
async def test_the_role_of_the_greeting_is_the_proven_one(server: WireServer, role: Role) -> None:
    class Liar(Asking):
        def __init__(self, secret: Secret, _: Role, door: Role) -> None:
            super().__init__(secret, Role.API, door)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("worker.wire.connection.Asking", Liar)
        with pytest.raises(ProtocolError, match=f'that of a "{role}", and the role "api" was proven'):
            await connect("127.0.0.1", server.port, replace(HELLO, role=role), secret=OURS)
    await alive(server)


async def test_half_open_connections_do_not_keep_others_out(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(wire_proof, "UNPROVEN_MAX", 20)
    server.greeting_seconds = 30.0
    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(60)]
    for _, writer in opened[::2]:
        writer.write(FIRST)
    await until(lambda: server.refusals.total >= 40)
    assert len(server._gate.unproven) == 20  # type: ignore[union-attr]
    for _ in range(5):
        await alive(server)
    assert len(server.connections) <= 5
    assert len(caplog.records) == 1, "once a minute"
    for _, writer in opened:
        writer.transport.abort()
    await until(lambda: not server._gate.unproven)  # type: ignore[union-attr]


async def test_a_secret_is_replaced_while_links_come_and_go() -> None:
    theirs, mine = Secret(None, (ONE,)), Secret(None, (ONE,))
    server = WireServer("news", answering, "w1", 3, 0.5, secret=theirs)
    await server.listen("127.0.0.1", 0)
    stays = await connect("127.0.0.1", server.port, HELLO, secret=mine)
    for step in ((ONE, TWO), (TWO, ONE), (TWO,)):
        for turn in (theirs, mine), (mine, theirs):
            first, second = turn
            before = second._texts
            first._texts = step
            (await connect("127.0.0.1", server.port, HELLO, secret=mine)).close()
            second._texts = step
            (await connect("127.0.0.1", server.port, HELLO, secret=mine)).close()
            assert await stays.ask(Ping(4)) == Pong("w1", 4)
            if turn == (theirs, mine):
                first._texts = second._texts = before
    with pytest.raises(ConnectionLost):
        await connect("127.0.0.1", server.port, HELLO, secret=Secret(None, (ONE,)))
    stays.close()
    await server.close()
