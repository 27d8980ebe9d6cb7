"""Bytes of somebody who has no credential, at one port, and what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from dataclasses import dataclass, field

import msgpack

WAIT_SECONDS = 3.0
"""For the first byte of an answer. What stays silent that long has said nothing."""
HEARD_MAX = 1 << 20
HTTP = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
SOCKET = (
    b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CLIENT_HELLO = bytes.fromhex("1603010046010000420303") + bytes(32) + bytes.fromhex("0000041301c02f0100001500")
FOUR_LETTERS = (b"stat", b"dump", b"envi", b"conf", b"cons", b"wchp", b"mntr", b"ruok")


def frame(content: bytes) -> bytes:
    """As workers and controllers send them."""
    return struct.pack(">I", len(content)) + content


def hello(role: str) -> bytes:
    """A greeting that is well-formed, of somebody who knows neither the secret nor the version."""
    return frame(msgpack.packb((1, ("Hello", "0" * 64, "headrace", role, "stranger", 1)), use_bin_type=True))


def message(name: str, *fields: object) -> bytes:
    return frame(msgpack.packb((1, (name, *fields)), use_bin_type=True))


def _noise(draw: random.Random) -> list[bytes]:
    return [draw.randbytes(draw.choice((1, 4, 100, 5_000)))]


def _lengths(draw: random.Random) -> list[bytes]:
    return [struct.pack(">I", draw.choice((0, 1, 4_096, 64 << 20, 1 << 31, 2**32 - 1))) + draw.randbytes(16)]


def _greeting(draw: random.Random) -> list[bytes]:
    role = draw.choice(("controller", "worker", "api", "admin"))
    return [hello(role), message("Ping", 2**60), message("StatusRequest")]


def _unannounced(draw: random.Random) -> list[bytes]:
    return [message(draw.choice(("Ping", "StatusRequest", "WriteRequest", "Shutdown")), 2**60)]


def _maps(draw: random.Random) -> list[bytes]:
    """A byte each, and an object each where they are decoded."""
    count = draw.choice((100, 3_000, 1_000_000))
    return [frame(b"\xdd" + struct.pack(">I", count) + b"\x80" * count)]


def _nested(draw: random.Random) -> list[bytes]:
    return [frame(b"\x91" * draw.choice((100, 4_000, 100_000)))]


def _http(draw: random.Random) -> list[bytes]:
    head = HTTP + (b"Authorization: Bearer hrk_" + draw.randbytes(20).hex().encode() + b"\r\n")
    return [
        draw.choice((HTTP, head + b"\r\n", HTTP[:-2], b"POST /v1/sql HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n"))
    ]


def _web_socket(draw: random.Random) -> list[bytes]:
    """A handshake, and frames: of nobody's subscription, whose name is said back, of lengths that do not come."""
    said = b'{"subscribe":[{"view":"ByAuthor","parameters":{"author":7},"name":"x"}],"claims":{"sub":7}}'
    first = draw.choice((0x81, 0x01, 0x82, 0x89, 0x88, 0x8B, 0xC1))
    said = b"said back" if first == 0x89 else said  # A ping.
    length = draw.choice((bytes((0x80 | len(said),)), b"\xff" + struct.pack(">Q", 2**62), bytes((len(said),))))
    return [SOCKET, (bytes((first,)) + length + bytes(4) + said) * draw.choice((1, 2, 500))]


def _mysql(draw: random.Random) -> list[bytes]:
    """Logins with proofs of nothing, a question before the login, packets that do not end, and TLS that is none."""

    def packet(payload: bytes, sequence: int) -> bytes:
        return len(payload).to_bytes(3, "little") + bytes((sequence,)) + payload

    user = draw.choice((b"root", b"ann", draw.randbytes(300).replace(b"\0", b"x")))
    proof = draw.choice((b"", draw.randbytes(32), draw.randbytes(20)))
    head = struct.pack("<IIB23x", draw.choice((0x008FA28D, draw.randrange(1 << 32))), 1 << 30, draw.randrange(256))
    login = packet(head + user + b"\0" + bytes((len(proof),)) + proof + b"caching_sha2_password\0", 1)
    asked = packet(b"\x03SELECT * FROM secrets", 0)
    rest = draw.choice((packet(draw.randbytes(40), 3), b"", b"\xff\xff\xff\x03" + draw.randbytes(5_000)))
    secure = packet(struct.pack("<IIB23x", 0x008FAA8D, 1 << 30, 45), 1)
    return draw.choice(([login, rest, asked], [asked], [secure, CLIENT_HELLO], [secure, asked], [login[:20]]))


def _zookeeper(draw: random.Random) -> list[bytes]:
    connect = struct.pack(">iqiqi", 0, 0, 10_000, 0, 16) + bytes(16) + b"\0"
    return [frame(connect), frame(draw.randbytes(40))]


def _four_letters(draw: random.Random) -> list[bytes]:
    return [draw.choice(FOUR_LETTERS)]


def _drips(draw: random.Random) -> list[bytes]:
    return [bytes([each]) for each in hello("worker")[: draw.randrange(1, 40)]]


def _tls(draw: random.Random) -> list[bytes]:
    return [CLIENT_HELLO[: draw.randrange(1, len(CLIENT_HELLO) + 1)]]


def _nothing(draw: random.Random) -> list[bytes]:
    return []


# Conversations: what is sent, piece by piece.
KINDS = (
    *(_noise, _lengths, _greeting, _unannounced, _maps, _nested),
    *(_http, _web_socket, _mysql, _zookeeper, _four_letters, _drips, _tls, _nothing),
)


@dataclass
class Heard:
    """What came back at one port."""

    conversations: int = 0
    bytes: int = 0
    faults: set[str] = field(default_factory=set)


async def converse(port: int, draw: random.Random, told: tuple[bytes, ...], heard: Heard) -> None:
    """One connection. A fault: an answer that holds one of ``told``, what a stranger must not be told."""
    pieces = draw.choice(KINDS)(draw)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return  # It refuses: there are as many connections as it takes.
    answer = b""
    try:
        with contextlib.suppress(OSError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while len(answer) < HEARD_MAX and (more := await reader.read(1 << 16)):
                    answer += more
    finally:
        writer.close()
    heard.conversations += 1
    heard.bytes += len(answer)
    heard.faults |= {f"a stranger is told {each.decode()!r}" for each in told if each in answer}


async def attack(ports: list[int], seconds: float, seed: int, told: tuple[bytes, ...]) -> dict[int, Heard]:
    """Conversations at all ports at once, some at a time at each."""
    heard = {port: Heard() for port in ports}
    until = asyncio.get_running_loop().time() + seconds

    async def client(port: int, number: int) -> None:
        draw = random.Random(f"{seed} {ports.index(port)} {number}")
        while asyncio.get_running_loop().time() < until:
            await converse(port, draw, told, heard[port])

    async with asyncio.TaskGroup() as group:
        for port in ports:
            for number in range(SIDE_BY_SIDE):
                group.create_task(client(port, number))
    return heard


SIDE_BY_SIDE = 6
